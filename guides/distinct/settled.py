"""Places of items whose tokens are read into a trail only later, since the chart tells what may follow.

An item of an array whose items must differ is *settled* once nothing that it may come to is there. From then on the
chart tells what may follow, but for three things: tokens in which the item ends, after which another one must be left;
names that an object has already; and what a single token has in whole. Before that it is *early* where it can come to
something else after every token, however it begins. A place of either kind is a state of the chart with the tokens
since some trail, how deep in the item it is, and whether it is in a string; its mask is the chart's unless a token that
the chart allows does one of the three. The same holds between items, and of objects whose names must differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from ..limits import spend
from ..protocol import DEAD, Mask
from .cardinality import note
from .continuations import ChartSteps, Continuations
from .effects import Effects
from .frames import (
    AFTER,
    ITEM,
    NAME_ESCAPE,
    NAME_TEXT,
    PARTIAL,
    TEXT,
    TEXT_ESCAPE,
    WORD,
    JSONTrail,
    OpenContainer,
    joined,
)
from .summaries import BETWEEN, ESCAPE, STRING, FewTokens, Shift, TokenSummaries
from .trail import NO_PLACES, Beginnings, Completed, JSONTrails
from .values import ARRAY, EMPTY, OBJECT, Value

_EMPTY = re.compile(rb"(?:\A|[\[{])[ \t\n\r]*[\]}]")
_EMPTIES = frozenset(EMPTY.values())
_BRACKET = re.compile(rb"\[[ \t\n\r]*")
EACH_LOOK, EACH_TOKEN = 3000, 50
"""Steps of work, as `guides.limits` counts them, that it takes to look at a spot, and at each token that matters."""
EACH_SPOT, EACH_MOVE = 500, 100
"""About how many bytes a spot takes, and each move from it."""
Among = Callable[[FewTokens], FewTokens]
"""Gives those of some tokens that the chart allows."""
Copying = Callable[[], Mask]
"""Makes a copy of the chart's mask, which is mostly not needed."""
NO_SIGNATURE = -2
MOST_KINDS = 1 << 11
"""Of how many kinds of spots it is remembered what they need."""
NEW_NAME, NEXT, BEHIND = 3, 4, 5
"""Where a name is in progress that may be one that is there, an item comes next, an item is complete."""
OUTER, INNER, NAMES, UNKNOWN = range(4)
"""What ends with the depth of a spot: an item of an array that is in no other one that is watched; of one within an
item; an object whose names must differ, with its trail; or nothing is known of a place but its state."""


class MaskConditions(NamedTuple):
    """Values without which all tokens of the chart are allowed: names in the object, items in the array.

    others: items that are no strings; tokens: those that have any of these, and must be read
    """

    names: frozenset[bytes] = frozenset()
    items: frozenset[bytes] = frozenset()
    others: frozenset[Value] = frozenset()
    tokens: frozenset[int] = frozenset()


class Spot:
    """The part that places have in common of which the chart's state is equal, and where in what they are.

    where: as `summaries` has it, in a new name, or between items; depth: containers that have begun in the item, 0 in
    a string that is an item; scope: what ends with it; is_early: whether the item may be equal to one that is there
    is_piece: whether the string in progress must differ
    moves: the spots after tokens, None where a trail is to be read; exits: the chart's states after those that end the
    array
    needs: None where more must be looked at than names and items, unless it `is_new` and nobody has asked
    is_plain: whether nothing is needed, and nothing in progress must differ
    signature: of the chart's mask, as long as its numbers mean the same
    """

    __slots__ = (
        *("depth", "exits", "is_early", "is_new", "is_piece", "is_plain", "moves", "needs", "scope"),
        *("signature", "state", "where"),
    )

    def __init__(self, state: int, where: int, depth: int, scope: int, is_early: bool) -> None:
        self.state = state
        self.where = where
        self.depth = depth
        self.scope = scope
        self.is_early = is_early
        self.is_piece = where == NEW_NAME or (is_early and where == STRING and not depth)
        self.moves: dict[int, Spot | None] = {}
        self.exits: dict[int, int] = {}
        self.is_new = scope != UNKNOWN
        self.is_plain = False
        self.needs: MaskConditions | None = None
        self.signature = NO_SIGNATURE


