"""Places of items whose tokens are read into a trail only later, since the chart tells what may follow.

An item of an array whose items must differ is *settled* once nothing that it may come to is there. From then on the
chart tells what may follow, but for tokens in which the item ends, after which another one must be left; for names that
an object has already; and for what a single token has in whole. Before that it is *early* where it can come to
something else after every token, however it begins. So a place is a state of the chart with the kinds of the containers
around and what comes next in them; its mask is the chart's unless that allows a token that may have, or lead to, what
must not be there (`Effects.unsafe`). The same holds between items, and of objects whose names must differ.
"""

from __future__ import annotations

from collections.abc import Callable

from ..protocol import DEAD, Mask
from .continuations import ChartSteps, Continuations
from .effects import EARLY, NAMING, NO_RIVALS, READ, SETTLED, SOME_RIVALS, Effects, Move, Unsafe
from .frames import (
    AFTER,
    FIRST,
    ITEM,
    NAME,
    NAME_ESCAPE,
    NAME_TEXT,
    PARTIAL,
    TEXT,
    TEXT_ESCAPE,
    WORD,
    JSONTrail,
    joined,
)
from .summaries import TokenSummaries
from .trail import Beginnings, JSONTrails, Shape
from .values import OBJECT

EACH_SPOT, EACH_MOVE = 500, 100
"""About how many bytes a spot takes, and each move from it."""
Copying = Callable[[], Mask]
"""Makes a copy of the chart's mask, which is mostly not needed."""
NO_SIGNATURE = -2


