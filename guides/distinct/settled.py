"""Spots: classes of places inside items for which the chart determines the mask, so that the trail is read only later.

An item of an array of unique items is *settled* once it can equal no earlier item. From then on the chart determines
what may follow, except for tokens that end the item (another one must remain possible), names that an object already
has, and values that a single token contains in whole. Before that the item is *early* if every next token leaves it
very many other values. A spot is a chart state with the kinds of the containers around and the mode. Its mask is the
chart's unless that allows a token that may contain, or lead to, a repeated value (`Effects.unsafe`). The same holds
between items, and for objects whose names must differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..protocol import DEAD, Mask
from .effects import EARLY, NAMING, NO_DUPLICATES, READ, SETTLED, SOME_DUPLICATES, Effects, Move, UnsafeTokens
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
from .trail import Beginnings, Shape
from .values import OBJECT

EACH_SPOT, EACH_MOVE = 500, 100
"""Approximate bytes of a spot, and of each move from it."""
Copying = Callable[[], Mask]
"""Returns a copy of the chart's mask; called only if needed."""
NO_SIGNATURE = -2


@dataclass(slots=True, eq=False)
class PlaceClass:
    """A class of places with equal chart state, containers around and mode.

    knowledge: how much is known, a constant of `effects`
    is_unlike: whether no earlier item, nor the one in progress, is a value that a single token can contain
    is_between: whether the place is between the items of an array of unique items, or in a scalar item
    is_piece: whether an item or name is in progress that may equal an earlier one, or very many other values
    moves: spots after tokens, None where the trail must be read; exits: chart states after tokens that end the array
    unsafe: tokens that some trails refuse; None until `look`
    is_roomy: whether very many values remain possible after all other tokens; is_bare: whether moreover `unsafe` has at
    most items that are not written, see `is_unlike`; is_plain: whether moreover no piece is in progress
    signature: of the chart's mask if is_plain, until `forget_signatures`
    """

    state: int
    shape: int
    mode: int
    knowledge: int
    is_unlike: bool
    is_between: bool
    is_piece: bool
    moves: dict[int, PlaceClass | None] = field(default_factory=dict[int, "PlaceClass | None"], init=False)
    exits: dict[int, int] = field(default_factory=dict[int, int], init=False)
    unsafe: UnsafeTokens | None = None
    is_roomy: bool = False
    is_bare: bool = False
    is_plain: bool = False
    signature: int = NO_SIGNATURE


