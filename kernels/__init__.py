"""The hot loops, on arrays only: Numba on the CPU, Triton on a GPU, and plain NumPy references.

Everything takes NumPy arrays or torch tensors and picks the backend by where the logits are. What the
arguments have in common:

    logits  float32, float16 or bfloat16 [B, V]; a row's values lie side by side, rows may lie apart
    masks   uint32 (or int32) [R, W], bit t % 32 of word t // 32 = token t allowed; None = all are allowed
    rows    int32 [B], the row of `masks` that each row of logits has, -1 = none; None = row b has mask b
    size    tokens in the vocabulary, W == ceil(size / 32); logits at and beyond it are never chosen;
            None = what the masks can speak of, or V

Wrong arguments raise TypeError or ValueError before anything is computed. A status says what became of a
row: OK; NAN (an allowed logit is NaN or +inf; any logit is, where raw log-probabilities are asked for); EMPTY
(nothing allowed is above -inf). Results are NumPy arrays for logits on the CPU, tensors on a GPU otherwise.

    apply_mask(logits, masks, rows, size) -> None, disallowed logits become -inf in place
    masked_argmax(logits, masks, rows, size, *, logprobs=False)
        -> Choice(tokens, status, logprobs, raw_logprobs)
    masked_sample(logits, uniforms, masks, rows, size, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0,
        logprobs=False) -> Choice, one uniform number in [0, 1) for each row decides
    masked_topk(logits, k, masks, rows, size, *, scores=None, group=1, normalise="raw" | "masked" | "none")
        -> Best(scores, rows, tokens, normaliser, status), for every `group` of rows (beams) together
    token_logprobs(logits, tokens, masks, rows, size) -> Choice
    logsumexp(logits, masks, rows, size, *, raw=True) -> LogitSums(masked, raw, status)
    allowed_ids(mask, size) -> int32 [n];  popcount(masks) -> int64 [R]
    pack_mask(allowed) -> masks;  unpack_mask(masks, size) -> bool;  words_for(size) -> W
    warm(report=None) -> seconds, compiles or loads every CPU kernel

This package imports nothing until a name is used, and can be imported on its own under any name: a process
started in the checkout finds it when it looks for a distribution called `kernels`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .logits.mask import allowed_ids, apply_mask, pack_mask, popcount, unpack_mask, words_for
    from .logits.select import (
        EMPTY,
        NAN,
        OK,
        Best,
        Chosen,
        LogitSums,
        logsumexp,
        masked_argmax,
        masked_sample,
        masked_topk,
        token_logprobs,
    )
    from .logits.warmup import warm

_HOMES = {
    **dict.fromkeys(("allowed_ids", "apply_mask", "pack_mask", "popcount", "unpack_mask", "words_for"), "logits.mask"),
    **dict.fromkeys(("EMPTY", "NAN", "OK", "Best", "Chosen", "LogitSums", "logsumexp"), "logits.select"),
    **dict.fromkeys(("masked_argmax", "masked_sample", "masked_topk", "token_logprobs"), "logits.select"),
    "warm": "logits.warmup",
}

__all__ = [
    "EMPTY",
    "NAN",
    "OK",
    "Best",
    "Chosen",
    "LogitSums",
    "allowed_ids",
    "apply_mask",
    "logsumexp",
    "masked_argmax",
    "masked_sample",
    "masked_topk",
    "pack_mask",
    "popcount",
    "token_logprobs",
    "unpack_mask",
    "warm",
    "words_for",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
