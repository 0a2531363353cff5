"""Choosing tokens from logits under masks: argmax, log-sum-exp, sampling, and the best k for beams."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit.aliases import Int
from .blocks import EMPTY, NAN, OK
from .contracts import Contract, Flat, bad_row, check, flatten, per_row, whole
from .draw import draw_kernel
from .scan import ARGMAX, CHOSEN, CHOSEN_AND_RAW, scan_kernel
from .topk import topk_kernel

__all__ = [
    "EMPTY",
    "NAN",
    "OK",
    "Best",
    "Chosen",
    "LogitSums",
    "logsumexp",
    "masked_argmax",
    "masked_sample",
    "masked_topk",
    "token_logprobs",
]


class Chosen(NamedTuple):
    """One token for each row.

    `tokens` int32 [B], -1 unless the status is OK; `status` uint8 [B]; `logprobs` and `raw_logprobs` float64
    [B], the token's log-probability among the allowed and among all tokens, at temperature 1, or None.
    """

    tokens: Any
    status: Any
    logprobs: Any = None
    raw_logprobs: Any = None


class LogitSums(NamedTuple):
    """Log-sum-exp of each row, float64 [B], over the allowed and over all tokens; `status` uint8 [B]."""

    masked: Any
    raw: Any
    status: Any


class Best(NamedTuple):
    """The best candidates of each group of rows, best first, the lower row and then token of equals.

    `scores` float64, `rows` and `tokens` int32 [B / group, k], filled up with -inf, -1, -1; `normaliser`
    float64 [B], what was taken from a row's logits; `status` uint8 [B], EMPTY for a row that was not read.
    """

    scores: Any
    rows: Any
    tokens: Any
    normaliser: Any
    status: Any


_MUCH = {"raw": CHOSEN_AND_RAW, "masked": CHOSEN, "none": ARGMAX}


def masked_argmax(
    logits: Any, masks: Any = None, rows: Any = None, size: int | None = None, *, logprobs: bool = False
) -> Chosen:
    """The allowed token with the largest logit in each row, the lowest of equals.

    Logits are read once; without `logprobs` only those that a mask allows. Raises TypeError and ValueError.
    """
    contract = check(logits, masks, rows, size)
    if contract.device != "cpu":
        from .triton_select import masked_argmax as on_device

        return Chosen(*on_device(logits, masks, rows, contract, logprobs))
    flat = flatten(logits, masks, rows, contract)
    tokens, status, masked, raw = _scan(flat, contract, CHOSEN_AND_RAW if logprobs else ARGMAX)
    if not logprobs:
        return Chosen(tokens, status)
    return Chosen(tokens, status, *_logprobs(flat, tokens, masked, raw))


def logsumexp(
    logits: Any, masks: Any = None, rows: Any = None, size: int | None = None, *, raw: bool = True
) -> LogitSums:
    """Log-sum-exp of each row's allowed logits and, in the same pass, of all of them.

    Without `raw`, the raw ones are left at -inf where a row has a mask. -inf also where nothing is allowed.
    """
    contract = check(logits, masks, rows, size)
    if contract.device != "cpu":
        from .triton_select import logsumexp as on_device

        return LogitSums(*on_device(logits, masks, rows, contract, raw))
    flat = flatten(logits, masks, rows, contract)
    _, status, masked, everything = _scan(flat, contract, CHOSEN_AND_RAW if raw else CHOSEN)
    return LogitSums(masked, everything, status)


def masked_sample(
    logits: Any,
    uniforms: Any,
    masks: Any = None,
    rows: Any = None,
    size: int | None = None,
    *,
    temperature: Any = 1.0,
    top_k: Any = 0,
    top_p: Any = 1.0,
    min_p: Any = 0.0,
    logprobs: bool = False,
) -> Chosen:
    """Draw a token for each row from its allowed tokens, filtered in the order that transformers has.

    `uniforms` float64 [B] in [0, 1): in order of tokens, the first is drawn at which the distribution
    function exceeds it. The filters are numbers, or one for each row: `temperature` > 0; `top_k`, 0 = off,
    keeps equals of the k-th logit; `top_p` keeps the fewest best tokens with at least that mass, the lower of
    equals; `min_p` keeps tokens with at least that share of the best one's probability. A token of less than
    2 ** -125 of the best one's probability is never drawn. Raises TypeError and ValueError.
    """
    contract = check(logits, masks, rows, size)
    uniforms, settings = _sampling(contract, uniforms, temperature, top_k, top_p, min_p)
    if contract.device != "cpu":
        from .triton_select import masked_sample as on_device

        return Chosen(*on_device(logits, masks, rows, contract, uniforms, settings, logprobs))
    flat = flatten(logits, masks, rows, contract)
    tokens, status = np.empty(contract.batch, np.int32), np.empty(contract.batch, np.uint8)
    _raise_if_bad(flat, draw_kernel(*flat, uniforms, settings, tokens, status))
    if not logprobs:
        return Chosen(tokens, status)
    _, seen, masked, raw = _scan(flat, contract, CHOSEN_AND_RAW)
    tokens[seen != OK] = -1
    return Chosen(tokens, seen, *_logprobs(flat, tokens, masked, raw))


def masked_topk(
    logits: Any,
    k: int,
    masks: Any = None,
    rows: Any = None,
    size: int | None = None,
    *,
    scores: Any = None,
    group: int = 1,
    normalise: str = "raw",
) -> Best:
    """The best k of beams x vocabulary, for every `group` of consecutive rows; logits are read once.

    A candidate's score is `scores[row]` (float64 [B], default 0; a row with -inf is not read) plus its logit
    less the row's log-sum-exp over all tokens ("raw": log-softmax, then the mask), over the allowed ones
    ("masked") or 0 ("none"). Raises TypeError and ValueError.
    """
    contract = check(logits, masks, rows, size)
    if not isinstance(normalise, str) or normalise not in _MUCH:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"normalise: {normalise!r}; possible are {', '.join(map(repr, _MUCH))}")
    k, group = whole(k, "k"), whole(group, "group")
    if group < 1 or contract.batch % group:
        raise ValueError(f"group: {contract.batch} rows cannot be divided into groups of {group}")
    if not 0 < k <= group * contract.size:
        raise ValueError(f"k: {k}; possible are 1 to {group * contract.size}, all tokens of a group's rows")
    added = per_row(0.0 if scores is None else scores, contract.batch, "scores")
    if contract.device != "cpu":
        from .triton_select import masked_topk as on_device

        return Best(*on_device(logits, masks, rows, contract, k, added, group, normalise))
    flat = flatten(logits, masks, rows, contract)
    shape = (contract.batch // group, k)
    best = (np.empty(shape), np.empty(shape, np.int32), np.empty(shape, np.int32))
    normaliser, status = np.empty(contract.batch), np.empty(contract.batch, np.uint8)
    _raise_if_bad(flat, topk_kernel(*flat, _MUCH[normalise], added, *best, normaliser, status))
    return Best(*best, normaliser, status)


def token_logprobs(logits: Any, tokens: Any, masks: Any = None, rows: Any = None, size: int | None = None) -> Chosen:
    """The log-probabilities of given tokens int32 [B] among the allowed and all tokens; -1 gives NaN."""
    contract = check(logits, masks, rows, size)
    given = per_row(tokens, contract.batch, "tokens")
    if ((given < -1) | (given >= contract.size) | (given != np.floor(given))).any():
        raise ValueError(f"tokens: ids must lie in -1 ... {contract.size - 1} and be whole, found {given.tolist()}")
    wanted = given.astype(np.int32)
    if contract.device != "cpu":
        from .triton_select import token_logprobs as on_device

        return Chosen(*on_device(logits, wanted, masks, rows, contract))
    flat = flatten(logits, masks, rows, contract)
    _, status, masked, raw = _scan(flat, contract, CHOSEN_AND_RAW)
    return Chosen(wanted, status, *_logprobs(flat, wanted, masked, raw))


def _sampling(
    contract: Contract, uniforms: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Check the numbers that sampling takes: uniforms float64 [B] and settings float64 [4, B]."""
    batch = contract.batch
    uniforms = per_row(uniforms, batch, "uniforms")
    settings = np.empty((4, batch))
    settings[0] = per_row(temperature, batch, "temperature")
    settings[1] = per_row(top_k, batch, "top_k")
    settings[2] = per_row(top_p, batch, "top_p")
    settings[3] = per_row(min_p, batch, "min_p")
    if ((uniforms < 0) | (uniforms >= 1)).any():
        raise ValueError("uniforms: numbers must lie in [0, 1)")
    if not (settings[0] > 0).all() or np.isinf(settings[0]).any():
        raise ValueError("temperature: must be finite and above 0; masked_argmax is the limit at 0")
    if (settings[1] < 0).any() or (settings[1] != np.floor(settings[1])).any():
        raise ValueError("top_k: must be a whole number, 0 for all tokens")
    if ((settings[2] <= 0) | (settings[2] > 1)).any():
        raise ValueError("top_p: must lie in (0, 1], 1 for all tokens")
    if ((settings[3] < 0) | (settings[3] > 1)).any():
        raise ValueError("min_p: must lie in [0, 1], 0 for all tokens")
    settings[1, (settings[1] == 0) | (settings[1] > contract.size)] = contract.size
    return uniforms, settings


def _raise_if_bad(flat: Flat, wrong: Int) -> None:
    if wrong >= 0:
        raise bad_row(int(flat.numbers[wrong]), len(flat.words))


def _scan(flat: Flat, contract: Contract, much: int) -> tuple[Any, Any, Any, Any]:
    batch = contract.batch
    results = (np.empty(batch, np.int32), np.empty(batch, np.uint8), np.empty(batch), np.empty(batch))
    _raise_if_bad(flat, scan_kernel(*flat, much, *results))
    return results


def _logprobs(flat: Flat, tokens: Any, masked: Any, raw: Any) -> tuple[Any, Any]:
    """The log-probabilities of chosen tokens; NaN where none was chosen."""
    places = np.arange(len(tokens)) * flat.stride + np.maximum(tokens, 0)
    chosen = np.where(tokens < 0, np.nan, flat.bits[places].view(np.float32).astype(np.float64))
    return chosen - masked, chosen - raw
