"""Masks that kernels make by themselves, as most are made: two calls at most of what is usual, and no exceptions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...kernels.answers import UNREADY
from ...kernels.trie.shortcut import BESIDE, HIGH, KIND, LOW, OF_LEADS, USUAL
from ...kernels.trie.whole_mask import (
    FOUND,
    IS_NEW,
    MADE,
    MET,
    NO_LOOP,
    OF_USUAL,
    find_mask,
    mask_at_loop,
    mask_beside,
)
from ..chart.automaton import ChartAutomaton
from ..given import MOST_LEFT
from .mask_table import Cache, Mask
from .tables import MIN_LOOP, VocabularyTables


class QuickMasks:
    """The new masks of a guide whose tokens spell all bytes; rows: where its rows are kept by signature.

    Hold the guide's lock. found: uint64 [FOUND], what a kernel found of a state; view: the same, for single numbers
    """

    def __init__(self, automaton: ChartAutomaton, tables: VocabularyTables, rows: Cache) -> None:
        self._automaton = automaton
        self._tables = tables
        self._rows = rows
        self.found = np.zeros(FOUND, np.uint64)
        self.view = memoryview(self.found)  # single numbers are quicker this way  # type: ignore[arg-type]

    def begin(self, state: int, mask: Mask) -> int:
        """Write the mask of a state to `mask`, or find out that it may be there: its signature, or a code.

        UNREADY where more must be begun before than the count of work.
        """
        self.view[IS_NEW] = 0
        return self._made(state, mask, self._automaton.attempt) if 0 <= state <= MOST_LEFT else UNREADY

    def finish(self, state: int, code: int, mask: Mask) -> int:
        """The same, of a state that can be looked at, after `begin` answered with a code, which is resolved."""
        self._automaton.begin_call()
        while True:
            if code != UNREADY:
                self._automaton.resolve(code)
            code = self._made(state, mask, self._automaton.attempt_more)
            if code >= 0 or code == UNREADY:
                return code

    def row(self, signature: int, mask: Mask) -> int | None:
        """The row of the mask just found, kept by its signature; None if it turns out not to be there."""
        with self._tables.lock:
            if self.view[KIND] == MET:
                return self._tables.masks.find(self._rows, signature)
            return self._tables.masks.store(self._rows, signature, mask)

    def _made(self, state: int, mask: Mask, call: Callable[..., int]) -> int:
        """As `begin`. call: calls the first kernel"""
        view, tables = self.view, self._tables
        trie, ending = tables.branches, tables.eos_words
        number = call(find_mask, trie, state, MIN_LOOP, ending, self.found, mask)
        kind = view[KIND]
        if number < 0 or kind in (MADE, MET):
            return number
        code = self._beside(state, mask) if kind == BESIDE else self._at_loop(state, mask)
        return number if code >= 0 else code

    def _at_loop(self, state: int, mask: Mask) -> int:
        """Write the mask of a state to `mask` that was found to loop or to span just before; 0 or more, or a code."""
        view, tables, call = self.view, self._tables, self._automaton.attempt_more
        trie, ending = tables.branches, tables.eos_words
        loop_slice = tables.loop_slice((view[LOW], view[HIGH], view[OF_LEADS]))
        if loop_slice is None:
            return call(find_mask, trie, state, NO_LOOP, ending, self.found, mask)
        return call(mask_at_loop, trie, loop_slice, view[KIND], state, ending, mask)

    def _beside(self, state: int, mask: Mask) -> int:
        """The same, of a state that was found to have a usual one, whose mask is made first if it is not there."""
        view, tables, call = self.view, self._tables, self._automaton.attempt_more
        trie, ending, masks = tables.branches, tables.eos_words, tables.masks
        usual, signature, evictions = view[USUAL], view[OF_USUAL], masks.evictions
        with tables.lock:
            row = masks.find(self._rows, signature)
        if row is not None:
            known = masks.rows[row]
        else:
            known = np.empty(tables.words, np.uint32)
            code = call(find_mask, trie, usual, MIN_LOOP, ending, self.found, known)
            if code >= 0 and view[KIND] != MADE:
                code = self._at_loop(usual, known)
            if code < 0:
                return code
            with tables.lock:
                masks.store(self._rows, signature, known)
        code = call(mask_beside, trie, state, usual, known, ending, mask)
        view[KIND] = BESIDE
        # What was read in a row may have been another mask by then.
        return UNREADY if row is not None and masks.evictions != evictions else code
