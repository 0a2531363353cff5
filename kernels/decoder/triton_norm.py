"""Triton kernel for a sum and the norm of it: one launch between two products."""
# What Triton compiles has types that Python cannot say; and it is there only where there is a GPU.
# pyright: basic, reportOperatorIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..logits.triton_mask import on


@triton.jit
def norm_rows(
    residual, added, weight, out, width, eps,
    ADD: tl.constexpr, WIDE: tl.constexpr, SPAN: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One row: add, keep the sum, normalise it in float32, round, and multiply by the weights. Grid: rows."""
    first = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, SPAN)
    inside = at < width
    states = tl.load(residual + first + at, mask=inside, other=0.0)
    if ADD:
        more = tl.load(added + first + at, mask=inside, other=0.0)
        states = (states.to(WIDE) + more.to(WIDE)).to(out.dtype.element_ty)
        tl.store(residual + first + at, states, mask=inside)
    exact = states.to(tl.float32)
    scale = tl.rsqrt(tl.sum(exact * exact, axis=0) / width + eps)
    normal = (exact * scale).to(out.dtype.element_ty)
    weights = tl.load(weight + at, mask=inside, other=0.0)
    tl.store(out + first + at, (weights.to(WIDE) * normal.to(WIDE)).to(out.dtype.element_ty), mask=inside)


def wide(dtype: Any) -> Any:
    """The type in which sums and products of numbers of a type are made before they are rounded."""
    return tl.float64 if dtype == torch.float64 else tl.float32


def norm(residual: Any, added: Any, weight: Any, eps: float) -> Any:
    """`plain.norm` on a GPU, for rows that lie behind one another."""
    rows, width = residual.shape
    out = torch.empty_like(residual)
    if rows:
        span = triton.next_power_of_2(width)
        with on(residual):
            norm_rows[(rows,)](
                *(residual, residual if added is None else added, weight, out, width, eps),
                ADD=added is not None,
                WIDE=wide(residual.dtype),
                SPAN=span,
                num_warps=min(max(span // 256, 1), 16),
            )
    return out
