"""What kernels answer, and how they count their work.

Kernels grow nothing. They answer with a number from 0 on, a state, a row or a count; with DEAD, where there is none;
or with a code, which is below DEAD: FULL (an array is more than half used), EXPAND (lazy nodes of a graph were reached;
they are in missing[:sizes[MISSING]] of the chart), CROWDED (the scratch arrays are too small), EXHAUSTED (the call
has taken all the work it may, or was stopped) and UNREADY (a state is asleep, or nobody was given it). After the
caller has dealt with a code it calls again: what was found out stays. `guides.chart.automaton.ChartAutomaton.run` does
that for all of them but UNREADY.
"""

from __future__ import annotations

from typing import Protocol

from .jit.aliases import Int, Longs
from .jit.wide import inner_njit

DEAD, FULL, EXPAND, CROWDED, EXHAUSTED, UNREADY = -1, -2, -3, -4, -5, -6
# Where a byte leads that there is no edge for, in an automaton in the making, where DEAD is taken.
NOWHERE = -2
# What takes so many bytes or tokens, or more, counts as having no end.
NEVER = 2**30
# Entries of a meter: the steps of work of the call so far, the most there may be, whether it was stopped.
SPENT, MOST, STOPPED = range(3)


class Counted(Protocol):
    """What has the meter of the call."""

    @property
    def meter(self) -> Longs:
        """int64 [3], by SPENT, MOST and STOPPED."""
        ...


@inner_njit
def spend(counted: Counted, steps: Int) -> Int:
    """Count steps of work of the call in its meter: 0, or EXHAUSTED when that is enough."""
    meter = counted.meter
    meter[SPENT] += steps
    return EXHAUSTED if meter[SPENT] > meter[MOST] or meter[STOPPED] else 0
