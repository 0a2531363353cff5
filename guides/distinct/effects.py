"""Effects of tokens on trails, as far as they do not depend on the values written so far."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..limits import spend
from ..protocol import DEAD, Mask, tokens_of
from .cardinality import MAX_KNOWN, note
from .continuations import ChartSteps, Continuations
from .frames import (
    AFTER,
    COLON,
    FIRST,
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
from .trail import LEVELS, NO_PLACES, SPACE, Completed, JSONTrails, ReadPlaces, Shape
from .values import ARRAY, OBJECT, Container, Kind, Value, WordBegin, word_of

Tokens = NDArray[np.int32]
_HEAD = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL)
VALUE_MODES = (ITEM, COLON, TEXT, TEXT_ESCAPE, WORD)
EACH_TOKEN = 600
UNKNOWN, NOTHING = -2, -1
"""Pseudo effect numbers: UNKNOWN for tokens not yet read, NOTHING for tokens that never matter."""
NO_DUPLICATES, SOME_DUPLICATES, EARLY, NAMING, SETTLED, READ = range(6)
"""Knowledge about an item: it has no duplicates (see `OpenContainer`); it has some; it may have some (also used between
items); it has none, but a name in progress may equal an earlier one; it can equal no earlier value; only a full trail
decides."""
MAX_FOLLOWED = 256
"""Maximum number of tokens that `stays_roomy` follows to decide whether very many values remain possible."""
MAX_ALIKE = 1 << 11
"""Number of cached `UnsafeTokens` sets, and of masks cached per `TrailEffects`."""
MAX_SHARED = 64
"""Number of (containers, mode) pairs whose effects all guides of a vocabulary share."""


class Effect(NamedTuple):
    """The effect of a token.

    trail: the trail after the token, from a trail without values
    items: complete items in the token, of an array of unique items; names: complete names in it, of the object
    is_decided: whether the effect is known without the trail's values; is_decided_settled: or else in a settled item
    goes_on: whether something begins in the token after which a completion may not exist
    is_loose: whether the token completes a value or stays between values, so that duplicates of the container matter
    stays: whether the whole token lies in the item in which it begins
    begins_word: whether the token is optional space and the beginning of a word
    stays_free: whether nothing in progress after the token can equal a written value, without duplicates around
    member: the complete value in the token of the member whose value comes, if that is no container
    """

    trail: JSONTrail | None
    items: tuple[Value, ...]
    names: frozenset[bytes]
    is_decided: bool
    goes_on: bool
    is_loose: bool
    stays: bool = False
    begins_word: bool = False
    stays_free: bool = False
    member: Value | None = None
    is_decided_settled: bool = False


ENDED = Effect(None, (), frozenset(), is_decided=True, goes_on=False, is_loose=True)
UNDECIDED = Effect(None, (), frozenset(), is_decided=False, goes_on=False, is_loose=True)


class TokenLog(NamedTuple):
    """Pieces that a token completes.

    names: all member names; outer_names: those that began in the token, in no container that also did
    closed: True if a container ended that began before the token; is_decided: False if something began outside it too
    is_part: True if it did, and behind it nothing began and no name is anywhere: its parts do not matter if it is
        settled
    fresh: number of values and names that began in the token; hidden: of values among them in containers that also did
    values: values that began in the token, in no container that also did
    """

    names: frozenset[Any]
    outer_names: frozenset[bytes]
    closed: bool
    is_decided: bool
    is_part: bool
    fresh: int
    hidden: int
    values: list[Value]

    @classmethod
    def of(cls, log: list[Completed]) -> TokenLog:
        """Sort what was completed, in this order."""
        ends = [at for at, each in enumerate(log) if isinstance(each.value, Container) and not each.has_start]
        names = frozenset(each.value for each in log if each.is_name)
        fresh = [each for each in log if each.has_start]
        outside = [each for each in fresh if not each.inside]
        return cls(
            names,
            frozenset(each.value for each in outside if each.is_name and isinstance(each.value, bytes)),
            bool(ends),
            not (ends and outside),
            bool(ends) and not names and not any(each.has_start for each in log[ends[0] :]),
            len(fresh),
            sum(each.inside and not each.is_name for each in fresh),
            [each.value for each in outside if not each.is_name],
        )

    @property
    def has_nested(self) -> bool:
        """True if a value is a container with parts."""
        return any(isinstance(value, Container) and value.parts for value in self.values)

    @property
    def plain_value(self) -> Value | None:
        """The first value, unless it is a container; None if there is none."""
        return self.values[0] if self.values and not isinstance(self.values[0], Container) else None

    def is_whole(self, is_watched: bool) -> bool:
        """Test whether everything that began are values of a watched array, none of them nested; or nothing began."""
        is_all = is_watched and not (self.closed or self.has_nested) and len(self.values) == self.fresh
        return not self.fresh or is_all


class Move(NamedTuple):
    """The effect of a token on a place, assuming that its values are allowed.

    ends: whether the trail ends with the token; if not: down: number of containers that end; up: kinds of those that
    then begin; mode: what comes next
    first: where in the token the first item of the array that begins in it begins; -1 if none does
    stays: as in `Effect`; is_same: whether it continues the piece in progress; has_names: whether it contains a name or
    begins one; ends_name: whether it ends the name in progress
    """

    ends: bool
    down: int
    up: tuple[Kind, ...]
    mode: int
    stays: bool
    is_same: bool
    has_names: bool
    ends_name: bool = False
    first: int = -1


_ON = {mode: Move(False, 0, (), mode, True, True, False) for mode in (TEXT, NAME_TEXT)}
_NUMBERS = (FIRST, ITEM, WORD)
_DIGITS = -1
"""Stands for all tokens of digits."""
_UNSEEN = Move(True, 0, (), WORD, False, False, False)


class _FirstItems(ReadPlaces, list[int]):
    """Places in a text read without a chart: lists where the first items of arrays begin."""

    def may_differ(self, at: int) -> bool:
        """See `ReadPlaces.may_differ`."""
        self.append(at)
        return False


@dataclass(slots=True)
class UnsafeTokens:
    """Tokens that a state of the chart allows and that some trails refuse.

    tested: tokens of which nothing is known; a trail must read them
    scarce: tokens after which few items are possible, by a number: if fewer items have been written, one remains
    loose: tokens after which a container may equal an earlier one, or have no other completion
    members: loose tokens that complete a member's value, by that value
    items, named: tokens by an item, or name, that must not have been written before
    doubled: tokens with a complete item that also end the string in progress as that item, by how that string begins
    words: tokens by a word; the text can be completed if that word has not been written
    """

    tested: list[int] = field(default_factory=list[int])
    scarce: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    loose: list[int] = field(default_factory=list[int])
    items: dict[Value, list[int]] = field(default_factory=dict[Value, list[int]])
    named: dict[Value, list[int]] = field(default_factory=dict[Value, list[int]])
    doubled: dict[bytes, list[int]] = field(default_factory=dict[bytes, list[int]])
    words: dict[Value, list[int]] = field(default_factory=dict[Value, list[int]])
    members: dict[Value, list[int]] = field(default_factory=dict[Value, list[int]])

    _all_tokens: frozenset[int] | None = None

    def all_tokens(self) -> frozenset[int]:
        """Return all tokens, cached. Call only when all are noted."""
        if self._all_tokens is None:
            by_value = (self.items, self.named, self.words, self.members, self.scarce)
            tokens = (tokens for each in by_value for tokens in each.values())
            self._all_tokens = frozenset(chain(self.tested, self.loose, *tokens))
        return self._all_tokens


SAFE = UnsafeTokens()
"""No token is refused by any trail."""


class NarrowTokens(NamedTuple):
    """Tokens after which a word cannot become very many values, with their bytes and a shortest ending, or None.

    powers: tokens that begin with e or E; others: the rest
    """

    powers: dict[int, bytes | None]
    others: dict[int, bytes | None]


class TrailEffects:
    """Effects of tokens on one trail without values, computed on demand. Hold the lock of `TokenSummaries`.

    effects: effects that may matter; tokens that need the same checks share one
    """

    def __init__(self, blank: JSONTrail, count: int) -> None:
        self.blank = blank
        self.effects: list[Effect] = []
        self.moves: dict[int, Move | None] = {}
        self.risky: dict[tuple[bool, bytes], tuple[Tokens, Tokens, int]] = {}
        self._numbers: dict[Any, int] = {}
        self._groups = np.full(count, UNKNOWN, np.int32)

    def grouped(
        self, tokens: list[int], effect_of: Callable[[bytes], Effect], texts: Sequence[bytes | None]
    ) -> tuple[Tokens, Tokens]:
        """Return those tokens that may matter, and the numbers of their effects."""
        ids = np.array(tokens, np.int64)
        new: list[int] = ids[self._groups[ids] == UNKNOWN].tolist()
        for token in new:
            data = texts[token] or b""
            # A vocabulary may have a thousand tokens of digits, which have one effect unless they begin with zero.
            is_number = self.blank.mode in _NUMBERS and data.isdigit() and data[0] != 0x30
            number = self._numbers.get(_DIGITS) if is_number else None
            if number is None:
                number = self._group(effect_of(data)) if data else NOTHING
            if is_number:
                self._numbers[_DIGITS] = number
            self._groups[token] = number
        ids = ids[self._groups[ids] != NOTHING]
        return ids.astype(np.int32), self._groups[ids]

    def _group(self, effect: Effect) -> int:
        if effect.is_decided and not (effect.is_loose or effect.goes_on or effect.items or effect.names):
            return NOTHING
        at, key = effect.trail, None
        if not (effect.is_decided or effect.is_decided_settled):
            key = (effect.stays, effect.names)
        elif at is not None:
            written = at.frame.written
            text = joined(at.text) if at.mode in (NAME_TEXT, NAME_ESCAPE, WORD) else None
            is_alone = effect.items or effect.names or (written is not None and written.count)
            down, opened = _between(at.frame, self.blank.frame)
            frames = (not down, bool(opened), at.frame.kind)
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
    """Return a key that word beginnings share if they can become equally many values; the text itself outside words."""
    if text is None or mode != WORD:
        return text
    mantissa, power, _ = text.lower().partition(b"e")
    digits = mantissa.strip(b"-0.") != b"", mantissa.strip(b"-0") != b""
    return text[:1] in b"-0123456789", power, b"." in mantissa, *digits


class Effects:
    """Effects of one guide's tokens; hold the automaton's lock."""

    def __init__(
        self, continuations: Continuations, summaries: TokenSummaries, steps: ChartSteps, *, open_names: bool
    ) -> None:
        self.continuations = continuations
        self.summaries = summaries
        self.steps = steps
        self.open_names = open_names
        self._trails = continuations.trails
        self._texts = summaries.tokens
        # The effect on a trail without values is the same in all guides with the same string spelling.
        with summaries.lock:
            readers = summaries.readers
            kind = (self._trails.canonical, self._trails.with_names)
            if kind not in readers:
                readers[kind] = JSONTrails(canonical=kind[0], with_names=kind[1])
            self._reader: JSONTrails = readers[kind]
        self._narrow: dict[int, NarrowTokens] = {}
        self._unsafe: dict[tuple[int, int, int, int], UnsafeTokens] = {}
        self._alike: dict[Any, UnsafeTokens] = {}
        self._effects_of_shapes: dict[tuple[int, int], TrailEffects] = {}

    def unsafe(self, state: int, number: int, mode: int, knowledge: int, allowed: Callable[[], Mask]) -> UnsafeTokens:
        """Return the allowed tokens that need a look at the trail, in a state of the chart.

        number: of the shape; knowledge: NO_DUPLICATES, SOME_DUPLICATES, EARLY, ... For EARLY, tokens that end a string
        or word may matter too.
        """
        key = (state, number, mode, knowledge)
        known = self._unsafe.get(key)
        if known is None:
            known = self._find_unsafe(allowed(), key)
            note(self._unsafe, [key], known, MAX_KNOWN >> 4)
        return known

    def _find_unsafe(self, allowed: Mask, key: tuple[int, int, int, int]) -> UnsafeTokens:
        state, number, mode, knowledge = key
        effects = self._trail_effects(number, mode)
        tokens, groups, leaving = self._relevant_tokens(allowed, effects, number, mode, knowledge)
        if not len(tokens):
            return SAFE
        # Many states have equal successors.
        after = np.full(len(tokens), DEAD, np.int32)
        if leaving:
            after[:leaving] = self.steps.after_each(state, tokens[:leaving])
        alike = (number, mode, knowledge, tokens.tobytes(), after.tobytes())
        known = self._alike.get(alike)
        if known is None:
            known = UnsafeTokens()
            self._look_groups(after, effects, tokens, groups, known, knowledge=knowledge)
            note(self._alike, [alike], known, MAX_ALIKE)
        return known

    def _relevant_tokens(
        self, allowed: Mask, effects: TrailEffects, number: int, mode: int, knowledge: int
    ) -> tuple[Tokens, Tokens, int]:
        """Return the tokens of a mask that may matter, the numbers of their effects, and a number of tokens.

        So many, the first ones, matter depending on the state after them.
        """
        shape, summaries = self._trails.shapes[number], self.summaries
        if knowledge != SETTLED or not shape.depth:
            some = summaries.quoted if mode in STRINGS else summaries.ending if mode == WORD else allowed
            tokens, groups = self._grouped(effects, shape, tokens_of(allowed & some))
            return tokens, groups, len(tokens)
        # In the middle of an item only tokens that end it or contain names matter, the same ones in many states.
        risky = (summaries.naming if self.open_names else summaries.closing)[mode in STRINGS].within(allowed)
        key = (self.open_names, risky.bits.tobytes())
        known = effects.risky.get(key)
        if known is None:
            tokens, groups = self._grouped(effects, shape, risky.listed())
            onward = np.array([each.goes_on and not each.stays for each in effects.effects], np.bool_)[groups]
            stay = np.array([each.stays and not self._has_names(each) for each in effects.effects], np.bool_)[groups]
            order = np.r_[np.flatnonzero(onward), np.flatnonzero(~(onward | stay))]
            known = tokens[order], groups[order], int(np.count_nonzero(onward))
            note(effects.risky, [key], known, MAX_ALIKE)
        return known

    def _has_names(self, effect: Effect) -> bool:
        return self.open_names and bool(effect.names)

    def _grouped(self, effects: TrailEffects, shape: Shape, tokens: list[int]) -> tuple[Tokens, Tokens]:
        with self.summaries.lock:
            return effects.grouped(tokens, lambda data: self._effect(effects.blank, shape, data), self._texts)

    def move(self, number: int, mode: int, token: int) -> Move | None:
        """Return the move of a token from a place; None if only a trail can tell."""
        data = self.summaries.text(token)
        if mode in (TEXT, NAME_TEXT) and b'"' not in data and b"\\" not in data:
            return _ON[mode]
        effects = self._trail_effects(number, mode)
        key = _DIGITS if mode in _NUMBERS and data.isdigit() else token
        found = effects.moves.get(key, _UNSEEN)
        if found is _UNSEEN:
            with self.summaries.lock:
                found = self._look_move(effects.blank, self._trails.shapes[number], data)
                note(effects.moves, [key], found)
        return found

    def _look_move(self, blank: JSONTrail, shape: Shape, data: bytes) -> Move | None:
        spend(EACH_TOKEN)
        log: list[Completed] = []
        firsts = _FirstItems()
        found, end = self._reader.read(blank, data, 0, firsts, log)
        ends_name = any(each.is_name and not each.has_start for each in log)
        has_names = any(each.is_name and each.has_start for each in log)
        if found is None:
            is_decided = end >= 0 and not shape.is_deep and not any(each.has_start for each in log)
            is_decided = is_decided and not self._trails.openings.search(data, end)
            return Move(True, 0, (), AFTER, False, False, has_names, ends_name) if is_decided else None
        down, opened = _between(found.frame, blank.frame)
        begins_array = any(each.kind is ARRAY for each in opened)
        if begins_array and (len(firsts) != 1 or any(each.is_open for each in opened)):
            return None
        is_same = not log and not opened and found.mode in PARTIAL and blank.mode in PARTIAL
        begins_name = found.mode == NAME_TEXT and not is_same
        has_names = has_names or begins_name or found.mode == NAME_ESCAPE
        stays = down < shape.depth or is_same
        first = firsts[0] if begins_array else -1
        up: tuple[Kind, ...] = tuple(each.kind for each in reversed(opened))
        return Move(False, down, up, found.mode, stays, is_same, has_names, ends_name, first)

    def _look_groups(
        self,
        after: Tokens,
        effects: TrailEffects,
        tokens: Tokens,
        groups: Tokens,
        found: UnsafeTokens,
        *,
        knowledge: int,
    ) -> None:
        """Fill in `found` for tokens, given their successors in the chart and effect numbers.

        Tokens with the same effect and successor are examined once.
        """
        order = np.lexsort((tokens, after, groups))
        tokens, after, groups = tokens[order], after[order], groups[order]
        starts = np.flatnonzero(np.r_[True, (np.diff(after) != 0) | (np.diff(groups) != 0)])
        with_duplicates = knowledge in (SOME_DUPLICATES, EARLY)
        with_loose = knowledge == EARLY or (with_duplicates and effects.blank.mode not in PARTIAL)
        spend(EACH_TOKEN * len(starts) + len(tokens))
        for first, last in zip(starts, [*starts[1:], len(tokens)], strict=True):
            effect, target = effects.effects[groups.item(first)], after.item(first)
            alike: list[int] = tokens[first:last].tolist()
            if with_loose and effect.is_loose:
                self._note_loose(target, effects.blank, effect, alike, found)
            if knowledge == SETTLED and effect.stays and (effect.is_decided or not self._has_names(effect)):
                self._note(found, alike, effect, effect.names)
                continue
            if not (effect.is_decided or (knowledge == SETTLED and effect.is_decided_settled)):
                found.tested.extend(alike)
                continue
            name = None if with_duplicates else self._free_name(target, effects.blank, effect)
            if name is not None:
                self._note(found, alike, effect, effect.names | {name})
            elif effect.goes_on and effect.trail is not None and (with_duplicates or not effect.stays_free):
                self._note_onward(target, effects.blank, effect, alike, found, with_duplicates=with_duplicates)
            else:
                self._note(found, alike, effect, effect.names)

    def _note(self, found: UnsafeTokens, tokens: list[int], effect: Effect, names: frozenset[bytes]) -> None:
        """Note the items and names that tokens contain."""
        for item in effect.items:
            found.items.setdefault(item, []).extend(tokens)
            if isinstance(item, bytes):
                for token in tokens:
                    head = _HEAD.match(self.summaries.text(token))
                    if head and item.endswith(head.group()):
                        found.doubled.setdefault(item[: len(item) - head.end()], []).append(token)
        for name in names:
            found.named.setdefault(name, []).extend(tokens)

    def _free_name(self, state: int, blank: JSONTrail, effect: Effect) -> bytes | None:
        """Return a name that may follow a token in the same object. If it is unused, the text can be completed."""
        at = effect.trail
        if at is None or at.frame.name is not None or state == DEAD:
            return None
        # The blank trail does not know which name is in progress before the token; that name is then used.
        if at.frame.parent is not blank.frame.parent or blank.mode in (NAME_TEXT, NAME_ESCAPE):
            return None
        name = self.continuations.bounds.some_name(state, at.mode, at.text)
        return None if name in effect.names else name

    def _note_loose(self, state: int, blank: JSONTrail, effect: Effect, tokens: list[int], found: UnsafeTokens) -> None:
        """Note tokens that matter if the container has duplicates.

        If very many values remain possible inside an object that does not end, only the names that lead there matter.
        """
        at, names = effect.trail, None
        if (
            effect.is_decided
            and at is not None
            and blank.frame.kind is OBJECT
            and not _between(at.frame, blank.frame)[0]
        ):
            names = self._room(state, at)
            if names and at.frame.parent is not blank.frame.parent:
                names = None
        if names is None and effect.member is not None:
            found.members.setdefault(effect.member, []).extend(tokens)
        elif names is None:
            found.loose.extend(tokens)
        for name in names or ():
            found.named.setdefault(name, []).extend(tokens)

    def _note_onward(
        self,
        state: int,
        blank: JSONTrail,
        effect: Effect,
        tokens: list[int],
        found: UnsafeTokens,
        *,
        with_duplicates: bool,
    ) -> None:
        """Note tokens in which something begins after which a completion may not exist."""
        at = effect.trail
        assert at is not None
        more = self._room(state, at)
        if more and at.frame.written is not None and at.frame.parent is not blank.frame.parent:
            is_met = not _between(at.frame, blank.frame)[1] or any(map(at.frame.written.__contains__, more))
            more = None if is_met else frozenset[bytes]()
        if more is not None:
            return self._note(found, tokens, effect, effect.names | more)
        rest = self.continuations.bounds.ending(state) if effect.begins_word else None
        if rest is None:
            is_item = at.frame.parent is blank.frame.parent and at.frame.kind is ARRAY and at.frame.written is not None
            # The items in the token, and the one in progress before it, are written too.
            most = len(effect.items) + 1
            least = self.continuations.bounds.least_items(state, at) - most if is_item and not with_duplicates else 0
            if least > 0:
                found.scarce.setdefault(least, []).extend(tokens)
                self._note(found, tokens, effect, effect.names)
            else:
                found.tested.extend(tokens)
        else:
            for token in tokens:
                word = word_of((self._texts[token] or b"").lstrip(SPACE) + rest)
                found.words.setdefault(word, []).append(token)

    def _room(self, state: int, trail: JSONTrail) -> frozenset[bytes] | None:
        """Return the names to write before a piece with very many possible values; None if no such piece is found."""
        if state == DEAD:
            return frozenset()  # the chart does not allow it
        mode, kind, bounds = trail.mode, trail.frame.kind, self.continuations.bounds
        if mode in PARTIAL:
            if bounds.is_various(state, trail):
                return frozenset()
            rest = bounds.ending(state) if mode == WORD else None
            if rest is not None and kind is OBJECT:
                behind = self.continuations.automaton.read(state, rest + b",")
                return None if behind == DEAD else bounds.room(behind, NAME, kind)
            if mode not in (TEXT, NAME_TEXT) or kind is not OBJECT:
                return None
        return bounds.room(state, mode, kind, trail.text)

    def narrow(self, state: int, allowed: Callable[[], Mask]) -> NarrowTokens:
        """Return tokens that continue a word in a chart state so that it can no longer become very many values."""
        known = self._narrow.get(state)
        if known is None:
            if len(self._narrow) >= MAX_KNOWN >> 4:
                self._narrow.clear()
            known = self._narrow[state] = NarrowTokens({}, {})
            tokens = tokens_of(allowed() & ~self.summaries.ending)
            spend(EACH_TOKEN * len(tokens))
            for token, after in zip(tokens, self.steps.after_each(state, tokens).tolist(), strict=True):
                data = self._texts[token] or b""
                if not self.continuations.bounds.is_wide(after):
                    rest = self.continuations.bounds.ending(after)
                    endings = known.powers if data[:1] in b"eE" else known.others
                    endings[token] = None if rest is None else data + rest
        return known

    def stays_roomy(self, state: int, trail: JSONTrail, allowed: Mask) -> bool:
        """Test whether very many values remain possible after a name in progress, for every next token."""
        bounds, summaries = self.continuations.bounds, self.summaries
        tokens = tokens_of(allowed & ~summaries.quoted)
        if len(tokens) > MAX_FOLLOWED:
            return False
        begin = joined(trail.text)
        for token, after in zip(tokens, self.steps.after_each(state, tokens).tolist(), strict=True):
            data = summaries.text(token)
            if b"\\" in data or bounds.room(after, trail.mode, trail.frame.kind, begin + data) is None:
                return False
        return True

    def met_words(self, narrow: NarrowTokens, begin: bytes, targets: Targets) -> tuple[list[bytes], list[int]]:
        """Return the endings that make a word one of the targets, and the tokens after which it may have to be one."""
        ends = [head for head in self.summaries.enders_of(begin) if word_of(begin + head) in targets]
        endings = narrow.others
        if narrow.powers and targets.continues_word(WordBegin(begin + b"e")):
            endings = {**endings, **narrow.powers}
        return ends, [token for token, rest in endings.items() if rest is None or word_of(begin + rest) in targets]

    def _trail_effects(self, number: int, mode: int) -> TrailEffects:
        """Return the effects for containers of a shape, shared by all guides with the same string spelling."""
        effects = self._effects_of_shapes.get((number, mode))
        if effects is None:
            shape, known = self._trails.shapes[number], self.summaries.effects
            key = (self._reader.canonical, self._reader.with_names, shape.kinds, mode)
            with self.summaries.lock:
                if key not in known:
                    note(
                        known, [key], TrailEffects(self._blank(self._reader, shape, mode), len(self._texts)), MAX_SHARED
                    )
                effects = known[key]
            note(self._effects_of_shapes, [(number, mode)], effects, MAX_SHARED)
        return effects

    def _effect(self, blank: JSONTrail, shape: Shape, data: bytes) -> Effect:
        spend(EACH_TOKEN)
        completed: list[Completed] = []
        found, end = self._reader.read(blank, data, 0, NO_PLACES, completed)
        if end < 0:
            return UNDECIDED
        log = TokenLog.of(completed)
        is_watched = blank.frame.kind is ARRAY and blank.frame.written is not None
        if found is None:
            is_all = log.is_whole(is_watched) and not shape.is_deep and not self._trails.openings.search(data, end)
            return ENDED._replace(items=tuple(log.values)) if is_all else UNDECIDED
        down, opened = _between(found.frame, blank.frame)
        stays = down < shape.depth
        is_part = not is_watched and log.is_part
        # A name may equal the one in progress before the token.
        is_unknown = (is_watched and log.has_nested) or log.hidden > 1 or not (log.is_decided or is_part)
        if is_unknown or (log.outer_names and blank.mode in (NAME_TEXT, NAME_ESCAPE)):
            return UNDECIDED._replace(stays=stays, names=log.names)
        is_member = not is_watched and log.is_decided and blank.mode in (ITEM, COLON)
        is_after = found.mode == AFTER and not opened
        is_same_piece = not completed and blank.mode in PARTIAL
        return Effect(
            found,
            tuple(log.values) if is_watched else (),
            log.outer_names,
            log.is_decided,
            goes_on=not is_after and not is_same_piece,
            is_loose=is_after or bool(completed),
            stays=stays,
            begins_word=found.mode == WORD and joined(found.text) == data.lstrip(SPACE),
            stays_free=self._stays_free(found, blank),
            member=log.plain_value if is_member else None,
            is_decided_settled=is_part,
        )

    def _stays_free(self, at: JSONTrail, blank: JSONTrail) -> bool:
        """Compute `Effect.stays_free`: values of an object's members have no duplicates, the new container is empty."""
        frame, around = at.frame, blank.frame.parent
        if blank.frame.kind is not OBJECT:
            return False
        if frame.parent is around:
            return frame.name is not None
        # Deeper in the object, earlier parts of the containers would matter.
        is_directly_in = frame.parent is not None and frame.parent.parent is around
        return is_directly_in and not frame.length and self.continuations.is_settled(at)

    def _blank(self, trails: JSONTrails, shape: Shape, mode: int) -> JSONTrail:
        """Return a trail without values in containers of a shape."""
        frame: OpenContainer | None = None
        around = 0
        for number, (kind, is_watched) in enumerate(reversed(shape.kinds[:LEVELS])):
            is_last = number == min(len(shape.kinds), LEVELS) - 1
            is_value = not is_last or mode in VALUE_MODES
            written = trails.no_values if is_watched or kind is OBJECT else None
            around = trails.shape(around, kind, is_watched=is_watched)
            frame = OpenContainer(frame, kind, written, around, name=b"" if kind is OBJECT and is_value else None)
        assert frame is not None
        # No string begins with NUL, so the one in progress differs from all strings that tokens contain.
        text = None if mode not in STRINGS else b"\0\\" if mode in (TEXT_ESCAPE, NAME_ESCAPE) else b"\0"
        return JSONTrail(frame, mode, text)


def _between(frame: OpenContainer, blank: OpenContainer) -> tuple[int, list[OpenContainer]]:
    """Return the number of containers that ended since a blank frame, and the list of those that began after it."""
    opened: list[OpenContainer] = []
    while True:
        around: OpenContainer | None = blank
        down = 0
        while around is not None:
            if frame.parent is around.parent:
                return down, opened
            around, down = around.parent, down + 1
        opened.append(frame)
        assert frame.parent is not None
        frame = frame.parent
