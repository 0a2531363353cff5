"""Ids of feature rows, which stand for images and audio among a prompt's token ids.

They are below BEGIN and identify their content: equal images have equal ids, in any prompt and process. Blocks, prefix
reuse, forks and preemption therefore treat them like tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

from ..protocol import BEGIN

MAX_ROWS = 1 << 32
"""Bound of a content's rows."""
_KEY_BYTES = 16


class RowRun(NamedTuple):
    """Adjacent rows of one content: `length` rows from `row` on, at index `place` among the tokens."""

    key: int
    row: int
    place: int
    length: int


def key_of(*parts: str, is_audio: bool = False) -> int:
    """Return the key of a content, a hash of 128 bits. It is odd for audio only."""
    return int.from_bytes(sha256("\n".join(parts).encode()).digest()[:_KEY_BYTES], "big") & ~1 | is_audio


def counts_of(tokens: Iterable[int]) -> dict[str, int]:
    """Return the number of rows among tokens by kind of content, "image" or "audio"."""
    rows = [(BEGIN - 1 - token) // MAX_ROWS & 1 for token in tokens if token < BEGIN]
    return {"image": rows.count(0), "audio": rows.count(1)}


def row_id(key: int, row: int) -> int:
    """Return the id of a content's row."""
    return BEGIN - 1 - (key * MAX_ROWS + row)


def runs_in(tokens: Sequence[int]) -> Iterator[RowRun]:
    """Yield the rows among tokens, in order."""
    place, end = 0, len(tokens)
    while place < end:
        token = tokens[place]
        if token >= BEGIN:
            place += 1
            continue
        key, row = divmod(BEGIN - 1 - token, MAX_ROWS)
        count = 1
        while place + count < end and tokens[place + count] == token - count:
            count += 1
        yield RowRun(key, row, place, count)
        place += count
