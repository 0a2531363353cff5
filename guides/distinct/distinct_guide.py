"""A guide over a chart in whose texts some values must differ. Its states contain the values written so far."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.answers import DEAD, NEVER
from ...kernels.chart.layout import KEPT, ROW
from ...kernels.trie.shortcut import BESIDE, HIGH, KIND, LOOP, LOW, OF_LEADS, USUAL, probe
from ..arguments import MAX_LEFT, check_left, check_state
from ..lift.table_guide import MAX_STEPS
from ..limits import spend
from ..protocol import Mask, tokens_of
from .continuations import At
from .effects import EARLY, NAMING, SETTLED, UnsafeTokens
from .frames import NAME_ESCAPE, PARTIAL, STRINGS, TEXT, TEXT_ESCAPE, WORD, JSONTrail, joined
from .remembering_guide import FIRST_NUMBER, RememberingGuide
from .settled import NO_SIGNATURE, Copying, PlaceClass
from .summaries import FewTokens
from .trail import SPACE
from .values import OBJECT, word_of


class RefusedTokens(NamedTuple):
    """Refused tokens: those that begin with an ending of a string (or word) and its delimiter, and single ones."""

    endings: tuple[bytes, ...] = ()
    are_words: bool = False
    tokens: tuple[int, ...] = ()


class DistinctGuide(RememberingGuide):
    """A LiftedGuide that remembers items of arrays and names in objects. See `guides.protocol.Guide`.

    Outside such arrays and objects its states are the chart's. Its masks are the chart's without refused tokens.
    """

    def watch(self, items: set[int], names: set[int], **options: bool) -> None:
        """See `RememberingGuide.watch`."""
        super().watch(items, names, **options)
        self._quick.refuse = self._refuse
        # Masks with refused tokens share the chart's cache, under negative keys that are no signatures
        self._lacking: dict[tuple[int, RefusedTokens], int] = {}
        self._lacks: dict[int, RefusedTokens] = {}
        self._within: PlaceClass | None = None
        self._own_keys = count(NO_SIGNATURE - 1, -1)

    def _forget(self, result: object) -> None:
        self._settled.forget_signatures()
        self._forget_lacks()
        super()._forget(result)

    # Masks

    def _new_row(self, state: int) -> int:
        """Compute `row` where it is not cached."""
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

    def _found(self, state: int, spot: PlaceClass) -> tuple[int, int]:
        """Return the mask key of a state in a spot, and its row."""
        # The chart's row comes first, since computing it forgets outdated signatures
        key, row = NO_SIGNATURE, super().row(spot.state)
        read = self._reads[state - FIRST_NUMBER]
        if not (spot.is_plain or (spot.is_bare and not isinstance(read, int) and self._settled.allows_all(spot, read))):
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

    def _looked(self, state: int, spot: PlaceClass) -> tuple[PlaceClass, int]:
        """Return the spot of a state, possibly settled by now, and the mask key; NO_SIGNATURE for the chart's mask."""
        if spot.unsafe is None:
            self._settled.look(spot, partial(self._allowed, spot), partial(self._trail, state))
        if spot.is_plain:
            return spot, NO_SIGNATURE
        is_read = not isinstance(self._reads[state - FIRST_NUMBER], int)
        trail = self._trail(state)
        if not is_read and spot.knowledge in (EARLY, NAMING):
            settled = self._settled.spot(spot.state, trail)
            if settled is not spot:
                self._spots[state - FIRST_NUMBER] = settled
                return self._looked(state, settled)
        is_whole = spot.is_bare and self._settled.allows_all(spot, trail)
        return spot, NO_SIGNATURE if is_whole else self._lacking_key(spot, trail)

    def _allowed(self, spot: PlaceClass) -> Mask:
        """Return a copy of the chart's mask in a spot."""
        while True:
            before = self._masks.evictions
            row = self._cache.rows.get(self._cache.signatures.get(spot.state, NO_SIGNATURE))
            mask = self._masks.rows[self._compute(spot.state) if row is None else row].copy()
            if self._masks.evictions == before:
                return mask

    def _lacking_key(self, spot: PlaceClass, trail: JSONTrail) -> int:
        """Return the mask key in a spot after a trail; NO_SIGNATURE for the chart's mask."""
        refused = self._refused(spot, trail, partial(self._allowed, spot))
        if refused is None:
            return NO_SIGNATURE
        # Many states over one chart state lack the same tokens.
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

    def _without(self, mask: Mask, refused: RefusedTokens) -> Mask:
        tokens = list(refused.tokens)
        for rest in refused.endings:
            few, many = self._summaries.ending_with(rest, is_word=refused.are_words)
            tokens += few
            if many is not None:
                mask &= ~many
        words = memoryview(mask)  # faster than NumPy for single numbers  # type: ignore[arg-type]
        for token in tokens:
            words[token >> 5] &= ~(1 << (token & 31))
        return mask

    def _refused(self, spot: PlaceClass, trail: JSONTrail, allowed: Copying) -> RefusedTokens | None:
        """Return the tokens that the chart allows in a spot and the trail refuses.

        Tables give the candidates; those that tables cannot decide are tried one by one. allowed: copies the chart's
        mask
        """
        state, mode = spot.state, trail.mode
        unsafe = self._settled.unsafe(spot, trail, allowed)
        tried, refused = self._matched(unsafe, trail) if unsafe.all_tokens() else (set[int](), list[int]())
        endings: tuple[bytes, ...] = ()
        if spot.is_piece:
            tried.update(unsafe.loose)
            endings = self._ends(trail, tried)
        elif spot.knowledge != SETTLED and not self._continuations.is_settled(trail):
            if mode in (TEXT_ESCAPE, NAME_ESCAPE):
                tried.update(tokens_of(allowed()))
            elif mode in STRINGS:
                endings = self._end_string(state, trail, allowed, tried)
            elif mode == WORD:
                endings = self._end_word(state, trail, allowed, tried)
            elif trail.frame.duplicates:
                tried.update(unsafe.loose)
                for value, tokens in unsafe.members.items():
                    if value in trail.frame.targets:
                        tried.update(tokens)
        refused += self._failed(spot, trail, tried - set(refused), allowed)
        return RefusedTokens(endings, mode == WORD, tuple(sorted(set(refused)))) if refused or endings else None

    def _failed(self, spot: PlaceClass, trail: JSONTrail, tried: set[int], allowed: Copying) -> list[int]:
        """Return those of the tried tokens that the chart allows in a spot and the trail refuses."""
        if not tried:
            return []
        spend(len(tried))
        mask = allowed()
        possible = [token for token in tried if mask.item(token >> 5) >> (token & 31) & 1]
        leads: dict[tuple[int, bytes], bool] = {}
        found: list[int] = []
        for token, after in zip(possible, self._chart_steps.after_each(spot.state, possible).tolist(), strict=True):
            data = self._vocabulary.tokens[token] or b""
            if self._continuations.bounds.goes_on_varied(after, trail, data):
                continue
            # Space between values changes only the chart's state.
            key = (after, data if trail.mode in PARTIAL else _without_space(data))
            if key not in leads:
                leads[key] = self._follow((spot.state, trail), data, after) is not None
            if not leads[key]:
                found.append(token)
        return found

    def _matched(self, unsafe: UnsafeTokens, trail: JSONTrail) -> tuple[set[int], list[int]]:
        """Return the tokens to try, given the values they contain, and the tokens that are refused for certain.

        The latter contain an item that has been written, in an array where equal items are never allowed.
        """
        frame = trail.frame
        written = frame.written
        tried, refused = set(unsafe.tested), list[int]()
        count = frame.targets.count
        for least, tokens in unsafe.scarce.items():
            if count >= least:
                tried.update(tokens)
        for word in frame.targets.among(unsafe.words.keys()) if unsafe.words else ():
            tried.update(unsafe.words[word])
        if written is None:
            return tried, refused
        if frame.kind is OBJECT:
            for name in written.among(unsafe.named.keys()) if unsafe.named else ():
                tried.update(unsafe.named[name])
        elif unsafe.items:
            add = tried.update if self._items.beside_free else refused.extend
            for item in written.among(unsafe.items.keys()):
                add(unsafe.items[item])
            # A token can end the item in progress and repeat it.
            if trail.mode == TEXT and self._trails.canonical:
                add(unsafe.doubled.get(joined(trail.text), ()))
            elif trail.mode in PARTIAL:
                tried.update(*unsafe.items.values())
        return tried, refused

    def _end_string(self, state: int, trail: JSONTrail, allowed: Copying, tried: set[int]) -> tuple[bytes, ...]:
        """Return endings that make the string or name in progress a written one; add tokens to try."""
        targets = trail.frame.targets
        piece = self._trails.piece(trail)
        if not self._trails.canonical:
            is_robust = self._continuations.bounds.is_robust(state)
            tried.update(tokens_of(allowed() & self._summaries.quoted if is_robust else allowed()))
            return ()
        for text in targets.part_strings(piece):
            tried.update(self._ending(text[len(piece) :], allowed, is_word=False))
        if not self._continuations.bounds.is_robust(state):
            tried.update(self._summaries.spelling_on(piece, targets.beginning(piece)))
        return self._ends(trail, tried)

    def _ends(self, trail: JSONTrail, tried: set[int]) -> tuple[bytes, ...]:
        """Return endings that make the piece in progress a written item or name; add tokens to try."""
        written, closers = trail.frame.targets.written, self._summaries.closers
        ends = [] if written is None else written.ends(self._trails.piece(trail), closers.keys())
        if self._items.beside_free:
            tried.update(token for rest in ends for token in closers[rest])
            return ()
        return tuple(sorted(ends))

    def _end_word(self, state: int, trail: JSONTrail, allowed: Copying, tried: set[int]) -> tuple[bytes, ...]:
        """Return endings that make the word in progress a written one; add tokens to try."""
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
                tried.update(self._ending(head, allowed, is_word=True))
        mantissa, power, _ = begin.lower().partition(b"e")
        if not mantissa.strip(b"-0."):
            # Zero is one value, with any exponent.
            tried.update(tokens_of(allowed() & (~self._summaries.ending if power else self._summaries.powers)))
        return tuple(found)

    def _ending(self, rest: bytes, allowed: Copying, *, is_word: bool) -> Sequence[int]:
        """Return tokens that begin with an ending: all that the chart allows, and perhaps others."""
        few, many = self._summaries.ending_with(rest, is_word=is_word)
        return few if many is None else tokens_of(allowed() & many)

    def _refusable(self, state: int, mask: Mask) -> FewTokens:
        """Return the tokens of a mask that may contain a repeated value or begin a trail, where there is no trail."""
        return self._summaries.beginning[self._differs(state), self._trails.with_names].within(mask)

    def _refuse(self, state: int, mask: Mask) -> None:
        """Remove tokens from a mask that contain a repeated value, outside trails."""
        within, found = self._within, None
        if within is not None and self._settled.is_inside(within):
            found = self._summaries.nested[within.mode in STRINGS].within(mask)
            if not found.bits.any():
                return
        with self._meter:
            if self._items.beside_free:
                mask &= self._summaries.inside
            if self._automaton.chart.states.item(state, KEPT) < 0:
                self._automaton.keep(np.array([state], np.int32))
            found = self._refusable(state, mask) if found is None else found
            if not found.bits.any():
                return
            tokens = self._to_try(state, found)
            for token, after in zip(tokens, self._chart_steps.after_each(state, tokens).tolist(), strict=True):
                if self._follow((state, None), self._summaries.text(token), after) is None:
                    mask[token >> 5] &= ~np.uint32(1 << (token & 31))

    def _to_try(self, state: int, tokens: FewTokens) -> list[int]:
        """Return those tokens that do more than continue the string of a chart state.

        All states of a loop call the same rules: if no watched item or name begins in one, none begins in any. Next to
        a usual state this holds for tokens whose first byte leads to it.
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
        """Return the number of tokens that complete the text, without EOS; of bytes where repeats must be avoided."""
        with self._lock, self._meter:
            place = self._ready(state)
            return NEVER if place[0] == DEAD else self._distance(place)

    def _distance(self, place: At) -> int:
        state, trail = place
        if trail is None or self._is_as_far(state, trail):
            return self._continuations.needed(state) if self._by_bytes else self._closing.distance(state)
        return self._continuations.cost(state, trail)

    def _is_as_far(self, state: int, trail: JSONTrail) -> bool:
        """Test whether the chart's distance holds for a trail."""
        return self._continuations.is_settled(trail) or (
            not self._by_bytes and self._continuations.is_clean(state, trail)
        )

    def known_bound(self, state: int, left: int) -> int | None:
        """See `LiftedGuide.known_bound`."""
        left = check_left(left)
        with self._lock, self._meter:
            place = self._ready(state)
            if place[0] == DEAD:
                return NEVER if left >= NEVER else None
            return self._enough(place, left)

    def _enough(self, place: At, left: int) -> int | None:
        state, trail = place
        if trail is None or self._is_as_far(state, trail):
            if not self._by_bytes:
                return self._closing.known_bound(state, left)
            needed = self._continuations.needed(state)
        else:
            needed = self._continuations.cost(state, trail)
        return needed if needed <= left else None

    def mask_within(self, state: int, left: int) -> Mask:
        """Return the allowed tokens after which `left - 1` tokens can complete the text, and EOS iff accepting."""
        left = check_left(left)
        state = check_state(state, MAX_LEFT)
        allowed = self.mask(state).copy()
        with self._lock, self._meter:
            place = self._ready(state)
            if place[0] == DEAD:
                return allowed
            within = allowed & self._tables.pack(self._flag_fitting(place[0], left, 0))
            unsettled = self._unsettled(place, allowed)
            if self._by_bytes:
                within |= allowed & unsettled
            for token in tokens_of(within & unsettled):
                after = self._follow(place, self._summaries.text(token), self._chart_steps.after(place[0], token))
                if after is not None and self._enough(after, left - 1) is None:
                    within[token >> 5] &= ~np.uint32(1 << (token & 31))
            return within | (allowed & self._tables.eos_words)

    def _flag_fitting(self, state: int, left: int, node: int) -> NDArray[np.bool_]:
        """Flag the tokens below a trie node, in trie order, after which `left - 1` suffices by chart distances."""
        if not self._by_bytes:
            return self._closing.fitting(state, left, node)
        after = self._closing.after_tokens(state, node)
        states = np.unique(after[after != DEAD])
        fit = np.zeros(self._automaton.state_count + 1, np.bool_)
        fit[states] = self._closing.bytes_needed(states) <= left - 1
        fit[DEAD] = False
        return fit[after]

    def _unsettled(self, place: At, within: Mask) -> Mask:
        """Return a superset of the tokens after which the chart's distance may be too short."""
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
        """Return the state after each byte: int32 [256], DEAD where there is none."""
        with self._lock, self._meter:
            place = self._ready(state)
            after = self._automaton.transitions(place[0])
            for byte in np.flatnonzero(after != DEAD).tolist():
                data = bytes((byte,))
                after[byte] = self._number(state, data, after.item(byte))
            return after

    def certain_bytes(self, state: int, most: int) -> bytes:
        """See `guides.protocol.Foreseeing`."""
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
        """Return None: tokens are read one by one, and many lead to states of their own."""
        return None

    def after_tokens(self, state: int, node: int = 0) -> NDArray[np.int32]:
        """Return the state after each token below a trie node, without the node's bytes; DEAD if not allowed."""
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
        """Return (index, rest of the token) for the allowed tokens below a trie node that can change the trail."""
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
        """Return the bytes that complete a text from each state; NEVER from DEAD."""
        with self._lock, self._meter:
            places = [self._ready(state) for state in np.asarray(states).reshape(-1).tolist()]
            costs = [
                NEVER if s == DEAD else self._continuations.needed(s) if t is None else self._continuations.cost(s, t)
                for s, t in places
            ]
            return np.array(costs, np.int32)

    def mask_below(self, state: int, node: int, left: int | None = None) -> Mask:
        """See `guides.healing.TrieGuide`."""
        most = None if left is None else check_left(left)
        after = self.after_tokens(state, node)
        with self._lock, self._meter:
            fit = {
                each: each != DEAD and (most is None or self._enough(self._place(each), most - 1) is not None)
                for each in set(after.tolist())
            }
            return self._tables.pack(np.array([fit[each] for each in after.tolist()], np.bool_), node)

    def distance_below(self, state: int, node: int) -> int:
        """See `guides.healing.TrieGuide`."""
        after = set(self.after_tokens(state, node).tolist()) - {DEAD}
        with self._lock, self._meter:
            return min((1 + self._distance(self._place(each)) for each in after), default=NEVER)

    def chart_state(self, state: int) -> int:
        """Return the chart state of a state."""
        return self._place(check_state(state, MAX_LEFT))[0]

    def describe(self, state: int) -> str:
        """Describe the next bytes that the chart allows."""
        return super().describe(self.chart_state(state))


def _without_space(data: bytes) -> bytes:
    """Strip leading space from a token that begins between values, and trailing space if it ends between values too."""
    data = data.lstrip(SPACE)
    short = data.rstrip(SPACE)
    return short if b'"' not in data and short[-1:] in b"[]{}" else data
