"""Free text with tagged parts: the laws, a slow reference, markers that are tokens, and what is refused."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from trellm import Limits, Vocabulary
from trellm.errors import LimitError, OptionError, VocabularyError
from trellm.guides import (
    DEAD,
    AlignedGuide,
    CFGGuide,
    ChoiceGuide,
    FreeGuide,
    GoalGuide,
    JSONGuide,
    RegexGuide,
    TaggedGuide,
    laws,
    tokens_of,
)

from ..vocabularies import BYTES, CHARACTERS, SMALL
from .support import Part, marker_bytes, with_markers, without_markers

SPECIAL, PADDING = 302, 304
INTEGER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
WORD, DIGITS = RegexGuide("[ab]{1,3}", SMALL), RegexGuide("é*[0-9]", SMALL)
NESTED = CFGGuide('start: "(" start ")" |', SMALL)
GUIDES: dict[str, TaggedGuide] = {
    "texts": TaggedGuide([("<a>", WORD, "</a>"), ("<ab>", DIGITS, "</ab>")], SMALL),
    "tokens": TaggedGuide([(SPECIAL, WORD, PADDING), (256, JSONGuide(INTEGER, SMALL), SPECIAL)], SMALL, least=1),
    "alike": TaggedGuide([("ab", WORD, "!"), ("ab", DIGITS, "!"), ("aaa", DIGITS, "")], SMALL, most=2),
    "contained": TaggedGuide([("aa", RegexGuide("[ab]*", SMALL), "b")], SMALL, least=2, most=3),
    "wide": TaggedGuide(
        [("世é", WORD, "世"), ("世界", CFGGuide('start: "(" start ")" |', SMALL), "🙂")], SMALL, least=1
    ),
    "nested": TaggedGuide(
        [("<", TaggedGuide([(SPECIAL, WORD, "/"), ("b", DIGITS, "")], SMALL, least=1, most=1), ">")], SMALL, least=1
    ),
    "whole characters": TaggedGuide([("ab", ChoiceGuide(["世", "10"], CHARACTERS), "\n")], CHARACTERS, least=1),
}


@pytest.mark.parametrize("name", GUIDES)
def test_laws(name: str) -> None:
    laws.check(GUIDES[name], texts=3, tokens=9)


@pytest.mark.parametrize("name", ["texts", "tokens", "nested"])
def test_what_was_asked_before_changes_nothing(name: str) -> None:
    guide = GUIDES[name]
    make = lambda: TaggedGuide(guide.tags, SMALL, least=guide.least, most=guide.most)  # noqa: E731
    laws.does_not_remember(make, texts=3, tokens=5)


@pytest.mark.parametrize("name", ["texts", "tokens", "wide"])
def test_laws_behind_a_prompt(name: str) -> None:
    laws.check(AlignedGuide(GUIDES[name], b"x <"), texts=2, tokens=6)


def test_laws_with_goals() -> None:
    laws.check(GoalGuide(GUIDES["texts"], ["12"]), texts=2, tokens=6)
    laws.check(GoalGuide(GUIDES["tokens"], ["ba"]), texts=2, tokens=6)


Rule = tuple[str, str, str]


def reads(text: str, rules: Sequence[Rule], least: int, most: float) -> bool:
    """Whether a text is free text with parts, by its definition: the first marker to be complete begins a part."""
    for end in range(len(text) + 1):
        begun = [rule for rule in rules if text[:end].endswith(rule[0])]
        if begun:
            return most > 0 and any(
                re.fullmatch(pattern, text[end:stop])
                and text.startswith(last, stop)
                and reads(text[stop + len(last) :], rules, max(0, least - 1), most - 1)
                for _, pattern, last in begun
                for stop in range(end, len(text) + 1)
            )
    return least == 0


@pytest.mark.parametrize(("least", "most"), [(0, None), (1, None), (1, 2), (2, 2)])
@pytest.mark.parametrize(
    "rules",
    [
        [("<a", "[ab]*", ">")],
        [("ab", "b?", ""), ("ba", "a*", "b")],
        [("aab", "<+", "a"), ("ab>", "[a<]*", "a"), ("b<", "", ">")],
        [("é", "[ab]+", "é"), ("aé", "b", "é")][:1],
    ],
)
def test_against_the_definition(rules: list[Rule], least: int, most: int | None) -> None:
    random = Random(len(rules))
    tags = [(first, RegexGuide(pattern, SMALL), last) for first, pattern, last in rules]
    guide = TaggedGuide(tags, SMALL, least=least, most=most)
    pieces, complete = [*"aabb<>é", *(marker for first, _, last in rules for marker in (first, last))], 0
    for _ in range(1500):
        text = "".join(random.choices(pieces, k=random.randint(0, 9)))
        expected = reads(text, rules, least, float("inf") if most is None else most)
        state = guide.read(guide.start, text.encode())
        assert (state != DEAD and guide.is_accepting(state)) == expected, text
        complete += expected
    assert complete > 3


def test_a_token_is_a_marker_that_nothing_else_spells() -> None:
    """The letters of the marker's token are free text; and it begins its part only."""
    guide = TaggedGuide([(256, DIGITS, 257)], SMALL)
    assert SMALL.tokens[256:258] == [b"ab", b"aba"]
    spelt = guide.read(guide.start, b"ab aba")
    assert guide.is_accepting(spelt)
    assert guide.mask(spelt).tolist() == guide.mask(guide.start).tolist()
    assert guide.advance(guide.start, SMALL.tokens.index(b"aba", 258)) != DEAD
    begun = guide.advance(guide.start, 256)
    assert not guide.is_accepting(begun)
    assert guide.mask(begun).tolist() == DIGITS.mask(DIGITS.start).tolist()
    digit = guide.advance(begun, ord("7"))
    assert tokens_of(guide.mask(digit)) == [257]
    assert guide.advance(guide.start, 257) == DEAD
    assert guide.is_accepting(guide.advance(digit, 257))


