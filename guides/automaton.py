"""The byte automaton: what a constraint becomes, and the chart that runs it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import LanguageError, LimitError
from ..kernels import chart as kernel
from ..kernels.calling import call
from ..kernels.chart import Chart
from ..kernels.chart import Graph as GraphArrays
from ..kernels.closure import begin
from ..kernels.collecting import find_needed, keep_needed, keep_sets
from ..kernels.interning import FREE, LO, WORDS, reindex
from ..kernels.rows import MEMO_ITEMS, advance, explore, fill_row
from ..kernels.sets import SETS
from .graph import Graph
from .limits import Meter, current

DEAD = kernel.DEAD
HORIZON = 256
MEMO_SLOTS = 1024
MAX_WORDS = 1 << 20
SPANS = {"states": kernel.STATES, "bundles": kernel.BUNDLES, "signatures": kernel.SIGNATURES}
GROWING = {*SPANS, "words", "rows", "loops", "set_words", "sets"}
# The arrays of a chart that are written to from end to end
WRITTEN = [each.name for each in fields(Chart) if each.name not in GROWING]


class Kept(NamedTuple):
    """For each number of a state or a signature, whether it still means the same."""

    states: NDArray[np.bool_]
    signatures: NDArray[np.bool_]


class Watcher(Protocol):
    """Who remembers things by the numbers of states and signatures."""

    def forget(self, kept: Kept) -> None:
        """Forget all numbers but those that are kept."""
        ...


class ByteAutomaton(Protocol):
    """A deterministic automaton over bytes with integer states; the same future has the same number."""

    @property
    def start(self) -> int:
        """The state before the first byte."""
        ...

    def step(self, state: int, byte: int) -> int:
        """The state after `byte`, or DEAD."""
        ...

    def is_accepting(self, state: int) -> bool:
        """Whether the bytes read so far are a complete text."""
        ...


class TableAutomaton(ByteAutomaton, Protocol):
    """A byte automaton that can also list a state's transitions."""

    def read(self, state: int, data: bytes) -> int:
        """The state after `data`, or DEAD."""
        ...

    def transitions(self, state: int) -> NDArray[Any]:
        """The state after each byte: integers [256], DEAD where there is none."""
        ...


