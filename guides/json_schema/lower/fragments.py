"""The rules of numbers and strings that many schemas have, lowered once in a process."""

from __future__ import annotations

from ....kernels.chart.layout import EPSILON
from ...graph.fragment import Fragment
from ...graph.graph import Graph
from ...graph.lowering import Lowering
from ...kept import kept
from ...syntax import Node
from ..algebra.cases import Number, String
from ..automata.counting import Counting
from ..automata.spelling import Escapes, spell
from ..read.regex_format import BRANCH, WHOLE, rules
from .form import Spacing, Spelling
from .numbers.texts import spelt_numbers
from .strings.lowering import REGEX, in_quotes, plan

MAX_NODES = 2000
"""Up to how many nodes a piece has that is kept."""


@kept(512, 32 << 20)
def number_fragment(case: Number, spelling: Spelling) -> Fragment | None:
    """The rule of a set of numbers; None if there are none, or too many."""
    node = spelt_numbers(case, spelling)
    return None if node is None else _lowered(node)


@kept(512, 32 << 20)
def string_fragment(case: String, escapes: Escapes) -> Fragment | None:
    """The rule of a set of strings, quotes included; None if there are none, or it is too large, or no syntax tells."""
    if case.values is not None or case.quote is not None or case.excluded:
        return None
    if case == REGEX:
        return _regexes(escapes)
    found = plan(case, escapes)
    return None if found is None or isinstance(found, Counting) else _lowered(in_quotes(found))


@kept(64, 1 << 20)
def space_fragment(spacing: Spacing) -> tuple[Fragment, dict[int, int]]:
    """All rules of white space together, and where each starts, by the `id` of its node, which a spacing keeps."""
    graph = Graph()
    lowering = Lowering(graph)
    starts = {id(node): lowering.rule(node) for node in spacing.rules}
    return graph.fragment(), starts


def _lowered(node: Node) -> Fragment | None:
    graph = Graph()
    with graph.new_rule() as start:
        entry = Lowering(graph).lower(node, graph.final())
    if entry is None or graph.node_count > MAX_NODES:
        return None
    graph.define(start, links=((EPSILON, entry, 0),))
    return graph.fragment()


def _regexes(escapes: Escapes) -> Fragment:
    """The format `regex` alone: groups may nest, which no pattern and no condition on lengths can say."""
    graph = Graph()
    bodies = {name: spell(body, escapes) for name, body in rules().items()}
    start = graph.begin_rule()
    starts = {WHOLE: start}
    for name in bodies.keys() - starts:
        with graph.new_rule() as starts[name]:
            pass
    lowering = Lowering(graph, starts.__getitem__, nullable=lambda name: name == BRANCH)
    for name, body in bodies.items():
        graph.rule = starts[name]
        lowering.body(graph.rule, in_quotes(body) if name == WHOLE else body)
    return graph.fragment()
