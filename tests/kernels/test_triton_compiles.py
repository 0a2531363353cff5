"""Triton's real compiler accepts every kernel for an NVIDIA GPU; it needs none for that."""

import os
from pathlib import Path
from typing import Any

import pytest

ROWS = {
    "stride": "i64",
    "words": "*i32",
    "width": "i32",
    "count": "i32",
    "numbers": "*i32",
    "size": "i32",
    "full_width": "i32",
    "codes": "*i64",
    "peaks": "*fp32",
    "sums": "*fp32",
    "raw_peaks": "*fp32",
    "raw_sums": "*fp32",
    "flags": "*i32",
    "cuts": "*fp32",
    "cut_tokens": "*i32",
    "scales": "*fp32",
    "masses": "*fp64",
    "blocks": "i32",
    "uniforms": "*fp64",
    "status": "*u8",
    "tokens": "*i32",
    "tops": "*fp32",
    "masked": "*fp64",
    "raw": "*fp64",
}


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter is not the compiler")
@pytest.mark.parametrize(
    ("module", "kernel", "logits", "constants"),
    [
        ("triton_mask", "mask_blocks", "*bf16", {"BLOCK": 1024}),
        ("triton_scan", "scan_blocks", "*fp32", {"BLOCK": 1024, "KEEP": 1}),
        ("triton_scan", "scan_blocks", "*bf16", {"BLOCK": 1024, "KEEP": 16}),
        ("triton_scan", "finish_rows", "", {"WITH_RAW": True, "SLOTS": 128, "KEEP": 16}),
        ("triton_select", "weigh_blocks", "*fp16", {"BLOCK": 1024}),
        ("triton_select", "draw_rows", "*bf16", {"BLOCK": 1024, "SLOTS": 128}),
    ],
)
def test_a_kernel_compiles(
    module: str,
    kernel: str,
    logits: str,
    constants: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    triton = pytest.importorskip("triton")
    from importlib import import_module

    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(import_module(f"trellm.kernels.logits.{module}"), kernel)
    types = ROWS | {"logits": logits} | dict.fromkeys(constants, "constexpr")
    names = function.arg_names
    source = ASTSource(
        function,
        {name: types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    assert compiled.asm["cubin"]
