"""What tokens do at places of one kind, remembered there, so that a new state takes some lookups only."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..protocol import DEAD
from .effects import Effects, Unsafe
from .frames import NAME_TEXT, PARTIAL, STRINGS, TEXT, WORD, Frame, Trail, joined, more_of, size_of
from .heads import Heads
from .rivals import ARRAY, NONE, OBJECT, Value
from .trail import Trails
from .ways import Steps, Ways
from .words import WordBegin, word_of
from .written import ENDING_SO, NONE_SO

NO_SIGNATURE = -2
FEW_WORDS = 12
"""Up to how many values a number in progress is tried to come to where that is to be quick."""
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

    has_rivals: whether the innermost container has rivals, in all of them or in none
    moves: what tokens do, None where that is not simple
    signature: of the chart's mask, as long as its numbers mean the same
    unsafe: the tokens to be looked at, if they are known and are to be only as values that are there in whole
    lacking: of masks that lack tokens with whole values, by what `hits_of` says
    words: where none of these is there, the tokens to be tried lead on
    is_robust: whether a string may go on to very many values, whatever it may have next but its end
    is_roomy: whether a text can be completed from there whatever has been written
    flat: the number that it has in `Flat`, -1 if it has none; None until somebody asks
    """

    __slots__ = (
        *("flat", "has_rivals", "is_robust", "is_roomy", "lacking", "mode", "moves", "shape", "signature", "state"),
        *("unsafe", "words"),
    )

    def __init__(self, state: int, shape: int, mode: int, has_rivals: bool) -> None:
        self.state = state
        self.shape = shape
        self.mode = mode
        self.has_rivals = has_rivals
        self.moves: dict[int, Move | None] = {}
        self.signature = NO_SIGNATURE
        self.unsafe: Unsafe | None = None
        self.lacking: dict[Any, int] = {}
        self.words: list[Value] = []
        self.is_robust = False
        self.is_roomy = False
        self.flat: int | None = None


Hits = tuple[tuple[Value, ...], bytes | None]


def hits_of(unsafe: Unsafe, trail: Trail) -> Hits | None:
    """The values that are there, or are begun, that some tokens have in whole: these tokens matter; None if none do."""
    frame, text = trail.frame, trail.text
    if frame.written is None or frame.kind is not ARRAY or not unsafe.wholes:
        return None
    # The item in progress, too, may be one of those that a token has in whole behind its end.
    begin = joined(text) if trail.mode in PARTIAL and size_of(text) <= unsafe.longest else None
    if begin is not None and unsafe.begins is not None and begin not in unsafe.begins:
        begin = None
    hits = frame.written.hits
    return None if begin is None and not hits else (hits, begin)


def has_name(unsafe: Unsafe, frame: Frame) -> bool:
    """Whether an object has names for which some tokens are to be looked at."""
    written = frame.written
    if frame.kind is not OBJECT or written is None or not written.count or not unsafe.named:
        return False
    return any(map(written.__contains__, unsafe.named))


