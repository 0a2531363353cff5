"""Triton kernel for SwiGLU (Shazeer, 2020, arXiv:2002.05202): what lies between a layer's last two products."""
# What Triton compiles has types that Python cannot say; and it is there only where there is a GPU.
# pyright: basic, reportOperatorIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ..logits.triton_mask import on
from .triton_norm import wide

BLOCK = 1024


@triton.jit
def gated(left, right, kind: tl.constexpr, WIDE: tl.constexpr):  # noqa: N803
    """SiLU of `left`, rounded, times `right`."""
    exact = left.to(WIDE)
    opened = (exact / (1.0 + tl.exp(-exact))).to(kind)
    return (opened.to(WIDE) * right.to(WIDE)).to(kind)


@triton.jit
def gate_rows(product, out, width, WIDE: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """One block of one row. Grid: rows, blocks of `width`, half of a row."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    left = tl.load(product + 2 * row * width + at, mask=inside, other=0.0)
    right = tl.load(product + (2 * row + 1) * width + at, mask=inside, other=0.0)
    tl.store(out + row * width + at, gated(left, right, out.dtype.element_ty, WIDE), mask=inside)


def gate(product: Any) -> Any:
    """`plain.gate` on a GPU, for rows that lie behind one another."""
    rows, width = len(product), product.shape[1] // 2
    out = product.new_empty(rows, width)
    if rows:
        with on(product):
            gate_rows[(rows, triton.cdiv(width, BLOCK))](product, out, width, WIDE=wide(product.dtype), BLOCK=BLOCK)
    return out