class Spot:
    """The part that places have in common of which the chart's state is equal, and what is around and comes next.

    told: how much is known, as the constants of `effects` say
    is_unlike: whether no item that is there, or in progress, is one that tokens have in whole
    is_between: whether the place is between the items of an array that must differ, or in one that is no container
    is_piece: whether an item or name is in progress that may be one that is there, and very many others
    moves: the spots after tokens, None where a trail is to be read; exits: the chart's states after those that end the
    array
    unsafe: the tokens that may not come after all trails; None until somebody looks
    is_roomy: whether very many values may come after all others; is_plain: and there is none
    signature: of the chart's mask then, as long as its numbers mean the same
    """

    __slots__ = (
        *("exits", "is_between", "is_piece", "is_plain", "is_roomy", "is_unlike", "mode", "moves", "shape"),
        *("signature", "state", "told", "unsafe"),
    )

    def __init__(
        self, state: int, shape: int, mode: int, told: int, is_unlike: bool, *, is_between: bool, is_piece: bool
    ) -> None:
        self.is_unlike = is_unlike
        self.is_between = is_between
        self.is_piece = is_piece
        self.state = state
        self.shape = shape
        self.mode = mode
        self.told = told
        self.moves: dict[int, Spot | None] = {}
        self.exits: dict[int, int] = {}
        self.unsafe: Unsafe | None = None
        self.is_roomy = False
        self.is_plain = False
        self.signature = NO_SIGNATURE


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
        self._bounds = continuations.bounds
        self._summaries = summaries
        self._steps = steps
        self._effects = effects
        self._follows_items = trails.canonical and not items.beside_free
        self._open_names = open_names
        self._scarce = scarce
        self._spots: dict[tuple[int, int, int, int, bool], Spot] = {}

    def forget_signatures(self) -> None:
        """Forget what the chart's signatures are, whose numbers may come to mean something else."""
        for spot in self._spots.values():
            spot.signature = NO_SIGNATURE

    def spot(self, state: int, trail: JSONTrail) -> Spot:
        """The spot of a place."""
        shape, told = self._trails.shapes[trail.frame.shape], self._told(state, trail)
        is_unlike = False
        if told != READ and shape.is_outer and self._follows_items:
            frame = trail.frame
            for _ in range(shape.depth):
                assert frame.parent is not None
                frame = frame.parent
            is_piece = told == EARLY and not shape.depth and trail.mode == TEXT
            is_unlike = not is_piece and frame.written is not None and not frame.written.has_whole
        return self._at(state, trail.frame.shape, trail.mode, told, is_unlike)

    def _at(self, state: int, shape: int, mode: int, told: int, is_unlike: bool) -> Spot:
        key = (state, shape, mode, told, is_unlike)
        known = self._spots.get(key)
        if known is None:
            is_between = not self._trails.shapes[shape].depth
            is_new = (mode == TEXT and is_between) or (mode == NAME_TEXT and self._open_names)
            is_piece = told == NAMING or (told == EARLY and is_new)
            known = self._spots[key] = Spot(*key, is_between=is_between, is_piece=is_piece)
            self._trails.states_bytes += EACH_SPOT
        return known

    def _told(self, state: int, trail: JSONTrail) -> int:
        """Tell how much the chart tells of a place."""
        frame, mode, shape = trail.frame, trail.mode, self._trails.shapes[trail.frame.shape]
        if frame.is_open or shape.is_deep or mode in (FIRST, NAME_ESCAPE):
            return READ
        if not shape.depth:
            return self._told_between(state, trail, shape) if shape.is_outer or not frame.rivals else READ
        is_alone = shape.depth == len(shape.kinds)
        if self._scarce or (is_alone and shape.kinds[-1][0] is not OBJECT):
            return READ
        is_early = bool(frame.rivals) and (mode not in PARTIAL or not self._trails.is_free(trail))
        if is_early and (is_alone or not shape.is_outer or not self._follows_items):
            return READ
        if mode == NAME_TEXT and self._open_names and not self._trails.is_free(trail):
            is_wide = self._trails.canonical and (not is_early or self._bounds.is_robust(state))
            return READ if not is_wide else EARLY if is_early else NAMING
        return EARLY if is_early else SETTLED

    def _told_between(self, state: int, trail: JSONTrail, shape: Shape) -> int:
        """As `_told`, of an item that is no container, and between items."""
        mode = trail.mode
        if mode == WORD:
            return SETTLED if self._differs(trail) else READ
        if mode == TEXT:
            if self._differs(trail):
                return SETTLED
            is_wide = self._trails.is_free(trail) or (self._trails.canonical and self._bounds.is_robust(state))
            return EARLY if is_wide else READ
        return EARLY if mode in (ITEM, AFTER) and shape.is_outer and self._follows_items else READ

    def _differs(self, trail: JSONTrail) -> bool:
        """Tell whether what is in progress can be nothing that is there, and tokens have neither in whole."""
        written = trail.frame.written
        if not self._trails.canonical or written is None or written.has_whole or not self._trails.is_free(trail):
            return False
        text = joined(trail.text)
        if trail.mode == WORD:
            return text[:1] in b"-0123456789" and bool(text.lower().partition(b"e")[0].strip(b"-0."))
        return text not in self._summaries.spelt_begins

    # Moves

    def after(self, spot: Spot, token: int) -> Spot | None:
        """The spot that a token leads to; None if a trail is to be read, or the array ends, or the token is refused."""
        if token in spot.moves:
            return spot.moves[token]
        state = DEAD if spot.told == READ else self._steps.after(spot.state, token)
        move = None if state == DEAD else self._move(spot, token)
        if move is None:
            return self._moved(spot, token, None)
        stays = self._stays(spot, move)
        if not stays:
            if spot.unsafe is None:
                return None  # nobody knows yet
            if not spot.is_roomy or token in spot.unsafe.every() or self._is_to_be_read(spot, move):
                return self._moved(spot, token, None)
        if move.ends:
            spot.exits[token] = state
        return self._moved(spot, token, None if move.ends else self._target(spot, move, state, stays=stays))

    def after_at_once(self, spot: Spot, token: int) -> Spot | None:
        """As `after`, where that takes a call of a kernel at most; None elsewhere."""
        if spot.told == READ or token in spot.moves:
            return None
        state = self._steps.after_at_once(spot.state, token)
        move = self._move(spot, token) if state > DEAD else None
        if move is None or not self._stays(spot, move):
            return None
        return self._moved(spot, token, self._target(spot, move, state, stays=True))

    def _move(self, spot: Spot, token: int) -> Move | None:
        """The move of a token that the chart allows; None if it has names that may be there."""
        move = self._effects.move(spot.shape, spot.mode, token)
        return None if move is None or (self._open_names and move.has_names) else move

    def _moved(self, spot: Spot, token: int, after: Spot | None) -> Spot | None:
        spot.moves[token] = after
        self._trails.states_bytes += EACH_MOVE
        return after

    def _stays(self, spot: Spot, move: Move) -> bool:
        """Tell whether a token that the chart allows leads on in the same item, which is no less settled then."""
        if spot.told == SETTLED:
            return move.stays
        return spot.is_piece and move.is_same and move.mode == spot.mode

    def _is_to_be_read(self, spot: Spot, move: Move) -> bool:
        """Tell whether an item ends in a token so that what comes behind is to be read."""
        if move.stays or (spot.is_between and spot.mode in (ITEM, AFTER)):
            return False
        return spot.told == EARLY or not self._trails.shapes[spot.shape].is_outer or not self._follows_items

    def _target(self, spot: Spot, move: Move, state: int, *, stays: bool) -> Spot | None:
        """The spot after a move; None if that depends on what has been written."""
        shape = spot.shape
        for _ in range(move.down):
            shape = self._trails.shapes[shape].around
        for _ in range(move.up):
            shape = self._trails.shape(shape, OBJECT, is_watched=False)
        mode, told = move.mode, spot.told if stays else EARLY
        if self._trails.shapes[shape].is_deep:
            return None
        is_between = not self._trails.shapes[shape].depth
        if told == EARLY and not stays:
            if is_between and mode not in (ITEM, AFTER) and not (mode == TEXT and self._bounds.is_robust(state)):
                return None
            if not is_between and (self._scarce or mode in (NAME_ESCAPE, TEXT_ESCAPE)):
                return None
        # Tokens that have an item in whole are not safe, but one that ends an object may end one without anything.
        may_be_whole = told == EARLY and is_between and (mode == TEXT or (spot.mode == NAME and not spot.is_between))
        return self._at(state, shape, mode, told, spot.is_unlike and not may_be_whole)

    # Masks

    def look(self, spot: Spot, allowed: Copying, trail: Callable[[], JSONTrail]) -> None:
        """Find out which tokens may not come after all trails that lead to a spot, if that is not known.

        trail: reads one of these
        """
        state, shape, mode = spot.state, spot.shape, spot.mode
        if spot.unsafe is not None or spot.told == READ:
            return
        is_settled = spot.told in (NAMING, SETTLED)
        rivals = NO_RIVALS if spot.is_between else SETTLED if is_settled else EARLY
        unsafe = self._effects.unsafe(state, shape, mode, rivals, allowed)
        is_roomy = is_settled or mode not in PARTIAL
        if not is_roomy and mode in (TEXT, NAME_TEXT):
            is_roomy = self._bounds.is_robust(state)
            if not is_roomy and mode == NAME_TEXT:
                is_roomy = self._effects.stays_roomy(state, trail(), allowed())
        met = [*unsafe.wholes, *unsafe.words]
        if spot.is_between and (spot.is_unlike or spot.told == SETTLED):
            # What tokens have in whole is nothing that is there, or in progress (`_differs`).
            met = [each for each in met if each not in self._summaries.whole]
        is_met = bool(unsafe.tested or met or (self._open_names and unsafe.named))
        is_loose = spot.told == EARLY and (unsafe.loose or unsafe.members)
        spot.is_plain = is_roomy and not (is_met or is_loose or spot.is_piece)
        spot.is_roomy = is_roomy
        spot.unsafe = unsafe

    def unsafe(self, spot: Spot, trail: JSONTrail, allowed: Copying) -> Unsafe:
        """The tokens that may not come in a spot after all trails, or all with rivals, or without any, as one has."""
        frame = trail.frame
        if spot.unsafe is not None and (spot.told == SETTLED or spot.is_between or spot.is_piece):
            return spot.unsafe
        rivals = SOME_RIVALS if frame.rivals else NO_RIVALS
        return self._effects.unsafe(spot.state, frame.shape, trail.mode, rivals, allowed)

    def is_inside(self, spot: Spot) -> bool:
        """Tell whether all texts that come to the chart's state of a spot are in an item, and so have a trail."""
        if spot.told == READ or not self._follows_items or self._trails.with_names:
            return False
        return spot.mode == TEXT or not spot.is_between
