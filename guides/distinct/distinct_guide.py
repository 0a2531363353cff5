"""A guide over a chart whose texts must not have some values twice: what has been written is a part of its states."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...kernels.answers import DEAD, NEVER
from ..given import MOST_LEFT, left_of, state_of
from ..protocol import Mask, tokens_of
from .frames import STRINGS
from .refusing_guide import RefusingGuide
from .ways import Place


class DistinctGuide(RefusingGuide):
    """A LiftedGuide that remembers items of arrays and names in objects. See `guides.protocol.Guide`.

    Outside of these its states are those of the chart, and all is as without them.
    """

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

    def enough(self, state: int, left: int) -> int | None:
        """As `LiftedGuide.enough`."""
        left = left_of(left)
        with self._lock, self._meter:
            place = self._ready(state)
            if place[0] == DEAD:
                return NEVER if left >= NEVER else None
            return self._enough(place, left)

    def _enough(self, place: Place, left: int) -> int | None:
        state, trail = place
        if trail is None or self._ways.is_settled(trail) or (not self._by_bytes and self._ways.is_clean(state, trail)):
            if not self._by_bytes:
                return self._closing.enough(state, left)
            needed = self._ways.needed(state)
        else:
            needed = self._ways.cost(state, trail)
        return needed if needed <= left else None

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
                if after is not None and self._enough(after, left - 1) is None:
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
            return self._refusable(state)
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

    def certain_bytes(self, state: int, most: int) -> bytes:
        """As `guides.protocol.Foreseeing` says."""
        found = bytearray()
        while len(found) < most:
            after = self.after_bytes(state)
            ways: list[int] = np.flatnonzero(after != DEAD).tolist()
            if len(ways) != 1:
                break
            found.append(ways[0])
            state = after.item(ways[0])
        return bytes(found)

    def after_each_token(self, state: int) -> NDArray[np.int32] | None:
        """None: each token is read by itself, and many lead to states of their own."""
        return None

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
        if place[1] is None:
            return [(at, data) for at, data in found if self._may_begin(place[0], data)]
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
                each: each != DEAD and (most is None or self._enough(self._place(each), most - 1) is not None)
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
