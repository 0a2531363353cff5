"""The device batch: sequences that read and choose launch after launch, the host a launch behind.

A sequence whose next state is known on the device goes on there by itself. Where it is not known the slot pauses, the
host says how it goes on, and what it says is known from then on. What a sequence is told in the end is decided here
alone: what a slot chose under a mask that turns out to be too wide, since the text must end, is chosen again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from ...kernels.lanes.layout import (
    ATTEMPT,
    COUNT,
    FREE,
    GUESSED,
    HEADER,
    RESUME,
    START,
    TOKENS,
    UNKNOWN,
    UNUSABLE,
    room_of,
)
from ..decode.draft_history import AcceptanceRates
from ..decode.sampler import Sampler, place_of, unusable
from ..decode.sequence import SequenceState
from ..memory.pool import BlockPool, Pool
from ..memory.tables import BLOCK
from ..models.blocks.storage import BlockStorage, has_kernels
from ..models.decoder import DecoderModel
from ..models.protocol import Memory, Model
from ..search import Sample
from .backend import FEW, LANES, TEMPERATURE, TOP_K, TOP_P, WIDTHS, BatchBackend, DeviceBatchModel, Launch
from .slots import (
    ActiveSlots,
    BatchSlot,
    Guessed,
    Guesses,
    InFlight,
    Numbers,
    SlotStep,
    always_told,
    bucket,
    greedily,
    is_plain,
    key_of,
    padded,
    tell,
)
from .state_table import DeviceStateTable, FullError, StateKey

AHEAD = 2
"""Launches under way at once: while one runs the host looks at the one before."""
_MISSES = 0.25
"""The share of choices that may lead to what is not known; of more, slots wait for the host instead."""
_MEMORY = 0.05


class DeviceBatch:
    """The sequences of one plan. `run` ends with no launch under way, and sequences as a step leaves them."""

    def __init__(
        self, rows: Sampler, pool: BlockPool, backend: BatchBackend, records: DeviceStateTable, model: Model
    ) -> None:
        self._sampler = rows
        self._model = model
        self._pool = pool
        self._backend = backend
        self._records = records
        self._vocabulary = model.vocabulary
        self._odds = AcceptanceRates()
        self._missing = 0.0

    def takes(self, works: Sequence[Any]) -> TypeGuard[Sequence[SequenceState]]:
        """True if these can run as slots: sequences of which nothing is asked but their tokens, with little to read."""
        return len(works) <= LANES and all(isinstance(work, SequenceState) and is_plain(work) for work in works)

    def run(self, works: Sequence[SequenceState], most: int, is_over: Callable[[], bool]) -> bool:
        """Up to `most` launches, fewer once `is_over` or when half of the slots are done, but all that was planned.

        Returns whether all that was planned has been read, which only an error of a sequence prevents: if not, the pool
        expects something in blocks that is not there.
        """
        if self._records.is_crowded:
            self._records.forget()
        self._backend.prepare()
        lanes = [BatchSlot(number, row, len(row.pending), always_told(row)) for number, row in enumerate(works)]
        self._lanes, self._hosted, self._eras = lanes, dict(enumerate(lanes)), np.zeros(len(lanes), np.int64)
        special, is_few = self._special(works), len(lanes) <= FEW
        self._guesses = Guesses(self._model, works, self._records, special, self._odds) if is_few else None
        self._active = ActiveSlots(padded(len(lanes)), self._pool, self._records, special, self._guesses)
        under_way: deque[InFlight] = deque()
        launched = 0
        try:
            while True:
                hosted = self._hosted.values()
                live = len(self._active) + sum(not lane.row.done for lane in hosted)
                ahead = AHEAD if self._missing <= _MISSES else 1
                begun = None
                goes_on = launched < most and 2 * live > len(lanes) and not (launched and is_over())
                if goes_on or any(lane.fresh and not lane.row.done for lane in hosted):
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
                    assert not len(self._active), "nothing is under way for an active slot that is told of"
                    return not any(lane.fresh for lane in lanes)
        finally:
            for lane in lanes:
                self._pool.shrink(lane.row.table)

    def _special(self, works: Sequence[SequenceState]) -> NDArray[np.bool_]:
        """The tokens that end texts, bool [V]: those of all sequences, as what ends none of them is only looked at."""
        special = np.zeros(self._vocabulary.size, np.bool_)
        special[list(frozenset(self._vocabulary.eos_ids).union(*{row.request.stop_ids for row in works}))] = True
        return special

    def _launch(self) -> InFlight | None:
        """Begin a launch; None if no slot can go on before the host has looked at what is under way."""
        guessed = self._guessed()
        width = WIDTHS[bool(guessed) or self._is_wide()]
        parts: list[SlotStep] = []
        told: list[list[int]] = []
        for lane in self._hosted.values():
            row = lane.row
            if row.finish is not None or row.error is not None:
                continue
            try:
                part = self._resumed(lane, width) if lane.is_choosing else self._given(lane, width)
            except Exception as error:
                row.error = error
                continue
            if part is None:
                continue
            start, first = len(row.table.tokens) + lane.sent, lane.sent
            if not self._pool.extend(row.table, start + part.count):
                room = len(row.table.blocks) * BLOCK - start
                if room < 1 or not part.resumes:
                    continue
                part.count = room
            parts.append(part)
            tokens = [] if part.resumes else row.pending[first : first + part.count]
            padding = [0] * (room_of(width) - len(tokens))
            told.append([part.resumes, part.count, start, part.record, 0, *lane.told, *tokens, *padding])
        active, limits = self._active.ready(width)
        if not parts and not len(active):
            return None
        launch = self._told(told, width, parts, active, limits)
        for number, (place, tokens) in guessed.items():
            if launch.rows[number, RESUME]:
                launch.rows[number, [START, GUESSED]] = place, len(tokens)
                launch.rows[number, HEADER : HEADER + len(tokens)] = tokens
        return InFlight(self._backend.launch(launch), parts, active, limits, self._eras[active])

    def _guessed(self) -> dict[int, Guessed]:
        """By the numbers of slots that go on from their last choice, how their texts are likely to."""
        found: dict[int, Guessed] = {}
        if self._guesses is not None:
            most = room_of(WIDTHS[-1]) - 1
            for lane in self._hosted.values():
                row = lane.row
                record = None if row.done or not lane.is_choosing else self._records.find(key_of(row, is_closing=False))
                tokens = [] if record is None else self._guesses.after(row, (), record, most)
                if tokens:
                    found[lane.number] = Guessed(len(row.table.tokens) + len(row.pending) - 1, tokens)
            found |= self._active.guessed(most)
        return found

    def _is_wide(self) -> bool:
        """True if slots read several tokens in the next launch: where they are few, and one knows more than one token,
        or some are forced behind the state it was in last, or were behind the next one."""
        if len(self._lanes) > FEW:
            return False
        hosted = [lane for lane in self._hosted.values() if not lane.row.done]
        return self._active.is_near or any(_waiting(lane) > 1 or self._records.near[lane.record] for lane in hosted)

    def _told(
        self, told: list[list[int]], width: int, parts: Sequence[SlotStep], active: Numbers, limits: NDArray[np.int32]
    ) -> Launch:
        """The data of a launch; from now on its parts, and what it reads for active slots, are under way."""
        count = padded(len(self._lanes))
        longest = max([self._active.longest(active), *(len(part.lane.row.table.blocks) for part in parts)])
        first = HEADER + room_of(width)
        rows = np.zeros((count, first + bucket(longest)), np.int32)
        choices = greedily(self._vocabulary.size, count)
        if parts:
            rows[[part.lane.number for part in parts], :first] = told
        for part in parts:
            lane, number = part.lane, part.lane.number
            blocks = lane.row.table.blocks
            rows[number, first : first + len(blocks)] = blocks
            search = lane.row.request.search
            if part.chooses and isinstance(search, Sample):
                tell(choices[:, number], search)
                rows[number, ATTEMPT] = lane.attempt or 0
            lane.sent += part.count
            lane.flying += 1
            lane.is_choosing = part.chooses
            if part.chooses:
                lane.attempt = None
        self._active.tell(active, limits, rows, width, choices)
        is_filtered = bool((choices[TOP_K] < self._vocabulary.size).any() or (choices[TOP_P] < 1).any())
        return Launch(rows, width, choices, not choices[TEMPERATURE].any(), is_filtered, self._records.news())

    def _part(self, lane: BatchSlot, count: int, *, chooses: bool, **more: Any) -> SlotStep:
        """A part of what a slot does from now on."""
        return SlotStep(lane, count, chooses, int(self._eras[lane.number]), **more)

    def _resuming(self, lane: BatchSlot, limit: int) -> SlotStep:
        """A slot reads what it chooses in the launch before, and what is forced behind it, up to so many tokens."""
        return self._part(lane, limit, chooses=True, resumes=True)

    def _resumed(self, lane: BatchSlot, width: int) -> SlotStep | None:
        """A slot goes on from what it chooses in the launch before; None if its last token may be under way there."""
        limit = min(width, len(lane.row.pending) + lane.row.left - 1 - lane.sent)
        return self._resuming(lane, limit) if limit > 0 else None

    def _given(self, lane: BatchSlot, width: int) -> SlotStep:
        """A slot reads tokens that the host knows. Raises what its guide does."""
        waiting = len(lane.row.pending) - lane.sent
        if waiting > width:
            return self._part(lane, width, chooses=False)
        if lane.attempt is None and self._sampler.is_tight(lane.row):
            lane.attempt = 0
        is_closing = lane.attempt is not None
        record = self._record(lane, is_closing)
        return self._part(lane, waiting, chooses=True, record=record, is_closing=is_closing)

    def _record(self, lane: BatchSlot, is_closing: bool) -> int:
        """The record that a slot chooses out of next, which may be one that holds once."""
        row = lane.row
        try:
            return self._records.record(key_of(row, is_closing))
        except FullError:
            assert row.guide_cache is not None
            left = row.left if is_closing else None
            return self._records.once(lane.number, row.guide_cache.mask(row.state, row.request.stop_ids, left))

    def _collect(self, begun: InFlight) -> None:
        """Let sequences have what a launch chose."""
        answer = self._backend.answer(begun.handle)
        lanes, is_active = self._lanes, self._active.is_active
        parts = [part for part in begun.parts if part.era == self._eras[part.lane.number]]
        chosen = [part for part in parts if not is_active[part.lane.number]]
        valid = begun.eras == self._eras[begun.active]
        numbers, limits = begun.active[valid], begun.limits[valid]
        if len(chosen) < len(parts):
            mounted = [part for part in parts if is_active[part.lane.number]]
            numbers = np.concatenate((numbers, np.array([part.lane.number for part in mounted], np.intp)))
            limits = np.concatenate((limits, np.array([part.count for part in mounted], np.int32)))
        active_numbers = is_active[numbers]
        chosen += [
            self._resuming(lanes[number], limit)
            for number, limit in _pairs(numbers[~active_numbers], limits[~active_numbers])
        ]
        numbers, limits = numbers[active_numbers], limits[active_numbers]
        if len(numbers):
            count, others = self._active.take(numbers, limits, answer)
            self._missing *= (1 - _MEMORY) ** count
            for number, limit in _pairs(numbers[others], limits[others]):
                self._deactivate(lanes[number])
                chosen.append(self._resuming(lanes[number], limit))
        for part in chosen:
            lane = part.lane
            if lane.row.finish is not None or lane.row.error is not None:
                continue
            try:
                self._take(lane, part, answer[lane.number])
            except Exception as error:
                lane.row.error = error

    def _activate(self, lane: BatchSlot) -> None:
        """Let a slot ride."""
        choices = greedily(self._vocabulary.size)
        search = lane.row.request.search
        if isinstance(search, Sample):
            tell(choices, search)
        del self._hosted[lane.number]
        self._active.add(lane, choices)

    def _deactivate(self, lane: BatchSlot) -> None:
        """Let a slot go by itself again; its sequence is told what was chosen meanwhile."""
        if self._active.flush(lane, self._vocabulary.tokens):
            row, count = lane.row, len(lane.row.tokens)
            lane.was_closing = self._records.is_closing(lane.record)
            self._sampler.settle(row)
            self._learn(row, count, is_chosen=False)
        self._hosted[lane.number] = lane

    def _take(self, lane: BatchSlot, part: SlotStep, answer: NDArray[np.int32]) -> None:
        """One slot's part of a launch: what it read, and its choice unless that must be made again."""
        row, read = lane.row, int(answer[COUNT])
        assert read, "what is under way for a lane is void when it is known that it pauses"
        tokens, after = answer[TOKENS:].reshape(2, -1)[:, :read].tolist()
        lane.sent -= part.count
        lane.flying -= 1
        begin = len(row.table.tokens)
        if not part.resumes:
            self._took(lane, part, read, tokens[-1], after[-1])
        else:
            for place in range(read):
                is_last = place == read - 1
                if row.done or not self._took(lane, part, 1, tokens[place], after[place], is_last=is_last):
                    break
        row.steps += len(row.table.tokens) > begin

    def _took(
        self, lane: BatchSlot, part: SlotStep, count: int, token: int, after: int, *, is_last: bool = True
    ) -> bool:
        """A slot read so many tokens, and chose another. Returns whether that stands.

        after: the record after it
        """
        row = lane.row
        if not part.chooses or len(row.pending) > count:
            assert not part.chooses or token == row.pending[count], "what is forced is known to both"
            self._read(lane, count)
            if part.chooses:
                self._go_on(lane, after, is_last)
            return True
        is_closing = part.is_closing or (part.resumes and lane.was_closing and self._sampler.is_tight(row))
        if token != UNUSABLE and row.guide_cache is not None and not is_closing:
            attempt = self._wrong(row, part, token)
            if attempt is not None:
                self._void(lane)
                lane.attempt = attempt
                return False
        self._read(lane, count)
        if token == UNUSABLE:
            row.error = unusable(place_of(row))
            return False
        is_known = after != UNKNOWN
        key = None if is_known else key_of(row, is_closing)
        made = len(row.tokens)
        self._sampler.commit(row, token)
        self._learn(row, made, is_chosen=True)
        self._missing += _MEMORY * ((not is_known) - self._missing)
        if row.done:
            return False
        lane.was_closing = is_closing
        is_single, is_tight = row.pending == [token], self._sampler.is_tight(row)
        self._go_on(lane, after, is_last)
        if key is not None and (is_single if is_closing else not is_tight):
            with suppress(FullError):
                self._follow(key, row, is_tight)
        return True

    def _go_on(self, lane: BatchSlot, after: int, is_last: bool) -> None:
        """A slot has its next token: let it ride, or go on, if it is known there and something is under way for it."""
        row, lane.record = lane.row, max(after, FREE)
        if after == UNKNOWN or (is_last and not lane.flying):
            self._void(lane)
        elif is_last and self._may_ride(lane) and (lane.was_closing or not self._sampler.is_tight(row)):
            self._records.note(after)
            self._activate(lane)

    def _follow(self, key: StateKey, row: SequenceState, is_tight: bool) -> None:
        """Let the device know where a sequence's pending tokens lead: what was chosen, and what is forced after it.
        Raises FullError.
        """
        before, last = self._records.find(key), key_of(row, is_tight)
        is_forced = len(row.pending) > 1
        if not before or (is_forced and (last is None or last.guide_cache is not key.guide_cache)):
            return
        for token in row.pending[:-1]:
            guide = key.guide_cache.guide
            key = key._replace(state=guide.advance(key.state, token))
            before = self._records.lead(before, token, key, row.left)
        self._records.lead(before, row.pending[-1], last, row.left)

    def _read(self, lane: BatchSlot, count: int) -> None:
        """A slot has read its sequence's next tokens."""
        row, table = lane.row, lane.row.table
        read = row.pending[:count]
        if lane.fresh:
            lane.fresh -= count
        else:
            self._pool.recognise(table, read)
        table.tokens += read
        row.pending = row.pending[count:]
        self._pool.trim(table)

    def _learn(self, row: SequenceState, count: int, *, is_chosen: bool) -> None:
        """A sequence had so many tokens before; those after the next one followed from it."""
        if self._guesses is not None:
            self._guesses.learn(row, row.tokens[count:], chain((is_chosen,), repeat(False)))

    def _may_ride(self, lane: BatchSlot) -> bool:
        """True if nothing is to be looked at but which tokens a slot chooses."""
        row = lane.row
        is_told = not lane.fresh and row.left > 3 and row.state >= row.request.start.tail
        return is_told and len(row.pending) == 1 and not row.request.stop and self._pool.can_cut

    def _wrong(self, row: SequenceState, part: SlotStep, token: int) -> int | None:
        """The attempt with which a choice must be made again; None if it stands."""
        if part.resumes and self._sampler.is_tight(row):
            return 0
        return None if self._sampler.fits(row, token) else 1

    def _void(self, lane: BatchSlot) -> None:
        """Let nothing come of what is under way for a slot."""
        self._eras[lane.number] += 1
        lane.sent = lane.flying = 0
        lane.is_choosing = False


