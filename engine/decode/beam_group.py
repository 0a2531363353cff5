"""The beams of one prompt, and what the model has read of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..search.beam import Beam, Finished, Hypothesis
from ..search.trace import Recorder
from .row import Reader, Request


class Candidate(NamedTuple):
    """A beam of the group, by number, with one more token: the log-probability of both."""

    total: float
    beam: int
    token: int


@dataclass(slots=True, eq=False)
class Group:
    """The beams of one prompt.

    readers: what the model has read of each beam, in their order
    recorder: of the search's trace, if asked for
    settled: whether no better texts are to be expected; error: what went wrong with this prompt alone
    """

    request: Request
    finished: Finished
    beams: list[Hypothesis]
    readers: list[Reader]
    recorder: Recorder | None = None
    settled: bool = False
    error: Exception | None = None

    @property
    def search(self) -> Beam:
        """Its parameters."""
        assert isinstance(self.request.search, Beam)
        return self.request.search

    @property
    def done(self) -> bool:
        """Whether it goes on no more."""
        return self.settled or self.error is not None

    @property
    def has_goals(self) -> bool:
        """Whether the constraint has goals to meet."""
        guide_cache = self.request.start.guide_cache
        return guide_cache is not None and guide_cache.goals is not None

    def progress(self, one: Candidate) -> int:
        """How far a candidate is with the goals."""
        guide_cache, parent = self.request.start.guide_cache, self.beams[one.beam]
        if guide_cache is None:
            return 0
        if self.request.stops(parent.state, one.token):
            return guide_cache.progress(parent.state)
        return guide_cache.progress_after(parent.state, one.token)

    def left(self, beam: Hypothesis) -> int:
        """How many more tokens a beam's output may get."""
        return self.request.budget - len(beam.tokens) + beam.inside


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """How long the longest common beginning is: by halving, since slices compare fast."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[low:middle] == right[low:middle] else (low, middle - 1)
    return low
