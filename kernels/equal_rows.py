"""Rows of a table, such as the states of an automaton as they are met: equal ones have one number."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit.aliases import Int, Ints
from .jit.wide import inner_njit

Rows = NDArray[np.integer[Any]]


@inner_njit
def enter_first(rows: Rows, index: Ints) -> None:
    """Enter the first row of a table; index: int32 [2**k], more than twice the rows, -1 where there is none."""
    index[hash_row(rows, 0) & (len(index) - 1)] = 0


@inner_njit
def number_of(rows: Rows, at: Int, index: Ints) -> Int:
    """The number of the row that is equal to that at `at`, which is entered if there is none."""
    mask = len(index) - 1
    slot = hash_row(rows, at) & mask
    while index[slot] >= 0:
        if is_same(rows, index[slot], at):
            return index[slot]
        slot = (slot + 1) & mask
    index[slot] = at
    return at


@inner_njit
def is_same(rows: Rows, one: Int, other: Int) -> bool:
    same = True
    for column in range(rows.shape[1]):
        same = same and rows[one, column] == rows[other, column]
    return same


@inner_njit
def hash_row(rows: Rows, at: Int) -> Int:
    """A hash below 2**32 of a row, which is mostly zeros if it is long; the same without JIT, being below 2**63."""
    value = 0x811C9DC5
    for column in range(rows.shape[1]):
        if rows[at, column] != 0:
            value ^= (int(rows[at, column]) ^ column * 0x9E3779B1) & 0xFFFFFFFF
            value = (value * 0x5BD1E995) & 0xFFFFFFFF
            value ^= value >> 15
    return value
