"""The device batch: sequences read and choose launch after launch, with the host one launch behind.

A sequence whose next state the device knows continues there without the host. At an unknown state its slot pauses, and
the host adds the transition to the state table. The host alone decides what a sequence receives. A token that was
chosen under a mask too wide for the remaining budget is chosen again.
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

from ...kernels.device_batch.layout import (
    ATTEMPT,
    COUNT,
    DRAFTED,
    FREE,
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
from .backend import FEW, SLOTS, TEMPERATURE, TOP_K, TOP_P, WIDTHS, BatchBackend, DeviceBatchModel, Launch
from .slots import (
    ActiveSlots,
    BatchSlot,
    DraftedSlot,
    Numbers,
    PendingLaunch,
    SlotDrafter,
    SlotStep,
    bucket,
    constant_columns,
    greedy_choices,
    is_plain,
    key_of,
    padded,
    write_choices,
)
from .state_table import DeviceStateTable, FullError, StateKey

AHEAD = 2
"""Launches in flight at once: the host processes one while the next one runs."""
_MISSES = 0.25
"""Share of choices with unknown transitions above which only one launch is in flight."""
_MEMORY = 0.05


class DeviceBatch:
    """The sequences of one plan. After `run` no launch is in flight, and sequences are as after a step."""

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
        """Test whether sequences can run in slots: only tokens are requested, and little is left to read."""
        return len(works) <= SLOTS and all(isinstance(work, SequenceState) and is_plain(work) for work in works)

    def run(self, works: Sequence[SequenceState], most: int, is_over: Callable[[], bool]) -> bool:
        """Run up to `most` launches. Stop early if `is_over`, or if half of the slots are done and all planned tokens
        are sent.

        Return True if all planned tokens were read. Only a sequence's error prevents this. The pool then has blocks
        registered whose contents were not written.
        """
        if self._records.is_crowded:
            self._records.forget()
        self._backend.prepare()
        slots = [BatchSlot(number, row, len(row.pending), constant_columns(row)) for number, row in enumerate(works)]
        self._slots, self._hosted, self._eras = slots, dict(enumerate(slots)), np.zeros(len(slots), np.int64)
        special, is_few = self._special(works), len(slots) <= FEW
        self._drafter = SlotDrafter(self._model, works, self._records, special, self._odds) if is_few else None
        self._active = ActiveSlots(padded(len(slots)), self._pool, self._records, special, self._drafter)
        under_way: deque[PendingLaunch] = deque()
        launched = 0
        try:
            while True:
                hosted = self._hosted.values()
                live = len(self._active) + sum(not slot.row.done for slot in hosted)
                ahead = AHEAD if self._missing <= _MISSES else 1
                launch = None
                goes_on = launched < most and 2 * live > len(slots) and not (launched and is_over())
                if goes_on or any(slot.fresh and not slot.row.done for slot in hosted):
                    launch = self._launch()
                if launch is not None:
                    under_way.append(launch)
                    launched += 1
                    self._records.widen()
                if under_way and (launch is None or len(under_way) >= ahead):
                    self._collect(under_way.popleft())
                    while len(under_way) >= ahead:
                        self._collect(under_way.popleft())
                elif launch is None:
                    assert not len(self._active), "nothing is under way for an active slot that is told of"
                    return not any(slot.fresh for slot in slots)
        finally:
            for slot in slots:
                self._pool.shrink(slot.row.table)

    def _special(self, works: Sequence[SequenceState]) -> NDArray[np.bool_]:
        """Return the tokens that end texts, bool [V]: those of all sequences, since a false one only costs a check."""
        special = np.zeros(self._vocabulary.size, np.bool_)
        special[list(frozenset(self._vocabulary.eos_ids).union(*{row.request.stop_ids for row in works}))] = True
        return special

    def _launch(self) -> PendingLaunch | None:
        """Start a launch. Return None if every slot has to wait for the host."""
        drafted = self._find_drafts()
        width = WIDTHS[bool(drafted) or self._is_wide()]
        parts: list[SlotStep] = []
        columns: list[list[int]] = []
        for slot in self._hosted.values():
            row = slot.row
            if row.finish is not None or row.error is not None:
                continue
            try:
                part = self._resume_within_budget(slot, width) if slot.is_choosing else self._read_pending(slot, width)
            except Exception as error:
                row.error = error
                continue
            if part is None:
                continue
            start, first = len(row.table.tokens) + slot.sent, slot.sent
            if not self._pool.extend(row.table, start + part.count):
                room = len(row.table.blocks) * BLOCK - start
                if room < 1 or not part.resumes:
                    continue
                part.count = room
            parts.append(part)
            tokens = [] if part.resumes else row.pending[first : first + part.count]
            padding = [0] * (room_of(width) - len(tokens))
            columns.append([part.resumes, part.count, start, part.record, 0, *slot.constants, *tokens, *padding])
        active, limits = self._active.ready(width)
        if not parts and not len(active):
            return None
        launch = self._build_launch(columns, width, parts, active, limits)
        for number, (place, tokens) in drafted.items():
            if launch.rows[number, RESUME]:
                launch.rows[number, [START, DRAFTED]] = place, len(tokens)
                launch.rows[number, HEADER : HEADER + len(tokens)] = tokens
        return PendingLaunch(self._backend.launch(launch), parts, active, limits, self._eras[active])

    def _find_drafts(self) -> dict[int, DraftedSlot]:
        """Return drafts by slot number, for slots that continue from their last choice."""
        found: dict[int, DraftedSlot] = {}
        if self._drafter is not None:
            most = room_of(WIDTHS[-1]) - 1
            for slot in self._hosted.values():
                row = slot.row
                record = None if row.done or not slot.is_choosing else self._records.find(key_of(row, is_closing=False))
                tokens = [] if record is None else self._drafter.after(row, (), record, most)
                if tokens:
                    found[slot.number] = DraftedSlot(len(row.table.tokens) + len(row.pending) - 1, tokens)
            found |= self._active.drafts(most)
        return found

    def _is_wide(self) -> bool:
        """Test whether slots read several tokens in the next launch.

        There must be few slots. One of them must have several known tokens, or forced tokens after its last or next
        state.
        """
        if len(self._slots) > FEW:
            return False
        hosted = [slot for slot in self._hosted.values() if not slot.row.done]
        return self._active.is_near_forced or any(
            _waiting(slot) > 1 or self._records.near_forced[slot.record] for slot in hosted
        )

    def _build_launch(
        self,
        columns: list[list[int]],
        width: int,
        parts: Sequence[SlotStep],
        active: Numbers,
        limits: NDArray[np.int32],
    ) -> Launch:
        """Build the data of a launch, and count its work as in flight."""
        count = padded(len(self._slots))
        longest = max([self._active.longest(active), *(len(part.slot.row.table.blocks) for part in parts)])
        first = HEADER + room_of(width)
        rows = np.zeros((count, first + bucket(longest)), np.int32)
        choices = greedy_choices(self._vocabulary.size, count)
        if parts:
            rows[[part.slot.number for part in parts], :first] = columns
        for part in parts:
            slot, number = part.slot, part.slot.number
            blocks = slot.row.table.blocks
            rows[number, first : first + len(blocks)] = blocks
            search = slot.row.request.search
            if part.chooses and isinstance(search, Sample):
                write_choices(choices[:, number], search)
                rows[number, ATTEMPT] = slot.attempt or 0
            slot.sent += part.count
            slot.flying += 1
            slot.is_choosing = part.chooses
            if part.chooses:
                slot.attempt = None
        self._active.write_launch(active, limits, rows, width, choices)
        is_filtered = bool((choices[TOP_K] < self._vocabulary.size).any() or (choices[TOP_P] < 1).any())
        return Launch(rows, width, choices, not choices[TEMPERATURE].any(), is_filtered, self._records.news())

    def _part(self, slot: BatchSlot, count: int, *, chooses: bool, **more: Any) -> SlotStep:
        """Return the work of one slot in a launch."""
        return SlotStep(slot, count, chooses, int(self._eras[slot.number]), **more)

    def _resume(self, slot: BatchSlot, limit: int) -> SlotStep:
        """Return the work of a slot that continues from the choice of the launch before, with up to `limit` tokens."""
        return self._part(slot, limit, chooses=True, resumes=True)

    def _resume_within_budget(self, slot: BatchSlot, width: int) -> SlotStep | None:
        """Return the work of a slot that continues from the launch before; None if its budget may be used up there."""
        limit = min(width, len(slot.row.pending) + slot.row.left - 1 - slot.sent)
        return self._resume(slot, limit) if limit > 0 else None

    def _read_pending(self, slot: BatchSlot, width: int) -> SlotStep:
        """Return the work of a slot that reads tokens known to the host. Raises the errors of its guide."""
        waiting = len(slot.row.pending) - slot.sent
        if waiting > width:
            return self._part(slot, width, chooses=False)
        if slot.attempt is None and self._sampler.is_near_budget(slot.row):
            slot.attempt = 0
        is_closing = slot.attempt is not None
        record = self._record(slot, is_closing)
        return self._part(slot, waiting, chooses=True, record=record, is_closing=is_closing)

    def _record(self, slot: BatchSlot, is_closing: bool) -> int:
        """Return the record for a slot's next choice. If the table is full, it is the slot's own for one use."""
        row = slot.row
        try:
            return self._records.record(key_of(row, is_closing))
        except FullError:
            assert row.guide_cache is not None
            left = row.left if is_closing else None
            return self._records.record_once(slot.number, row.guide_cache.mask(row.state, row.request.stop_ids, left))

    def _collect(self, launch: PendingLaunch) -> None:
        """Process the answer of a launch."""
        answer = self._backend.answer(launch.handle)
        slots, is_active = self._slots, self._active.is_active
        parts = [part for part in launch.parts if part.era == self._eras[part.slot.number]]
        chosen = [part for part in parts if not is_active[part.slot.number]]
        valid = launch.eras == self._eras[launch.active]
        numbers, limits = launch.active[valid], launch.limits[valid]
        if len(chosen) < len(parts):
            mounted = [part for part in parts if is_active[part.slot.number]]
            numbers = np.concatenate((numbers, np.array([part.slot.number for part in mounted], np.intp)))
            limits = np.concatenate((limits, np.array([part.count for part in mounted], np.int32)))
        active_numbers = is_active[numbers]
        chosen += [
            self._resume(slots[number], limit)
            for number, limit in _pairs(numbers[~active_numbers], limits[~active_numbers])
        ]
        numbers, limits = numbers[active_numbers], limits[active_numbers]
        if len(numbers):
            count, others = self._active.take(numbers, limits, answer)
            self._missing *= (1 - _MEMORY) ** count
            for number, limit in _pairs(numbers[others], limits[others]):
                self._deactivate(slots[number])
                chosen.append(self._resume(slots[number], limit))
        for part in chosen:
            slot = part.slot
            if slot.row.finish is not None or slot.row.error is not None:
                continue
            try:
                self._take(slot, part, answer[slot.number])
            except Exception as error:
                slot.row.error = error

    def _activate(self, slot: BatchSlot) -> None:
        """Make a slot active."""
        choices = greedy_choices(self._vocabulary.size)
        search = slot.row.request.search
        if isinstance(search, Sample):
            write_choices(choices, search)
        del self._hosted[slot.number]
        self._active.add(slot, choices)

    def _deactivate(self, slot: BatchSlot) -> None:
        """Make a slot inactive, and pass the noted tokens to its sequence."""
        if self._active.flush(slot, self._vocabulary.tokens):
            row, count = slot.row, len(slot.row.tokens)
            slot.was_closing = self._records.is_closing(slot.record)
            self._sampler.settle(row)
            self._learn(row, count, is_chosen=False)
        self._hosted[slot.number] = slot

    def _take(self, slot: BatchSlot, part: SlotStep, answer: NDArray[np.int32]) -> None:
        """Process one slot's part of an answer: the tokens read, and its choice unless it has to be repeated."""
        row, read = slot.row, int(answer[COUNT])
        assert read, "what is under way for a slot is void when it is known that it pauses"
        tokens, after = answer[TOKENS:].reshape(2, -1)[:, :read].tolist()
        slot.sent -= part.count
        slot.flying -= 1
        begin = len(row.table.tokens)
        if not part.resumes:
            self._process_choice(slot, part, read, tokens[-1], after[-1])
        else:
            for place in range(read):
                is_last = place == read - 1
                if row.done or not self._process_choice(slot, part, 1, tokens[place], after[place], is_last=is_last):
                    break
        row.steps += len(row.table.tokens) > begin

    def _process_choice(
        self, slot: BatchSlot, part: SlotStep, count: int, token: int, after: int, *, is_last: bool = True
    ) -> bool:
        """Process `count` tokens read by a slot, and the token chosen after them. Return True if the choice stands.

        after: the record after the chosen token
        """
        row = slot.row
        if not part.chooses or len(row.pending) > count:
            assert not part.chooses or token == row.pending[count], "what is forced is known to both"
            self._read(slot, count)
            if part.chooses:
                self._go_on(slot, after, is_last)
            return True
        is_closing = part.is_closing or (part.resumes and slot.was_closing and self._sampler.is_near_budget(row))
        if token != UNUSABLE and row.guide_cache is not None and not is_closing:
            attempt = self._next_attempt(row, part, token)
            if attempt is not None:
                self._void(slot)
                slot.attempt = attempt
                return False
        self._read(slot, count)
        if token == UNUSABLE:
            row.error = unusable(place_of(row))
            return False
        is_known = after != UNKNOWN
        key = None if is_known else key_of(row, is_closing)
        count_before = len(row.tokens)
        self._sampler.commit(row, token)
        self._learn(row, count_before, is_chosen=True)
        self._missing += _MEMORY * ((not is_known) - self._missing)
        if row.done:
            return False
        slot.was_closing = is_closing
        is_single, is_near_budget = row.pending == [token], self._sampler.is_near_budget(row)
        self._go_on(slot, after, is_last)
        if key is not None and (is_single if is_closing else not is_near_budget):
            with suppress(FullError):
                self._follow(key, row, is_near_budget)
        return True

    def _go_on(self, slot: BatchSlot, after: int, is_last: bool) -> None:
        """Let a slot continue: activate it if possible, or void its work in flight if the device does not know its
        state."""
        row, slot.record = slot.row, max(after, FREE)
        if after == UNKNOWN or (is_last and not slot.flying):
            self._void(slot)
        elif is_last and self._may_ride(slot) and (slot.was_closing or not self._sampler.is_near_budget(row)):
            self._records.note(after)
            self._activate(slot)

    def _follow(self, key: StateKey, row: SequenceState, is_near_budget: bool) -> None:
        """Add the transitions of a sequence's pending tokens, chosen and forced, to the state table. Raises
        FullError."""
        before, last = self._records.find(key), key_of(row, is_near_budget)
        is_forced = len(row.pending) > 1
        if not before or (is_forced and (last is None or last.guide_cache is not key.guide_cache)):
            return
        for token in row.pending[:-1]:
            guide = key.guide_cache.guide
            key = key._replace(state=guide.advance(key.state, token))
            before = self._records.lead(before, token, key, row.left)
        self._records.lead(before, row.pending[-1], last, row.left)

    def _read(self, slot: BatchSlot, count: int) -> None:
        """Move tokens that a slot has read from `pending` to its sequence's table."""
        row, table = slot.row, slot.row.table
        read = row.pending[:count]
        if slot.fresh:
            slot.fresh -= count
        else:
            self._pool.recognise(table, read)
        table.tokens += read
        row.pending = row.pending[count:]
        self._pool.trim(table)

    def _learn(self, row: SequenceState, count: int, *, is_chosen: bool) -> None:
        """Record tokens after the first `count` of a sequence in its draft history. Those after the next one were
        forced."""
        if self._drafter is not None:
            self._drafter.learn(row, row.tokens[count:], chain((is_chosen,), repeat(False)))

    def _may_ride(self, slot: BatchSlot) -> bool:
        """Test whether a slot may become active: the host only has to note its tokens."""
        row = slot.row
        is_settled = not slot.fresh and row.left > 3 and row.state >= row.request.start.tail
        return is_settled and len(row.pending) == 1 and not row.request.stop and self._pool.can_cut

    def _next_attempt(self, row: SequenceState, part: SlotStep, token: int) -> int | None:
        """Return the attempt number for a choice that has to be repeated; None if it stands."""
        if part.resumes and self._sampler.is_near_budget(row):
            return 0
        return None if self._sampler.fits(row, token) else 1

    def _void(self, slot: BatchSlot) -> None:
        """Invalidate the work in flight of a slot."""
        self._eras[slot.number] += 1
        slot.sent = slot.flying = 0
        slot.is_choosing = False