class Moves:
    """The spots of one guide; hold the automaton's lock."""

    def __init__(self, trails: Trails, effects: Effects, ways: Ways, heads: Heads, steps: Steps) -> None:
        self._trails = trails
        self._heads = heads
        self._effects = effects
        self._ways = ways
        self._steps = steps
        self._spots: dict[tuple[int, int, int, bool], Spot] = {}

    def spot(self, state: int, trail: Trail) -> Spot:
        """The spot of a place."""
        return self._at(state, trail.frame.shape, trail.mode, bool(trail.frame.rivals))

    def _at(self, *key: *tuple[int, int, int, bool]) -> Spot:
        known = self._spots.get(key)
        if known is None:
            known = self._spots[key] = Spot(*key)
            self._trails.states_bytes += EACH_SPOT
        return known

    def forget_signatures(self) -> None:
        """Forget what the chart's signatures are, whose numbers may come to mean something else."""
        for spot in self._spots.values():
            spot.signature = NO_SIGNATURE
            spot.lacking.clear()

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
            if spot.mode == WORD:
                frame = trail.frame.having(word_of(key))
            else:
                frame = trail.frame.having(key) if spot.mode == TEXT else trail.frame.named(key)
            if frame is None:
                return None
            found = Trail(frame, after.mode, begin)
            if after.has_rivals and not frame.rivals:
                after = self.spot(after.state, found)
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
        state = self._steps.quick(spot.state, token)
        if state is None or state == DEAD:
            return None
        simple = self._effects.look_simple(trail, token)
        self._trails.states_bytes += EACH_MOVE
        if simple is None:
            spot.moves[token] = None
            return None
        move = Move(self._at(state, spot.shape, simple.mode, spot.has_rivals), simple.ends, simple.more, simple.begin)
        spot.moves[token] = move
        return move

    def _is_surely_alive(self, spot: Spot, trail: Trail) -> bool:
        """Whether it is known at once that the text can be completed."""
        variety = self._ways.variety
        if spot.mode == WORD:
            text, rest = joined(trail.text), variety.known_ending(spot.state)
            if variety.is_known_endless(spot.state, text) or self._trails.is_free(trail):
                return True
            return rest is not None and word_of(text + rest) not in trail.frame.targets
        is_string = spot.mode in STRINGS
        spot.is_roomy = variety.is_known_wide(spot.state) if is_string else variety.is_known_roomy(spot.state, trail)
        return spot.is_roomy or self._ways.is_settled(trail)

    def signature(self, trail: Trail) -> int:
        """The signature of the chart's mask in a place, if it is known at once that none of its tokens is refused."""
        spot: Spot = trail.spot
        unsafe, frame = spot.unsafe, trail.frame
        written = frame.written
        if unsafe is None or has_name(unsafe, frame):
            return NO_SIGNATURE
        if spot.mode in STRINGS:
            if not trail.is_free:
                if not spot.is_robust or frame.rivals is not NONE:
                    return NO_SIGNATURE
                met = NONE_SO
                if written is not None and (frame.kind is ARRAY or frame.name is None):
                    met = written.meets(joined(trail.text))
                trail.is_free = met == NONE_SO
                if met == ENDING_SO:
                    return NO_SIGNATURE
        elif spot.mode == WORD:
            if not self._trails.is_free(trail) and not self.is_unlike(spot, trail):
                return NO_SIGNATURE
        elif (frame.rivals is not NONE and unsafe.loose) or any(word in frame.targets for word in spot.words):
            return NO_SIGNATURE
        if unsafe.wholes and written is not None:
            hits = hits_of(unsafe, trail)
            if hits is not None:
                return spot.lacking.get(hits, NO_SIGNATURE)
        return spot.signature

    def is_unlike(self, spot: Spot, trail: Trail) -> bool:
        """Whether no token makes a value that is there of a number in progress, and all others lead on; quick."""
        narrow = self._effects.known_narrow(spot.state)
        text = joined(trail.text)
        # Zero is one value whatever the power of ten.
        if narrow is None or text[:1] not in b"-0123456789" or not text.strip(b"-0.") or b"e" in text.lower():
            return False
        enders = self._heads.enders_of(text)
        targets = trail.frame.targets
        tried = narrow.others
        if narrow.powers and targets.continues_word(WordBegin(text + b"e")):
            tried = tried + narrow.powers
        if len(enders) + len(tried) > FEW_WORDS or any(word_of(text + head) in targets for head in enders):
            return False
        rests = [narrow.endings[token] for token in tried]
        return all(rest is not None and word_of(text + rest) not in targets for rest in rests)

    def learn(self, trail: Trail, signature: int) -> Unsafe | None:
        """Note the signature of the chart's mask in a place; the tokens to be looked at there, if they are known."""
        spot: Spot = trail.spot
        spot.signature = signature
        unsafe = self._effects.known(spot.state, trail)
        if unsafe is not None and unsafe.words is not None:
            spot.unsafe = unsafe
            spot.words = unsafe.words
            spot.is_robust = spot.mode in (TEXT, NAME_TEXT) and self._ways.variety.is_robust(spot.state)
        return spot.unsafe
