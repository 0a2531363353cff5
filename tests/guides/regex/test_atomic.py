"""Atomic groups and possessive quantifiers: exactly the texts that `re.fullmatch` accepts."""

from __future__ import annotations

import re
from itertools import product
from random import Random

import pytest
from trellm import Vocabulary
from trellm.errors import GrammarError, LanguageError, LimitError
from trellm.guides import CFGGuide, RegexGuide
from trellm.guides.grammar import Chars, Literal, Repeat, Sequence

from ..support import parse
from .naive import matches
from .patterns import ATOMS, drawn

TEXTS = ["".join(letters) for size in range(8) for letters in product("ab", repeat=size)]
TEXTS += ["".join(letters) for size in range(1, 5) for letters in product("abc", repeat=size)]


def test_random_patterns() -> None:
    random = Random(11)
    compared = 0
    while compared < 300:
        pattern = drawn(random, 4, ATOMS, ["", "?", "+", "+"])
        if not re.search(r"\(\?>|[*+?}]\+", pattern):
            continue
        expected = re.compile(pattern)
        node = parse(pattern)
        for text in random.sample(TEXTS, 40):
            assert matches(node, text) == bool(expected.fullmatch(text)), (pattern, text)
        compared += 1


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "(?>a|ab)c",
            "(?>ab|a)c?",
            "(?:a|ab){2}+",
            "(?:ab|a){1,3}+b",
            "(?>(?:a|ab){2})",
            "(?:a|ab)*+c",
            "a*+a",
            "a?+a",
        ),
        *(
            "(?>a*?b)c",
            "(?>a*?)b?",
            "(?:a*)*+b",
            "(?:|a)++",
            "(?>(?:a?){2,3})a",
            "(?:a?b??)*+",
            "[ab]{1,3}+b",
            "a{2}+a",
        ),
        *("(?<=(?>a|b))c|a(?<=(?>a|b))b", "(?=(?>a|ab)b)a.*", "(?!(?>a*)b)a+b?", "(?>a(?>b|bb)+)b", "(?>(a)(b)?+)c"),
        "(?i:(?>A|ab))C",
    ],
)
def test_patterns_on_all_short_texts(pattern: str) -> None:
    expected, node = re.compile(pattern), parse(pattern)
    for text in TEXTS:
        assert matches(node, text) == bool(expected.fullmatch(text)), text


def test_where_nothing_else_can_follow_they_are_plain_repeats() -> None:
    a = Chars(((97, 98),))
    assert parse("[ab]*+c") == Sequence((Repeat(a, 0, None), Literal(b"c")))
    assert parse("x[ab]++") == Sequence((Literal(b"x"), Repeat(a, 1, None)))
    assert parse("(?>a|ab)c") == Literal(b"ac")


def test_words_and_strings_as_they_are_written() -> None:
    vocabulary = Vocabulary.from_bytes()
    words = [f"word{number}" for number in range(300)]
    for pattern, good, bad in (
        (f"(?>{'|'.join(words)})s", ["word7s", "word8s"], ["word77s", "word7"]),
        (r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', ['""', r'"a\"b"', r'"\\"'], ['"', r'"\"', '"a"b"']),
        (r"[+-]?+\d++(?>\.\d+)?+(?>[eE][+-]?\d+)?+", ["1", "-12.5e+7"], ["1.", "1e"]),
    ):
        guide = RegexGuide(pattern, vocabulary)
        for text in good + bad:
            state = guide.automaton.read(guide.start, text.encode())
            assert (state >= 0 and guide.automaton.is_accepting(state)) == (text in good), (pattern, text)
            assert bool(re.fullmatch(pattern, text)) == (text in good)


def test_terminals_of_a_grammar() -> None:
    guide = CFGGuide('start: "<" /a++(?>b|bc)?/ ">"', Vocabulary.from_bytes())
    for text, taken in (("<a>", True), ("<aab>", True), ("<abc>", False)):
        state = guide.automaton.read(guide.start, text.encode())
        assert (state >= 0 and guide.automaton.is_accepting(state)) == taken
    with pytest.raises(GrammarError, match="the lazy repeat"):
        CFGGuide("start: /(?>a*?)b/", Vocabulary.from_bytes())


def test_limits() -> None:
    for pattern in ("(?:ab){0,65}+", "(?>(?:a|ab){65})", "(?>(?:ab){65,}?a)"):
        with pytest.raises(
            LimitError, match="has up to 65 iterations; of more than one character the fixed limit is 64"
        ):
            parse(pattern)
    assert matches(parse("(?>[ab]{1,1000}c(?:ab){70})(?:ab){70}+c"), "bc" + 140 * "ab" + "c")
    with pytest.raises(LanguageError):
        RegexGuide("(?>.*)x", Vocabulary.from_bytes())
