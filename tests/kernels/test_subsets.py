"""All states of patterns read side by side, against the automata that find them one by one."""

from __future__ import annotations

from random import Random

import pytest
from trellm import LimitError
from trellm.guides import DEAD
from trellm.guides.automata.conditions import Automaton, JointConditions, automaton, subsets_of
from trellm.guides.automata.positions import Joint, Product
from trellm.guides.regex import parse

from ..thresholds import thresholds

PIECES = ["a", "b", "é", "[a-f]", "(a|bc)*", "(ab|a){1,3}", ".*", "[^a]", "(a.{3}|b){0,2}", "😀?", "(.|\n)*"]
LARGE = ["(a|b)*a.{8}", "(a|b)*b.{7}c*"]


def one_by_one(patterns: list[str], wanted: list[bool], max_states: int) -> Automaton:
    atoms, machines = subsets_of([parse(pattern) for pattern in patterns])
    pairs = list(zip(machines, wanted, strict=True))

    def settled(joint: Joint) -> Joint | None:
        places = zip(pairs, joint, strict=True)
        lost = any(at == DEAD if each else at == machine.everything != DEAD for (machine, each), at in places)
        return None if lost else joint

    product = Product(machines, len(atoms), settled, max_states)
    rows = product.complete()
    accepting = [
        all((at >= 0 and machine.accepting[at]) == each for (machine, each), at in zip(pairs, joint, strict=True))
        for joint in product.states
    ]
    return Automaton(atoms, rows, accepting)


def assert_same(patterns: list[str], wanted: list[bool]) -> None:
    found = automaton(JointConditions([parse(pattern) for pattern in patterns]), wanted)
    expected = one_by_one(patterns, wanted, 8000)
    assert (found.atoms, found.rows, found.accepting) == (expected.atoms, expected.rows, expected.accepting)


@pytest.mark.parametrize("seed", range(40))
def test_states_are_those_that_are_found_one_by_one(seed: int) -> None:
    random = Random(seed)
    patterns = ["".join(random.choices(PIECES, k=random.randint(1, 4))) for _ in range(random.randint(1, 3))]
    assert_same(patterns, [random.random() < 0.6 for _ in patterns])


@pytest.mark.parametrize("steps", [None, 1, 1000])
def test_more_states_than_there_is_room_for_at_first(steps: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays grow under way, and the kernel stops now and then so that the work is counted."""
    thresholds(monkeypatch, subsets_before_a_look=steps, subsets_with_room=1)
    assert_same(LARGE, [True, False])


def test_words_that_positions_fill() -> None:
    """31 to 33 and 63 to 65 positions, that before the text counted."""
    for count in (30, 31, 32, 62, 63, 64):
        assert_same([f"a{{{count}}}", f"(a|b){{{count}}}"], [False, True])


def test_no_condition_and_nothing() -> None:
    assert automaton(JointConditions([]), []).accepting == [True]
    assert_same(["a", "b"], [True, True])
    assert not any(automaton(JointConditions([parse("(.|\n)*")]), [False]).accepting)


def test_too_many_states() -> None:
    together = JointConditions([parse(pattern) for pattern in LARGE])
    count = len(automaton(together, [True, True]).rows)
    assert count > 500
    assert len(automaton(together, [True, True], count).rows) == count
    for most in (1, count - 1):
        with pytest.raises(LimitError, match=f"more than {most:,} states"):
            automaton(together, [True, True], most)
