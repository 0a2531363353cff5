"""The engine's loop: in each step requests are admitted, read in one forward pass, advanced, and finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, count
from time import perf_counter
from typing import Any, TypeGuard
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from ..decode.beam_search import BeamGroup, BeamSearch
from ..decode.beam_search import place_of as place_of_group
from ..decode.forward_output import ForwardOutput, score_prompt
from ..decode.sampler import Sampler, place_of
from ..decode.sequence import CommittedPrefix, KVSequence, Request, SequenceState
from ..device.batch import batch_of
from ..drafts import Drafter, StepDrafts
from ..exact_sampling.populations import Population, Populations
from ..memory.pool import BlockPool, TokenPool
from ..memory.tables import BLOCK, BlockTable
from ..memory.weights import Weights
from ..models.media.encoder import MediaEncoder, media_of
from ..models.protocol import MEMORY_ERRORS, Hidden, Model, ScoringModel, SourceModel
from ..search import Beam, Target
from .call import Call, GuideQueue, Preparation, RequestOutput, SequenceGroup, Work
from .scheduler import SHORT, Budget, Scheduler, SchedulerConfig, StepPlan, in_line

CAREFUL = 256
"""Number of steps with smaller batches after memory ran out."""


class EngineCore:
    """All requests running on one model. Call `step` as long as there are `calls`, from one thread at a time.

    blocks: size of the KV cache, 0 for models without one
    slots: number of state slots, 0 for models without states; bounds the running sequences

    If a step is interrupted, by Ctrl-C or an exception, no request is lost. The next step releases all memory, and all
    running requests read their tokens again. `Call` states the invariant behind this.
    """

    def __init__(self, model: Model, blocks: int, config: SchedulerConfig, slots: int = 0) -> None:
        self.model = model
        self.calls: list[Call] = []
        self.steps = 0
        self._blocks = blocks
        self._slots = slots
        self._full_config = self._config = (
            replace(config, max_num_seqs=min(config.max_num_seqs, slots)) if slots else config
        )
        self._careful_until = 0
        self._memory = model.make_memory(blocks)
        self._weights = Weights(model)
        self._read_with = self._weights.state()
        self._sources: WeakValueDictionary[tuple[str, int, tuple[int, ...]] | None, Any] = WeakValueDictionary()
        self._sampler = Sampler(model)
        self.waiting = GuideQueue(self._sampler)
        self._encoder = model if isinstance(model, SourceModel) else None
        self._media = media_of(model)
        if self._media is not None:
            # The model keeps features across engines, and an engine sees only changes of weights after its start.
            self._media.forget()
        self._arrivals = 0
        self._is_consistent = False
        self._drafter: Drafter | None = None
        self._budget = Budget()
        self._clear()

    @property
    def tables(self) -> list[BlockTable]:
        """The block tables of all running sequences."""
        return [reader.table for group in self._scheduler.running for reader in group.work.readers]

    @property
    def held_blocks(self) -> int:
        """The number of blocks that running sequences hold."""
        return self._pool.held

    @property
    def kept_blocks(self) -> int:
        """The number of blocks without holder that may be reused."""
        return self._pool.kept

    @property
    def held_slots(self) -> int:
        """The number of state slots in use."""
        return 0 if self._pool.slots is None else self._pool.slots.held

    @torch.inference_mode()
    def step(self, most: int = 1, is_over: Callable[[], bool] = bool) -> None:
        """Run one step: admit, read, and advance sequences.

        most: the most tokens for each sequence if a device batch runs; it stops early once `is_over`
        """
        if not self._is_consistent:
            self._recover()
        self._is_consistent = False
        if self._config is not self._full_config and self.steps >= self._careful_until:
            self._config = self._scheduler.config = self._full_config
        self._forget()
        if not self._scheduler.running or self._scheduler.preempted or any(call.is_waiting for call in self.calls):
            self._compare_weights()
        self.waiting.resume(self._scheduler.running)
        plan = self._scheduler.plan(self.calls)
        try:
            is_consistent = self._read(plan, most, is_over)
        except Exception as error:
            self._fail(plan, error)
            return
        for group in list(self._scheduler.running):
            if group.work.done:
                self._finish(group)
        self.waiting.begin(self._scheduler.running)
        self._forget()
        self.steps += 1
        self._is_consistent = is_consistent

    def forget(self) -> None:
        """Release cancelled requests, between two steps."""
        if not self._is_consistent:
            self._recover()
        self._forget()
        self._is_consistent = True

    def close(self) -> None:
        """Release all memory. Nothing runs any more."""
        self.stop_waiting()
        self.calls.clear()
        self._clear()
        self._memory = self.model.make_memory(0)
        if self._media is not None:
            self._media.forget()

    def to_prepare(self) -> Preparation | None:
        """Return a preparation that no thread has taken, from any thread."""
        found = (call.to_prepare() for call in list(self.calls))
        return next((each for each in found if each is not None), None)

    def stop_waiting(self) -> None:
        """Cancel all preparations, from any thread."""
        for call in list(self.calls):
            for group in list(call.groups.values()):
                self.waiting.drop(group)

    def after_fork(self) -> None:
        """Reset waiting threads and preparations in a forked process, which has no such threads."""
        self.waiting.is_attended = False
        for call in self.calls:
            call.waiting = 0
            for group in call.groups.values():
                group.preparation = None

    def committed_prefix(self, group: SequenceGroup) -> CommittedPrefix:
        """Return the committed prefix of a request's text."""
        work = group.work
        if isinstance(work, BeamGroup):
            return self._beams.committed_prefix(work)
        return self._sampler.committed_prefix(work) if isinstance(work, SequenceState) else CommittedPrefix(b"")

    def check(self) -> None:
        """Raise AssertionError unless the pool's references are consistent."""
        if isinstance(self._pool, BlockPool) and self._is_consistent:
            self._pool.check(self.tables)

    def _clear(self) -> None:
        """Create a new pool, empty of all contents, and all objects that use it."""
        self._pool = BlockPool(self._blocks, self.model.window, self._slots) if self._blocks else TokenPool()
        self._beams = BeamSearch(self.model, self._pool)
        self._populations = Populations(self.model, self._pool, self._weights)
        self._device_batch = None  # release the old one before a new one takes device memory
        self._device_batch = batch_of(self.model, self._memory, self._sampler, self._pool)
        self._sampler.keeps_states = self._device_batch is None
        self._drafter = self._make_drafter()
        align = None if self._media is None else self._media.whole
        self._scheduler = Scheduler(self._pool, self._config, self._budget, self._begin, self._restart, align)

    def _make_drafter(self) -> Drafter | None:
        """Return a drafter if the model can read drafts; None otherwise."""
        if not isinstance(self._pool, BlockPool) or not Drafter.suits(self.model, self._pool):
            return None
        costs = None if self._drafter is None else self._drafter.costs
        return Drafter(self.model, self._sampler, self._pool, costs)

    def _recover(self) -> None:
        """Restart all running requests without any of the memory's contents."""
        self._clear()
        left: list[SequenceGroup] = []
        for call in self.calls:
            call.next_number = max([call.next_number, *(number + 1 for number in call.groups)])
            for number, group in list(call.groups.items()):
                if call.is_cancelled or call.is_settled(number):
                    call.groups.pop(number, None)
                    continue
                work = group.work
                # a sequence finishes by one assignment, the last of its changes
                is_ended = work.done if isinstance(work, SequenceState) else work.error is not None
                if not is_ended:
                    # Beams may be half advanced. Their search is deterministic and starts again.
                    is_single = isinstance(work, SequenceState)
                    restarted = self._restart(group) if is_single else self._start(work.request, _source(work))
                    left.append(
                        SequenceGroup(call, number, group.arrival, restarted, True, group.steps, is_restarted=True)
                    )
                    call.groups[number] = left[-1]
                else:
                    self._finish(group)
        self._scheduler.preempted.extend(sorted(left, key=in_line))

    def _forget(self) -> None:
        """Drop cancelled requests and finished calls."""
        for call in self.calls:
            if call.is_cancelled:
                for group in list(call.groups.values()):
                    self.waiting.drop(group)
                    self._scheduler.drop(group)
                call.groups.clear()
        self.calls[:] = [call for call in self.calls if call.groups or call.is_waiting]

    def _compare_weights(self) -> None:
        """Invalidate the KV cache if the model's weights changed. Running sequences read their tokens again."""
        state = self._weights.state()
        if state != self._read_with:
            self._weights.check()
            self._sources.clear()
            if self._media is not None:
                self._media.forget()
            self._recover() if self._scheduler.running else self._pool.forget()
            self._read_with = state

    def _begin(self, call: Call) -> SequenceGroup:
        """Begin a call's next request."""
        number, request = call.next_number, call.requests[call.next_number]
        self._arrivals += 1
        source = request.adapter or self._sources.get(request.root)
        group = SequenceGroup(
            call, number, self._arrivals, self._start(request, source, may_wait=self._may_wait(call, 1))
        )
        call.groups[number] = group
        call.next_number = number + 1
        return group

    def _may_wait(self, call: Call, joining: int = 0) -> bool:
        """Test whether sequences of a call may skip steps. In a device batch they pause instead."""
        running = len(self._scheduler.running) + joining
        return self._device_batch is None and self.waiting.may_wait(call, len(self.calls), running)

    def _start(self, request: Request, source: Any, *, may_wait: bool = False) -> Work:
        table = self._pool.table(source, request.root)
        if isinstance(request.search, Target):
            return self._populations.start(request, table)
        if isinstance(request.search, Beam):
            return self._beams.start(request, table)
        return self._sampler.start(request, table, may_wait=may_wait)

    def _restart(self, group: SequenceGroup) -> Work:
        """Return the work with all tokens unread."""
        work = group.work
        table = self._pool.table(_source(work), work.request.root)
        if isinstance(work, SequenceState):
            return self._sampler.restart(work, table)
        if isinstance(work, BeamGroup):
            return self._beams.restart(work, table)
        return self._populations.restart(work, table)

    def _read(self, plan: StepPlan, most: int, is_over: Callable[[], bool]) -> bool:
        """Run a forward pass, or a device batch, and everything that follows from it.

        Return False if the state needs recovery.
        """
        if not plan.groups:
            self.waiting.pause(self._scheduler.running)
            return True
        self._copy()
        # before the time measurement for chunk sizes
        if self._media is not None and not self._prepare(self._media, plan):
            return False
        begin = perf_counter()
        if self._encoder is not None:
            self._encode(self._encoder, plan)
        is_apart = self._pool.begin() and not plan.followers
        if self._device_batch is not None and is_apart and plan.is_all_pending:
            works = [group.work for group in plan.groups]
            if self._device_batch.takes(works):
                return self._device_batch.run(works, most, is_over)
        scored = any(map(_is_scored, plan.readers))
        drafted = None if scored else self._propose(plan)
        reading = perf_counter()
        if scored:
            hidden, place = self._read_scored(plan)
        elif drafted is None:
            hidden, place = self.model.forward(plan.chunks, self._memory), count()
        else:
            ends = drafted.ends(plan.readers)
            hidden = drafted.read(self.model, plan.readers, plan.chunks, self._memory)
            place = accumulate([0, *ends])
        drafter = self._drafter if plan.is_short else None
        is_timed = drafter is not None or self._config.prefill_chunk_size is None
        if is_timed and isinstance(hidden, Tensor) and not hidden.is_cpu:
            hidden[:1].cpu()  # wait until the device has read
        if drafter is not None:
            tokens = sum(len(chunk.tokens) for chunk in plan.chunks)
            drafter.costs.note(tokens + (0 if drafted is None else drafted.count), perf_counter() - reading)
        self._advance(plan, hidden, self._note_read(plan, hidden, place, scored), drafted)
        if self._config.prefill_chunk_size is None:
            self._budget.note(plan.written, plan.prompted, perf_counter() - begin)
        return True

    def _prepare(self, media: MediaEncoder, plan: StepPlan) -> bool:
        """Compute features of images and audio that a step reads. A failure is an error of its own request only.

        Return False if one failed. The others read again in the next step.
        """
        are_there = True
        for group, chunk in zip(plan.groups, plan.chunks, strict=True):
            try:
                media.prepare(chunk.tokens)
            except MEMORY_ERRORS:
                raise
            except Exception as error:
                group.work.error, are_there = error, False
        return are_there

    def _copy(self) -> None:
        """Copy shared blocks and states before they are written."""
        if self._pool.copies:
            self._memory.copy(_last_of(self._pool.copies))
            self._pool.copies = []
        slots = self._pool.slots
        if slots is not None and slots.copies:
            self._memory.copy_states(_last_of(slots.copies))
            slots.copies = []

    def _note_read(self, plan: StepPlan, hidden: Hidden, place: Iterator[int], scored: bool) -> dict[int, int]:
        """Update tables after a forward pass, also of followers. Return each reader's last row in `hidden`, by id."""
        places: dict[int, int] = {}
        for reader, chunk in zip(plan.readers, plan.chunks, strict=True):
            reader.table.tokens += chunk.tokens
            # a new list, since the model may still refer to the old one
            reader.pending = [] if chunk.tokens is reader.pending else reader.pending[len(chunk.tokens) :]
            places[id(reader)] = next(place)
        if scored:
            self._score_prompts(plan, hidden, places)
        for group in plan.everyone():
            if isinstance(group.work, SequenceState):
                group.work.steps += 1
            else:
                group.steps += 1
        for _, reader, lead in plan.followers:
            reader.table, reader.pending = self._pool.fork(lead.table), []
            places[id(reader)] = places[id(lead)]
            if _is_scored(reader) and isinstance(lead, SequenceState):
                reader.prompt_scores, reader.error = lead.prompt_scores, lead.error
        if self.model.window is not None:
            for reader in plan.readers:
                self._pool.trim(reader.table)
        return places

    def _read_scored(self, plan: StepPlan) -> tuple[Hidden, Iterator[int]]:
        """Read a step with scored prompts. Return each reader's first row of `hidden` too."""
        model = self.model
        assert isinstance(model, ScoringModel)
        both = zip(plan.readers, plan.chunks, strict=True)
        ends = [len(chunk.tokens) if _is_scored(reader) else 1 for reader, chunk in both]
        return model.forward_ends(plan.chunks, ends, self._memory), accumulate([0, *ends])

    def _score_prompts(self, plan: StepPlan, hidden: Hidden, places: dict[int, int]) -> None:
        """Score prompts, and move each one's row to its last token."""
        for reader, chunk in zip(plan.readers, plan.chunks, strict=True):
            if _is_scored(reader):
                score_prompt(self.model, hidden, places[id(reader)], reader, len(chunk.tokens))
                places[id(reader)] += len(chunk.tokens) - 1

    def _propose(self, plan: StepPlan) -> StepDrafts | None:
        """Return drafts for sequences in decode if they are likely to save time."""
        # after memory ran out, steps are kept small
        if self._drafter is None or plan.followers or self._config is not self._full_config:
            return None
        sequences: list[SequenceState] = []
        for group, reader, chunk in zip(plan.groups, plan.readers, plan.chunks, strict=True):
            if not isinstance(reader, SequenceState) or group.work is not reader:
                continue
            if reader.table.tokens and len(chunk.tokens) == len(reader.pending) <= SHORT:
                sequences.append(reader)
        self._drafter.keep(sequences)
        return self._drafter.propose(sequences, sum(len(chunk.tokens) for chunk in plan.chunks)) if sequences else None

    def _encode(self, model: SourceModel, plan: StepPlan) -> None:
        """Encode the prompts of sequences without encoder output."""
        both = zip(plan.groups, plan.readers, strict=True)
        new = [(group.work.request, reader) for group, reader in both if reader.table.source is None]
        sources = {each.root: each.start.source for each, _ in new if each.root not in self._sources}
        found = dict(zip(sources, model.encode(list(sources.values())), strict=True)) if sources else {}
        self._sources.update(found)
        for request, reader in new:
            reader.table.source = self._sources[request.root]

    def _advance(self, plan: StepPlan, hidden: Hidden, places: dict[int, int], drafted: StepDrafts | None) -> None:
        """Advance the sequences without pending tokens."""
        sequences: list[SequenceState] = []
        unread: list[SequenceState] = []
        beam_groups: list[BeamGroup] = []
        populations: list[Population] = []
        may_wait = {call: self._may_wait(call) for call in self.calls}
        for group in plan.everyone():
            work = group.work
            if isinstance(work, SequenceState):
                if not work.pending:
                    work.may_wait = may_wait[group.call]
                    (unread if work.is_unread else sequences).append(work)
            elif any(reader.pending for reader in work.readers):
                continue
            elif isinstance(work, BeamGroup):
                beam_groups.append(work)
            else:
                populations.append(work)
        self._advance_sequences(sequences, unread, hidden, places, drafted)
        if beam_groups:
            beam_groups.sort(key=lambda one: len(one.beams))
            where = [places[id(reader)] for one in beam_groups for reader in one.readers]
            owners = [one for one in beam_groups for _ in one.readers]
            self._beams.advance(beam_groups, ForwardOutput(self.model, hidden, owners, where, place_of_group))
        if populations:
            owned = [(each, one) for one in populations for each in one.readers if id(each) in places]
            where = [places[id(reader)] for reader, _ in owned]
            numbers = {id(reader): one.request.number for reader, one in owned}
            read = [reader for reader, _ in owned]
            reading = ForwardOutput(self.model, hidden, read, where, lambda reader: f"prompt {numbers[id(reader)]}")
            self._populations.advance(populations, reading)

    def _advance_sequences(
        self,
        sequences: list[SequenceState],
        unread: list[SequenceState],
        hidden: Hidden,
        places: dict[int, int],
        drafted: StepDrafts | None,
    ) -> None:
        """Advance sequences. `unread` ones have just read their whole prompts."""
        if pooled := [each for each in unread if each.request.pools]:
            where = [places[id(sequence)] for sequence in pooled]
            self._sampler.embed(ForwardOutput(self.model, hidden, pooled, where, place_of))
        sequences += [each for each in unread if not each.request.pools and self._sampler.begin(each)]
        if not sequences:
            return
        where = [places[id(sequence)] for sequence in sequences]
        if drafted is None or self._drafter is None:
            self._sampler.advance(ForwardOutput(self.model, hidden, sequences, where, place_of))
        else:
            ahead = drafted.places(sequences, where)
            self._drafter.advance(ForwardOutput(self.model, hidden, sequences, where, place_of, ahead), drafted)

    def _fail(self, plan: StepPlan, error: Exception) -> None:
        """Handle a failed step. Out of memory, it is repeated with fewer sequences; otherwise its requests fail."""
        groups = plan.everyone()
        if isinstance(error, MEMORY_ERRORS) and len(groups) > 1:
            if self._media is not None:
                self._media.forget()
            tokens = max(BLOCK, self._config.max_num_batched_tokens // 2)
            self._config = replace(self._config, max_num_seqs=len(groups) // 2, max_num_batched_tokens=tokens)
            self._careful_until = self.steps + CAREFUL
            return
        for group in groups:
            # sequences of a device batch may have finished before
            if not isinstance(group.work, SequenceState) or group.work.finish is None:
                group.work.error = error

    def _finish(self, group: SequenceGroup) -> None:
        """Store the outcome of a request, and drop its group."""
        work = group.work
        outcome = self._outcome(group) if work.error is None else RequestOutput((), work.error)
        group.call.outcomes[group.number] = outcome
        group.call.groups.pop(group.number, None)
        self._scheduler.drop(group)

    def _outcome(self, group: SequenceGroup) -> RequestOutput:
        """Return the texts of a finished request."""
        work = group.work
        if isinstance(work, SequenceState):
            return RequestOutput([work])
        sequences = self._beams.results(work) if isinstance(work, BeamGroup) else self._populations.results(work)
        for sequence in sequences:
            sequence.steps = group.steps
        return RequestOutput(sequences)


def _last_of(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the last source of each target, since a block may be released and taken again."""
    return [(source, target) for target, source in {target: source for source, target in pairs}.items()]


def _is_scored(reader: KVSequence) -> TypeGuard[SequenceState]:
    return isinstance(reader, SequenceState) and reader.scores_prompt


def _source(work: Work) -> Any:
    readers: list[KVSequence] = list(work.readers)
    return readers[0].table.source if readers else None
