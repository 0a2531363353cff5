"""Lanes: rows that read and choose launch after launch, the host a launch behind.

A row whose next state is known on the device goes on there by itself. Where it is not known the lane pauses, the host
says how it goes on, and what it says is known from then on. What a row is told in the end is decided here alone: what
a lane chose under a mask that turns out to be too wide, since the text must come to its end, is chosen again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ...kernels.lanes.layout import HEADER, INACTIVE, UNKNOWN, UNUSABLE
from ...tokenizers_adapter import Vocabulary
from ..decode.randomness import uniform
from ..decode.row import Request, Row
from ..decode.row_search import RowSearch, unusable
from ..memory.pool import BlockPool
from ..memory.tables import BLOCK
from ..search import Greedy, Sample
from .backend import FEW, LANES, MIN_P, TEMPERATURE, TOP_K, TOP_P, UNIFORM, WIDTHS, Backend, Launch
from .parts import Begun, Lane, Part
from .records import FullError, Key, Records
from .riders import Numbers, Riders

AHEAD = 2
"""Launches under way at once: while one runs the host looks at the one before."""
_MISSES = 0.25
"""Where more than that share of choices leads to what is not known, lanes wait for the host instead."""
_MEMORY = 0.05
_SEARCHES = (Greedy, Sample)
"""Those that lanes know; a caller's own, also one derived of these, may choose otherwise."""


