"""An automaton over classes of characters, turned into one over the bytes of UTF-8."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitError
from ..graph.utf8 import CONTINUATION, FIRST_OF_LENGTH, LEADS
from ..limits import spend
from ..syntax import Table
from .atoms import Segments

Refusal = Callable[[int], LimitError]

_ASCII = slice(0, CONTINUATION.start)
_TWO, _THREE, _FOUR = (slice(lead.first, lead.last + 1) for lead in LEADS)
# The number of the first block of two and of three bytes, and of the first page of four
_BLOCK_OF_TWO, _BLOCK_OF_THREE = FIRST_OF_LENGTH[1] >> 6, FIRST_OF_LENGTH[2] >> 6
_PAGE_OF_FOUR = FIRST_OF_LENGTH[3] >> 12
STEPS_PER_ROW = 10_000


def byte_table(
    segments: Segments, transitions: NDArray[np.int32], accepting: NDArray[np.bool_], most: int, refusal: Refusal
) -> Table:
    """The same language as a table over bytes.

    segments: inclusive code point ranges and their class; other characters lead nowhere
    transitions: int32 [states, classes], -1 where there is none; every state reaches an accepting one
    accepting: bool [states]
    Raises `refusal(most)` if the table has more than `most` states.
    """
    return _ByteTable(segments, transitions, most, refusal).build(transitions, accepting)


class _ByteTable:
    """Shares what lies between the bytes of a character among all states that go on alike.

    Blocks are runs of 64 code points, which share all bytes but the last; pages are runs of 64 blocks.
    """

    def __init__(self, segments: Segments, transitions: NDArray[np.int32], most: int, refusal: Refusal) -> None:
        states, classes = transitions.shape
        self.most = most
        self.refusal = refusal
        self.states = states
        self.inner: dict[bytes, int] = {}
        class_of = np.full(5 << 18, classes, np.int32)
        for low, high, number in segments:
            class_of[low : high + 1] = number
        self.ascii = class_of[_ASCII]
        self.blocks, block_of, dead = _distinct_blocks(class_of.reshape(-1, 64), classes)
        pages = block_of.reshape(-1, 64)
        short = pages.copy()
        short[0, :_BLOCK_OF_THREE] = dead  # the first lead byte of three begins no character of fewer
        self.pages, page_of = _distinct(np.concatenate([short, np.full((1, 64), dead, np.int32)]))
        self.planes = page_of[:-1].reshape(-1, 64).copy()
        self.planes[0, :_PAGE_OF_FOUR] = page_of[-1]  # likewise that of four
        self.two_bytes = block_of[_BLOCK_OF_TWO:_BLOCK_OF_THREE]
        self.three_bytes = page_of[:_PAGE_OF_FOUR]

    def build(self, transitions: NDArray[np.int32], accepting: NDArray[np.bool_]) -> Table:
        """The whole table; character states keep their numbers, states inside a character follow."""
        known: dict[bytes, NDArray[np.int32]] = {}
        rows: list[NDArray[np.int32]] = []
        for row in transitions:
            key = row.tobytes()
            if key not in known:
                spend(STEPS_PER_ROW + 20 * (len(self.blocks) + len(self.pages)))
                known[key] = self._row(np.append(row, np.int32(-1)))
            rows.append(known[key])
        table = np.full((self.states + len(self.inner), 256), -1, np.int32)
        table[: self.states] = rows
        for key, state in self.inner.items():
            table[state, CONTINUATION.start : CONTINUATION.stop] = np.frombuffer(key, np.int32)
        accepts = np.zeros(len(table), np.bool_)
        accepts[: self.states] = accepting
        return Table(table, accepts)

    def _row(self, target: NDArray[np.int32]) -> NDArray[np.int32]:
        """The state after each first byte; `target` gives the next state for each class."""
        row = np.full(256, -1, np.int32)
        row[_ASCII] = target[self.ascii]
        blocks = self._intern(target[self.blocks])
        row[_TWO] = blocks[self.two_bytes]
        pages = self._intern(blocks[self.pages])
        row[_THREE] = pages[self.three_bytes]
        row[_FOUR] = self._intern(pages[self.planes])
        return row

    def _intern(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """The states that go on as each of the rows (int32 [n, 64]) says: -1 for a row without a way."""
        numbers = np.full(len(rows), -1, np.int32)
        inner = self.inner
        for index in np.flatnonzero((rows >= 0).any(axis=1)).tolist():
            numbers[index] = inner.setdefault(rows[index].tobytes(), self.states + len(inner))
        if self.states + len(inner) > self.most:
            raise self.refusal(self.most)
        return numbers


def _distinct(rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(The distinct rows, for each row the number of its like)."""
    numbers: dict[bytes, int] = {}
    which = np.fromiter((numbers.setdefault(row.tobytes(), len(numbers)) for row in rows), np.int32, len(rows))
    return np.stack([np.frombuffer(key, np.int32) for key in numbers]), which


def _distinct_blocks(blocks: NDArray[np.int32], no_class: int) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """(The distinct blocks, for each block the number of its like, the number of the one without characters).

    The ASCII blocks count as without characters, since no byte leads to them.
    """
    like = blocks[:, 0].copy()
    like[:_BLOCK_OF_TWO] = no_class
    longer = blocks[_BLOCK_OF_TWO:]
    mixed = np.flatnonzero((longer != longer[:, :1]).any(axis=1)) + _BLOCK_OF_TWO
    rows = np.repeat(np.arange(no_class + 1, dtype=np.int32), 64).reshape(-1, 64)
    if len(mixed):
        distinct, which = _distinct(blocks[mixed])
        like[mixed] = which + no_class + 1
        rows = np.concatenate([rows, distinct])
    used, like = np.unique(like, return_inverse=True)
    return rows[used], like.astype(np.int32), int(np.searchsorted(used, no_class))
