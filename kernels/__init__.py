"""Hot loops on arrays: Numba on the CPU, Triton on a GPU, and NumPy reference implementations.

Functions take NumPy arrays or torch tensors. The device of the logits selects the backend. Common arguments:

    logits  float32, float16 or bfloat16 [B, V]; rows are contiguous, the stride between rows is free
    masks   uint32 (or int32) [R, W], bit t % 32 of word t // 32 = token t allowed; None = all are allowed
    rows    int32 [B], row of `masks` for each row of logits, -1 = no mask; None = row b has mask b
    size    tokens of the vocabulary, W == ceil(size / 32); tokens from `size` on are never chosen;
            None = the capacity of the masks, or V

Wrong arguments raise TypeError or ValueError before any computation. Each row has a status: OK; NAN (an allowed
logit is NaN or +inf, or any logit where raw log-probabilities are requested); EMPTY (no allowed logit is above
-inf). Results are NumPy arrays for logits on the CPU, and tensors on a GPU.

    apply_mask(logits, masks, rows, size) -> None, disallowed logits become -inf in place
    masked_argmax(logits, masks, rows, size, *, logprobs=False)
        -> Chosen(tokens, status, logprobs, raw_logprobs)
    masked_sample(logits, uniforms, masks, rows, size, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0,
        logprobs=False) -> Chosen, by one uniform number in [0, 1) for each row
    masked_topk(logits, k, masks, rows, size, *, scores=None, group=1, normalise="raw" | "masked" | "none")
        -> Best(scores, rows, tokens, normaliser, status), for every `group` of rows (beams) together
    token_logprobs(logits, tokens, masks, rows, size) -> Chosen
    logsumexp(logits, masks, rows, size, *, raw=True) -> LogitSums(masked, raw, status)
    allowed_ids(mask, size) -> int32 [n];  popcount(masks) -> int64 [R]
    pack_mask(allowed) -> masks;  unpack_mask(masks, size) -> bool;  words_for(size) -> W
    warm(report=None) -> seconds, compiles or loads every CPU kernel

The package imports its modules on first use, and can be imported alone under any name. A process that starts in
the checkout may import it as a distribution called `kernels`.
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