class SettledSpots:
    """The spots of one guide; hold the automaton's lock. Only in canonical spelling do spots outlast an item.

    items: where items of arrays of unique items begin
    scarce: whether the names that a schema does not list may be so few that an object could use all; then no object is
    settled before it ends
    """

    def __init__(self, effects: Effects, items: Beginnings, *, scarce: bool) -> None:
        self._effects = effects
        self._items = items
        self._trails = effects.continuations.trails
        self._bounds = effects.continuations.bounds
        self._summaries = effects.summaries
        self._steps = effects.steps
        self._open_names = effects.open_names
        self._follows_items = self._trails.canonical and not items.beside_free
        self._scarce = scarce
        self._spots: dict[tuple[int, int, int, int, bool], PlaceClass] = {}

    def forget_signatures(self) -> None:
        """Reset the signatures of spots, since the chart is about to renumber them."""
        for spot in self._spots.values():
            spot.signature = NO_SIGNATURE

    def spot(self, state: int, trail: JSONTrail) -> PlaceClass:
        """Return the spot of a place."""
        shape, knowledge = self._trails.shapes[trail.frame.shape], self._knowledge(state, trail)
        is_unlike = False
        if knowledge != READ and shape.is_outer and self._follows_items:
            frame = trail.frame
            for _ in range(shape.depth):
                assert frame.parent is not None
                frame = frame.parent
            is_piece = knowledge == EARLY and not shape.depth and trail.mode == TEXT
            is_unlike = not is_piece and frame.written is not None and not frame.written.has_token_value
        return self._cached_spot(state, trail.frame.shape, trail.mode, knowledge, is_unlike)

    def _cached_spot(self, state: int, shape: int, mode: int, knowledge: int, is_unlike: bool) -> PlaceClass:
        key = (state, shape, mode, knowledge, is_unlike)
        known = self._spots.get(key)
        if known is None:
            is_between = not self._trails.shapes[shape].depth
            is_new = (mode == TEXT and is_between) or (mode == NAME_TEXT and self._open_names)
            is_piece = knowledge == NAMING or (knowledge == EARLY and is_new)
            known = self._spots[key] = PlaceClass(*key, is_between, is_piece)
            self._trails.states_bytes += EACH_SPOT
        return known

    def _knowledge(self, state: int, trail: JSONTrail) -> int:
        """Return how much the chart determines at a place, as a constant of `effects`."""
        frame, mode, shape = trail.frame, trail.mode, self._trails.shapes[trail.frame.shape]
        if frame.is_open or shape.is_deep or mode in (FIRST, NAME_ESCAPE):
            return READ
        if not shape.depth:
            return self._knowledge_between(state, trail, shape) if shape.is_outer or not frame.duplicates else READ
        is_alone = shape.depth == len(shape.kinds)
        if self._scarce or (is_alone and shape.kinds[-1][0] is not OBJECT):
            return READ
        is_early = bool(frame.duplicates) and (mode not in PARTIAL or not self._trails.is_free(trail))
        if is_early and (is_alone or not shape.is_outer or not self._follows_items):
            return READ
        if mode == NAME_TEXT and self._open_names and not self._trails.is_free(trail):
            is_wide = self._trails.canonical and (not is_early or self._bounds.is_robust(state))
            return READ if not is_wide else EARLY if is_early else NAMING
        return EARLY if is_early else SETTLED

    def _knowledge_between(self, state: int, trail: JSONTrail, shape: Shape) -> int:
        """Return `_knowledge` for a scalar item, and between items."""
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
        """Test whether the piece in progress can equal no earlier item, and single tokens contain neither."""
        written = trail.frame.written
        if not self._trails.canonical or written is None or written.has_token_value or not self._trails.is_free(trail):
            return False
        text = joined(trail.text)
        if trail.mode == WORD:
            return text[:1] in b"-0123456789" and bool(text.lower().partition(b"e")[0].strip(b"-0."))
        return text not in self._summaries.spelt_begins

    # Moves

    def after(self, spot: PlaceClass, token: int) -> PlaceClass | None:
        """Return the spot after a token; None if the trail must be read, the array ends, or the token is refused."""
        if token in spot.moves:
            return spot.moves[token]
        state = DEAD if spot.knowledge == READ else self._steps.after(spot.state, token)
        move = None if state == DEAD else self._move(spot, token)
        if move is None:
            return self._moved(spot, token, None)
        stays = self._stays(spot, move)
        if move.first >= 0:
            places = self._items.places(spot.state, self._summaries.text(token))
            if not self._follows_items or places.may_differ(move.first):
                return self._moved(spot, token, None)
        if not stays:
            if spot.unsafe is None:
                return None  # not known yet
            if not spot.is_roomy or token in spot.unsafe.all_tokens() or self._is_to_be_read(spot, move):
                return self._moved(spot, token, None)
        if move.ends:
            spot.exits[token] = state
        return self._moved(spot, token, None if move.ends else self._target(spot, move, state, stays=stays))

    def after_at_once(self, spot: PlaceClass, token: int) -> PlaceClass | None:
        """Return `after` if that takes at most one kernel call; else None."""
        if not (spot.knowledge == SETTLED or spot.is_piece) or token in spot.moves:
            return None
        state = self._steps.after_at_once(spot.state, token)
        move = self._move(spot, token) if state > DEAD else None
        if move is None or move.first >= 0 or not self._stays(spot, move):
            return None
        return self._moved(spot, token, self._target(spot, move, state, stays=True))

    def _move(self, spot: PlaceClass, token: int) -> Move | None:
        """Return the move of an allowed token; None if it contains names that may be used already."""
        move = self._effects.move(spot.shape, spot.mode, token)
        if move is None or not self._open_names:
            return move
        # The name in progress is used by no other member where the item is settled.
        return None if move.has_names or (move.ends_name and spot.knowledge != SETTLED) else move

    def _moved(self, spot: PlaceClass, token: int, after: PlaceClass | None) -> PlaceClass | None:
        spot.moves[token] = after
        self._trails.states_bytes += EACH_MOVE
        return after

    def _stays(self, spot: PlaceClass, move: Move) -> bool:
        """Test whether an allowed token stays in the same item, which remains at least as settled."""
        if spot.knowledge == SETTLED:
            return move.stays
        return spot.is_piece and move.is_same and move.mode == spot.mode

    def _is_to_be_read(self, spot: PlaceClass, move: Move) -> bool:
        """Test whether an item ends in a token after which the trail must be read."""
        if move.stays or (spot.is_between and spot.mode in (ITEM, AFTER)):
            return False
        return spot.knowledge == EARLY or not self._trails.shapes[spot.shape].is_outer or not self._follows_items

    def _target(self, spot: PlaceClass, move: Move, state: int, *, stays: bool) -> PlaceClass | None:
        """Return the spot after a move; None if that depends on written values."""
        shape = spot.shape
        for _ in range(move.down):
            shape = self._trails.shapes[shape].around
        for kind in move.up:
            shape = self._trails.shape(shape, kind, is_watched=False)
        mode, knowledge = move.mode, spot.knowledge if stays else EARLY
        if self._trails.shapes[shape].is_deep:
            return None
        is_between = not self._trails.shapes[shape].depth
        if knowledge == EARLY and not stays:
            if is_between and mode not in (ITEM, AFTER) and not (mode == TEXT and self._bounds.is_robust(state)):
                return None
            if not is_between and (self._scarce or mode in (NAME_ESCAPE, TEXT_ESCAPE)):
                return None
        # Tokens with a complete item are unsafe, but a token that ends an object may complete an empty one.
        may_be_whole = (
            knowledge == EARLY and is_between and (mode == TEXT or (spot.mode == NAME and not spot.is_between))
        )
        return self._cached_spot(state, shape, mode, knowledge, spot.is_unlike and not may_be_whole)

    # Masks

    def look(self, spot: PlaceClass, allowed: Copying, trail: Callable[[], JSONTrail]) -> None:
        """Compute the tokens that some trails at a spot refuse, if not known.

        trail: reads one of these trails
        """
        state, shape, mode = spot.state, spot.shape, spot.mode
        if spot.unsafe is not None or spot.knowledge == READ:
            return
        is_settled = spot.knowledge in (NAMING, SETTLED)
        knowledge = NO_DUPLICATES if spot.is_between else SETTLED if is_settled else EARLY
        unsafe = self._effects.unsafe(state, shape, mode, knowledge, allowed)
        is_roomy = is_settled or mode not in PARTIAL
        if not is_roomy and mode in (TEXT, NAME_TEXT):
            is_roomy = self._bounds.is_robust(state)
            if not is_roomy and mode == NAME_TEXT:
                is_roomy = self._effects.stays_roomy(state, trail(), allowed())
        values = [*unsafe.items, *unsafe.words]
        if spot.is_between and (spot.is_unlike or spot.is_piece or spot.knowledge == SETTLED):
            # Values that single tokens contain are neither written nor in progress (`_differs`, `allows_all`).
            values = [each for each in values if each not in self._summaries.token_values]
        may_repeat = bool(unsafe.tested or unsafe.scarce or values or (self._open_names and unsafe.named))
        is_loose = spot.knowledge == EARLY and (unsafe.loose or unsafe.members)
        spot.is_bare = is_roomy and not (may_repeat or is_loose)
        spot.is_plain = spot.is_bare and not spot.is_piece
        spot.is_roomy = is_roomy
        spot.unsafe = unsafe

    def allows_all(self, spot: PlaceClass, trail: JSONTrail) -> bool:
        """Test whether a trail refuses nothing in a bare spot with a piece in progress."""
        piece, written, unsafe = self._trails.piece(trail), trail.frame.written, spot.unsafe
        assert written is not None and unsafe is not None
        if spot.is_between and (written.has_token_value or piece in unsafe.doubled):
            return False
        return not written.ends(piece, self._summaries.closers.keys())

    def unsafe(self, spot: PlaceClass, trail: JSONTrail, allowed: Copying) -> UnsafeTokens:
        """Return the tokens that may be refused in a spot: by any trail, or those with duplicates iff this has some."""
        frame = trail.frame
        if spot.unsafe is not None and (spot.knowledge == SETTLED or spot.is_between or spot.is_piece):
            return spot.unsafe
        knowledge = SOME_DUPLICATES if frame.duplicates else NO_DUPLICATES
        return self._effects.unsafe(spot.state, frame.shape, trail.mode, knowledge, allowed)

    def is_inside(self, spot: PlaceClass) -> bool:
        """Test whether all texts that reach a spot's chart state are within an item, and so have a trail."""
        if spot.knowledge == READ or not self._follows_items or self._trails.with_names:
            return False
        return spot.mode == TEXT or not spot.is_between
