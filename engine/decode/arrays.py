"""Arrays to Python."""

from __future__ import annotations

from typing import Any


def as_list(array: Any) -> list[Any]:
    """The numbers of a tensor or NumPy array [n]; torch leaves the type of `tolist` unsaid."""
    return array.tolist()
