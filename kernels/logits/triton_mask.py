"""Triton kernels for logits on a GPU: shared parts, and applying packed masks.

Imported only when logits are on a GPU. Reporting a row number outside the mask table would require waiting for the
device; instead such a row allows nothing.
"""
# Triton code has no Python types, and Triton may not be installed.
# pyright: basic, reportOperatorIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportMissingImports=false

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from .contracts import CallProperties

BLOCK = 1024


class MaskRows(NamedTuple):
    """Checked arguments of the Triton kernels in their order, all on one device.

    `logits` [B, V] with row step `stride`; `words` int32 [count, width], one arbitrary word if there are no masks;
    `numbers` int32 [B], -1 for no mask.
    """

    logits: Any
    stride: int
    words: Any
    width: int
    count: int
    numbers: Any
    size: int


def rows_of(logits: Any, masks: Any, rows: Any, contract: CallProperties) -> MaskRows:
    """Return checked arguments in the form of the Triton kernels; copies only row numbers of another dtype."""
    batch, device = contract.batch, logits.device
    if masks is None:
        words, width, count = torch.zeros(1, dtype=torch.int32, device=device), 1, 0
        numbers = torch.full((batch,), -1, dtype=torch.int32, device=device)
    else:
        words, width, count = masks.view(torch.int32), masks.shape[1], masks.shape[0]
        if rows is None:
            numbers = torch.arange(batch, dtype=torch.int32, device=device)
        else:
            numbers = rows.to(torch.int32).contiguous()
    return MaskRows(logits.detach(), logits.stride(0), words, width, count, numbers, contract.size)


def on(tensor: Any) -> AbstractContextManager[Any]:
    """Make a tensor's GPU the current one, which Triton launches on."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


@triton.jit
def allowed_at(words, width, count, number, tokens, size):
    """Return whether each token is in the vocabulary and allowed by the mask with this number."""
    inside = tokens < size
    readable = tl.where((number >= 0) & (number < count), size, 0)
    places = number.to(tl.int64) * width + tokens // 32
    word = tl.load(words + places, mask=tokens < readable, other=0)
    word = tl.where(number == -1, -1, word)
    return inside & (((word >> (tokens % 32)) & 1) != 0)


@triton.jit
def mask_blocks(logits, stride, full_width, words, width, count, numbers, size, BLOCK: tl.constexpr):  # noqa: N803
    """Set the disallowed tokens of one block of one row to -inf. Grid: rows, blocks of the full width."""
    row = tl.program_id(0)
    tokens = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    allowed = allowed_at(words, width, count, tl.load(numbers + row), tokens, size)
    places = logits + row.to(tl.int64) * stride + tokens
    masked = tl.full((BLOCK,), float("-inf"), tl.float32).to(logits.dtype.element_ty)
    tl.store(places, masked, mask=(tokens < full_width) & (allowed == 0))


def apply_mask(logits: Any, masks: Any, rows: Any, contract: CallProperties) -> None:
    """`kernels.apply_mask` for checked arguments on a GPU."""
    inputs = rows_of(logits, masks, rows, contract)
    grid = (contract.batch, triton.cdiv(contract.width, BLOCK))
    if contract.batch:
        with on(logits):
            mask_blocks[grid](*inputs[:2], contract.width, *inputs[2:], BLOCK=BLOCK)
