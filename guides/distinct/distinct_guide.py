"""A guide over a chart whose texts must not have some values twice: what has been written is a part of its states."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.answers import DEAD, NEVER
from ..gc_pause import paused
from ..given import MOST_LEFT, left_of, state_of
from ..lift.lifted_guide import MAX_STEPS
from ..lift.mask_table import Cache
from ..protocol import Mask, tokens_of
from .remembering_guide import FIRST_NUMBER, Place, RememberingGuide
from .trail import ITEM, NAME, NAME_ESCAPE, SPACE, STRINGS, TEXT_ESCAPE, UNKEPT, Frame, Trail
from .written import ARRAY, NONE


class Risks(NamedTuple):
    """Tokens that may have whole values in them: those with strings in an array only, with these; all others."""

    simple: list[tuple[int, bytes, tuple[bytes, ...]]]
    others: list[int]


class DistinctGuide(RememberingGuide):
    """A LiftedGuide that remembers the items of arrays whose items must differ. See `guides.protocol.Guide`.

    Outside of such arrays its states are those of the chart, and all is as without them.
    """

    def watch(self, marks: set[int], *, canonical: bool, by_bytes: bool, thin: bool) -> None:
        """As `RememberingGuide.watch`."""
        super().watch(marks, canonical=canonical, by_bytes=by_bytes, thin=thin)
        self._refused: dict[int, tuple[int, ...]] = {}
        self._lacking: dict[tuple[int, tuple[int, ...]], int] = {}
        self._risky: dict[tuple[int, bool], Risks] = {}
        self._own_rows: Cache = {}

    def row(self, state: int) -> int:
        """The number of the row of `table` that holds `mask(state)`."""
        state = state_of(state, MOST_LEFT)
        if state < FIRST_NUMBER:
            return super().row(state)
        refused = self._refused.get(state)
        if refused is None:
            refused = self._new_refused(state)
        place = self._places[state - FIRST_NUMBER][0]
        chart_row = super().row(place)
        if not refused:
            return chart_row
        # Many states of equal ones in the chart lack the same tokens.
        key = self._lacking.setdefault((place, refused), len(self._lacking))
        allowed = self._tables.masks.masks[chart_row]
        return self._tables.row_of(self._own_rows, key, lambda: _without(allowed.copy(), refused))

    @paused
    def _new_refused(self, state: int) -> tuple[int, ...]:
        """The tokens that the chart allows in a state with a trail, and that must not come."""
        place, trail = self._place(state)
        assert trail is not None
        allowed = self._tables.masks.masks[super().row(place)].copy()
        with self._lock, self._meter:
            if len(self._refused) >= MAX_STEPS:
                self._refused.clear()
            refused = self._refused[state] = tuple(self._find_refused(place, trail, allowed))
        return refused

    def _find_refused(self, state: int, trail: Trail, allowed: Mask) -> list[int]:
        frame, mode, text = trail
        written = frame.written
        in_string = mode in STRINGS
        found: list[int] = []
        if not self._is_easy(trail):
            if not in_string:
                tried = tokens_of(allowed)
            else:
                tried = tokens_of(allowed & self._heads.quoted)
                tried += self._beginnings(trail, allowed)
            return [token for token in tried if self._place_after((state, trail), token) is None]
        if written is not None and written.count:
            if in_string and text != UNKEPT:
                piece = self._trails.text_of(trail)
                if len(piece) <= written.longest:
                    found = [token for end in written.ends(piece) for token in self._heads.closers[end]]
            elif mode == NAME or (mode == ITEM and frame.kind == ARRAY):
                found = [token for whole in written.whole for token in self._heads.openers[whole]]
        known = self._risky.get((state, in_string))
        if known is None:
            known = self._risky[state, in_string] = self._risks(allowed, mode)
        for token, head, strings in known.simple:
            if self._are_repeated(trail, head, strings, in_string):
                found.append(token)
        return found + [token for token in known.others if self._place_after((state, trail), token) is None]

    def _risks(self, allowed: Mask, mode: int) -> Risks:
        """The allowed tokens that may have whole values in them."""
        heads, in_string = self._heads, mode in STRINGS
        found = Risks([], [])
        for token in tokens_of(allowed & heads.going_on & (heads.quoted if in_string else ~np.uint32(0))):
            told = heads.strings_in(token, in_string=in_string, escaped=mode in (TEXT_ESCAPE, NAME_ESCAPE))
            if told is None:
                found.others.append(token)
            elif told[1]:
                found.simple.append((token, *told))
        return found

    def _are_repeated(self, trail: Trail, head: bytes, strings: tuple[bytes, ...], in_string: bool) -> bool:
        """Whether a token repeats an item: of the strings in it, after the rest of the one in progress."""
        written = trail.frame.written
        if trail.frame.kind != ARRAY or written is None:
            return False
        known = {self._trails.text_of(trail) + head} if in_string else set[bytes]()
        for text in strings:
            if text in known or text in written:
                return True
            known.add(text)
        return False

    def _is_easy(self, trail: Trail) -> bool:
        """Whether only strings have been written, with one spelling each, and no beginning of one leads to no other."""
        frame = trail.frame
        if self._is_thin or not self._trails.canonical or not (frame.written is None or frame.written.only_strings):
            return False
        while frame.parent is not None and frame.rivals is NONE:
            frame = frame.parent
        return frame.rivals is NONE

    def _beginnings(self, trail: Trail, allowed: Mask) -> list[int]:
        """The allowed tokens without quotes after which the string in progress is the beginning of a written one."""
        if trail.text == UNKEPT:
            return []
        if not self._trails.canonical:
            return tokens_of(allowed & ~self._heads.quoted)
        piece = self._trails.text_of(trail)
        written = trail.frame.written
        texts: set[bytes] = set() if written is None else set(written.beginning(piece))
        around: Frame | None = trail.frame
        while around is not None:
            texts.update(around.rivals.beginning(piece))
            around = around.parent
        by_text, longest = self._heads.by_text, self._heads.longest_token
        found: set[int] = set()
        for text in texts:
            rest = text[len(piece) : len(piece) + longest]
            for end in range(1, len(rest) + 1):
                found.update(by_text.get(rest[:end], ()))
        return [token for token in sorted(found) if allowed[token >> 5] >> np.uint32(token & 31) & 1]

    def _walk(self, state: int) -> Mask:
        mask = super()._walk(state)
        self._automaton.keep(np.array([state], np.int32))
        tried = self._heads.going_on if self._differs(state) else self._heads.opening
        for token in tokens_of(tried):
            data = self._vocabulary.tokens[token] or b""
            after = self._automaton.read(state, data)
            bit = np.uint32(1 << (token & 31))
            if after != DEAD and self._follow((state, None), data, after) is not None:
                mask[token >> 5] |= bit
            else:
                mask[token >> 5] &= ~bit
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
        if trail.mode not in STRINGS or not self._is_easy(trail):
            return ~np.zeros_like(within)
        found = self._heads.quoted.copy()
        for token in self._beginnings(trail, within):
            found[token >> 5] |= np.uint32(1 << (token & 31))
        return found

    # Bytes, and parts of tokens

    def after_bytes(self, state: int) -> NDArray[np.int32]:
        """The state after each byte: int32 [256], DEAD where there is none."""
        with self._lock, self._meter:
            place = self._ready(state)
            after = self._automaton.transitions(place[0])
            for byte in np.flatnonzero(after != DEAD).tolist():
                found = self._follow(place, bytes((byte,)), after.item(byte))
                after[byte] = DEAD if found is None else self._number(found)
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
                found = self._follow(place, data, after.item(at))
                after[at] = DEAD if found is None else self._number(found)
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


def _without(mask: Mask, tokens: tuple[int, ...]) -> Mask:
    for token in tokens:
        mask[token >> 5] &= ~np.uint32(1 << (token & 31))
    return mask
