"""How likely guesses are to be right, by where they come from: counted, late counts for more."""

from __future__ import annotations

LENGTHS = (1, 2, 3, 4, 6, 9, 17)
"""Guesses of a repeated text are told apart by how many tokens before them agree: so many, or more."""
QUOTED, SPELT, SECOND = range(len(LENGTHS), len(LENGTHS) + 3)
"""Guesses of how a quotation goes on, of how a text without alternative is spelt, and those of a smaller model."""
_FIRST = (0.15, 0.4, 0.5, 0.6, 0.75, 0.85, 0.95, 0.9, 0.8, 0.6)
_WEIGHT = 6.0
"""What is known before counts as so many guesses."""
_KIND = [next(kind for kind in reversed(range(len(LENGTHS))) if LENGTHS[kind] <= max(n, 1)) for n in range(18)]


def kind_of(length: int) -> int:
    """The kind of a guess before which so many tokens agree."""
    return _KIND[length if length < 17 else 17]


class Odds:
    """The share of guesses of each kind that were right.

    before: what is believed while there are few guesses; those of another `Odds`, which then counts all guesses too
    memory: after so many guesses of a kind, old ones begin to count less
    """

    def __init__(self, before: Odds | None = None, memory: int = 256) -> None:
        self._before = before
        self._memory = memory
        self._tried = [0.0] * len(_FIRST)
        self._right = [0.0] * len(_FIRST)

    def note(self, kind: int, is_right: bool) -> None:
        """Count a guess."""
        self._tried[kind] += 1
        self._right[kind] += is_right
        if self._tried[kind] > self._memory:
            self._tried[kind] /= 2
            self._right[kind] /= 2
        if self._before is not None:
            self._before.note(kind, is_right)

    def of(self, kind: int) -> float:
        """How likely a guess of a kind is to be right."""
        before = _FIRST[kind] if self._before is None else self._before.of(kind)
        return (self._right[kind] + _WEIGHT * before) / (self._tried[kind] + _WEIGHT)
