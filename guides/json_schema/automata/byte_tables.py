"""Byte tables read character by character."""

from __future__ import annotations

from functools import lru_cache

from ...regex.charsets import normalize
from ...syntax import Ranges, Table

FORMS = ((0xC2, 0xDF, 0xC0, 1), (0xE0, 0xEF, 0xE0, 2), (0xF0, 0xF4, 0xF0, 3))
"""Lead bytes of UTF-8: first, last, what is subtracted, how many bytes follow."""

Runs = list[tuple[int, int]]


@lru_cache(maxsize=64)
def character_rows(table: Table) -> dict[int, dict[int, Ranges]]:
    """For each state that characters lead to from the start: the characters that lead to each further state."""
    inner: dict[tuple[int, int], Runs] = {}
    rows: dict[int, dict[int, Ranges]] = {}
    queue = [table.start]
    for state in queue:
        if state not in rows:
            rows[state] = _row(table, state, inner)
            queue += rows[state]
    return rows


def _row(table: Table, state: int, inner: dict[tuple[int, int], Runs]) -> dict[int, Ranges]:
    transitions = table.transitions[state].tolist()
    pairs: dict[int, list[tuple[int, int]]] = {}
    for byte, target in enumerate(transitions[:0x80]):
        if target >= 0:
            pairs.setdefault(target, []).append((byte, byte))
    for first, last, offset, follow in FORMS:
        width = 64**follow
        for lead in range(first, last + 1):
            if transitions[lead] < 0:
                continue
            base = (lead - offset) * width
            runs = _runs(table, transitions[lead], follow, inner)
            ends = [*(begin for begin, _ in runs[1:]), width]
            for (begin, target), end in zip(runs, ends, strict=True):
                if target >= 0:
                    pairs.setdefault(target, []).append((base + begin, base + end - 1))
    return {target: normalize(found) for target, found in pairs.items()}


def _runs(table: Table, state: int, follow: int, inner: dict[tuple[int, int], Runs]) -> Runs:
    """Where the next `follow` bytes lead: offsets at which the target changes, with it."""
    known = inner.get((state, follow))
    if known is None:
        known = inner[state, follow] = []
        width = 64 ** (follow - 1)
        for index, target in enumerate(table.transitions[state, 0x80:0xC0].tolist()):
            below = [(0, target)] if follow == 1 or target < 0 else _runs(table, target, follow - 1, inner)
            for begin, end in below:
                if not known or known[-1][1] != end:
                    known.append((index * width + begin, end))
    return known
