"""Lanes: rows that read and choose launch after launch, the host a launch behind.

A row whose next state is known on the device goes on there by itself. Where it is not known the lane pauses, the host
says how it goes on, and what it says is known from then on. What a row is told in the end is decided here alone: what
a lane chose under a mask that turns out to be too wide, since the text must come to its end, is chosen again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ModelError
from ...guides.protocol import Mask
from ...kernels.lanes.layout import FREE, HEADER, INACTIVE, KNOWN, RECORD, RESUME, START, TOKEN, UNUSABLE, WIDTH
from ..decode.randomness import uniform
from ..decode.row import Request, Row
from ..decode.row_search import RowSearch, place_of
from ..memory.pool import BlockPool
from ..memory.tables import BLOCK
from ..search import Sample
from .backend import FEW, LANES, MIN_P, TEMPERATURE, TOP_K, TOP_P, UNIFORM, WIDTHS, Backend, Launch
from .records import FullError, Key, Records

AHEAD = 2
"""Launches under way at once: while one runs the host looks at the one before."""
_MISSES = 0.25
"""Where more than that share of choices leads to what is not known, lanes wait for the host instead."""
_MEMORY = 0.05


@dataclass(slots=True, eq=False)
class Lane:
    """A row in its lane.

    fresh: how many of the row's pending tokens have their blocks' content known already, from when it was planned
    sent: tokens that launches under way read; is_choosing: whether the last of these chooses
    era: counts the times that what was under way for it became void
    closing: a mask that the next choice is made under, with the number of the attempt
    """

    row: Row
    fresh: int
    sent: int = 0
    is_choosing: bool = False
    era: int = 0
    closing: tuple[Mask, int] | None = None


@dataclass(slots=True)
class Part:
    """What one lane does in a launch: how many tokens it reads, whether it chooses then, out of which record."""

    lane: Lane
    number: int
    count: int
    chooses: bool
    resumes: bool
    is_closing: bool
    era: int


class Lanes:
    """The rows of one plan. `run` ends with no launch under way, and rows as a step leaves them."""

    def __init__(self, rows: RowSearch, pool: BlockPool, backend: Backend, records: Records, size: int) -> None:
        self._rows = rows
        self._pool = pool
        self._backend = backend
        self._records = records
        self._size = size
        self._missing = 0.0

    def takes(self, works: Sequence[Any]) -> bool:
        """Whether these can run as lanes: rows of which nothing is asked but their tokens, with little to read."""
        return len(works) <= LANES and all(isinstance(work, Row) and _is_plain(work) for work in works)

    def run(self, works: Sequence[Row], most: int, is_over: Callable[[], bool]) -> None:
        """Up to `most` launches, fewer once `is_over` or when half of the lanes are done."""
        if self._records.is_crowded:
            self._records.forget()
        self._backend.prepare()
        lanes = [Lane(row, len(row.pending)) for row in works]
        under_way: deque[tuple[Any, list[Part]]] = deque()
        launched = 0
        try:
            while True:
                live = sum(not lane.row.done for lane in lanes)
                ahead = AHEAD if self._missing <= _MISSES else 1
                begun = None
                if launched < most and 2 * live > len(lanes) and not (launched and is_over()):
                    begun = self._launch(lanes)
                if begun is not None:
                    under_way.append(begun)
                    launched += 1
                if under_way and (begun is None or len(under_way) >= ahead):
                    handle, parts = under_way.popleft()
                    self._collect(self._backend.answer(handle), parts)
                elif begun is None:
                    return
        finally:
            for lane in lanes:
                self._pool.shrink(lane.row.table)

    def _launch(self, lanes: Sequence[Lane]) -> tuple[Any, list[Part]] | None:
        """Begin a launch; None if no lane can go on before the host has looked at what is under way."""
        width = WIDTHS[-1] if len(lanes) <= FEW and any(_waiting(lane) > 1 for lane in lanes) else WIDTHS[0]
        count = 1 << (len(lanes) - 1).bit_length()
        parts: list[Part] = []
        told = np.zeros((count, HEADER + width), np.int32)
        choices = np.zeros((5, count))
        choices[TOP_K], choices[TOP_P] = self._size, 1
        for number, lane in enumerate(lanes):
            try:
                part = self._part(lane, number, width, told[number])
            except FullError:
                break
            except Exception as error:
                lane.row.error, told[number] = error, 0
                continue
            if part is None:
                continue
            if not self._pool.extend(lane.row.table, int(told[number, START]) + part.count):
                told[number] = 0
                break
            parts.append(part)
            if part.chooses:
                _tell(choices[:, number], lane, part)
        if not parts:
            return None
        for part in parts:
            part.lane.sent += part.count
            part.lane.is_choosing = part.chooses
            part.lane.closing = None
        longest = max(len(part.lane.row.table.blocks) for part in parts)
        rows = np.zeros((count, HEADER + width + _bucket(longest)), np.int32)
        rows[:, : HEADER + width] = told
        for part in parts:
            blocks = part.lane.row.table.blocks
            rows[part.number, HEADER + width : HEADER + width + len(blocks)] = np.frombuffer(blocks, np.int32)
        is_filtered = bool((choices[TOP_K] < self._size).any() or (choices[TOP_P] < 1).any())
        is_greedy = not choices[TEMPERATURE].any()
        launch = Launch(rows, width, choices, is_greedy, is_filtered, self._records.news())
        return self._backend.launch(launch), parts

    def _part(self, lane: Lane, number: int, width: int, told: Any) -> Part | None:
        """What a lane does next, written down; None if it must wait, or is done. Raises what its guide does."""
        row = lane.row
        if row.done:
            return None
        start = len(row.table.tokens) + lane.sent
        if lane.is_choosing:
            if row.left < 2:
                return None  # its last token is under way
            told[[RESUME, WIDTH, START]] = 1, 1, start
            return Part(lane, number, 1, chooses=True, resumes=True, is_closing=False, era=lane.era)
        pending = row.pending[lane.sent : lane.sent + width]
        chooses = lane.sent + len(pending) == len(row.pending)
        record, is_closing = self._record(lane, number) if chooses else (FREE, False)
        told[[WIDTH, START, RECORD]] = len(pending), start, record
        told[HEADER : HEADER + len(pending)] = pending
        return Part(lane, number, len(pending), chooses, False, is_closing, lane.era)

    def _record(self, lane: Lane, number: int) -> tuple[int, bool]:
        """The record that a lane chooses out of next, and whether it is one of masks that hold once."""
        row = lane.row
        if lane.closing is None and self._rows.is_tight(row):
            lane.closing = self._rows.closing_mask(row), 0
        if lane.closing is not None:
            return self._records.once(number, lane.closing[0]), True
        return self._records.record(_key(row)), False

    def _collect(self, answer: Any, parts: Sequence[Part]) -> None:
        """Let rows have what a launch chose."""
        for part in parts:
            lane, row = part.lane, part.lane.row
            if part.era != lane.era or row.done:
                continue
            token, is_known = int(answer[part.number, TOKEN]), bool(answer[part.number, KNOWN])
            assert token != INACTIVE, "what is under way for a lane is void when it is known that it pauses"
            try:
                self._take(lane, part, token, is_known)
            except Exception as error:
                row.error = error

    def _take(self, lane: Lane, part: Part, token: int, is_known: bool) -> None:
        """One lane's part of a launch: what it read, and its choice unless that must be made again."""
        row = lane.row
        if part.chooses and token != UNUSABLE:
            attempt = self._wrong(row, part, token)
            if attempt is not None:
                self._void(lane)
                lane.closing = self._rows.closing_mask(row), attempt
                return
        read = row.pending[: part.count]
        if lane.fresh:
            lane.fresh -= part.count
        else:
            self._pool.recognise(row.table, read)
        row.table.tokens += read
        row.pending = row.pending[part.count :]
        lane.sent -= part.count
        self._pool.trim(row.table)
        if not part.chooses:
            return
        if token == UNUSABLE:
            row.error = ModelError(
                f"the model's logits at {place_of(row)} are NaN or infinite, or give every allowed token the "
                "probability 0"
            )
            return
        before = None if part.is_closing else self._records.find(_key(row))
        self._rows.commit(row, token)
        self._missing += _MEMORY * ((not is_known) - self._missing)
        if row.done:
            return
        is_single = row.pending == [token]
        if not (is_known and is_single and lane.sent):
            self._void(lane)
        if is_single and not is_known and before and not self._rows.is_tight(row):
            with suppress(FullError):
                self._records.follow(before, token, self._records.record(_key(row)))

    def _wrong(self, row: Row, part: Part, token: int) -> int | None:
        """The attempt with which a choice must be made again; None if it stands."""
        if not part.is_closing:
            if part.resumes and self._rows.is_tight(row):
                return 0
            if not self._rows.fits(row, token):
                return 1
        return None

    def _void(self, lane: Lane) -> None:
        """Let nothing come of what is under way for a lane."""
        lane.era += 1
        lane.sent = 0
        lane.is_choosing = False


