"""The reference recogniser itself, on languages that can be written down in full."""

import re
from itertools import product

import numpy as np
import pytest
from trellm.guides.grammar import Alternation, Chars, Grammar, Literal, Reference, Repeat, Sequence

from ..support import NOTHING, Table
from .naive_grammar import accepts, viable

A, B = Literal(b"a"), Literal(b"b")
S, T = Reference("s"), Reference("t")
EURO = Chars(((0x20AC, 0x20AC), (0x61, 0x61)))


def grammar(**rules: object) -> Grammar:
    return Grammar(rules, "s")


def language(rules: Grammar, alphabet: bytes, size: int) -> set[bytes]:
    texts = (bytes(letters) for n in range(size + 1) for letters in product(alphabet, repeat=n))
    return {text for text in texts if accepts(rules, text)}


FINITE = {
    "sequence": (grammar(s=Sequence((A, T, B)), t=Alternation((A, Literal(b"")))), {b"ab", b"aab"}),
    "counted": (
        grammar(s=Repeat(Alternation((A, Literal(b"bb"))), 1, 2)),
        {b"a", b"bb", b"aa", b"abb", b"bba", b"bbbb"},
    ),
    "dead branch": (grammar(s=Alternation((A, Sequence((B, NOTHING)), Sequence((B, T)))), t=T), {b"a"}),
    "dead repeat": (grammar(s=Sequence((A, Repeat(Sequence((B, NOTHING)), 0, None)))), {b"a"}),
    "empty cycle": (grammar(s=Alternation((S, T, A)), t=Alternation((S, Literal(b"")))), {b"", b"a"}),
    "nothing": (grammar(s=Sequence((A, S))), set()),
}


@pytest.mark.parametrize("name", FINITE)
def test_finite_languages(name: str) -> None:
    rules, expected = FINITE[name]
    assert language(rules, b"ab", 5) == expected
    prefixes = {text[:size] for text in expected for size in range(len(text) + 1)}
    for letters in (bytes(x) for n in range(6) for x in product(b"ab", repeat=n)):
        assert viable(rules, letters) == (letters in prefixes), letters


RECURSIVE = {
    "left": (grammar(s=Alternation((Sequence((S, A)), B))), r"ba*"),
    "right": (grammar(s=Alternation((Sequence((A, S)), B))), r"a*b"),
    "hidden left": (
        grammar(s=Alternation((Sequence((T, S, A)), B)), t=Alternation((Literal(b""), B))),
        r"b*ba*",
    ),
    "nullable star": (grammar(s=Repeat(Repeat(Alternation((A, Sequence(()))), 0, None), 0, None)), r"a*"),
    "ambiguous": (grammar(s=Alternation((Sequence((S, S)), A, Sequence((A, B))))), r"(ab?)+"),
}


@pytest.mark.parametrize("name", ["left", "right", "nullable star", "ambiguous"])
def test_recursion_that_is_regular(name: str) -> None:
    rules, pattern = RECURSIVE[name]
    for text in ("".join(letters) for n in range(7) for letters in product("ab", repeat=n)):
        assert accepts(rules, text.encode()) == bool(re.fullmatch(pattern, text)), text


def test_hidden_left_recursion() -> None:
    rules, _ = RECURSIVE["hidden left"]
    for text in ("".join(letters) for n in range(7) for letters in product("ab", repeat=n)):
        tail = text.count("a")
        expected = bool(re.fullmatch(r"b+a*", text)) and len(text) - tail <= tail + 1
        assert accepts(rules, text.encode()) == expected, text


def test_characters_may_be_cut() -> None:
    rules = grammar(s=Repeat(EURO, 2, 2))
    assert accepts(rules, "€a".encode())
    assert all(viable(rules, "a€".encode()[:size]) for size in range(5))
    assert not viable(rules, b"\xe2\x82\xad")
    assert not viable(rules, b"\xe2\x83")
    assert not viable(rules, b"\xc3")


def test_tables() -> None:
    transitions = np.full((2, 256), -1, np.int32)
    transitions[0, 0x61] = transitions[1, 0x62] = 1
    rules = grammar(s=Sequence((Table(transitions, np.array([False, True])), B)))
    assert language(rules, b"ab", 4) == {b"ab", b"abb", b"abbb"}
    assert viable(rules, b"abb")
    assert not viable(rules, b"b")


def test_long_texts_do_not_recurse() -> None:
    rules = grammar(s=Alternation((Sequence((A, S, B)), Literal(b""))))
    assert accepts(rules, b"a" * 3000 + b"b" * 3000)
    assert not accepts(rules, b"a" * 3000 + b"b" * 2999)
