"""Sorting many keys so that it can be broken off: by sample sort, some milliseconds at a time.

A sample of the keys says where they are parted into buckets, each of which is sorted by itself (W. D. Frazer and
A. C. McKellar, "Samplesort", 1970).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 17
"""About how many keys are sorted at a time."""
MOST_BUCKETS, SAMPLES_PER_BUCKET = 255, 64


def argsorted(
    keys: NDArray[Any], look: Callable[[int], None], kind: Literal["quicksort", "stable"] = "quicksort"
) -> NDArray[np.intp]:
    """The places of keys in their order, as `np.argsort(keys, kind=kind)`: intp [n]; equal keys are sorted at once.

    look: is called with 0 every few milliseconds, and may raise
    """
    if len(keys) <= PIECE:
        return np.argsort(keys, kind=kind)
    count = min(MOST_BUCKETS, 2 * len(keys) // PIECE)
    sample = np.sort(keys[:: max(1, len(keys) // (SAMPLES_PER_BUCKET * count))])
    pivots = np.unique(sample[SAMPLES_PER_BUCKET // 2 :: SAMPLES_PER_BUCKET][:count])
    bucket = np.empty(len(keys), np.uint8)
    for first in range(0, len(keys), PIECE):
        look(0)
        bucket[first : first + PIECE] = np.searchsorted(pivots, keys[first : first + PIECE], "right")
    order = np.argsort(bucket, kind="stable")  # by radix
    ends = np.cumsum(np.bincount(bucket))
    for first, end in zip((0, *ends[:-1].tolist()), ends.tolist(), strict=True):
        look(0)
        places = order[first:end]
        order[first:end] = places[np.argsort(keys[places], kind=kind)]
    return order
