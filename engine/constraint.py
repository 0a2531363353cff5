"""A guide as the loop asks it: which tokens a step may choose from, and when the text must end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..guides.protocol import Guide, Mask
from ..kernels.mask import allowed_ids, popcount
from .arrays import as_list


@dataclass(frozen=True, slots=True)
class Menu:
    """The tokens allowed in a state.

    ids: int64 tensor of all of them where they are few, else None
    only: the one token, where there is just one and it does not end the text, else -1
    ends: nothing but EOS is allowed
    """

    ids: Tensor | None
    only: int
    ends: bool


class Constraint:
    """A guide with the menus of the states met so far; shared by rows and calls, safe between threads.

    few: up to how many tokens a menu lists; a menu of more is asked for as a mask.
    """

    def __init__(self, guide: Guide, few: int) -> None:
        self.guide = guide
        self.few = few
        self._quick_fits: Callable[[int, int], bool] | None = getattr(guide, "fits", None)
        self._eos = frozenset(guide.vocabulary.eos_ids)
        self._menus: dict[int, Menu] = {}
        self._enough: dict[int, int] = {}
        self._listed = 0

    def menu(self, state: int) -> Menu:
        """What `state` allows; remembered, up to a million listed ids."""
        menu = self._menus.get(state)
        if menu is None:
            menu = self.menu_of(self.guide.mask(state))
            self._listed += 1 if menu.ids is None else len(menu.ids)
            if self._listed > _REMEMBERED:
                self._menus.clear()
                self._enough.clear()
                self._listed = 0
            self._menus[state] = menu
        return menu

    def menu_of(self, mask: Mask) -> Menu:
        """What a mask allows."""
        count = int(popcount(mask[None])[0])
        if count > max(self.few, len(self._eos)):
            return Menu(None, -1, False)
        ids = allowed_ids(mask)
        ends = count <= len(self._eos) and self._eos.issuperset(as_list(ids))
        only = int(ids[0]) if count == 1 and not ends else -1
        return Menu(torch.as_tensor(ids, dtype=torch.int64) if count <= self.few else None, only, ends)

    def fits(self, state: int, left: int) -> bool:
        """Whether `left` tokens are enough to complete the text.

        Asks the guide about half of them first, so that a state that is met again and again, with ever less
        left, costs a question only every time that is halved.
        """
        known = self._enough.get(state)
        if known is not None and known <= left:
            return True
        for enough in (left // 2, left):
            if enough >= 0 and self._guide_fits(state, enough):
                self._enough[state] = enough
                return True
        return False

    def _guide_fits(self, state: int, left: int) -> bool:
        if self._quick_fits is not None:
            return self._quick_fits(state, left)
        return self.guide.distance(state) <= left

    def tight(self, state: int, left: int) -> bool:
        """Whether so little is left that most tokens would not fit."""
        return not self.fits(state, left - 2)


_REMEMBERED = 1 << 20
