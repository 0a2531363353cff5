"""How an answer in harmony is read: message by message, each to where its header sends it."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..harmony import ASSISTANT, FUNCTION
from .deltas import ArgumentsDelta, CallDelta, CallEndDelta, ContentDelta, Delta, Prose, ReasoningDelta
from .reading import Reading
from .scanner import Reads, Scanner

_RECIPIENT = re.compile(rf"to={re.escape(FUNCTION)}([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>(\w+)")
_ENDS = ("<|end|>", "<|call|>", "<|return|>")


class HarmonyScript:
    """How an answer in harmony is read."""

    def __init__(
        self, reading: Reading, scanner: Scanner, push: Callable[[Delta], None], new_id: Callable[[], str]
    ) -> None:
        self._reading, self._scanner, self._push, self._new_id = reading, scanner, push, new_id
        self._data = reading.spelling.data
        self._ends = [self._data(end) for end in _ENDS if end not in reading.spelling.ends]
        self._calls = 0
        self.is_thinking = reading.thinks == "open"
        self.is_stopped = False
        self._said: set[type[Delta]] = set()

    def run(self) -> Reads:
        """Read all."""
        if self._reading.thinks == "open":
            yield from self._prose(ReasoningDelta)
        while True:
            header: list[bytes] = []
            if (yield from self._scanner.until([self._data("<|message|>")], header.append)) is None:
                return  # what ends within a header has nothing to say
            text = self._reading.spelling.written(b"".join(header)).removeprefix(ASSISTANT)
            recipient, channel = _RECIPIENT.search(text), _CHANNEL.search(text)
            if recipient is not None and recipient[1] in self._reading.arguments:
                yield from self._call(recipient[1])
            else:
                yield from self._prose(ReasoningDelta if channel and channel[1] == "analysis" else ContentDelta)
            if self._scanner.ended and not self._scanner.data:
                return

    def _call(self, name: str) -> Reads:
        index, self._calls = self._calls, self._calls + 1
        self._push(CallDelta(index, self._new_id(), name))
        prose = Prose(strip=True)

        def push(data: bytes) -> None:
            if text := prose.push(data):
                self._push(ArgumentsDelta(index, text))

        if (yield from self._scanner.value(push)):
            self._push(CallEndDelta(index))
        yield from self._scanner.until(self._ends, lambda _: None)

    def _prose(self, kind: type[ContentDelta] | type[ReasoningDelta]) -> Reads:
        """A text to its end; several of a kind are parted by a line break."""
        prose = Prose(strip=kind is ReasoningDelta)

        def push(text: str) -> None:
            if text:
                self._push(kind(f"\n{text}" if kind in parted else text))
                parted.clear()
                self._said.add(kind)

        parted = {kind} & self._said
        self.is_thinking = kind is ReasoningDelta
        yield from self._scanner.until(self._ends, lambda data: push(prose.push(data)))
        self.is_thinking = False
        push(prose.end(keep=kind is ContentDelta))
