"""What tokens do to a trail, as far as that does not depend on what has been written."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...tokenizers_adapter import Vocabulary
from ..chart.automaton import ChartAutomaton
from ..limits import spend
from ..protocol import DEAD, NEVER, Mask, tokens_of
from .frames import AFTER, COLON, ITEM, NAME_ESCAPE, STRINGS, TEXT, TEXT_ESCAPE, WORD, Frame, Trail
from .heads import Heads
from .pieces import joined
from .rivals import ARRAY, OBJECT, Container, Kind, Value
from .trail import LEVELS, SPACE, WORD_END, Completed, Shape, Simple, Trails
from .variety import MAX_KNOWN
from .ways import Steps, Ways
from .words import word_of

VALUE_MODES = (ITEM, COLON, TEXT, TEXT_ESCAPE, WORD)
EACH_TOKEN = 600
MOST_SHARED = 64
"""Of how many places the effects are kept for all guides of a vocabulary."""


class Effect(NamedTuple):
    """What a token does.

    trail: what it leads to from a trail without values
    wholes: the items that it has in whole, of an array whose items must differ; names: the names of the object
    is_told: whether what is here says all that there is to say
    goes_on: whether something begins with which the text might have no end
    begins_word: whether it is the beginning of a word, with nothing but space before it
    is_loose: whether it has the end of a value, or nothing, so that it matters if the container has rivals
    """

    trail: Trail | None
    wholes: tuple[Value, ...]
    names: frozenset[bytes]
    is_told: bool
    goes_on: bool
    is_loose: bool
    begins_word: bool = False


ENDED = Effect(None, (), frozenset(), is_told=True, goes_on=False, is_loose=True)
UNTOLD = Effect(None, (), frozenset(), is_told=False, goes_on=False, is_loose=True)


class Unsafe(NamedTuple):
    """The tokens that a state of the chart allows and that must not come after all trails.

    tested: those of which nothing is known; loose: those after which a container may be one that is there
    wholes, named: by an item, or a name, that must not be there
    words: one for each that is tested, which leads on where that word is not there; None if there are others
    longest: the most bytes that the beginning of one of these items may have; begins: what these begin with
    by_hits: what is worked out of them, by those of the items that are there, and how the one in progress begins
    """

    tested: list[int]
    loose: list[int]
    wholes: dict[Value, list[int]]
    named: dict[bytes, list[int]]
    longest: int
    begins: frozenset[bytes] | None
    words: list[Value] | None
    by_hits: dict[tuple[tuple[Value, ...], bytes | None], Any]


class Narrow(NamedTuple):
    """Tokens after which a word may not come to very many values.

    powers: those that begin with a power of ten; others: all others; endings: by each of them, bytes that begin with
    its own after which a word may end, None where none are known
    """

    powers: list[int]
    others: list[int]
    endings: dict[int, bytes | None]


class Effects:
    """The effects of one guide's tokens; hold the automaton's lock."""

    def __init__(
        self,
        automaton: ChartAutomaton,
        trails: Trails,
        ways: Ways,
        heads: Heads,
        vocabulary: Vocabulary,
        steps: Steps,
    ) -> None:
        self._automaton = automaton
        self._trails = trails
        self._ways = ways
        self._heads = heads
        self._texts = vocabulary.tokens
        self._steps = steps
        # What tokens do to trails without values is the same in all guides that read strings alike.
        with heads.lock:
            readers = heads.readers
            kind = (trails.canonical, trails.with_names)
            if kind not in readers:
                readers[kind] = Trails(heads, canonical=kind[0], with_names=kind[1])
            self._reader: Trails = readers[kind]
        self._narrow: dict[int, Narrow] = {}
        self._unsafe: dict[tuple[int, int, int], Unsafe] = {}

    def known(self, state: int, trail: Trail) -> Unsafe | None:
        """The tokens to be looked at in a state of the chart, if they are known."""
        return self._unsafe.get((state, trail.frame.shape, trail.mode))

    def unsafe(self, state: int, trail: Trail, allowed: Mask) -> Unsafe:
        """The tokens to be looked at in a state of the chart, of those that it allows."""
        known = self.known(state, trail)
        if known is None:
            if len(self._unsafe) >= MAX_KNOWN >> 4:
                self._unsafe.clear()
            known = self._find_unsafe(state, trail.frame.shape, trail.mode, allowed)
            self._unsafe[state, trail.frame.shape, trail.mode] = known
        return known

    def _find_unsafe(self, state: int, number: int, mode: int, allowed: Mask) -> Unsafe:
        found = Unsafe([], [], {}, {}, 0, None, [], {})
        shape = self._trails.shapes[number]
        if mode in STRINGS:
            allowed = allowed & self._heads.quoted
        elif mode == WORD:
            allowed = allowed & self._heads.ending
        with self._heads.lock:
            blank, effects = self._shared(shape, mode)
        onward: list[tuple[int, Effect]] = []
        for token in tokens_of(allowed):
            data = self._texts[token]
            if not data:
                continue
            effect = effects.get(token)
            if effect is None:
                with self._heads.lock:
                    effect = effects[token] = self._effect(blank, shape, data)
            if effect.is_loose:
                found.loose.append(token)
            if not effect.is_told:
                found.tested.append(token)
                found = found._replace(words=None)
            elif effect.goes_on and effect.trail is not None:
                onward.append((token, effect))
            else:
                _note(found, token, effect, effect.names)
        found = self._look_onward(state, blank, onward, found)
        if not self._trails.canonical or mode == WORD:
            # There are several ways to write it, and its beginning may be longer.
            return found._replace(longest=NEVER)
        texts = [whole for whole in found.wholes if isinstance(whole, bytes)]
        begins = frozenset(whole[:end] for whole in texts for end in range(len(whole) + 1))
        return found._replace(longest=max(map(len, texts), default=0), begins=begins)

    def _look_onward(self, state: int, blank: Trail, onward: list[tuple[int, Effect]], found: Unsafe) -> Unsafe:
        """As `_find_unsafe`, of tokens in which something begins with which the text might have no end."""
        spend(EACH_TOKEN * len(onward))
        room: dict[tuple[int, int, Kind], Any] = {}
        states = self._steps.after_each(state, [token for token, _ in onward])
        for (token, effect), after in zip(onward, states, strict=True):
            at = effect.trail
            assert at is not None
            place = (after, at.mode, at.frame.kind)
            more = room.get(place, room)
            if more is room or at.mode == WORD:
                more = room[place] = self._room(after, at)
            if more and at.frame.written is not None and at.frame.parent is not blank.frame.parent:
                is_new = _depth(at.frame) > _depth(blank.frame)
                more = frozenset[bytes]() if is_new and not any(map(at.frame.written.__contains__, more)) else None
            if more is not None:
                _note(found, token, effect, effect.names | more)
                continue
            found.tested.append(token)
            rest = self._ways.variety.ending(after) if effect.begins_word else None
            if rest is None or found.words is None:
                found = found._replace(words=None)
            else:
                found.words.append(word_of((self._texts[token] or b"").lstrip(SPACE) + rest))
        return found

    def _room(self, state: int, trail: Trail) -> frozenset[bytes] | None:
        """The names that are needed for a piece that may come to very many values; None where none may come."""
        if state == DEAD:
            return frozenset()  # the chart does not allow it
        if trail.mode in STRINGS or trail.mode == WORD:
            return frozenset() if self._ways.variety.is_various(state, trail) else None
        return self._ways.variety.room(state, trail.mode, trail.frame.kind)

    def known_narrow(self, state: int) -> Narrow | None:
        """As `narrow`, if it is known."""
        return self._narrow.get(state)

    def narrow(self, state: int, allowed: Mask) -> Narrow:
        """The tokens that go on with a word in a state of the chart, so that it may not come to very many values."""
        known = self._narrow.get(state)
        if known is None:
            if len(self._narrow) >= MAX_KNOWN >> 4:
                self._narrow.clear()
            known = self._narrow[state] = Narrow([], [], {})
            tokens = tokens_of(allowed & ~self._heads.ending)
            spend(EACH_TOKEN * len(tokens))
            for token, after in zip(tokens, self._steps.after_each(state, tokens), strict=True):
                data = self._texts[token] or b""
                if not self._ways.variety.is_wide(after):
                    (known.powers if data[:1] in b"eE" else known.others).append(token)
                    rest = self._ways.variety.ending(after)
                    known.endings[token] = None if rest is None else data + rest
        return known

    def look_simple(self, trail: Trail, token: int) -> Simple | None:
        """What a token does to a trail, if that is simple."""
        mode, data = trail.mode, self._texts[token] or b""
        if not self._trails.canonical or mode in (TEXT_ESCAPE, NAME_ESCAPE) or trail.frame.is_open:
            return None
        if mode == WORD and not WORD_END.search(data):
            return Simple(False, data, mode, None)
        if mode in STRINGS and b'"' not in data and b"\\" not in data:
            return Simple(False, data, mode, None)
        log: list[Completed] = []
        blank = self._blank(self._trails, self._trails.shapes[trail.frame.shape], mode)
        found, end = self._trails.read(blank, data, 0, lambda _: False, log)
        if end < 0 or found is None or found.frame.parent is not blank.frame.parent:
            return None
        if found.mode in (TEXT_ESCAPE, NAME_ESCAPE) or len(log) > 1 or any(each.begun for each in log):
            return None
        begin = joined(found.text) if found.mode in STRINGS or found.mode == WORD else None
        if not log:
            return None if mode in STRINGS or mode == WORD else Simple(False, b"", found.mode, begin)
        value = log[0].value
        if mode == WORD:
            ended = WORD_END.search(data)
            return Simple(True, data[: ended.start()], found.mode, begin) if ended else None
        return Simple(True, value[1:], found.mode, begin) if isinstance(value, bytes) and mode in STRINGS else None

    def _shared(self, shape: Shape, mode: int) -> tuple[Trail, dict[int, Effect]]:
        """A trail without values, and what is known of tokens there, of all guides that read strings alike."""
        known, key = self._heads.effects, (self._reader.canonical, self._reader.with_names, shape, mode)
        if key not in known:
            if len(known) >= MOST_SHARED:
                known.clear()
            known[key] = self._blank(self._reader, shape, mode), {}
        return known[key]

    def _effect(self, blank: Trail, shape: Shape, data: bytes) -> Effect:
        spend(EACH_TOKEN)
        log: list[Completed] = []
        found, end = self._reader.read(blank, data, 0, lambda _: False, log)
        if end < 0:
            return UNTOLD
        closed = any(isinstance(each.value, Container) and not each.begun for each in log)
        if found is None:
            return UNTOLD if len(shape) > LEVELS or self._trails.openings.search(data, end) else ENDED
        fresh = [each for each in log if each.begun]
        outside = [each for each in fresh if not each.inside]
        values = [each.value for each in outside if not each.is_name]
        if sum(each.inside and not each.is_name for each in fresh) > 1 or (closed and outside):
            return UNTOLD
        is_watched = blank.frame.kind is ARRAY and blank.frame.written is not None
        if not is_watched:
            values = []
        elif not self._heads.inner.issuperset(values):
            return UNTOLD
        is_after = found.mode == AFTER and _depth(found.frame) <= _depth(blank.frame)
        is_same_piece = not log and blank.mode in (*STRINGS, WORD)
        goes_on = not is_after and not is_same_piece
        names = frozenset(each.value for each in outside if each.is_name and isinstance(each.value, bytes))
        begins_word = found.mode == WORD and joined(found.text) == data.lstrip(SPACE)
        return Effect(found, tuple(values), names, True, goes_on, is_after or bool(log), begins_word)

    def _blank(self, trails: Trails, shape: Shape, mode: int) -> Trail:
        """A trail without values in containers as some are."""
        frame: Frame | None = None
        for number, (kind, is_watched) in enumerate(reversed(shape[:LEVELS])):
            is_last = number == min(len(shape), LEVELS) - 1
            is_value = not is_last or mode in VALUE_MODES
            written = trails.nothing if is_watched or kind is OBJECT else None
            around = trails.shape(frame, kind, is_watched=is_watched)
            frame = Frame(frame, kind, written, around, name=b"" if kind is OBJECT and is_value else None)
        assert frame is not None
        # What no string begins with, so that the one in progress is none of those that tokens have in whole
        text = b"\0" if mode in STRINGS else None
        return Trail(frame, mode, text)


def _note(found: Unsafe, token: int, effect: Effect, names: frozenset[bytes]) -> None:
    """Note the items and names of a token."""
    for whole in effect.wholes:
        found.wholes.setdefault(whole, []).append(token)
    for name in names:
        found.named.setdefault(name, []).append(token)


def _depth(frame: Frame | None) -> int:
    depth = 0
    while frame is not None:
        depth, frame = depth + 1, frame.parent
    return depth
