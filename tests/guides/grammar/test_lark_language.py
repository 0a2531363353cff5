"""The language of a Lark grammar: accepted iff Lark's own Earley parser with the complete lexer parses it."""

from itertools import product

import lark
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from trellm.errors import LanguageError
from trellm.guides.grammar import parse_lark

from ..chart.naive_grammar import accepts

HEAD = """
A: "a"
B: "b" | "ab"
LETTERS: /[ab]+/
BOUNDED: ("a" | "b")~2..3
pair{p, q}: p q | q
"""
ATOMS = ["A", "B", "LETTERS", "BOUNDED", '"a"', '"B"i', '"a".."b"', "/b+a?/", "start", "x", "y"]
SPELT = ["".join(letters) for size in range(5) for letters in product("ab ", repeat=size)]
# All of up to three letters, and every seventh of four.
TEXTS = [*SPELT[:40], *SPELT[40::7]]


def _wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["?", "*", "+", "~2", "~0..2", "~1..3"])
    several = st.lists(inner, max_size=3)
    return st.one_of(
        several.map(lambda items: f"({' '.join(items)})"),
        several.map(lambda items: f"({' | '.join(items)})"),
        inner.map(lambda item: f"[{item}]"),
        st.builds(lambda item, operator: f"({item}){operator}", inner, operators),
        st.builds(lambda p, q: f"pair{{{p},{q}}}", st.sampled_from(ATOMS), st.sampled_from(ATOMS)),
    )


BODIES = st.lists(st.recursive(st.sampled_from(ATOMS), _wrapped, max_leaves=4), max_size=3).map(" ".join)
RULES = st.lists(BODIES, min_size=1, max_size=3).map("\n    | ".join)


@st.composite
def grammars(draw: st.DrawFn) -> str:
    text = HEAD + "".join(f"{name}: {draw(RULES)}\n" for name in ("start", "x", "y"))
    return text + ('%ignore " "\n' if draw(st.booleans()) else "")


def parses(parser: lark.Lark, text: str) -> bool:
    try:
        parser.parse(text)
    except lark.exceptions.UnexpectedInput:
        return False
    return True


def lark_parser(grammar: str) -> lark.Lark:
    return lark.Lark(grammar, parser="earley", lexer="dynamic_complete", ambiguity="forest")


@settings(max_examples=30, derandomize=True, deadline=None)
@given(grammars())
def test_accepts_what_lark_parses(text: str) -> None:
    try:
        reference = lark_parser(text)
    except (lark.exceptions.GrammarError, AssertionError):
        assume(False)
    try:
        grammar = parse_lark(text)
    except LanguageError:
        assume(False)
    for sample in TEXTS:
        assert accepts(grammar, sample.encode()) == parses(reference, sample), sample


PIECES = {
    "number": ["0", "7", "19", "+", "-", ".", "e", "E", "x", " "],
    "word": ["a", "Z", "q", "_", "4", "é", " ", "f", "G"],
    "string": ['"', "\\", '\\"', "\\\\", "a", "\n", "€", "'"],
    "space": [" ", "\t", "\f", "\r", "\n", "\r\n", "\v", "x"],
    "comment": ["#", "//", "/*", "*/", "*", "/", "--", "-", "a", "\n", " "],
}


OF_LARK = lark.load_grammar.stdlib_loader(None, "common.lark")[1]
"""Lark's own library of terminals, one a line."""


@pytest.mark.parametrize("name", [line.split(":")[0].strip() for line in OF_LARK.splitlines() if line[:1].isalpha()])
def test_common_terminals_are_those_of_lark(name: str) -> None:
    text = f"%import common.{name}\nstart: {name}\n"
    reference, grammar = lark_parser(text), parse_lark(text)

    @settings(max_examples=30, derandomize=True, deadline=None)
    @given(st.sampled_from(sorted(PIECES)).flatmap(lambda kind: st.lists(st.sampled_from(PIECES[kind]), max_size=6)))
    def agree(pieces: list[str]) -> None:
        sample = "".join(pieces)
        assert accepts(grammar, sample.encode()) == parses(reference, sample), sample

    agree()
