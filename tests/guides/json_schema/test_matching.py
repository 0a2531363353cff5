"""Texts read by the syntax of a pattern, from all places at once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..regex.patterns import looking_patterns, near, plain_patterns
from ..support import parse
from .support import matches

ALPHABET = "abxKks7é😀 \t\n_-.]{A"


def agree(pattern: str, texts: list[str]) -> None:
    node, expected = parse(pattern), re.compile(pattern)
    for text in texts:
        assert matches(node, text) == bool(expected.fullmatch(text)), (pattern, text)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(plain_patterns(), st.data())
def test_patterns_as_re_has_them(drawn: tuple[str, str], data: st.DataObject) -> None:
    pattern, example = drawn
    try:
        re.compile(pattern)
    except re.error:
        return
    agree(pattern, data.draw(st.lists(near(example, ALPHABET), min_size=1, max_size=8)))


@settings(max_examples=100, derandomize=True, deadline=None)
@given(looking_patterns("ab\n"), st.data())
def test_tables_as_re_has_them(drawn: tuple[str, str], data: st.DataObject) -> None:
    pattern, example = drawn
    agree(pattern, data.draw(st.lists(near(example, "ab\né"), min_size=1, max_size=8)))


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("[ab]*b[ab]*", ["b", "abab", "aa", "abcb", ""]),  # stretches that places lie within
        ("(a?){2,3}b", ["b", "aab", "aaab", "aaaab"]),
        ("(aa|aaa){2}", ["aaaa", "aaaaa", "aaaaaa", "aaa", "a" * 7]),
        ("(é😀|😀)*", ["é😀😀", "😀é", ""]),
        ("(a{0,40}){0,40}", ["a" * 99, "b"]),
        ("a{1000000000}|b{0,1000000000}", ["bb", "aa"]),
    ],
)
def test_repeats(pattern: str, texts: list[str]) -> None:
    agree(pattern, texts)


def test_what_stands_alone_of_a_pair_is_in_no_set() -> None:
    assert not matches(parse("(.|\n)*"), "a\ud800")
