"""Caches of patterns serve all schemas of a process: no interrupt leaves one half made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

from ...thresholds import thresholds
from ...watching import failing_at, watched
from .support import Counting, JointConditions, automaton, parse

MANY = "^(?:" + "|".join(f"{first}[0-9a-f]{{{count}}}{first}" for count, first in enumerate("ghijklmn", 4)) + ")$"


class Interrupt(BaseException):
    """Raised in the middle of things."""


def everywhere(counted: Counting) -> Iterator[object]:
    """What any text is made of from each state, and what leads from it where."""
    for state, row in enumerate(counted.automaton.rows):
        yield counted.endless(state)
        yield [after for after in row if after >= 0]


def test_an_interrupted_search_for_common_characters_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def made() -> Counting:
        return Counting(automaton(JointConditions([parse(MANY)]), [True]))

    thresholds(monkeypatch, common_characters_at_once=2)
    expected = list(everywhere(made()))
    for at in (1, 2, 5, 20, 50):
        counted = made()
        with monkeypatch.context() as patch:
            watched(patch, counted, "_allowed", failing_at(at, Interrupt()))
            with suppress(Interrupt):
                list(everywhere(counted))
        assert list(everywhere(counted)) == expected


def test_ways_are_told_when_all_are_found() -> None:
    counted = Counting(automaton(JointConditions([parse(MANY)]), [True]))
    kept: dict[int, dict[int, int]] = {}

    class Watched(dict[int, dict[int, int]]):
        def __setitem__(self, state: int, ways: dict[int, int]) -> None:
            kept[state] = dict(ways)
            super().__setitem__(state, ways)

    counted._atoms_to = Watched()  # type: ignore[attr-defined]
    list(map(partial(counted.endless), range(len(counted.automaton.rows))))
    assert kept == counted._atoms_to  # type: ignore[attr-defined]
