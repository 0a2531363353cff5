"""Sets of strings: membership against `re`, laws of the algebra, emptiness and examples."""

from __future__ import annotations

import re
import string
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Limits

from ...support import Meter
from ..support import ANY_STRING, EXAMPLES, PATTERNS, WIDER, PatternLanguage, String, all_spelt, spelt, strings

LANGUAGE = PatternLanguage()
TEXTS = ["".join(chars) for length in range(5) for chars in product("abé", repeat=length)]
PATTERN_TEXTS = ["a", "^a", "b$", "^(ab)*$", "a{2,3}", "^[^a]*$", "é|^b", "^(?:a|ab)(?:c|b)*$", "(?!a)b", "^.{2}$"]
patterns = st.frozensets(st.sampled_from(PATTERN_TEXTS), max_size=2)


@st.composite
def sets(draw: st.DrawFn) -> String:
    if draw(st.integers(0, 3)) == 0:
        return strings.of_values(draw(st.frozensets(st.sampled_from(TEXTS), max_size=4)))
    low, high = draw(st.integers(0, 2)), draw(st.none() | st.integers(2, 4))
    return String(
        low, high, draw(patterns), draw(patterns), excluded=draw(st.frozensets(st.sampled_from(TEXTS), max_size=3))
    )


def inside(case: String | None) -> set[str]:
    return set() if case is None else {text for text in TEXTS if LANGUAGE.contains(case, text)}


@pytest.mark.parametrize("pattern", PATTERN_TEXTS)
def test_patterns_are_searched_as_by_re(pattern: str) -> None:
    expected = {text for text in TEXTS if re.search(pattern, text)}
    assert inside(String(patterns=frozenset((pattern,)))) == expected


@settings(max_examples=150, derandomize=True, deadline=None)
@given(sets(), sets())
def test_intersection_complement_and_difference(a: String, b: String) -> None:
    assert inside(strings.intersect(a, b, LANGUAGE)) == inside(a) & inside(b)
    assert set().union(*map(inside, strings.complement(a))) == set(TEXTS) - inside(a)
    parts = [inside(part) for part in strings.difference(a, b, LANGUAGE)]
    assert set().union(*parts) == inside(a) - inside(b)
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert inside(strings.exclude(a, ["a", "ab"], LANGUAGE)) == inside(a) - {"a", "ab"}


@settings(max_examples=150, derandomize=True, deadline=None)
@given(sets())
def test_examples_are_members_and_all_of_them_if_they_are_few(case: String) -> None:
    found = LANGUAGE.examples(case, 12)
    assert len(set(found)) == len(found)
    assert all(LANGUAGE.contains(case, text) for text in found)
    assert LANGUAGE.is_empty(case) == (not found)
    if len(found) < 12:
        assert inside(case) <= set(found)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("^ab", "^ac", True),
        ("^ab*", "^ac*", False),
        ("^ab", "^a", False),
        ("^é", "^è", True),
        ("^ab", "ac", False),
        ("^(?:ab|ac)d", "^b", False),
        ("^ab$", "^abc", False),
    ],
)
def test_patterns_that_begin_apart(one: str, other: str, apart: bool) -> None:
    """What is told apart is; that is not all there is."""
    a, b = (String(patterns=frozenset((pattern,))) for pattern in (one, other))
    both = strings.intersect(a, b, LANGUAGE)
    assert (both is None) is apart
    assert both is not None or LANGUAGE.is_empty(String(patterns=a.patterns | b.patterns))


def test_a_finite_language_is_exhausted() -> None:
    assert sorted(LANGUAGE.examples(String(patterns=frozenset(("^[a-e]$",))), 17)) == list("abcde")
    assert len(LANGUAGE.examples(String(patterns=frozenset(("^[a-e]*$",))), 17)) == 17
    assert LANGUAGE.examples(String(patterns=frozenset(("^a$",)), excluded=frozenset(("a",))), 1) == []


QUICK = {
    "beginnings that are refused": (
        String(patterns=frozenset(("^q", "7" * 40)), not_patterns=frozenset(("^[pqr]",))),
        True,
    ),
    "matches one behind the other": (String(patterns=frozenset(("kilo", "lima", "mike", "november"))), False),
    "the empty text": (String(not_formats=frozenset(("uri",))), False),
}


@pytest.mark.parametrize("name", QUICK)
def test_emptiness_takes_little_work(name: str) -> None:
    case, is_empty = QUICK[name]
    with Meter(Limits(work=500_000)):
        assert LANGUAGE.is_empty(case) == is_empty


def test_any_string_is_everything() -> None:
    assert inside(ANY_STRING) == set(TEXTS)


@pytest.mark.parametrize("name", PATTERNS)
def test_formats_have_their_example_and_others(name: str) -> None:
    case = String(formats=frozenset((name,)))
    assert LANGUAGE.contains(case, EXAMPLES[name])
    assert len(LANGUAGE.examples(case, 3)) == 3
    assert not LANGUAGE.contains(String(not_formats=frozenset((name,))), EXAMPLES[name])


