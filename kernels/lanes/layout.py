"""Lanes: what host and device say to each other about them, and the ends of their steps in NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit.aliases import Ints

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


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def begin(rows: Ints, width: int, room: int, known: StateTables, kept: SlotState) -> LaunchState:
    """What lanes read, as rows int32 [B, HEADER + room_of(width) + most] tell; room: tokens in a block.

    A lane that goes on reads its last token and those that are forced or guessed behind it, as far as records are
    known, but no more than it may. Where its own record is not known it reads nothing.
    """
    count = len(rows)
    tables = rows[:, HEADER + room_of(width) :].copy()
    ids, positions = np.zeros((count, width), np.int64), np.zeros((count, width), np.int64)
    slots, sure, records = (np.full((count, width), -1, np.int32) for _ in range(3))
    starts, widths = rows[:, START].copy(), rows[:, WIDTH].copy()
    for lane, told in enumerate(rows):
        if told[RESUME]:
            starts[lane] = kept.ends[lane]
            guessed: list[int] = told[HEADER : HEADER + told[GUESSED]].tolist()
            guesses = dict(enumerate(guessed, int(told[START])))
            last, record = int(kept.last[lane]), int(kept.records[lane])
            tokens, met = _behind(last, record, int(starts[lane]), guesses, int(told[WIDTH]), known)
            widths[lane] = len(tokens)
        else:
            tokens = told[HEADER : HEADER + widths[lane]].tolist()
            met = [UNKNOWN] * (len(tokens) - 1) + [int(told[RECORD])][: len(tokens)]
        for place, (token, record) in enumerate(zip(tokens, met, strict=True)):
            at = starts[lane] + place
            ids[lane, place], positions[lane, place] = token, at
            slots[lane, place] = tables[lane, at // room] * room + at % room
            records[lane, place] = record
            sure[lane, place] = tokens[place + 1] if record == UNKNOWN else known.forced[record]
    firsts = np.arange(count, dtype=np.int32) * np.int32(width)
    steps = starts[:, None] + np.arange(1, width + 1) - rows[:, ORIGIN, None]
    draws = _uniforms(rows[:, KEY : KEY + 2], steps.astype(np.int64), rows[:, ATTEMPT])
    return LaunchState(
        *(ids.ravel(), positions.ravel(), slots.ravel(), records.ravel(), sure.ravel(), draws.ravel()),
        *(firsts, widths, starts, tables),
    )


def _behind(
    token: int, record: int, at: int, guesses: dict[int, int], most: int, known: StateTables
) -> tuple[list[int], list[int]]:
    """A token and those that are forced or guessed behind it, up to so many in all, with the records after each.

    at: where it lies; guesses: by their places, used as long as they agree with what is there
    """
    tokens: list[int] = []
    records: list[int] = []
    agrees = True
    while record != UNKNOWN and token >= 0 and len(tokens) < most:
        agrees = agrees and guesses.get(at + len(tokens)) == token
        tokens.append(token)
        records.append(record)
        token = int(known.forced[record])
        if token < 0 and agrees:
            token = guesses.get(at + len(tokens), -1)
        record = UNKNOWN if token < 0 else _after(record, token, known)
    return tokens, records


def _uniforms(keys: Ints, steps: NDArray[np.int64], attempts: Ints) -> NDArray[np.float64]:
    """Random numbers in [0, 1), float64 [B, W]: counted by the step of a choice, and its attempt.

    keys: int32 [B, 2]; steps: [B, W]; attempts: [B]. Source: SplitMix64 (Steele, Lea, Flood 2014).
    """
    low, high = np.ascontiguousarray(keys).view(np.uint32).astype(np.uint64).T
    key = (high << np.uint64(32) | low)[:, None]
    mixed = _mixed(_mixed(key ^ _mixed(steps.view(np.uint64))) ^ attempts.astype(np.uint64)[:, None])
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))


def advance(chosen: Ints, begun: LaunchState, known: StateTables, kept: SlotState) -> NDArray[np.int32]:
    """Keep what is chosen behind tokens, int32 [B * W], UNUSABLE for none, and the records after it.

    A lane's last token is the one behind which another is chosen than was read. The answer, int32 [B, TOKENS + 2 * W].
    """
    count = len(begun.widths)
    width = len(begun.ids) // count
    answer = np.full((count, TOKENS + 2 * width), -1, np.int32)
    for lane, read in enumerate(begun.widths.tolist()):
        answer[lane, COUNT] = 0
        kept.last[lane] = kept.records[lane] = UNKNOWN
        for place, here in enumerate(range(lane * width, lane * width + read)):
            token, record = int(begun.sure[here]), int(begun.records[here])
            if token < 0:
                token = int(chosen[here])
            is_last = place == read - 1 or token != begun.ids[here + 1]
            if not is_last:
                after = int(begun.records[here + 1])
            else:
                after = _after(record, token, known) if record != UNKNOWN and token >= 0 else UNKNOWN
            answer[lane, [COUNT, TOKENS + place, TOKENS + width + place]] = place + 1, token, after
            kept.last[lane], kept.records[lane], kept.ends[lane] = token, after, begun.starts[lane] + place + 1
            if is_last:
                break
    return answer


def _after(record: int, token: int, known: StateTables) -> int:
    """The record after a token, or UNKNOWN."""
    if record == FREE:
        return FREE
    if not (known.charsets[token] & ~known.loops[record]).any():
        return record
    key = record << 32 | token
    capacity = len(known.keys)
    for probe in range(PROBES):
        place = (home_of(key, capacity) + probe) & (capacity - 1)
        if known.keys[place] == key:
            return int(known.values[place])
    row = int(known.dense[record])
    return UNKNOWN if row == UNKNOWN else int(known.targets[row, known.classes[row, token]])
