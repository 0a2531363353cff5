"""Results of a reader: pieces of content, of thinking and of calls, and the message they come to."""

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
    """More of what the model thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A call begins; its arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of the arguments of a call: joined these are JSON."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEndDelta:
    """A call is complete."""

    index: int


Delta = ContentDelta | ReasoningDelta | CallDelta | ArgumentsDelta | CallEndDelta


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call. complete: whether it was read to its end"""

    id: str
    name: str
    arguments: str
    complete: bool

    @property
    def values(self) -> dict[str, Any]:
        """The arguments as values; of a call that was cut what came of them, as text."""
        try:
            return json.loads(self.arguments or "{}")
        except ValueError:
            return {"incomplete": self.arguments}


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """All that was read; None for no content and no thinking. stopped: whether a stop string ended the content"""

    content: str | None
    reasoning: str | None
    calls: tuple[ParsedCall, ...]
    stopped: bool = False


def joined(deltas: Iterable[Delta]) -> list[Delta]:
    """The same with as few as possible."""
    found: list[Delta] = []
    for delta in deltas:
        match found[-1:], delta:
            case [ContentDelta(before)], ContentDelta(text):
                found[-1] = ContentDelta(before + text)
            case [ReasoningDelta(before)], ReasoningDelta(text):
                found[-1] = ReasoningDelta(before + text)
            case [ArgumentsDelta(other, before)], ArgumentsDelta(index, text) if index == other:
                found[-1] = ArgumentsDelta(index, before + text)
            case _:
                found.append(delta)
    return found


def message_of(deltas: Iterable[Delta]) -> ParsedMessage:
    """The message of deltas."""
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


# Bytes that no text of UTF-8 has, and that tokens without text are written in
TOKENS = bytes(range(0xF8, 0x100))
_BLANKS = " \t\r\n"


class Prose:
    """Text on its way: whole characters, without tokens of their own, and without blanks where these end it.

    strip: whether blanks that begin it are left out
    """

    def __init__(self, *, strip: bool) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.strip = strip
        self._blanks = ""

    def push(self, data: bytes) -> str:
        """Take bytes; the text that is certain now, of bytes that came before too."""
        return self._without_blanks(self._decoder.decode(data.translate(None, TOKENS)))

    def end(self, *, keep: bool) -> str:
        """The rest. keep: whether blanks at the end are a part of it"""
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
        given = text.rstrip(_BLANKS)
        self._blanks = text[len(given) :]
        return given
