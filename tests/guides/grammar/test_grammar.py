"""A grammar as data: how it is written, and what is said about it at once."""

import numpy as np
import pytest
from trellm.errors import GrammarError, LanguageError
from trellm.guides.grammar import Alternation, Chars, Grammar, Literal, Reference, Repeat, Sequence, check, parse_lark
from trellm.guides.grammar.grammar import reachable, shortest_texts
from trellm.guides.grammar.notation import render

from ..support import EMPTY, NOTHING, Node, Table

A, B = Literal(b"a"), Literal(b"b")
R, S = Reference("r"), Reference("s")
DEEP = 10_000


def deep(node: Node) -> Node:
    for _ in range(DEEP):
        node = Repeat(Sequence((node,)), 1, None)
    return node


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (Literal(b'say "\\\n'), r'"say \"\\\n"'),
        (Literal("é€\x00\x7f".encode()), r'"é€\u0000\u007f"'),
        (Literal(b"\xc3"), r'"\xc3"'),
        (EMPTY, '""'),
        (Sequence(()), '""'),
        (NOTHING, "<nothing>"),
        (Chars(((0x2D, 0x2D), (0x61, 0x62), (0x78, 0x7A))), r"[\-abx-z]"),
        (Chars(((0, 0x21), (0x23, 0xD7FF), (0xE000, 0x10FFFF))), r'[^"]'),
        (Sequence((A, Alternation((B, R)))), '"a" ("b" | r)'),
        (Alternation((Sequence((A, B)), R)), '"a" "b" | r'),
        (Repeat(Sequence((A, B)), 0, None), '("a" "b")*'),
        (Repeat(Repeat(A, 0, 1), 1, None), '"a"?+'),
        (Sequence((Repeat(A, 2, 2), Repeat(A, 2, None), Repeat(A, 0, 3))), '"a"{2} "a"{2,} "a"{0,3}'),
        (Reference("#/properties/a"), "<#/properties/a>"),
        (Table(np.full((3, 256), -1, np.int32), np.ones(3, np.bool_)), "<automaton of 3 states>"),
    ],
)
def test_notation(node: Node, text: str) -> None:
    assert render(node) == text


def test_long_rules_have_a_line_for_each_alternative() -> None:
    body = Alternation(tuple(Literal(b"x" * 40) for _ in range(3)))
    line = '"' + "x" * 40 + '"'
    assert str(Grammar({"s": body}, "s")) == f"s: {line}\n    | {line}\n    | {line}\n"
    assert repr(Grammar({"s": body}, "s")) == "Grammar(1 rules, start='s')"


def test_undefined_rules_are_shown_where_they_are_used() -> None:
    with pytest.raises(GrammarError, match="rule 's' refers to 'r', which is not defined") as error:
        check(Grammar({"a": A, "s": Sequence((A, R))}, "s"))
    assert (error.value.line, error.value.column) == (2, 8)
    with pytest.raises(GrammarError, match="no rule named 't' to start from; there are a, s"):
        check(Grammar({"a": A, "s": A}, "t"))


def test_literals_of_parts_of_characters_are_refused() -> None:
    with pytest.raises(GrammarError, match=r"has the literal b'a\\xc3'; literals are whole characters") as error:
        check(Grammar({"r": A, "s": Sequence((R, Literal(b"a\xc3")))}, "s"))
    assert error.value.line == 2


def test_rules_that_cannot_finish_are_named_with_their_lines() -> None:
    source = 'start: "a" loop | "b"\nloop: "x" other\nother: "y" loop\nunused: unused\n'
    with pytest.raises(LanguageError, match=r"rules loop \(line 2\), other \(line 3\) can never finish") as error:
        parse_lark(source)
    assert "start" not in str(error.value)
    assert "unused" not in str(error.value)


def test_an_empty_language_is_said_to_be_one() -> None:
    with pytest.raises(LanguageError, match="matches no text: rule s can never finish"):
        check(Grammar({"s": Sequence((A, S))}, "s"))
    with pytest.raises(LanguageError, match="matches no text"):
        check(Grammar({"s": Chars(())}, "s"))


def test_many_endless_rules_are_counted() -> None:
    rules: dict[str, Node] = {f"r{i}": Reference(f"r{i}") for i in range(20)}
    rules["s"] = Alternation((A, *(Reference(f"r{i}") for i in range(20))))
    with pytest.raises(LanguageError, match="r7 and 12 more can never finish"):
        check(Grammar(rules, "s"))


def test_unreachable_rules_are_returned() -> None:
    rules: dict[str, Node] = {"s": A, "r": Reference("q"), "q": B}
    grammar = Grammar(rules, "s")
    assert check(grammar) == ["r", "q"]
    assert reachable(grammar) == {"s"}


def test_shortest_texts_of_rules_that_have_some() -> None:
    rules: dict[str, Node] = {
        "empty": Sequence((EMPTY, Repeat(A, 0, None), Reference("again"))),
        "again": Alternation((Reference("again"), Reference("empty"), Sequence(()))),
        "some": Repeat(Alternation((A, B)), 1, 3),
        "never": Sequence((A, NOTHING)),
        "cycle": Alternation((Reference("cycle"), Sequence((A, Reference("cycle"))))),
        "skipped": Repeat(Reference("never"), 0, 2),
        "missing": Reference("nowhere"),
        "twice": Sequence((Reference("some"), Reference("some"))),
    }
    assert shortest_texts(rules, {}) == {"empty": 0, "again": 0, "some": 1, "skipped": 0, "twice": 2}


def test_depth_is_no_obstacle() -> None:
    grammar = Grammar({"s": deep(A), "r": deep(R)}, "s")
    assert check(grammar) == ["r"]
    assert render(grammar.rules["s"]) == '"a"' + "+" * DEEP
    assert shortest_texts(grammar.rules, {}) == {"s": 1}


def test_long_chains_and_many_alternatives() -> None:
    count = 20_000
    rules: dict[str, Node] = {f"r{i}": Reference(f"r{i + 1}") for i in range(count)}
    rules[f"r{count}"] = Alternation(tuple(Literal(b"%d" % i) for i in range(count)))
    assert check(Grammar(rules, "r0")) == []
