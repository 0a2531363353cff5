"""Where a state of a chart is: the nodes it reads on from, and the calls that these are in."""

from __future__ import annotations

from typing import NamedTuple

from ...kernels.chart.interning import HI, LO
from ...kernels.chart.layout import (
    ENTRY,
    ENTRY_COUNT,
    ENTRY_ORIGIN,
    ENTRY_RULE,
    ENTRY_TARGET,
    HEADER,
    ITEM,
    ITEM_NODE,
    ITEM_ORIGIN,
    OWN_RETURN_SET,
    SELF,
    Chart,
)


class Return(NamedTuple):
    """Where the call of a rule returns to; counted: with which count, outer: the return set of that node's own rule."""

    rule: int
    target: int
    counted: int
    outer: int


def open_nodes(chart: Chart, state: int) -> list[tuple[int, int]]:
    """The nodes that a state reads on from, each with the return set of its rule."""
    words, lo, hi = chart.words, chart.states.item(state, LO), chart.states.item(state, HI)
    own = words.item(lo + OWN_RETURN_SET)
    found: list[tuple[int, int]] = []
    for at in range(lo + HEADER, hi, ITEM):
        origin = words.item(at + ITEM_ORIGIN)
        found.append((words.item(at + ITEM_NODE), own if origin == SELF else origin))
    return found


def returns(chart: Chart, return_set: int) -> list[Return]:
    """All that a return set holds, which is not ROOT."""
    words, sets = chart.words, chart.return_sets
    found: list[Return] = []
    for at in range(sets.item(return_set, LO), sets.item(return_set, HI), ENTRY):
        origin = words.item(at + ENTRY_ORIGIN)
        outer = return_set if origin == SELF else origin
        found.append(
            Return(words.item(at + ENTRY_RULE), words.item(at + ENTRY_TARGET), words.item(at + ENTRY_COUNT), outer)
        )
    return found
