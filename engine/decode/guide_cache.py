"""A guide as the loop asks it: which tokens a step may choose from, and when the text must end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...guides import AlignedGuide
from ...guides.goals import GoalGuide
from ...guides.healing.crossing import Crossings
from ...guides.limits import Limits
from ...guides.locks import new_lock
from ...guides.protocol import ByteGuide, Guide, Mask, mask_within
from ...kernels.logits.mask import allowed_ids, popcount
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


class GuideCache:
    """A guide with the menus of the states met so far; shared by rows and calls, safe between threads.

    sparse_head_limit: up to how many tokens a menu lists; a menu of more is asked for as a mask
    free: the text is free but for the goals of the guide: its budget, stop strings and stop ids may end it
    limits: of what stands before the guide, the end of a prompt
    """

    def __init__(
        self, guide: Guide, sparse_head_limit: int, *, free: bool = False, limits: Limits | None = None
    ) -> None:
        self.guide = guide
        self.limits = limits
        self.sparse_head_limit = sparse_head_limit
        self.free = free
        self.goals = guide if isinstance(guide, GoalGuide) else None
        self._quick_fits: Callable[[int, int], bool] | None = getattr(guide, "fits", None)
        self._eos = frozenset(guide.vocabulary.eos_ids)
        self._menus: dict[int, Menu] = {}
        self._enough: dict[int, int] = {}
        self._listed = 0
        self._advancing: dict[int, NDArray[np.int32]] = {}
        self._behind: OrderedDict[bytes, BehindPrompt] = OrderedDict()
        self._lock = new_lock()

    @property
    def distance(self) -> int:
        """Fewest tokens that complete a text."""
        return self.guide.distance(self.guide.start)

    @cached_property
    def crossings(self) -> Crossings | None:
        """The tokens that lead from a text before the guide's into it; None for a guide that does not read bytes."""
        return Crossings(self.guide) if isinstance(self.guide, ByteGuide) else None

    def behind(self, tail: bytes) -> BehindPrompt:
        """This constraint behind a text that is to be spelt first; the last ones are remembered."""
        with self._lock:
            found = self._behind.get(tail)
            if found is None:
                found = self._behind[tail] = BehindPrompt(self, tail)
                if len(self._behind) > _TAILS:
                    self._behind.popitem(last=False)
            else:
                self._behind.move_to_end(tail)
            return found

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

    def allowed(self, state: int, stop_ids: frozenset[int], left: int | None = None) -> Mask:
        """What a step may choose from, the caller's own: with `left` only tokens after which the rest still fits.

        Stop ids end a text as EOS does, and so only where it is complete; where nothing else is left they are text.
        """
        mask = (self.guide.mask(state) if left is None else mask_within(self.guide, state, left)).copy()
        if stop_ids:
            stops = np.zeros_like(mask)
            for token in stop_ids:
                stops[token >> 5] |= np.uint32(1 << (token & 31))
            if self.guide.is_accepting(state):
                mask |= stops
            elif (mask & ~stops).any():
                mask &= ~stops
        return mask

    def progress(self, state: int) -> int:
        """How far the text is with the goals; 0 if there are none."""
        return 0 if self.goals is None else self.goals.progress(state)

    def progress_after(self, state: int, token: int) -> int:
        """How far it is after an allowed token."""
        return 0 if self.goals is None else self.goals.progress_after(state, token)

    def advancing(self, state: int) -> NDArray[np.int32]:
        """The allowed tokens that lead on to a goal, ascending: int32 [n]."""
        found = self._advancing.get(state)
        if found is None:
            found = np.zeros(0, np.int32) if self.goals is None else allowed_ids(self.goals.advancing(state))
            if len(self._advancing) > _TAILS:
                self._advancing.clear()
            self._advancing[state] = found
        return found

    def menu_of(self, mask: Mask) -> Menu:
        """What a mask allows."""
        count = int(popcount(mask[None])[0])
        if count > max(self.sparse_head_limit, len(self._eos)):
            return Menu(None, -1, False)
        ids = allowed_ids(mask)
        ends = count <= len(self._eos) and self._eos.issuperset(as_list(ids))
        only = int(ids[0]) if count == 1 and not ends else -1
        return Menu(torch.as_tensor(ids, dtype=torch.int64) if count <= self.sparse_head_limit else None, only, ends)

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


class BehindPrompt(GuideCache):
    """A constraint behind the end of a prompt. Once that is spelt, what is known of the constraint is used.

    Tokens that lie within the end of the prompt count neither in distances nor against budgets.
    """

    def __init__(self, guide_cache: GuideCache, tail: bytes) -> None:
        assert isinstance(guide_cache.guide, ByteGuide)
        crossings, limits = guide_cache.crossings, guide_cache.limits
        self._aligned = AlignedGuide(guide_cache.guide, tail, counts_tail=False, crossings=crossings, limits=limits)
        super().__init__(self._aligned, guide_cache.sparse_head_limit, free=guide_cache.free, limits=guide_cache.limits)
        self.goals = guide_cache.goals
        self._guide_cache = guide_cache
        self._begin = len(tail)

    def allowed(self, state: int, stop_ids: frozenset[int], left: int | None = None) -> Mask:
        """What a step may choose from; within the end of the prompt nothing stops."""
        return super().allowed(state, frozenset() if state < self._begin else stop_ids, left)

    def progress(self, state: int) -> int:
        """How far the text is with the goals, of which none begins within the prompt."""
        return self._guide_cache.progress(max(state - self._begin, 0))

    def progress_after(self, state: int, token: int) -> int:
        """How far it is after an allowed token."""
        if state >= self._begin:
            return self._guide_cache.progress_after(state - self._begin, token)
        return self.progress(self.guide.advance(state, token))

    def advancing(self, state: int) -> NDArray[np.int32]:
        """The allowed tokens that lead on to a goal, by what they have beyond the end of the prompt."""
        if state >= self._begin:
            return self._guide_cache.advancing(state - self._begin)
        node = self._aligned.end_node(state)
        if self.goals is None or node is None:
            return np.zeros(0, np.int32)
        return allowed_ids(self.goals.advancing_below(self.goals.start, node))

    def menu(self, state: int) -> Menu:
        """What `state` allows."""
        return super().menu(state) if state < self._begin else self._guide_cache.menu(state - self._begin)

    def fits(self, state: int, left: int) -> bool:
        """Whether `left` tokens of output are enough to complete the text."""
        return super().fits(state, left) if state < self._begin else self._guide_cache.fits(state - self._begin, left)


_REMEMBERED = 1 << 20
_TAILS = 256
