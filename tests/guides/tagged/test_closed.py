"""A guide before a closing mark: the laws, and where a text ends."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pytest
from trellm import Vocabulary
from trellm.errors import LanguageError, OptionError
from trellm.guides import (
    DEAD,
    AlignedGuide,
    ChoiceGuide,
    Guide,
    JSONGuide,
    RegexGuide,
    SubstringGuide,
    laws,
    mask_within,
    tokens_of,
)

from ..vocabularies import CHARACTERS, SMALL
from .support import AfterGuide, ClosedGuide

CHILD = RegexGuide("[ab]{2,4}", SMALL)
CHILDREN: dict[str, Any] = {
    "pattern": CHILD,
    "anything": RegexGuide("(?s:.*)", SMALL),
    "quotation": SubstringGuide('ab 12 ba "ab" x', SMALL),
    "distinct": JSONGuide({"type": "array", "items": {"type": "string", "maxLength": 2}, "uniqueItems": True}, SMALL),
    "choice": ChoiceGuide(["", "ab", "abab"], SMALL),
    "closed": ClosedGuide(CHILD, "b"),
}


@pytest.mark.parametrize("name", CHILDREN)
@pytest.mark.parametrize("mark", ['"', "ab", "aba", "**", "é世", "\n```"])
def test_laws(name: str, mark: str) -> None:
    guide = ClosedGuide(CHILDREN[name], mark)
    laws.check(guide, texts=2, tokens=8)
    laws.knows_its_states(guide)


def test_laws_of_what_it_is_a_part_of() -> None:
    guide = ClosedGuide(CHILD, '"')
    laws.check(AlignedGuide(guide, b'is "'), texts=3, tokens=10)
    laws.check(AfterGuide(AlignedGuide(guide, b"is "), "</t>", most=2000), texts=3, tokens=10)


@pytest.mark.parametrize("mark", ["a", "ab", "aba", "bb", "</t>"])
@pytest.mark.parametrize("child", [CHILD, RegexGuide("([ab]|</t>)*", SMALL), ChoiceGuide(["", "aba", "ababa"], SMALL)])
def test_against_the_definition(mark: str, child: Any) -> None:
    """Any text of bytes, in any tokens: a text of the child, and the mark behind it."""
    random, guide, complete = Random(4), ClosedGuide(child, mark), 0
    for _ in range(600):
        data = "".join(random.choices(["a", "b", "</t", ">", mark], k=random.randint(0, 6))).encode()
        said = data.removesuffix(mark.encode())
        inner = DEAD if said == data else child.read(child.start, said)
        expected = inner != DEAD and child.is_accepting(inner)
        state = guide.start
        for token in laws.spelling(guide, data, random):
            state = guide.advance(state, token)
            if state == DEAD:
                break
        assert (state != DEAD and guide.is_accepting(state)) == expected, data
        complete += expected
    assert complete > 3


def test_nothing_follows_the_mark() -> None:
    guide = ClosedGuide(CHILD, '"')
    state = guide.read(guide.start, b'ab"')
    assert tokens_of(guide.mask(state)) == sorted(SMALL.eos_ids)
    assert guide.distance(state) == 0
    assert guide.read(guide.start, b'ab"a') == DEAD
    assert not guide.is_accepting(guide.read(guide.start, b"ab"))


def test_the_mark_within_a_text_of_the_child() -> None:
    guide = ClosedGuide(ChoiceGuide(["a", 'a"b'], SMALL), '"')
    both = guide.read(guide.start, b'a"')
    assert guide.is_accepting(both)
    assert {SMALL.tokens[token] for token in tokens_of(guide.mask(both)) if SMALL.tokens[token]} == {b"b"}
    assert guide.is_accepting(guide.read(both, b'b"'))


def test_a_small_budget_leaves_room_for_the_mark() -> None:
    guide = ClosedGuide(RegexGuide("[xy]*", SMALL), "</t>")
    assert guide.distance(guide.start) == 4
    assert {SMALL.tokens[token] for token in tokens_of(mask_within(guide, guide.start, 4))} == {b"<"}
    assert b"x" in {SMALL.tokens[token] for token in tokens_of(mask_within(guide, guide.start, 5))}


def test_what_lies_ahead_in_the_document() -> None:
    guide = ClosedGuide(SubstringGuide("one two three", SMALL), '"')
    assert guide.ahead(guide.read(guide.start, b"tw")) == b"o three"
    assert guide.ahead(guide.read(guide.start, b'two"')) == b""
    assert ClosedGuide(CHILD, '"').ahead(guide.start) == b""


def test_what_is_expected_in_words() -> None:
    guide = ClosedGuide(CHILD, "**")
    assert "[ab]" in guide.describe(guide.start) or "a" in guide.describe(guide.start)
    assert "the closing mark '**'" in guide.describe(guide.read(guide.start, b"ab"))
    assert guide.describe(guide.read(guide.start, b"ab*")) == "the rest of the closing mark, '*'"
    assert guide.describe(guide.read(guide.start, b"ab**")) == "the end of the text"


def test_it_is_sent_and_compared() -> None:
    for child in CHILDREN.values():
        guide = ClosedGuide(child, "</t>")
        again = pickle.loads(pickle.dumps(guide))
        assert again == guide
        assert again.mask(again.start).tolist() == guide.mask(guide.start).tolist()
        for around in (guide, AfterGuide(guide, "</t>", most=9), AlignedGuide(guide, b"ab", counts_tail=False)):
            assert around.rebuild() == around and not around.should_rebuild


class ByTokens:
    """A guide that does not read bytes."""

    def __init__(self, guide: Guide) -> None:
        for name in ("vocabulary", "start", "mask", "advance", "is_accepting", "distance"):
            setattr(self, name, getattr(guide, name))


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: ClosedGuide("ab", "x"), OptionError, "must read bytes"),  # type: ignore[arg-type]
        (lambda: ClosedGuide(ByTokens(CHILD), "x"), OptionError, "must read bytes"),  # type: ignore[arg-type]
        (lambda: ClosedGuide(CHILD, ""), OptionError, "from 1 to 64 bytes"),
        (lambda: ClosedGuide(CHILD, "é" * 33), OptionError, "not 66"),
        (lambda: ClosedGuide(RegexGuide("a", CHARACTERS), "<"), LanguageError, "spell the closing mark '<'"),
    ],
)
def test_mistakes(make: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        make()


def test_tokens_of_whole_characters_only() -> None:
    """The mark crosses from one token into the next, where single bytes are no tokens."""
    vocabulary = Vocabulary.from_characters([*"ab<é", 'a"', '"<'])
    guide = ClosedGuide(RegexGuide("[ab]*", vocabulary), '"<')
    laws.check(guide, texts=4, tokens=6)
    laws.check(ClosedGuide(RegexGuide("[ab]*", vocabulary), "<"), texts=4, tokens=6)
