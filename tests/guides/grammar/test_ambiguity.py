"""Ambiguous rules as loops: the same texts by the reference recogniser, and states that do not grow."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm.guides.grammar import Alternation, Grammar, Literal, Reference, Repeat, Sequence, parse_gbnf, parse_lark
from trellm.guides.grammar.ambiguity import without_ambiguity
from trellm.guides.grammar.grammar import shortest_texts
from trellm.guides.grammar.inlining import inlined
from trellm.guides.grammar.notation import render_rules

from ..chart.naive_grammar import accepted_lengths
from ..support import Node, automaton_of
from .test_chart import assert_agree

RULES = ("x", "y", "z")
TEXTS = [bytes(letters) for letters in product(b"ab", repeat=9)][::15]
"""Their beginnings are all texts of up to five letters, and some of the longer ones: 203 in all."""


def nodes() -> st.SearchStrategy[Node]:
    letters = st.sampled_from([Literal(b"a"), Literal(b"b"), Literal(b"ab"), Literal(b"")])
    rules = st.sampled_from([*(Reference(name) for name in RULES), Reference("x")])
    times = st.sampled_from([(0, 1), (1, 1), (2, 2), (0, None), (1, None), (3, 3), (2, 4), (4, None)])
    repeats = st.builds(lambda item, bounds: Repeat(item, *bounds), letters | rules, times)
    items = letters | rules | rules | repeats
    return st.lists(items, min_size=1, max_size=4).map(
        lambda some: some[0] if len(some) == 1 else Sequence(tuple(some))
    )


def bodies() -> st.SearchStrategy[Node]:
    flat = st.lists(nodes(), min_size=1, max_size=4).map(lambda some: Alternation(tuple(some)))
    return flat | st.builds(lambda one, other: Alternation((one, other)), flat, nodes()) | nodes()


def grammars() -> st.SearchStrategy[Grammar]:
    return st.tuples(bodies(), bodies(), bodies()).map(
        lambda found: Grammar(dict(zip(RULES, found, strict=True)), "x", dict.fromkeys(RULES, 1))
    )


@settings(max_examples=120, derandomize=True, deadline=None)
@given(grammars())
def test_the_language_stays_the_same(grammar: Grammar) -> None:
    finishing = shortest_texts(grammar.rules, {})
    rules = {name: body if name in finishing else Literal(b"c") for name, body in grammar.rules.items()}
    before = Grammar(rules, "x")
    after = Grammar(without_ambiguity(inlined(before)), "x")
    for text in TEXTS:
        assert accepted_lengths(after, text) == accepted_lengths(before, text), (
            text,
            render_rules(before.rules),
            render_rules(after.rules),
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('start: start start | "a"', ['start: "a"+']),
        ('start: start start start | "a"', ['start: "a" "a"{2}*']),
        ('start: start start start | "a" |', ['start: ("a" | "")+']),
        ('start: start~3 | start~5 | "a"', ['start: "a" ("a"{2} | "a"{4})*']),
        (
            'start: e\ne: e "+" e | e "*" e | "(" e ")" | "n"',
            ['e: ("(" e ")" | "n") (("+" | "*") ("(" e ")" | "n"))*', "start: e"],
        ),
        ('start: "-" start | start "!" | "n"', ['start: "-"* "n" "!"*']),
        ('start: start? "+" start | "n"', ['start: ("+"* "n") ("+" ("+"* "n"))*']),
        ('start: e\ne: t\nt: e e | "a"', ['t: "a"+', "e: t", "start: e"]),
        (
            'start: both | "n"\nboth: plus | times\nplus: start "+" start\ntimes: start "*" start',
            ['plus: start "+" start', 'times: start "*" start', "both: plus | times", 'start: "n" (("+" | "*") "n")*'],
        ),
        ('start: start "," "a" | "a"', ['start: start "," "a" | "a"']),
        ('start: "a" start | "b"', ['start: "a" start | "b"']),
        ('start: "a" start "b" | "b"', ['start: "a" start "b" | "b"']),
    ],
)
def test_what_becomes_of_rules(text: str, expected: list[str]) -> None:
    rules = render_rules(without_ambiguity(inlined(parse_lark(text)))).splitlines()
    assert [line for line in rules if line] == expected


def test_what_is_large_is_written_once() -> None:
    words = " | ".join(f'"word{i}"' for i in range(200))
    grammar = parse_lark(f'start: start "+" start | {words}')
    rules = without_ambiguity(inlined(grammar))
    assert rules["start"] == Sequence(
        (
            Reference("start operand"),
            Repeat(Sequence((Literal(b"+"), Reference("start operand"))), 0, None),
        )
    )
    assert_agree(grammar, [b"word1", b"word199+word2", b"word2+", b"+word2", b"word1word1"])


GROWING = [
    ('start: start start | "a"', b"a"),
    ('start: start start start | "a" |', b"a"),
    ('start: e\ne: e "+" e | e "*" e | "(" e ")" | "n"', b"n+n*(n+n)*"),
    ('start: expr\nexpr: add | mul | "n"\nadd: expr "+" expr\nmul: expr "*" expr', b"n+n*"),
    ('start: start start | "(" start ")" | "()"', b"(())()"),
    ('start: "-" start | start "!" | start "+" start | "n"', b"--n!!+"),
]


@pytest.mark.parametrize(("text", "turn"), GROWING)
def test_states_do_not_grow(text: str, turn: bytes) -> None:
    automaton = automaton_of(parse_lark(text))
    once = automaton.read(automaton.start, 4 * turn)
    counts: list[int] = []
    for _ in range(3):
        assert automaton.read(once, 40 * turn) == once
        counts.append(automaton.state_count)
    assert counts[0] == counts[-1] < 200


def test_gbnf() -> None:
    assert_agree(parse_gbnf('root ::= root "+" root | root{3} | "a"'), [b"a", b"aa", b"aaa", b"a+a", b"aaa+a", b"a+aa"])
