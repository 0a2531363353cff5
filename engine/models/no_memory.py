"""The memory of models that compute every step from the whole text."""

from __future__ import annotations

from collections.abc import Sequence


class NoMemory:
    """Nothing: the token ids are in the tables."""

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """There is nothing to copy."""

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        """There is nothing to copy."""
