"""An automaton that reads any bytes, and knows of the last character whether it is one of a set: those of words."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..graph.utf8 import byte_fragment
from ..syntax import Ranges

OUTSIDE, WORD = 0, 1
"""The states after whole characters: those that are not in the set, and those that are."""


@lru_cache(maxsize=4)
def last_character(words: Ranges) -> NDArray[np.int32]:
    """The automaton of a set, int32 [states, 256], with OUTSIDE as its only state where that is empty.

    It starts in OUTSIDE, and is in OUTSIDE or WORD after each whole character. Bytes that are no UTF-8 are characters
    outside of the set; right after a character that breaks off none of the set begins.
    """
    if not words:
        return np.zeros((1, 256), np.int32)
    shape = byte_fragment(words)
    # The template's entry is both OUTSIDE and WORD; its other nodes, within a character, come after these.
    after = np.full((len(shape.ends) + 1, 256), -1, np.int32)
    begin = 0
    for node, end in enumerate(shape.ends.tolist()):
        for low, high, target in shape.edges[begin:end].tolist():
            after[node + 1 if node else OUTSIDE, low : high + 1] = WORD if target < 0 else target + 1
        begin = end
    first = np.where(after[OUTSIDE] < 0, OUTSIDE, after[OUTSIDE])
    after[OUTSIDE] = after[WORD] = first
    for state in range(2, len(after)):
        after[state] = np.where(after[state] < 0, first, after[state])
    return after
