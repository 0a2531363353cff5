"""The most likely token, always."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ...kernels.logits.select import masked_argmax
from ..decode.arrays import as_list


@dataclass(frozen=True)
class Greedy:
    """At every step the most likely of the allowed tokens; of equals, the one with the lowest id."""

    @property
    def n(self) -> int:
        """One text for each prompt."""
        return 1

    def pick(self, logits: Tensor, masks: Tensor | None, draws: Sequence[float]) -> list[int]:
        """The column of the greatest allowed logit in each row, as `Search.pick` says."""
        return as_list(masked_argmax(logits, masks).tokens)