def test_special_tokens_that_are_no_markers_stay_out() -> None:
    guide = GUIDES["tokens"]
    for state, _ in laws.walk(guide, Random(3), 12):
        assert not {301 + 2, 305} & set(tokens_of(guide.mask(state))) or guide.is_accepting(state)
        assert 306 not in tokens_of(guide.mask(state))


def test_marked_vocabularies() -> None:
    marked = with_markers(SMALL, [SPECIAL])
    assert marked is with_markers(SMALL, [SPECIAL])
    assert with_markers(marked, [PADDING]) is with_markers(SMALL, [PADDING, SPECIAL])
    assert with_markers(SMALL, []) is SMALL
    assert without_markers(marked) is SMALL
    assert marked.tokens[SPECIAL] == marker_bytes(SPECIAL)
    assert [text for text in marked.tokens if text and max(text) >= 0xF8] == [marker_bytes(SPECIAL)]
    assert pickle.loads(pickle.dumps(marked)).fingerprint == marked.fingerprint != SMALL.fingerprint
    spelt = {marker_bytes(token) for token in range(3000)}
    assert len(spelt) == 3000
    for text in spelt:
        assert text[0] == 0xFF
        assert set(text[1:]) <= set(range(0xF8, 0xFF))
    for token, said in ((303, "end-of-sequence"), (999, "not a token id")):
        with pytest.raises(VocabularyError, match=said):
            with_markers(SMALL, [token])


def test_parts() -> None:
    guide = TaggedGuide([("<a>", RegexGuide("[ab]*", SMALL), "b"), (SPECIAL, DIGITS, "")], SMALL)
    tokens = [*b"x<a>abab", SPECIAL, *b"7<a>"]
    assert guide.parts(tokens) == [Part(None, "x"), Part(0, "a"), Part(None, "ab"), Part(1, "7"), Part(None, "<a>")]
    assert guide.parts(tokens[1:], overlap=1) == guide.parts(tokens[2:])
    assert guide.parts(b"") == []
    assert TaggedGuide([("ab", DIGITS, "!"), ("ab", WORD, "!")], SMALL).parts(b"abb!") == [Part(1, "b")]


