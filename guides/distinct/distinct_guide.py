"""A guide over a chart whose texts must not have some values twice: what has been written is a part of its states."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.answers import DEAD, NEVER
from ..gc_pause import paused
from ..given import MOST_LEFT, left_of, state_of
from ..lift.lifted_guide import MAX_STEPS
from ..limits import spend
from ..protocol import Mask, tokens_of
from .effects import Unsafe
from .frames import NAME_ESCAPE, STRINGS, TEXT_ESCAPE, WORD, Trail
from .moves import NO_SIGNATURE, Spot, hits_of
from .pieces import joined, size_of
from .remembering_guide import FIRST_NUMBER, RememberingGuide
from .rivals import ARRAY, OBJECT
from .trail import SPACE
from .ways import Place
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


class DistinctGuide(RememberingGuide):
    """A LiftedGuide that remembers the items of arrays whose items must differ. See `guides.protocol.Guide`.

    Outside of such arrays its states are those of the chart, and all is as without them.
    """

    def watch(self, marks: set[int], *, canonical: bool, by_bytes: bool) -> None:
        """As `RememberingGuide.watch`."""
        super().watch(marks, canonical=canonical, by_bytes=by_bytes)
        # Masks that lack tokens are kept among the chart's, by numbers that are no signatures
        self._lacking: dict[tuple[int, Refused], int] = {}
        self._own_keys = count(NO_SIGNATURE - 1, -1)

    def _forget(self, kept: object) -> None:
        self._moves.forget_signatures()
        self._lacking.clear()
        for state in [state for state in self._signatures if state >= FIRST_NUMBER]:
            del self._signatures[state]
        for key in [key for key in list(self._rows) if key < NO_SIGNATURE]:
            self._rows.pop(key, None)
        super()._forget(kept)

    def _new_row(self, state: int) -> int:
        """As `row`, where it is not known."""
        if state < FIRST_NUMBER:
            return super()._new_row(state)
        row = self._quick_row(state)
        return self._slow_row(state) if row is None else row

    def _quick_row(self, state: int) -> int | None:
        """As `row`, where the tokens that are to be refused are known; None elsewhere."""
        index = state - FIRST_NUMBER
        with self._lock, self._tables.lock:
            if index >= len(self._given) or self._kept is not self._automaton.kept:
                return None
            trail = self._given[index]
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

    @paused
    def _slow_row(self, state: int) -> int:
        """As `row`."""
        with self._lock:
            place, trail = self._place(state)
            assert trail is not None
            spot: Spot = trail.spot
            super().row(place)
            unsafe = self._moves.learn(trail, self._signatures[place])
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
        if mode in STRINGS:
            if not (self._trails.is_free(trail) or self._is_unlike(state, trail)):
                return None
        elif mode == WORD:
            if not self._trails.is_free(trail) and not self._moves.is_unlike(trail.spot, trail):
                return None
        elif frame.rivals or any(word in frame.targets for word in unsafe.words or ()):
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
        if not self._ways.variety.is_robust(state):
            return False
        written = frame.targets.written
        return written is None or next(written.ends(self._trails.piece(trail)), None) is None

    @paused
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
        if written is not None and frame.kind is ARRAY and unsafe.wholes:
            for hit in written.hits:
                tried.update(unsafe.wholes.get(hit, ()))
            if trail.text is not None and size_of(trail.text) <= unsafe.longest:
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
        single = [each for each in possible if self._place_after(place, each) is None]
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

    def _walk(self, state: int) -> Mask:
        mask = super()._walk(state)
        self._automaton.keep(np.array([state], np.int32))
        tried = self._heads.with_comma if self._differs(state) else self._heads.opening
        for token in tokens_of(mask & tried):
            if self._place_after((state, None), token) is None:
                mask[token >> 5] &= ~np.uint32(1 << (token & 31))
        return mask

    # Distances

    def distance(self, state: int) -> int:
        """Tokens that complete the text, EOS not counted; bytes where something in progress must not be repeated."""
        with self._lock, self._meter:
            place = self._ready(state)
            return NEVER if place[0] == DEAD else self._distance(place)

    def _distance(self, place: Place) -> int:
        state, trail = place
        if trail is None or self._ways.is_settled(trail) or (not self._by_bytes and self._ways.is_clean(state, trail)):
            return self._ways.needed(state) if self._by_bytes else self._closing.distance(state)
        return self._ways.cost(state, trail)

    def fits(self, state: int, left: int) -> bool:
        """Whether `distance(state) <= left`."""
        left = left_of(left)
        with self._lock, self._meter:
            place = self._ready(state)
            if place[0] == DEAD:
                return left >= NEVER
            return self._fits(place, left)

    def _fits(self, place: Place, left: int) -> bool:
        state, trail = place
        if trail is None or self._ways.is_settled(trail) or (not self._by_bytes and self._ways.is_clean(state, trail)):
            return self._ways.needed(state) <= left if self._by_bytes else self._closing.fits(state, left)
        return self._ways.cost(state, trail) <= left

    def mask_within(self, state: int, left: int) -> Mask:
        """The allowed tokens after which `left - 1` tokens can complete the text, and EOS iff accepting."""
        left = left_of(left)
        state = state_of(state, MOST_LEFT)
        allowed = self.mask(state).copy()
        with self._lock, self._meter:
            place = self._ready(state)
            if place[0] == DEAD:
                return allowed
            within = allowed & self._tables.pack(self._near(place[0], left, 0))
            unsettled = self._unsettled(place, allowed)
            if self._by_bytes:
                within |= allowed & unsettled
            for token in tokens_of(within & unsettled):
                after = self._place_after(place, token)
                if after is not None and not self._fits(after, left - 1):
                    within[token >> 5] &= ~np.uint32(1 << (token & 31))
            return within | (allowed & self._tables.eos_words)

    def _near(self, state: int, left: int, node: int) -> NDArray[np.bool_]:
        """Which tokens below a node of the trie leave enough as far as the chart knows; in the order of the trie."""
        if not self._by_bytes:
            return self._closing.fitting(state, left, node)
        after = self._closing.after_tokens(state, node)
        states = np.unique(after[after != DEAD])
        fit = np.zeros(self._automaton.state_count + 1, np.bool_)
        fit[states] = self._closing.bytes_needed(states) <= left - 1
        fit[DEAD] = False
        return fit[after]

    def _unsettled(self, place: Place, within: Mask) -> Mask:
        """A set with all the tokens after which the chart alone does not know the distance."""
        state, trail = place
        if trail is None:
            return self._heads.with_comma if self._differs(state) else self._heads.opening
        if trail.mode not in STRINGS or not self._trails.canonical:
            return ~np.zeros_like(within)
        if self._ways.is_settled(trail):
            return self._heads.quoted
        piece = self._trails.piece(trail)
        longer = self._heads.spelling_on(piece, trail.frame.targets.beginning(piece))
        return self._heads.quoted | self._heads.packed(list(longer))

    # Bytes, and parts of tokens

    def after_bytes(self, state: int) -> NDArray[np.int32]:
        """The state after each byte: int32 [256], DEAD where there is none."""
        with self._lock, self._meter:
            place = self._ready(state)
            after = self._automaton.transitions(place[0])
            for byte in np.flatnonzero(after != DEAD).tolist():
                data = bytes((byte,))
                after[byte] = self._number(state, data, self._follow(place, data, after.item(byte)))
            return after

    def after_tokens(self, state: int, node: int = 0) -> NDArray[np.int32]:
        """The state after what each token below a node of the vocabulary's trie has beyond it; DEAD if not allowed."""
        with self._lock, self._meter:
            place = self._ready(state)
            if place[0] == DEAD:
                below = self._tables.below(node)
                return np.full(int(below.stop - below.start), DEAD, np.int32)
            after = self._closing.after_tokens(place[0], node)
            self._automaton.keep(after)
            for at, data in self._rests(place, after, node):
                after[at] = self._number(state, data, self._follow(place, data, after.item(at)))
            return after

    def _rests(self, place: Place, after: NDArray[np.int32], node: int) -> list[tuple[int, bytes]]:
        """What the allowed tokens below a node of the trie have beyond it, by their places there."""
        tables, texts = self._tables, self._vocabulary.tokens
        depth = int(tables.trie.depth[node])
        tokens = tables.trie.ids[tables.below(node)]
        places = np.flatnonzero(after != DEAD)
        found: list[tuple[int, bytes]] = [
            (at, (texts[token] or b"")[depth:])
            for at, token in zip(places.tolist(), tokens[places].tolist(), strict=True)
        ]
        if place[1] is None and not self._differs(place[0]):
            return [(at, data) for at, data in found if b"[" in data or data[0] in SPACE]
        return found

    def bytes_needed(self, states: NDArray[np.int32]) -> NDArray[np.int32]:
        """Bytes that complete a text from each of the states; NEVER from DEAD."""
        with self._lock, self._meter:
            places = [self._ready(state) for state in np.asarray(states).reshape(-1).tolist()]
            costs = [
                NEVER if s == DEAD else self._ways.needed(s) if t is None else self._ways.cost(s, t) for s, t in places
            ]
            return np.array(costs, np.int32)

    def mask_below(self, state: int, node: int, left: int | None = None) -> Mask:
        """As `guides.healing.crossing.TrieGuide` says."""
        most = None if left is None else left_of(left)
        after = self.after_tokens(state, node)
        with self._lock, self._meter:
            fit = {
                each: each != DEAD and (most is None or self._fits(self._place(each), most - 1))
                for each in set(after.tolist())
            }
            return self._tables.pack(np.array([fit[each] for each in after.tolist()], np.bool_), node)

    def distance_below(self, state: int, node: int) -> int:
        """As `guides.healing.crossing.TrieGuide` says."""
        after = set(self.after_tokens(state, node).tolist()) - {DEAD}
        with self._lock, self._meter:
            return min((1 + self._distance(self._place(each)) for each in after), default=NEVER)

    def chart_state(self, state: int) -> int:
        """The chart's part of a state."""
        return self._place(state_of(state, MOST_LEFT))[0]

    def describe(self, state: int) -> str:
        """What may follow, in words, as the chart has it."""
        return super().describe(self.chart_state(state))
