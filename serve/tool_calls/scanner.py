"""A stream of bytes that is read step by step, and asked for more where that is not enough yet.

What reads is a generator, which yields where more bytes are needed; `Scanner.feed` runs it as far as they go. What it
decides depends on the bytes alone, and not on how they were split.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

QUOTE, BACKSLASH = b'"\\'
Reads = Generator[None, None, None]


class Scanner:
    """Bytes on their way. ended: whether no more will come."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False

    def until(self, stops: Sequence[bytes], push: Callable[[bytes], None]) -> Generator[None, None, bytes | None]:
        """Hand on what comes before the first of some texts, none of which contains another; which it is, or None.

        What is read, that text with it, is taken out. What may be the beginning of one is held back.
        """
        while True:
            found = min(((at, stop) for stop in stops if (at := self.data.find(stop)) >= 0), default=None)
            if found is not None:
                at, stop = found
                push(bytes(self.data[:at]))
                del self.data[: at + len(stop)]
                return stop
            held = 0 if self.ended else max((_begun(self.data, stop) for stop in stops), default=0)
            push(bytes(self.data[: len(self.data) - held]))
            del self.data[: len(self.data) - held]
            if self.ended:
                return None
            yield

    def match(self, options: Iterable[bytes]) -> Generator[None, None, bytes | None]:
        """Take out the one of some texts that comes next, none of which begins another; None if none does."""
        listed = list(options)
        while True:
            data = bytes(self.data)
            listed = [each for each in listed if each.startswith(data[: len(each)])]
            found = next((each for each in listed if len(each) <= len(data)), None)
            if found is not None or not listed or self.ended:
                del self.data[: len(found or b"")]
                return found
            yield

    def blanks(self) -> Reads:
        """Pass over blanks."""
        while True:
            self.data = self.data.lstrip(b" \t\r\n")
            if self.data or self.ended:
                return
            yield

    def value(self, push: Callable[[bytes], None]) -> Generator[None, None, bool]:
        """Hand on a JSON object or array, if one begins here, to its closing bracket; whether that came."""
        while not self.data and not self.ended:
            yield
        if not self.data.startswith((b"{", b"[")):
            return False
        depth, strings = 0, _Strings()
        while True:
            read = 0
            for byte in self.data:
                read += 1
                if strings.take(byte):
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
        """Hand on what comes before a text, the first one that is within no string of JSON; whether that came.

        stop: begins with no quote
        """
        strings = _Strings()
        while True:
            read = 0
            for byte in self.data:
                if not strings.take(byte) and byte == stop[0]:
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


class _Strings:
    """Tells which bytes of JSON are in its strings."""

    def __init__(self) -> None:
        self._is_open = self._is_escaped = False

    def take(self, byte: int) -> bool:
        """Take the next byte; tell whether it is in a string, of which its quotes are a part."""
        if not self._is_open:
            self._is_open = byte == QUOTE
            return self._is_open
        self._is_open = self._is_escaped or byte != QUOTE
        self._is_escaped = not self._is_escaped and byte == BACKSLASH
        return True


def _begun(data: bytearray, stop: bytes) -> int:
    """Count bytes of the end that are the beginning of a text, and not all of it."""
    for size in range(min(len(stop) - 1, len(data)), 0, -1):
        if data.endswith(stop[:size]):
            return size
    return 0
