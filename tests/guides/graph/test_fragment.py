"""A piece that is copied into a graph has the language that its syntax has when it is lowered there."""

import numpy as np
import pytest
from trellm import Limits
from trellm.errors import LimitError
from trellm.guides.grammar import Literal, Repeat, Sequence

from ..json_schema.support import (
    MAX_NODES,
    Number,
    String,
    in_quotes,
    number_fragment,
    plan,
    spelt_numbers,
    string_fragment,
)
from ..support import CALL, ChartAutomaton, Dfa, Graph, Lowering, Meter, Node

OTHER = Repeat(Sequence((Literal(b"ab"), Repeat(Literal(b"c"), 2, 5))), 1, 3)
CASES = [
    Number(),
    Number(multiple_of=10, minimum=-30, maximum=250),
    Number(values=frozenset({0, 12})),
    String(),
    String(min_length=2, max_length=4),
    String(patterns=frozenset({"^([a-f]{2,3}-){1,4}x$"})),
    String(formats=frozenset({"date"})),
]


def twice(graph: Graph, rule: int) -> Dfa:
    """The automaton of `[`, the rule, `,`, the rule, `]`."""
    with graph.new_rule() as start:
        end = graph.literal(b"]", graph.final())
        second = graph.literal(b",", graph.node(links=((CALL, rule, end),)))
        first = graph.literal(b"[", graph.node(links=((CALL, rule, second),)))
        graph.define(start, links=((0, first, 0),))
    return Dfa.of(ChartAutomaton(graph, start)).minimised()


def syntax(case: Number | String) -> Node:
    if isinstance(case, Number):
        node = spelt_numbers(case, "any")
        assert node is not None
        return node
    node = plan(case, "canonical")
    assert isinstance(node, Node)
    return in_quotes(node)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_copies_have_the_language_of_the_syntax(case: Number | String) -> None:
    fragment = number_fragment(case, "any") if isinstance(case, Number) else string_fragment(case, "canonical")
    assert fragment is not None
    lowered, copied = Graph(), Graph()
    for graph in (lowered, copied):
        Lowering(graph).rule(OTHER)
    direct = twice(lowered, Lowering(lowered).rule(syntax(case)))
    copied.insert(fragment)
    through_copy = twice(copied, copied.insert(fragment))
    assert np.array_equal(direct.transitions, through_copy.transitions)
    assert np.array_equal(direct.accepting, through_copy.accepting)


def test_what_is_no_piece() -> None:
    assert string_fragment(String(min_length=3, max_length=2), "canonical") is None
    assert string_fragment(String(patterns=frozenset({"^a"}), not_patterns=frozenset({"b"})), "canonical") is None
    assert number_fragment(Number(minimum=2, maximum=1), "any") is None
    assert number_fragment(Number(multiple_of=10007), "any") is None


def test_pieces_count_towards_the_limit_of_memory() -> None:
    fragment = number_fragment(Number(), "any")
    assert fragment is not None and len(fragment.piece.nodes) < MAX_NODES
    graph = Graph()
    with Meter(Limits(memory=1 << 20)), pytest.raises(LimitError, match="memory="):
        for _ in range(10_000):
            graph.insert(fragment)
    assert graph.held_bytes < 1 << 21


def test_what_is_worked_out_later_is_no_piece() -> None:
    graph = Graph()
    graph.lazy(lambda _: None, lambda: 1)
    with pytest.raises(AssertionError):
        graph.fragment()
