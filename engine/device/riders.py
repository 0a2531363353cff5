"""Lanes that ride: all is known where they go, and what they choose is noted in arrays until a row is told."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...kernels.lanes.layout import COUNT, FREE, HEADER, ORIGIN, RESUME, TOKENS, WIDTH, room_of
from ..decode.row import Row
from ..memory.pool import BlockPool
from ..memory.tables import BLOCK
from .guesses import Guesses
from .parts import Guessed, Lane, Numbers
from .records import Records

_NOTED = 64
"""Tokens of a lane that are noted before its row is told of them."""


class Riders:
    """Those of `count` lanes that ride, by their numbers. Nothing is asked of a guide, or written to a row, for a token
    that leads from one known record to another with plenty left: a launch costs no Python for each.

    special: bool [V], the tokens that end a text; guesses: of those that follow, where lanes are few
    is_riding: bool [count]; flying, sent: int32 [count], launches under way that read for a lane, and how many tokens
        these read at most
    """

    def __init__(
        self, count: int, pool: BlockPool, records: Records, special: NDArray[np.bool_], guesses: Guesses | None = None
    ) -> None:
        self._pool = pool
        self._guesses = guesses
        self._records = records
        self._special = special
        self.is_riding = np.zeros(count, np.bool_)
        self.flying = np.zeros(count, np.int32)
        self.sent = np.zeros(count, np.int32)
        self._rows: dict[int, Row] = {}
        self._left = np.zeros(count, np.int32)
        self._ends = np.zeros(count, np.int32)
        self._room = np.zeros(count, np.int32)
        self._blocks = np.zeros((count, 16), np.int32)
        self._last = np.zeros(count, np.int32)
        self._tokens = np.zeros((count, _NOTED), np.int32)
        self._made = np.zeros(count, np.int32)
        self._steps = np.zeros(count, np.int32)
        self._told = np.zeros((count, HEADER - ORIGIN), np.int32)
        self._choices = np.zeros((4, count))

    def __len__(self) -> int:
        return len(self._rows)

    def mount(self, lane: Lane, choices: NDArray[np.float64]) -> None:
        """Let a lane ride whose last choice leads to a known record, and is being read by launches under way.

        choices: float64 [4], how it chooses
        """
        number, row = lane.number, lane.row
        self._rows[number] = row
        self.is_riding[number] = True
        self.flying[number], self.sent[number] = lane.flying, lane.sent
        self._left[number] = row.left
        self._ends[number] = len(row.table.tokens) + lane.sent
        self._told[number], self._choices[:, number] = lane.told, choices
        self._last[number], self._made[number], self._steps[number] = lane.record, 0, 0
        self._lay(number, row)

    def dismount(self, lane: Lane, tokens: list[bytes | None]) -> bool:
        """Tell the row what was noted, if anything, which is returned.

        tokens: the vocabulary's
        """
        number = lane.number
        row, count = self._rows.pop(number), int(self._made[number])
        self.is_riding[number] = False
        lane.flying, lane.sent = int(self.flying[number]), int(self.sent[number])
        if not count:
            return False
        last = lane.record = int(self._last[number])
        made: list[int] = self._tokens[number, :count].tolist()
        read = row.pending + made[:-1]
        self._pool.recognise(row.table, read)
        row.table.tokens += read
        row.pending = made[-1:]
        row.steps += int(self._steps[number])
        if last != FREE:
            row.state = self._records.key(last).state + row.request.start.tail
        row.text += b"".join([tokens[token] or b"" for token in made])
        row.tokens += made
        return True

    @property
    def is_near(self) -> bool:
        """Whether a token is forced for one of them, or may soon be, as far as its last record is known."""
        return bool(self._records.near[self._last[self.is_riding]].any())

    def guessed(self, most: int) -> dict[int, Guessed]:
        """How their texts are likely to go on, with up to so many tokens."""
        found: dict[int, Guessed] = {}
        if self._guesses is not None:
            for number, row in self._rows.items():
                noted: list[int] = self._tokens[number, : self._made[number]].tolist()
                tokens = self._guesses.after(row, noted, int(self._last[number]), most)
                if tokens:
                    found[number] = Guessed(len(row.table.tokens) + len(row.pending) + len(noted) - 1, tokens)
        return found

    def ready(self, width: int) -> tuple[Numbers, NDArray[np.int32]]:
        """The riders for whose next token there is room, and how many of `width` tokens each may read at most."""
        numbers = np.flatnonzero(self.is_riding)
        # All tokens of a text are read but the last.
        limits = np.minimum(width, self._left[numbers] - self.sent[numbers])
        for place in np.flatnonzero(self._ends[numbers] + limits > self._room[numbers]).tolist():
            number = int(numbers[place])
            row = self._rows[number]
            self._pool.extend(row.table, int(self._ends[number] + limits[place]))
            self._lay(number, row)
        limits = np.minimum(limits, self._room[numbers] - self._ends[numbers])
        return numbers[limits > 0], limits[limits > 0]

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

    def tell(
        self,
        numbers: Numbers,
        limits: NDArray[np.int32],
        rows: NDArray[np.int32],
        width: int,
        choices: NDArray[np.float64],
    ) -> None:
        """Write what a launch is told of riders, which reads so many more tokens of each at most.

        rows, choices: of all lanes, as `Launch` has them
        """
        rows[numbers, RESUME] = 1
        rows[numbers, WIDTH] = limits
        rows[numbers, ORIGIN:HEADER] = self._told[numbers]
        first = HEADER + room_of(width)
        most = min(rows.shape[1] - first, self._blocks.shape[1])
        rows[numbers, first : first + most] = self._blocks[numbers, :most]
        choices[:, numbers] = self._choices[:, numbers]
        self._ends[numbers] += limits
        self.sent[numbers] += limits
        self.flying[numbers] += 1

    def take(self, numbers: Numbers, limits: NDArray[np.int32], answer: NDArray[np.int32]) -> tuple[int, Numbers]:
        """Note what a launch chose for riders: for how many tokens, and the places of those that have to be looked at.

        limits: how many tokens it was to read of each at most
        """
        width = (answer.shape[1] - TOKENS) // 2
        counts, tokens, after = answer[numbers, COUNT], *np.split(answer[numbers, TOKENS:], 2, axis=1)
        made, behind = self._made[numbers], np.arange(width, dtype=np.int32)
        left = self._left[numbers, None] - 1 - behind
        fine = (tokens >= 0) & (after >= 0) & ~self._special[np.maximum(tokens, 0)]
        fine &= self._records.enough[np.maximum(after, 0)] + 2 <= left
        goes_on = (fine | (behind >= counts[:, None])).all(1) & (counts > 0)
        goes_on &= (made + counts <= _NOTED) & (self.flying[numbers] > 1)
        good, counts = numbers[goes_on], counts[goes_on]
        for place in range(width):
            some = counts > place
            self._tokens[good[some], made[goes_on][some] + place] = tokens[goes_on, place][some]
        if self._guesses is not None:
            before = np.column_stack((self._last[good], after[goes_on, :-1]))
            is_chosen = ~self._records.is_forced[before]
            for number, count, *told in zip(good.tolist(), counts, tokens[goes_on].tolist(), is_chosen, strict=True):
                self._guesses.learn(self._rows[number], *(each[:count] for each in told))
        self._last[good] = after[goes_on, counts - 1]
        self._left[good] -= counts
        self._made[good] += counts
        self._steps[good] += 1
        self._ends[good] -= limits[goes_on] - counts
        self.sent[good] -= limits[goes_on]
        self.flying[good] -= 1
        return int(counts.sum()), np.flatnonzero(~goes_on)