def test_a_guide_is_sent_and_compared() -> None:
    for name, guide in GUIDES.items():
        again = pickle.loads(pickle.dumps(guide))
        assert again == guide, name
        assert again.distance(again.start) == guide.distance(guide.start)
        assert again.mask(again.start).tolist() == guide.mask(guide.start).tolist()


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ([], "a list of tags"),
        ("<a>", "a list of tags"),
        ([("<a>", WORD)], "tag 0 is .* a marker, a guide and a marker"),
        ([("<a>", "[ab]", "</a>")], r"tag 0: '\[ab\]' cannot be a part"),
        ([("<a>", RegexGuide, "</a>")], "cannot be a part"),
        ([("<a>", FreeGuide(SMALL), "</a>")], "cannot be a part"),
        ([("<a>", GoalGuide(WORD, ["a"]), "</a>")], "cannot be a part"),
        ([("", WORD, "</a>")], "the first marker is empty"),
        ([("<\ud800", WORD, "")], "the first marker, has a lone surrogate"),
        ([("<", WORD, None)], "the last marker, a token=None: a whole number"),
        ([(-1, WORD, "")], "a whole number of at least 0"),
        ([("<a>", WORD, ""), ("x<a>", WORD, "")], "the marker 'x<a>' contains the marker '<a>'"),
        ([("<a>", WORD, ""), ("<a>b", WORD, "")], "the marker '<a>b' contains the marker '<a>'"),
        ([("a" * 1001, WORD, "")], "marker 0 has 1,001 bytes"),
        ([("<a>", RegexGuide("a", CHARACTERS), "")], "was made for another vocabulary; make it with this one"),
        ([("<a>", JSONGuide({"type": "array", "uniqueItems": True}, SMALL), "")], "uniqueItems"),
    ],
)
def test_mistakes(tags: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        TaggedGuide(tags, SMALL)


def test_bounds_that_contradict() -> None:
    with pytest.raises(OptionError, match="most=1: a whole number of at least 2"):
        TaggedGuide([("<a>", WORD, "")], SMALL, least=2, most=1)


def test_work_is_counted() -> None:
    tags = [(f"<{number}>" * 40, WORD, "") for number in range(200)]
    with pytest.raises(LimitError):
        TaggedGuide(tags, SMALL, limits=Limits(work=100_000))


def test_a_vocabulary_that_spells_little() -> None:
    """Bytes are missing, and a marker that is a token needs none."""
    vocabulary = Vocabulary([b"a", b"ab", None, "é".encode(), None], [4], [2])
    guide = TaggedGuide([(2, RegexGuide("(ab)+", vocabulary), "é")], vocabulary, least=1)
    laws.check(guide, texts=3, tokens=6)
    assert guide.distance(guide.start) == 3


def test_hundreds_of_tags() -> None:
    vocabulary = Vocabulary([*BYTES, b"<f", b"unction", b"=get_1", b'{"', None], [260])
    tags = [
        (f"<function=get_{number}>", JSONGuide({**INTEGER, "maxProperties": number + 1}, vocabulary), "</function>")
        for number in range(400)
    ]
    guide = TaggedGuide(tags, vocabulary)
    for number in (1, 17, 399):
        text = f'I call <function=get_{number}>{{"a": 5}}</function>.'
        state = guide.read(guide.start, text.encode())
        assert guide.is_accepting(state)
        assert guide.parts(text.encode())[1] == Part(number, '{"a": 5}')
    state = guide.read(guide.start, b"<function=get_17>{")
    child = tags[17][1]
    inner = child.read(child.start, b"{")
    assert guide.mask(state).tolist() == child.mask(inner).tolist()
    assert guide.read(guide.start, b"<function=get_400>") != DEAD, "no tag, and so free text"
    laws.check(guide, texts=1, tokens=6, sample=40)
