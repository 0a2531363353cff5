"""Beam search: hypotheses side by side, ranked by a score that length is weighed in, and banks by required content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Literal

from ...checks import number, whole
from ...errors import OptionError
from ..scores import Ranked, Trace
from .protocol import Hypothesis

STEEPEST = 10
"""Beyond such an exponent lengths come to more, or less, than a float can be."""


@dataclass(frozen=True)
class Beam:
    """The `width` likeliest beginnings are continued side by side; the `n` best of the finished texts come out.

    A text's score is the sum of the model's log-probabilities of its tokens, EOS included, divided by
    (number of tokens, EOS included) ** `length_penalty`: above 0 favours long texts, below 0 short ones.
    early_stopping: when a prompt is done. False: once `width` texts are finished and the best beam, scored at
    its present length, is no better than the worst of them. True: once `width` texts are finished. "never":
    as False, but a beam is scored at the length most favourable to it, so that nothing better is missed.
    n: texts for each prompt, best first, each with its score; fewer if there are no more. Different ones: of
    equal texts in different tokens only the best counts under a constraint.
    Scores and search are those of transformers' `generate(num_beams=width)`.
    """

    width: int
    length_penalty: float = 1.0
    n: int = 1
    early_stopping: bool | Literal["never"] = False

    def __post_init__(self) -> None:
        width = whole(self.width, "width")
        object.__setattr__(self, "width", width)
        n = whole(self.n, "n")
        if n > width:
            raise OptionError(f"n={self.n!r}: a whole number from 1 to width={width}; wider beams find more texts")
        object.__setattr__(self, "n", n)
        meaning = f"a number from {-STEEPEST} to {STEEPEST}"
        if abs(number(self.length_penalty, "length_penalty", meaning)) > STEEPEST:
            raise OptionError(f"length_penalty={self.length_penalty!r}: {meaning}")
        stopping: Any = self.early_stopping
        if not isinstance(stopping, (bool, str)) or stopping not in (False, True, "never"):
            raise OptionError(f'early_stopping={self.early_stopping!r}: False, True or "never"')

    def score(self, total: float, length: int) -> float:
        """The score by which a text of `length` tokens with log-probability `total` is ranked."""
        return total / length**self.length_penalty


@dataclass(frozen=True, slots=True)
class BeamHypothesis(Hypothesis):
    """A hypothesis of beam search.

    total: its log-probability; length: tokens with EOS or stop id, which `tokens` lacks
    overruled: the controls of repetition and length that did not hold
    logprobs: of each token, among the allowed ones and among all; empty unless asked for
    best: of each token's place, the likeliest tokens of both; traces: for diagnostics; empty likewise
    """

    total: float = 0.0
    length: int = 0
    overruled: frozenset[str] = frozenset()
    logprobs: tuple[tuple[float, float], ...] = ()
    best: tuple[tuple[Ranked, Ranked], ...] = ()
    traces: tuple[Trace, ...] = ()


class FinishedBeams:
    """The best finished hypotheses of a prompt, at most `width`, best first.

    budget: most tokens of an output; by_text: equal texts count once, whatever tokens spell them
    """

    def __init__(self, search: Beam, budget: int, by_text: bool) -> None:
        self._search = search
        self._budget = budget
        self._by_text = by_text
        self.best: list[tuple[float, BeamHypothesis]] = []

    def add(self, hypotheses: list[BeamHypothesis]) -> None:
        """Enter hypotheses that finished in the same step."""
        scored = [(self._search.score(one.total, one.length), one) for one in hypotheses]
        ranked = sorted([*self.best, *scored], key=lambda entry: -entry[0])
        if self._by_text:
            first: dict[bytes, tuple[float, BeamHypothesis]] = {}
            for entry in ranked:
                first.setdefault(entry[1].text, entry)
            ranked = list(first.values())
        self.best = ranked[: self._search.width]

    def settled(self, leader: BeamHypothesis) -> bool:
        """True if the search ends although `leader`, the best of the running beams, could go on."""
        search = self._search
        if len(self.best) < search.width:
            return False
        if search.early_stopping is True:
            return True
        longest = search.early_stopping == "never" and search.length_penalty > 0
        hoped = search.score(leader.total, self._budget if longest else leader.length)
        return hoped <= self.best[-1][0]


def round_robin(progress: Sequence[int], count: int) -> list[int]:
    """Which candidates to keep: the places of up to `count` of them, in the order in which they are picked.

    progress: how far each candidate is with its goals, the likeliest candidate first
    Candidates of equal progress make up a bank. The first of each bank is picked, from the fullest bank down, then
    the second of each, and so on. Source: C. Huang, "Guiding Text Generation with Constrained Beam Search in
    Transformers" (Hugging Face 2022), after M. Post and D. Vilar, "Fast Lexically Constrained Decoding with Dynamic
    Beam Allocation for Neural Machine Translation" (2018).
    """
    banks: dict[int, list[int]] = {}
    for place, steps in enumerate(progress):
        banks.setdefault(steps, []).append(place)
    rounds = zip_longest(*(banks[steps] for steps in sorted(banks, reverse=True)))
    return [place for place in chain.from_iterable(rounds) if place is not None][:count]
