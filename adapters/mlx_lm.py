"""Guides in MLX-LM: a logits processor for `generate`, `stream_generate` and `batch_generate`."""
# MLX is not there when types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

from typing import Any

import numpy as np

from ..guides.protocol import Guide
from ..kernels.logits.mask import unpack_mask
from .hosts import interface
from .rows import Rows

TRIED = "MLX-LM 0.32 with MLX 0.32"

_MLX: Any = interface("MLX", "mlx", TRIED, {"mlx": ["core"], "mlx.core": ["array", "where"]})["core"]


class GuideLogitsProcessor:
    """A logits processor that keeps what MLX-LM writes within a guide, and lets it end where a text is complete.

        generate(model, tokenizer, prompt, max_tokens=100, logits_processors=[GuideLogitsProcessor(guide)])

    max_tokens: as `generate` is given it; then every text is complete within it, and not cut short
    One is for one text: in a batch each sequence has one of its own, and another call a new one, or `reset()`
    before. Works with draft models. Raises OptionError for what is no guide, BudgetError if no text is as short.
    """

    def __init__(self, guide: Guide, *, max_tokens: int | None = None) -> None:
        self._rows = Rows([guide], max_tokens, "max_tokens")

    def reset(self) -> None:
        """Be ready for another text."""
        self._rows.reset()

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """The logits [1, V] or [V] with -inf for what may not follow the tokens [n]."""
        width = logits.shape[-1]
        return masked(logits, self._rows.masks(np.array(tokens).reshape(1, -1), width))


def masked(logits: Any, bitmask: np.ndarray[Any, np.dtype[np.int32]]) -> Any:
    """Logits of MLX [rows, V] or [V] with -inf for the tokens that masks int32 [rows, words] do not allow."""
    width = logits.shape[-1]
    allowed = np.zeros((len(bitmask), width), np.bool_)
    known = min(width, 32 * bitmask.shape[1])
    allowed[:, :known] = unpack_mask(bitmask.view(np.uint32), known)
    minus_infinity = _MLX.array(float("-inf"), dtype=logits.dtype)
    return _MLX.where(_MLX.array(allowed).reshape(logits.shape), logits, minus_infinity)
