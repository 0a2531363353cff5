"""Places where nothing in progress can come to a value that is there: their tokens are read into a trail only later.

An item of an array whose items must differ is *settled* once nothing that it may come to is there. From then on the
chart tells what may follow, but for three things: tokens in which the item ends, after which another one must be left;
names that an object has already; and what a single token has in whole. So a place within a settled item is a state of
the chart with the tokens since some trail, how deep in the item it is, and whether it is in a string; its mask is the
chart's unless a token that the chart allows does one of these three. The same holds of objects whose names must differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..limits import spend
from ..protocol import DEAD
from .cardinality import note
from .continuations import ChartSteps, Continuations
from .frames import (
    AFTER,
    NAME_ESCAPE,
    NAME_TEXT,
    PARTIAL,
    TEXT,
    TEXT_ESCAPE,
    WORD,
    JSONTrail,
    OpenContainer,
    Text,
    joined,
    more_of,
)
from .summaries import BETWEEN, ESCAPE, STRING, FewTokens, TokenSummaries
from .trail import NO_PLACES, Completed, JSONTrails
from .values import ARRAY, OBJECT

EACH_LOOK, EACH_TOKEN = 3000, 50
"""Steps of work, as `guides.limits` counts them, that it takes to look at a spot, and at each token that matters."""
EACH_SPOT, EACH_MOVE = 500, 100
"""About how many bytes a spot takes, and each move from it."""
Among = Callable[[FewTokens], list[int]]
"""Gives those of some tokens that the chart allows."""
NO_SIGNATURE = -2
NEW_NAME = 3
"""Where a name is in progress that may be one that is there."""
OUTER, INNER, NAMES = range(3)
"""What ends with the depth of a spot: an item of an array that is in no other one that is watched; of one within an
item; an object whose names must differ, with its trail."""


class MaskConditions(NamedTuple):
    """Values without which all tokens of the chart are allowed: names in the object, items in the array."""

    names: frozenset[bytes] = frozenset()
    items: frozenset[bytes] = frozenset()


class Spot:
    """The part that settled places have in common of which the chart's state is equal, and where in what they are.

    where: as `summaries` has it, or in a new name; depth: containers that have begun in the item, 0 in a string that is
    an item; scope: what ends with it; is_piece: whether the string in progress must differ
    moves: the spots after tokens, None where a trail is to be read
    needs: None where more must be looked at than names and items, unless it `is_new` and nobody has asked
    is_plain: whether nothing is needed, and nothing in progress must differ
    signature: of the chart's mask, as long as its numbers mean the same
    """

    __slots__ = ("depth", "is_new", "is_piece", "is_plain", "moves", "needs", "scope", "signature", "state", "where")

    def __init__(self, state: int, where: int, depth: int, scope: int) -> None:
        self.state = state
        self.where = where
        self.depth = depth
        self.scope = scope
        self.is_piece = where == NEW_NAME or not depth
        self.moves: dict[int, Spot | None] = {}
        self.is_new = True
        self.is_plain = False
        self.needs: MaskConditions | None = None
        self.signature = NO_SIGNATURE


class RememberedPlace:
    """A state of the chart with a trail, or in a settled spot with the bytes since the trail of another place."""

    __slots__ = ("_base", "_text", "spot", "state", "trail")

    def __init__(self, state: int, trail: JSONTrail | None, spot: Spot | None) -> None:
        self.state = state
        self.trail = trail
        self.spot = spot
        self._base: RememberedPlace | None = None
        self._text: Text | None = None

    def on(self, spot: Spot, data: bytes) -> RememberedPlace:
        """The place after a token that leads from this one's spot to another."""
        after, trail = RememberedPlace(spot.state, None, spot), self.trail
        if trail is None:
            after._base, after._text = self._base, more_of(self._text, data)
        elif spot.is_piece:
            after.trail = JSONTrail(trail.frame, trail.mode, more_of(trail.text, data), trail.is_free or None)
        else:
            after._base, after._text = self, data
        return after

    @property
    def unread(self) -> tuple[RememberedPlace, bytes]:
        """The place that has a trail, and the bytes since."""
        assert self._base is not None, "it has a trail"
        return self._base, joined(self._text)


