"""Alternatives that begin with a byte: one node for all of them, and the same texts as with a node for each."""

from __future__ import annotations

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


texts = st.text(st.sampled_from("abéê"), max_size=5)
nodes: st.SearchStrategy[Node] = st.recursive(
    st.one_of(
        st.sampled_from(["a", "b", "é", "ê", ""]).map(lambda chars: Literal(chars.encode())),
        st.sampled_from([Chars(((0x61, 0x62),)), Chars(((0x62, 0x62), (0xE9, 0xEA)))]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: Sequence(tuple(parts))),
        st.lists(inner, min_size=1, max_size=5).map(lambda parts: Alternation(tuple(parts))),
        inner.map(lambda part: Repeat(part, 0, None)),
        inner.map(lambda part: Repeat(part, 1, 3)),
    ),
    max_leaves=12,
)


def ends(node: Node, text: str, begins: frozenset[int]) -> frozenset[int]:
    """The places where texts of a node end that begin at some places; sets of places, as `re` takes 2^n ways."""
    if isinstance(node, Literal):
        chars = node.data.decode()
        return frozenset(begin + len(chars) for begin in begins if text.startswith(chars, begin))
    if isinstance(node, Chars):
        known = [begin for begin in begins if begin < len(text)]
        return frozenset(at + 1 for at in known if any(low <= ord(text[at]) <= high for low, high in node.ranges))
    if isinstance(node, Sequence):
        for part in node.items:
            begins = ends(part, text, begins)
        return begins
    if isinstance(node, Alternation):
        return frozenset[int]().union(*(ends(part, text, begins) for part in node.items))
    assert isinstance(node, Repeat) and node.min < 2
    found, turn = begins if node.min == 0 else frozenset[int](), begins
    for _ in range(len(text) + 1 if node.max is None else node.max):
        turn = ends(node.item, text, turn)
        found |= turn
    return found


@given(nodes, st.lists(texts, max_size=8))
def test_alternatives_read_the_texts_of_their_nodes(node: Node, samples: list[str]) -> None:
    chart = automaton(node)
    for text in ["", *samples]:
        state = chart.read(chart.start, text.encode())
        assert (state >= 0 and chart.is_accepting(state)) == (len(text) in ends(node, text, frozenset([0]))), text
