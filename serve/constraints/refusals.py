"""What is remembered by what was asked for: how much that is itself, and the errors of what cannot be made."""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from typing import Any, cast

from ...errors import TrellmError

MOST_BYTES = 16 << 20
COPIES = 3
"""So often the text of a constraint is there: in its key, and in what was made of it, or twice in an error.
A schema of 3.9 MB that says nothing measured 8 MB beside what its guide counts, a pattern's error of as much 11."""


def key_bytes(key: Hashable) -> int:
    """About how many bytes the texts of a key come to, wherever it holds them."""
    left: list[Any] = [key]
    found = 0
    while left:
        each = left.pop()
        if isinstance(each, str):
            found += sys.getsizeof(each)
        elif isinstance(each, tuple | frozenset):
            left += cast("tuple[Any, ...]", each)
        elif is_dataclass(each):
            left += [getattr(each, field.name) for field in fields(each)]
    return COPIES * found


class Refusals:
    """The errors of what was asked for and cannot be, those of longest ago forgotten.

    most: how many bytes they may come to, with what was asked for
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._held = 0
        self._found: OrderedDict[Hashable, tuple[TrellmError, int]] = OrderedDict()

    def add(self, key: Hashable, error: TrellmError) -> None:
        """Remember an error, but not where it came from: frames hold whole requests."""
        size = key_bytes(key) + sys.getsizeof(str(error))
        self._held += size - self._found.pop(key, (error, 0))[1]
        self._found[key] = copy.copy(error), size
        while self._held > self._most:
            self._held -= self._found.popitem(last=False)[1][1]

    def check(self, key: Hashable) -> None:
        """Raise the error of what was refused before."""
        found = self._found.get(key)
        if found is not None:
            raise copy.copy(found[0])
