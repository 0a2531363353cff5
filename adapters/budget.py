"""Masks that keep a text within its budget, for hosts that choose from a mask whatever comes."""

from __future__ import annotations

import numpy as np

from ..checks import whole
from ..errors import BudgetError
from ..guides.protocol import Guide, Mask, mask_within

MOST = 1 << 16
"""For how many states it is remembered how much is enough."""


class Budgets:
    """How many tokens are left such that all that a state allows leaves enough of them, by guide and state.

    Then the mask is the guide's own, which costs nothing. A state is asked for half of what is left first, so that one
    that is met again and again costs a question only every time that is halved.
    """

    def __init__(self) -> None:
        self._enough: dict[tuple[int, int], int] = {}

    def mask(self, guide: Guide, state: int, left: int) -> Mask | None:
        """The mask that leaves `left - 1` tokens enough to complete the text; None if that is the guide's own."""
        key = (id(guide), state)
        known = self._enough.get(key)
        if known is not None and known <= left:
            return None
        own = guide.mask(state)
        if len(self._enough) >= MOST:
            self._enough.clear()
        within: Mask = own
        for enough in (left // 2, left):
            within = mask_within(guide, state, enough)
            if np.array_equal(within, guide.mask(state)):
                self._enough[key] = enough
                return None
        return within


def check_budget(guide: Guide, most: int, option: str) -> None:
    """Raise BudgetError if no text of the guide has at most so many tokens; option: as the host calls them."""
    needed = guide.distance(guide.start)
    if needed > whole(most, option):
        raise BudgetError(f"{option}={most}: the shortest text of this guide has {needed} tokens", needed)
