"""Tokens drawn at random, as likely as the model says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ...errors import OptionError
from ...kernels.select import masked_sample
from ..arrays import as_list


@dataclass(frozen=True)
class Sample:
    """Random tokens out of the allowed ones, by their probability.

    temperature: divides the logits; below 1 sharpens. top_k: only the k most likely. top_p: only the most
    likely that together reach probability p. min_p: only those at least min_p times as likely as the most
    likely. They apply in this order, to the allowed tokens. n: how many texts each prompt gets.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    n: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise OptionError(f"temperature={self.temperature!r}: a number above 0; for no randomness use Greedy()")
        if self.top_k is not None and (type(self.top_k) is not int or self.top_k < 1):
            raise OptionError(f"top_k={self.top_k!r}: a whole number of at least 1, or None for all tokens")
        if not 0 < self.top_p <= 1:
            raise OptionError(f"top_p={self.top_p!r}: a probability above 0 and up to 1")
        if not 0 <= self.min_p <= 1:
            raise OptionError(f"min_p={self.min_p!r}: a number from 0 to 1")
        if type(self.n) is not int or self.n < 1:
            raise OptionError(f"n={self.n!r}: a whole number of at least 1")

    def pick(self, logits: Tensor, masks: Tensor | None, draws: Sequence[float]) -> list[int]:
        """A column of each row, drawn by inverting the distribution function, as `Search.pick` says."""
        choice = masked_sample(
            logits,
            draws,
            masks,
            temperature=self.temperature,
            top_k=self.top_k or 0,
            top_p=self.top_p,
            min_p=self.min_p,
        )
        return as_list(choice.tokens)