def _waiting(lane: BatchSlot) -> int:
    """Number of tokens, at least, that a slot has to read and the host knows."""
    return len(lane.row.pending) - lane.sent


def _pairs(numbers: Numbers, limits: NDArray[np.int32]) -> list[tuple[int, int]]:
    return list(zip(numbers.tolist(), limits.tolist(), strict=True))


_KINDS = {torch.float32, torch.float16, torch.bfloat16}


def batch_of(model: Model, memory: Memory, sequences: Sampler, pool: Pool) -> DeviceBatch | None:
    """The device batch of sequences whose texts lie in a model's memory; None where its device, or the model, has none.

    On a GPU that Triton knows: decoders that read packed steps, keep keys and values only, and have a head apart, all
    of them on that device.
    """
    if not isinstance(pool, BlockPool):
        return None
    if isinstance(model, DeviceBatchModel):
        make = model.lanes
    elif isinstance(model, DecoderModel) and isinstance(memory, BlockStorage) and _has_graphs(model):
        parts = model.parts
        if parts is None or model.state_bytes:
            return None
        from .graphs import GraphBackend

        make = partial(GraphBackend, *parts, vocabulary=model.vocabulary, device=model.device)
    else:
        return None
    records = DeviceStateTable(LANES, model.vocabulary.size)
    backend = make(memory, records)
    return None if backend is None else DeviceBatch(sequences, pool, backend, records, model)


def _has_graphs(model: DecoderModel) -> bool:
    if not has_kernels(model.device) or model.model.dtype not in _KINDS:
        return False
    return all(weights.device == model.device for weights in model.model.parameters())