def _waiting(slot: BatchSlot) -> int:
    """Return the number of unsent tokens that the host knows."""
    return len(slot.row.pending) - slot.sent


def _pairs(numbers: Numbers, limits: NDArray[np.int32]) -> list[tuple[int, int]]:
    return list(zip(numbers.tolist(), limits.tolist(), strict=True))


_KINDS = {torch.float32, torch.float16, torch.bfloat16}


def batch_of(model: Model, memory: Memory, sequences: Sampler, pool: Pool) -> DeviceBatch | None:
    """Return the device batch for a model's memory; None if the model or its device has none.

    On a GPU with Triton, it takes decoders with packed steps, KV cache only, and a separate head, all on that device.
    """
    if not isinstance(pool, BlockPool):
        return None
    if isinstance(model, DeviceBatchModel):
        make = model.batch_backend
    elif isinstance(model, DecoderModel) and isinstance(memory, BlockStorage) and _has_graphs(model):
        parts = model.parts
        if parts is None or model.state_bytes:
            return None
        from .graphs import GraphBackend

        make = partial(GraphBackend, *parts, vocabulary=model.vocabulary, device=model.device)
    else:
        return None
    records = DeviceStateTable(SLOTS, model.vocabulary.size)
    backend = make(memory, records)
    return None if backend is None else DeviceBatch(sequences, pool, backend, records, model)


def _has_graphs(model: DecoderModel) -> bool:
    if not has_kernels(model.device) or model.model.dtype not in _KINDS:
        return False
    return all(weights.device == model.device for weights in model.model.parameters())
