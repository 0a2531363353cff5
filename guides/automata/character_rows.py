"""Rows over bytes read character by character."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..graph.utf8 import CONTINUATION, LEADS
from ..kept import kept_growing
from ..syntax import Ranges, Table
from .charsets import normalise

Row = Callable[[int], Sequence[int]]
"""The state after each byte, below 0 where there is none, of a state."""
Runs = list[tuple[int, int]]


class CharacterRows:
    """The characters that lead from state to state of an automaton over bytes.

    row: the state after each byte, below 0 where there is none
    """

    def __init__(self, row: Row) -> None:
        self._row = row
        self._held = 0
        self._known: dict[int, dict[int, Ranges]] = {}
        self._inside: dict[tuple[int, int], Runs] = {}

    @property
    def held_bytes(self) -> int:
        """About how much memory is taken by what was asked for so far."""
        return self._held

    def of(self, state: int) -> dict[int, Ranges]:
        """The characters that lead from a state between characters to each other state."""
        known = self._known.get(state)
        if known is None:
            known = self._known[state] = {target: normalise(pairs) for target, pairs in self._pairs(state).items()}
            self._held += 500 + 200 * sum(map(len, known.values()))
        return known

    def _pairs(self, state: int) -> dict[int, Runs]:
        targets = self._row(state)
        pairs: dict[int, Runs] = {}
        for byte, target in enumerate(targets[: CONTINUATION.start]):
            if target >= 0:
                pairs.setdefault(target, []).append((byte, byte))
        for lead in LEADS:
            width = 64**lead.follow
            for byte in range(lead.first, lead.last + 1):
                if targets[byte] < 0:
                    continue
                base = (byte - lead.offset) * width
                runs = self._runs(targets[byte], lead.follow)
                ends = [*(begin for begin, _ in runs[1:]), width]
                for (begin, target), end in zip(runs, ends, strict=True):
                    if target >= 0:
                        pairs.setdefault(target, []).append((base + begin, base + end - 1))
        return pairs

    def _runs(self, state: int, follow: int) -> Runs:
        """The states after the next `follow` bytes: offsets at which the target changes, with it."""
        known = self._inside.get((state, follow))
        if known is None:
            known = self._inside[state, follow] = []
            width = 64 ** (follow - 1)
            for index, target in enumerate(self._row(state)[CONTINUATION.start : CONTINUATION.stop]):
                below = [(0, target)] if follow == 1 or target < 0 else self._runs(target, follow - 1)
                for begin, end in below:
                    if not known or known[-1][1] != end:
                        known.append((index * width + begin, end))
        return known


@kept_growing(64, 64 << 20)
def rows_of(table: Table) -> CharacterRows:
    """The characters that lead from state to state of a table."""

    def row(state: int) -> list[int]:
        return table.transitions[state].tolist()

    return CharacterRows(row)


def character_rows(table: Table) -> dict[int, dict[int, Ranges]]:
    """For each state that characters lead to from the start: the characters that lead to each further state."""
    rows: dict[int, dict[int, Ranges]] = {}
    queue = [table.start]
    for state in queue:
        if state not in rows:
            rows[state] = rows_of(table).of(state)
            queue += rows[state]
    return rows
