"""Guides in MLX-LM: a logits processor for `generate`, `stream_generate`, and sequences of a `BatchGenerator`."""
# MLX is not there when types are checked.
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
    """A logits processor that keeps what MLX-LM writes within a guide, and lets it end where a text is complete.

        generate(model, tokenizer, prompt, max_tokens=100, logits_processors=[GuideLogitsProcessor(guide)])

    max_tokens: as `generate` is given it; then every text is complete within it, and not cut short
    One is for one text: each sequence of a `BatchGenerator` has one of its own (`batch_generate` hands one to all), and
    another call a new one, or `reset()` before. Works with draft models. Raises OptionError for what is no guide,
    BudgetError if no text is as short; and from `generate` OptionError where others forbid all that the guide allows,
    ModelError where logits are NaN.
    """

    def __init__(self, guide: Guide, *, max_tokens: int | None = None) -> None:
        self._rows = TokenRows([guide], max_tokens, "max_tokens", are_chosen=True)

    def reset(self) -> None:
        """Be ready for another text."""
        self._rows.reset()

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """The logits [1, V] or [V] with -inf for what may not follow the tokens [n]."""
        shape = logits.shape if logits.ndim == 2 else (1, *logits.shape)
        found, left = masked(logits, self._rows.masks(np.array(tokens).reshape(1, -1), shape))
        self._rows.check(left)
        return found


def masked(logits: Any, bitmask: NDArray[np.int32]) -> tuple[Any, NDArray[np.float32]]:
    """Logits with -inf for what masks do not allow, and what is left in each row, as `TokenRows.check` takes it.

    logits: of MLX, [rows, V] or [V]; bitmask: int32 [rows, words]
    """
    width = logits.shape[-1]
    allowed = np.zeros((len(bitmask), width), np.bool_)
    known = min(width, 32 * bitmask.shape[1])
    allowed[:, :known] = unpack_mask(bitmask.view(np.uint32), known)
    minus_infinity = _MLX.array(float("-inf"), dtype=logits.dtype)
    found = _MLX.where(_MLX.array(allowed).reshape(logits.shape), logits, minus_infinity)
    return found, np.array(found.max(axis=-1).astype(_MLX.float32)).reshape(-1)
