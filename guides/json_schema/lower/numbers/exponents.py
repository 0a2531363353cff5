"""Sets of exponents as digits: `+05` and `5` and `005` are the same exponent."""

from __future__ import annotations

from typing import NamedTuple

from ....kept import kept, kept_growing

Ranges = tuple[tuple[int, int | None], ...]
"""Sorted disjoint ranges of natural numbers; None: without end."""


class Exponents(NamedTuple):
    """The whole numbers from `low` to `high` but for `holes`; None: without end."""

    low: int | None = None
    high: int | None = None
    holes: tuple[int, ...] = ()

    def natural(self) -> Ranges:
        """The members from 0 up."""
        low = 0 if self.low is None else max(self.low, 0)
        return _without(low, self.high, sorted(hole for hole in self.holes if hole >= 0))

    def mirrored(self) -> Exponents:
        """The same numbers with their signs changed."""
        return Exponents(
            None if self.high is None else -self.high,
            None if self.low is None else -self.low,
            tuple(-hole for hole in self.holes),
        )


def _without(low: int, high: int | None, holes: list[int]) -> Ranges:
    ranges: list[tuple[int, int | None]] = []
    for hole in holes:
        if hole < low or (high is not None and hole > high):
            continue
        if hole > low:
            ranges.append((low, hole - 1))
        low = hole + 1
    if high is None or low <= high:
        ranges.append((low, high))
    return tuple(ranges)


class Digits(NamedTuple):
    """Digits of an exponent that has to be in `ranges`: `value` stands for what has been read, -1 for nothing."""

    ranges: Ranges
    value: int = -1


def is_member(state: Digits) -> bool:
    """Whether the exponent read so far is in the ranges."""
    return state.value >= 0 and _contains(state.ranges, state.value)


def _contains(ranges: Ranges, value: int) -> bool:
    return any(low <= value and (high is None or value <= high) for low, high in ranges)


@kept(4096, 16 << 20)
def digit_edges(state: Digits) -> tuple[tuple[int, int, Digits], ...]:
    """What digits may follow, as (first digit, last digit, state after them)."""
    edges: list[tuple[int, int, Digits]] = []
    for digit in range(10):
        value = _representative(state.ranges, max(state.value, 0) * 10 + digit)
        if value is None:
            continue
        if edges and edges[-1][1] == digit - 1 and edges[-1][2].value == value:
            edges[-1] = (edges[-1][0], digit, edges[-1][2])
        else:
            edges.append((digit, digit, Digits(state.ranges, value)))
    return tuple(edges)


def _representative(ranges: Ranges, value: int) -> int | None:
    """A number with the same future as `value`, the first that was met; None if it has none."""
    future = _future(ranges, value)
    return _met(ranges).setdefault(future, value) if any(future) else None


def _held_bytes(met: dict[tuple[Ranges, ...], int]) -> int:
    return 2000 * len(met)


@kept_growing(1024, 16 << 20, _held_bytes)
def _met(ranges: Ranges) -> dict[tuple[Ranges, ...], int]:
    """The numbers met in some ranges, by their futures."""
    return {}


def _future(ranges: Ranges, value: int) -> tuple[Ranges, ...]:
    """Which numbers in the ranges begin with `value`: for every count of further digits, the digits."""
    if value == 0:
        return (ranges,)
    largest = max((high or low for low, high in ranges), default=-1)
    future: list[Ranges] = []
    low, width = value, 1
    while True:
        high = low + width - 1
        inside = tuple(
            (max(a, low) - low, (high if b is None else min(b, high)) - low)
            for a, b in ranges
            if a <= high and (b is None or b >= low)
        )
        future.append(inside)
        if low > largest:
            return tuple(future)
        low, width = low * 10, width * 10
