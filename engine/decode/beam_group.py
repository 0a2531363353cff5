"""The beams of one prompt, and the rows of the batch that they sit in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..search.beam import Finished, Hypothesis
from ..search.trace import Recorder
from .row import Request


class Candidate(NamedTuple):
    """A beam of the group, by number, with one more token: the log-probability of both."""

    total: float
    beam: int
    token: int


@dataclass(slots=True, eq=False)
class Group:
    """The beams of one prompt, in the order of their rows.

    at: the first row; before: the beams in these rows as long as the cache's have not been arranged anew
    origins: the place in `before` that each beam's parent has
    recorder: of the search's trace, if asked for
    """

    request: Request
    finished: Finished
    beams: list[Hypothesis]
    at: int
    recorder: Recorder | None = None
    before: list[Hypothesis] = field(default_factory=list[Hypothesis])
    origins: list[int] = field(default_factory=list[int])
    done: bool = False

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

    def shared(self, left: int, right: int) -> int:
        """With how many tokens, prompt included, two beams before begin alike; 0 if one is not of the group."""
        if not 0 <= right < len(self.before):
            return 0
        return len(self.request.start.prompt) + common(self.before[left].tokens, self.before[right].tokens)

    def arrange(self, first: int) -> tuple[list[int], list[int]]:
        """Move to the rows from `first` on: the row of each beam's parent, and what it shares with the row's tokens."""
        order = _order(self.origins, self.at - first)
        self.beams = [self.beams[i] for i in order]
        origins = [self.origins[i] for i in order]
        parents = [self.at + origin for origin in origins]
        shared = [self.shared(origin, row - self.at) for row, origin in enumerate(origins, first)]
        self.at, self.before, self.origins = first, self.beams, list(range(len(order)))
        return parents, shared


def _order(origins: Sequence[int], shift: int) -> list[int]:
    """Who sits where in a group: in the row of its parent, for one child of each parent, so that it is not copied.

    shift: by how much the group's first row moves up
    """
    order = [-1] * len(origins)
    others: list[int] = []
    for beam, origin in enumerate(origins):
        place = origin + shift
        if 0 <= place < len(order) and order[place] < 0:
            order[place] = beam
        else:
            others.append(beam)
    return [others.pop() if beam < 0 else beam for beam in order]


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """How long the longest common beginning is: by halving, since slices compare fast."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[low:middle] == right[low:middle] else (low, middle - 1)
    return low