class ChartAutomaton:
    """The byte automaton of a graph: lazy, interned, exact for every context-free language.

    meter: counts the work of calls, and has the limits; that of the call at work if none is given
    max_rows: how many transition rows (1 KiB each) are kept before they are dropped and computed again; one
    kernel call may use more.
    max_words: from how many words (4 bytes each) on the chart `is_crowded`; see `collect`.
    horizon: masks are shared between states that no text of so many bytes tells apart; no token may be longer.
    """

    def __init__(
        self,
        graph: Graph,
        rule: int,
        *,
        meter: Meter | None = None,
        max_rows: int = 4096,
        max_words: int = MAX_WORDS,
        horizon: int = HORIZON,
    ) -> None:
        self.graph = graph
        self.lock = threading.RLock()
        self.meter = meter or current() or Meter()
        self._max_rows = max_rows
        self._max_words = max_words
        self.is_crowded = False
        self._watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()
        self._graph_arrays = graph.arrays()
        self._chart = _new_chart(horizon, max_rows, self.meter)
        self._dropped = False
        self._rows_written = 0  # before those that there are were dropped
        self.start = self.run(begin, rule)
        if self.start == DEAD:
            raise LanguageError("no text meets this constraint: its language is empty")

    @property
    def graph_arrays(self) -> GraphArrays:
        """The graph, for kernels; fetch it anew after `resolve`."""
        return self._graph_arrays

    @property
    def chart(self) -> Chart:
        """The chart, for kernels; fetch it anew after `resolve`."""
        return self._chart

    @property
    def state_count(self) -> int:
        """How many states have been met."""
        return int(self._chart.sizes[kernel.STATES])

    @property
    def held_bytes(self) -> int:
        """How much of the chart's memory was written to; what there is room for besides takes none."""
        chart = self._chart
        sizes: list[int] = chart.sizes.tolist()
        rows = max(self._rows_written, sizes[kernel.ROWS])
        counts = [(chart.words, sizes[WORDS]), (chart.rows, rows), (chart.loops, rows)]
        counts += [(chart.set_words, int(chart.set_sizes[WORDS])), (chart.sets, int(chart.set_sizes[SETS]))]
        counts += [(getattr(chart, name), sizes[kind]) for name, kind in SPANS.items()]
        growing = sum(count * array.strides[0] for array, count in counts)
        return growing + sum(getattr(chart, name).nbytes for name in WRITTEN)

    def step(self, state: int, byte: int) -> int:
        """The state after `byte`, or DEAD."""
        with self.lock:
            row = self.run(fill_row, state)
            after = int(self._chart.rows[row, byte])
            if after != DEAD:
                self._chart.states[after, kernel.KEPT] = 1
            return after

    def read(self, state: int, data: bytes) -> int:
        """The state after `data`, or DEAD."""
        values = np.frombuffer(data, np.uint8)
        with self.lock:
            return self.run(advance, state, values, 0, len(values))

    def is_accepting(self, state: int) -> bool:
        """Whether the bytes read so far are a complete text."""
        chart = self._chart
        return bool(chart.words[chart.states[state, LO] + 1])

    def explore(self, limit: int) -> int:
        """Reach every state by bytes; how many there are. Raises LimitError above `limit`."""
        with self.lock:
            count = self.run(explore, limit)
        if count > limit:
            raise LimitError(
                f"the automaton has more than {limit:,} states; use it lazily, simplify it, or raise max_states"
            )
        return count

    def transitions(self, state: int) -> NDArray[np.int32]:
        """The state after each byte: int32 [256], DEAD where there is none."""
        with self.lock:
            row = self.run(fill_row, state)
            after = self._chart.rows[row].copy()
            self.keep(after)
            return after

    def keep(self, states: NDArray[np.int32]) -> None:
        """Let `collect` not give up these states; DEAD is passed over."""
        self._chart.states[states[states != DEAD], kernel.KEPT] = 1

    def collect(self) -> Kept:
        """Make room: give up all states whose numbers nobody was given, by a method or by the kernel `advance`.

        Returns for each number whether it still names the same thing; the others will name new ones. States
        met on the way to masks and distances are many times those that texts end in.
        """
        with self.lock:
            chart = self._chart
            chart = replace(
                chart, states=chart.states.copy(), bundles=chart.bundles.copy(), signatures=chart.signatures.copy()
            )
            bundles = np.zeros(len(chart.bundles), np.uint8)
            signatures = np.zeros(len(chart.signatures), np.uint8)
            needed = int(find_needed(chart, bundles, signatures))
            words = np.zeros(max(4096, 4 * len(chart.buffer), 4 * needed), np.int32)
            keep_needed(chart, bundles, signatures, words)
            chart.states[:, kernel.ROW] = -1
            chart.sizes[kernel.ROWS] = 0
            chart.memo[:] = 0
            chart = replace(chart, words=words, rows=np.zeros((64, 256), np.int32), loops=np.zeros((64, 3), np.uint64))
            set_words = np.zeros_like(chart.set_words)
            keep_sets(self._graph_arrays, chart, set_words)
            self._rows_written = 0
            self._chart = _with_sets_reindexed(_reindexed(replace(chart, set_words=set_words)))
            self.is_crowded = False
            states = chart.states[: chart.sizes[kernel.STATES], kernel.KEPT] == 1
            kept = Kept(states, signatures == 1)
            for watcher in list(self._watchers):
                watcher.forget(kept)
            return kept

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` whenever numbers are given up, as long as it lives."""
        self._watchers.add(watcher)

    def bytes_on_the_way(self, limit: int = 1000) -> set[int]:
        """The bytes that some text may have, as far as the first `limit` states tell."""
        found: set[int] = set()
        state = 0
        while state < min(limit, self.state_count):
            found.update(np.flatnonzero(self.transitions(state) >= 0).tolist())
            state += 1
        return found

    def run(self, function: Callable[..., Any], *arguments: Any) -> int:
        """Call a kernel until it answers with something other than a code."""
        self.begin_call()
        answer = call(function, self._graph_arrays, self._chart, *arguments)
        while answer < DEAD:
            self.resolve(answer)
            answer = call(function, self._graph_arrays, self._chart, *arguments)
        return int(answer)

    def begin_call(self) -> None:
        """To be called before a kernel is called outside `run`, once for all its repetitions."""
        self._dropped = False

    def resolve(self, code: int) -> None:
        """Do what a kernel's code asks for: expand a lazy node, or make room."""
        if code == kernel.EXPAND:
            count = int(self._chart.sizes[kernel.MISSING])
            self._chart.sizes[kernel.MISSING] = 0
            self.graph.expand(set(self._chart.missing[:count].tolist()))
            self._graph_arrays = self.graph.arrays()
        elif code == kernel.EXHAUSTED:
            raise self.meter.refusal()
        elif code == kernel.CROWDED:
            self._widen_scratch()
        else:
            self._grow()

    def _widen_scratch(self) -> None:
        chart = self._chart
        size = 4 * len(chart.work)
        if size > 64_000_000:
            raise LimitError("the constraint is too ambiguous: one state has more than 16 million items")
        self._chart = replace(chart, **_scratch(size))

    def _grow(self) -> None:
        """Make room in every array that is more than half full; drop the rows when there are too many."""
        chart, sizes = self._chart, self._chart.sizes
        if sizes[kernel.ROWS] >= len(chart.rows):
            if len(chart.rows) >= self._max_rows and not self._dropped:
                chart = self._without_rows()
            else:
                chart = replace(chart, rows=_larger(chart.rows), loops=_larger(chart.loops))
        if sizes[kernel.STATES] > self.meter.limits.states:
            raise LimitError(
                f"the constraint has led through more than {self.meter.limits.states:,} states; simplify it, or raise "
                "states= of its limits=Limits(...)"
            )
        if 2 * sizes[WORDS] >= len(chart.words) or len(chart.words) < 4 * len(chart.buffer):
            chart = replace(chart, words=_larger(chart.words))
            self.is_crowded = len(chart.words) > self._max_words
        for name, kind in SPANS.items():
            spans = getattr(chart, name)
            if 2 * sizes[kind] >= len(spans):
                chart = _reindexed(replace(chart, **{name: _larger(spans)}), name)
        if 2 * chart.set_sizes[WORDS] >= len(chart.set_words) or len(chart.set_words) < 4 * len(chart.buffer):
            chart = replace(chart, set_words=_larger(chart.set_words))
        if 2 * chart.set_sizes[SETS] >= len(chart.sets):
            chart = _with_sets_reindexed(replace(chart, sets=_larger(chart.sets)))
        self._chart = chart

    def _without_rows(self) -> Chart:
        """The chart with no rows; within one call only once, since the call goes on with the rows it fills."""
        chart = self._chart
        chart.states[: chart.sizes[kernel.STATES], kernel.ROW] = -1
        self._rows_written = len(chart.rows)
        chart.sizes[kernel.ROWS] = 0
        self._dropped = True
        return replace(chart, rows=chart.rows[: self._max_rows], loops=chart.loops[: self._max_rows])


def _reindexed(chart: Chart, *names: str) -> Chart:
    """The chart with new indices of the named spans, of all if none is named."""
    for name in names or SPANS:
        spans = getattr(chart, name)
        index = np.full(4 * len(spans), -1, np.int32)
        reindex(chart.words, spans, index, chart.sizes[SPANS[name]])
        chart = replace(chart, **{f"{name[:-1]}_index": index})
    return chart


def _with_sets_reindexed(chart: Chart) -> Chart:
    """The chart with a new index of its large sets."""
    index = np.full(4 * len(chart.sets), -1, np.int32)
    reindex(chart.set_words, chart.sets, index, chart.set_sizes[SETS])
    return replace(chart, set_index=index)


def _larger(array: Any) -> Any:
    grown = np.empty((2 * len(array), *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _scratch(size: int) -> dict[str, Any]:
    return {
        "items": np.empty((size, kernel.ITEM), np.int32),
        "work": np.empty((size, kernel.ITEM), np.int32),
        "leaves": np.empty((size, kernel.ITEM), np.int32),
        "entries": np.empty((size, kernel.ENTRY + 2), np.int32),
        "done": np.empty(size, np.int32),
        "seen": np.zeros((8 * size, 2), np.int32),
        "buffer": np.empty(kernel.ENTRY * size + 8, np.int32),
    }


def _new_chart(horizon: int, max_rows: int, meter: Meter) -> Chart:
    """An empty chart, with the bundle ROOT, which ends the text, and the empty bundle.

    There is room for what most constraints come to: memory that is never written to costs nothing, while larger
    arrays must be copied to and indexed anew.
    """
    rows = min(2048, max_rows)
    sizes = np.zeros(12, np.int64)
    sizes[FREE:] = -1
    sizes[kernel.HORIZON] = horizon
    set_sizes = np.zeros(FREE + SETS + 1, np.int64)
    set_sizes[FREE:] = -1
    set_sizes[SETS] = 1
    chart = Chart(
        words=np.empty(1 << 18, np.int32),
        states=np.empty((8192, 5), np.int32),
        bundles=np.empty((2048, 3), np.int32),
        signatures=np.empty((4096, 2), np.int32),
        state_index=np.full(1 << 15, -1, np.int32),
        bundle_index=np.full(1 << 13, -1, np.int32),
        signature_index=np.full(1 << 14, -1, np.int32),
        rows=np.empty((rows, 256), np.int32),
        loops=np.empty((rows, 3), np.uint64),
        memo=np.zeros((MEMO_SLOTS, 2 + kernel.ITEM * MEMO_ITEMS), np.int32),
        set_words=np.empty(4096, np.int32),
        sets=np.zeros((64, 2), np.int32),
        set_index=np.full(256, -1, np.int32),
        set_sizes=set_sizes,
        sizes=sizes,
        missing=np.zeros(256, np.int32),
        meter=meter.counts,
        **_scratch(64),
    )
    chart.bundles[:2] = ((0, 0, 0), (0, 0, 1))
    sizes[kernel.BUNDLES] = 2
    chart.signatures[:2] = 0
    sizes[kernel.SIGNATURES] = 2
    return chart
