"""Goals of the caller's own: any machine over bytes, beside all other goals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import (
    AllOf,
    AnyOf,
    Beam,
    Greedy,
    LanguageError,
    LimitError,
    OptionError,
    Sample,
    Template,
    Vocabulary,
    generate,
    models,
)
from trellm.guides import FreeGuide, GoalGuide, RegexGuide, laws, mask_of, tokens_of

from .support import automaton_of, goals_of

TOY = Vocabulary.from_characters(["a", "b", " ", "ab", "ba", "aab", " b"])


@dataclass(frozen=True)
class Remainder:
    """The number of "a" in the text leaves a remainder."""

    divisor: int
    wanted: int

    def automaton(self) -> tuple[Any, Any]:
        states = np.arange(self.divisor)
        after = np.tile(states[:, None], 256)
        after[:, ord("a")] = (states + 1) % self.divisor
        return after, states == self.wanted


@dataclass(frozen=True)
class Given:
    """Whatever it is made with."""

    name: str

    def automaton(self) -> Any:
        return MACHINES[self.name]


def machine(count: int) -> Any:
    return np.zeros((count, 256), np.int64)


STATES = np.arange(3)
MACHINES: dict[str, Any] = {
    "pair": machine(1),
    "none": None,
    "columns": (np.zeros((1, 255), int), np.ones(1, bool)),
    "floats": (np.zeros((1, 256)), np.ones(1, bool)),
    "outside": (machine(1) + 1, np.ones(1, bool)),
    "below": (machine(1) - 1, np.ones(1, bool)),
    "met": (machine(2), np.ones(3, bool)),
    "numbers": (machine(2), np.ones(2, int)),
    "empty": (machine(0), np.ones(0, bool)),
    "many": (machine(10_001), np.ones(10_001, bool)),
    "never": (machine(2), STATES[:2] == 1),
    "closed": (np.tile(np.array([1, 2, 1])[:, None], 256), STATES > 0),
    "lists": ([[0] * 256], [True]),
}


@given(st.text("ab ", max_size=9), st.integers(1, 4), st.integers(0, 3))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_a_machine_is_read_as_it_is(text: str, divisor: int, wanted: int) -> None:
    automaton = automaton_of(Remainder(divisor, wanted % divisor), TOY)
    assert automaton.met[automaton.read(0, text.encode())] == (text.count("a") % divisor == wanted % divisor)
    assert automaton.settled.all() == automaton.settled.any() == (divisor == 1)


def test_what_stays_met_is_known_in_states_that_lead_to_each_other() -> None:
    assert automaton_of(Given("closed"), TOY).settled.tolist() == [False, True, True]
    assert automaton_of(Given("lists"), TOY).settled.tolist() == [True]


@pytest.mark.parametrize(
    ("child", "goals"),
    [
        (FreeGuide(TOY), [Remainder(3, 2)]),
        (FreeGuide(TOY), [Remainder(2, 1), "bb", Given("closed")]),
        (RegexGuide("[ab ]{2,7}", TOY), [Remainder(4, 0), AllOf("ba", Remainder(3, 1))]),
    ],
    ids=["free", "several", "pattern"],
)
def test_the_laws(child: Any, goals: list[Any]) -> None:
    laws.check(GoalGuide(child, goals), texts=2, tokens=6, sample=40)


@pytest.mark.parametrize("search", [Greedy(), Sample(), Beam(3, n=2)], ids=str)
def test_texts_meet_it_under_every_search(search: Any) -> None:
    model = models.from_function(lambda ids: [0.5, 0.4, 0.3, 0.9, 0.2, 1.0, 0.1, 0.8], TOY)
    for generator in (generate.text(model), generate.regex(model, "[ab]{3,8}")):
        found = generator.run("b", search=search, seed=2, max_tokens=6, include=[Remainder(4, 3), "bb"])
        for result in found if isinstance(found, list) else [found]:
            assert result.text.count("a") % 4 == 3
            assert "bb" in result.text
            assert result.unmet == ()


def test_a_stop_string_leaves_it_unmet_and_names_it() -> None:
    model = models.from_function(lambda ids: [0.5, 0.9, 0.3, 0.1, 0.2, 0.1, 0.1, 0.1], TOY)
    assert generate.text(model).run("a", stop="b", max_tokens=4, include=Remainder(4, 3)).unmet == (
        "Remainder(divisor=4, wanted=3)",
    )


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("pair", OptionError, "not a pair of arrays"),
        ("none", OptionError, "not a pair of arrays"),
        ("columns", OptionError, r"not int64\[1, 255\]"),
        ("floats", OptionError, r"not float64\[1, 256\]"),
        ("outside", OptionError, "below the number of states"),
        ("below", OptionError, "below the number of states"),
        ("met", OptionError, r"bool \[2\]"),
        ("numbers", OptionError, r"bool \[2\]"),
        ("empty", OptionError, r"bool \[0\]"),
        ("many", LimitError, "10,001 states"),
        ("never", LanguageError, "spell"),
    ],
)
def test_what_is_no_machine_is_refused(name: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        GoalGuide(FreeGuide(TOY), [Given(name)])


class Unhashable(Remainder):
    __hash__ = None  # type: ignore[assignment]


def test_where_it_may_stand() -> None:
    goal = Remainder(3, 1)
    assert goals_of([goal, AllOf("a", goal)]) == (goal, *goals_of("a"))
    for made in (AnyOf, Template):
        with pytest.raises(OptionError, match="cannot be inside"):
            made("a", goal)
    with pytest.raises(OptionError, match="cannot be hashed"):
        goals_of(Unhashable(3, 1))
    with pytest.raises(OptionError, match="is no goal"):
        goals_of(Remainder)


@given(st.sets(st.integers(0, 69)))
@settings(max_examples=30, derandomize=True)
def test_masks_have_the_tokens_that_they_are_made_of(tokens: set[int]) -> None:
    mask = mask_of(tokens, 70)
    assert (mask.shape, mask.dtype) == ((3,), np.uint32)
    assert tokens_of(mask) == sorted(tokens)
