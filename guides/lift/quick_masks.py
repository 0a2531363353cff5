"""Masks that kernels make by themselves, as most are made: a call or two of what is usual, and no exceptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...kernels.answers import DEAD, UNREADY
from ...kernels.trie.inside import walk_inside, walk_outside
from ...kernels.trie.shortcut import BESIDE, HIGH, KIND, LOW, OF_LEADS, USUAL
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
)
from ..chart.automaton import ChartAutomaton
from ..given import MOST_LEFT
from .mask_table import Cache, Mask
from .tables import VocabularyTables

_DONE = (MADE, MET, BOTH)
_ASK_AGAIN = 1  # no code
MOST_WAYS, MOST_WAY = 32, 4096
"""How many ways out of inner states a guide remembers, and how many nodes of the trie one may have."""


class QuickMasks:
    """The new masks of a guide whose tokens spell all bytes; rows: where its rows are kept by signature.

    Masks are written to uint32 [2, words]: that of the state, and that of its usual state. Hold the guide's lock.
    found: uint64 [FOUND], what a kernel found of a state; view: the same, for single numbers
    refuse: takes tokens from the new mask of a state that a guide refuses though its automaton does not
    """

    def __init__(self, automaton: ChartAutomaton, tables: VocabularyTables, rows: Cache) -> None:
        self._automaton = automaton
        self._tables = tables
        self._rows = rows
        # By the signatures of inner states; None for ways that are too long
        self._ways: dict[int, NDArray[np.int32] | None] = {}
        self.found = np.zeros(FOUND, np.uint64)
        self.refuse: Callable[[int, Mask], None] | None = None
        self.view = memoryview(self.found)  # single numbers are quicker this way  # type: ignore[arg-type]

    def begin(self, state: int, masks: Mask) -> int:
        """Write the mask of a state to `masks`, or find out that it may be there: its signature, or a code.

        UNREADY where more must be begun before than the count of work.
        """
        self.view[IS_NEW] = self.view[USUAL_IS_NEW] = self.view[WITHOUT_INNER] = 0
        return self._made(state, masks, self._automaton.attempt) if 0 <= state <= MOST_LEFT else UNREADY

    def finish(self, state: int, code: int, masks: Mask) -> int:
        """The same, of a state that can be looked at, after `begin` answered with a code, which is resolved."""
        self._automaton.begin_call()
        while True:
            if code != UNREADY:
                self._automaton.resolve(code)
            code = self._made(state, masks, self._automaton.attempt_more)
            if code >= 0 or code == UNREADY:
                return code

    def row(self, state: int, signature: int, masks: Mask) -> int | None:
        """The row of the mask of a state just found, kept by its signature; None if it turns out not to be there."""
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

    def _made(self, state: int, masks: Mask, call: Callable[..., int]) -> int:
        """As `begin`. call: calls the kernel for the first time"""
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
            wanted = self._tables.parts_of((view[LOW], view[HIGH], view[OF_LEADS]))
            parts = wanted or replace(parts, least=NO_LOOP)

    def forget(self) -> None:
        """Forget what is remembered by signatures."""
        self._ways.clear()

    def _inside(self, state: int, masks: Mask) -> int:
        """Write the mask of a state that was found to have an inner one, from that one's; 0 or a code.

        Asks to be called again where too many tokens come to the end of the rule.
        """
        view, tables = self.view, self._tables
        table, evictions, signature = tables.masks, tables.masks.evictions, view[OF_USUAL]
        with tables.lock:
            row = table.find(self._rows, signature)
        way = self._ways.get(signature)
        if row is None or way is None:
            if signature in self._ways and way is None:
                return _ASK_AGAIN
            found = np.empty((MOST_WAY, 5), np.int32)
            count = self._automaton.attempt_more(walk_inside, tables.branches, view[USUAL], found, masks[1])
            if count < DEAD:
                return count
            if len(self._ways) == MOST_WAYS:
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
                return UNREADY  # what was read in the row may have been another mask
        return self._automaton.attempt_more(walk_outside, tables.branches, state, way, masks[0])

    def _beside(self, state: int, masks: Mask) -> int:
        """Write the mask of a state that was found to have a usual one, from that one's; 0 or a code.

        Asks to be called again by way of `find_mask` if that one's mask is not in the table.
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
        # What was read in a row may have been another mask by then.
        return UNREADY if table.evictions != evictions else code
