"""The lift of a byte automaton and a vocabulary to a guide; shared by all constraints over charts.

`QuickMasks` computes most masks in one or two kernel calls, without exceptions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...errors import LanguageError, LimitError
from ...kernels.answers import DEAD, NEVER, UNREADY
from ...kernels.chart.compaction import follow
from ...kernels.chart.return_sets import signature as signature_of
from ...kernels.trie.shortcut import BESIDE, HIGH, KIND, LOW, OF_LEADS, USUAL
from ...kernels.trie.walk import walk
from ...kernels.trie.whole_mask import (
    BOTH,
    FOUND,
    INSIDE,
    IS_NEW,
    MADE,
    MET,
    NO_LOOP,
    OF_USUAL,
    USUAL_IS_NEW,
    WITHOUT_INNER,
    find_mask,
    mask_beside,
    walk_inside,
    walk_outside,
)
from ...tokenizers_adapter import Vocabulary
from ..arguments import MAX_LEFT, check_bytes, check_left, check_state, check_token
from ..chart.automaton import ChartAutomaton, CompactionResult
from ..explain import NOTHING, expectation
from .closing import Closing
from .mask_table import Cache, Mask
from .table_guide import TableGuide
from .tables import Loop, VocabularyTables

_DONE = (MADE, MET, BOTH)
_ASK_AGAIN = 1  # no code
MAX_WAYS, MAX_WAY = 32, 4096
"""Exits of inner states that a guide caches, and nodes of the trie in each."""


class QuickMasks:
    """New masks of a guide whose tokens spell all bytes. Callers hold the guide's lock.

    rows: the guide's rows by signature
    found: uint64 [FOUND], a kernel's result for a state; view: the same as a memoryview, for single numbers
    refuse: removes tokens from a new mask that the guide refuses though its automaton accepts them

    Kernels write masks to uint32 [2, words]: the state's, and that of its usual state.
    """

    def __init__(self, automaton: ChartAutomaton, tables: VocabularyTables, rows: Cache) -> None:
        self._automaton = automaton
        self._tables = tables
        self._rows = rows
        # By signature of the inner state; None for exits with too many nodes
        self._ways: dict[int, NDArray[np.int32] | None] = {}
        # The loop of this mask whose slice is not worth making yet: repetitions of a kernel are no further walks
        self._unsliced: Loop | None = None
        self.found = np.zeros(FOUND, np.uint64)
        self.refuse: Callable[[int, Mask], None] | None = None
        self.view = memoryview(self.found)  # faster than NumPy for single numbers  # type: ignore[arg-type]

    def begin(self, state: int, masks: Mask) -> int:
        """Write the mask of a state to `masks`, or find its row; return its signature, or a code.

        Returns UNREADY where a call needs more preparation than a reset of the work counter.
        """
        self._renew()
        self._unsliced = None
        return self._compute_mask(state, masks, self._automaton.attempt) if 0 <= state <= MAX_LEFT else UNREADY

    def finish(self, state: int, masks: Mask, code: int = UNREADY) -> tuple[int, int]:
        """Return the signature of a state with words, and the row of its mask. code: from `begin`, to be resolved

        Computes the mask again if it was evicted, or its row changed while it was read.
        """
        self._automaton.begin_call()
        if code == UNREADY:
            self._renew()
        while True:
            if code != UNREADY:
                self._automaton.resolve(code)
            code = self._compute_mask(state, masks, self._automaton.attempt_more)
            if code >= 0:
                row = self.row(state, code, masks)
                if row is not None:
                    return code, row
                code = UNREADY
            if code == UNREADY:
                self._renew()
                self.view[IS_NEW] = 1

    def _renew(self) -> None:
        self.view[IS_NEW] = self.view[USUAL_IS_NEW] = self.view[WITHOUT_INNER] = 0

    def row(self, state: int, signature: int, masks: Mask) -> int | None:
        """Return the row of the mask just computed or found, stored by signature; None if it was evicted meanwhile."""
        view, tables = self.view, self._tables
        kind, usual, of_usual = view[KIND], view[USUAL], view[OF_USUAL]
        if self.refuse is not None and kind != MET:
            if kind == BOTH:
                self.refuse(usual, masks[1])
            self.refuse(state, masks[0])
        with tables.lock:
            if kind == MET:
                return tables.masks.find(self._rows, signature)
            if kind == BOTH:
                tables.masks.store(self._rows, of_usual, masks[1])
            return tables.masks.store(self._rows, signature, masks[0])

    def _compute_mask(self, state: int, masks: Mask, call: Callable[..., int]) -> int:
        """Compute a mask as `begin` does. call: calls the first kernel"""
        view, found, parts = self.view, self.found, self._tables.mask_parts
        while True:
            number = call(find_mask, parts, state, found, masks)
            kind = view[KIND]
            if number < 0 or kind in _DONE:
                return number
            call = self._automaton.attempt_more
            if kind == INSIDE:
                code = self._inside(state, masks)
                if code != _ASK_AGAIN:
                    view[KIND] = MADE
                    return number if code >= 0 else code
                view[WITHOUT_INNER] = 1
                continue
            if kind == BESIDE:
                code = self._beside(state, masks)
                if code != _ASK_AGAIN:
                    return number if code >= 0 else code
                continue
            loop = view[LOW], view[HIGH], view[OF_LEADS]
            wanted = None if loop == self._unsliced else self._tables.parts_of(loop)
            if wanted is None:
                self._unsliced = loop
            parts = wanted or replace(parts, least=NO_LOOP)

    def forget(self) -> None:
        """Drop the entries by signature."""
        self._ways.clear()

    def _inside(self, state: int, masks: Mask) -> int:
        """Derive the mask of a state from that of its inner state; return 0 or a code.

        Returns _ASK_AGAIN if too many tokens reach the end of the inner rule.
        """
        view, tables = self.view, self._tables
        table, evictions, signature = tables.masks, tables.masks.evictions, view[OF_USUAL]
        with tables.lock:
            row = table.find(self._rows, signature)
        way = self._ways.get(signature)
        if row is None or way is None:
            if signature in self._ways and way is None:
                return _ASK_AGAIN
            found = np.empty((MAX_WAY, 5), np.int32)
            count = self._automaton.attempt_more(walk_inside, tables.branches, view[USUAL], found, masks[1])
            if count < DEAD:
                return count
            if len(self._ways) == MAX_WAYS:
                self._ways.clear()
            way = self._ways[signature] = None if count == DEAD else found[:count].copy()
            if way is None:
                return _ASK_AGAIN
            with tables.lock:
                table.store(self._rows, signature, masks[1])
            masks[0] = masks[1]
        else:
            masks[0] = table.rows[row]
            if table.evictions != evictions:
                return UNREADY  # the row may have held another mask
        return self._automaton.attempt_more(walk_outside, tables.branches, state, way, masks[0])

    def _beside(self, state: int, masks: Mask) -> int:
        """Derive the mask of a state from that of its usual state; return 0 or a code.

        Returns _ASK_AGAIN if that mask is not in the table; `find_mask` then computes it.
        """
        view, tables = self.view, self._tables
        table, evictions = tables.masks, tables.masks.evictions
        with tables.lock:
            row = table.find(self._rows, view[OF_USUAL])
        if row is None:
            view[USUAL_IS_NEW] = 1
            return _ASK_AGAIN
        known = table.rows[row]
        code = self._automaton.attempt_more(mask_beside, tables.mask_parts, state, view[USUAL], known, masks)
        # The row may have held another mask.
        return UNREADY if table.evictions != evictions else code


_UNKNOWN = -2  # no signature


class LiftedGuide(TableGuide):
    """A guide over the states of a `ChartAutomaton`. See `guides.protocol.Guide` for the methods.

    States with equal signatures have equal masks, so masks are cached by signature. If tokens do not spell all
    bytes, a mask depends on whether a completion can be spelt, and is cached by state. Thread-safe. Unknown states
    raise StateError.
    """

    def __init__(self, automaton: ChartAutomaton, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self._automaton = automaton
        self._size = vocabulary.size
        self._lock = automaton.lock
        automaton.spelling = self._tables.bytes.data
        self._meter = automaton.meter
        self._cache.generation = automaton.last_compaction
        self._quick = QuickMasks(automaton, self._tables, self._cache.rows)
        self._closing = Closing(automaton, self._tables)
        if not self._tables.spells_all_bytes and self._closing.distance(automaton.start) >= NEVER:
            raise self._unspellable()

    @property
    def start(self) -> int:
        """The state before the first token."""
        return self._automaton.start

    @property
    def automaton(self) -> ChartAutomaton:
        """The byte automaton of the guide."""
        return self._automaton

    def row(self, state: int) -> int:
        """Return the number of the row of `table` that holds `mask(state)`."""
        if type(state) is not int:
            state = check_state(state, MAX_LEFT)
        if self._cache.generation is self._automaton.last_compaction:
            signature = self._cache.signatures.get(state, _UNKNOWN)
            row = self._cache.rows.get(signature)
            while row is not None:
                self._masks.touch(row)
                known = self._cache.rows.get(signature)
                if known == row:  # not evicted by another thread before `touch`
                    return row
                row = known
        return self._new_row(state)

    def rows(self, states: list[int]) -> NDArray[np.int32]:
        """Return `row` of several states; faster if all are cached. See `TableGuide.rows`."""
        found = None
        if self._cache.generation is self._automaton.last_compaction:
            found = self._masks.find_all(self._cache.rows, map(self._cache.signatures.get, states))
        return super().rows(states) if found is None else found

    def advance(self, state: int, token: int) -> int:
        """Return the state after `token`, or DEAD; EOS leaves an accepting state as it is."""
        if type(state) is not int or type(token) is not int:
            state, token = check_state(state, MAX_LEFT), check_token(token, self._size)
        known = self._cache.steps.get(state << 32 | token)
        if known is not None and token < self._size and not self._automaton.is_crowded:
            return known
        if not 0 <= token < self._size:
            return DEAD
        if token in self._eos:
            return state if self.is_accepting(state) else DEAD
        if state == DEAD:
            return DEAD
        return self._new_step(state, token)

    def read(self, state: int, data: bytes) -> int:
        """Return the state after `data`, which may end anywhere; DEAD if no tokens can complete a text from there."""
        data = check_bytes(data)
        with self._lock, self._meter:
            state = self._prepare(state)
            return self._alive(self._automaton.read(state, data))

    def is_accepting(self, state: int) -> bool:
        """Test whether the text so far is complete."""
        return self._automaton.is_accepting(state)

    def distance(self, state: int) -> int:
        """Return the fewest tokens to an accepting state, EOS not counted; see `guides.lift.closing.Closing`."""
        with self._lock, self._meter:
            state = self._prepare(state)
            return NEVER if state == DEAD else self._closing.distance(state)

    def fits(self, state: int, left: int) -> bool:
        """Test whether `distance(state) <= left`; faster than `distance` for a large `left`."""
        return self.known_bound(state, left) is not None

    def known_bound(self, state: int, left: int) -> int | None:
        """Return a number of tokens, at most `left`, that completes the text; None if `distance(state) > left`.

        An upper bound of the distance, which takes longer to compute.
        """
        left = check_left(left)
        with self._lock, self._meter:
            state = self._prepare(state)
            if state == DEAD:
                return NEVER if left >= NEVER else None
            return self._closing.known_bound(state, left)

    def mask_within(self, state: int, left: int) -> Mask:
        """Return the allowed tokens after which `left - 1` tokens can complete the text, and EOS iff accepting."""
        left = check_left(left)
        with self._lock, self._meter:
            state = self._prepare(state)
            if state == DEAD:
                return np.zeros(self._tables.words, np.uint32)
            mask = self._tables.pack(self._closing.fitting(state, left))
            return mask | self._tables.eos_words if self._automaton.ends(state) else mask

    def mask_below(self, state: int, node: int, left: int | None = None) -> Mask:
        """See `guides.healing.TrieGuide`."""
        with self._lock, self._meter:
            state = self._prepare(state)
            mask = np.zeros(self._tables.words, np.uint32)
            if state == DEAD:
                return mask
            if left is None and self._tables.spells_all_bytes:
                self._automaton.run(walk, self._tables.branches, state, self._tables.branch_of(node), mask)
                return mask
            fitting = self._closing.fitting(state, NEVER if left is None else check_left(left), node)
            return self._tables.pack(fitting, node)

    def distance_below(self, state: int, node: int) -> int:
        """See `guides.healing.TrieGuide`."""
        with self._lock, self._meter:
            state = self._prepare(state)
            return NEVER if state == DEAD else self._closing.distance_below(state, node)

    def after_tokens(self, state: int, node: int = 0) -> NDArray[np.int32]:
        """Return the state after the rest of each token below a node of the token trie; DEAD if it is not allowed.

        int32, in trie order
        """
        with self._lock, self._meter:
            state = self._prepare(state)
            if state == DEAD:
                below = self._tables.below(node)
                return np.full(int(below.stop - below.start), DEAD, np.int32)
            after = self._closing.after_tokens(state, node)
            if not self._tables.spells_all_bytes:
                after[~self._closing.fitting(state, NEVER, node)] = DEAD
            self._automaton.keep(after)
            return after

    def after_each_token(self, state: int) -> NDArray[np.int32] | None:
        """Return the state after each token, int32 [V], DEAD where it is not allowed or ends the text."""
        after = np.full(self._size, DEAD, np.int32)
        after[self._tables.trie.ids[self._tables.below(0)]] = self.after_tokens(state)
        after[list(self._eos)] = DEAD
        return after

    def after_bytes(self, state: int) -> NDArray[np.int32]:
        """Return the state after each byte: int32 [256], DEAD where there is none, whether or not tokens spell it."""
        with self._lock, self._meter:
            state = self._prepare(state)
            return self._automaton.transitions(state)

    def certain_bytes(self, state: int, most: int) -> bytes:
        """Return the forced bytes from a state, up to `most`, whether or not tokens spell them."""
        found = bytearray()
        with self._lock, self._meter:
            state = self._prepare(state)
            while len(found) < most and (way := self._automaton.only_way(state)) is not None:
                byte, state = way
                found.append(byte)
        return bytes(found)

    def bytes_needed(self, states: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the fewest bytes that complete a text from each state, spellable or not; NEVER from DEAD."""
        with self._lock, self._meter:
            self._prepare(self.start)
            numbers = [self._automaton.ready(state) for state in np.asarray(states).reshape(-1).tolist()]
            needed = np.full(len(numbers), NEVER, np.int32)
            alive = [state for state in numbers if state != DEAD]
            if alive:
                needed[np.array(numbers) != DEAD] = self._closing.bytes_needed(np.array(alive, np.int32))
            return needed

    def _prepare(self, state: int) -> int:
        """Drop stale cache entries, and return the state with its words restored. Raises StateError."""
        compaction = self._automaton.last_compaction
        if self._cache.generation is not compaction:
            self._forget(compaction)
            self._cache.generation = compaction
        return self._automaton.ready(state)

    def _new_row(self, state: int) -> int:
        """Compute a row that is not cached; usually one or two kernel calls."""
        with self._lock:
            if not self._tables.spells_all_bytes or self._cache.generation is not self._automaton.last_compaction:
                return self._compute_row(state)
            masks = np.empty((2, self._tables.words), np.uint32)
            code = self._quick.begin(state, masks)
            if code < 0:
                return self._compute_row(state, code, masks)
            row = self._quick.row(state, code, masks)
            return self._compute_row(state) if row is None else self._cache.note_row(state, code, row)

    def _compute_row(self, state: int, code: int = UNREADY, masks: Mask | None = None) -> int:
        """Compute a row with full preparation. code: of an earlier attempt"""
        spent = 0 if code == UNREADY else self._meter.spent
        with self._lock, self._meter:
            self._meter.spend(spent)
            return self._compute(self._prepare(state), code, masks)

    def _new_step(self, state: int, token: int) -> int:
        """Compute a transition that is not cached, for a token other than EOS; usually a single kernel call."""
        automaton, tokens = self._automaton, self._tables.bytes
        with self._lock:
            after = UNREADY
            if self._tables.spells_all_bytes and not automaton.is_crowded and 0 <= state <= MAX_LEFT:
                after = automaton.attempt(follow, tokens, state, token)
            if after < DEAD:
                after = self._grown_step(state, token, 0 if after == UNREADY else self._meter.spent)
            return self._cache.note_step(state, token, after)

    def _grown_step(self, state: int, token: int, spent: int) -> int:
        """Compute a transition with full preparation. spent: steps of an earlier attempt. The lock is held."""
        with self._meter:
            self._meter.spend(spent)
            if self._automaton.is_crowded:
                self._automaton.collect()
            state = self._prepare(state)
            return self._alive(self._automaton.run(follow, self._tables.bytes, state, token))

    def _alive(self, state: int) -> int:
        """Return the state itself, or DEAD if the vocabulary cannot spell a completion."""
        if state == DEAD or self._tables.spells_all_bytes or self._closing.fits(state, NEVER - 1):
            return state
        return DEAD

    def describe(self, state: int) -> str:
        """Describe what may follow: the characters, and the part of a grammar or schema that expects them."""
        with self._lock, self._meter:
            state = self._prepare(state)
            return NOTHING if state == DEAD else expectation(self._automaton, state, vocabulary=self.vocabulary)

    def _forget(self, result: object) -> None:
        """Drop cache entries of invalid states and signatures; all entries if an earlier compaction was missed."""
        self._quick.forget()
        if not isinstance(result, CompactionResult) or result.before is not self._cache.generation:
            none_valid = np.zeros(self._automaton.state_count, np.bool_)
            self._closing.forget(none_valid)
            self._cache.forget(none_valid, none_valid)
            return
        self._closing.forget(result.states)
        self._cache.forget(result.states, result.signatures if self._tables.spells_all_bytes else result.states)

    def _unspellable(self) -> LanguageError | LimitError:
        """Return the error for a language of which no text can be spelt."""
        if self._closing.gave_up:
            return LimitError(
                "no way to spell a complete text of this constraint with this vocabulary was found in reasonable time; "
                "give the vocabulary tokens for all single bytes or characters of the constraint"
            )
        have = {byte for text in self._vocabulary.tokens for byte in text or b""}
        missing = sorted(self._automaton.bytes_on_the_way() - have)
        listed = ", ".join(repr(chr(byte)) if byte < 0x80 else f"0x{byte:02X}" for byte in missing[:20])
        return LanguageError(
            "the vocabulary has no tokens that spell a text of this constraint"
            + (f"; no token contains {listed}" if missing else "; its tokens do not fit together to one")
            + ". Use another tokenizer, or a constraint within its characters"
        )

    def _install(self, state: int, mask: Mask) -> None:
        """Store a precomputed mask of a state."""
        with self._lock, self._meter, self._tables.lock:
            self._prepare(state)
            signature = self._automaton.run(signature_of, state) if self._tables.spells_all_bytes else state
            if signature not in self._cache.rows:
                self._masks.store(self._cache.rows, signature, mask)

    def _compute(self, state: int, code: int = UNREADY, masks: Mask | None = None) -> int:
        """Return the row with the mask of a state with words. The guide's lock is held.

        Masks are computed without the tables' lock, for which other guides of the vocabulary wait.
        """
        if state != DEAD and self._tables.spells_all_bytes:
            masks = np.empty((2, self._tables.words), np.uint32) if masks is None else masks
            return self._cache.note_row(state, *self._quick.finish(state, masks, code))
        row = self._tables.row_of(self._cache.rows, state, lambda: self._complete(state))
        return self._cache.note_row(state, state, row)

    def _complete(self, state: int) -> Mask:
        """Return the mask of DEAD, or of a state under an incomplete vocabulary. The guide's lock is held."""
        if state == DEAD:
            return np.zeros(self._tables.words, np.uint32)
        mask = self._tables.pack(self._closing.fitting(state, NEVER))
        return mask | self._tables.eos_words if self._automaton.ends(state) else mask
