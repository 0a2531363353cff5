"""Forms: texts with alternatives `[a|b]` and places `{slot}`, and which of them are held out."""

from __future__ import annotations

import re
import zlib
from functools import cache, lru_cache

HELD_OUT = 8
"""One in this many things is held out."""

_PIECES = re.compile(r"([\[\]|])")
_SLOTS = re.compile(r"\{([a-z_0-9]+[+-]?)\}")


def is_held_out(text: str) -> bool:
    """Whether evaluation has this text to itself. By a hash of it alone: the same in every run and process."""
    return zlib.crc32(text.encode()) % HELD_OUT == 0


@cache
def expand(form: str) -> tuple[str, ...]:
    """All texts that a form stands for: `[a|b][|c]` is a, ac, b, bc. The outermost brackets may be left out."""
    pieces = [piece for piece in _PIECES.split(form) if piece]
    texts, at = _alternatives(pieces, 0)
    if at != len(pieces):
        raise ValueError(f"a bracket too many in the form {form!r}")
    return tuple(dict.fromkeys(texts))


def _alternatives(pieces: list[str], at: int) -> tuple[list[str], int]:
    """The texts of what stands from here to the closing bracket or to the end, and where that is."""
    done: list[str] = []
    texts = [""]
    while at < len(pieces) and pieces[at] != "]":
        ends = [pieces[at]]
        if pieces[at] == "|":
            done, texts, ends = done + texts, [""], [""]
        elif pieces[at] == "[":
            ends, at = _alternatives(pieces, at + 1)
            if at == len(pieces):
                raise ValueError(f"a bracket is not closed in the form {''.join(pieces)!r}")
        texts = [text + end for text in texts for end in ends]
        at += 1
    return done + texts, at


@cache
def side(form: str, held_out: bool) -> tuple[str, ...]:
    """The texts of a form on one side of the split; all of them where that side would be empty, as with one text."""
    texts = expand(form)
    return tuple(text for text in texts if is_held_out(text) == held_out) or texts


@cache
def slots_of(text: str) -> frozenset[str]:
    """The names of the places in a text."""
    return frozenset(_SLOTS.findall(text))


@lru_cache(maxsize=65536)
def _parts(text: str) -> tuple[str, ...]:
    return tuple(_SLOTS.split(text))


def fill(text: str, values: dict[str, str]) -> str:
    """The text with values in its places; one such as `{paid+}`, which says that a flag is set, is empty."""
    parts = _parts(text)
    if len(parts) == 1:
        return text
    filled = list(parts)
    for number in range(1, len(parts), 2):
        name = parts[number]
        filled[number] = "" if name[-1] in "+-" else values[name]
    return "".join(filled)
