"""An automaton over classes of characters, turned into one over the bytes of UTF-8."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitError
from ..limits import spend
from ..syntax import Table

Segments = list[tuple[int, int, int]]
_CONTINUATION = slice(0x80, 0xC0)
STEPS_PER_ROW = 10_000


def byte_table(
    segments: Segments, transitions: NDArray[np.int32], accepting: NDArray[np.bool_], max_states: int
) -> Table:
    """The same language as a table over bytes.

    segments: inclusive code point ranges and their class; together all characters but surrogates
    transitions: int32 [states, classes], -1 where there is none; every state reaches an accepting one
    accepting: bool [states]
    Raises LimitError if the table has more than `max_states` states.
    """
    return _ByteTable(segments, transitions, max_states).build(transitions, accepting)


class _ByteTable:
    """Shares what lies between the bytes of a character among all states that go on alike.

    Blocks are runs of 64 code points, which share all bytes but the last; pages are runs of 64 blocks.
    """

    def __init__(self, segments: Segments, transitions: NDArray[np.int32], max_states: int) -> None:
        states, classes = transitions.shape
        self.max_states = max_states
        self.states = states
        self.inner: dict[bytes, int] = {}
        class_of = np.full(5 << 18, classes, np.int32)
        for low, high, number in segments:
            class_of[low : high + 1] = number
        self.ascii = class_of[:128]
        self.blocks, block_of, dead = _distinct_blocks(class_of.reshape(-1, 64), classes)
        pages = block_of.reshape(-1, 64)
        short = pages.copy()
        short[0, :32] = dead  # E0 begins no character below U+0800
        self.pages, page_of = _distinct(np.concatenate([short, np.full((1, 64), dead, np.int32)]))
        self.planes = page_of[:-1].reshape(-1, 64).copy()
        self.planes[0, :16] = page_of[-1]  # F0 begins no character below U+10000
        self.two_bytes = block_of[2:32]
        self.three_bytes = page_of[:16]

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
            table[state, _CONTINUATION] = np.frombuffer(key, np.int32)
        accepts = np.zeros(len(table), np.bool_)
        accepts[: self.states] = accepting
        return Table(table, accepts)

    def _row(self, target: NDArray[np.int32]) -> NDArray[np.int32]:
        """Where each first byte leads; `target` gives the next state for each class."""
        row = np.full(256, -1, np.int32)
        row[:128] = target[self.ascii]
        blocks = self._intern(target[self.blocks])
        row[0xC2:0xE0] = blocks[self.two_bytes]
        pages = self._intern(blocks[self.pages])
        row[0xE0:0xF0] = pages[self.three_bytes]
        row[0xF0:0xF5] = self._intern(pages[self.planes])
        return row

    def _intern(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """The states that go on as each of the rows (int32 [n, 64]) says: -1 for a row without a way."""
        numbers = np.full(len(rows), -1, np.int32)
        inner = self.inner
        for index in np.flatnonzero((rows >= 0).any(axis=1)).tolist():
            numbers[index] = inner.setdefault(rows[index].tobytes(), self.states + len(inner))
        if self.states + len(inner) > self.max_states:
            raise too_many_states(self.max_states)
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
    like[:2] = no_class
    mixed = np.flatnonzero((blocks[2:] != blocks[2:, :1]).any(axis=1)) + 2
    rows = np.repeat(np.arange(no_class + 1, dtype=np.int32), 64).reshape(-1, 64)
    if len(mixed):
        distinct, which = _distinct(blocks[mixed])
        like[mixed] = which + no_class + 1
        rows = np.concatenate([rows, distinct])
    used, like = np.unique(like, return_inverse=True)
    return rows[used], like.astype(np.int32), int(np.searchsorted(used, no_class))


def too_many_states(max_states: int) -> LimitError:
    """The error for a pattern whose conditions take too large an automaton."""
    return LimitError(
        f"looking around makes this pattern an automaton of more than {max_states:,} states, which is fixed; "
        "look over fewer characters, or say what may follow without looking around"
    )
