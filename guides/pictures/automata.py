"""Pictures of minimal automata, and text dumps of charts.

A dump shows the automaton's graph, or the arrays of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitError
from ...kernels.chart.interning import ADDED, ALL, HI, KEPT_BITS, LO, REFUSED
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
from ...tokenizers_adapter import Vocabulary
from ..automata.dfa import Dfa, StateNumbering, byte_runs
from ..chart.automaton import ChartAutomaton
from ..explain import ByteAutomaton
from ..protocol import DEAD, Mask, tokens_of
from .picture import Arrow, Picture, PictureNode, shortened

MAX_TOKENS = 24
# States examined per state of a minimal automaton, at most
LARGER = 100


class MinimalAutomaton:
    """The minimal automaton of a finite one, with a representative of the original for each state.

    Raises LimitError if it has more than `max_states` states.
    """

    def __init__(self, original: Dfa, max_states: int, states: Sequence[int] | None = None) -> None:
        self.dfa = original.minimised()
        if len(self.dfa) > max_states:
            raise _too_large(f"{len(self.dfa):,} states", max_states)
        sources = _original_states(original, self.dfa)
        self.states = [sources[state] if states is None else states[sources[state]] for state in range(len(self.dfa))]

    @classmethod
    def of(cls, automaton: ByteAutomaton, max_states: int) -> MinimalAutomaton:
        """Minimise any finite automaton, of at most LARGER * `max_states` states."""
        numbers: StateNumbering[int] = StateNumbering()
        _ = numbers[automaton.start]
        rows: list[list[int]] = []
        for state in numbers.states:
            if len(numbers) > LARGER * max_states:
                raise _too_large(f"more than {LARGER * max_states:,} states before it is minimised", max_states)
            targets = (automaton.step(state, byte) for byte in range(256))
            rows.append([DEAD if target == DEAD else numbers[target] for target in targets])
        accepting = np.array([automaton.is_accepting(state) for state in numbers.states])
        return cls(Dfa(np.array(rows, np.int32), accepting, 0), max_states, numbers.states)

    def picture(self, note: Callable[[int], str]) -> Picture:
        """Draw the automaton with `note(state)` under each state, where `state` is the representative."""
        dfa = self.dfa
        nodes = tuple(
            PictureNode(str(state), "final" if dfa.is_accepting(state) else "state", note(self.states[state]))
            for state in range(len(dfa))
        )
        arrows = [
            Arrow(state, target, shortened(label))
            for state in range(len(dfa))
            for target, label in edge_labels(dfa, state)
        ]
        return Picture(nodes, tuple(arrows), dfa.start)


def _too_large(size: str, most: int) -> LimitError:
    return LimitError(f"the automaton has {size}, too many for a picture of {most:,}; raise max_states")


def edge_labels(dfa: Dfa, state: int) -> list[tuple[int, str]]:
    """Return the targets of a state, each with a description of its bytes."""
    by_target: dict[int, list[tuple[int, int]]] = {}
    for low, high, target in byte_runs(dfa.transitions[state]):
        by_target.setdefault(target, []).append((low, high))
    return [(target, describe_bytes(runs)) for target, runs in by_target.items()]


def describe_bytes(runs: Sequence[tuple[int, int]]) -> str:
    """Describe ranges of bytes: printable ASCII as characters, others in hexadecimal."""
    parts = [_byte(low) if low == high else f"{_byte(low)}-{_byte(high)}" for low, high in runs]
    return " ".join(parts)


def _byte(value: int) -> str:
    return chr(value) if 0x20 < value < 0x7F else "␣" if value == 0x20 else f"x{value:02X}"


def tokens_in(mask: Mask, vocabulary: Vocabulary, most: int = MAX_TOKENS) -> str:
    """List the tokens that a mask allows, up to `most`."""
    ids = tokens_of(mask)
    shown = [(vocabulary.tokens[token] or b"EOS").decode("utf-8", "backslashreplace") for token in ids[:most]]
    more = f" and {len(ids) - most:,} more" if len(ids) > most else ""
    return ", ".join(shown) + more


def _original_states(original: Dfa, small: Dfa) -> dict[int, int]:
    """Return for each minimised state the first original state that was merged into it."""
    found: dict[int, int] = {}
    pairs = {(original.start, small.start)}
    queue = list(pairs)
    for state, merged in queue:
        found.setdefault(merged, state)
        for low, _, target in byte_runs(original.transitions[state]):
            pair = (target, small.step(merged, low))
            if pair not in pairs:
                pairs.add(pair)
                queue.append(pair)
    return found


_FLAGS = {"FINAL": FINAL, "TAIL": TAIL, "LAZY": LAZY}
_ORIGINS = {SELF: "SELF", ROOT: "ROOT"}


def graph_in_words(automaton: ChartAutomaton) -> str:
    """Dump the graph of an automaton, as far as it is defined, a line per node: rule, edges, links, flags."""
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
    """Dump a state of the chart, a line each: its words, items, return set, signature and row.

    The signature and the row are computed if necessary. Raises StateError for unknown states.
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
        signature_words = _words(chart, chart.signatures, number)
    lines = [f"state {state}{', accepting' if words[ACCEPTING] else ''}: {_grouped(words, HEADER, ITEM)}"]
    for item in _records(words[HEADER:], ITEM):
        lines.append(f"  item: node {item[ITEM_NODE]}, origin {_origin(item[ITEM_ORIGIN])}, count {item[ITEM_COUNT]}")
    lines.append(f"  return set {words[OWN_RETURN_SET]}: {_grouped(entries, 0, ENTRY) or 'no words'}")
    for entry in _records(entries, ENTRY):
        lines.append(
            f"    rule {entry[ENTRY_RULE]} returns to node {entry[ENTRY_TARGET]}, count {entry[ENTRY_COUNT]}, "
            f"origin {_origin(entry[ENTRY_ORIGIN])}"
        )
    lines.append(f"  signature {number}: {_grouped(signature_words, HEADER, ITEM)}")
    runs = [f"{describe_bytes([(low, high)])} -> {after}" for low, high, after in byte_runs(row)]
    lines.append(f"  row: {', '.join(runs) or 'DEAD everywhere'}")
    return "\n".join(lines)


def _words(chart: Chart, spans: NDArray[np.int32], number: int) -> list[int]:
    """Return the words of a state, a return set or a signature."""
    return chart.words[spans[number, LO] : spans[number, HI]].tolist()


def _records(words: Sequence[int], width: int) -> list[Sequence[int]]:
    return [words[at : at + width] for at in range(0, len(words), width)]


def _grouped(words: Sequence[int], header: int, width: int) -> str:
    """Format words as numbers, with bars between the header and the records."""
    groups = [words[:header], *_records(words[header:], width)]
    return " | ".join(" ".join(map(str, group)) for group in groups if group)


def _origin(origin: int) -> str:
    return _ORIGINS.get(origin, str(origin))
