"""Lanes that ride: all is known where they go, and what they choose is noted in arrays until a row is told."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...kernels.lanes.layout import AFTER, FREE, HEADER, RESUME, START, TOKEN, WIDTH
from ..decode.randomness import uniforms
from ..decode.row import Row
from ..memory.pool import BlockPool
from ..memory.tables import BLOCK
from .backend import UNIFORM
from .records import Records

Numbers = NDArray[np.intp]
_NOTED = 64
"""Tokens of a lane that are noted before its row is told of them."""


class Riders:
    """Those of `count` lanes that ride, by their numbers. Nothing is asked of a guide, or written to a row, for a token
    that leads from one known record to another with plenty left: a launch costs no Python for each.

    special: bool [V], the tokens that end a text
    is_riding: bool [count]; flying: int32 [count], launches under way that read for a lane
    """

    def __init__(self, count: int, pool: BlockPool, records: Records, special: NDArray[np.bool_]) -> None:
        self._pool = pool
        self._records = records
        self._special = special
        self.is_riding = np.zeros(count, np.bool_)
        self.flying = np.zeros(count, np.int32)
        self._rows: dict[int, Row] = {}
        self._left = np.zeros(count, np.int32)
        self._ends = np.zeros(count, np.int32)
        self._room = np.zeros(count, np.int32)
        self._blocks = np.zeros((count, 16), np.int32)
        self._last = np.zeros(count, np.int32)
        self._tokens = np.zeros((count, _NOTED), np.int32)
        self._made = np.zeros(count, np.int32)
        self._keys = np.zeros(count, np.uint64)
        self._drawn = np.zeros(count, np.uint64)
        self._choices = np.zeros((5, count))

    def __len__(self) -> int:
        return len(self._rows)

    def mount(self, number: int, row: Row, flying: int, choices: NDArray[np.float64]) -> None:
        """Let a lane ride whose last choice leads to a known record, and is being read by launches under way.

        choices: float64 [5], how it chooses
        """
        self._rows[number] = row
        self.is_riding[number] = True
        self.flying[number] = flying
        self._left[number] = row.left
        self._ends[number] = len(row.table.tokens) + flying
        self._keys[number], self._drawn[number] = row.request.key, len(row.tokens)
        self._choices[:, number] = choices
        self._made[number] = 0
        self._lay(number, row)

    def dismount(self, number: int, tokens: list[bytes | None]) -> tuple[int | None, int]:
        """Tell the row what was noted; returns the record to which it leads, None if nothing was, and how many launches
        under way read for it.

        tokens: the vocabulary's
        """
        row, count = self._rows.pop(number), int(self._made[number])
        self.is_riding[number] = False
        flying = int(self.flying[number])
        if not count:
            return None, flying
        last = int(self._last[number])
        made: list[int] = self._tokens[number, :count].tolist()
        read = row.pending + made[:-1]
        self._pool.recognise(row.table, read)
        row.table.tokens += read
        row.pending = made[-1:]
        row.steps += count
        if last != FREE:
            row.state = self._records.state(last) + row.request.start.tail
        row.text += b"".join([tokens[token] or b"" for token in made])
        row.tokens += made
        return last, flying

    def ready(self) -> Numbers:
        """The riders for whose next token there is room."""
        numbers = np.flatnonzero(self.is_riding)
        full = numbers[self._ends[numbers] >= self._room[numbers]]
        if not len(full):
            return numbers
        for number in full.tolist():
            row = self._rows[number]
            if self._pool.extend(row.table, int(self._ends[number]) + 1):
                self._lay(number, row)
        return numbers[self._ends[numbers] < self._room[numbers]]

    def _lay(self, number: int, row: Row) -> None:
        """Note the blocks of a row."""
        blocks = row.table.blocks
        if len(blocks) > self._blocks.shape[1]:
            wider = np.zeros((len(self._blocks), 4 * len(blocks)), np.int32)
            wider[:, : self._blocks.shape[1]] = self._blocks
            self._blocks = wider
        self._blocks[number, : len(blocks)] = blocks
        self._room[number] = len(blocks) * BLOCK

    def longest(self, numbers: Numbers) -> int:
        """The most blocks of their texts."""
        return int(self._room[numbers].max(initial=0)) // BLOCK

    def tell(self, numbers: Numbers, rows: NDArray[np.int32], width: int, choices: NDArray[np.float64]) -> None:
        """Write what a launch is told of riders, which reads one more token of each from now on.

        rows, choices: of all lanes, as `Launch` has them
        """
        rows[numbers, RESUME] = rows[numbers, WIDTH] = 1
        rows[numbers, START] = self._ends[numbers]
        most = min(rows.shape[1] - HEADER - width, self._blocks.shape[1])
        rows[numbers, HEADER + width : HEADER + width + most] = self._blocks[numbers, :most]
        choices[:, numbers] = self._choices[:, numbers]
        # The token before the one that is chosen is under way.
        steps = self._drawn[numbers] + self._made[numbers].astype(np.uint64) + np.uint64(1)
        choices[UNIFORM, numbers] = uniforms(self._keys[numbers], steps)
        self._ends[numbers] += 1
        self.flying[numbers] += 1

    def take(self, numbers: Numbers, answer: NDArray[np.int32]) -> tuple[int, list[int]]:
        """Note what a launch chose for riders: for how many, and the numbers of those that have to be looked at."""
        tokens, after = answer[numbers, TOKEN], answer[numbers, AFTER]
        left = self._left[numbers] - 1
        made = self._made[numbers]
        goes_on = (tokens >= 0) & (after >= 0) & ~self._special[np.maximum(tokens, 0)]
        goes_on &= (self._records.enough[np.maximum(after, 0)] + 2 <= left) & (made < _NOTED)
        goes_on &= self.flying[numbers] > 1
        good = numbers[goes_on]
        self._tokens[good, made[goes_on]] = tokens[goes_on]
        self._last[good] = after[goes_on]
        self._left[good] = left[goes_on]
        self._made[good] += 1
        self.flying[good] -= 1
        return len(good), numbers[~goes_on].tolist()
