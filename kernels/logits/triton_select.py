"""Choosing tokens on a GPU: the functions of `select.py` for checked arguments, without synchronisation."""
# Triton code has no Python types, and Triton may not be installed.
# pyright: basic, reportOperatorIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from .contracts import CallProperties
from .triton_mask import BLOCK, MaskRows, allowed_at, on, rows_of
from .triton_scan import ScanResults, cut_rows, scale_of, scan, weight_of


@triton.jit
def weigh(logits, stride, words, width, count, numbers, size, cuts, cut_tokens, peaks, settings, batch, row, tokens):
    """Return the weights float32, relative to the row's largest, of tokens that the row's cut keeps; 0 for others."""
    allowed = allowed_at(words, width, count, tl.load(numbers + row), tokens, size)
    place = logits + row.to(tl.int64) * stride + tokens
    values = tl.load(place, mask=allowed, other=float("-inf")).to(tl.float32)
    cut = tl.load(cuts + row)
    passes = allowed & ((values > cut) | ((values == cut) & (tokens <= tl.load(cut_tokens + row))))
    return tl.where(passes, weight_of(values, tl.load(peaks + row), scale_of(settings, batch, row)), 0.0)


@triton.jit
def weigh_blocks(
    logits, stride, words, width, count, numbers, size, cuts, cut_tokens, peaks, settings, batch, masses,
    BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Compute the weight of one block of one row: float64 [B, blocks]."""
    row, block = tl.program_id(0), tl.program_id(1)
    tokens = block * BLOCK + tl.arange(0, BLOCK)
    weights = weigh(
        logits, stride, words, width, count, numbers, size, cuts, cut_tokens, peaks, settings, batch, row, tokens
    )
    tl.store(masses + row * tl.num_programs(1) + block, tl.sum(weights, axis=0).to(tl.float64))


@triton.jit
def draw_rows(
    logits, stride, words, width, count, numbers, size, cuts, cut_tokens, peaks, settings, batch, masses,
    blocks, best, status, tokens,
    SLOTS: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Draw one row's token. First find the block in which the cumulative distribution exceeds the uniform number.

    A row with temperature 0 gets its best token.
    """
    row = tl.program_id(0)
    slots = tl.arange(0, SLOTS)
    amounts = tl.load(masses + row * blocks + slots, mask=slots < blocks, other=0.0)
    reached = tl.cumsum(amounts, axis=0)
    wanted = tl.load(settings + 4 * batch + row) * tl.sum(amounts, axis=0)
    last = tl.max(tl.where(amounts > 0, slots, 0), axis=0)
    block = tl.minimum(tl.min(tl.where((reached > wanted) & (amounts > 0), slots, SLOTS), axis=0), last)
    rest = wanted - tl.sum(tl.where(slots < block, amounts, 0.0), axis=0)
    inner = block * BLOCK + tl.arange(0, BLOCK)
    weights = weigh(
        logits, stride, words, width, count, numbers, size, cuts, cut_tokens, peaks, settings, batch, row, inner
    )
    passed = (tl.cumsum(weights.to(tl.float64), axis=0) > rest) & (weights > 0)
    first = tl.min(tl.where(passed, inner, size), axis=0)
    token = tl.minimum(first, tl.max(tl.where(weights > 0, inner, 0), axis=0))
    token = tl.where(tl.load(settings + row) > 0, token, tl.load(best + row))
    tl.store(tokens + row, tl.where(tl.load(status + row) == 0, token, -1))


def masked_argmax(logits: Any, masks: Any, rows: Any, contract: CallProperties, logprobs: bool) -> tuple[Any, ...]:
    """`kernels.masked_argmax` for checked arguments on a GPU."""
    found = scan(rows_of(logits, masks, rows, contract), logprobs)
    if not logprobs:
        return found.tokens, found.status
    return found.tokens, found.status, *_logprobs(logits, found.tokens, found)


def logsumexp(logits: Any, masks: Any, rows: Any, contract: CallProperties, raw: bool) -> tuple[Any, ...]:
    """`kernels.logsumexp` for checked arguments on a GPU; raw sums are always computed."""
    found = scan(rows_of(logits, masks, rows, contract), raw)
    return found.masked, found.raw, found.status


def token_logprobs(logits: Any, tokens: Any, masks: Any, rows: Any, contract: CallProperties) -> tuple[Any, ...]:
    """`kernels.token_logprobs` for checked arguments on a GPU."""
    wanted = torch.from_numpy(tokens).to(logits.device)
    found = scan(rows_of(logits, masks, rows, contract), True)
    return wanted, found.status, *_logprobs(logits, wanted, found)


def masked_sample(
    logits: Any,
    masks: Any,
    rows: Any,
    contract: CallProperties,
    uniforms: Any,
    settings: Any,
    logprobs: bool,
) -> tuple[Any, ...]:
    """`kernels.masked_sample` for checked arguments on a GPU; `settings` float64 [4, B] as on the CPU."""
    inputs = rows_of(logits, masks, rows, contract)
    filtered = bool(((settings[1] < contract.size) | (settings[2] < 1)).any())
    numbers = torch.from_numpy(np.concatenate([settings, uniforms[None]])).to(logits.device)
    found = scan(inputs, logprobs)
    tokens = _draw(inputs, found, numbers, filtered)
    if not logprobs:
        return tokens, found.status
    return tokens, found.status, *_logprobs(logits, tokens, found)


def argmax_rows(inputs: MaskRows) -> tuple[Any, Any]:
    """Return the best token of each row, int32 [B], and status, uint8 [B]. A CUDA graph can capture this."""
    found = scan(inputs, False)
    return found.tokens, found.status


def sample_rows(inputs: MaskRows, settings: Any, *, filtered: bool) -> tuple[Any, Any]:
    """Return a token drawn for each row, int32 [B], and status, uint8 [B]. A CUDA graph can capture this.

    settings: float64 [5, B] on the device: temperature, 0 for the best token; top_k, the vocabulary's size for all;
        top_p; min_p; the uniform number
    filtered: whether top_k or top_p of some row may exclude tokens
    """
    found = scan(inputs, False)
    return _draw(inputs, found, settings, filtered), found.status


def _draw(inputs: MaskRows, found: ScanResults, settings: Any, filtered: bool) -> Any:
    """Return the tokens int32 [B] that uniform numbers select among those that the filters keep."""
    batch, device = inputs.logits.shape[0], inputs.logits.device
    settings = settings.contiguous()
    cuts, cut_tokens = cut_rows(inputs, settings, found.peaks, filtered)
    blocks = triton.cdiv(inputs.size, BLOCK)
    masses = torch.empty((batch, blocks), dtype=torch.float64, device=device)
    tokens = torch.empty_like(found.tokens)
    leading = (*inputs, cuts, cut_tokens, found.peaks, settings, batch, masses)
    if batch:
        with on(inputs.logits):
            weigh_blocks[(batch, blocks)](*leading, BLOCK=BLOCK)
            draw_rows[(batch,)](
                *(*leading, blocks, found.tokens, found.status, tokens),
                SLOTS=triton.next_power_of_2(blocks),
                BLOCK=BLOCK,
            )
    return tokens


def masked_topk(
    logits: Any,
    masks: Any,
    rows: Any,
    contract: CallProperties,
    k: int,
    added: Any,
    group: int,
    normalise: str,
) -> tuple[Any, ...]:
    """`kernels.masked_topk` for checked arguments on a GPU."""
    inputs = rows_of(logits, masks, rows, contract)
    found = scan(inputs, normalise == "raw", min(triton.next_power_of_2(max(k, 2)), BLOCK))
    offsets = torch.from_numpy(added).to(logits.device)
    read = offsets > -torch.inf
    status = torch.where(read, found.status, 2)
    normaliser = {"raw": found.raw, "masked": found.masked, "none": torch.zeros_like(offsets)}[normalise]
    normaliser = torch.where(read, normaliser, 0.0)
    codes = found.codes.flatten(1)
    codes = torch.topk(codes, min(k, codes.shape[1]), dim=1).values
    keys = codes >> 32
    usable = (keys > -0x7F800000) & (status == 0)[:, None]
    bits = torch.where(keys < 0, -keys - 2**31, keys).to(torch.int32)
    scores = torch.where(usable, bits.view(torch.float32).double() + (offsets - normaliser)[:, None], -torch.inf)
    tokens = 0x7FFFFFFF - (codes & 0x7FFFFFFF)
    return *_best_of_groups(scores, tokens, contract.batch // group, k), normaliser, status.to(torch.uint8)


def _best_of_groups(scores: Any, tokens: Any, groups: int, k: int) -> tuple[Any, Any, Any]:
    """Return the best k of each group from the best of its rows: scores float64, rows and tokens int32 [groups, k]."""
    batch, each = scores.shape
    rows = torch.arange(batch, device=scores.device)[:, None].expand(batch, each)
    shape = (groups, batch // max(groups, 1) * each)
    scores, order = torch.sort(scores.reshape(shape), dim=1, descending=True, stable=True)
    rows, tokens = (one.reshape(shape).gather(1, order) for one in (rows, tokens))
    missing = max(k - shape[1], 0)
    scores = torch.nn.functional.pad(scores[:, :k], (0, missing), value=-torch.inf)
    chosen = scores > -torch.inf
    rows, tokens = (
        torch.where(chosen, torch.nn.functional.pad(one[:, :k], (0, missing)), -1).to(torch.int32)
        for one in (rows, tokens)
    )
    return scores, rows, tokens


def _logprobs(logits: Any, tokens: Any, found: ScanResults) -> tuple[Any, Any]:
    """Return the log-probabilities of chosen tokens; NaN where none was chosen."""
    places = tokens.clamp(min=0).to(torch.int64)[:, None]
    chosen = logits.detach().gather(1, places)[:, 0].double()
    chosen = torch.where(tokens < 0, torch.nan, chosen)
    return chosen - found.masked, chosen - found.raw
