"""Why a text ends, and stop strings: where it ends before one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ..errors import OptionError

FinishReason = Literal["complete", "stop", "length"]


class StopStrings:
    """Finds the first place where any of some strings begins, as the text grows."""

    def __init__(self, strings: Iterable[str]) -> None:
        self.strings = tuple(string.encode() for string in strings)
        if not all(self.strings):
            raise OptionError("stop: an empty string would end every text before it begins")
        self._longest = max(map(len, self.strings), default=0)

    def __bool__(self) -> bool:
        return bool(self.strings)

    def also(self, string: str) -> StopStrings:
        """These and another one; the same where that is empty."""
        return StopStrings([*(each.decode() for each in self.strings), string]) if string else self

    def find(self, text: bytes | bytearray, known: int) -> int:
        """Place of the first stop string in `text`, -1 if there is none.

        The first `known` bytes hold no whole stop string.
        """
        begin = max(0, known - self._longest + 1)
        found = [at for string in self.strings if (at := text.find(string, begin)) >= 0]
        return min(found, default=-1)

    def safe(self, text: bytes | bytearray) -> int:
        """Number of bytes of `text` before anything that may yet grow into a stop string."""
        for begin in range(max(0, len(text) - self._longest + 1), len(text)):
            tail = bytes(text[begin:])
            if any(string.startswith(tail) for string in self.strings):
                return begin
        return len(text)
