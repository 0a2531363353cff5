"""Triton's real compiler accepts the kernels between a layer's products for an NVIDIA GPU; it needs none for that."""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter is not the compiler"),
]

NUMBERS = ("stride", "width", "count")
HEADS = {"QUERIES": 32, "KEYS": 8, "HALF": 64, "PLACES": 16, "SPAN": 64}
MATVEC = {"COLUMNS": 1024, "UNROLL": 4, "NORM": False, "GATE": False, "ADD": False}
ALL = {"NORM": True, "GATE": True, "ADD": True, "BIAS": True}


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16", "fp64"])
@pytest.mark.parametrize(
    ("module", "kernel", "constants"),
    [
        ("triton_norm", "norm_rows", {"ADD": True, "SPAN": 4096}),
        ("triton_norm", "norm_rows", {"ADD": False, "SPAN": 1}),
        ("triton_heads", "place_heads", {**HEADS, "NORMED": True}),
        ("triton_heads", "place_heads", {**HEADS, "NORMED": False}),
        ("triton_gate", "gate_rows", {"BLOCK": 1024}),
        ("triton_matvec", "matvec_rows", {**MATVEC, "WIDTH": 4096, "TOKENS": 1, "ROWS": 4, "BIAS": False}),
        ("triton_matvec", "matvec_rows", {**MATVEC, "WIDTH": 4100, "TOKENS": 4, "ROWS": 1, "BIAS": True}),
        ("triton_matvec", "matvec_rows", {**MATVEC, **ALL, "WIDTH": 2048, "TOKENS": 1, "ROWS": 2}),
        ("triton_matvec", "matvec_rows", {**MATVEC, **ALL, "WIDTH": 4100, "TOKENS": 4, "ROWS": 1}),
    ],
)
def test_a_kernel_compiles(
    module: str, kernel: str, constants: dict[str, Any], dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if module == "triton_matvec" and dtype == "fp64":
        pytest.skip("the products of these are torch's")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    pytest.importorskip("triton")
    import triton
    from triton import language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(import_module(f"trellm.kernels.decoder.{module}"), kernel)
    names = function.arg_names
    if "WIDE" in names:
        constants = constants | {"WIDE": tl.float64 if dtype == "fp64" else tl.float32}
    types = dict.fromkeys(names, f"*{dtype}") | dict.fromkeys(NUMBERS, "i32") | {"eps": "fp32", "slots": "*i32"}
    types |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(
        function,
        {name: types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    assert compiled.asm["cubin"]
