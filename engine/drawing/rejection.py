"""Tokens that only a function can refuse: drawn until one is accepted, with an estimate of all that it would accept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

_LEAST = 1e-300
"""Shares below are too small to count draws by."""


def first_accepted(
    chances: NDArray[np.float64], accepts: Callable[[int], bool], uniforms: Iterator[float]
) -> tuple[int, float]:
    """The place of the first of many draws that is accepted, and an estimate of the share of all that would be.

    chances: float64 [n], in proportion, not all 0. The place is -1, with the share 0, where nothing is accepted.
    The share is one less than the number of accepted draws, two, over one less than that of all draws up to there: it
    has no bias, and does not depend on which was the first. A place is asked about once; draws of places that were
    refused are counted by a geometric number, not made. Where what is left has less than 1e-300 of all, nothing is
    accepted. Source: B. Lipkin and others (2025), see `SMC`.
    """
    left = chances / chances.sum()
    accepted: set[int] = set()
    first, draws, hits = -1, 0, 0
    while hits < 2:
        sums = np.cumsum(left)
        rest = float(sums[-1])
        if rest <= _LEAST:
            return -1, 0.0
        draws += 1 + _refused_before(rest, next(uniforms))
        place = min(int(np.searchsorted(sums, next(uniforms) * rest, side="right")), int(np.flatnonzero(left)[-1]))
        if place in accepted or accepts(place):
            accepted.add(place)
            first = place if first < 0 else first
            hits += 1
        else:
            left[place] = 0.0
    return first, 1 / (draws - 1)


def _refused_before(rest: float, uniform: float) -> int:
    """How many draws are of places known to be refused, before one of the others, which have this share."""
    return 0 if rest >= 1 else math.floor(math.log1p(-uniform) / math.log1p(-rest))
