"""The choice of a token: drawn as likely as the model says, or always the likeliest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ...checks import number, whole
from ...errors import OptionError
from ...kernels.logits.select import masked_argmax, masked_sample
from ..scores import as_list

MANY = 1 << 16
"""The most texts that a prompt may get."""
COLDEST, HOTTEST = 1e-6, 1e6
_NONE = "for no randomness use Greedy()"


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
        temperature = number(self.temperature, "temperature", f"a number above 0; {_NONE}")
        if temperature <= 0:
            raise OptionError(f"temperature={self.temperature!r}: a number above 0; {_NONE}")
        if not COLDEST <= temperature <= HOTTEST:
            raise OptionError(f"temperature={self.temperature!r}: a number from {COLDEST} to {HOTTEST:.0f}")
        if self.top_k is not None:
            self._set("top_k", whole(self.top_k, "top_k"))
        top_p = number(self.top_p, "top_p", "a probability above 0 and up to 1")
        if not 0 < top_p <= 1:
            raise OptionError(f"top_p={self.top_p!r}: a probability above 0 and up to 1")
        min_p = number(self.min_p, "min_p", "a number from 0 to 1")
        if not 0 <= min_p <= 1:
            raise OptionError(f"min_p={self.min_p!r}: a number from 0 to 1")
        self._set("n", whole(self.n, "n", 1, MANY))

    def _set(self, name: str, value: int) -> None:
        object.__setattr__(self, name, value)

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
