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
from typing import Any, TypeGuard

import numpy as np

from ...guides.protocol import Mask
from ...kernels.lanes.layout import FREE, HEADER, INACTIVE, KNOWN, TOKEN, UNUSABLE
from ..decode.randomness import uniform
from ..decode.row import Request, Row
from ..decode.row_search import RowSearch, unusable
from ..memory.pool import BlockPool
from ..memory.tables import BLOCK
from ..search import Greedy, Sample
from .backend import FEW, LANES, MIN_P, TEMPERATURE, TOP_K, TOP_P, UNIFORM, WIDTHS, Backend, Launch
from .records import FullError, Key, Records

AHEAD = 2
"""Launches under way at once: while one runs the host looks at the one before."""
_MISSES = 0.25
"""Where more than that share of choices leads to what is not known, lanes wait for the host instead."""
_MEMORY = 0.05
_SEARCHES = (Greedy, Sample)
"""Those that lanes know; a caller's own, also one derived of these, may choose otherwise."""


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
    era: int
    record: int = FREE
    resumes: bool = False
    is_closing: bool = False


class Lanes:
    """The rows of one plan. `run` ends with no launch under way, and rows as a step leaves them."""

    def __init__(self, rows: RowSearch, pool: BlockPool, backend: Backend, records: Records, size: int) -> None:
        self._rows = rows
        self._pool = pool
        self._backend = backend
        self._records = records
        self._size = size
        self._missing = 0.0

    def takes(self, works: Sequence[Any]) -> TypeGuard[Sequence[Row]]:
        """Whether these can run as lanes: rows of which nothing is asked but their tokens, with little to read."""
        return len(works) <= LANES and all(isinstance(work, Row) and _is_plain(work) for work in works)

    def run(self, works: Sequence[Row], most: int, is_over: Callable[[], bool]) -> bool:
        """Up to `most` launches, fewer once `is_over` or when half of the lanes are done, but all that was planned.

        Returns whether all that was planned has been read, which only an error of a row prevents: if not, the pool
        expects something in blocks that is not there.
        """
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
                goes_on = launched < most and 2 * live > len(lanes) and not (launched and is_over())
                if goes_on or any(lane.fresh and not lane.row.done for lane in lanes):
                    begun = self._launch(lanes)
                if begun is not None:
                    under_way.append(begun)
                    launched += 1
                    self._records.widen()
                if under_way and (begun is None or len(under_way) >= ahead):
                    handle, parts = under_way.popleft()
                    self._collect(self._backend.answer(handle), parts)
                elif begun is None:
                    return not any(lane.fresh for lane in lanes)
        finally:
            for lane in lanes:
                self._pool.shrink(lane.row.table)

    def _launch(self, lanes: Sequence[Lane]) -> tuple[Any, list[Part]] | None:
        """Begin a launch; None if no lane can go on before the host has looked at what is under way."""
        width = WIDTHS[-1] if len(lanes) <= FEW and any(_waiting(lane) > 1 for lane in lanes) else WIDTHS[0]
        count = 1 << (len(lanes) - 1).bit_length()
        parts: list[Part] = []
        told = [[0] * (HEADER + width)] * count
        extend = self._pool.extend
        for number, lane in enumerate(lanes):
            row = lane.row
            if row.finish is not None or row.error is not None:
                continue
            try:
                part = self._resumed(lane, number) if lane.is_choosing else self._given(lane, number, width)
            except Exception as error:
                row.error = error
                continue
            if part is None:
                continue
            start = len(row.table.tokens) + lane.sent
            if not extend(row.table, start + part.count):
                continue
            parts.append(part)
            first = lane.sent
            tokens = [0] if part.resumes else row.pending[first : first + part.count]
            told[number] = [part.resumes, part.count, start, part.record, *tokens, *[0] * (width - len(tokens))]
        return (self._backend.launch(self._told(told, count, width, parts)), parts) if parts else None

    def _told(self, told: list[list[int]], count: int, width: int, parts: Sequence[Part]) -> Launch:
        """What a launch is told; from now on its parts are under way."""
        longest = max(len(part.lane.row.table.blocks) for part in parts)
        rows = np.zeros((count, HEADER + width + _bucket(longest)), np.int32)
        rows[:, : HEADER + width] = told
        choices = np.zeros((5, count))
        choices[TOP_K], choices[TOP_P] = self._size, 1
        for part in parts:
            lane, number = part.lane, part.number
            blocks = lane.row.table.blocks
            rows[number, HEADER + width : HEADER + width + len(blocks)] = blocks
            search = lane.row.request.search
            if part.chooses and isinstance(search, Sample):
                _tell(choices[:, number], search, lane, part)
            lane.sent += part.count
            lane.is_choosing = part.chooses
            lane.closing = None
        is_filtered = bool((choices[TOP_K] < self._size).any() or (choices[TOP_P] < 1).any())
        return Launch(rows, width, choices, not choices[TEMPERATURE].any(), is_filtered, self._records.news())

    def _resumed(self, lane: Lane, number: int) -> Part | None:
        """A lane goes on from what it chooses in the launch before; None if its last token is under way there."""
        return None if lane.row.left < 2 else Part(lane, number, 1, True, lane.era, resumes=True)

    def _given(self, lane: Lane, number: int, width: int) -> Part:
        """A lane reads tokens that the host knows. Raises what its guide does."""
        waiting = len(lane.row.pending) - lane.sent
        if waiting > width:
            return Part(lane, number, width, False, lane.era)
        record, is_closing = self._record(lane, number)
        return Part(lane, number, waiting, True, lane.era, record=record, is_closing=is_closing)

    def _record(self, lane: Lane, number: int) -> tuple[int, bool]:
        """The record that a lane chooses out of next, and whether it is one of masks that hold once."""
        row = lane.row
        if lane.closing is None and self._rows.is_tight(row):
            lane.closing = self._rows.closing_mask(row), 0
        if lane.closing is not None:
            return self._records.once(number, lane.closing[0]), True
        try:
            return self._records.record(_key(row)), False
        except FullError:
            assert row.guide_cache is not None
            return self._records.once(number, row.guide_cache.mask(row.state, row.request.stop_ids)), False

    def _collect(self, answer: Any, parts: Sequence[Part]) -> None:
        """Let rows have what a launch chose."""
        tokens, known = answer[:, TOKEN].tolist(), answer[:, KNOWN].tolist()
        for part in parts:
            lane, row, number = part.lane, part.lane.row, part.number
            if part.era != lane.era or row.finish is not None or row.error is not None:
                continue
            assert tokens[number] != INACTIVE, "what is under way for a lane is void when it is known that it pauses"
            try:
                self._take(lane, part, tokens[number], bool(known[number]))
            except Exception as error:
                row.error = error

    def _take(self, lane: Lane, part: Part, token: int, is_known: bool) -> None:
        """One lane's part of a launch: what it read, and its choice unless that must be made again."""
        row, count = lane.row, part.count
        if part.chooses and token != UNUSABLE and row.guide_cache is not None:
            attempt = self._wrong(row, part, token)
            if attempt is not None:
                self._void(lane)
                lane.closing = self._rows.closing_mask(row), attempt
                return
        table, read = row.table, row.pending[:count]
        if lane.fresh:
            lane.fresh -= count
        else:
            self._pool.recognise(table, read)
        table.tokens += read
        row.pending = row.pending[count:]
        lane.sent -= count
        self._pool.trim(table)
        if not part.chooses:
            return
        if token == UNUSABLE:
            row.error = unusable(row)
            return
        before = None if is_known or part.is_closing else self._records.find(_key(row))
        self._rows.commit(row, token)
        self._missing += _MEMORY * ((not is_known) - self._missing)
        if row.done:
            return
        is_single = row.pending == [token]
        if not (is_known and is_single and lane.sent):
            self._void(lane)
        if is_single and before and not self._rows.is_tight(row):
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


def _tell(choice: Any, search: Sample, lane: Lane, part: Part) -> None:
    """How a lane's row chooses; the number of the draw is that of the token."""
    attempt = 0 if lane.closing is None else lane.closing[1]
    choice[TEMPERATURE], choice[TOP_P], choice[MIN_P] = search.temperature, search.top_p, search.min_p
    if search.top_k is not None:
        choice[TOP_K] = min(search.top_k, choice[TOP_K])
    choice[UNIFORM] = uniform(lane.row.request.key, len(lane.row.tokens) + part.resumes, attempt)


def _is_plain(row: Row) -> bool:
    """Whether nothing is asked of a row but its tokens, one after the other."""
    request: Request = row.request
    return (
        not (request.scores or request.diagnostics)
        and request.is_plain
        and type(request.search) in _SEARCHES
        and 0 < len(row.pending) <= BLOCK
        and (len(row.pending) == 1 or bool(row.tokens))
    )


def _bucket(blocks: int) -> int:
    """Room for so many blocks of a text: 16, 64, 256, ..."""
    room = 16
    while room < blocks:
        room *= 4
    return room
