"""Rows in their lanes, and what they do in a launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.lanes.layout import FREE
from ..decode.row import Row

Numbers = NDArray[np.intp]


@dataclass(slots=True, eq=False)
class Lane:
    """A row in its lane.

    number: of the lane
    fresh: how many of the row's pending tokens have their blocks' content known already, from when it was planned
    told: what every launch is told of it, from ORIGIN on
    sent: tokens that launches under way read at most; flying: how many these are; is_choosing: whether the last chooses
    record: after what was chosen last, FREE if it is not known
    attempt: of the next choice, where it is made under a mask that leaves room to finish; None where it need not
    was_closing: whether the last choice was made under such a mask
    """

    number: int
    row: Row
    fresh: int
    told: tuple[int, ...]
    sent: int = 0
    flying: int = 0
    is_choosing: bool = False
    record: int = FREE
    attempt: int | None = None
    was_closing: bool = False


@dataclass(slots=True)
class Part:
    """What one lane does in a launch: how many tokens it reads, at most if it resumes; whether it chooses then, and out
    of which record.

    era: of the lane, which counts the times that what was under way for it became void
    """

    lane: Lane
    count: int
    chooses: bool
    era: int
    record: int = FREE
    resumes: bool = False
    is_closing: bool = False


class Guessed(NamedTuple):
    """The last token of a text, where it lies, and those that are likely to follow."""

    place: int
    tokens: list[int]


class Begun(NamedTuple):
    """A launch under way: its parts; and the riders in it, how many tokens each reads at most, and their eras."""

    handle: Any
    parts: list[Part]
    riders: Numbers
    limits: NDArray[np.int32]
    eras: NDArray[np.int64]
