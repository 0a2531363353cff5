"""Return codes of kernels, and the work counter.

Kernels do not grow arrays. They return a number >= 0 (a state, row or count), DEAD if there is none, or a code below
DEAD: FULL (an array is more than half full), EXPAND (lazy nodes of the graph were reached; they are in
missing[:sizes[MISSING]] of the chart), CROWDED (the scratch arrays are too small), EXHAUSTED (the call has used up
its work limit, or was stopped) and UNREADY (a number is not that of a state that was handed out, or the state's words
were evicted). The caller handles the code and calls again; results so far are kept.
`guides.chart.automaton.ChartAutomaton.run` handles all codes but UNREADY.
"""

from __future__ import annotations

from typing import Protocol

from .jit.aliases import Int, Longs
from .jit.wide import inner_njit

DEAD, FULL, EXPAND, CROWDED, EXHAUSTED, UNREADY = -1, -2, -3, -4, -5, -6
# Target of bytes without an edge, in an automaton under construction, where DEAD has another meaning.
NOWHERE = -2
# Lengths in bytes or tokens from this number on count as infinite.
NEVER = 2**30
# Entries of a meter: steps of work of the call so far, their maximum, and whether the call was stopped.
SPENT, LIMIT, STOPPED = range(3)


class Metered(Protocol):
    """An object with the meter of the call."""

    @property
    def meter(self) -> Longs:
        """int64 [3]: SPENT, LIMIT and STOPPED."""
        ...


@inner_njit
def spend(counted: Metered, steps: Int) -> Int:
    """Count steps of work of the call. Return 0, or EXHAUSTED beyond the maximum or after a stop."""
    meter = counted.meter
    meter[SPENT] += steps
    return EXHAUSTED if meter[SPENT] > meter[LIMIT] or meter[STOPPED] else 0
