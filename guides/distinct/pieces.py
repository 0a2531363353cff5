"""Sequences that grow at their end and share their beginnings: items and members of containers, bytes of texts."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..limits import spend

PIECE = 64
"""Up to how many bytes of a text are copied when it goes on."""


class Parts(NamedTuple):
    """Items, members, or pieces of a text: one behind those before it; size: of all together."""

    before: Parts | None
    last: Any
    size: int


Text = bytes | Parts
"""The bytes of what is in progress: as they are while they are few, in pieces if they are many."""


def items_of(parts: Parts | None) -> list[Any]:
    """The items, members or pieces in order."""
    found: list[Any] = []
    while parts is not None:
        found.append(parts.last)
        parts = parts.before
    return found[::-1]


def joined(text: Text | None) -> bytes:
    """The bytes of a text."""
    if isinstance(text, bytes):
        return text
    pieces = items_of(text)
    spend(len(pieces) << 2)
    return b"".join(pieces)


def size_of(text: Text | None) -> int:
    """How many bytes a text has."""
    return 0 if text is None else len(text) if isinstance(text, bytes) else text.size


def more_of(text: Text | None, data: bytes) -> Text:
    """A text with more bytes."""
    if text is None:
        return data
    if isinstance(text, bytes):
        if len(text) < PIECE:
            return text + data
        text = Parts(None, text, len(text))
    elif len(text.last) < PIECE:
        return Parts(text.before, text.last + data, text.size + len(data))
    return Parts(text, data, text.size + len(data))