class SettledSpots:
    """The settled spots of one guide; hold the automaton's lock.

    open_names: whether objects may have names that the schema does not mention; scarce: whether these may be so few
    that all can be there, so that no object is settled before it ends
    """

    def __init__(
        self,
        trails: JSONTrails,
        continuations: Continuations,
        summaries: TokenSummaries,
        steps: ChartSteps,
        *,
        open_names: bool,
        scarce: bool,
    ) -> None:
        self._trails = trails
        self._continuations = continuations
        self._summaries = summaries
        self._steps = steps
        self._open_names = open_names
        self._scarce = scarce
        self._spots: dict[tuple[int, int, int, int], Spot] = {}
        # What must not be there after a token that leads to a state, behind the end of an item
        self._onward: dict[tuple[int, bytes], frozenset[bytes] | None] = {}

    def forget_signatures(self) -> None:
        """Forget what the chart's signatures are, whose numbers may come to mean something else."""
        for spot in self._spots.values():
            spot.signature = NO_SIGNATURE

    def spot(self, state: int, trail: JSONTrail) -> Spot | None:
        """The spot of a place; None if it is not settled."""
        frame, mode, depth = trail.frame, trail.mode, 0
        where = _where(mode)
        if frame.rivals or mode == NAME_ESCAPE:
            return None
        if mode == NAME_TEXT and self._open_names:
            where = NEW_NAME  # of which there are many
            if not self._trails.canonical and not self._trails.is_free(trail):
                return None
        if frame.kind is ARRAY and frame.written is not None:
            if mode != TEXT or not self._comes_to_many(state, trail):
                return None
        elif self._scarce:
            return None
        else:
            while frame.kind is not ARRAY or frame.written is None:
                depth += 1
                if frame.is_open:
                    return None
                if frame.parent is None:
                    return self._at(state, where, depth, NAMES) if frame.kind is OBJECT else None
                frame = frame.parent
        return self._at(state, where, depth, OUTER if frame.parent is None else INNER)

    def _comes_to_many(self, state: int, trail: JSONTrail) -> bool:
        """Tell whether the string in progress can come to none that is there, or, unless it ends, to very many."""
        return self._trails.is_free(trail) or (self._trails.canonical and self._continuations.bounds.is_robust(state))

    def _at(self, *key: *tuple[int, int, int, int]) -> Spot:
        known = self._spots.get(key)
        if known is None:
            known = self._spots[key] = Spot(*key)
            self._trails.states_bytes += EACH_SPOT
        return known

    def after(self, spot: Spot, token: int) -> Spot | None:
        """The spot that a token leads to; None if a trail is to be read, or the chart does not allow it."""
        if token in spot.moves:
            return spot.moves[token]
        shift, found, where = self._summaries.shift(STRING if spot.is_piece else spot.where, token), None, spot.where
        if spot.is_piece:
            is_read = shift.end > 0 or shift.where == ESCAPE
        else:
            is_read = spot.depth + shift.low < 1 or shift.opens_array or (self._open_names and shift.has_names)
            where = shift.where
        if not is_read:
            state = self._steps.after(spot.state, token)
            found = None if state == DEAD else self._at(state, where, spot.depth + shift.up, spot.scope)
        spot.moves[token] = found
        self._trails.states_bytes += EACH_MOVE
        return found

    def look(self, spot: Spot, among: Among) -> None:
        """Find out what a spot needs, if that is not known."""
        spot.is_new = False
        spot.needs = self._look(spot, among) if spot.where != ESCAPE else None
        spot.is_plain = spot.needs == MaskConditions() and not spot.is_piece

    def _look(self, spot: Spot, among: Among) -> MaskConditions | None:
        summaries, where = self._summaries, STRING if spot.is_piece else spot.where
        tokens = among(summaries.shifting[where] if spot.depth else summaries.quotes)
        spend(EACH_LOOK + EACH_TOKEN * len(tokens))
        names: set[bytes] = set()
        items: set[bytes] = set()
        leaving: list[int] = []
        for token in tokens:
            shift = summaries.shift(where, token)
            if spot.depth and self._open_names and shift.names:
                if shift.is_odd or (not self._trails.canonical and any(b"\\" in name for name in shift.names)):
                    return None
                names.update(shift.names)
            if spot.depth + shift.low < 1 if spot.depth else shift.end:
                leaving.append(token)
        after: list[int] = self._steps.after_each(spot.state, leaving).tolist() if leaving else []
        for token, target in zip(leaving, after, strict=True):
            more = self._behind(target, summaries.behind(where, spot.depth, token), spot)
            if more is None:
                return None
            items |= more
        return MaskConditions(frozenset(names), frozenset(items))

    def _behind(self, state: int, rest: bytes, spot: Spot) -> frozenset[bytes] | None:
        """The values without which a text has an end after what a token has behind an item; None if it takes more."""
        if spot.scope == NAMES or rest[:1] == b"]":
            # What is around is as settled as the item was.
            return None if spot.scope == INNER or self._trails.openings.search(rest) else frozenset()
        key = (state, rest)
        if key not in self._onward:
            note(self._onward, [key], self._look_behind(state, rest))
        return self._onward[key]

    def _look_behind(self, state: int, rest: bytes) -> frozenset[bytes] | None:
        array, log = OpenContainer(None, ARRAY, self._trails.nothing, 0), list[Completed]()
        at, _ = self._trails.read(JSONTrail(array, AFTER), rest, 0, NO_PLACES, log)
        whole = [each.value for each in log if not each.is_name]
        items = frozenset(value for value in whole if isinstance(value, bytes))
        if at is None or len(items) < len(whole) or (items and not self._trails.canonical):
            return None
        is_inner = at.frame.parent is not None
        return items if not (items and is_inner) and self._goes_on(state, at) else None

    def _goes_on(self, state: int, at: JSONTrail) -> bool:
        """Tell whether what is in progress, or to come, may be very many values."""
        bounds = self._continuations.bounds
        if at.mode == AFTER and bounds.may_have(state, 0x5D):
            return True
        if at.mode in PARTIAL and bounds.is_various(state, at):
            return True
        names = None if at.mode == WORD else bounds.room(state, at.mode, at.frame.kind, at.text)
        # A container that begins there has no names yet.
        return names is not None and (at.frame.parent is not None or not names)

    def is_told(self, spot: Spot, trail: JSONTrail) -> bool:
        """Tell whether all tokens of the chart are allowed in a spot that needs something, with the place's trail."""
        needs, frame = spot.needs, trail.frame
        assert needs is not None
        if spot.is_piece and not self.is_unlike(trail):
            return False
        # A name or item in progress may come to be one of those that are in the token.
        if needs.names and (trail.mode in (NAME_TEXT, NAME_ESCAPE) or any(map(frame.has_name, needs.names))):
            return False
        if needs.items:
            for _ in range(spot.depth):
                assert frame.parent is not None
                frame = frame.parent
            assert frame.written is not None
            begin = None if spot.depth else joined(trail.text)
            for item in needs.items:
                if item in frame.written or (begin is not None and item.startswith(begin)):
                    return False
        return True

    def is_unlike(self, trail: JSONTrail) -> bool:
        """Tell whether no token completes the string in progress to one that is there."""
        written = trail.frame.written
        if trail.is_free or written is None or not written.count:
            return True
        begin, closers = joined(trail.text), self._summaries.closers
        if written.count > len(closers):
            return not written.ends(begin, closers.keys())
        alike = list(written.beginning(begin))
        trail.is_free = not alike
        return not any(text[len(begin) :] in closers for text in alike)


def _where(mode: int) -> int:
    return STRING if mode in (TEXT, NAME_TEXT) else ESCAPE if mode in (TEXT_ESCAPE, NAME_ESCAPE) else BETWEEN
