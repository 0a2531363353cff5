"""Triton kernel for the product of a few tokens with a matrix: its rows are read once, by as many programs as can be.

With up to four tokens a product takes as long as its weights take to be read. Each program reads some rows from end to
end, in pieces of 16 bytes a thread, and has several of them under way.
"""
# What Triton compiles has types that Python cannot say; and it is there only where there is a GPU.
# pyright: basic, reportOperatorIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..logits.triton_mask import on

TOKENS = 4
"""The most tokens that the kernel multiplies."""
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@triton.jit
def part(states, at, inside):
    """A piece of a token's states, as a row."""
    return tl.load(states + at, mask=inside, other=0.0).to(tl.float32)[None, :]


@triton.jit
def matvec_rows(
    states, weight, bias, out, count, stride,
    WIDTH: tl.constexpr, TOKENS: tl.constexpr, BIAS: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, UNROLL: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Some rows of a matrix [count, WIDTH], with row step `stride`, times all tokens [TOKENS, WIDTH]. Grid: rows."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    known = rows < count
    columns = tl.arange(0, COLUMNS)
    places = weight + rows.to(tl.int64)[:, None] * stride + columns[None, :]
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    second = tl.zeros((ROWS, COLUMNS), tl.float32)
    third = tl.zeros((ROWS, COLUMNS), tl.float32)
    fourth = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.range(0, WIDTH, COLUMNS, loop_unroll_factor=UNROLL):
        at = start + columns
        inside = tl.full((COLUMNS,), 1, tl.int1) if WIDTH % COLUMNS == 0 else at < WIDTH
        readable = known[:, None] & inside[None, :]
        piece = tl.load(places + start, mask=readable, other=0.0, eviction_policy="evict_first").to(tl.float32)
        sums += piece * part(states, at, inside)
        if TOKENS > 1:
            second += piece * part(states + WIDTH, at, inside)
        if TOKENS > 2:
            third += piece * part(states + 2 * WIDTH, at, inside)
        if TOKENS > 3:
            fourth += piece * part(states + 3 * WIDTH, at, inside)
    added = tl.zeros((ROWS,), tl.float32)
    if BIAS:
        added += tl.load(bias + rows, mask=known, other=0.0).to(tl.float32)
    kind = out.dtype.element_ty
    tl.store(out + rows, (tl.sum(sums, axis=1) + added).to(kind), mask=known)
    if TOKENS > 1:
        tl.store(out + count + rows, (tl.sum(second, axis=1) + added).to(kind), mask=known)
    if TOKENS > 2:
        tl.store(out + 2 * count + rows, (tl.sum(third, axis=1) + added).to(kind), mask=known)
    if TOKENS > 3:
        tl.store(out + 3 * count + rows, (tl.sum(fourth, axis=1) + added).to(kind), mask=known)


def can_multiply(states: Any, weight: Any) -> bool:
    """Whether there are as few tokens, of such types, as the kernel is for."""
    few = 0 < len(states) <= TOKENS
    return few and states.dtype in DTYPES and weight.dtype == states.dtype and weight.stride(1) == 1


def multiply(states: Any, weight: Any, bias: Any = None, tile: tuple[int, int, int, int] | None = None) -> Any:
    """`torch.nn.functional.linear` for up to four contiguous tokens [n, in]; sums are float32.

    tile: rows of a program, columns of a piece, pieces at once, warps; by the size of the matrix if not given
    """
    tokens, width = states.shape
    count = len(weight)
    out = states.new_empty(tokens, count)
    rows, columns, unroll, warps = tile or tile_of(count, width, states.element_size())
    with on(states):
        matvec_rows[(triton.cdiv(count, rows),)](
            *(states, weight, weight if bias is None else bias, out, count, weight.stride(0)),
            WIDTH=width,
            TOKENS=tokens,
            BIAS=bias is not None,
            ROWS=rows,
            COLUMNS=columns,
            UNROLL=unroll,
            num_warps=warps,
        )
    return out


def tile_of(count: int, width: int, size: int) -> tuple[int, int, int, int]:
    """How a matrix [count, width] of numbers of `size` bytes is cut: see `multiply`."""
    warps = 4
    columns = min(triton.next_power_of_2(width), warps * 32 * 16 // size)
    rows = 1 if count <= 2048 else 2 if count <= 8192 else 4
    return rows, columns, 4, warps
