"""Which rows may go on by themselves, and what launches are told of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..decode.row import Request, Row
from ..memory.tables import BLOCK
from ..search import Greedy, Sample
from .backend import MIN_P, TEMPERATURE, TOP_K, TOP_P
from .records import Key

_SEARCHES = (Greedy, Sample)
"""Those that lanes know; a caller's own, also one derived of these, may choose otherwise."""


def is_plain(row: Row) -> bool:
    """Whether nothing is asked of a row but its tokens, one after the other."""
    request: Request = row.request
    return (
        not (request.scores or request.diagnostics)
        and request.is_plain
        and isinstance(request.draft, bool)
        and type(request.search) in _SEARCHES
        and 0 < len(row.pending) <= BLOCK
        and (len(row.pending) == 1 or bool(row.tokens))
    )


def key_of(row: Row, is_closing: bool) -> Key | None:
    """The state that a row is in; None if it has no constraint."""
    guide_cache = row.guide_cache
    if guide_cache is None:
        return None
    return Key(*guide_cache.beyond(row.state), row.request.stop_ids, row.left if is_closing else None)


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
