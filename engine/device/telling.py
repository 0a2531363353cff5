"""What launches are told of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..decode.row import Row
from ..search import Sample
from .backend import MIN_P, TEMPERATURE, TOP_K, TOP_P


def always_told(row: Row) -> tuple[int, ...]:
    """What every launch is told of a row, from ORIGIN on."""
    low, high = np.array([row.request.key], np.uint64).view(np.int32).tolist()
    return len(row.request.start.prompt), 0, low, high


def greedily(size: int, *lanes: int) -> NDArray[np.float64]:
    """The choice of the most likely of `size` tokens, float64 [4, *lanes], for which nothing is left out."""
    choices = np.zeros((4, *lanes))
    choices[TOP_K], choices[TOP_P] = size, 1
    return choices


def tell(choice: Any, search: Sample) -> None:
    """How a row chooses, but for the draw."""
    choice[TEMPERATURE], choice[TOP_P], choice[MIN_P] = search.temperature, search.top_p, search.min_p
    if search.top_k is not None:
        choice[TOP_K] = min(search.top_k, choice[TOP_K])


def padded(count: int) -> int:
    """The next power of 2."""
    return 1 << (count - 1).bit_length()


def bucket(blocks: int) -> int:
    """Room for so many blocks of a text: 16, 64, 256, ..."""
    room = 16
    while room < blocks:
        room *= 4
    return room