class Landing(NamedTuple):
    """The place after what follows an item: a spot, or a state of the chart where the array has ended; else nothing."""

    spot: Spot | None = None
    state: int | None = None


NOWHERE = Landing()


class SettledSpots:
    """The spots of one guide; hold the automaton's lock. Items are followed over their end in canonical spelling only.

    items: where items of arrays begin that must differ
    open_names: whether objects may have names that the schema does not mention; scarce: whether these may be so few
    that all can be there, so that no object is settled before it ends
    """

    def __init__(
        self,
        trails: JSONTrails,
        continuations: Continuations,
        summaries: TokenSummaries,
        steps: ChartSteps,
        effects: Effects,
        items: Beginnings,
        *,
        open_names: bool,
        scarce: bool,
    ) -> None:
        self._trails = trails
        self._continuations = continuations
        self._summaries = summaries
        self._steps = steps
        self._effects = effects
        self._items = items
        self._follows_items = trails.canonical and not items.beside_free
        self._open_names = open_names
        self._scarce = scarce
        self._spots: dict[tuple[int, int, int, int, bool], Spot] = {}
        # What must not be there after a token that leads to a state, behind the end of an item; and where that leads
        self._onward: dict[tuple[int, bytes], frozenset[bytes] | None] = {}
        self._landings: dict[tuple[int, int, bytes], Landing] = {}
        # What spots need, by tokens that the chart allows there and the states after those in which the item ends
        self._leaving: dict[tuple[int, int, bytes], tuple[frozenset[bytes] | None, list[int]]] = {}
        self._behind_leaving: dict[tuple[int, int, bytes, int, bytes], frozenset[bytes] | None] = {}

    def forget_signatures(self) -> None:
        """Forget what the chart's signatures are, whose numbers may come to mean something else."""
        for spot in self._spots.values():
            spot.signature = NO_SIGNATURE

    def spot(self, state: int, trail: JSONTrail) -> Spot:
        """The spot of a place."""
        frame, mode, depth = trail.frame, trail.mode, 0
        where, unknown = self._where(mode), self._at(state, BETWEEN, 0, UNKNOWN, True)
        is_watched = frame.kind is ARRAY and frame.written is not None
        is_early = bool(frame.rivals) and (is_watched or mode not in PARTIAL or not self._trails.is_free(trail))
        if mode == NAME_ESCAPE or (is_early and (is_watched or not self._follows_items)):
            return unknown
        if is_early and where == NEW_NAME and not self._continuations.bounds.is_robust(state):
            return unknown
        if where == NEW_NAME and not self._trails.canonical and not self._trails.is_free(trail):
            return unknown
        if is_watched:
            scope = OUTER if frame.parent is None else INNER
            if mode == TEXT and self._comes_to_many(state, trail):
                return self._at(state, where, 0, scope, not self._differs(trail))
            if mode not in (ITEM, AFTER) or scope == INNER or not self._follows_items:
                return unknown
            return self._at(state, NEXT if mode == ITEM else BEHIND, 0, OUTER, True)
        if self._scarce:
            return unknown
        while frame.kind is not ARRAY or frame.written is None:
            depth += 1
            if frame.is_open:
                return unknown
            if frame.parent is None:
                is_object = frame.kind is OBJECT and not is_early
                return self._at(state, where, depth, NAMES, False) if is_object else unknown
            frame = frame.parent
        if frame.parent is not None:
            return unknown if is_early else self._at(state, where, depth, INNER, False)
        return self._at(state, where, depth, OUTER, is_early)

    def _where(self, mode: int) -> int:
        if mode == NAME_TEXT and self._open_names:
            return NEW_NAME  # of which there are many
        return STRING if mode in (TEXT, NAME_TEXT) else ESCAPE if mode in (TEXT_ESCAPE, NAME_ESCAPE) else BETWEEN

    def _comes_to_many(self, state: int, trail: JSONTrail) -> bool:
        """Tell whether the string in progress can come to none that is there, or, unless it ends, to very many."""
        return self._trails.is_free(trail) or (self._trails.canonical and self._continuations.bounds.is_robust(state))

    def _differs(self, trail: JSONTrail) -> bool:
        """Tell whether neither the string in progress nor an item in a token that ends it can be one that is there."""
        written = trail.frame.written
        if not self._trails.canonical or written is None or written.has_spelt or not self._trails.is_free(trail):
            return False
        return joined(trail.text) not in self._summaries.spelt_begins

    def _at(self, *key: *tuple[int, int, int, int, bool]) -> Spot:
        known = self._spots.get(key)
        if known is None:
            known = self._spots[key] = Spot(*key)
            self._trails.states_bytes += EACH_SPOT
        return known

    # Moves

    def after(self, spot: Spot, token: int) -> Spot | None:
        """The spot that a token leads to; None if a trail is to be read, or the array ends, or the token is refused.

        Nobody knows where those of early ones lead before these have been looked at.
        """
        if token in spot.moves:
            return spot.moves[token]
        if spot.scope == UNKNOWN or (spot.is_early and not spot.is_piece and spot.is_new):
            return None
        shift = self._inner_shift(spot, token)
        if shift is None:
            found = self._landing(spot, token)
            if found.state is not None:
                spot.exits[token] = found.state
            return self._moved(spot, token, found.spot)
        state = self._steps.after(spot.state, token)
        return self._moved(spot, token, None if state == DEAD else self._at_once(spot, shift, state))

    def after_at_once(self, spot: Spot, token: int) -> Spot | None:
        """As `after`, where that takes a call of a kernel at most; None elsewhere."""
        shift = None if token in spot.moves else self._inner_shift(spot, token)
        state = DEAD if shift is None else self._steps.after_at_once(spot.state, token)
        if shift is None or state <= DEAD:
            return None
        return self._moved(spot, token, self._at_once(spot, shift, state))

    def _moved(self, spot: Spot, token: int, after: Spot | None) -> Spot | None:
        spot.moves[token] = after
        self._trails.states_bytes += EACH_MOVE
        return after

    def _at_once(self, spot: Spot, shift: Shift, state: int) -> Spot:
        where = spot.where if spot.is_piece else shift.where
        return self._at(state, where, spot.depth + shift.up, spot.scope, spot.is_early)

    def _inner_shift(self, spot: Spot, token: int) -> Shift | None:
        """The shift of a token that stays in the item, and has nothing that matters; None of others."""
        where, depth = spot.where, spot.depth
        if where in (NEXT, BEHIND) or spot.scope == UNKNOWN or (spot.is_early and not spot.is_piece and not spot.needs):
            return None
        if spot.is_piece:
            shift = self._summaries.shift(STRING, token)
            return None if shift.end or shift.where == ESCAPE else shift
        shift = self._summaries.shift(where, token)
        if shift.opens_array or (self._open_names and shift.has_names):
            return None
        return None if (depth + shift.low < 1 if depth else shift.end) else shift

    def _landing(self, spot: Spot, token: int) -> Landing:
        """The place that another token leads to, unless a trail is to be read."""
        where, depth = spot.where, spot.depth
        if spot.is_piece or (spot.is_early and (spot.needs is None or token in spot.needs.tokens)):
            return NOWHERE
        shift = self._summaries.shift(_begin(spot), token)
        if self._open_names and shift.has_names:
            return NOWHERE
        is_between = where in (NEXT, BEHIND)
        is_leaving = not is_between and (shift.end > 0 if not depth else depth + shift.low < 1)
        if is_leaving and (spot.is_early or spot.scope != OUTER or not self._follows_items):
            return NOWHERE
        state = self._steps.after(spot.state, token)
        if state == DEAD or (shift.opens_array and self._may_differ_within(spot.state, token)):
            return NOWHERE
        if is_leaving:
            rest = self._summaries.behind(_begin(spot), depth, token)
            is_told = self._behind(state, rest, spot) == frozenset()
            return self._between(state, AFTER, rest) if is_told else NOWHERE
        if is_between:
            return self._between(state, ITEM if where == NEXT else AFTER, self._summaries.text(token))
        return Landing(self._at_once(spot, shift, state))

    def _may_differ_within(self, state: int, token: int) -> bool:
        """Tell whether an array whose items must differ may begin in a token, or behind it."""
        data = self._summaries.text(token)
        places = self._items.places(state, data)
        begins = [bracket.end() for bracket in _BRACKET.finditer(data)]
        return any(at == len(data) or places.may_differ(at) for at in begins)

    def _between(self, state: int, mode: int, data: bytes) -> Landing:
        """The place after what a token that leads to a state has behind an item, or before one, if it has no item."""
        key = (state, mode, data)
        known = self._landings.get(key)
        if known is None:
            known = self._look_between(state, mode, data)
            note(self._landings, [key], known)
        return known

    def _look_between(self, state: int, mode: int, data: bytes) -> Landing:
        array, log = OpenContainer(None, ARRAY, self._trails.nothing, 0), list[Completed]()
        at, end = self._trails.read(JSONTrail(array, mode), data, 0, NO_PLACES, log)
        if at is None:
            return NOWHERE if end < 0 or log or self._trails.openings.search(data, end) else Landing(None, state)
        frame, depth = at.frame, 0
        while frame.parent is not None:
            frame, depth = frame.parent, depth + 1
        where = self._where(at.mode)
        if log or at.mode in (NAME_ESCAPE, TEXT_ESCAPE) or where == NEW_NAME or (depth and self._scarce):
            return NOWHERE
        if not depth:
            where = {ITEM: NEXT, AFTER: BEHIND, TEXT: STRING}.get(at.mode)
            if where is None or (where == STRING and not self._continuations.bounds.is_robust(state)):
                return NOWHERE
        return Landing(self._at(state, where, depth, OUTER, True))

    # Masks

    def look(self, spot: Spot, trail: JSONTrail | None, allowed: Copying, among: Among) -> None:
        """Find out what a spot needs, if that is not known; trail: of some place there, where the item is early."""
        spot.is_new = False
        if trail is not None:
            spot.needs = self._look_early(spot, trail, allowed)
        else:
            spot.needs = self._look(spot, among) if spot.where != ESCAPE else None
        is_free = not (spot.is_early or spot.depth)  # of what tokens have in whole, too
        is_told = spot.needs == MaskConditions() or (is_free and spot.needs is not None)
        spot.is_plain = is_told and not spot.is_piece

    def _look_early(self, spot: Spot, trail: JSONTrail, allowed: Copying) -> MaskConditions | None:
        """As `_look`, where the item is early, or it is between two."""
        is_robust = trail.mode in (TEXT, NAME_TEXT) and self._continuations.bounds.is_robust(spot.state)
        if trail.mode in PARTIAL and not is_robust and trail.mode != NAME_TEXT:
            return None
        unsafe = self._effects.unsafe(spot.state, trail, allowed, is_early=True)
        if unsafe.tested or unsafe.loose or unsafe.members or (unsafe.named and self._open_names):
            return None
        if spot.depth and (unsafe.words or unsafe.wholes):
            return None
        if spot.depth:
            is_safe = is_robust or trail.mode not in PARTIAL
            is_safe = is_safe or self._effects.stays_roomy(spot.state, trail, allowed())
            return MaskConditions() if is_safe else None
        met = {**unsafe.wholes, **unsafe.words}
        items = frozenset(each for each in met if isinstance(each, bytes))
        tokens = frozenset(token for each in met.values() for token in each)
        return MaskConditions(items=items, others=frozenset(met.keys() - items), tokens=tokens)

    def _look(self, spot: Spot, among: Among) -> MaskConditions | None:
        where = _begin(spot)
        summaries = self._summaries
        risky = summaries.shifting if self._open_names else summaries.closing
        tokens = among(risky[where] if spot.depth else summaries.quotes)
        if not tokens.bits.any():
            return MaskConditions()
        kind = (where, spot.depth, tokens.bits.tobytes())
        if kind not in self._leaving:
            note(self._leaving, [kind], self._look_leaving(where, spot.depth, tokens.listed()), MOST_KINDS)
        names, leaving = self._leaving[kind]
        if names is None or not leaving:
            return None if names is None else MaskConditions(names)
        after = self._steps.after_each(spot.state, leaving)
        met = (*kind, spot.scope, after.tobytes())
        if met not in self._behind_leaving:
            behind = [summaries.behind(where, spot.depth, token) for token in leaving]
            found = [self._behind(*each, spot) for each in zip(after.tolist(), behind, strict=True)]
            told = [each for each in found if each is not None]
            items = frozenset[bytes]().union(*told) if len(told) == len(found) else None
            note(self._behind_leaving, [met], items, MOST_KINDS)
        items = self._behind_leaving[met]
        return None if items is None else MaskConditions(names, items)

    def _look_leaving(self, where: int, depth: int, tokens: list[int]) -> tuple[frozenset[bytes] | None, list[int]]:
        """The names that some tokens have in whole, None where it takes more to tell; and those in which items end."""
        spend(EACH_LOOK + EACH_TOKEN * len(tokens))
        names: set[bytes] = set()
        leaving: list[int] = []
        for token in tokens:
            shift = self._summaries.shift(where, token)
            if depth and self._open_names and shift.names:
                if shift.is_odd or (not self._trails.canonical and any(b"\\" in name for name in shift.names)):
                    return None, []
                names.update(shift.names)
            if depth + shift.low < 1 if depth else shift.end:
                leaving.append(token)
        return frozenset(names), leaving

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

    def is_inside(self, spot: Spot) -> bool:
        """Tell whether all texts that come to the chart's state of a spot are in an item, and so have a trail."""
        return self._follows_items and not self._trails.with_names and (spot.depth > 0 or spot.where == STRING)

    def is_told_unread(self, spot: Spot, trail: JSONTrail, data: bytes) -> bool:
        """As `is_told`, with the last trail that has been read, and what came since."""
        needs = spot.needs
        if needs is None or needs.items or _EMPTY.search(data):
            return False
        frame = trail.frame
        while frame.parent is not None:
            frame = frame.parent
        written = frame.written
        return written is not None and all(each in _EMPTIES and each not in written for each in needs.others)

    def is_told(self, spot: Spot, trail: JSONTrail) -> bool:
        """Tell whether all tokens of the chart are allowed in a spot that needs something, with the place's trail."""
        needs, frame = spot.needs, trail.frame
        assert needs is not None
        if spot.is_piece and not self.is_unlike(trail):
            return False
        # A name or item in progress may come to be one of those that are in the token.
        if needs.names and (trail.mode in (NAME_TEXT, NAME_ESCAPE) or any(map(frame.has_name, needs.names))):
            return False
        if needs.items or needs.others:
            for _ in range(spot.depth):
                assert frame.parent is not None
                frame = frame.parent
            written = frame.written
            assert written is not None
            if any(map(written.__contains__, needs.others)):
                return False
            if written.has_spelt and any(map(written.__contains__, needs.items)):
                return False
            begin = joined(trail.text) if trail.mode == TEXT and not spot.depth else None
            return begin is None or not any(item.startswith(begin) for item in needs.items)
        return True

    def is_begun(self, spot: Spot, trail: JSONTrail) -> bool:
        """Tell whether what must not follow in a spot depends on how the string in progress begins alone."""
        written = trail.frame.written
        is_item = spot.is_piece and spot.where == STRING and spot.scope == OUTER and spot.needs is not None
        return is_item and written is not None and not written.has_spelt and self.is_unlike(trail)

    def is_unlike(self, trail: JSONTrail) -> bool:
        """Tell whether no token completes the string in progress to one that is there."""
        if self._trails.is_free(trail):
            return True
        written, begin, closers = trail.frame.written, joined(trail.text), self._summaries.closers
        return written is None or not written.ends(begin, closers.keys())


def _begin(spot: Spot) -> int:
    """The place in a text where the tokens after a spot begin, as `summaries` has it."""
    return STRING if spot.where == NEW_NAME else BETWEEN if spot.where in (NEXT, BEHIND) else spot.where
