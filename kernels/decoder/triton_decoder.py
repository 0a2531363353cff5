"""Triton kernels of a decoder layer, except attention: one launch for the operations between two products.

They are: addition and norm; norms of heads, rotary embedding and the KV cache write, between the product of queries,
keys and values and attention; SwiGLU (Shazeer, 2020, arXiv:2002.05202) between the products of the MLP.

A product of up to four tokens is bound by the reading of its weights. Each program reads some rows from end to end, in
pieces of 16 bytes a thread, several of them in flight; together they read the matrix once. Operations before and after
a product take no extra time then, and are part of its launch.
"""
# Triton code has no Python types, and Triton may not be installed.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false, reportMissingImports=false, reportOperatorIssue=false

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..logits.triton_mask import on


@triton.jit
def norm_rows(
    residual, added, weight, out, width, eps,
    ADD: tl.constexpr, WIDE: tl.constexpr, SPAN: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Process one row: add, store the sum, normalise in float32, round, and multiply by the weights. Grid: rows."""
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
    """Return the Triton dtype for sums and products of a torch dtype, before they are rounded."""
    return tl.float64 if dtype == torch.float64 else tl.float32


def norm(residual: Any, added: Any, weight: Any, eps: float) -> Any:
    """`plain.norm` on a GPU, for contiguous rows."""
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


BLOCK = 1024


@triton.jit
def gated(left, right, kind: tl.constexpr, WIDE: tl.constexpr):  # noqa: N803
    """Return SiLU of `left`, rounded, times `right`."""
    exact = left.to(WIDE)
    opened = (exact / (1.0 + tl.exp(-exact))).to(kind)
    return (opened.to(WIDE) * right.to(WIDE)).to(kind)


@triton.jit
def gate_rows(product, out, width, WIDE: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """Process one block of one row. Grid: rows, blocks of `width`, half of a row."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    left = tl.load(product + 2 * row * width + at, mask=inside, other=0.0)
    right = tl.load(product + (2 * row + 1) * width + at, mask=inside, other=0.0)
    tl.store(out + row * width + at, gated(left, right, out.dtype.element_ty, WIDE), mask=inside)


def gate(product: Any) -> Any:
    """`plain.gate` on a GPU, for contiguous rows."""
    rows, width = len(product), product.shape[1] // 2
    out = product.new_empty(rows, width)
    if rows:
        with on(product):
            gate_rows[(rows, triton.cdiv(width, BLOCK))](product, out, width, WIDE=wide(product.dtype), BLOCK=BLOCK)
    return out


@triton.jit
def times(one, other, kind: tl.constexpr, WIDE: tl.constexpr):  # noqa: N803
    """Return a product rounded to `kind`, as torch rounds it before an addition."""
    return (one.to(WIDE) * other.to(WIDE)).to(kind).to(WIDE)


@triton.jit
def place_heads(
    product, cos, sin, query_weight, key_weight, slots, queries, keys, values, stride, eps,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, HALF: tl.constexpr, PLACES: tl.constexpr,  # noqa: N803
    NORMED: tl.constexpr, WIDE: tl.constexpr, SPAN: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Process one head of one token, query heads first, then keys, then values. Grid: tokens, heads of all three."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kind = product.dtype.element_ty
    at = tl.arange(0, SPAN)
    inside = at < HALF
    source = product + token * stride + head * (2 * HALF)
    left = tl.load(source + at, mask=inside, other=0.0)
    right = tl.load(source + HALF + at, mask=inside, other=0.0)
    if head < QUERIES + KEYS:
        if NORMED:
            if head < QUERIES:
                left_weight = tl.load(query_weight + at, mask=inside, other=0.0)
                right_weight = tl.load(query_weight + HALF + at, mask=inside, other=0.0)
            else:
                left_weight = tl.load(key_weight + at, mask=inside, other=0.0)
                right_weight = tl.load(key_weight + HALF + at, mask=inside, other=0.0)
            first, second = left.to(tl.float32), right.to(tl.float32)
            scale = tl.rsqrt(tl.sum(first * first + second * second, axis=0) / (2 * HALF) + eps)
            left = (left_weight.to(WIDE) * (first * scale).to(kind).to(WIDE)).to(kind)
            right = (right_weight.to(WIDE) * (second * scale).to(kind).to(WIDE)).to(kind)
        across = tl.load(cos + token * HALF + at, mask=inside, other=0.0)
        up = tl.load(sin + token * HALF + at, mask=inside, other=0.0)
        turned = (times(left, across, kind, WIDE) - times(right, up, kind, WIDE)).to(kind)
        right = (times(right, across, kind, WIDE) + times(left, up, kind, WIDE)).to(kind)
        left = turned
    if head < QUERIES:
        target = queries + (token * QUERIES + head) * (2 * HALF)
        tl.store(target + at, left, mask=inside)
        tl.store(target + HALF + at, right, mask=inside)
    else:
        slot = tl.load(slots + token).to(tl.int64)
        written = at < tl.where(slot >= 0, HALF, 0)
        number = (head - QUERIES) % KEYS
        place = ((slot // PLACES * KEYS + number) * PLACES + slot % PLACES) * (2 * HALF)
        if head < QUERIES + KEYS:
            tl.store(keys + place + at, left, mask=written)
            tl.store(keys + place + HALF + at, right, mask=written)
        else:
            tl.store(values + place + at, left, mask=written)
            tl.store(values + place + HALF + at, right, mask=written)


def place(product: Any, angles: Any, norms: Any, slots: Any, stored: Any, heads: Any) -> Any:
    """`plain.place` on a GPU; `product` and `stored` are contiguous."""
    tokens = len(product)
    queries = product.new_empty(tokens, heads.queries, heads.size)
    keys, values = stored
    # placeholders for absent norms; the kernel does not read them
    weights = (keys, keys, 0.0) if norms is None else norms
    if tokens:
        with on(product):
            place_heads[(tokens, heads.queries + 2 * heads.keys)](
                *(product, *angles, *weights[:2], slots, queries, keys, values, product.stride(0), weights[2]),
                QUERIES=heads.queries,
                KEYS=heads.keys,
                HALF=heads.size // 2,
                PLACES=keys.shape[2],
                NORMED=norms is not None,
                WIDE=wide(product.dtype),
                SPAN=triton.next_power_of_2(heads.size // 2),
                num_warps=1,
            )
    return queries


TOKENS = 4
"""The most tokens that the kernel multiplies."""
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class Tile(NamedTuple):
    """The split of a matrix: rows of a program, columns of a piece, pieces in flight, and warps."""

    rows: int
    columns: int
    unroll: int
    warps: int


@triton.jit
def weigh(sums, ups, squares, states, at, inside, piece, other, scales, NORM: tl.constexpr, GATE: tl.constexpr):  # noqa: N803
    """Add one token's products with a piece of the matrix to its sums, and squares of its states to theirs."""
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
    """Store one token's results at `out`."""
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
    """Multiply some rows of a matrix [count, WIDTH], of row stride `stride`, by all tokens [TOKENS, WIDTH]. Grid: rows.

    GATE: the matrix has `count` further rows, whose results are multiplied by SiLU of the first ones
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
    """Test whether the kernel supports this number of tokens and these dtypes and strides."""
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

    norm: weights [in] and epsilon of an RMS norm of the states, which is not rounded in between
    gate: whether SwiGLU of the result is returned, with half as many columns
    residual: [n, out], contiguous; the rounded result is added to it in place. None for a new tensor
    tile: None to choose by the size of the matrix
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
    """Choose the split of a matrix [count, width] of numbers of `size` bytes; with a gate it has twice as many rows."""
    warps = 4
    most = warps * 32 * 16 // size  # columns of a row with 16 bytes a thread
    divisor = min(width & -width, most)
    # A divisor of the width needs no mask of columns. Where it is too small, pieces have a remainder.
    columns = divisor if 4 * divisor >= most else min(triton.next_power_of_2(width), most)
    # Sums of all tokens stay in registers, and a small matrix must be cut into enough programs.
    pieces = 1 if count <= 2048 else 2 if count <= 8192 or gate else 4
    pieces = max(1, min(pieces, 8 // (tokens * (2 if gate else 1))))
    return Tile(pieces * (most // columns), columns, 4, warps)
