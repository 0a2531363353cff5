"""What host and device say to each other about lanes."""

from __future__ import annotations

from typing import Any, NamedTuple

RESUME, WIDTH, START, RECORD = range(4)
"""Columns of what a launch is told of each lane, int32: whether it goes on from its last choice; how many tokens it
reads, 0 for none; where the first of them lies in its text; its record, where it does not go on. Behind these HEADER
columns come the tokens it reads, unless it goes on, and then the numbers of its text's blocks."""
HEADER = 4

TOKEN, AFTER = range(2)
"""Columns of what a launch answers: the token that was chosen, and the record after it, UNKNOWN if it is not known."""
UNUSABLE, INACTIVE = -1, -2
"""In place of a token: logits out of which none can be chosen; a lane that read nothing."""

FREE = 0
UNKNOWN = -1

EMPTY = -1
"""A key of the table of transitions that is not in use."""
PROBES = 32
"""So many places from its own on a key is looked for."""
CLASSES = 256
"""Most classes of tokens of a record; class 0 is of those after which nothing is known."""
_FACTOR = 0x1E3779B97F4A7C15


def home_of(key: int, capacity: int) -> int:
    """The first place of a key, record << 32 | token, in a table of transitions; capacity is a power of 2."""
    return (key * _FACTOR & 0xFFFFFFFFFFFFFFFF) >> 33 & (capacity - 1)


class Begun(NamedTuple):
    """What a launch reads: rows of W tokens for each of B lanes.

    ids, positions: int64 [B * W]; slots: int32 [B * W], -1 for tokens that are not there
    firsts, widths, starts, records: int32 [B]; ends: int64 [B], which of the B * W is a lane's last
    tables: int32 [B, most]
    """

    ids: Any
    positions: Any
    slots: Any
    firsts: Any
    widths: Any
    starts: Any
    records: Any
    ends: Any
    tables: Any


class Known(NamedTuple):
    """What is known of records.

    masks: int32 [records, words]; loops: int64 [records, 3], the characters that lead back; charsets: int64 [V, 3],
    those of each token; keys: int64 [capacity], EMPTY or record << 32 | token; values: int32 [capacity]
    dense: int32 [records], a record's row of what follows, UNKNOWN for none; classes: uint8 [rows, V], the class of
    each token, 0 where nothing is known; targets: int32 [rows, CLASSES], the record after each class, or UNKNOWN
    """

    masks: Any
    loops: Any
    charsets: Any
    keys: Any
    values: Any
    dense: Any
    classes: Any
    targets: Any


class Kept(NamedTuple):
    """What lanes keep from one launch to the next: last int32 [lanes], the token chosen; records int32 [lanes]."""

    last: Any
    records: Any
