"""Machines of the interegular library as byte automata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import OptionError
from ...kernels.chart.rows import explore
from ..chart.automaton import ChartAutomaton
from ..graph.graph import Edge, Graph, Link
from ..graph.lowering import STEPS_PER_COPY
from ..graph.utf8 import byte_fragment
from ..limits import spend
from ..syntax import NOTHING, Node, Ranges, Table
from .dfa import Dfa

if TYPE_CHECKING:
    from interegular.fsm import FSM

# Of a table and of what it is made from, for each state
STATE_BYTES = 2048
STEPS_PER_MOVE = 50


def table_of(fsm: FSM) -> Node:
    """The byte automaton of an `interegular` machine whose symbols are single characters.

    Symbols the machine does not name (`anything_else`) are all other characters. States from which nothing
    is accepted are left out. Raises OptionError for what is not such a machine.
    """
    from interegular.fsm import FSM as Machine  # noqa: N811

    if not isinstance(fsm, Machine):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(
            f"expected an interegular FSM (interegular.parse_pattern(...).to_fsm()), not {type(fsm).__name__}"
        )
    alive = _alive(fsm)
    if fsm.initial not in alive:
        return NOTHING
    graph = Graph()
    start = graph.begin_rule()
    final = graph.final()
    nodes = {state: graph.reserve() for state in alive}
    classes = _classes(fsm)
    for state in alive:
        links: list[Link] = [(0, final, 0)] if state in fsm.finals else []
        edges: list[Edge] = []
        for symbol, target in fsm.map.get(state, {}).items():
            spend(STEPS_PER_MOVE)
            if target in alive and classes[symbol]:
                edges += _character(graph, classes[symbol], nodes[target])
        graph.define(nodes[state], edges, links)
    graph.define(start, links=((0, nodes[fsm.initial], 0),))
    automaton = ChartAutomaton(graph, start)
    most = automaton.meter.limits.memory // STATE_BYTES
    automaton.meter.check_memory(STATE_BYTES * automaton.run(explore, most))
    dfa = Dfa.of(automaton, max_states=most)
    return Table(dfa.transitions, dfa.accepting, dfa.start)


def _character(graph: Graph, ranges: Ranges, target: int) -> list[Edge]:
    """The edges that read one character out of `ranges` and lead to `target`."""
    if ranges[-1][1] < 0x80:
        return [(low, high, target) for low, high in ranges]
    form = byte_fragment(ranges)
    spend(STEPS_PER_COPY * len(form.edges))
    first = graph.instantiate(form, target)
    entry = form.edges[: form.ends[0]].tolist()
    return [(low, high, target if to < 0 else first + to) for low, high, to in entry]


def _alive(fsm: FSM) -> list[Any]:
    """The states from which a final state can be reached."""
    before: dict[Any, list[Any]] = {}
    for state, row in fsm.map.items():
        spend(STEPS_PER_MOVE * len(row))
        for target in row.values():
            before.setdefault(target, []).append(state)
    alive = dict.fromkeys(fsm.finals)
    queue = list(alive)
    for state in queue:
        for origin in before.get(state, ()):
            if origin not in alive:
                alive[origin] = None
                queue.append(origin)
    return list(alive)


def _classes(fsm: FSM) -> dict[int, Ranges]:
    """The characters of each symbol class of the machine."""
    from interegular.fsm import anything_else

    named: dict[int, list[int]] = {}
    rest: int | None = None
    for symbol, number in fsm.alphabet.items():
        if symbol is anything_else:
            rest = number
            named.setdefault(number, [])
        elif isinstance(symbol, str) and len(symbol) == 1:
            if not 0xD800 <= ord(symbol) <= 0xDFFF:
                named.setdefault(number, []).append(ord(symbol))
        else:
            raise OptionError(f"the machine's symbols must be single characters, but one is {symbol!r}")
    classes = {number: _runs(points) for number, points in named.items()}
    if rest is not None:
        classes[rest] = _all_but([point for number, points in named.items() if number != rest for point in points])
    return classes


def _all_but(points: list[int]) -> Ranges:
    """All characters except the given ones, and except surrogates, which are none."""
    gaps: list[tuple[int, int]] = []
    begin = 0
    for low, high in sorted([*_runs(points), (0xD800, 0xDFFF), (0x110000, 0x110000)]):
        if begin < low:
            gaps.append((begin, low - 1))
        begin = high + 1
    return tuple(gaps)


def _runs(points: list[int]) -> Ranges:
    ordered = sorted(set(points))
    runs: list[tuple[int, int]] = []
    for point in ordered:
        if runs and runs[-1][1] == point - 1:
            runs[-1] = (runs[-1][0], point)
        else:
            runs.append((point, point))
    return tuple(runs)
