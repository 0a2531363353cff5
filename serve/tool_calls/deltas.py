"""Results of the reader: deltas of content, thinking and calls, and the message that they form."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of the content."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A call begins; its arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of a call's arguments. Joined, they are JSON."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEndDelta:
    """A call is complete."""

    index: int


Delta = ContentDelta | ReasoningDelta | CallDelta | ArgumentsDelta | CallEndDelta


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call. complete: True if it was read to its end"""

    id: str
    name: str
    arguments: str
    complete: bool

    @property
    def values(self) -> dict[str, Any]:
        """The arguments as values; of a cut call, its text under "incomplete"."""
        try:
            return json.loads(self.arguments or "{}")
        except ValueError:
            return {"incomplete": self.arguments}


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """A message; None for no content or no thinking. stopped: a stop string ended the content"""

    content: str | None
    reasoning: str | None
    calls: tuple[ParsedCall, ...]
    stopped: bool = False


def merge(deltas: Iterable[Delta]) -> list[Delta]:
    """Merge adjacent deltas."""
    merged: list[Delta] = []
    for delta in deltas:
        match merged[-1:], delta:
            case [ContentDelta(before)], ContentDelta(text):
                merged[-1] = ContentDelta(before + text)
            case [ReasoningDelta(before)], ReasoningDelta(text):
                merged[-1] = ReasoningDelta(before + text)
            case [ArgumentsDelta(other, before)], ArgumentsDelta(index, text) if index == other:
                merged[-1] = ArgumentsDelta(index, before + text)
            case _:
                merged.append(delta)
    return merged


def message_of(deltas: Iterable[Delta]) -> ParsedMessage:
    """Return the message that deltas form."""
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[CallDelta] = []
    arguments: list[list[str]] = []
    complete: set[int] = set()
    for delta in deltas:
        match delta:
            case ContentDelta(text):
                content.append(text)
            case ReasoningDelta(text):
                reasoning.append(text)
            case CallDelta():
                calls.append(delta)
                arguments.append([])
            case ArgumentsDelta(index, text):
                arguments[index].append(text)
            case CallEndDelta(index):
                complete.add(index)
    found = tuple(
        ParsedCall(each.id, each.name, "".join(arguments[at]), at in complete) for at, each in enumerate(calls)
    )
    return ParsedMessage("".join(content) if content else None, "".join(reasoning) if reasoning else None, found)


# bytes that never occur in UTF-8, used to encode special tokens
TOKENS = bytes(range(0xF8, 0x100))
_BLANKS = " \t\r\n"


class TextDecoder:
    """Incremental decoding of text, without special tokens and trailing blanks.

    strip: leading blanks are dropped
    """

    def __init__(self, *, strip: bool) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.strip = strip
        self._blanks = ""

    def push(self, data: bytes) -> str:
        """Add bytes. Return the text that is certain now."""
        return self._without_blanks(self._decoder.decode(data.translate(None, TOKENS)))

    def end(self, *, keep: bool) -> str:
        """Return the rest. keep: trailing blanks belong to the text"""
        text = self._without_blanks(self._decoder.decode(b"", True))
        self._decoder.reset()
        rest, self._blanks = self._blanks, ""
        return text + rest if keep else text

    def _without_blanks(self, text: str) -> str:
        if self.strip:
            text = text.lstrip(_BLANKS)
            if not text:
                return ""
            self.strip = False
        text = self._blanks + text
        stripped = text.rstrip(_BLANKS)
        self._blanks = text[len(stripped) :]
        return stripped
