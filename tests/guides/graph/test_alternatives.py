"""Alternatives that begin with a byte: one node for all of them, and the same texts as with a node for each."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from trellm.guides.grammar import Alternation, Chars, Literal, Repeat, Sequence

from ..support import ChartAutomaton, Graph, Lowering, Node, items_of


def automaton(node: Node) -> ChartAutomaton:
    graph = Graph()
    return ChartAutomaton(graph, Lowering(graph).rule(node))


def test_alternatives_that_begin_with_a_byte_are_one_item() -> None:
    ends = Repeat(Chars(((0x30, 0x39),)), 0, None)
    ways = [Sequence((Chars(((code, code), (0xE9, 0xFF))), Literal(b"-"), ends)) for code in range(0x61, 0x7B)]
    ways.append(Sequence((Alternation((Literal(b"A"), Literal("é".encode()))), ends)))
    chart = automaton(Alternation(tuple(ways)))
    assert items_of(chart, chart.start) == 1
    assert chart.is_accepting(chart.read(chart.start, b"q-12"))
    assert chart.is_accepting(chart.read(chart.start, "é-12".encode()))
    assert chart.is_accepting(chart.read(chart.start, "é12".encode()))
    assert chart.read(chart.start, b"A-") < 0


def test_what_no_text_goes_on_from_is_no_alternative() -> None:
    chart = automaton(Alternation((Sequence((Literal(b"a"), Alternation(()))), Literal(b"b"))))
    assert chart.read(chart.start, b"a") < 0
    assert chart.is_accepting(chart.read(chart.start, b"b"))


letters = st.sampled_from(["a", "b", "é", "ê"])
texts = st.text(st.sampled_from("abéê"), max_size=5)
nodes = st.recursive(
    st.one_of(
        letters.map(lambda char: (Literal(char.encode()), char)),
        st.just((Chars(((0x61, 0x62),)), "[ab]")),
        st.just((Chars(((0x62, 0x62), (0xE9, 0xEA))), "[béê]")),
        st.just((Literal(b""), "")),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(
            lambda parts: (Sequence(tuple(node for node, _ in parts)), "".join(text for _, text in parts))
        ),
        st.lists(inner, min_size=1, max_size=5).map(
            lambda parts: (
                Alternation(tuple(node for node, _ in parts)),
                "(?:" + "|".join(text for _, text in parts) + ")",
            )
        ),
        inner.map(lambda part: (Repeat(part[0], 0, None), f"(?:{part[1]})*")),
        inner.map(lambda part: (Repeat(part[0], 1, 3), f"(?:{part[1]}){{1,3}}")),
    ),
    max_leaves=12,
)


@given(nodes, st.lists(texts, max_size=8))
def test_alternatives_read_what_a_pattern_reads(built: tuple[Node, str], samples: list[str]) -> None:
    node, pattern = built
    chart = automaton(node)
    for text in ["", *samples]:
        state = chart.read(chart.start, text.encode())
        assert (state >= 0 and chart.is_accepting(state)) == bool(re.fullmatch(pattern, text)), (pattern, text)
