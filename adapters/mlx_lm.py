"""Guides in MLX-LM: a logits processor for `generate`, `stream_generate`, and sequences of a `BatchGenerator`."""
# Type checks run without MLX.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..guides.protocol import Guide
from ..kernels.logits.mask import unpack_mask
from .hosts import interface
from .rows import TokenRows

TRIED = "MLX-LM 0.32 with MLX 0.32"

_MLX: Any = interface("MLX", "mlx", TRIED, {"mlx": ["core"], "mlx.core": ["array", "array.max", "float32", "where"]})[
    "core"
]


class GuideLogitsProcessor:
    """A logits processor that constrains MLX-LM to a guide, and allows EOS where a text is complete.

        generate(model, tokenizer, prompt, max_tokens=100, logits_processors=[GuideLogitsProcessor(guide)])

    max_tokens: that of `generate`; every text is then complete within it, and not cut short
    One processor serves one text: each sequence of a `BatchGenerator` needs its own (`batch_generate` passes one to
    all). Call `reset()` before another text. Works with draft models. Raises OptionError for other objects than guides,
    BudgetError if no text is so short; and from `generate` OptionError if other processors exclude all tokens that the
    guide allows, ModelError for NaN logits.
    """

    def __init__(self, guide: Guide, *, max_tokens: int | None = None) -> None:
        self._rows = TokenRows([guide], max_tokens, "max_tokens", are_chosen=True)

    def reset(self) -> None:
        """Prepare for another text."""
        self._rows.reset()

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """Return the logits [1, V] or [V] with -inf for tokens that may not follow the tokens [n]."""
        shape = logits.shape if logits.ndim == 2 else (1, *logits.shape)
        masked_logits, maxima = mask_logits(logits, self._rows.masks(np.array(tokens).reshape(1, -1), shape))
        self._rows.check(maxima)
        return masked_logits


def mask_logits(logits: Any, bitmask: NDArray[np.int32]) -> tuple[Any, NDArray[np.float32]]:
    """Return logits with -inf where masks allow no token, and the largest one of each row, for `TokenRows.check`.

    logits: of MLX, [rows, V] or [V]; bitmask: int32 [rows, words]
    """
    width = logits.shape[-1]
    allowed = np.zeros((len(bitmask), width), np.bool_)
    known = min(width, 32 * bitmask.shape[1])
    allowed[:, :known] = unpack_mask(bitmask.view(np.uint32), known)
    minus_infinity = _MLX.array(float("-inf"), dtype=logits.dtype)
    masked_logits = _MLX.where(_MLX.array(allowed).reshape(logits.shape), logits, minus_infinity)
    return masked_logits, np.array(masked_logits.max(axis=-1).astype(_MLX.float32)).reshape(-1)
