"""Slots: what a model remembers of each row of the batch, each row at its own length."""

from __future__ import annotations

from collections.abc import Sequence

_BLOCK = 16  # tokens, so that few copies do for many rows


class Slots:
    """Rows 0 ... len(lengths) - 1 of a cache, in the order of the batch; subclasses hold what is remembered.

    Up to `rows` rows of up to `capacity` tokens. Rows join at the end with length 0. Leaving, forking and
    reordering are all `arrange`.
    """

    def __init__(self, rows: int, capacity: int) -> None:
        self.rows = rows
        self.capacity = capacity
        self.lengths: list[int] = []

    def join(self, count: int) -> None:
        """Add `count` empty rows behind the last."""
        assert len(self.lengths) + count <= self.rows
        self.lengths.extend([0] * count)

    def arrange(self, parents: Sequence[int], shared: Sequence[int] | None = None) -> None:
        """Make new row i what old row `parents[i]` was; rows that stay where they are cost nothing.

        shared: with how many tokens old row i begins as old row `parents[i]` does; they need not be copied
        """
        assert len(parents) <= self.rows
        moved = [row for row, parent in enumerate(parents) if row != parent]
        apart = shared is not None and not {parents[row] for row in moved}.intersection(moved)
        begins = {row: shared[row] // _BLOCK * _BLOCK if shared is not None and apart else 0 for row in moved}
        for begin in sorted(set(begins.values())):
            rows = [row for row in moved if begins[row] == begin]
            sources = [parents[row] for row in rows]
            self.copy(sources, rows, begin, max(self.lengths[row] for row in sources))
        self.lengths = [self.lengths[parent] for parent in parents]

    def copy(self, sources: Sequence[int], targets: Sequence[int], begin: int, end: int) -> None:
        """Copy tokens `begin` to `end` of rows `sources` to rows `targets`, all at once."""
        raise NotImplementedError


class TokenSlots(Slots):
    """Remembers only the token ids: for models that compute every step from the whole text."""

    def __init__(self, rows: int, capacity: int) -> None:
        super().__init__(rows, capacity)
        self.tokens: list[list[int]] = [[] for _ in range(rows)]

    def join(self, count: int) -> None:
        first = len(self.lengths)
        super().join(count)
        for row in range(first, first + count):
            self.tokens[row] = []

    def append(self, row: int, chunk: Sequence[int]) -> None:
        """Add the tokens of `chunk` to the row."""
        self.tokens[row].extend(chunk)
        self.lengths[row] += len(chunk)

    def copy(self, sources: Sequence[int], targets: Sequence[int], begin: int, end: int) -> None:
        copies = [self.tokens[row].copy() for row in sources]
        for row, tokens in zip(targets, copies, strict=True):
            self.tokens[row] = tokens


def without(rows: int, leaving: Sequence[int]) -> list[int]:
    """For `arrange`: who sits where once some rows have left; the last rows fill the holes."""
    gone = set(leaving)
    kept = rows - len(gone)
    movers = [row for row in range(kept, rows) if row not in gone]
    return [movers.pop() if row in gone else row for row in range(kept)]
