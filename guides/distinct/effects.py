"""Effects of tokens on a trail, as far as they do not depend on what has been written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...tokenizers_adapter import Vocabulary
from ..chart.automaton import ChartAutomaton
from ..limits import spend
from ..protocol import DEAD, Mask, tokens_of
from .cardinality import MAX_KNOWN
from .continuations import ChartSteps, Continuations
from .frames import (
    AFTER,
    COLON,
    ITEM,
    NAME,
    NAME_ESCAPE,
    NAME_TEXT,
    PARTIAL,
    STRINGS,
    TEXT,
    TEXT_ESCAPE,
    WORD,
    JSONTrail,
    OpenContainer,
    Targets,
    joined,
)
from .summaries import TokenSummaries
from .trail import LEVELS, NO_PLACES, SPACE, Completed, JSONTrails, Shape
from .values import ARRAY, OBJECT, Container, Value, WordBegin, word_of

Tokens = NDArray[np.int32]
VALUE_MODES = (ITEM, COLON, TEXT, TEXT_ESCAPE, WORD)
EACH_TOKEN = 600
UNKNOWN, NOTHING = -2, -1
"""Numbers of no effects: of tokens that have not been looked at, and of those that do not matter."""
EARLY = 2
"""Stands for rivals that are not known."""
MOST_FOLLOWED = 256
"""Most tokens with which a name goes on that are followed, to find out whether very many values may come."""
MOST_SHARED = 64
"""Of how many places the effects are kept for all guides of a vocabulary."""


class Effect(NamedTuple):
    """The effect of a token.

    trail: what it leads to from a trail without values
    wholes: the items that it has in whole, of an array whose items must differ; names: the names of the object
    is_told: whether what is here says all that there is to say
    goes_on: whether something begins with which the text might have no end
    begins_word: whether it is the beginning of a word, with nothing but space before it
    is_loose: whether it has the end of a value, or nothing, so that it matters if the container has rivals
    stays_free: whether nothing in progress behind it can come to what is there, if the container has no rivals
    member: the value that it has in whole of the member whose value comes, if that is no container
    """

    trail: JSONTrail | None
    wholes: tuple[Value, ...]
    names: frozenset[bytes]
    is_told: bool
    goes_on: bool
    is_loose: bool
    begins_word: bool = False
    stays_free: bool = False
    member: Value | None = None


ENDED = Effect(None, (), frozenset(), is_told=True, goes_on=False, is_loose=True)
UNTOLD = Effect(None, (), frozenset(), is_told=False, goes_on=False, is_loose=True)


class Unsafe(NamedTuple):
    """The tokens that a state of the chart allows and that must not come after all trails.

    tested: those of which nothing is known
    loose: those after which a container may be one that is there, or may come to such ones only
    members: such ones that have the value of a member, by that value
    wholes, named: by an item, or a name, that must not be there
    words: by a word, those that lead on where that word is not there
    """

    tested: list[int]
    loose: list[int]
    wholes: dict[Value, list[int]]
    named: dict[Value, list[int]]
    words: dict[Value, list[int]]
    members: dict[Value, list[int]]


class Narrow(NamedTuple):
    """Tokens after which a word may not come to very many values, with bytes that begin with their own after which a
    word may end, None where none are known.

    powers: those that begin with a power of ten; others: all others
    """

    powers: dict[int, bytes | None]
    others: dict[int, bytes | None]


class Met:
    """The effects of tokens on a trail without values, as far as they have been asked for.

    Hold the lock of `TokenSummaries`.

    effects: those that may matter, one for all tokens that may be looked at together
    """

    def __init__(self, blank: JSONTrail, count: int) -> None:
        self.blank = blank
        self.effects: list[Effect] = [UNTOLD]
        self._numbers: dict[Any, int] = {}
        self._groups = np.full(count, UNKNOWN, np.int32)

    def grouped(
        self, tokens: list[int], effect_of: Callable[[bytes], Effect], texts: Sequence[bytes | None]
    ) -> tuple[Tokens, Tokens]:
        """Tokens, among some, that may matter, and the numbers of their effects."""
        asked = np.array(tokens, np.int64)
        new: list[int] = asked[self._groups[asked] == UNKNOWN].tolist()
        for token in new:
            data = texts[token]
            self._groups[token] = self._group(effect_of(data)) if data else NOTHING
        asked = asked[self._groups[asked] != NOTHING]
        return asked.astype(np.int32), self._groups[asked]

    def _group(self, effect: Effect) -> int:
        if effect.is_told and not (effect.is_loose or effect.goes_on or effect.wholes or effect.names):
            return NOTHING
        if effect is UNTOLD:
            return 0
        at, key = effect.trail, None
        if at is not None:
            written = at.frame.written
            text = joined(at.text) if at.mode in (NAME_TEXT, NAME_ESCAPE, WORD) else None
            is_alone = effect.wholes or effect.names or (written is not None and written.count)
            frames = (_is_within(at.frame, self.blank.frame), _is_begun(at.frame, self.blank.frame), at.frame.kind)
            same = at.frame.parent is self.blank.frame.parent, written is None
            key = None if is_alone else (*effect[3:], at.mode, _likeness(text, at.mode), *frames, *same)
        number = self._numbers.get(key) if key else None
        if number is None:
            number = len(self.effects)
            self.effects.append(effect)
            if key:
                self._numbers[key] = number
        return number


def _likeness(text: bytes | None, mode: int) -> Any:
    """The key that beginnings of words have in common that may come to as many values; names themselves."""
    if text is None or mode != WORD:
        return text
    mantissa, power, _ = text.lower().partition(b"e")
    return (
        text[:1] in b"-0123456789",
        power,
        b"." in mantissa,
        mantissa.strip(b"-0.") != b"",
        mantissa.strip(b"-0") != b"",
    )


class Effects:
    """The effects of one guide's tokens; hold the automaton's lock."""

    def __init__(
        self,
        automaton: ChartAutomaton,
        trails: JSONTrails,
        continuations: Continuations,
        summaries: TokenSummaries,
        vocabulary: Vocabulary,
        steps: ChartSteps,
    ) -> None:
        self._automaton = automaton
        self._trails = trails
        self._continuations = continuations
        self._summaries = summaries
        self._texts = vocabulary.tokens
        self._steps = steps
        # What tokens do to trails without values is the same in all guides that read strings alike.
        with summaries.lock:
            readers = summaries.readers
            kind = (trails.canonical, trails.with_names)
            if kind not in readers:
                readers[kind] = JSONTrails(canonical=kind[0], with_names=kind[1])
            self._reader: JSONTrails = readers[kind]
        self._narrow: dict[int, Narrow] = {}
        self._unsafe: dict[tuple[int, int, int, int], Unsafe] = {}

    def unsafe(self, state: int, trail: JSONTrail, allowed: Callable[[], Mask], *, is_early: bool = False) -> Unsafe:
        """The tokens to be looked at in a state of the chart, of those that it allows.

        is_early: as if an item had rivals that nobody knows, to which those that end a string or word may matter, too
        """
        is_early = is_early and trail.frame.parent is not None
        key = (state, trail.frame.shape, trail.mode, EARLY if is_early else bool(trail.frame.rivals))
        known = self._unsafe.get(key)
        if known is None:
            known = self._find_unsafe(trail, allowed(), key)
            if len(self._unsafe) >= MAX_KNOWN >> 4:
                self._unsafe.clear()
            self._unsafe[key] = known
        return known

    def _find_unsafe(self, trail: JSONTrail, allowed: Mask, key: tuple[int, int, int, int]) -> Unsafe:
        state, _, mode, rivals = key
        found = Unsafe([], [], {}, {}, {}, {})
        shape = self._trails.shapes[trail.frame.shape]
        if mode in STRINGS:
            allowed = allowed & self._summaries.quoted
        elif mode == WORD:
            allowed = allowed & self._summaries.ending
        with self._summaries.lock:
            met = self._shared(shape, mode)
            tokens, groups = met.grouped(
                tokens_of(allowed), lambda data: self._effect(met.blank, shape, data), self._texts
            )
        if len(tokens):
            self._look_groups(state, met, tokens, groups, found, rivals=rivals)
        return found

    def _look_groups(self, state: int, met: Met, tokens: Tokens, groups: Tokens, found: Unsafe, *, rivals: int) -> None:
        """As `_find_unsafe`, of tokens with the numbers of their effects: once for all that lead to one state."""
        after = self._steps.after_each(state, tokens)
        order = np.lexsort((tokens, after, groups))
        tokens, after, groups = tokens[order], after[order], groups[order]
        starts = np.flatnonzero(np.r_[True, (np.diff(after) != 0) | (np.diff(groups) != 0)])
        with_rivals, with_loose = rivals > 0, rivals == EARLY or (rivals > 0 and met.blank.mode not in PARTIAL)
        spend(EACH_TOKEN * len(starts) + len(tokens))
        for first, last in zip(starts, [*starts[1:], len(tokens)], strict=True):
            effect, target = met.effects[groups.item(first)], after.item(first)
            alike: list[int] = tokens[first:last].tolist()
            if with_loose and effect.is_loose:
                self._note_loose(target, met.blank, effect, alike, found)
            if not effect.is_told:
                found.tested.extend(alike)
                continue
            name = None if with_rivals else self._free_name(target, met.blank, effect)
            if name is not None:
                _note(found, alike, effect, effect.names | {name})
            elif effect.goes_on and effect.trail is not None and (with_rivals or not effect.stays_free):
                self._note_onward(target, met.blank, effect, alike, found)
            else:
                _note(found, alike, effect, effect.names)

    def _free_name(self, state: int, blank: JSONTrail, effect: Effect) -> bytes | None:
        """Some name that may come after a token in the same object: if it is not there, it takes no more to go on."""
        at = effect.trail
        if at is None or at.frame.name is not None or state == DEAD:
            return None
        # It is not known which name it is that is in progress before the token, and then there.
        if at.frame.parent is not blank.frame.parent or blank.mode in (NAME_TEXT, NAME_ESCAPE):
            return None
        name = self._continuations.bounds.some_name(state, at.mode, at.text)
        return None if name in effect.names else name

    def _note_loose(self, state: int, blank: JSONTrail, effect: Effect, tokens: list[int], found: Unsafe) -> None:
        """Note tokens that matter if the container has rivals.

        Those that do not end an object matter by the names only that are needed for what makes it another one.
        """
        at, names = effect.trail, None
        if effect.is_told and at is not None and blank.frame.kind is OBJECT and _is_within(at.frame, blank.frame):
            names = self._room(state, at)
            if names and at.frame.parent is not blank.frame.parent:
                names = None
        if names is None and effect.member is not None:
            found.members.setdefault(effect.member, []).extend(tokens)
        elif names is None:
            found.loose.extend(tokens)
        for name in names or ():
            found.named.setdefault(name, []).extend(tokens)

    def _note_onward(self, state: int, blank: JSONTrail, effect: Effect, tokens: list[int], found: Unsafe) -> None:
        """Note tokens in which something begins with which the text might have no end."""
        at = effect.trail
        assert at is not None
        more = self._room(state, at)
        if more and at.frame.written is not None and at.frame.parent is not blank.frame.parent:
            is_met = not _is_begun(at.frame, blank.frame) or any(map(at.frame.written.__contains__, more))
            more = None if is_met else frozenset[bytes]()
        if more is not None:
            return _note(found, tokens, effect, effect.names | more)
        rest = self._continuations.bounds.ending(state) if effect.begins_word else None
        if rest is None:
            found.tested.extend(tokens)
        else:
            for token in tokens:
                word = word_of((self._texts[token] or b"").lstrip(SPACE) + rest)
                found.words.setdefault(word, []).append(token)

    def _room(self, state: int, trail: JSONTrail) -> frozenset[bytes] | None:
        """The names that are needed for a piece that may come to very many values; None where none may come."""
        if state == DEAD:
            return frozenset()  # the chart does not allow it
        mode, kind, bounds = trail.mode, trail.frame.kind, self._continuations.bounds
        if mode in PARTIAL:
            if bounds.is_various(state, trail):
                return frozenset()
            rest = bounds.ending(state) if mode == WORD else None
            if rest is not None and kind is OBJECT:
                behind = self._automaton.read(state, rest + b",")
                return None if behind == DEAD else bounds.room(behind, NAME, kind)
            if mode not in (TEXT, NAME_TEXT) or kind is not OBJECT:
                return None
        return bounds.room(state, mode, kind, trail.text)

    def narrow(self, state: int, allowed: Callable[[], Mask]) -> Narrow:
        """The tokens that go on with a word in a state of the chart, so that it may not come to very many values."""
        known = self._narrow.get(state)
        if known is None:
            if len(self._narrow) >= MAX_KNOWN >> 4:
                self._narrow.clear()
            known = self._narrow[state] = Narrow({}, {})
            tokens = tokens_of(allowed() & ~self._summaries.ending)
            spend(EACH_TOKEN * len(tokens))
            for token, after in zip(tokens, self._steps.after_each(state, tokens).tolist(), strict=True):
                data = self._texts[token] or b""
                if not self._continuations.bounds.is_wide(after):
                    rest = self._continuations.bounds.ending(after)
                    endings = known.powers if data[:1] in b"eE" else known.others
                    endings[token] = None if rest is None else data + rest
        return known

    def stays_roomy(self, state: int, trail: JSONTrail, allowed: Mask) -> bool:
        """Tell whether very many values may come behind a name in progress, whatever it goes on with."""
        bounds, summaries = self._continuations.bounds, self._summaries
        tokens = tokens_of(allowed & ~summaries.quoted)
        if len(tokens) > MOST_FOLLOWED:
            return False
        begin = joined(trail.text)
        for token, after in zip(tokens, self._steps.after_each(state, tokens).tolist(), strict=True):
            data = summaries.text(token)
            if b"\\" in data or bounds.room(after, trail.mode, trail.frame.kind, begin + data) is None:
                return False
        return True

    def met_words(self, narrow: Narrow, begin: bytes, targets: Targets) -> tuple[list[bytes], list[int]]:
        """The ends of a word that begins so and makes it one of the targets; tokens after which it may be no other."""
        ends = [head for head in self._summaries.enders_of(begin) if word_of(begin + head) in targets]
        endings = narrow.others
        if narrow.powers and targets.continues_word(WordBegin(begin + b"e")):
            endings = {**endings, **narrow.powers}
        return ends, [token for token, rest in endings.items() if rest is None or word_of(begin + rest) in targets]

    def _shared(self, shape: Shape, mode: int) -> Met:
        """The effects of tokens in containers as some are, of all guides that read strings alike."""
        known, key = self._summaries.effects, (self._reader.canonical, self._reader.with_names, shape, mode)
        if key not in known:
            if len(known) >= MOST_SHARED:
                known.clear()
            known[key] = Met(self._blank(self._reader, shape, mode), len(self._texts))
        return known[key]

    def _effect(self, blank: JSONTrail, shape: Shape, data: bytes) -> Effect:
        spend(EACH_TOKEN)
        log: list[Completed] = []
        found, end = self._reader.read(blank, data, 0, NO_PLACES, log)
        if end < 0:
            return UNTOLD
        closed = sum(isinstance(each.value, Container) and not each.begun for each in log)
        fresh = [each for each in log if each.begun]
        outside = [each for each in fresh if not each.inside]
        values = [each.value for each in outside if not each.is_name]
        is_watched = blank.frame.kind is ARRAY and blank.frame.written is not None
        is_untold = is_watched and any(isinstance(value, Container) and value.parts for value in values)
        if found is None:
            is_all = not fresh or (is_watched and not (closed or is_untold) and len(values) == len(fresh))
            is_all = is_all and len(shape) <= LEVELS and not self._trails.openings.search(data, end)
            return ENDED._replace(wholes=tuple(values)) if is_all else UNTOLD
        if is_untold or sum(each.inside and not each.is_name for each in fresh) > 1 or (closed and outside):
            return UNTOLD
        member: Value | None = None
        if not is_watched:
            if values and blank.mode in (ITEM, COLON) and not isinstance(values[0], Container):
                member = values[0]
            values = []
        is_after = found.mode == AFTER and _depth(found.frame) <= _depth(blank.frame) - closed
        is_same_piece = not log and blank.mode in PARTIAL
        goes_on = not is_after and not is_same_piece
        names = frozenset(each.value for each in outside if each.is_name and isinstance(each.value, bytes))
        if names and blank.mode in (NAME_TEXT, NAME_ESCAPE):
            return UNTOLD  # one of them may be the name that is in progress before the token
        begins_word = found.mode == WORD and joined(found.text) == data.lstrip(SPACE)
        return Effect(
            found,
            tuple(values),
            names,
            True,
            goes_on,
            is_after or bool(log),
            begins_word,
            self._stays_free(found, blank),
            member,
        )

    def _stays_free(self, at: JSONTrail, blank: JSONTrail) -> bool:
        """As `Effect` says: no value of an object has rivals, and of containers that begin in it none is there yet."""
        frame, around = at.frame, blank.frame.parent
        if blank.frame.kind is not OBJECT:
            return False
        if frame.parent is around:
            return frame.name is not None
        # Where it is not directly in the object it would matter what stands before it.
        is_directly_in = frame.parent is not None and frame.parent.parent is around
        return is_directly_in and not frame.length and self._continuations.is_settled(at)

    def _blank(self, trails: JSONTrails, shape: Shape, mode: int) -> JSONTrail:
        """A trail without values in containers as some are."""
        frame: OpenContainer | None = None
        for number, (kind, is_watched) in enumerate(reversed(shape[:LEVELS])):
            is_last = number == min(len(shape), LEVELS) - 1
            is_value = not is_last or mode in VALUE_MODES
            written = trails.nothing if is_watched or kind is OBJECT else None
            around = trails.shape(frame, kind, is_watched=is_watched)
            frame = OpenContainer(frame, kind, written, around, name=b"" if kind is OBJECT and is_value else None)
        assert frame is not None
        # What no string begins with, so that the one in progress is none of those that tokens have in whole
        text = None if mode not in STRINGS else b"\0\\" if mode in (TEXT_ESCAPE, NAME_ESCAPE) else b"\0"
        return JSONTrail(frame, mode, text)


def _note(found: Unsafe, tokens: list[int], effect: Effect, names: frozenset[bytes]) -> None:
    """Note the items and names of tokens."""
    for whole in effect.wholes:
        found.wholes.setdefault(whole, []).extend(tokens)
    for name in names:
        found.named.setdefault(name, []).extend(tokens)


def _is_begun(frame: OpenContainer, blank: OpenContainer) -> bool:
    """Tell whether a frame has begun after a blank one was there, which may have ended."""
    around = blank.parent
    while around is not None and frame.parent is not around:
        around = around.parent
    return frame.parent is not around


def _is_within(frame: OpenContainer, blank: OpenContainer) -> bool:
    """Tell whether a frame is that which a blank one came to, or is in it."""
    while frame.parent is not blank.parent and frame.parent is not None:
        frame = frame.parent
    return frame.parent is blank.parent


def _depth(frame: OpenContainer | None) -> int:
    depth = 0
    while frame is not None:
        depth, frame = depth + 1, frame.parent
    return depth