def _waiting(lane: Lane) -> int:
    """How many tokens a lane has to read that the host knows."""
    return 0 if lane.row.done or lane.is_choosing else len(lane.row.pending) - lane.sent


def _key(row: Row) -> Key | None:
    guide_cache = row.guide_cache
    return None if guide_cache is None else (guide_cache, row.state, row.request.stop_ids)


def _tell(choice: Any, lane: Lane, part: Part) -> None:
    """How a lane's row chooses; the number of the draw is that of the token."""
    request = lane.row.request
    search = request.search
    if not isinstance(search, Sample):
        return
    attempt = 0 if lane.closing is None else lane.closing[1]
    choice[TEMPERATURE], choice[TOP_P], choice[MIN_P] = search.temperature, search.top_p, search.min_p
    if search.top_k is not None:
        choice[TOP_K] = min(search.top_k, choice[TOP_K])
    choice[UNIFORM] = uniform(request.key, len(lane.row.tokens) + part.resumes, attempt)


def _is_plain(row: Row) -> bool:
    """Whether nothing is asked of a row but its tokens, one after the other."""
    request: Request = row.request
    return (
        not (request.scores or request.diagnostics)
        and request.controls.are_off
        and 0 < len(row.pending) <= BLOCK
        and (len(row.pending) == 1 or bool(row.tokens))
    )


def _bucket(blocks: int) -> int:
    """Room for so many blocks of a text: 16, 64, 256, ..."""
    room = 16
    while room < blocks:
        room *= 4
    return room
