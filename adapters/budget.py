"""Masks that keep a text within its budget, for hosts that choose from a mask whatever comes."""

from __future__ import annotations

from weakref import ref

import numpy as np

from ..checks import whole
from ..errors import BudgetError
from ..guides.protocol import Guide, Mask, mask_within

MOST = 1 << 16
"""For how many states of a guide it is remembered how much is enough."""

# By a guide's id, as long as there is the guide: how many tokens left are enough for all that each state allows
_KNOWN: dict[int, tuple[ref[Guide], dict[int, int]]] = {}


def within_budget(guide: Guide, state: int, left: int) -> Mask | None:
    """The mask that leaves `left - 1` tokens enough to complete the text; None if that is the guide's own.

    It is remembered how many are enough for all that a state allows, since then the mask costs nothing. A state is
    asked for half of what is left first, so that one that is met again and again costs a question only every time that
    is halved.
    """
    known = _enough_of(guide)
    if known.get(state, left + 1) <= left:
        return None
    if len(known) >= MOST:
        known.clear()
    for enough in (left // 2, left):
        within = mask_within(guide, state, enough)
        if np.array_equal(within, guide.mask(state)):
            known[state] = enough
            return None
    return within


def _enough_of(guide: Guide) -> dict[int, int]:
    """What is remembered of a guide: by identity, since equal guides may number their states in other ways."""
    if not type(guide).__weakrefoffset__:  # one of somebody else's, whose end nobody would be told of
        return {}
    number = id(guide)
    found = _KNOWN.get(number)
    if found is None:
        found = _KNOWN[number] = ref(guide, lambda _: _KNOWN.pop(number, None)), {}
    return found[1]


def check_budget(guide: Guide, most: int, option: str) -> None:
    """Raise BudgetError if no text of the guide has at most so many tokens; option: as the host calls them."""
    needed = guide.distance(guide.start)
    if needed > whole(most, option):
        raise BudgetError(f"{option}={most}: the shortest text of this guide has {needed} tokens", needed)
