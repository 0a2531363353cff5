"""Places of the values of a JSON text that hold no others, by their JSON pointers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ...guides.json_schema.read.subschema import step_of

LITERAL = re.compile(rb'"(?:[^"\\]|\\.)*"|true|false|null|-?[0-9][0-9.eE+-]*')
_NUMBER_BYTES = b"0123456789.eE+-"


def places_in(text: bytes) -> Iterator[tuple[str, int, int]]:
    """The places in a text that is JSON up to where it may be cut; of a value that is cut there is none.

    Each is a pointer as RFC 6901 has it, and where the value's bytes begin and end.
    """
    open_: list[list[str | int]] = []  # the place in each container: [name or index]
    place = 0
    while place < len(text):
        byte = text[place : place + 1]
        if byte in b"{[":
            open_.append(["" if byte == b"{" else 0])
            place += 1
        elif byte in b"}]":
            open_.pop()
            place += 1
        elif byte == b"," and isinstance(index := open_[-1][0], int):
            open_[-1][0] = index + 1
            place += 1
        elif (found := literal_at(text, place)) is not None:
            if open_ and isinstance(open_[-1][0], str) and (colon := re.compile(rb"\s*:\s*").match(text, found)):
                open_[-1][0] = _name(text[place:found])
                place = colon.end()
                continue
            yield "".join(f"/{step_of(step[0])}" for step in open_), place, found
            place = found
        elif byte in b" \t\n\r,":
            place += 1
        else:
            return


def literal_at(text: bytes, place: int) -> int | None:
    """End of the value that begins at a place of a text; None where it is not there in full.

    A number is there in full where something follows that is not of one, or the text ends.
    """
    found = LITERAL.match(text, place)
    return None if found is None else found.end()


def is_decided(text: bytes) -> bool:
    """True if a value is there in full, whatever follows the text."""
    end = literal_at(text, 0)
    return end is not None and (text[end - 1] not in _NUMBER_BYTES or end < len(text) or text[:1].isalpha())


def _name(literal: bytes) -> str:
    return str(json.loads(literal))
