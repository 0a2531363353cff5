"""The table of packed token masks of a vocabulary; masks are referred to by row number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.logits.mask import LISTED, MIN_LISTED, keep_row

Mask = NDArray[np.uint32]
Cache = dict[int, int]

MAX_BYTES = 32 << 20


class MaskTable:
    """uint32 rows [max_rows, words] with LRU eviction.

    A guide keeps a cache (signature -> row) and adds a row with `store(cache, key, mask)`; eviction removes the key
    from that cache. A row just used survives the next `max_rows` - 1 uses of other rows. `version` counts stored rows,
    and `written` has each row's version, so that a mirror on a device knows what to copy. `few` lists the words of rows
    that have few, see `kernels.logits.mask`; short rows have no lists. `evictions` counts evicted rows, before they are
    overwritten: a reader without the lock has read valid rows if it is unchanged afterwards.
    """

    def __init__(self, words: int, max_bytes: int = MAX_BYTES) -> None:
        self.words = words
        self.max_rows = max(256, max_bytes // (4 * words))
        # Pages of zeros that were never written take no memory.
        self.rows: NDArray[np.uint32] = np.zeros((self.max_rows, words), np.uint32)
        # A read-only view for callers
        read_only = self.rows.data.toreadonly()
        self.masks: NDArray[np.uint32] = np.frombuffer(read_only, np.uint32).reshape(self.rows.shape)
        listed = self.max_rows if words >= MIN_LISTED else 0
        self.few: NDArray[np.int32] = np.zeros((listed, LISTED), np.int32)
        self.version = 0
        self.written: NDArray[np.int64] = np.zeros(self.max_rows, np.int64)
        self.evictions = 0
        self._words = self.rows.view(np.int32)
        # Owner and key of each row. Two lists instead of one of pairs, which Python's garbage collector would traverse.
        self._caches: list[Cache] = []
        self._keys: list[int] = []
        # Rows in use, least recently used first
        self._used: OrderedDict[int, None] = OrderedDict()
        # Marks a row as used. A bound method of the dict, since a Python method would double the cost of a cached mask.
        self.touch = self._used.move_to_end

    @property
    def is_full(self) -> bool:
        """True if the next stored row evicts another one."""
        return len(self._used) >= self.max_rows

    def find_all(self, cache: Cache, keys: Iterable[Any]) -> NDArray[np.int32] | None:
        """Return the rows cached under all keys, marked as used: int32 [n]; None if any is missing."""
        try:
            found = np.fromiter(map(cache.__getitem__, keys), np.int32)
        except (KeyError, TypeError):  # a single lookup reports the error better
            return None
        if self.is_full:
            for row in set(found.tolist()):
                self.touch(row)
        return found

    def find(self, cache: Cache, key: int) -> int | None:
        """Return the row cached under a key, marked as used; None if there is none. Not thread-safe."""
        row = cache.get(key)
        if row is not None:
            self.touch(row)
        return row

    def _longest_unused(self) -> int:
        while True:
            try:
                return next(iter(self._used))
            except RuntimeError:  # another thread without the lock has marked a use meanwhile
                continue

    def store(self, cache: Cache, key: int, mask: Mask) -> int:
        """Store a mask under a key of a cache and return its row. Not thread-safe."""
        row = len(self._used)
        if row >= self.max_rows:
            row = self._longest_unused()
            owner, known_as = self._caches[row], self._keys[row]
            if owner.get(known_as) == row:
                owner.pop(known_as, None)
            self.evictions += 1
            self.touch(row)
        # After an interrupt in between, the key may be of the previous owner, whose cache no longer has it.
        self._caches[row : row + 1] = (cache,)
        self._keys[row : row + 1] = (key,)
        self._used[row] = None
        keep_row(self._words, self.few, row, mask)
        self.version += 1
        self.written[row] = self.version
        cache[key] = row
        return row
