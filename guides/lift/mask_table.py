"""The table of packed token masks of one vocabulary: rows are computed once and then named by number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.logits.mask import LEAST_LISTED, LISTED, keep_row

Mask = NDArray[np.uint32]
Cache = dict[int, int]

MAX_BYTES = 32 << 20


class MaskTable:
    """uint32 rows [max_rows, words], filled one after the other; then the row that was longest unused is given away.

    A guide keeps its rows in a cache (signature -> row) and adds one with `store(cache, key, mask)`; when the
    row is given away, its key is taken out of that cache. A row just used is safe for the next `max_rows` - 1
    uses of others. `version` counts stored rows and `written` says which version each row is of, so that a mirror on
    a device knows what it lacks. `few` lists the words of rows that have few, see `kernels.logits.mask`; rows that
    are short have no lists. `evictions` counts rows given away, before they are written to: who reads rows without
    a lock has read what they were if it is the same afterwards.
    """

    def __init__(self, words: int, max_bytes: int = MAX_BYTES) -> None:
        self.words = words
        self.max_rows = max(256, max_bytes // (4 * words))
        # Zeros that nobody has written yet take no memory.
        self.rows: NDArray[np.uint32] = np.zeros((self.max_rows, words), np.uint32)
        # The same, for those who get a mask: they cannot write to it.
        read_only = self.rows.data.toreadonly()
        self.masks: NDArray[np.uint32] = np.frombuffer(read_only, np.uint32).reshape(self.rows.shape)
        listed = self.max_rows if words >= LEAST_LISTED else 0
        self.few: NDArray[np.int32] = np.zeros((listed, LISTED), np.int32)
        self.version = 0
        self.written: NDArray[np.int64] = np.zeros(self.max_rows, np.int64)
        self.evictions = 0
        self._words = self.rows.view(np.int32)
        # Who has each row, and under which key. Two lists and not one of pairs, since Python's garbage collector would
        # have to look through these.
        nobody: Cache = {}
        self._caches = [nobody] * self.max_rows
        self._keys = [0] * self.max_rows
        # The rows in use, the one that was longest unused first.
        self._used: OrderedDict[int, None] = OrderedDict()
        # Notes that a row is used now; no method of ours, since a seen mask takes little longer than that call
        self.touch = self._used.move_to_end

    @property
    def is_full(self) -> bool:
        """Tell whether the next row that is stored takes the place of another."""
        return len(self._used) >= self.max_rows

    def find_all(self, cache: Cache, keys: Iterable[Any]) -> NDArray[np.int32] | None:
        """The rows kept under all the keys, which are used now: int32 [n]; None if there is not one for each."""
        try:
            found = np.fromiter(map(cache.__getitem__, keys), np.int32)
        except (KeyError, TypeError):  # of others, whoever asks for one says more
            return None
        if self.is_full:
            for row in set(found.tolist()):
                self.touch(row)
        return found

    def find(self, cache: Cache, key: int) -> int | None:
        """The row kept under cache[key], which is used now; None if there is none. One thread at a time."""
        row = cache.get(key)
        if row is not None:
            self.touch(row)
        return row

    def _longest_unused(self) -> int:
        while True:
            try:
                return next(iter(self._used))
            except RuntimeError:  # a thread without the lock has noted a use in between
                continue

    def store(self, cache: Cache, key: int, mask: Mask) -> int:
        """Keep a mask under cache[key]; the number of its row. One thread at a time."""
        row = len(self._used)
        if row >= self.max_rows:
            row = self._longest_unused()
            owner, known_as = self._caches[row], self._keys[row]
            if owner.get(known_as) == row:
                owner.pop(known_as, None)
            self.evictions += 1
            self.touch(row)
        # After Ctrl-C in between a key may be of the owner before, which has it no more.
        self._caches[row] = cache
        self._keys[row] = key
        self._used[row] = None
        keep_row(self._words, self.few, row, mask)
        self.version += 1
        self.written[row] = self.version
        cache[key] = row
        return row
