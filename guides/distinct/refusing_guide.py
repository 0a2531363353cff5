"""What must not come in the states of a guide that remembers what has been written: their masks."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np

from ...kernels.chart.layout import KEPT, ROW
from ...kernels.distinct.layout import FIRST_FLAT
from ...kernels.trie.shortcut import BESIDE, HIGH, KIND, LOOP, LOW, OF_LEADS, USUAL, probe
from ..lift.lifted_guide import MAX_STEPS
from ..limits import spend
from ..protocol import Mask, tokens_of
from .effects import Unsafe
from .frames import NAME_ESCAPE, NAME_TEXT, PARTIAL, STRINGS, TEXT_ESCAPE, WORD, Trail, joined
from .moves import NO_SIGNATURE, Spot, has_name, hits_of
from .remembering_guide import FIRST_NUMBER, RememberingGuide
from .rivals import ARRAY, OBJECT
from .trail import SPACE
from .unread import Unread, level_of, where_of
from .words import WordBegin, word_of


class Refused(NamedTuple):
    """Tokens that must not come: those with the rest of a string, or of a word, and what ends it; single ones."""

    endings: tuple[bytes, ...] = ()
    are_words: bool = False
    tokens: tuple[int, ...] = ()


NOTHING = Refused()
MOST_HITS = 1024
FEW = 4000
"""Up to how many tokens are looked up in a mask one by one."""


class RefusingGuide(RememberingGuide):
    """The masks of a `DistinctGuide`: those of the chart, without the tokens that must not come."""

    def watch(self, items: set[int], names: set[int], **told: bool) -> None:
        """As `RememberingGuide.watch`."""
        super().watch(items, names, **told)
        self._quick.refuse = self._refuse
        # Masks that lack tokens are kept among the chart's, by numbers that are no signatures
        self._lacking: dict[tuple[int, Refused], int] = {}
        self._own_keys = count(NO_SIGNATURE - 1, -1)

    def _forget(self, kept: object) -> None:
        self._moves.forget_signatures()
        if self._flat is not None:
            self._flat.signatures.clear()
        self._lacking.clear()
        for state in [state for state in self._signatures if state >= FIRST_NUMBER]:
            del self._signatures[state]
        for key in [key for key in list(self._rows) if key < NO_SIGNATURE]:
            self._rows.pop(key, None)
        super()._forget(kept)

    def row(self, state: int) -> int:
        """The number of the row of `table` that holds `mask(state)`."""
        flat = self._flat
        if flat is not None and type(state) is int and state >= FIRST_FLAT and self._kept is self._automaton.kept:
            rows = self._rows
            try:
                signature = flat.signatures[flat.looks[state - FIRST_FLAT]]
                row = rows[signature]
                self._masks.touch(row)
                if rows[signature] == row:  # not given away by another thread before it was touched
                    return row
            except (IndexError, KeyError):
                return super().row(state)
        return super().row(state)

    def _new_row(self, state: int) -> int:
        """As `row`, where it is not known."""
        if state < FIRST_NUMBER:
            return super()._new_row(state)
        row = self._settled_row(state)
        if row is None:
            row = self._quick_row(state)
        return self._slow_row(state) if row is None else row

    def _settled_row(self, state: int) -> int | None:
        """As `row`, in a settled item; None elsewhere, and where more is to be looked at."""
        settled = self._settled
        with self._lock:
            if settled is None or state >= FIRST_FLAT or not 0 <= state - FIRST_NUMBER < len(self._given):
                return None
            given = self._given[state - FIRST_NUMBER]
            if isinstance(given, Unread):
                place, level, where = given.state, given.level, given.where
            else:
                level = level_of(given)
                if level is None:
                    return None
                place, where = given.spot.state, where_of(given)
            row = super().row(place)
            with self._meter:
                allowed, trail = partial(self._copied, place), partial(self._trail, given)
                is_told = settled.is_told(place, where, level, allowed, trail)
            if not is_told:
                return None
            if isinstance(given, Trail) and given.mode == NAME_TEXT:
                return self._row_of_new_names(state, given)
            self._note_signature(state, self._signatures[place])
            return row

    def _row_of_new_names(self, state: int, trail: Trail) -> int | None:
        """As `row`, in a name that may be any but those that are there, if they have one spelling."""
        written = trail.frame.written
        assert written is not None
        if not self._trails.canonical:
            return None
        spot: Spot = trail.spot
        ends = sorted(written.ends(self._trails.piece(trail)))
        with self._tables.lock:
            allowed = self._tables.masks.masks[super().row(spot.state)]
            refused = Refused(tuple(rest for rest in ends if (self._heads.ending_string(rest) & allowed).any()))
            if not refused.endings:
                self._note_signature(state, self._signatures[spot.state])
                return super().row(spot.state)
            found = self._row_without(state, spot, refused)
            return self._store_without(state, spot.state, refused) if found is None else found

    def _quick_row(self, state: int) -> int | None:
        """As `row`, where the tokens that are to be refused are known; None elsewhere."""
        with self._lock, self._tables.lock:
            if self._kept is not self._automaton.kept:
                return None
            trail = self._place(state)[1]
            assert trail is not None
            spot: Spot = trail.spot
            if spot.signature == NO_SIGNATURE or spot.unsafe is None:
                return None
            refused = self._quick_refused(spot.unsafe, spot.state, trail)
            row = None if refused is None else self._row_without(state, spot, refused)
            hits = hits_of(spot.unsafe, trail)
            if row is not None and hits is not None:
                if len(spot.lacking) >= MOST_HITS:
                    spot.lacking.clear()
                spot.lacking[hits] = self._signatures[state]
            return row

    def _slow_row(self, state: int) -> int:
        """As `row`."""
        with self._lock:
            place, trail = self._place(state)
            assert trail is not None
            spot: Spot = trail.spot
            super().row(place)
            unsafe = self._moves.learn(trail, self._signatures[place])
            known = self._effects.known(place, trail)
            if known is not None and self._flat is not None:
                self._flat.learn_spot(spot, known)
            refused = None if unsafe is None else self._quick_refused(unsafe, place, trail)
            if refused is None:
                refused = self._look_refused(place, trail)
            with self._tables.lock:
                row = self._row_without(state, spot, refused)
                if row is None:
                    row = self._store_without(state, place, refused)
                return row

    def _row_without(self, state: int, spot: Spot, refused: Refused) -> int | None:
        """The row of a state in which some of its spot's tokens are refused, which is noted; None if there is none."""
        signature: int | None = spot.signature
        if refused.endings or refused.tokens:
            # Many states of equal ones in the chart lack the same tokens.
            signature = self._lacking.get((spot.state, refused))
        row = None if signature is None else self._masks.find(self._rows, signature)
        if row is not None and signature is not None:
            self._note_signature(state, signature)
        return row

    def _store_without(self, state: int, place: int, refused: Refused) -> int:
        """As `_row_without`, of a row that is made."""
        if len(self._lacking) >= MAX_STEPS:
            self._lacking.clear()
        key = self._lacking[place, refused] = next(self._own_keys)
        allowed = self._tables.masks.masks[super().row(place)]
        row = self._masks.store(self._rows, key, self._without(allowed.copy(), refused))
        self._note_signature(state, key)
        return row

    def _note_signature(self, state: int, signature: int) -> None:
        if len(self._signatures) >= MAX_STEPS:
            self._signatures.clear()
        self._signatures[state] = signature
        if state >= FIRST_FLAT and self._flat is not None:
            self._flat.note(state - FIRST_FLAT, signature)

    def _without(self, mask: Mask, refused: Refused) -> Mask:
        ending = self._heads.ending_word if refused.are_words else self._heads.ending_string
        for rest in refused.endings:
            mask &= ~ending(rest)
        for token in refused.tokens:
            mask[token >> 5] &= ~np.uint32(1 << (token & 31))
        return mask

    def _quick_refused(self, unsafe: Unsafe, state: int, trail: Trail) -> Refused | None:
        """The tokens that the chart allows in a state and that must not come there, if that is known at once."""
        frame, mode = trail.frame, trail.mode
        if has_name(unsafe, frame):
            return None
        if mode in STRINGS:
            if not (self._trails.is_free(trail) or self._is_unlike(state, trail)):
                return None
        elif mode == WORD:
            if not self._trails.is_free(trail) and not self._moves.is_unlike(trail.spot, trail):
                return None
        elif (frame.rivals and unsafe.loose) or any(word in frame.targets for word in unsafe.words or ()):
            return None
        hits = hits_of(unsafe, trail)
        if hits is None:
            return NOTHING
        refused = unsafe.by_hits.get(hits)
        if refused is None:
            place = (state, trail)
            with self._meter:
                tokens = sorted({token for tokens in unsafe.wholes.values() for token in tokens})
                refused = Refused(tokens=tuple(each for each in tokens if self._place_after(place, each) is None))
            if len(unsafe.by_hits) >= MOST_HITS:
                unsafe.by_hits.clear()
            unsafe.by_hits[hits] = refused
        return refused

    def _is_unlike(self, state: int, trail: Trail) -> bool:
        """Whether no token makes what is there of a string or name in progress, and all others lead on; quick."""
        frame = trail.frame
        if frame.rivals or trail.mode in (TEXT_ESCAPE, NAME_ESCAPE) or not self._trails.canonical:
            return False
        written = frame.targets.written
        if not self._ways.variety.is_robust(state):
            strings = self._ways.variety.few_strings(state, self._trails.piece(trail))
            return strings is not None and (written is None or not any(map(written.__contains__, strings)))
        return written is None or next(written.ends(self._trails.piece(trail)), None) is None

    def _look_refused(self, state: int, trail: Trail) -> Refused:
        """As `_quick_refused`, where it is not known."""
        allowed = self._tables.masks.masks[super().row(state)].copy()
        with self._meter:
            return self._find_refused(state, trail, allowed)

    def _find_refused(self, state: int, trail: Trail, allowed: Mask) -> Refused:
        """As `_quick_refused`. What is told by tables is looked up; all that may be refused beside is tried."""
        frame, mode = trail.frame, trail.mode
        unsafe = self._effects.unsafe(state, trail, allowed)
        endings: tuple[bytes, ...] = ()
        tried: set[int] = set(unsafe.tested)
        written = frame.written
        if written is not None and frame.kind is OBJECT:
            tried.update(token for name, tokens in unsafe.named.items() if name in written for token in tokens)
        hits, begin = hits_of(unsafe, trail) or ((), None)
        for hit in hits:
            tried.update(unsafe.wholes.get(hit, ()))
        if begin is not None:
            # The item in progress may be one of those that a token has in whole behind its end.
            tried.update(token for tokens in unsafe.wholes.values() for token in tokens)
        if not self._ways.is_settled(trail):
            if mode in (TEXT_ESCAPE, NAME_ESCAPE):
                tried.update(tokens_of(allowed))
            elif mode in STRINGS:
                endings = self._end_string(state, trail, allowed, tried)
            elif mode == WORD:
                endings = self._end_word(state, trail, allowed, tried)
            elif frame.rivals:
                tried.update(unsafe.loose)
        spend(len(tried))
        place = (state, trail)
        possible = self._allowed_of(tried, allowed)
        leads: dict[tuple[int, bytes], bool] = {}
        single: list[int] = []
        for token, after in zip(possible, self._chart_steps.after_each(state, possible), strict=True):
            data = self._vocabulary.tokens[token] or b""
            # Space between values changes nothing but the chart's state.
            key = (after, data if mode in PARTIAL else _without_space(data))
            if key not in leads:
                leads[key] = self._place_after(place, token) is not None
            if not leads[key]:
                single.append(token)
        return Refused(endings, mode == WORD, tuple(sorted(single)))

    def _allowed_of(self, tokens: set[int], allowed: Mask) -> list[int]:
        """Those of some tokens that are in a mask."""
        if len(tokens) > FEW:
            return tokens_of(self._heads.packed(list(tokens)) & allowed)
        return [token for token in tokens if allowed.item(token >> 5) >> (token & 31) & 1]

    def _end_string(self, state: int, trail: Trail, allowed: Mask, tried: set[int]) -> tuple[bytes, ...]:
        """What makes what is there of a string or name in progress, before a quote; tokens to be tried are added."""
        targets, closers = trail.frame.targets, self._heads.closers
        piece = self._trails.piece(trail)
        if not self._trails.canonical:
            tried.update(tokens_of(allowed & self._heads.quoted))
        longest = self._heads.longest
        for text in targets.kept(piece):
            if len(text) - len(piece) <= longest:
                tried.update(closers.get(text[len(piece) :], ()))
        if not self._ways.variety.is_robust(state):
            if self._trails.canonical:
                tried.update(self._heads.spelling_on(piece, targets.beginning(piece)))
            else:
                tried.update(tokens_of(allowed))
        if targets.written is None or not self._trails.canonical:
            return ()
        return tuple(sorted(targets.written.ends(piece)))

    def _end_word(self, state: int, trail: Trail, allowed: Mask, tried: set[int]) -> tuple[bytes, ...]:
        """As `_end_string`, of a number, or true, false or null, before what may end one."""
        frame = trail.frame
        begin = joined(trail.text)
        found: list[bytes] = []
        for head, tokens in self._heads.enders_of(begin).items():
            spend(20)
            value = word_of(begin + head)
            if value in frame.targets:
                if frame.kind is ARRAY and frame.written is not None and value in frame.written:
                    found.append(head)
                else:
                    tried.update(tokens)
        narrow = self._effects.narrow(state, allowed)
        tried.update(narrow.others)
        if frame.targets.continues_word(WordBegin(begin + b"e")):
            tried.update(narrow.powers)
        mantissa, power, _ = begin.lower().partition(b"e")
        if not mantissa.strip(b"-0."):
            # Zero is one value whatever the power of ten.
            tried.update(tokens_of(allowed & (~self._heads.ending if power else self._heads.powers)))
        return tuple(found)

    def _refusable(self, state: int) -> Mask:
        """The tokens that may have something twice outside of what is remembered, or lead to where it may be."""
        found = self._heads.with_comma if self._differs(state) else self._heads.opening
        return found | self._heads.with_comma & self._heads.quoted if self._trails.with_names else found

    def _walk(self, state: int) -> Mask:
        mask = super()._walk(state)
        self._refuse(state, mask)
        return mask

    def _refuse(self, state: int, mask: Mask) -> None:
        """Take tokens from a mask that have something twice, outside of what is remembered."""
        with self._meter:
            if self._automaton.chart.states.item(state, KEPT) < 0:
                self._automaton.keep(np.array([state], np.int32))
            found = mask & self._refusable(state)
            if not found.any():
                return
            tokens = self._to_try(state, found)
            for token, after in zip(tokens, self._places_after((state, None), tokens), strict=True):
                if after is None:
                    mask[token >> 5] &= ~np.uint32(1 << (token & 31))

    def _to_try(self, state: int, tokens: Mask) -> list[int]:
        """Those of some tokens that do more than stay in the string that a state of the chart is in.

        Within a loop all states call the same rules: where no item or name that matters may begin in one of them, none
        begins in any. Beside a usual state this holds of tokens that come to it by their first byte.
        """
        self._automaton.run(probe, state, self._found)
        loops = self._quick.view[USUAL] if self._quick.view[KIND] == BESIDE else state
        if loops != state:
            self._automaton.keep(np.array([loops], np.int32))
            self._automaton.run(probe, loops, self._found)
        view = self._quick.view
        begins = any(self._differs(each) or self._must_differ(each) for each in {state, loops})
        loop = None if begins or view[KIND] != LOOP else (view[LOW], view[HIGH], view[OF_LEADS])
        loop_slice = None if loop is None else self._tables.loop_slice(loop)
        if loop_slice is None:
            return tokens_of(tokens)
        found = tokens_of(tokens & ~loop_slice.row)
        if loops != state:
            chart, texts = self._automaton.chart, self._tables.bytes
            comes = chart.rows[chart.states.item(state, ROW)] == loops
            found += [each for each in tokens_of(tokens & loop_slice.row) if not comes[texts.data[texts.start[each]]]]
        return found


def _without_space(data: bytes) -> bytes:
    """A token that begins between values without space in front, and behind where it surely is between values, too."""
    data = data.lstrip(SPACE)
    short = data.rstrip(SPACE)
    return short if b'"' not in data and short[-1:] in b"[]{}" else data
