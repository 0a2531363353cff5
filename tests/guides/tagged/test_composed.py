"""Composed texts: the laws, a slow reference by regular expressions, and what is refused."""

from __future__ import annotations

import pickle
import re
from random import Random
from typing import Any

import pytest
from trellm.errors import OptionError
from trellm.guides import DEAD, ChoiceGuide, JSONGuide, RegexGuide, laws

from ..vocabularies import SMALL
from .support import EMPTY, ComposedGuide, Fixed, Free, Inner, InOrder, Named, OneOf, Piece, Several, optional

SPECIAL = 302
AB = Inner(RegexGuide("[ab]{1,3}", SMALL))
# A piece, and its texts as `re` has them over the alphabet below
PIECES: dict[str, tuple[Piece, str]] = {
    "fixed": (Fixed(("ab", "1")), "ab1"),
    "inner": (InOrder((AB, Fixed((";",)))), "[ab]{1,3};"),
    "named": (
        Named(((Fixed(("a1",)), AB), (Fixed(("ab",)), EMPTY), (Fixed(("a12",)), AB))),
        "a1[ab]{1,3}|ab|a12[ab]{1,3}",
    ),
    "several": (Several(AB, Fixed((", ",))), "[ab]{1,3}(, [ab]{1,3})*"),
    "perhaps": (InOrder((optional(Fixed(("1",))), AB)), "1?[ab]{1,3}"),
    "free": (Free((("<t>", AB),)), "(?:(?!<t>)[^])*<t>[ab]{1,3}"),
    "free or call": (Free((("<t>", AB),), ("</t>",), may_end=True), "(?:(?!</?t>)[^])*(?:<t>[ab]{1,3})?"),
    "two exits": (Free((("<t>", AB), ("<u>", EMPTY))), "(?:(?!<[tu]>)[^])*(?:<t>[ab]{1,3}|<u>)"),
    "unlike": (Free(may_end=True, unlike=("{a", "{é"[:1] + "12", "1")), "(?!\\{a|\\{12|1)[^]*"),
    "unlike, markers within": (
        Free((("a1", EMPTY), ("1b", EMPTY)), ("2b",), may_end=True, unlike=("{a1x", "a12", "{12b", " ")),
        "(?!\\{a1x|a12|\\{12b| )((?!a1|1b|2b)[^])*(a1|1b)?",
    ),
    "unlike and call": (
        OneOf((Fixed(("{a1",)), Free((("<t>", AB),), may_end=True, unlike=("{a",)))),
        "\\{a1|(?!\\{a)(?:(?!<t>)[^])*(?:<t>[ab]{1,3})?",
    ),
    "nested": (
        Free((("<t>", Several(Free((("</t>", EMPTY),)), Fixed(("<t>",)))),)),
        "(?:(?!<t>)[^])*<t>(?:(?!</t>)[^])*</t>(?:<t>(?:(?!</t>)[^])*</t>)*",
    ),
}
TEXTS = ["a", "b", "1", "2", ";", ", ", "<t>", "</t>", "<u>", "<", "t>", "{", "é", "世", "{a", "{12", "a1"]


def guide_of(name: str) -> ComposedGuide:
    return ComposedGuide(PIECES[name][0], SMALL)


@pytest.mark.parametrize("name", PIECES)
def test_laws(name: str) -> None:
    laws.check(guide_of(name), texts=2, tokens=8, sample=60)


@pytest.mark.parametrize("name", PIECES)
def test_against_regular_expressions(name: str) -> None:
    """Random texts, and random texts of the guide, are in both languages or in neither."""
    random, guide = Random(3), guide_of(name)
    pattern = re.compile(PIECES[name][1].replace("[^]", "[\\s\\S]"))
    texts = ["".join(random.choices(TEXTS, k=random.randint(0, 6))) for _ in range(600)]
    for _ in range(40):
        tokens = [token for _, token in laws.walk(guide, random, 6)][:-1]
        texts.append(b"".join(SMALL.tokens[token] or b"" for token in tokens).decode(errors="ignore"))
    found = 0
    for text in texts:
        state = guide.read(guide.start, text.encode())
        accepted = state != DEAD and guide.is_accepting(state)
        assert accepted == bool(pattern.fullmatch(text)), text
        found += accepted
    assert found


def test_markers_that_are_tokens() -> None:
    """Letters that spell a marker are none, and the marker is one token."""
    call = InOrder((Inner(JSONGuide({"enum": [1, 2]}, SMALL)), Fixed((304,))))
    guide = ComposedGuide(Free(((SPECIAL, call),), (304,), may_end=True), SMALL)
    laws.check(guide, texts=2, tokens=6, sample=60)
    state = guide.start
    for token in (ord("x"), SPECIAL, ord("2"), 304):
        state = guide.advance(state, token)
    assert guide.is_accepting(state)
    assert guide.advance(guide.start, 304) == DEAD
    assert guide.distance(guide.advance(guide.start, SPECIAL)) == 2


def test_what_is_needed_is_what_the_nearest_name_takes() -> None:
    branches = (
        (Fixed(("long ",)), Inner(ChoiceGuide(["x" * 40], SMALL))),
        (Fixed(("b",)), Inner(ChoiceGuide(["yyy"], SMALL))),
    )
    guide = ComposedGuide(Named(branches), SMALL)
    assert guide.distance(guide.start) == 4


def test_it_is_sent_and_compared() -> None:
    for name in PIECES:
        guide = guide_of(name)
        again = pickle.loads(pickle.dumps(guide))
        assert again == guide
        assert again.mask(again.start).tolist() == guide.mask(guide.start).tolist()


def test_it_is_a_part_of_others() -> None:
    outer = ComposedGuide(InOrder((Fixed(("(",)), Inner(guide_of("named")), Fixed((")",)))), SMALL)
    assert outer.is_accepting(outer.read(outer.start, b"(a12b)"))
    laws.check(outer, texts=2, tokens=6, sample=60)


@pytest.mark.parametrize(
    ("piece", "said"),
    [
        (Free(), "needs a marker"),
        (Free((("", EMPTY),)), "is empty"),
        (Free((("<t>", EMPTY),), ("a<t",)), "ends with the beginning"),
        (Free((("<t>", EMPTY), ("x<t>", EMPTY))), "contains the marker"),
        (Free(may_end=True, unlike=("é",)), "texts of ASCII"),
        (Free(may_end=True, unlike=("",)), "texts of ASCII"),
        (Named(()), "needs at least one branch"),
        (Inner(JSONGuide({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, SMALL)), "uniqueItems"),
        (Inner("ab"), "patterns, choices"),  # type: ignore[arg-type]
    ],
)
def test_mistakes(piece: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        ComposedGuide(piece, SMALL)
