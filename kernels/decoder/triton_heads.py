"""Triton kernel between the product of queries, keys and values and attention: norms of heads, rotation, the write."""
# What Triton compiles has types that Python cannot say; and it is there only where there is a GPU.
# pyright: basic, reportOperatorIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ..logits.triton_mask import on
from .triton_norm import wide


@triton.jit
def times(one, other, kind: tl.constexpr, WIDE: tl.constexpr):  # noqa: N803
    """A product that is rounded before it is added to another one, as torch does it."""
    return (one.to(WIDE) * other.to(WIDE)).to(kind).to(WIDE)


@triton.jit
def place_heads(
    product, cos, sin, query_weight, key_weight, slots, queries, keys, values, stride, eps,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, HALF: tl.constexpr, PLACES: tl.constexpr,  # noqa: N803
    NORMED: tl.constexpr, WIDE: tl.constexpr, SPAN: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One head of one token: first those of queries, then of keys, then of values. Grid: tokens, heads of all three."""
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
    """`plain.place` on a GPU; `product` and what is stored are contiguous."""
    tokens = len(product)
    queries = product.new_empty(tokens, heads.queries, heads.size)
    keys, values = stored
    # Without norms there must be something in place of their weights, which is not read.
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
