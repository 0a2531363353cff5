"""The table of well-formed UTF-8, which `guides/graph/utf8.py` reads for code outside kernels.

Source: The Unicode Standard, table 3-7, "Well-Formed UTF-8 Byte Sequences".
"""

from __future__ import annotations

import numpy as np

from .jit.aliases import Int
from .jit.wide import inner_njit

# Bytes below FIRST_NEXT are ASCII; FIRST_NEXT to LAST_NEXT are continuation bytes.
FIRST_NEXT, LAST_NEXT = 0x80, 0xBF
# Columns of the forms of multi-byte characters: ranges of lead and second bytes, and the number of bytes after these.
LEAD, LAST_LEAD, SECOND, LAST_SECOND, MORE = range(5)
FORMS = np.array(
    [
        (0xC2, 0xDF, FIRST_NEXT, LAST_NEXT, 0),
        (0xE0, 0xE0, 0xA0, LAST_NEXT, 1),
        (0xE1, 0xEC, FIRST_NEXT, LAST_NEXT, 1),
        (0xED, 0xED, FIRST_NEXT, 0x9F, 1),
        (0xEE, 0xEF, FIRST_NEXT, LAST_NEXT, 1),
        (0xF0, 0xF0, 0x90, LAST_NEXT, 2),
        (0xF1, 0xF3, FIRST_NEXT, LAST_NEXT, 2),
        (0xF4, 0xF4, FIRST_NEXT, 0x8F, 2),
    ],
    dtype=np.int32,
)
# States of `utf8_step`: a character boundary, after the lead byte of each form, one or two bytes before the end.
PLACES = 1 + len(FORMS) + 2


@inner_njit
def utf8_step(state: Int, byte: Int) -> Int:
    """Return the next state of an automaton of well-formed UTF-8: 0 is a character boundary, -1 is ill-formed."""
    if state == 0:
        if byte < FIRST_NEXT:
            return 0
        for i in range(len(FORMS)):
            if FORMS[i, LEAD] <= byte <= FORMS[i, LAST_LEAD]:
                return i + 1
        return -1
    if state <= len(FORMS):
        form = state - 1
        if FORMS[form, SECOND] <= byte <= FORMS[form, LAST_SECOND]:
            return 0 if FORMS[form, MORE] == 0 else len(FORMS) + FORMS[form, MORE]
        return -1
    if FIRST_NEXT <= byte <= LAST_NEXT:
        return state - 1 if state > len(FORMS) + 1 else 0
    return -1


@inner_njit
def begins(byte: Int) -> bool:
    """Test whether a byte is the first of a character."""
    return not FIRST_NEXT <= byte <= LAST_NEXT
