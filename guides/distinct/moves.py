"""What tokens do at places of one kind, remembered there, so that a new state takes some lookups only."""

from __future__ import annotations

from typing import NamedTuple

from ..protocol import DEAD
from .effects import Effects, Unsafe
from .frames import STRINGS, TEXT, Trail
from .pieces import joined, more_of, size_of
from .trail import Trails
from .ways import Ways

NO_SIGNATURE = -2
EACH_SPOT, EACH_MOVE = 500, 200
"""About how many bytes a spot takes, and each move from it."""


class Move(NamedTuple):
    """What a token does that stays in one container: it may end a string or name, and begin another one.

    after: the spot that it leads to; ends: whether it ends something; more: what that has of it, or what comes behind
    what is there; begin: what there is of a string or name that begins in it, else None
    """

    after: Spot
    ends: bool
    more: bytes
    begin: bytes | None


class Spot:
    """What places have in common of which the chart's state, the containers that they are in and the mode are equal.

    moves: what tokens do, None where that is not simple
    signature: of the chart's mask, as long as its numbers mean the same; unsafe: the tokens to be looked at, if known
    is_roomy: whether a text can be completed from there whatever has been written
    """

    __slots__ = ("is_roomy", "mode", "moves", "shape", "signature", "state", "unsafe")

    def __init__(self, state: int, shape: int, mode: int) -> None:
        self.state = state
        self.shape = shape
        self.mode = mode
        self.moves: dict[int, Move | None] = {}
        self.signature = NO_SIGNATURE
        self.unsafe: Unsafe | None = None
        self.is_roomy = False

    def refuses_none(self, trail: Trail) -> bool:
        """Whether it is known at once that no token is to be refused, where what is in progress can come to nothing."""
        unsafe = self.unsafe
        if unsafe is None or self.signature == NO_SIGNATURE or unsafe.tested or unsafe.named:
            return False
        written = trail.frame.written
        if not unsafe.wholes or written is None:
            return True
        return not written.hits and (trail.text is None or size_of(trail.text) > unsafe.longest)


class Moves:
    """The spots of one guide; hold the automaton's lock."""

    def __init__(self, trails: Trails, effects: Effects, ways: Ways, steps: dict[int, int]) -> None:
        self._trails = trails
        self._effects = effects
        self._ways = ways
        self._steps = steps
        self._spots: dict[tuple[int, int, int], Spot] = {}

    def spot(self, state: int, trail: Trail) -> Spot:
        """The spot of a place."""
        return self._at(state, trail.frame.shape, trail.mode)

    def _at(self, state: int, shape: int, mode: int) -> Spot:
        key = (state, shape, mode)
        known = self._spots.get(key)
        if known is None:
            known = self._spots[key] = Spot(state, shape, mode)
            self._trails.states_bytes += EACH_SPOT
        return known

    def forget_signatures(self) -> None:
        """Forget what the chart's signatures are, whose numbers may come to mean something else."""
        for spot in self._spots.values():
            spot.signature = NO_SIGNATURE

    def after(self, trail: Trail, token: int) -> Trail | None:
        """Where a token leads from a place, if that is simple and known, and surely has an end; None elsewhere."""
        spot: Spot = trail.spot
        move = spot.moves.get(token)
        if move is None:
            move = self._look(spot, trail, token)
            if move is None:
                return None
        after, ends, more, begin = move
        if ends:
            key = joined(trail.text) + more
            frame = trail.frame.having(key) if spot.mode == TEXT else trail.frame.named(key)
            if frame is None:
                return None
            found = Trail(frame, after.mode, begin)
        elif more:
            found = Trail(trail.frame, after.mode, more_of(trail.text, more), trail.is_free or None)
            if found.is_free:
                found.spot = after
                return found
        else:
            found = Trail(trail.frame, after.mode, begin)
        found.spot = after
        return found if after.is_roomy or self._is_surely_alive(after, found) else None

    def _look(self, spot: Spot, trail: Trail, token: int) -> Move | None:
        if token in spot.moves:
            return None
        state = self._steps.get(spot.state << 32 | token)
        if state is None or state == DEAD:
            return None
        simple = self._effects.look_simple(trail, token)
        self._trails.states_bytes += EACH_MOVE
        if simple is None:
            spot.moves[token] = None
            return None
        move = Move(self._at(state, spot.shape, simple.mode), simple.ends, simple.more, simple.begin)
        spot.moves[token] = move
        return move

    def _is_surely_alive(self, spot: Spot, trail: Trail) -> bool:
        """Whether it is known at once that the text can be completed."""
        variety = self._ways.variety
        is_string = spot.mode in STRINGS
        spot.is_roomy = variety.is_known_wide(spot.state) if is_string else variety.is_known_roomy(spot.state, trail)
        return spot.is_roomy or self._ways.is_settled(trail)
