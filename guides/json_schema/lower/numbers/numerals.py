"""The JSON texts of numbers from 0 up: those without and those with an exponent, read side by side."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .....kernels.answers import DEAD, NEVER
from .....kernels.chart.layout import EPSILON
from ....automata.minimise import minimise
from ....automata.numbers import Numbers
from ....graph.lowering import Lowering
from ....kept import kept_growing
from ....limits import spend
from ....locks import new_lock
from ....syntax import Table
from ...algebra.cases import Number
from .decimals import Decimals
from .scientific import Scientific, has_exponents

Run = tuple[int, int, int]
"""The first and the last byte that lead to a state, and the state."""


class Numerals:
    """The texts of a set of numbers that are 0 or more, as an automaton whose states are made when they are reached.

    plain: as json.dumps writes floats, with a few more zeros at the end
    """

    def __init__(self, case: Number, *, plain: bool = False) -> None:
        self._readers = [Decimals(case, plain=plain), *([Scientific(case, plain=plain)] if has_exponents(case) else ())]
        self._numbers: Numbers[tuple[int, ...]] = Numbers()
        self._runs: list[list[Run] | None] = []
        self._lock = new_lock()
        self.start = self._numbers[tuple(reader.start for reader in self._readers)]

    @property
    def held_bytes(self) -> int:
        """About how much memory the states take that were made."""
        return 4000 + 3000 * len(self._numbers)

    def runs(self, state: int) -> list[Run]:
        """The states after bytes, as far as a member follows."""
        with self._lock:
            self._runs += [None] * (state + 1 - len(self._runs))
            known = self._runs[state]
            if known is None:
                known = self._runs[state] = self._made(self._numbers.states[state])
            return known

    def _made(self, places: tuple[int, ...]) -> list[Run]:
        spend(3000)
        moves = [{} if at == DEAD else reader.moves(at) for reader, at in zip(self._readers, places, strict=True)]
        runs: list[Run] = []
        for byte in sorted({byte for each in moves for byte in each}):
            after = self._numbers[tuple([each.get(byte, DEAD) for each in moves])]
            if runs and runs[-1][1:] == (byte - 1, after):
                runs[-1] = (runs[-1][0], byte, after)
            else:
                runs.append((byte, byte, after))
        return runs

    def is_accepting(self, state: int) -> bool:
        """Tell whether a text may end in a state."""
        with self._lock:
            both = zip(self._readers, self._numbers.states[state], strict=True)
            return any(at != DEAD and reader.is_accepting(at) for reader, at in both)

    def needed(self, state: int) -> int:
        """The bytes from a state to the end of a short text; NEVER if there is none."""
        with self._lock:
            both = zip(self._readers, self._numbers.states[state], strict=True)
            return min((reader.needed(at) for reader, at in both if at != DEAD), default=NEVER)

    def table(self) -> Table:
        """All states as a table, minimised; for sets that have few."""
        rows: list[NDArray[np.int32]] = []
        while len(rows) < len(self._numbers):
            row = np.full(256, DEAD, np.int32)
            for first, last, after in self.runs(len(rows)):
                row[first : last + 1] = after
            rows.append(row)
        accepting = np.array([self.is_accepting(state) for state in range(len(rows))])
        return Table(*minimise(np.stack(rows), accepting))


@kept_growing(256, 16 << 20)
def numerals(case: Number, plain: bool = False) -> Numerals:
    """The automaton of a set, made once: it remembers the states that were reached."""
    return Numerals(case, plain=plain)


class NumeralNodes:
    """Adds numerals to the current rule of a graph, before the node `end`."""

    def __init__(self, lowering: Lowering, numerals: Numerals, end: int) -> None:
        self._graph = lowering.graph
        self._numerals = numerals
        self._end = end
        self._nodes: dict[int, int] = {}

    def entry(self) -> int:
        """The node before the first digit."""
        return self._node(self._numerals.start)

    def _node(self, state: int) -> int:
        node = self._nodes.get(state)
        if node is None:
            node = self._nodes[state] = self._graph.lazy_node(
                lambda node: self._define(node, state), lambda: self._numerals.needed(state), self._end
            )
        return node

    def _define(self, node: int, state: int) -> None:
        edges = [(first, last, self._node(after)) for first, last, after in self._numerals.runs(state)]
        links = ((EPSILON, self._end, 0),) if self._numerals.is_accepting(state) else ()
        self._graph.define(node, edges, links)
