"""Characters that loop in a state, ASCII and others: where all of them lead back to it.

Kernels answer as kernels/answers.py says.
"""

from __future__ import annotations

import numpy as np

from ..answers import DEAD
from ..chart.layout import Chart, GraphArrays
from ..chart.rows import FIRST_LEAD, LEADS, LEADS_KNOWN, ROOM, fill_range, fill_row
from ..jit.aliases import Int
from ..jit.wide import inner_njit, shared_njit
from ..utf8 import FIRST_NEXT, FORMS, LAST_LEAD, LAST_NEXT, LAST_SECOND, LEAD, MORE, SECOND

# After so many lead bytes that do not loop, as in a set of letters, the others are not worth a look each.
MANY_OTHERS = 8


@inner_njit
def only_lead(chart: Chart, row: Int, first: Int, last: Int, target: Int) -> bool:
    """Tell whether the bytes first ... last lead to `target` and all others nowhere."""
    for byte in range(256):  # noqa: SIM110
        if chart.rows[row, byte] != (target if first <= byte <= last else DEAD):
            return False
    return True


@inner_njit
def form_loops(graph: GraphArrays, chart: Chart, state: Int, form: Int, target: Int) -> Int:
    """1 if what follows a lead byte of one form of UTF-8, from `state`, leads just to `target`, else 0; or a code."""
    last = FORMS[form, MORE]
    first, final = FORMS[form, SECOND], FORMS[form, LAST_SECOND]
    while True:
        row = fill_row(graph, chart, state)
        if row < 0:
            return row
        after = target if last == 0 else chart.rows[row, first]
        if after < 0 or not only_lead(chart, row, first, final, after):
            return 0
        if last == 0:
            return 1
        state, first, final, last = after, FIRST_NEXT, LAST_NEXT, last - 1


@inner_njit
def loop_target(chart: Chart, row: Int) -> Int:
    """The state that the loop bytes of a row lead to, or DEAD without a loop."""
    for half in range(2):
        bits = chart.loops[row, half]
        if bits:
            byte = 0
            while bits >> np.uint64(byte) & np.uint64(1) == 0:
                byte += 1
            return chart.rows[row, 64 * half + byte]
    return DEAD


@shared_njit
def loop_leads(graph: GraphArrays, chart: Chart, state: Int, row: Int) -> Int:
    """The lead bytes all of whose characters loop as the row's ASCII loop does, as in Chart.loops; or a code.

    After some others no more are tried, and count as others. Remembers the answer.
    """
    if chart.loops[row, ROOM] & LEADS_KNOWN:
        return np.int64(chart.loops[row, LEADS])
    code = fill_range(graph, chart, state, row, FIRST_NEXT, 256)
    if code < 0:
        return code
    target = loop_target(chart, row)
    leads = 0
    answer = others = 0
    previous, previous_form = DEAD, -1
    for form in range(len(FORMS)):
        for lead in range(FORMS[form, LEAD], FORMS[form, LAST_LEAD] + 1):
            after = chart.rows[row, lead]
            if after < 0 or others == MANY_OTHERS:
                continue
            if after != previous or form != previous_form:
                answer = form_loops(graph, chart, after, form, target)
                if answer < 0:
                    return answer
                previous, previous_form = after, form
            leads |= answer << (lead - FIRST_LEAD)
            others += 1 - answer
    chart.loops[row, LEADS] = np.uint64(leads)
    chart.loops[row, ROOM] |= LEADS_KNOWN
    return leads
