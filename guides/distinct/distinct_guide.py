"""A guide over a chart whose texts must not have some values twice: what has been written is a part of its states."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.answers import DEAD, NEVER
from ...kernels.chart.layout import KEPT, ROW
from ...kernels.trie.shortcut import BESIDE, HIGH, KIND, LOOP, LOW, OF_LEADS, USUAL, probe
from ..given import MOST_LEFT, left_of, state_of
from ..lift.table_guide import MAX_STEPS
from ..limits import spend
from ..protocol import Mask, tokens_of
from .continuations import At
from .effects import EARLY, NAMING, SETTLED, Unsafe
from .frames import NAME_ESCAPE, PARTIAL, STRINGS, TEXT, TEXT_ESCAPE, WORD, JSONTrail, joined
from .remembering_guide import FIRST_NUMBER, RememberingGuide
from .settled import NO_SIGNATURE, Spot
from .summaries import FewTokens
from .trail import SPACE
from .values import OBJECT, word_of

Copying = Callable[[], Mask]
"""Makes a copy of the chart's mask, which is mostly not needed."""


class Refused(NamedTuple):
    """Tokens that must not come: those with the rest of a string, or of a word, and what ends it; single ones."""

    endings: tuple[bytes, ...] = ()
    are_words: bool = False
    tokens: tuple[int, ...] = ()


