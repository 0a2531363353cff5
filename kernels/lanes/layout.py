"""What host and device say to each other about lanes."""

from __future__ import annotations

from typing import Any, NamedTuple

RESUME, WIDTH, START, RECORD, GUESSED, ORIGIN, ATTEMPT, KEY = range(8)
"""Columns of what a launch is told of each lane, int32: whether it goes on from its last choice; how many tokens it
reads, 0 for none, or at most where it goes on; where the first of the tokens below lies in its text; its record, where
it does not go on; how many guesses there are, where it does; where the first token that was chosen lies; the attempt of
its choice; and two, the lower and the upper half of the key of its random numbers. Behind these HEADER columns come, in
`room_of(W)` columns, the tokens it reads, or guesses of its text if it goes on; and then the numbers of its blocks."""
HEADER = 9

COUNT, TOKENS = range(2)
"""Columns of what a launch answers: how many tokens a lane read, 0 if none; from TOKENS on, for each of the W places,
the token behind it, UNUSABLE for logits out of which none can be chosen; and then, for each, the record after that
token, UNKNOWN if it is not known. Those behind COUNT mean nothing."""
UNUSABLE = -1

FREE = 0
UNKNOWN = -1

EMPTY = -1
"""A key of the table of transitions that is not in use."""
PROBES = 32
"""So many places from its own on a key is looked for."""
CLASSES = 256
"""Most classes of tokens of a record; class 0 is of those after which nothing is known."""
_FACTOR = 0x1E3779B97F4A7C15


def room_of(width: int) -> int:
    """Columns for tokens in launches of W tokens: guesses go on where those end of a launch that is under way."""
    return width if width == 1 else 2 * width


def home_of(key: int, capacity: int) -> int:
    """The first place of a key, record << 32 | token, in a table of transitions; capacity is a power of 2."""
    return (key * _FACTOR & 0xFFFFFFFFFFFFFFFF) >> 33 & (capacity - 1)


class LaunchState(NamedTuple):
    """What a launch reads: rows of W tokens for each of B lanes.

    ids, positions: int64 [B * W]; slots: int32 [B * W], -1 for tokens that are not there
    records: int32 [B * W], of what is chosen behind each token, UNKNOWN where nothing is
    sure: int32 [B * W], the token to which there is no alternative there, -1 for none
    draws: float64 [B * W], the random numbers in [0, 1) of these choices
    firsts, widths, starts: int32 [B]
    tables: int32 [B, most]
    """

    ids: Any
    positions: Any
    slots: Any
    records: Any
    sure: Any
    draws: Any
    firsts: Any
    widths: Any
    starts: Any
    tables: Any


class StateTables(NamedTuple):
    """What is known of records.

    masks: int32 [records, words]; forced: int32 [records], the one token that may follow, -1 where there is a choice
    loops: int64 [records, 3], the characters that lead back; charsets: int64 [V, 3], those of each token
    keys: int64 [capacity], EMPTY or record << 32 | token; values: int32 [capacity]
    dense: int32 [records], a record's row of what follows, UNKNOWN for none; classes: uint8 [rows, V], the class of
    each token, 0 where nothing is known; targets: int32 [rows, CLASSES], the record after each class, or UNKNOWN
    """

    masks: Any
    forced: Any
    loops: Any
    charsets: Any
    keys: Any
    values: Any
    dense: Any
    classes: Any
    targets: Any


class SlotState(NamedTuple):
    """What lanes keep from one launch to the next, int32 [lanes] each.

    last: the token chosen; records: after it; ends: where it lies in its text
    """

    last: Any
    records: Any
    ends: Any
