"""Putting new keys and values into blocks, on a GPU, both in one launch."""
# What Triton compiles has types that Python cannot say; and it is there only where there is a GPU.
# pyright: basic, reportOperatorIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ..logits.triton_mask import on
from .triton_paged import lanes_of

_MOST = 4096


@triton.jit
def put(
    stored, new, slot, token, heads, inside, step_block, step_head, step_place, new_token, new_head,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Copy some heads of one token to its place."""
    lanes = tl.arange(0, LANES)
    mask = inside[:, None] & (lanes < SIZE)[None, :]
    given = tl.load(new + token * new_token + (heads * new_head)[:, None] + lanes[None, :], mask=mask)
    to = stored + (slot // BLOCK) * step_block + (slot % BLOCK) * step_place
    tl.store(to + (heads * step_head)[:, None] + lanes[None, :], given, mask=mask)


@triton.jit(do_not_specialize=["slots"])
def write_tokens(
    keys, values, new_keys, new_values, slots,
    key_block, key_head, key_place, value_block, value_head, value_place,
    new_key_token, new_key_head, new_value_token, new_value_head, heads,
    KEY_SIZE: tl.constexpr, VALUE_SIZE: tl.constexpr, BLOCK: tl.constexpr, HEADS: tl.constexpr,  # noqa: N803
    KEY_LANES: tl.constexpr, VALUE_LANES: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Some heads of one token. Grid: tokens, heads in portions of HEADS."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    if slot < 0:
        return
    those = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    inside = those < heads
    put(keys, new_keys, slot, token, those, inside, key_block, key_head, key_place, new_key_token, new_key_head,
        KEY_SIZE, BLOCK, KEY_LANES)  # fmt: skip
    put(values, new_values, slot, token, those, inside, value_block, value_head, value_place, new_value_token,
        new_value_head, VALUE_SIZE, BLOCK, VALUE_LANES)  # fmt: skip


def write_paged(keys: Any, values: Any, new_keys: Any, new_values: Any, slots: Any) -> None:
    """Store the keys and values of new tokens; capturable in a CUDA graph.

    keys, values: [blocks, heads, BLOCK, size]
    new_keys, new_values: [tokens, heads, size]
    slots: int32 [tokens], block * BLOCK + place in the block; -1: not stored
    """
    if not slots.shape[0]:
        return
    heads, block, key_size, value_size = *keys.shape[1:], values.shape[3]
    lanes = lanes_of(key_size), lanes_of(value_size)
    portion = min(triton.next_power_of_2(heads), max(_MOST // max(lanes), 1))
    with on(keys):
        write_tokens[(slots.shape[0], triton.cdiv(heads, portion))](
            *(keys, values, new_keys, new_values, slots, *keys.stride()[:3], *values.stride()[:3]),
            *(*new_keys.stride()[:2], *new_values.stride()[:2], heads),
            KEY_SIZE=key_size, VALUE_SIZE=value_size, BLOCK=block, HEADS=portion,
            KEY_LANES=lanes[0], VALUE_LANES=lanes[1],
        )  # fmt: skip
