"""Triton kernel for the product of a few tokens with a matrix: its rows are read once, by as many programs as can be.

With up to four tokens a product takes as long as its weights take to be read. Each program reads some rows from end to
end, in pieces of 16 bytes a thread, and has several of them under way. What lies before and behind a product costs
nothing then: the norm of its states, SwiGLU of what it gives, and the sum with the residual are part of the launch.
"""
# What Triton compiles has types that Python cannot say; and it is there only where there is a GPU.
# pyright: basic, reportOperatorIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportMissingImports=false, reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..logits.triton_mask import on
from .triton_gate import gated

TOKENS = 4
"""The most tokens that the kernel multiplies."""
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class Tile(NamedTuple):
    """How a matrix is cut: rows of a program, columns of a piece, pieces under way at once, and warps."""

    rows: int
    columns: int
    unroll: int
    warps: int


@triton.jit
def weigh(sums, ups, squares, states, at, inside, piece, other, scales, NORM: tl.constexpr, GATE: tl.constexpr):  # noqa: N803
    """One token's sums with a piece of the matrix added, and those of its states' squares."""
    part = tl.load(states + at, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        squares += part * part
        part *= scales
    sums += piece * part[None, :]
    if GATE:
        ups += other * part[None, :]
    return sums, ups, squares


@triton.jit
def finish(
    sums, ups, squares, bias, more, eps, out, known,
    WIDTH: tl.constexpr, NORM: tl.constexpr, GATE: tl.constexpr, ADD: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Store one token's results: `out` points to where they go."""
    kind = out.dtype.element_ty
    found = tl.sum(sums, axis=1)
    up = tl.sum(ups, axis=1)
    if NORM:
        scale = tl.rsqrt(tl.sum(squares, axis=0) / WIDTH + eps)
        found *= scale
        up *= scale
    found = (found + bias).to(kind)
    if GATE:
        found = gated(found, (up + more).to(kind), kind, tl.float32)
    if ADD:
        found = (found.to(tl.float32) + tl.load(out, mask=known, other=0.0).to(tl.float32)).to(kind)
    tl.store(out, found, mask=known)


@triton.jit
def matvec_rows(
    states, norm, weight, bias, out, count, stride, eps,
    WIDTH: tl.constexpr, TOKENS: tl.constexpr, BIAS: tl.constexpr, NORM: tl.constexpr,  # noqa: N803
    GATE: tl.constexpr, ADD: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, UNROLL: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Some rows of a matrix [count, WIDTH], with row step `stride`, times all tokens [TOKENS, WIDTH]. Grid: rows.

    GATE: the matrix has `count` further rows, and what they give is multiplied by SiLU of what the first ones give
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    known = rows < count
    columns = tl.arange(0, COLUMNS)
    places = weight + rows.to(tl.int64)[:, None] * stride + columns[None, :]
    beyond = places + tl.cast(count, tl.int64) * stride
    none = tl.zeros((ROWS, COLUMNS), tl.float32)
    empty = tl.zeros((COLUMNS,), tl.float32)
    sums, ups, squares = none, none, empty
    sums_1, ups_1, squares_1 = none, none, empty
    sums_2, ups_2, squares_2 = none, none, empty
    sums_3, ups_3, squares_3 = none, none, empty
    for start in tl.range(0, WIDTH, COLUMNS, loop_unroll_factor=UNROLL):
        at = start + columns
        inside = tl.full((COLUMNS,), 1, tl.int1) if WIDTH % COLUMNS == 0 else at < WIDTH
        readable = known[:, None] & inside[None, :]
        piece = tl.load(places + start, mask=readable, other=0.0, eviction_policy="evict_first").to(tl.float32)
        other = piece
        if GATE:
            other = tl.load(beyond + start, mask=readable, other=0.0, eviction_policy="evict_first").to(tl.float32)
        scales = empty
        if NORM:
            scales = tl.load(norm + at, mask=inside, other=0.0).to(tl.float32)
        sums, ups, squares = weigh(sums, ups, squares, states, at, inside, piece, other, scales, NORM, GATE)
        if TOKENS > 1:
            sums_1, ups_1, squares_1 = weigh(
                sums_1, ups_1, squares_1, states + WIDTH, at, inside, piece, other, scales, NORM, GATE
            )
        if TOKENS > 2:
            sums_2, ups_2, squares_2 = weigh(
                sums_2, ups_2, squares_2, states + 2 * WIDTH, at, inside, piece, other, scales, NORM, GATE
            )
        if TOKENS > 3:
            sums_3, ups_3, squares_3 = weigh(
                sums_3, ups_3, squares_3, states + 3 * WIDTH, at, inside, piece, other, scales, NORM, GATE
            )
    added = tl.zeros((ROWS,), tl.float32)
    more = added
    if BIAS:
        added += tl.load(bias + rows, mask=known, other=0.0).to(tl.float32)
        if GATE:
            more += tl.load(bias + count + rows, mask=known, other=0.0).to(tl.float32)
    finish(sums, ups, squares, added, more, eps, out + rows, known, WIDTH, NORM, GATE, ADD)
    if TOKENS > 1:
        finish(sums_1, ups_1, squares_1, added, more, eps, out + count + rows, known, WIDTH, NORM, GATE, ADD)
    if TOKENS > 2:
        finish(sums_2, ups_2, squares_2, added, more, eps, out + 2 * count + rows, known, WIDTH, NORM, GATE, ADD)
    if TOKENS > 3:
        finish(sums_3, ups_3, squares_3, added, more, eps, out + 3 * count + rows, known, WIDTH, NORM, GATE, ADD)


def can_multiply(states: Any, weight: Any) -> bool:
    """Whether there are as few tokens, of such types, as the kernel is for."""
    few = 0 < len(states) <= TOKENS
    return few and states.dtype in DTYPES and weight.dtype == states.dtype and weight.stride(1) == 1


def multiply(
    states: Any,
    weight: Any,
    bias: Any = None,
    *,
    norm: tuple[Any, float] | None = None,
    gate: bool = False,
    residual: Any = None,
    tile: Tile | None = None,
) -> Any:
    """`torch.nn.functional.linear` for up to four contiguous tokens [n, in]; sums are float32.

    norm: weights [in] and an addend of an RMS norm, through which the states go first; it is not rounded in between
    gate: whether SwiGLU is made of the result, which has half as many columns then
    residual: [n, out], contiguous, to which the result is added in place, after it was rounded; else it is a new tensor
    tile: chosen by the size of the matrix if not given
    """
    tokens, width = states.shape
    count = len(weight) // 2 if gate else len(weight)
    out = states.new_empty(tokens, count) if residual is None else residual
    cut = tile or tile_of(count, width, states.element_size(), tokens, gate)
    scales, eps = (states, 0.0) if norm is None else norm
    with on(states):
        matvec_rows[(triton.cdiv(count, cut.rows),)](
            *(states, scales, weight, weight if bias is None else bias, out, count, weight.stride(0), eps),
            WIDTH=width,
            TOKENS=tokens,
            BIAS=bias is not None,
            NORM=norm is not None,
            GATE=gate,
            ADD=residual is not None,
            ROWS=cut.rows,
            COLUMNS=cut.columns,
            UNROLL=cut.unroll,
            num_warps=cut.warps,
        )
    return out


def tile_of(count: int, width: int, size: int, tokens: int = 1, gate: bool = False) -> Tile:
    """How a matrix [count, width] of numbers of `size` bytes is cut; of twice as many rows for a gate."""
    warps = 4
    most = warps * 32 * 16 // size  # a row of these is 16 bytes for each thread
    divisor = min(width & -width, most)
    # Without a remainder nothing has to be asked about columns; where that would make rows of programs too short it is.
    columns = divisor if 4 * divisor >= most else min(triton.next_power_of_2(width), most)
    # Sums of all tokens lie in registers; and a small matrix is to be cut into as many parts as there is room for.
    pieces = 1 if count <= 2048 else 2 if count <= 8192 or gate else 4
    pieces = max(1, min(pieces, 8 // (tokens * (2 if gate else 1))))
    return Tile(pieces * (most // columns), columns, 4, warps)
