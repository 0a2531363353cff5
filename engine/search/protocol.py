"""Searches: the choice of the next token, and the hypotheses of a search by several texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ..stopping import FinishReason

UNUSABLE = -1


class Search(Protocol):
    """Parameters of a search, checked when made, and the choice that they stand for."""

    @property
    def n(self) -> int:
        """Number of texts for each prompt."""
        ...

    def pick(self, logits: Tensor, masks: Tensor | None, draws: Sequence[float]) -> list[int]:
        """The column chosen in each row of `logits`, float32 [rows, columns]; -1 if none can be.

        masks: int32 [rows, ceil(columns / 32)], bit c % 32 of word c // 32 allows column c; None allows all
        draws: one uniform random number for each row
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """A beginning of a text, or a finished one, of a search by several.

    inside: how many of the tokens lie within the end of a prompt that is healed
    """

    tokens: tuple[int, ...]
    text: bytes
    state: int
    inside: int = 0
    finish: FinishReason | None = None
