"""Charts in words: the graph of an automaton, and what the chart's arrays hold of a state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...kernels.chart.interning import HI, LO
from ...kernels.chart.layout import (
    ACCEPTING,
    CALL,
    COUNTER,
    EDGE_FIRST,
    EDGE_HI,
    EDGE_LAST,
    EDGE_LO,
    EDGE_TARGET,
    ENTRY,
    ENTRY_COUNT,
    ENTRY_ORIGIN,
    ENTRY_RULE,
    ENTRY_TARGET,
    EPSILON,
    FINAL,
    FLAGS,
    HEADER,
    INCREMENT,
    ITEM,
    ITEM_COUNT,
    ITEM_NODE,
    ITEM_ORIGIN,
    LAZY,
    LEAVE,
    LINK_ARGUMENT,
    LINK_HI,
    LINK_KIND,
    LINK_LO,
    LINK_TARGET,
    OWN_RETURN_SET,
    ROOT,
    RULE,
    SELF,
    TAIL,
    Chart,
    GraphArrays,
)
from ...kernels.chart.return_sets import signature
from ...kernels.chart.sets import ADDED, ALL, KEPT_BITS, REFUSED
from ..automata.dfa import byte_runs
from ..chart.automaton import DEAD, ChartAutomaton
from .automata import describe_bytes

_FLAGS = {"FINAL": FINAL, "TAIL": TAIL, "LAZY": LAZY}
_ORIGINS = {SELF: "SELF", ROOT: "ROOT"}


def graph_in_words(automaton: ChartAutomaton) -> str:
    """The nodes of an automaton's graph as far as it is defined, a line each: rule, what is read, links, flags."""
    with automaton.lock:
        graph = automaton.graph_arrays
        return "\n".join(f"{node}: {_node(graph, node)}" for node in range(automaton.graph.node_count))


def _node(graph: GraphArrays, node: int) -> str:
    record: list[int] = graph.nodes[node].tolist()
    parts = [f"rule {record[RULE]}"]
    if record[COUNTER]:
        parts.append(f"counter {record[COUNTER]}")
    for edge in graph.edges[record[EDGE_LO] : record[EDGE_HI]].tolist():
        parts.append(f"{describe_bytes([(edge[EDGE_FIRST], edge[EDGE_LAST])])} -> {edge[EDGE_TARGET]}")
    parts += [_link(graph, link) for link in graph.links[record[LINK_LO] : record[LINK_HI]].tolist()]
    parts += [name for name, flag in _FLAGS.items() if record[FLAGS] & flag]
    return ", ".join(parts)


def _link(graph: GraphArrays, link: Sequence[int]) -> str:
    kind, target, argument = link[LINK_KIND], link[LINK_TARGET], link[LINK_ARGUMENT]
    if kind == CALL:
        return f"CALL {target} and return to {argument}"
    if kind == EPSILON:
        return f"EPSILON -> {target}" + (f" while counter {argument} has room" if argument else "")
    if kind in (INCREMENT, LEAVE):
        return f"{'INCREMENT' if kind == INCREMENT else 'LEAVE'} counter {argument} -> {target}"
    guard: list[int] = graph.guards[argument].tolist()
    conditions = f"ALL {guard[ALL]} REFUSED {guard[REFUSED]} KEPT_BITS {guard[KEPT_BITS]} ADDED {guard[ADDED]}"
    return f"GUARD {conditions} -> {target}"


def state_in_words(automaton: ChartAutomaton, state: int) -> str:
    """The content of a state in the chart, a line each: its words, items, return set, signature and row.

    Signature and row are worked out if need be. Raises StateError for a state that nobody was given.
    """
    with automaton.lock:
        state = automaton.ready(state)
        if state == DEAD:
            return "DEAD"
        number = automaton.run(signature, state)
        row = automaton.transitions(state)
        chart = automaton.chart
        words = _words(chart, chart.states, state)
        entries = _words(chart, chart.return_sets, words[OWN_RETURN_SET])
        signed = _words(chart, chart.signatures, number)
    lines = [f"state {state}{', accepting' if words[ACCEPTING] else ''}: {_grouped(words, HEADER, ITEM)}"]
    for item in _records(words[HEADER:], ITEM):
        lines.append(f"  item: node {item[ITEM_NODE]}, origin {_origin(item[ITEM_ORIGIN])}, count {item[ITEM_COUNT]}")
    lines.append(f"  return set {words[OWN_RETURN_SET]}: {_grouped(entries, 0, ENTRY) or 'no words'}")
    for entry in _records(entries, ENTRY):
        lines.append(
            f"    rule {entry[ENTRY_RULE]} returns to node {entry[ENTRY_TARGET]}, count {entry[ENTRY_COUNT]}, "
            f"origin {_origin(entry[ENTRY_ORIGIN])}"
        )
    lines.append(f"  signature {number}: {_grouped(signed, HEADER, ITEM)}")
    runs = [f"{describe_bytes([(low, high)])} -> {after}" for low, high, after in byte_runs(row)]
    lines.append(f"  row: {', '.join(runs) or 'DEAD everywhere'}")
    return "\n".join(lines)


def _words(chart: Chart, spans: NDArray[np.int32], number: int) -> list[int]:
    """The words of a state, a return set or a signature."""
    return chart.words[spans[number, LO] : spans[number, HI]].tolist()


def _records(words: Sequence[int], width: int) -> list[Sequence[int]]:
    return [words[at : at + width] for at in range(0, len(words), width)]


def _grouped(words: Sequence[int], header: int, width: int) -> str:
    """The words as numbers, with bars between the header and the records."""
    groups = [words[:header], *_records(words[header:], width)]
    return " | ".join(" ".join(map(str, group)) for group in groups if group)


def _origin(origin: int) -> str:
    return _ORIGINS.get(origin, str(origin))
