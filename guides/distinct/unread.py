"""Items that can come to no earlier one: their tokens are read into a trail only when the item ends.

An item of an array whose items must differ is *settled* once nothing that it may come to is there. From then on the
chart tells what may follow, but for three things: tokens in which the item ends, after which another one must be left;
names that an object has already; and what a single token has in whole. So a state within a settled item is a state of
the chart with the tokens since some trail, how deep in the item it is, and whether it is in a string; its mask is the
chart's unless a token that the chart allows does one of these three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..limits import spend
from ..protocol import Mask, tokens_of
from .frames import AFTER, NAME_ESCAPE, NAME_TEXT, PARTIAL, TEXT, TEXT_ESCAPE, WORD, Frame, Text, Trail
from .heads import BETWEEN, ESCAPE, STRING, Heads
from .rivals import ARRAY
from .trail import Trails
from .variety import note
from .ways import Steps, Ways

_WHERE = {TEXT: STRING, NAME_TEXT: STRING, TEXT_ESCAPE: ESCAPE, NAME_ESCAPE: ESCAPE}
EACH_LOOK, EACH_TOKEN = 3000, 50
"""Steps of work, as `guides.limits` counts them, that it takes to look at a state, and at each token that matters."""


class Level(NamedTuple):
    """How deep in an item of a watched array a place is.

    depth: containers of the item that have begun; is_outermost: whether no watched array is around the array
    """

    depth: int
    is_outermost: bool


class Unread:
    """A state within a settled item: the chart's, and the bytes since a trail.

    trail: the one that they lead to, once that has been asked for
    """

    __slots__ = ("base", "level", "state", "text", "trail", "where")

    def __init__(self, state: int, base: Trail, text: Text, level: Level, where: int) -> None:
        self.state = state
        self.base = base
        self.text = text
        self.level = level
        self.where = where
        self.trail: Trail | None = None


def level_of(trail: Trail) -> Level | None:
    """How deep in a settled item a trail is; None elsewhere."""
    frame, depth = trail.frame, 0
    if frame.rivals:
        return None
    while frame.kind is not ARRAY or frame.written is None:
        if frame.is_open or frame.parent is None:
            return None
        frame, depth = frame.parent, depth + 1
    return Level(depth, frame.parent is None) if depth else None


def where_of(trail: Trail) -> int:
    """Where in a text a trail is, as `Heads` has it."""
    return _WHERE.get(trail.mode, BETWEEN)


class Settled:
    """What tokens do in settled items of one guide; hold the automaton's lock.

    open_names: whether objects may have names that the schema does not mention
    """

    def __init__(self, trails: Trails, ways: Ways, heads: Heads, steps: Steps, *, open_names: bool) -> None:
        self._trails = trails
        self._ways = ways
        self._heads = heads
        self._steps = steps
        self._open_names = open_names
        # By a state, where it is in its item, and the level: names; see `is_told`
        self._names: dict[tuple[int, int, Level], frozenset[bytes] | None] = {}
        self._ways_on: dict[tuple[int, bytes], bool] = {}

    def after(self, where: int, level: Level, token: int) -> tuple[int, Level] | None:
        """Where a token leads in an item, and how deep; None if the item ends, or it takes a trail to tell."""
        shift = self._heads.shift(where, token)
        if level.depth + shift.low < 1 or shift.opens_array or (self._open_names and shift.has_names):
            return None
        return shift.where, Level(level.depth + shift.up, level.is_outermost) if shift.up else level

    def is_told(
        self, state: int, where: int, level: Level, allowed: Callable[[], Mask], trail: Callable[[], Trail]
    ) -> bool:
        """Whether all tokens are allowed that the chart allows, but for those that end a name which is there.

        allowed: makes the mask of these; trail: the trail of the place
        """
        if where == ESCAPE:
            return False
        key = (state, where, level)
        if key in self._names:
            names = self._names[key]
        else:
            names = self._look(state, where, level, allowed())
            note(self._names, [key], names)
        if not names:
            return names is not None
        at = trail()
        # A name in progress may come to be one of those that are in the token.
        return at.mode not in (NAME_TEXT, NAME_ESCAPE) and not any(map(at.frame.has_name, names))

    def _look(self, state: int, where: int, level: Level, allowed: Mask) -> frozenset[bytes] | None:
        """The names that must not be there already, for all tokens to be allowed; None if that is not all it takes."""
        heads = self._heads
        tokens = tokens_of(allowed & heads.shifting[where])
        spend(EACH_LOOK + EACH_TOKEN * len(tokens))
        names: set[bytes] = set()
        leaving: list[int] = []
        for token in tokens:
            shift = heads.shift(where, token)
            if self._open_names and shift.names:
                if shift.is_odd or (not self._trails.canonical and any(b"\\" in name for name in shift.names)):
                    return None
                names.update(shift.names)
            if level.depth + shift.low < 1:
                leaving.append(token)
        after: list[int] = self._steps.after_all(state, np.array(leaving, np.int32)).tolist()
        for token, target in zip(leaving, after, strict=True):
            if not self._goes_on(target, heads.behind(where, level.depth, token), level):
                return None
        return frozenset(names)

    def _goes_on(self, state: int, rest: bytes, level: Level) -> bool:
        """Whether a text surely has an end after what a token has behind an item, whatever the items are."""
        if rest[:1] == b"]":
            # What is around is as settled as the item was.
            return level.is_outermost and self._trails.openings.search(rest) is None
        key = (state, rest)
        known = self._ways_on.get(key)
        if known is None:
            known = self._look_on(state, rest)
            note(self._ways_on, [key], known)
        return known

    def _look_on(self, state: int, rest: bytes) -> bool:
        array = Frame(None, ARRAY, self._trails.nothing, 0)
        at, _ = self._trails.read(Trail(array, AFTER), rest, 0, lambda _: False)
        if at is None or at.frame.length or (at.frame.parent is not None and at.frame.parent.length):
            return False
        variety = self._ways.variety
        if at.mode == AFTER and variety.may_have(state, 0x5D):
            return True
        if at.mode in PARTIAL and variety.is_various(state, at):
            return True
        names = None if at.mode == WORD else variety.room(state, at.mode, at.frame.kind, at.text)
        # A container that begins there has no names yet.
        return names is not None and (at.frame.parent is not None or not names)
