"""A text of one of several guides: the laws, the definition, and what each guide may be."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pytest
from trellm import Vocabulary
from trellm.errors import OptionError
from trellm.guides import (
    DEAD,
    ByteGuide,
    ChoiceGuide,
    FreeGuide,
    GoalGuide,
    Guide,
    JSONGuide,
    RegexGuide,
    SubstringGuide,
    laws,
)

from ...thresholds import thresholds
from ..vocabularies import CHARACTERS, SMALL
from .support import AfterGuide, ComposedGuide, EitherGuide, Fixed, Inner, InOrder

QUOTES = SubstringGuide("ab 12 ba", SMALL)
PATTERN = RegexGuide("a{3,5}|12[ab]", SMALL)
DISTINCT = JSONGuide({"type": "array", "items": {"type": "string", "maxLength": 2}, "uniqueItems": True}, SMALL)
MARKED = ComposedGuide(InOrder((Fixed(("ab", 302)), Inner(PATTERN))), SMALL)
GOALS = GoalGuide(RegexGuide("[ab ]{0,6}", SMALL), ["ba"])
SETS: dict[str, list[Guide]] = {
    "one": [PATTERN],
    "quotation or pattern": [QUOTES, PATTERN],
    "marker or goals": [MARKED, GOALS],
    "three": [PATTERN, DISTINCT, ChoiceGuide(["ab 1", "é"], SMALL)],
    "behind a marker": [AfterGuide(PATTERN, "b", most=0), QUOTES],
    "nested": [EitherGuide([QUOTES, GOALS]), MARKED],
}


@pytest.mark.parametrize("name", SETS)
def test_laws(name: str) -> None:
    guide = EitherGuide(SETS[name])
    laws.check(guide, texts=3, tokens=8)
    assert isinstance(guide, ByteGuide) == all(isinstance(each, ByteGuide) for each in SETS[name])


def test_guides_are_asked_once_where_a_token_leads() -> None:
    asked: list[tuple[int, int]] = []

    class Asked(RegexGuide):
        def advance(self, state: int, token: int) -> int:
            asked.append((state, token))
            return super().advance(state, token)

    guide = EitherGuide([Asked("ab|ba", SMALL)])
    tokens = [token for _, token in laws.walk(guide, Random(0), 4)]
    assert asked and len(asked) == len(set(asked))
    before, state = len(asked), guide.start
    for token in tokens:
        state = guide.advance(state, token)
    assert len(asked) == before


@pytest.mark.parametrize("name", SETS)
def test_against_the_definition(name: str) -> None:
    """A text is one of the guide's if it is one of any of the guides'; so is its distance."""
    guide, random, complete = EitherGuide(SETS[name]), Random(2), 0
    for number in range(120):
        source = SETS[name][number % len(SETS[name])]
        tokens = [token for _, token in laws.walk(source, random, 8)]
        if random.random() < 0.5 and tokens:
            tokens[random.randrange(len(tokens))] = random.randrange(SMALL.size)
        tokens = [token for token in tokens if token >= 0 and token not in SMALL.eos_ids]
        states, state = [each.start for each in SETS[name]], guide.start
        for token in tokens:
            states = [each.advance(at, token) for each, at in zip(SETS[name], states, strict=True)]
            state = guide.advance(state, token)
            assert (state == DEAD) == all(at == DEAD for at in states)
            if state == DEAD:
                break
            pairs = [each for each in zip(SETS[name], states, strict=True) if each[1] != DEAD]
            assert guide.is_accepting(state) == any(each.is_accepting(at) for each, at in pairs)
            assert guide.distance(state) == min(each.distance(at) for each, at in pairs)
        complete += state != DEAD and guide.is_accepting(state)
    assert complete > 5


def test_it_is_sent_and_compared_as_what_it_was_made_of() -> None:
    guide = EitherGuide([QUOTES, PATTERN])
    assert pickle.loads(pickle.dumps(guide)) == guide != EitherGuide([PATTERN, QUOTES])


def test_words() -> None:
    guide = EitherGuide([QUOTES, RegexGuide("x", SMALL)])
    assert guide.describe(guide.start).startswith("a quotation") and ', or "x"' in guide.describe(guide.start)


def test_a_guide_with_too_many_states_should_be_rebuilt(monkeypatch: Any) -> None:
    guide = EitherGuide([QUOTES, PATTERN])
    state = guide.advance(guide.start, ord("a"))
    thresholds(monkeypatch, alternatives_kept=1)
    assert guide.should_rebuild and guide.mask(state).any()
    assert guide.rebuild() == guide and not guide.rebuild().should_rebuild


@pytest.mark.parametrize("guides", [[], None, [RegexGuide], ["a"], [PATTERN, FreeGuide(CHARACTERS)]], ids=str)
def test_what_cannot_be(guides: Any) -> None:
    with pytest.raises(OptionError):
        EitherGuide(guides)


def test_bytes_that_no_text_has_are_none_where_there_are_markers() -> None:
    """They would spell what markers have for bytes."""
    guide = EitherGuide([FreeGuide(SMALL), MARKED])
    assert guide.advance(guide.start, 0xFF) == DEAD and guide.advance(guide.start, 0xC3) != DEAD
    assert isinstance(guide.vocabulary, Vocabulary) and guide.vocabulary.tokens[302]
