"""Triton's real compiler accepts the kernels between a layer's products for an NVIDIA GPU; it needs none for that."""

import os
from collections.abc import Callable
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


@pytest.mark.parametrize(
    ("dtype", "whole"),
    [("fp32", "any"), ("bf16", "ones"), ("bf16", "sixteens"), ("fp16", "any"), ("fp64", "any")],
)
@pytest.mark.parametrize(
    ("kernel", "constants", "warps"),
    [
        ("norm_rows", {"ADD": True, "SPAN": 4096}, 16),
        ("norm_rows", {"ADD": False, "SPAN": 1}, 1),
        ("place_heads", {**HEADS, "NORMED": True}, 1),
        ("place_heads", {**HEADS, "NORMED": False}, 1),
        ("gate_rows", {"BLOCK": 1024}, 4),
        ("matvec_rows", {**MATVEC, "WIDTH": 4096, "TOKENS": 1, "ROWS": 4, "BIAS": False}, 4),
        ("matvec_rows", {**MATVEC, "WIDTH": 4100, "TOKENS": 4, "ROWS": 1, "BIAS": True}, 4),
        ("matvec_rows", {**MATVEC, **ALL, "WIDTH": 2048, "TOKENS": 1, "ROWS": 2}, 4),
        ("matvec_rows", {**MATVEC, **ALL, "WIDTH": 4100, "TOKENS": 4, "ROWS": 1}, 4),
    ],
)
def test_a_kernel_compiles(
    kernel: str,
    constants: dict[str, Any],
    warps: int,
    dtype: str,
    whole: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compiled: Callable[..., Any],
) -> None:
    if kernel == "matvec_rows" and dtype == "fp64":
        pytest.skip("the products of these are torch's")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    pytest.importorskip("triton")
    from trellm.kernels.decoder import triton_decoder
    from triton import language as tl

    names = getattr(triton_decoder, kernel).arg_names
    if "WIDE" in names:
        constants = constants | {"WIDE": tl.float64 if dtype == "fp64" else tl.float32}
    types = dict.fromkeys(names, f"*{dtype}") | dict.fromkeys(NUMBERS, "i32") | {"eps": "fp32", "slots": "*i32"}
    compiled("decoder.triton_decoder", kernel, types, constants, whole, num_warps=warps)
