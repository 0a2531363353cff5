"""Disjoint sets of characters as JSON strings spell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...automata.charsets import intersect, normalise
from ...graph.graph import Edge
from ...syntax import Ranges
from .spelling import PLAIN, Escapes

PLAIN_ASCII: Ranges = intersect(PLAIN, ((0, 0x7F),))


class Ways(NamedTuple):
    """Which characters lead to which state.

    plain: ASCII characters that stand for themselves, as (first, last, state); others: for a state, the numbers of
    the sets of characters that are spelt with more bytes, if not all of them
    """

    plain: list[tuple[int, int, int]]
    others: list[tuple[int, tuple[int, ...]]]


class Alphabet:
    """Disjoint sets of characters, prepared for being spelt by many nodes."""

    def __init__(self, sets: Sequence[Ranges], escapes: Escapes) -> None:
        self.escapes: Escapes = escapes
        self._sets = sets
        self._unions: dict[tuple[int, ...], Ranges] = {}
        self._plain = sorted(
            (low, high, number) for number, ranges in enumerate(sets) for low, high in intersect(ranges, PLAIN_ASCII)
        )
        self._others = [
            number for number, ranges in enumerate(sets) if escapes == "any" or intersect(ranges, PLAIN_ASCII) != ranges
        ]

    def ways(self, row: Sequence[int]) -> Ways:
        """Which characters lead where, if set number i leads to row[i], or nowhere if that is negative."""
        plain: list[Edge] = []
        end = state = -1
        for low, high, number in self._plain:
            if row[number] == state and low == end + 1:
                if state >= 0:
                    plain[-1] = (plain[-1][0], high, state)
            else:
                state = row[number]
                if state >= 0:
                    plain.append((low, high, state))
            end = high
        others: dict[int, tuple[int, ...]] = {}
        for number in self._others:
            if row[number] >= 0:
                others[row[number]] = (*others.get(row[number], ()), number)
        return Ways(plain, list(others.items()))

    def union(self, numbers: tuple[int, ...]) -> Ranges:
        """The characters in any of these sets."""
        known = self._unions.get(numbers)
        if known is None:
            known = normalise(pair for number in numbers for pair in self._sets[number])
            self._unions[numbers] = known
        return known
