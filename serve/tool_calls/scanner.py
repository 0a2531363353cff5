"""An incremental scanner of bytes.

Parsers are generators that yield where they need more bytes. Their results depend on the bytes alone, not on how they
were split.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

QUOTE, BACKSLASH = b'"\\'
Reads = Generator[None, None, None]


class Scanner:
    """The bytes not yet consumed. ended: no more will come"""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False

    def until(self, stops: Sequence[bytes], push: Callable[[bytes], None]) -> Generator[None, None, bytes | None]:
        """Consume and push everything before the first of some texts. Return that text, which is consumed too, or None.

        No text may contain another. A possible beginning of one is held back.
        """
        while True:
            found = min(((at, stop) for stop in stops if (at := self.data.find(stop)) >= 0), default=None)
            if found is not None:
                at, stop = found
                push(bytes(self.data[:at]))
                del self.data[: at + len(stop)]
                return stop
            held = 0 if self.ended else max((_partial_length(self.data, stop) for stop in stops), default=0)
            push(bytes(self.data[: len(self.data) - held]))
            del self.data[: len(self.data) - held]
            if self.ended:
                return None
            yield

    def match(self, options: Iterable[bytes]) -> Generator[None, None, bytes | None]:
        """Consume the text that comes next, and return it; None if none does. No text may begin another."""
        candidates = list(options)
        while True:
            data = bytes(self.data)
            candidates = [each for each in candidates if each.startswith(data[: len(each)])]
            found = next((each for each in candidates if len(each) <= len(data)), None)
            if found is not None or not candidates or self.ended:
                del self.data[: len(found or b"")]
                return found
            yield

    def blanks(self) -> Reads:
        """Skip blanks."""
        while True:
            self.data = self.data.lstrip(b" \t\r\n")
            if self.data or self.ended:
                return
            yield

    def value(self, push: Callable[[bytes], None]) -> Generator[None, None, bool]:
        """Consume and push a JSON object or array. Return True if it is complete."""
        while not self.data and not self.ended:
            yield
        if not self.data.startswith((b"{", b"[")):
            return False
        depth, strings = 0, _StringTracker()
        while True:
            read = 0
            for byte in self.data:
                read += 1
                if strings.advance(byte):
                    continue
                depth += (byte in b"{[") - (byte in b"}]")
                if not depth:
                    break
            push(bytes(self.data[:read]))
            del self.data[:read]
            if read and not depth:
                return True
            if self.ended:
                return False
            yield

    def unquoted(self, stop: bytes, push: Callable[[bytes], None]) -> Generator[None, None, bool]:
        """Consume and push everything before the first `stop` outside of JSON strings. Return True if it came.

        stop: does not begin with a quote
        """
        strings = _StringTracker()
        while True:
            read = 0
            for byte in self.data:
                if not strings.advance(byte) and byte == stop[0]:
                    rest = bytes(self.data[read : read + len(stop)])
                    if rest == stop:
                        push(bytes(self.data[:read]))
                        del self.data[: read + len(stop)]
                        return True
                    if stop.startswith(rest) and not self.ended:
                        break
                read += 1
            push(bytes(self.data[:read]))
            del self.data[:read]
            if self.ended:
                return False
            yield


class _StringTracker:
    """Tracks which bytes of JSON are inside strings."""

    def __init__(self) -> None:
        self._is_open = self._is_escaped = False

    def advance(self, byte: int) -> bool:
        """Advance by a byte. Return True if it is in a string, quotes included."""
        if not self._is_open:
            self._is_open = byte == QUOTE
            return self._is_open
        self._is_open = self._is_escaped or byte != QUOTE
        self._is_escaped = not self._is_escaped and byte == BACKSLASH
        return True


def _partial_length(data: bytearray, stop: bytes) -> int:
    """Return the length of the longest proper prefix of `stop` at the end of the data."""
    for size in range(min(len(stop) - 1, len(data)), 0, -1):
        if data.endswith(stop[:size]):
            return size
    return 0
