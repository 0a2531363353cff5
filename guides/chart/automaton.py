"""The byte automaton of a graph, and its chart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import LanguageError, LimitError, StateError
from ...kernels import answers
from ...kernels.chart import layout as kernel
from ...kernels.chart.closure import begin
from ...kernels.chart.compaction import kept_row, pin, restore
from ...kernels.chart.interning import HI, LO, SETS, WORDS
from ...kernels.chart.layout import Chart
from ...kernels.chart.layout import GraphArrays as GraphArrays
from ...kernels.chart.rows import explore, fill_row
from ...kernels.jit.arrays import Arrays
from ...kernels.jit.compiling import call
from ..arguments import check_state, state_error
from ..graph.graph import Graph
from ..limits import Meter, current
from ..locks import new_lock
from .arrays import (
    SPANS,
    compacted,
    held_bytes,
    index_of,
    larger,
    new_chart,
    reserved_bytes,
    scratch,
    scratch_bytes,
)

DEAD = answers.DEAD
HORIZON = 256
MAX_WORDS = 1 << 20
# Rows of 1 KiB. For arrays of 4 MiB, NumPy requests huge pages, which the system takes milliseconds to clear.
MAX_ROWS = 4080
_NO_BYTES = np.zeros(0, np.uint8)

Making = Callable[[], tuple[Graph, int]]


class CompactionResult(NamedTuple):
    """The result of a compaction: whether each old number of a state or a signature is still valid, bool [old count].

    before: the previous result; a cache that has not seen it must drop all numbers
    """

    states: NDArray[np.bool_]
    signatures: NDArray[np.bool_]
    before: object


class ChartAutomaton:
    """The byte automaton of a graph: lazy, interned, exact for every context-free language.

    graph, rule: the graph and its start, or a function that makes them. An exception during expansion leaves the graph
    inconsistent; it is then made and expanded again. So a function must make the same graph each time, and a graph
    given directly must have nothing to expand.
    meter: counts the work of calls, and has the limits; defaults to the meter of the running call
    max_rows: transition rows (1 KiB each) kept before they are dropped and recomputed; one kernel call may use more
    max_words: half of it is the least number of words (4 bytes each) above which the chart `is_crowded`; see `collect`
    horizon: masks are shared between states that no text of this many bytes separates; no token may be longer
    """

    def __init__(
        self,
        graph: Graph | Making,
        rule: int = 0,
        *,
        meter: Meter | None = None,
        max_rows: int = MAX_ROWS,
        max_words: int = MAX_WORDS,
        horizon: int = HORIZON,
    ) -> None:
        self._make = None if isinstance(graph, Graph) else graph
        self.graph, self.rule = (graph, rule) if isinstance(graph, Graph) else graph()
        self._later = None if self._make is None else self.graph.hand_over()
        self.lock = new_lock()
        self.meter = meter or current() or Meter()
        self._max_rows = max_rows
        self._max_words = max_words
        self._crowded_above = max_words // 2  # words
        self.is_crowded = False
        self.last_compaction: object = None  # the last `CompactionResult`; caches compare it to detect a compaction
        # Expanded lazy nodes, rules defined early with them, and the number of nodes afterwards
        self._expanded: list[tuple[tuple[int, ...], tuple[int, ...], int]] = []
        self._torn = False  # the graph may be inconsistent
        self._graph_arrays = self.graph.arrays()
        self._chart = new_chart(horizon, max_rows, self.meter)
        self._dropped = False
        self._rows_written = 0  # rows in use before the last drop
        self.spelling = _NO_BYTES  # bytes of the paths to states that the kernel `follow` reached
        self.start = self.run(begin, self.rule)
        if self.start == DEAD:
            raise LanguageError("no text meets this constraint: its language is empty")
        self._chart.states[self.start, kernel.PARENT] = kernel.PINNED

    @property
    def graph_arrays(self) -> GraphArrays:
        """The graph arrays for kernels; fetch them again after `resolve`."""
        return self._graph_arrays

    @property
    def chart(self) -> Chart:
        """The chart for kernels; fetch it again after `resolve`."""
        return self._chart

    @property
    def state_count(self) -> int:
        """The number of states in the chart."""
        return int(self._chart.sizes[kernel.STATES])

    @property
    def evicted(self) -> int:
        """The number of evicted states: their numbers are valid, their words were dropped."""
        return int(np.count_nonzero(self._chart.states[: self.state_count, HI] == kernel.EVICTED))

    @property
    def held_bytes(self) -> int:
        """Bytes that the chart and the graph have written to; limits refer to these."""
        rows = max(self._rows_written, int(self._chart.sizes[kernel.ROWS]))
        return held_bytes(self._chart, rows) + self.graph.held_bytes

    @property
    def reserved_bytes(self) -> int:
        """Bytes that the chart and the graph have allocated; caches count these."""
        return reserved_bytes(self._chart) + self.graph.held_bytes

    def ready(self, state: int) -> int:
        """Return the state, restored if it was evicted. Raises StateError if the state was never given out."""
        states = self._chart.states
        state = check_state(state, self._chart.sizes.item(kernel.STATES))
        if state == DEAD:
            return DEAD
        if states.item(state, kernel.KEPT) < 0:
            raise state_error(state)
        if states.item(state, HI) == kernel.EVICTED:
            self._restore(state)
        return state

    def step(self, state: int, byte: int) -> int:
        """Return the state after `byte`, or DEAD."""
        return self.read(state, bytes((byte,)))

    def read(self, state: int, data: bytes) -> int:
        """Return the state after `data`, or DEAD."""
        with self.lock:
            state = self.ready(state)
            if state == DEAD:
                return DEAD
            return self.run(pin, state, np.frombuffer(data, np.uint8), 0, len(data))

    def is_accepting(self, state: int) -> bool:
        """Test whether the bytes read so far are a complete text."""
        chart = self._chart
        state = check_state(state, chart.sizes.item(kernel.STATES))
        if state == DEAD:
            return False
        if chart.states.item(state, kernel.KEPT) >= 0 and chart.states.item(state, HI) >= 0:
            return chart.words.item(chart.states.item(state, LO) + kernel.ACCEPTING) == 1
        with self.lock:
            return self.ends(self.ready(state))

    def ends(self, state: int) -> bool:
        """Return `is_accepting` of any state with words, whether or not it was given out."""
        return self._chart.words.item(self._chart.states.item(state, LO) + kernel.ACCEPTING) == 1

    def explore(self, limit: int) -> list[int]:
        """Reach every state and return their numbers. Raises LimitError if there are more than `limit`."""
        with self.lock:
            for evicted in np.flatnonzero(self._chart.states[: self.state_count, HI] == kernel.EVICTED).tolist():
                self._restore(evicted)
            if self.run(explore, limit) > limit:
                raise LimitError(
                    f"the automaton has more than {limit:,} states; use it lazily, simplify it, or raise max_states"
                )
            found = np.flatnonzero(self._chart.states[: self.state_count, HI] >= 0).astype(np.int32)
            self.keep(found)
            return found.tolist()

    def transitions(self, state: int) -> NDArray[np.int32]:
        """Return the state after each byte: int32 [256], DEAD where there is none."""
        with self.lock:
            state = self.ready(state)
            if state == DEAD:
                return np.full(256, DEAD, np.int32)
            row = self.run(kept_row, state)
            return self._chart.rows[row].copy()

    def only_way(self, state: int) -> tuple[int, int] | None:
        """Return the only byte that may follow, and the state after it; None if several bytes may follow, or none.

        The lock is held. The returned state has words, but does not count as given out.
        """
        if state == DEAD:
            return None
        after = self._chart.rows[self.run(fill_row, state)]
        ways = np.flatnonzero(after != DEAD)
        return (ways.item(0), after.item(ways.item(0))) if len(ways) == 1 else None

    def keep(self, states: NDArray[np.int32]) -> None:
        """Protect these states from `collect`; DEAD is ignored."""
        numbers = states[states != DEAD]
        records = self._chart.states
        records[numbers[records[numbers, kernel.PARENT] == kernel.UNSET], kernel.PARENT] = kernel.PINNED
        records[numbers, kernel.KEPT] = 1

    def collect(self, most_words: int | None = None) -> CompactionResult:
        """Free memory: drop all states that no method, and not the kernel `advance`, gave out.

        Returns which numbers are still valid; the others will be reused. States met during the computation of masks and
        distances far outnumber those at the ends of texts. If the latter alone take more than `most_words`, those not
        given out since the last call are evicted: they are restored on demand, invisibly to callers. By default they
        are so early, and the chart is crowded again so late, that each call follows new words in proportion to its
        work.
        """
        most = self._max_words // 4 if most_words is None else most_words
        with self.lock:
            self.begin_call()
            chart, states, signatures = compacted(self._graph_arrays, self._chart, most, self._max_words)
            compaction = CompactionResult(states, signatures, self.last_compaction)
            # An observer of the chart without the new `CompactionResult` drops all numbers, which is always safe.
            self.last_compaction = object()
            self._chart = chart
            self._rows_written = 0
            self._crowded_above = max(self._max_words // 2, 3 * chart.sizes.item(WORDS) // 2)
            self.is_crowded = False
            self.last_compaction = compaction
            return compaction

    def bytes_on_the_way(self) -> set[int]:
        """Return the bytes that may occur in a text, as found in about a thousand states."""
        found: set[int] = set()
        queue = [self.start]
        reached = {self.start}
        for state in queue:
            if len(reached) > 1000:
                break
            after = self.transitions(state)
            found.update(np.flatnonzero(after >= 0).tolist())
            new = set(after[after >= 0].tolist()) - reached
            reached |= new
            queue += sorted(new)
        return found

    def attempt(self, function: Callable[..., Any], *arguments: Any) -> int:
        """Call a kernel once as a complete call: returns its result or a code, and needs no clean-up.

        Returns UNREADY, without effect, where a call needs more preparation than a reset of the work counter.
        """
        if self._torn or not self.meter.begin_alone():
            return answers.UNREADY
        return call(function, self._graph_arrays, self._chart, *arguments)

    def attempt_more(self, function: Callable[..., Any], *arguments: Any) -> int:
        """Call a kernel once, inside the call that `attempt` began."""
        return call(function, self._graph_arrays, self._chart, *arguments)

    def run(self, function: Callable[..., Any], *arguments: Any, beside: Callable[[], Arrays] | None = None) -> int:
        """Call a kernel until it returns a result, and handle the codes that it returns before.

        beside: makes the arrays passed after the graph and the chart, anew for each repetition
        """
        self.begin_call()
        while True:
            more = () if beside is None else (beside(),)
            answer = call(function, self._graph_arrays, self._chart, *more, *arguments)
            if answer >= DEAD:
                return int(answer)
            self.resolve(answer)

    def begin_call(self) -> None:
        """Prepare a call, once for all repetitions of its kernel."""
        self._dropped = False
        if self._torn:
            self._mend()

    def resolve(self, code: int) -> None:
        """Handle a kernel's code: expand lazy nodes, or enlarge arrays.

        Raises LimitError, Cancelled and NotReadyError.
        """
        if code == answers.EXPAND:
            self.meter.check_ready()
            self._expand()
        elif code == answers.EXHAUSTED:
            raise self.meter.refusal()
        elif code == answers.CROWDED:
            self._widen_scratch()
        else:
            self._grow()

    def promises(self, first: int, last: int) -> list[tuple[int, int, int, int]]:
        """Return `Graph.promises`; an exception leaves the graph torn."""
        self._torn = self._make is not None
        found = self.graph.promises(first, last)
        self._torn = False
        return found

    def weights(self, first: int) -> list[list[int]]:
        """Return `Graph.weights`; an exception leaves the graph torn."""
        self._torn = self._make is not None
        found = self.graph.weights(first)
        self._torn = False
        return found

    def define(self, node: int) -> None:
        """Define a lazy node that no state has reached yet."""
        with self.lock:
            self.begin_call()
            self.meter.check_ready()
            self._define((node,))

    def _expand(self) -> None:
        """Define the lazy nodes that a kernel reported."""
        count = int(self._chart.sizes[kernel.MISSING])
        nodes = tuple(sorted(set(self._chart.missing[:count].tolist())))
        self._chart.sizes[kernel.MISSING] = 0
        self._define(nodes)

    def _define(self, nodes: tuple[int, ...]) -> None:
        self._torn = True
        early = self.graph.expand(nodes)
        self._expanded.append((nodes, early, self.graph.node_count))
        self._graph_arrays = self.graph.arrays()
        self._torn = False
        self.meter.check_memory(self.graph.held_bytes)

    def _mend(self) -> None:
        """Make the torn graph again and repeat its expansions; none of that counts as work of the call."""
        if self._make is None:
            raise StateError("this guide was interrupted in an inconsistent state; make it again")
        with Meter(replace(self.meter.limits, work=2**61, seconds=None)):
            graph, _ = self._make()
            for nodes, early, count in self._expanded:
                graph.expand(nodes, early)
                assert graph.node_count == count, "a graph that is made again must be the same"
        arrays = graph.arrays()
        self._later = graph.hand_over()
        self.graph, self._graph_arrays = graph, arrays
        self._chart.sizes[kernel.MISSING] = 0
        self._torn = False

    def _restore(self, state: int) -> None:
        """Recompute the words of an evicted state, from its nearest ancestor that has words."""
        states = self._chart.states
        way: list[int] = []
        while states.item(state, HI) == kernel.EVICTED:
            way.append(state)
            state = states.item(state, kernel.PARENT)
        for evicted in reversed(way):
            first, last = states.item(evicted, kernel.FIRST), states.item(evicted, kernel.LAST)
            self.run(restore, state, evicted, self.spelling, first, last)
            states, state = self._chart.states, evicted

    def _widen_scratch(self) -> None:
        size = 4 * len(self._chart.work)
        self.meter.check_memory(self.held_bytes + scratch_bytes(size))
        self._chart = replace(self._chart, **scratch(size))

    def _grow(self) -> None:
        """Enlarge every array that is at least half full, and full rows; drop rows when there are too many."""
        chart, sizes = self._chart, self._chart.sizes
        if sizes[kernel.STATES] > self.meter.limits.states:
            self.is_crowded = True
            raise LimitError(
                f"the constraint has created more than {self.meter.limits.states:,} states; simplify it, or raise "
                "states= of its limits=Limits(...)"
            )
        self._check_memory()
        more: dict[str, Any] = {}
        if sizes[kernel.ROWS] >= len(chart.rows):
            if len(chart.rows) >= self._max_rows and not self._dropped:
                more = self._without_rows()
            else:
                count = min(4 * len(chart.rows), self._max_rows)
                if count <= len(chart.rows):
                    count = 2 * len(chart.rows)
                more = {"rows": larger(chart.rows, count), "loops": larger(chart.loops, count)}
        if 2 * sizes[WORDS] >= len(chart.words) or len(chart.words) < 4 * len(chart.buffer):
            more["words"] = larger(chart.words)
        self.is_crowded |= bool(sizes[WORDS] > self._crowded_above)
        for name, kind in SPANS.items():
            spans = getattr(chart, name)
            if 2 * sizes[kind] >= len(spans):
                more[name] = larger(spans)
                more[f"{name[:-1]}_index"] = index_of(chart.words, more[name], int(sizes[kind]))
        if 2 * chart.set_sizes[WORDS] >= len(chart.set_words) or len(chart.set_words) < 4 * len(chart.buffer):
            more["set_words"] = larger(chart.set_words)
        if 2 * chart.set_sizes[SETS] >= len(chart.sets):
            more["sets"] = larger(chart.sets)
            more["set_index"] = index_of(chart.set_words, more["sets"], int(chart.set_sizes[SETS]))
        self._chart = replace(chart, **more)

    def _check_memory(self) -> None:
        """Raise LimitError if memory would exceed the limit with the arrays that `_grow` doubles; request a compaction.

        Words count three times: distances have an entry for every word, and both are copied.
        """
        chart, sizes = self._chart, self._chart.sizes
        full = [getattr(chart, name) for name, kind in SPANS.items() if 2 * sizes[kind] >= len(getattr(chart, name))]
        if sizes[kernel.ROWS] >= len(chart.rows):
            full += 3 * [chart.rows]
        if 2 * sizes[WORDS] >= len(chart.words):
            full += 3 * [chart.words]
        held = self.reserved_bytes + sum(array.nbytes for array in full)
        if held > self.meter.limits.memory:
            self.is_crowded = True
        self.meter.check_memory(held)

    def _without_rows(self) -> dict[str, Any]:
        """Return the chart's rows, all unused; done at most once per call, since the call fills them again."""
        chart = self._chart
        chart.states[: chart.sizes[kernel.STATES], kernel.ROW] = -1
        self._rows_written = len(chart.rows)
        chart.sizes[kernel.ROWS] = 0
        self._dropped = True
        return {"rows": chart.rows[: self._max_rows], "loops": chart.loops[: self._max_rows]}