class DistinctGuide(RememberingGuide):
    """A LiftedGuide that remembers items of arrays and names in objects. See `guides.protocol.Guide`.

    Outside of these its states are those of the chart, and all is as without them. Its masks are the chart's, without
    the tokens that must not come.
    """

    def watch(self, items: set[int], names: set[int], **told: bool) -> None:
        """As `RememberingGuide.watch`."""
        super().watch(items, names, **told)
        self._quick.refuse = self._refuse
        # Masks that lack tokens are kept among the chart's, by numbers that are no signatures
        self._lacking: dict[tuple[int, Refused], int] = {}
        self._lacks: dict[int, Refused] = {}
        self._within: Spot | None = None
        self._own_keys = count(NO_SIGNATURE - 1, -1)

    def _forget(self, kept: object) -> None:
        self._settled.forget_signatures()
        self._forget_lacks()
        super()._forget(kept)

    # Masks

    def _new_row(self, state: int) -> int:
        """As `row`, where it is not known."""
        if state < FIRST_NUMBER:
            return super()._new_row(state)
        with self._lock:
            spot = self._spot(state)
            assert spot is not None
            self._within = spot
            try:
                return self._cache.note_row(state, *self._found(state, spot))
            finally:
                self._within = None

    def _found(self, state: int, spot: Spot) -> tuple[int, int]:
        """The key of the mask of a state in a spot, and its row."""
        # The chart's first, since that forgets what numbers do not mean any more
        key, row = NO_SIGNATURE, super().row(spot.state)
        if not spot.is_plain:
            with self._meter:
                spot, key = self._looked(state, spot)
            row = super().row(spot.state)
        if key == NO_SIGNATURE:
            signature = self._cache.signatures[spot.state]
            if spot.is_plain:
                spot.signature = signature
            return signature, row
        with self._tables.lock:
            known = self._masks.find(self._cache.rows, key)
        if known is None:
            with self._meter:
                lacking = self._without(self._allowed(spot), self._lacks[key])
            with self._tables.lock:
                known = self._masks.store(self._cache.rows, key, lacking)
        return key, known

    def _looked(self, state: int, spot: Spot) -> tuple[Spot, int]:
        """The spot of a state, which may be settled by now, and the key of the mask; NO_SIGNATURE for the chart's."""
        if spot.unsafe is None:
            self._settled.look(spot, partial(self._allowed, spot), partial(self._trail, state))
        if spot.is_plain:
            return spot, NO_SIGNATURE
        trail = self._trail(state)
        if spot.told in (EARLY, NAMING) and (settled := self._settled.spot(spot.state, trail)) is not spot:
            self._places[state - FIRST_NUMBER] = settled, trail
            return self._looked(state, settled)
        return spot, self._lacking_key(spot, trail)

    def _allowed(self, spot: Spot) -> Mask:
        """A copy of the chart's mask in a spot."""
        while True:
            before = self._masks.evictions
            row = self._cache.rows.get(self._cache.signatures.get(spot.state, NO_SIGNATURE))
            mask = self._masks.rows[self._compute(spot.state) if row is None else row].copy()
            if self._masks.evictions == before:
                return mask

    def _lacking_key(self, spot: Spot, trail: JSONTrail) -> int:
        """The key of the mask in a spot, after a trail; NO_SIGNATURE for the chart's."""
        refused = self._refused(spot, trail, partial(self._allowed, spot))
        if refused is None:
            return NO_SIGNATURE
        # Many states of equal ones in the chart lack the same tokens.
        key = self._lacking.get((spot.state, refused))
        if key is None:
            if len(self._lacking) >= MAX_STEPS:
                self._forget_lacks()
            key = self._lacking[spot.state, refused] = next(self._own_keys)
            self._lacks[key] = refused
        return key

    def _forget_lacks(self) -> None:
        self._lacking.clear()
        self._lacks.clear()

    def _without(self, mask: Mask, refused: Refused) -> Mask:
        ending = self._summaries.ending_word if refused.are_words else self._summaries.ending_string
        for rest in refused.endings:
            mask &= ~ending(rest)
        for token in refused.tokens:
            mask[token >> 5] &= ~np.uint32(1 << (token & 31))
        return mask

    def _refused(self, spot: Spot, trail: JSONTrail, allowed: Copying) -> Refused | None:
        """The tokens that the chart allows in a spot and that must not come there.

        What is told by tables is looked up; all that may be refused beside is tried. allowed: copies the chart's mask
        """
        state, mode = spot.state, trail.mode
        unsafe = self._settled.unsafe(spot, trail, allowed)
        tried, refused = self._matched(unsafe, trail)
        endings: tuple[bytes, ...] = ()
        if spot.is_piece:
            tried.update(unsafe.loose)
            endings = self._ends(trail, tried)
        elif spot.told != SETTLED and not self._continuations.is_settled(trail):
            if mode in (TEXT_ESCAPE, NAME_ESCAPE):
                tried.update(tokens_of(allowed()))
            elif mode in STRINGS:
                endings = self._end_string(state, trail, allowed, tried)
            elif mode == WORD:
                endings = self._end_word(state, trail, allowed, tried)
            elif trail.frame.rivals:
                tried.update(unsafe.loose)
                for value, tokens in unsafe.members.items():
                    if value in trail.frame.targets:
                        tried.update(tokens)
        refused += self._failed(spot, trail, tried - set(refused), allowed)
        return Refused(endings, mode == WORD, tuple(sorted(set(refused)))) if refused or endings else None

    def _failed(self, spot: Spot, trail: JSONTrail, tried: set[int], allowed: Copying) -> list[int]:
        """Those of some tokens that the chart allows in a spot and that must not come there."""
        if not tried:
            return []
        spend(len(tried))
        mask = allowed()
        possible = [token for token in tried if mask.item(token >> 5) >> (token & 31) & 1]
        leads: dict[tuple[int, bytes], bool] = {}
        found: list[int] = []
        for token, after in zip(possible, self._chart_steps.after_each(spot.state, possible).tolist(), strict=True):
            data = self._vocabulary.tokens[token] or b""
            # Space between values changes nothing but the chart's state.
            key = (after, data if trail.mode in PARTIAL else _without_space(data))
            if key not in leads:
                leads[key] = self._follow((spot.state, trail), data, after) is not None
            if not leads[key]:
                found.append(token)
        return found

    def _matched(self, unsafe: Unsafe, trail: JSONTrail) -> tuple[set[int], list[int]]:
        """The tokens that are to be tried for what they have in whole, or lead to; those that are refused.

        The latter have items in whole that are there, where no others may be equal.
        """
        frame = trail.frame
        written = frame.written
        tried, refused = set(unsafe.tested), list[int]()
        for word, tokens in unsafe.words.items():
            if word in frame.targets:
                tried.update(tokens)
        if written is None:
            return tried, refused
        if frame.kind is OBJECT:
            for name in written.among(unsafe.named.keys()) if unsafe.named else ():
                tried.update(unsafe.named[name])
        elif unsafe.wholes:
            certain = tried.update if self._items.beside_free else refused.extend
            for item in written.among(unsafe.wholes.keys()):
                certain(unsafe.wholes[item])
            # The item in progress, too, may be one of those that a token has in whole behind its end.
            if trail.mode == TEXT and self._trails.canonical:
                certain(unsafe.doubled.get(joined(trail.text), ()))
            elif trail.mode in PARTIAL:
                tried.update(*unsafe.wholes.values())
        return tried, refused

    def _end_string(self, state: int, trail: JSONTrail, allowed: Copying, tried: set[int]) -> tuple[bytes, ...]:
        """The endings that make what is there of a string or name in progress; adds the tokens to be tried."""
        targets = trail.frame.targets
        piece = self._trails.piece(trail)
        if not self._trails.canonical:
            is_robust = self._continuations.bounds.is_robust(state)
            tried.update(tokens_of(allowed() & self._summaries.quoted if is_robust else allowed()))
            return ()
        for text in targets.kept(piece):
            tried.update(tokens_of(allowed() & self._summaries.ending_string(text[len(piece) :])))
        if not self._continuations.bounds.is_robust(state):
            tried.update(self._summaries.spelling_on(piece, targets.beginning(piece)))
        return self._ends(trail, tried)

    def _ends(self, trail: JSONTrail, tried: set[int]) -> tuple[bytes, ...]:
        """The endings that make an item or name that is there of what is in progress; adds the tokens to be tried."""
        written, closers = trail.frame.targets.written, self._summaries.closers
        ends = [] if written is None else written.ends(self._trails.piece(trail), closers.keys())
        if self._items.beside_free:
            tried.update(token for rest in ends for token in closers[rest])
            return ()
        return tuple(sorted(ends))

    def _end_word(self, state: int, trail: JSONTrail, allowed: Copying, tried: set[int]) -> tuple[bytes, ...]:
        """As `_end_string`, of a number, or true, false or null, before what may end one."""
        frame = trail.frame
        targets, begin = frame.targets, joined(trail.text)
        ends, tokens = self._effects.met_words(self._effects.narrow(state, allowed), begin, targets)
        tried.update(tokens)
        found: list[bytes] = []
        refused = None if self._items.beside_free else targets.written
        for head in ends:
            if refused is not None and word_of(begin + head) in refused:
                found.append(head)
            else:
                tried.update(tokens_of(allowed() & self._summaries.ending_word(head)))
        mantissa, power, _ = begin.lower().partition(b"e")
        if not mantissa.strip(b"-0."):
            # Zero is one value whatever the power of ten.
            tried.update(tokens_of(allowed() & (~self._summaries.ending if power else self._summaries.powers)))
        return tuple(found)

    def _refusable(self, state: int, mask: Mask) -> FewTokens:
        """The tokens of a mask that may have something twice where nothing is remembered, or lead to where it may."""
        return self._summaries.beginning[self._differs(state), self._trails.with_names].within(mask)

    def _refuse(self, state: int, mask: Mask) -> None:
        """Take tokens from a mask that have something twice, outside of what is remembered."""
        is_inside = self._within is not None and self._settled.is_inside(self._within)
        nested = self._summaries.nested.within(mask)
        if is_inside and not nested.bits.any():
            return
        with self._meter:
            if self._items.beside_free:
                mask &= self._summaries.inside
            if self._automaton.chart.states.item(state, KEPT) < 0:
                self._automaton.keep(np.array([state], np.int32))
            found = nested if is_inside else self._refusable(state, mask)
            if not found.bits.any():
                return
            tokens = self._to_try(state, found)
            for token, after in zip(tokens, self._chart_steps.after_each(state, tokens).tolist(), strict=True):
                if self._follow((state, None), self._summaries.text(token), after) is None:
                    mask[token >> 5] &= ~np.uint32(1 << (token & 31))

    def _to_try(self, state: int, tokens: FewTokens) -> list[int]:
        """Tokens, among some, that do more than stay in the string that a state of the chart is in.

        Within a loop all states call the same rules: where no item or name that matters may begin in one of them, none
        begins in any. Beside a usual state this holds of tokens that come to it by their first byte.
        """
        self._automaton.run(probe, state, self._quick.found)
        loops = self._quick.view[USUAL] if self._quick.view[KIND] == BESIDE else state
        if loops != state:
            self._automaton.keep(np.array([loops], np.int32))
            self._automaton.run(probe, loops, self._quick.found)
        view = self._quick.view
        begins = any(self._differs(each) or self._must_differ(each) for each in {state, loops})
        loop = None if begins or view[KIND] != LOOP else (view[LOW], view[HIGH], view[OF_LEADS])
        loop_slice = None if loop is None else self._tables.loop_slice(loop)
        if loop_slice is None:
            return tokens.listed()
        found = tokens.without(loop_slice.row).listed()
        if loops != state:
            chart, texts = self._automaton.chart, self._tables.bytes
            comes = chart.rows[chart.states.item(state, ROW)] == loops
            inside = tokens.within(loop_slice.row).listed()
            found += [each for each in inside if not comes[texts.data[texts.start[each]]]]
        return found

    # Distances

    def distance(self, state: int) -> int:
        """Tokens that complete the text, EOS not counted; bytes where something in progress must not be repeated."""
        with self._lock, self._meter:
            place = self._ready(state)
            return NEVER if place[0] == DEAD else self._distance(place)

    def _distance(self, place: At) -> int:
        state, trail = place
        if trail is None or self._is_as_far(state, trail):
            return self._continuations.needed(state) if self._by_bytes else self._closing.distance(state)
        return self._continuations.cost(state, trail)

    def _is_as_far(self, state: int, trail: JSONTrail) -> bool:
        """Tell whether a text has no more before it than the chart says."""
        return self._continuations.is_settled(trail) or (
            not self._by_bytes and self._continuations.is_clean(state, trail)
        )

    def enough(self, state: int, left: int) -> int | None:
        """As `LiftedGuide.enough`."""
        left = left_of(left)
        with self._lock, self._meter:
            place = self._ready(state)
            if place[0] == DEAD:
                return NEVER if left >= NEVER else None
            return self._enough(place, left)

    def _enough(self, place: At, left: int) -> int | None:
        state, trail = place
        if trail is None or self._is_as_far(state, trail):
            if not self._by_bytes:
                return self._closing.enough(state, left)
            needed = self._continuations.needed(state)
        else:
            needed = self._continuations.cost(state, trail)
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
                after = self._follow(place, self._summaries.text(token), self._chart_steps.after(place[0], token))
                if after is not None and self._enough(after, left - 1) is None:
                    within[token >> 5] &= ~np.uint32(1 << (token & 31))
            return within | (allowed & self._tables.eos_words)

    def _near(self, state: int, left: int, node: int) -> NDArray[np.bool_]:
        """The tokens below a node of the trie that leave enough as far as the chart knows; in the order of the trie."""
        if not self._by_bytes:
            return self._closing.fitting(state, left, node)
        after = self._closing.after_tokens(state, node)
        states = np.unique(after[after != DEAD])
        fit = np.zeros(self._automaton.state_count + 1, np.bool_)
        fit[states] = self._closing.bytes_needed(states) <= left - 1
        fit[DEAD] = False
        return fit[after]

    def _unsettled(self, place: At, within: Mask) -> Mask:
        """A set with all the tokens after which the chart alone does not know the distance."""
        state, trail = place
        if trail is None:
            return self._summaries.packed(self._refusable(state, within).listed())
        if trail.mode not in STRINGS or not self._trails.canonical:
            return ~np.zeros_like(within)
        if self._continuations.is_settled(trail):
            return self._summaries.quoted
        piece = self._trails.piece(trail)
        longer = self._summaries.spelling_on(piece, trail.frame.targets.beginning(piece))
        return self._summaries.quoted | self._summaries.packed(list(longer))

    # Bytes, and parts of tokens

    def after_bytes(self, state: int) -> NDArray[np.int32]:
        """The state after each byte: int32 [256], DEAD where there is none."""
        with self._lock, self._meter:
            place = self._ready(state)
            after = self._automaton.transitions(place[0])
            for byte in np.flatnonzero(after != DEAD).tolist():
                data = bytes((byte,))
                after[byte] = self._number(state, data, after.item(byte))
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
            after[self._summaries.outside[self._tables.trie.ids[self._tables.below(node)]]] = DEAD
            self._automaton.keep(after)
            for at, data in self._rests(place, after, node):
                after[at] = self._number(state, data, after.item(at))
            return after

    def _rests(self, place: At, after: NDArray[np.int32], node: int) -> list[tuple[int, bytes]]:
        """The rests of the allowed tokens below a node of the trie, by their places there."""
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
                NEVER if s == DEAD else self._continuations.needed(s) if t is None else self._continuations.cost(s, t)
                for s, t in places
            ]
            return np.array(costs, np.int32)

    def mask_below(self, state: int, node: int, left: int | None = None) -> Mask:
        """As `guides.healing.TrieGuide` says."""
        most = None if left is None else left_of(left)
        after = self.after_tokens(state, node)
        with self._lock, self._meter:
            fit = {
                each: each != DEAD and (most is None or self._enough(self._place(each), most - 1) is not None)
                for each in set(after.tolist())
            }
            return self._tables.pack(np.array([fit[each] for each in after.tolist()], np.bool_), node)

    def distance_below(self, state: int, node: int) -> int:
        """As `guides.healing.TrieGuide` says."""
        after = set(self.after_tokens(state, node).tolist()) - {DEAD}
        with self._lock, self._meter:
            return min((1 + self._distance(self._place(each)) for each in after), default=NEVER)

    def chart_state(self, state: int) -> int:
        """The chart's part of a state."""
        return self._place(state_of(state, MOST_LEFT))[0]

    def describe(self, state: int) -> str:
        """The bytes that may follow, in words, as the chart has it."""
        return super().describe(self.chart_state(state))


def _without_space(data: bytes) -> bytes:
    """A token that begins between values without space in front, and behind where it surely is between values, too."""
    data = data.lstrip(SPACE)
    short = data.rstrip(SPACE)
    return short if b'"' not in data and short[-1:] in b"[]{}" else data