class Lanes:
    """The rows of one plan. `run` ends with no launch under way, and rows as a step leaves them."""

    def __init__(
        self, rows: RowSearch, pool: BlockPool, backend: Backend, records: Records, vocabulary: Vocabulary
    ) -> None:
        self._rows = rows
        self._pool = pool
        self._backend = backend
        self._records = records
        self._vocabulary = vocabulary
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
        lanes = [Lane(number, row, len(row.pending)) for number, row in enumerate(works)]
        self._lanes, self._afoot, self._eras = lanes, dict(enumerate(lanes)), np.zeros(len(lanes), np.int64)
        self._riders = Riders(_padded(len(lanes)), self._pool, self._records, self._special(works))
        under_way: deque[Begun] = deque()
        launched = 0
        try:
            while True:
                afoot = self._afoot.values()
                live = len(self._riders) + sum(not lane.row.done for lane in afoot)
                ahead = AHEAD if self._missing <= _MISSES else 1
                begun = None
                goes_on = launched < most and 2 * live > len(lanes) and not (launched and is_over())
                if goes_on or any(lane.fresh and not lane.row.done for lane in afoot):
                    begun = self._launch()
                if begun is not None:
                    under_way.append(begun)
                    launched += 1
                    self._records.widen()
                if under_way and (begun is None or len(under_way) >= ahead):
                    self._collect(under_way.popleft())
                    while len(under_way) >= ahead:
                        self._collect(under_way.popleft())
                elif begun is None:
                    assert not len(self._riders), "nothing is under way for a rider that is told of"
                    return not any(lane.fresh for lane in lanes)
        finally:
            for lane in lanes:
                self._pool.shrink(lane.row.table)

    def _special(self, works: Sequence[Row]) -> NDArray[np.bool_]:
        """The tokens that end texts, bool [V]: those of all rows, since what ends none of them is just looked at."""
        special = np.zeros(self._vocabulary.size, np.bool_)
        special[list(frozenset(self._vocabulary.eos_ids).union(*{row.request.stop_ids for row in works}))] = True
        return special

    def _launch(self) -> Begun | None:
        """Begin a launch; None if no lane can go on before the host has looked at what is under way."""
        afoot, few = self._afoot.values(), len(self._lanes) <= FEW
        width = WIDTHS[-1] if few and any(_waiting(lane) > 1 for lane in afoot) else WIDTHS[0]
        parts: list[Part] = []
        told: list[list[int]] = []
        for lane in afoot:
            row = lane.row
            if row.finish is not None or row.error is not None:
                continue
            try:
                part = self._resumed(lane) if lane.is_choosing else self._given(lane, width)
            except Exception as error:
                row.error = error
                continue
            if part is None:
                continue
            start = len(row.table.tokens) + lane.sent
            if not self._pool.extend(row.table, start + part.count):
                continue
            parts.append(part)
            first = lane.sent
            tokens = [0] if part.resumes else row.pending[first : first + part.count]
            told.append([part.resumes, part.count, start, part.record, *tokens, *[0] * (width - len(tokens))])
        riders = self._riders.ready()
        if not parts and not len(riders):
            return None
        launch = self._told(told, width, parts, riders)
        return Begun(self._backend.launch(launch), parts, riders, self._eras[riders])

    def _told(self, told: list[list[int]], width: int, parts: Sequence[Part], riders: Numbers) -> Launch:
        """What a launch is told; from now on its parts, and what it reads for riders, are under way."""
        count = _padded(len(self._lanes))
        longest = max([self._riders.longest(riders), *(len(part.lane.row.table.blocks) for part in parts)])
        rows = np.zeros((count, HEADER + width + _bucket(longest)), np.int32)
        choices = self._greedily(count)
        if parts:
            rows[[part.lane.number for part in parts], : HEADER + width] = told
        for part in parts:
            lane, number = part.lane, part.lane.number
            blocks = lane.row.table.blocks
            rows[number, HEADER + width : HEADER + width + len(blocks)] = blocks
            search = lane.row.request.search
            if part.chooses and isinstance(search, Sample):
                _tell(choices[:, number], search)
                step = len(lane.row.tokens) + part.resumes
                choices[UNIFORM, number] = uniform(lane.row.request.key, step, lane.attempt or 0)
            lane.sent += part.count
            lane.is_choosing = part.chooses
            if part.chooses:
                lane.attempt = None
        self._riders.tell(riders, rows, width, choices)
        is_filtered = bool((choices[TOP_K] < self._vocabulary.size).any() or (choices[TOP_P] < 1).any())
        return Launch(rows, width, choices, not choices[TEMPERATURE].any(), is_filtered, self._records.news())

    def _greedily(self, *lanes: int) -> NDArray[np.float64]:
        """The choice of the most likely token, float64 [5, *lanes], for which nothing is left out."""
        choices = np.zeros((5, *lanes))
        choices[TOP_K], choices[TOP_P] = self._vocabulary.size, 1
        return choices

    def _part(self, lane: Lane, count: int, *, chooses: bool, **more: Any) -> Part:
        """A part of what a lane does from now on."""
        return Part(lane, count, chooses, int(self._eras[lane.number]), **more)

    def _resuming(self, lane: Lane) -> Part:
        """A lane reads what it chooses in the launch before."""
        return self._part(lane, 1, chooses=True, resumes=True)

    def _resumed(self, lane: Lane) -> Part | None:
        """A lane goes on from what it chooses in the launch before; None if its last token is under way there."""
        return None if lane.row.left < 2 else self._resuming(lane)

    def _given(self, lane: Lane, width: int) -> Part:
        """A lane reads tokens that the host knows. Raises what its guide does."""
        waiting = len(lane.row.pending) - lane.sent
        if waiting > width:
            return self._part(lane, width, chooses=False)
        if lane.attempt is None and self._rows.is_tight(lane.row):
            lane.attempt = 0
        is_closing = lane.attempt is not None
        record = self._record(lane, is_closing)
        return self._part(lane, waiting, chooses=True, record=record, is_closing=is_closing)

    def _record(self, lane: Lane, is_closing: bool) -> int:
        """The record that a lane chooses out of next, which may be one that holds once."""
        row = lane.row
        try:
            return self._records.record(_key(row, is_closing))
        except FullError:
            assert row.guide_cache is not None
            left = row.left if is_closing else None
            return self._records.once(lane.number, row.guide_cache.mask(row.state, row.request.stop_ids, left))

    def _collect(self, begun: Begun) -> None:
        """Let rows have what a launch chose."""
        answer = self._backend.answer(begun.handle)
        is_riding, lanes = self._riders.is_riding, self._lanes
        valid = begun.riders[begun.eras == self._eras[begun.riders]]
        riders = valid[is_riding[valid]]
        numbers: list[int] = valid[~is_riding[valid]].tolist()
        parts = [part for part in begun.parts if part.era == self._eras[part.lane.number]]
        chosen = [part for part in parts if not is_riding[part.lane.number]]
        if len(chosen) < len(parts):
            mounted = [part.lane.number for part in parts if is_riding[part.lane.number]]
            riders = np.concatenate((riders, np.array(mounted, np.intp)))
        if len(riders):
            count, others = self._riders.take(riders, answer)
            self._missing *= (1 - _MEMORY) ** count
            for number in others:
                self._dismount(lanes[number])
            numbers += others
        chosen += [self._resuming(lanes[number]) for number in numbers]
        for part in chosen:
            lane = part.lane
            if lane.row.finish is not None or lane.row.error is not None:
                continue
            token, after = answer[lane.number].tolist()
            assert token != INACTIVE, "what is under way for a lane is void when it is known that it pauses"
            try:
                self._take(lane, part, token, after)
            except Exception as error:
                lane.row.error = error

    def _mount(self, lane: Lane) -> None:
        """Let a lane ride."""
        choices = self._greedily()
        search = lane.row.request.search
        if isinstance(search, Sample):
            _tell(choices, search)
        del self._afoot[lane.number]
        self._riders.mount(lane.number, lane.row, lane.sent, choices)

    def _dismount(self, lane: Lane) -> None:
        """Let a lane go by itself again; its row is told what was chosen meanwhile."""
        last, lane.sent = self._riders.dismount(lane.number, self._vocabulary.tokens)
        if last is not None:
            lane.was_closing = self._records.is_closing(last)
        self._afoot[lane.number] = lane

    def _take(self, lane: Lane, part: Part, token: int, after: int) -> None:
        """One lane's part of a launch: what it read, and its choice unless that must be made again."""
        row, count = lane.row, part.count
        if token == UNUSABLE and part.chooses and row.guide_cache is not None:
            # What is forced needs no logits, though a mask of it alone was chosen under.
            forced = row.guide_cache.allowed(row.state).forced
            token = UNUSABLE if forced < 0 else forced
        is_closing = part.is_closing or (part.resumes and lane.was_closing and self._rows.is_tight(row))
        if part.chooses and token != UNUSABLE and row.guide_cache is not None and not is_closing:
            attempt = self._wrong(row, part, token)
            if attempt is not None:
                self._void(lane)
                lane.attempt = attempt
                return
        self._read(lane, count)
        if not part.chooses:
            return
        if token == UNUSABLE:
            row.error = unusable(row)
            return
        is_known = after != UNKNOWN
        key = None if is_known else _key(row, is_closing)
        self._rows.commit(row, token)
        self._missing += _MEMORY * ((not is_known) - self._missing)
        if row.done:
            return
        lane.was_closing = is_closing
        is_single = row.pending == [token]
        is_tight = self._rows.is_tight(row)
        if not (is_known and is_single and lane.sent):
            self._void(lane)
        elif (is_closing or not is_tight) and self._may_ride(lane):
            self._records.note(after)
            self._mount(lane)
        if key is not None and (is_single if is_closing else not is_tight):
            with suppress(FullError):
                self._follow(key, row, is_tight)

    def _follow(self, key: Key, row: Row, is_tight: bool) -> None:
        """Let the device know where a row's pending tokens lead: what was chosen, and what is forced after it, which is
        chosen there under a mask of that token alone. Raises FullError."""
        before, last = self._records.find(key), _key(row, is_tight)
        is_forced = len(row.pending) > 1
        if not before or (is_forced and (last is None or last.guide_cache is not key.guide_cache)):
            return
        if key.stop_ids.intersection(row.pending[1:]):
            return  # what is forced ends no text, but what is chosen does
        for token in row.pending[:-1]:
            guide = key.guide_cache.guide
            key = key._replace(state=guide.advance(key.state, token))
            if key.stop_ids and guide.is_accepting(key.state):
                return  # its mask has these ids too
            before = self._led(before, token, key, row)
        self._led(before, row.pending[-1], last, row)

    def _led(self, before: int, token: int, key: Key | None, row: Row) -> int:
        """The record of a state into which a token leads."""
        after = self._records.record(key)
        if key is not None and key.guide_cache.fits(key.state, row.left):
            self._records.note(after)
        self._records.follow(before, token, after)
        return after

    def _read(self, lane: Lane, count: int) -> None:
        """A lane has read its row's next tokens."""
        row, table = lane.row, lane.row.table
        read = row.pending[:count]
        if lane.fresh:
            lane.fresh -= count
        else:
            self._pool.recognise(table, read)
        table.tokens += read
        row.pending = row.pending[count:]
        lane.sent -= count
        row.steps += 1
        self._pool.trim(table)

    def _may_ride(self, lane: Lane) -> bool:
        """Whether nothing is to be looked at but which tokens a lane chooses."""
        row = lane.row
        is_told = not lane.fresh and row.left > 3 and row.state >= row.request.start.tail
        return is_told and not row.request.stop and self._pool.can_cut

    def _wrong(self, row: Row, part: Part, token: int) -> int | None:
        """The attempt with which a choice must be made again; None if it stands."""
        if part.resumes and self._rows.is_tight(row):
            return 0
        return None if self._rows.fits(row, token) else 1

    def _void(self, lane: Lane) -> None:
        """Let nothing come of what is under way for a lane."""
        self._eras[lane.number] += 1
        lane.sent = 0
        lane.is_choosing = False


def _waiting(lane: Lane) -> int:
    """How many tokens a lane has to read that the host knows."""
    return 0 if lane.row.done or lane.is_choosing else len(lane.row.pending) - lane.sent


def _key(row: Row, is_closing: bool) -> Key | None:
    guide_cache = row.guide_cache
    if guide_cache is None:
        return None
    return Key(*guide_cache.beyond(row.state), row.request.stop_ids, row.left if is_closing else None)


def _tell(choice: Any, search: Sample) -> None:
    """How a row chooses, but for the draw."""
    choice[TEMPERATURE], choice[TOP_P], choice[MIN_P] = search.temperature, search.top_p, search.min_p
    if search.top_k is not None:
        choice[TOP_K] = min(search.top_k, choice[TOP_K])


def _padded(count: int) -> int:
    """The next power of 2."""
    return 1 << (count - 1).bit_length()


def _is_plain(row: Row) -> bool:
    """Whether nothing is asked of a row but its tokens, one after the other."""
    request: Request = row.request
    return (
        not (request.scores or request.diagnostics)
        and request.is_plain
        and isinstance(request.draft, bool)
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
