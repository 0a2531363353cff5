"""The choice of a token: drawn as likely as the model says, or always the likeliest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ...checks import whole
from ...kernels.logits.select import masked_argmax, masked_sample
from ...sampling import SAMPLE_OPTIONS
from ..scores import as_list

MANY = 1 << 16
"""The most texts that a prompt may get."""


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
        for name, option in SAMPLE_OPTIONS.items():
            value = getattr(self, name)
            if value is not None or getattr(Sample, name) is not None:  # None is the default of some
                object.__setattr__(self, name, option.checked(value, name))
        object.__setattr__(self, "n", whole(self.n, "n", 1, MANY))

    @property
    def is_filtered(self) -> bool:
        """True if some tokens are left out as unlikely."""
        return self.top_k is not None or self.top_p < 1 or self.min_p > 0

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
