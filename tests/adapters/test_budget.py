"""Masks within a budget are those of the guide, however often they are asked for, and forgotten with it."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from trellm import Vocabulary
from trellm.adapters import session
from trellm.guides import DEAD, RegexGuide, mask_within

from .texts import MAKERS, SMALL, states_of


def check(guide: Any, state: int, left: int) -> None:
    found = session.within_budget(guide, state, left)
    np.testing.assert_array_equal(guide.mask(state) if found is None else found, mask_within(guide, state, left))


@pytest.mark.parametrize("name", ["regex", "json", "grammar", "unique"])
def test_masks_are_those_within_the_budget(name: str) -> None:
    guide = MAKERS[name](SMALL)
    states = [state for state in states_of(guide) if state != DEAD]
    for left in (40, 3, 0, -2, 9, 80, 5, 40, 1):
        for state in states:
            found = session.within_budget(guide, state, left)
            np.testing.assert_array_equal(
                guide.mask(state) if found is None else found, mask_within(guide, state, left)
            )


class AskedGuide(RegexGuide):
    """A guide that knows what it was asked for within."""

    def __init__(self, pattern: str, vocabulary: Vocabulary) -> None:
        super().__init__(pattern, vocabulary)
        self.asked: list[int] = []

    def mask_within(self, state: int, left: int) -> Any:
        self.asked.append(left)
        return super().mask_within(state, left)


def test_what_is_enough_is_asked_for_once() -> None:
    guide = AskedGuide("[0-9]{2,5}", SMALL)
    for left in (64, 60, 40, 33, 31, 30, 2):
        session.within_budget(guide, guide.start, left)
    assert guide.asked == [32, 15, 1, 2]


def test_what_is_known_goes_with_the_guide() -> None:
    guide: Any = RegexGuide("[a-c]{2,5}", SMALL)
    session.within_budget(guide, guide.start, 50)
    number = id(guide)
    assert number in session._BUDGETS
    del guide
    gc.collect()
    assert number not in session._BUDGETS


class Slotted:
    """A guide of somebody else's that no weak reference can be made to."""

    __slots__ = ("advance", "distance", "is_accepting", "mask", "start", "vocabulary")

    def __init__(self) -> None:
        inner = MAKERS["regex"](SMALL)
        self.vocabulary, self.start, self.mask, self.advance = SMALL, inner.start, inner.mask, inner.advance
        self.distance, self.is_accepting = inner.distance, inner.is_accepting


def test_guides_that_nothing_is_remembered_of() -> None:
    guide = Slotted()
    before = len(session._BUDGETS)
    found = session.within_budget(guide, guide.start, 3)
    np.testing.assert_array_equal(
        guide.mask(guide.start) if found is None else found, mask_within(guide, guide.start, 3)
    )
    assert len(session._BUDGETS) == before
