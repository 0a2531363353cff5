"""Guides whose masks are rows of their vocabulary's table, and what they have in common."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...tokenizers_adapter import Vocabulary
from ..given import token_of
from ..protocol import DEAD
from ..shared import Shared
from .mask_table import Cache, Mask, MaskTable
from .tables import VocabularyTables


class TableGuide(Shared):
    """A guide that has its masks from the table of its vocabulary; see `guides.protocol.RowGuide`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tables = VocabularyTables.of(vocabulary)
        self._masks = self._tables.masks
        self._eos = frozenset(vocabulary.eos_ids)
        self._rows: Cache = {}

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary whose token ids the masks speak of."""
        return self._vocabulary

    @property
    def table(self) -> MaskTable:
        """The table that holds the masks; one per vocabulary."""
        return self._masks

    def mask(self, state: int) -> Mask:
        """The tokens allowed in `state`: uint32 [ceil(V / 32)], which nobody can write to; none in DEAD."""
        return self._masks.masks[self.row(state)]

    def row(self, state: int) -> int:
        """The number of the row of `table` that holds `mask(state)`."""
        raise NotImplementedError

    def rows(self, states: list[int]) -> NDArray[np.int32]:
        """`row` of several states: int32 [n]; all are valid if `table.evictions` is the same before and after."""
        return np.array([self.row(state) for state in states], np.int32)


class StateTableGuide(TableGuide):
    """One that has a row for each state, made when the state is first asked for."""

    def row(self, state: int) -> int:
        """The number of the row of `table` that holds `mask(state)`."""
        state = self._check(state)
        return self._tables.row_of(self._rows, state, lambda: self._made(state))

    def rows(self, states: list[int]) -> NDArray[np.int32]:
        """`row` of several states, quicker where all have been asked for; see `TableGuide.rows`."""
        found = self._masks.find_all(self._rows, states)
        return super().rows(states) if found is None else found

    def advance(self, state: int, token: int) -> int:
        """The state after `token`, or DEAD; EOS leaves an accepting state as it is."""
        state, token = self._check(state), token_of(token, self._vocabulary.size)
        if state == DEAD or token < 0:
            return DEAD
        if token in self._eos:
            return state if self.is_accepting(state) else DEAD
        return self._advanced(state, token) if self._vocabulary.tokens[token] else DEAD

    def is_accepting(self, state: int) -> bool:
        """Tell whether the text so far is complete."""
        raise NotImplementedError

    def _advanced(self, state: int, token: int) -> int:
        """The state after a token that has bytes, from a state that is not DEAD; for `advance`."""
        raise NotImplementedError

    def _check(self, state: int) -> int:
        """The state, which may be DEAD, as an int. Raises StateError for what is neither."""
        raise NotImplementedError

    def _made(self, state: int) -> Mask:
        """The mask of a state that has no row, DEAD among them: uint32 [ceil(V / 32)]. Takes what locks it needs."""
        raise NotImplementedError
