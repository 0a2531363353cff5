"""Slots: the layout of messages between host and device, and beginning and end of a step in NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit.aliases import Ints

RESUME, WIDTH, START, RECORD, DRAFTED, ORIGIN, ATTEMPT, KEY = range(8)
"""Columns of the host's message about each slot of a launch, int32. RESUME: whether it continues after its last choice;
WIDTH: the number of tokens it reads, 0 for none, or at most if it resumes; START: position in its sequence of the first
token below; RECORD: its record, if it does not resume; DRAFTED: the number of drafts, if it resumes; ORIGIN: position
of the first chosen token; ATTEMPT: of its choice; KEY: two columns, the lower and upper half of its random key. Behind
these HEADER columns come `room_of(W)` columns with the tokens to read, or drafts if it resumes; then its block table.
"""
HEADER = 9

COUNT, TOKENS = range(2)
"""Columns of a launch's answer. COUNT: the number of tokens that a slot read, 0 if none. From TOKENS on, for each of
the W places: the token chosen after it, UNUSABLE if the logits allow none; then for each the record after that token,
UNKNOWN if the state table has none. Columns of places from COUNT on are undefined.
"""
UNUSABLE = -1

FREE = 0
UNKNOWN = -1

EMPTY = -1
"""Key of an empty place in the table of transitions."""
PROBES = 32
"""Places that a look-up probes."""
CLASSES = 256
"""Most token classes of a record; class 0 is for tokens without a known transition."""
_FACTOR = 0x1E3779B97F4A7C15


def room_of(width: int) -> int:
    """Return the number of token columns in launches of W tokens: drafts may begin in the launch still under way."""
    return width if width == 1 else 2 * width


def home_of(key: int, capacity: int) -> int:
    """Return the first place of a key, record << 32 | token, in a table of transitions; capacity is a power of 2."""
    return (key * _FACTOR & 0xFFFFFFFFFFFFFFFF) >> 33 & (capacity - 1)


class LaunchState(NamedTuple):
    """Inputs of a launch: W tokens for each of B slots.

    ids, positions: int64 [B * W]; slot_mapping: int32 [B * W], -1 for absent tokens
    records: int32 [B * W], for the choice after each token, UNKNOWN without one
    sure: int32 [B * W], the forced token there, -1 for none
    draws: float64 [B * W], random numbers in [0, 1) of these choices
    firsts, widths, starts: int32 [B]
    tables: int32 [B, most]
    """

    ids: Any
    positions: Any
    slot_mapping: Any
    records: Any
    sure: Any
    draws: Any
    firsts: Any
    widths: Any
    starts: Any
    tables: Any


class StateTables(NamedTuple):
    """The state table.

    masks: int32 [records, words]; forced: int32 [records], the forced token, -1 where there is a choice
    loops: int64 [records, 3], the characters that lead back; charsets: int64 [V, 3], the characters of each token
    keys: int64 [capacity], EMPTY or record << 32 | token; values: int32 [capacity], the record after it
    dense: int32 [records], a record's row of the next two, UNKNOWN for none; classes: uint8 [rows, V], the class of
    each token, 0 for unknown; targets: int32 [rows, CLASSES], the record after each class, or UNKNOWN
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
    """State of slots between launches, int32 [slots] each.

    last: the chosen token; records: after it; ends: its position
    """

    last: Any
    records: Any
    ends: Any


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def begin(rows: Ints, width: int, room: int, known: StateTables, slots: SlotState) -> LaunchState:
    """Return the inputs of a launch from rows int32 [B, HEADER + room_of(width) + most]; room: tokens of a block.

    A slot that resumes reads its last token, and forced or drafted tokens after it while their records are known, up to
    its WIDTH. Without a record of its own it reads nothing.
    """
    count = len(rows)
    tables = rows[:, HEADER + room_of(width) :].copy()
    ids, positions = np.zeros((count, width), np.int64), np.zeros((count, width), np.int64)
    slot_mapping, sure, records = (np.full((count, width), -1, np.int32) for _ in range(3))
    starts, widths = rows[:, START].copy(), rows[:, WIDTH].copy()
    for slot, slot_row in enumerate(rows):
        if slot_row[RESUME]:
            starts[slot] = slots.ends[slot]
            drafted: list[int] = slot_row[HEADER : HEADER + slot_row[DRAFTED]].tolist()
            drafts = dict(enumerate(drafted, int(slot_row[START])))
            last, record = int(slots.last[slot]), int(slots.records[slot])
            tokens, path = _behind(last, record, int(starts[slot]), drafts, int(slot_row[WIDTH]), known)
            widths[slot] = len(tokens)
        else:
            tokens = slot_row[HEADER : HEADER + widths[slot]].tolist()
            path = [UNKNOWN] * (len(tokens) - 1) + [int(slot_row[RECORD])][: len(tokens)]
        for place, (token, record) in enumerate(zip(tokens, path, strict=True)):
            at = starts[slot] + place
            ids[slot, place], positions[slot, place] = token, at
            slot_mapping[slot, place] = tables[slot, at // room] * room + at % room
            records[slot, place] = record
            sure[slot, place] = tokens[place + 1] if record == UNKNOWN else known.forced[record]
    firsts = np.arange(count, dtype=np.int32) * np.int32(width)
    steps = starts[:, None] + np.arange(1, width + 1) - rows[:, ORIGIN, None]
    draws = _uniforms(rows[:, KEY : KEY + 2], steps.astype(np.int64), rows[:, ATTEMPT])
    return LaunchState(
        *(ids.ravel(), positions.ravel(), slot_mapping.ravel(), records.ravel(), sure.ravel(), draws.ravel()),
        *(firsts, widths, starts, tables),
    )


def _behind(
    token: int, record: int, at: int, drafts: dict[int, int], most: int, known: StateTables
) -> tuple[list[int], list[int]]:
    """Return a token and the forced or drafted tokens after it, `most` at most, with the record after each.

    at: position of the token; drafts: by position, used as long as they agree with the tokens before
    """
    tokens: list[int] = []
    records: list[int] = []
    agrees = True
    while record != UNKNOWN and token >= 0 and len(tokens) < most:
        agrees = agrees and drafts.get(at + len(tokens)) == token
        tokens.append(token)
        records.append(record)
        token = int(known.forced[record])
        if token < 0 and agrees:
            token = drafts.get(at + len(tokens), -1)
        record = UNKNOWN if token < 0 else _after(record, token, known)
    return tokens, records


def _uniforms(keys: Ints, steps: NDArray[np.int64], attempts: Ints) -> NDArray[np.float64]:
    """Return random numbers in [0, 1), float64 [B, W], as a function of key, step and attempt.

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


def advance(chosen: Ints, launch: LaunchState, known: StateTables, slots: SlotState) -> NDArray[np.int32]:
    """Store the choices of a launch, int32 [B * W], UNUSABLE for none, and the records after them, in `slots`.

    A slot's step ends at the first choice that differs from the token read next. Returns int32 [B, TOKENS + 2 * W].
    """
    count = len(launch.widths)
    width = len(launch.ids) // count
    answer = np.full((count, TOKENS + 2 * width), -1, np.int32)
    for slot, read in enumerate(launch.widths.tolist()):
        answer[slot, COUNT] = 0
        slots.last[slot] = slots.records[slot] = UNKNOWN
        for place, index in enumerate(range(slot * width, slot * width + read)):
            token, record = int(launch.sure[index]), int(launch.records[index])
            if token < 0:
                token = int(chosen[index])
            is_last = place == read - 1 or token != launch.ids[index + 1]
            if not is_last:
                after = int(launch.records[index + 1])
            else:
                after = _after(record, token, known) if record != UNKNOWN and token >= 0 else UNKNOWN
            answer[slot, [COUNT, TOKENS + place, TOKENS + width + place]] = place + 1, token, after
            slots.last[slot], slots.records[slot], slots.ends[slot] = token, after, launch.starts[slot] + place + 1
            if is_last:
                break
    return answer


def _after(record: int, token: int, known: StateTables) -> int:
    """Return the record after a token, or UNKNOWN."""
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