@pytest.mark.parametrize(
    ("date", "valid"),
    [("2000-02-29", True), ("1900-02-29", False), ("2024-02-29", True), ("2023-02-29", False), ("0000-01-01", True)],
)
def test_leap_years(date: str, valid: bool) -> None:
    assert LANGUAGE.contains(String(formats=frozenset(("date",))), date) is valid


@pytest.mark.parametrize("sign", [1, -1])
def test_leap_seconds_are_the_last_of_a_day_in_utc(sign: int) -> None:
    """Behind offsets of whole and half hours they are of the format; behind others they may be."""
    surely, perhaps = (String(formats=frozenset((name,))) for name in ("time", WIDER["time"]))
    for offset in range(0, 1440, 10):
        local = (1439 + sign * offset) % 1440
        for minute in {local, (local + 1) % 1440, (local + 60) % 1440, (local - 30) % 1440}:
            written = f"{minute // 60:02}:{minute % 60:02}:60.5{'-+'[sign > 0]}{offset // 60:02}:{offset % 60:02}"
            assert LANGUAGE.contains(surely, written) is (minute == local and offset % 30 == 0), written
            assert LANGUAGE.contains(perhaps, written)


@pytest.mark.parametrize("name", WIDER)
def test_what_may_be_of_a_format_is_neither_of_it_nor_surely_not(name: str) -> None:
    case = String(formats=frozenset((name,)))
    (outside,) = strings.refutation(case)
    assert outside == String(not_formats=frozenset((WIDER[name],)))
    assert strings.refutation(outside) == [case]
    assert strings.intersect(case, outside, LANGUAGE) is None
    between = String(formats=outside.not_formats, not_formats=case.formats)
    assert len(LANGUAGE.examples(between, 2)) == 2


@pytest.mark.parametrize("name", sorted(WIDER.keys() - {"regex"}))
def test_what_is_of_a_format_may_be_of_it(name: str) -> None:
    assert LANGUAGE.is_empty(String(formats=frozenset((name,)), not_formats=frozenset((WIDER[name],))))


def test_regular_expressions_begin_as_they_may() -> None:
    perhaps = String(formats=frozenset((WIDER["regex"],)))
    for text in ("", "a", "(a|b)*", "^", "[*]", "\\*", "|"):
        assert LANGUAGE.contains(String(formats=frozenset(("regex",))), text)
        assert LANGUAGE.contains(perhaps, text)
    assert not any(LANGUAGE.contains(perhaps, text) for text in ("*", "+a", "?", ")"))


MEDIA_RANGES = {
    "*/*": True,
    "text/*": True,
    "*/html": True,
    "application/vnd.a+json;q=0.5": True,
    'a/b \t;\t c=d;;e="f"': True,
    'a/b;c="x;y\\"z\t"': True,
    'a/b;c=""': True,
    "a/b;": True,
    "a/b; ": True,
    "": False,
    "a": False,
    "/": False,
    "a/": False,
    "a/b/c": False,
    "a /b": False,
    "a/b ": False,
    "a/b c=d": False,
    "a/b;c": False,
    "a/b;c=": False,
    "a/b;c =d": False,
    "a/b;c= d": False,
    'a/b;c="d': False,
    'a/b;c="d\\"': False,
    'a/b;c="d"e': False,
    'a/b;c="\x7f"': False,
    'a/b;c="\n"': False,
    "a/b, c/d": False,
    "é/b": False,
    "a/b;c=é": False,
}
"""Texts, and whether RFC 9110 has them as a `media-range`."""


@pytest.mark.parametrize("text", MEDIA_RANGES)
def test_media_ranges(text: str) -> None:
    for name in ("media-range", WIDER["media-range"]):
        assert LANGUAGE.contains(String(formats=frozenset((name,))), text) is MEDIA_RANGES[text]


@pytest.mark.parametrize("text", ['a/b;c="é"', 'a/b;c="\\é"', 'a/b;c="\u20ac"'])
def test_quoted_bytes_may_be_of_a_media_range(text: str) -> None:
    surely, perhaps = (String(formats=frozenset((name,))) for name in ("media-range", WIDER["media-range"]))
    assert not LANGUAGE.contains(surely, text)
    assert LANGUAGE.contains(perhaps, text)


def test_tokens_of_media_ranges_have_the_characters_of_rfc_9110() -> None:
    case = String(formats=frozenset(("media-range",)))
    allowed = {chr(code) for code in range(0x100) if LANGUAGE.contains(case, f"a/{chr(code)}")}
    assert allowed == {*string.ascii_letters, *string.digits, *"!#$%&'*+-.^_`|~"}


def test_texts_are_spelt_together_as_they_are_apart() -> None:
    texts = ["", "a b", 'q"\\', "line\nbreak\t\x00\x7f", "é\u2028😀", ", ", "a"]
    assert all_spelt(texts) == [spelt(text) for text in texts]
    assert all_spelt([]) == []
