"""What `explain` says of texts: against `re` and `regex` on every prefix, and in words."""

import re

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Vocabulary
from trellm.errors import OptionError
from trellm.guides import AlignedGuide, ChoiceGuide, RegexGuide
from trellm.guides.grammar import Chars

from .support import describe, explain, next_characters, parse

BYTES = Vocabulary.from_bytes()
PATTERNS = [
    r"\d{4}-\d{2}-\d{2}",
    r"([0-9]+)?\.[0-9]+",
    r"(ab|abc)*é?",
    r"[^\W\d_]+(-[α-ω]{2,3})*",
    r".{1,3}",
    r"(positive|negative|)",
    r"\w+@\w+\.(com|org)",
]


@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.sampled_from(PATTERNS), st.text("ab0127-.é@αω\nposite", max_size=12))
def test_viable_and_complete_prefixes_are_those_of_re(pattern: str, text: str) -> None:
    verdict = explain(RegexGuide(pattern, BYTES), text)
    prefixes = [text[:count] for count in range(len(text) + 1)]
    viable = [bool(regex.fullmatch(pattern, prefix, partial=True)) for prefix in prefixes]
    complete = [count for count, prefix in enumerate(prefixes) if re.fullmatch(pattern, prefix)]
    assert verdict.matches == bool(re.fullmatch(pattern, text))
    assert verdict.viable_chars == max(count for count, ok in enumerate(viable) if ok)
    assert verdict.complete_chars == (complete[-1] if complete else None)


@pytest.mark.parametrize("pattern", [".", r"\w", r"\s", "[^a]", "[é-ü😀]", r"\p{Greek}", "[\x00-\u07ff]", r"\W"])
def test_next_characters_are_the_set_itself(pattern: str) -> None:
    node = parse(pattern)
    assert isinstance(node, Chars)
    automaton = RegexGuide(pattern, BYTES).automaton
    assert _joined(next_characters(automaton, automaton.start)) == _joined(node.ranges)


def _joined(ranges: tuple[tuple[int, int], ...]) -> set[int]:
    return {code for low, high in ranges for code in range(low, high + 1) if not 0xD800 <= code <= 0xDFFF}


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (".", "any character but a newline"),
        (r"[\s\S]", "any character"),
        ("[0-9.]", 'a digit 0-9 or "."'),
        ("[a-cx]", '"a" to "c" or "x"'),
        ('[^"]', "any character but '\"'"),
        (r"[\t\x00 ]", "U+0000, a tab or a space"),
        (r"\w", r"a letter, digit or _ of any script (\w)"),
        ("[ab]", '"a" or "b"'),
    ],
)
def test_sets_in_words(pattern: str, words: str) -> None:
    node = parse(pattern)
    assert isinstance(node, Chars)
    assert describe(node.ranges) == words


def test_many_ranges_are_counted_instead_of_listed() -> None:
    ranges = tuple((code, code) for code in range(0x3000, 0x3100, 2))
    assert describe(ranges).endswith("or one of 116 other characters")
    assert describe(ranges[:13]).endswith('"〖" or "〘"')


def test_a_mismatch_shows_where() -> None:
    verdict = explain(RegexGuide(r"\d{2}:\d{2}", BYTES), "12-30")
    assert str(verdict) == 'no match: at offset 2 expected ":", found "-"\n  12-30\n    ^'


def test_an_unfinished_text_says_what_is_missing() -> None:
    verdict = explain(ChoiceGuide(["positive", "negative"], BYTES), "pos")
    assert (verdict.matches, verdict.viable_chars, verdict.complete_chars) == (False, 3, None)
    assert 'expected "itive", found the end of the text' in str(verdict)


def test_a_text_that_is_too_long_says_where_it_was_complete() -> None:
    assert "(up to offset 2 it is a match)" in str(explain(RegexGuide("[0-9]{1,2}", BYTES), "123"))


def test_a_lone_surrogate_is_not_a_character() -> None:
    verdict = explain(RegexGuide(".*", BYTES), "a\ud800")
    assert verdict.viable_chars == 1
    assert "found U+D800" in str(verdict)


def test_control_characters_do_not_break_the_picture() -> None:
    lines = str(explain(RegexGuide("a\n\tb", BYTES), "a\n\tc")).splitlines()
    assert lines[1:] == [r"  a\n\tc", "       ^"]


def test_guides_without_an_automaton_are_refused() -> None:
    guide = AlignedGuide(RegexGuide("[ab]+", BYTES), b"a")
    with pytest.raises(OptionError, match=r"AlignedGuide.*has no automaton"):
        explain(guide, "ab")  # type: ignore[arg-type]
