"""A guide behind free text: the laws, the budget of the text, and where it ends."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pytest
from trellm import Vocabulary
from trellm.errors import LanguageError, OptionError, VocabularyError
from trellm.guides import (
    DEAD,
    ChoiceGuide,
    Guide,
    JSONGuide,
    RegexGuide,
    SubstringGuide,
    TaggedGuide,
    laws,
    mask_within,
    tokens_of,
)

from ..vocabularies import CHARACTERS, SMALL
from .support import AfterGuide

SPECIAL = 302
CHILD = RegexGuide("[ab]{2,4}", SMALL)
CHILDREN: dict[str, Guide] = {
    "pattern": CHILD,
    "quotation": SubstringGuide("ab 12 ba", SMALL),
    "distinct": JSONGuide({"type": "array", "items": {"type": "string", "maxLength": 2}, "uniqueItems": True}, SMALL),
    "tags": TaggedGuide([(304, CHILD, "")], SMALL, least=1),
    "after": AfterGuide(CHILD, "ba", most=2000),
}


@pytest.mark.parametrize("marker", ["</t>", "aba", "ab", "é世", "aaab", SPECIAL])
def test_laws(marker: Any) -> None:
    laws.check(AfterGuide(CHILD, marker, most=2000), texts=3, tokens=8)


@pytest.mark.parametrize("name", CHILDREN)
@pytest.mark.parametrize("marker", ["ab", SPECIAL])
def test_laws_before_other_guides(name: str, marker: Any) -> None:
    laws.check(AfterGuide(CHILDREN[name], marker, most=2000), texts=2, tokens=6)


@pytest.mark.parametrize("marker", ["</t>", "aba", "aaab", SPECIAL])
@pytest.mark.parametrize("most", [0, 1, 3])
def test_laws_where_the_budget_of_the_text_ends(marker: Any, most: int) -> None:
    """State by state, since how many tokens there were is in a state, and not in the bytes."""
    guide = AfterGuide(CHILD, marker, most=most)
    for seed in range(3):
        for state, _ in laws.walk(guide, Random(seed), 9):
            laws.check_state(guide, state, Random(seed))
        laws.closes_in_time(guide, guide.distance(guide.start) + seed, Random(seed))


@pytest.mark.parametrize("marker", ["</t>", "aba", "aaab"])
def test_against_the_definition(marker: str) -> None:
    """Any text of bytes: the first marker divides it, and the child reads the rest."""
    random, guide, complete = Random(4), AfterGuide(CHILD, marker, most=2000), 0
    for _ in range(600):
        pieces = random.choices(["a", "b", "</t", ">", marker, "é"], k=random.randint(0, 8))
        data = "".join(pieces).encode()
        before, found, rest = data.partition(marker.encode())
        inner = CHILD.read(CHILD.start, rest)
        expected = bool(found) and inner != DEAD and CHILD.is_accepting(inner)
        tokens = laws.spelling(guide, data, random)
        state = guide.start
        for token in tokens:
            state = guide.advance(state, token)
            if state == DEAD:
                break
        assert (state != DEAD and guide.is_accepting(state)) == expected, data
        if expected:
            complete += 1
            assert guide.split(tokens) == (before.decode(), rest.decode(), False)
    assert complete > 3


def test_the_marker_is_forced_when_the_budget_ends() -> None:
    guide = AfterGuide(CHILD, "</t>", most=2)
    state = guide.start
    for _ in range(2):
        state = guide.advance(state, ord("x"))
    for byte in b"</t>":
        assert {SMALL.tokens[token] for token in tokens_of(guide.mask(state))} == {bytes([byte])}
        state = guide.advance(state, byte)
    assert guide.mask(state).tolist() == CHILD.mask(CHILD.start).tolist()
    assert guide.split([*b"xx</t>ab"]) == ("xx", "ab", True)
    assert guide.split([*b"x</t>ab"]) == ("x", "ab", True), "its first byte took what was left"
    assert guide.split([*b"</t>ab"]) == ("", "ab", True)
    assert AfterGuide(CHILD, SPECIAL, most=2).split([ord("x"), SPECIAL, *b"ab"]) == ("x", "ab", False)


def test_a_constraint_that_contains_the_marker() -> None:
    guide = AfterGuide(ChoiceGuide(["x</t>y", "</t>"], SMALL), "</t>", most=50)
    assert guide.split([*b"so</t>x</t>y"]) == ("so", "x</t>y", False)
    state = guide.start
    for byte in b"</t></t>":
        state = guide.advance(state, byte)
    assert guide.is_accepting(state)


def test_a_token_that_is_the_marker_and_letters_that_spell_it() -> None:
    guide = AfterGuide(CHILD, 256, most=50)
    assert SMALL.tokens[256] == b"ab"
    assert not guide.is_accepting(guide.advance(guide.advance(guide.start, ord("a")), ord("b")))
    assert guide.advance(guide.start, 256) > guide.advance(guide.start, ord("a"))
    assert guide.distance(guide.advance(guide.start, 256)) == CHILD.distance(CHILD.start)


def test_a_small_budget_ends_the_text_early() -> None:
    guide = AfterGuide(CHILD, "</t>", most=50)
    assert guide.distance(guide.start) == 5
    assert {SMALL.tokens[token] for token in tokens_of(mask_within(guide, guide.start, 5))} == {b"<"}
    assert b"x" in {SMALL.tokens[token] for token in tokens_of(mask_within(guide, guide.start, 6))}


def test_it_is_sent_and_compared() -> None:
    for child in CHILDREN.values():
        guide = AfterGuide(child, "</t>", most=7)
        again = pickle.loads(pickle.dumps(guide))
        assert again == guide
        assert again.free_tokens == 7
        assert again.mask(again.start).tolist() == guide.mask(guide.start).tolist()


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: AfterGuide("ab", "x"), OptionError, "not a guide that can follow"),  # type: ignore[arg-type]
        (lambda: AfterGuide(CHILD, ""), OptionError, "from 1 to 1,000 bytes"),
        (lambda: AfterGuide(CHILD, "é" * 501), OptionError, "not 1,002"),
        (lambda: AfterGuide(CHILD, 1.5), OptionError, "the marker, a token=1.5"),  # type: ignore[arg-type]
        (lambda: AfterGuide(CHILD, 303), VocabularyError, "end-of-sequence"),
        (lambda: AfterGuide(CHILD, "x", most=-1), OptionError, "the budget of the free text=-1"),
        (lambda: AfterGuide(RegexGuide("a", CHARACTERS), "<"), LanguageError, "spell the marker '<'"),
    ],
)
def test_mistakes(make: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        make()


def test_whole_characters_only() -> None:
    vocabulary = Vocabulary.from_characters([*"ab<é", "éa"])
    laws.check(AfterGuide(RegexGuide("a+", vocabulary), "é<", most=500), texts=3, tokens=6)
