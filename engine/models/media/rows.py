"""Ids of rows of features: what stands among a prompt's token ids in the places of images and audio.

They are below BEGIN, and say by themselves which content they are of: equal images have equal ids, in whatever prompt
and process, so that blocks, prefix reuse, forks and preemption need to know nothing of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

from ..protocol import BEGIN

MOST_ROWS = 1 << 32
"""More than one content can have."""
_KEY_BYTES = 16


class RowRun(NamedTuple):
    """Rows of one content that stand next to one another: `length` from `row` on, at `place` among some tokens."""

    key: int
    row: int
    place: int
    length: int


def key_of(*parts: str, is_audio: bool = False) -> int:
    """The number of a content; of 128 bits, so that no two have the same one. It is odd for audio alone."""
    return int.from_bytes(sha256("\n".join(parts).encode()).digest()[:_KEY_BYTES], "big") & ~1 | is_audio


def counts_of(tokens: Iterable[int]) -> dict[str, int]:
    """Numbers of tokens that are rows, by the kind of content, "image" or "audio"."""
    rows = [(BEGIN - 1 - token) // MOST_ROWS & 1 for token in tokens if token < BEGIN]
    return {"image": rows.count(0), "audio": rows.count(1)}


def row_id(key: int, row: int) -> int:
    """The id of a row of a content."""
    return BEGIN - 1 - (key * MOST_ROWS + row)


def runs_in(tokens: Sequence[int]) -> Iterator[RowRun]:
    """The rows among some tokens, in order."""
    place, end = 0, len(tokens)
    while place < end:
        token = tokens[place]
        if token >= BEGIN:
            place += 1
            continue
        key, row = divmod(BEGIN - 1 - token, MOST_ROWS)
        count = 1
        while place + count < end and tokens[place + count] == token - count:
            count += 1
        yield RowRun(key, row, place, count)
        place += count
