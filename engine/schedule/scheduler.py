"""The scheduler: who reads how much in a step, who joins, and who gives its memory up.

First come, first served, among requests of one priority. Sequences that have few tokens to read, as those have that are
being written, all read in every step. What is left of a step's tokens goes to longer ones, prompts: as much as it has
where only texts of the same call are held up by that, else a chunk, as long as fits between two tokens (`Budget`); then
to requests that join, as long as there is room for all that they have to read. Where a text needs a block and none is
available the last request in line gives up its own and waits, before those that never ran; it reads again what is not
known any more.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...checks import positive, shown, whole
from ...errors import OptionError
from ..decode.sequence import KVSequence, SequenceState
from ..memory.pool import Pool
from ..memory.tables import BLOCK, Chunk
from ..models.protocol import Model
from .call import Call, SequenceGroup, Work

GAP_MS = 100.0
"""On the CPU. Readers are slower than ten tokens a second; more of a prompt at once is hardly quicker to read."""
CHUNK_OF_DEVICES = 512
LONGEST = 1 << 20
LEAST = 16
"""So many tokens of prompts are read at least, so that they come to their ends whatever else takes long."""
SELDOM = 8
"""Once in so many steps none are, to see what texts take without: steps that are all alike would not say."""
_FIXED = 8.0
"""Until it is measured, a step is taken to cost as much as so many tokens, beside those that it has."""
_GAIN = 0.3
"""The share of what a step took more or less than expected that is taken to be true of the next one."""
_OUTLIER = 2.0
_STALE = 3.0
"""A step that is so many times as quick as expected says that all before were slow: kernels were compiled then."""


class Budget:
    """The time of a step as `fixed + each_text * written + each_token * prompted`, by steps so far.

    Where a step takes longer or less long than expected, each of the three is made larger or smaller, the more, the
    larger its part of the time is; so none comes to be below 0, and on a machine that is slower in everything all are.

    Source: normalised least mean squares, of errors and costs in parts of what is expected.
    """

    def __init__(self) -> None:
        self._fixed = self._each_text = self._each_token = 0.0
        self._planned = 0

    def seconds(self, written: int, prompted: int) -> float:
        """Expected time of a step that continues so many sequences, and reads so many tokens of prompts."""
        return sum(self._parts(written, prompted))

    def prompt_tokens(self, written: int, waiting: int, gap: float, most: int) -> int:
        """Number of tokens of prompts to read beside sequences that are written: as many as fit into `gap` seconds.

        waiting: how many requests have something of their prompts to read. Where the sequences take most of that time
        themselves they have to share: the more requests wait, the more, up to as much time as the sequences have, or
        `gap`.
        """
        self._planned += 1
        if written and self._planned % SELDOM == 0:
            return 0
        texts, each = self.seconds(written, 0), self._each_token
        shared = min(texts, gap) * min(1.0, waiting / max(1, written))
        left = max(gap - texts, shared)
        return max(LEAST, int(min(most, left / each))) if each else LEAST

    def note(self, written: int, prompted: int, seconds: float) -> None:
        """Take down a step. One that took much longer than expected counts for less: the machine did something else."""
        parts = self._parts(written, prompted)
        expected = sum(parts)
        if expected == 0.0:
            self._each_text = self._each_token = seconds / (_FIXED + written + prompted)
            self._fixed = _FIXED * self._each_token
        elif _STALE * seconds < expected:
            self._scale(*[seconds / expected] * 3)
        else:
            shares = [part / expected for part in parts]
            off = _GAIN * (min(seconds / expected, _OUTLIER) - 1) / sum(share * share for share in shares)
            self._scale(*(1 + off * share for share in shares))

    def _parts(self, written: int, prompted: int) -> tuple[float, float, float]:
        return self._fixed, self._each_text * written, self._each_token * prompted

    def _scale(self, fixed: float, each_text: float, each_token: float) -> None:
        self._fixed *= fixed
        self._each_text *= each_text
        self._each_token *= each_token


def chunk_or_gap(model: Model, chunk: Any, max_gap_ms: Any) -> tuple[int | None, float]:
    """Number of tokens of prompts beside texts of other calls, None for what fits the gap; and the gap."""
    if chunk is not None and max_gap_ms is not None:
        raise OptionError(
            f"chunk={shown(chunk)} with max_gap_ms={shown(max_gap_ms)}: both say how much of a prompt is read beside "
            "other texts; give one of them"
        )
    gap = GAP_MS if max_gap_ms is None else positive(max_gap_ms, "max_gap_ms", "milliseconds")
    if chunk is None and max_gap_ms is None and str(getattr(model, "device", "cpu")) != "cpu":
        chunk = CHUNK_OF_DEVICES
    return None if chunk is None else whole(chunk, "chunk", LEAST, LONGEST), gap / 1e3


SHORT = BLOCK
"""Up to so many tokens are read at once, whatever else there is to read."""


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Bounds of a step.

    max_num_seqs: sequences that run at once
    max_num_batched_tokens: tokens of prompts, where a step delays no sequences of other calls
    prefill_chunk_size: tokens of prompts where it does; None for as many as let no more than `max_gap` seconds pass
        between two tokens of those sequences
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    prefill_chunk_size: int | None = None
    max_gap: float = 0.1


Leaders = dict[tuple[int, int | None, tuple[int, ...]] | None, KVSequence]
"""Sequences that read all that they have from their beginning on, by what that is, and what is asked of its tokens."""


@dataclass(slots=True)
class StepPlan:
    """A step: who takes part, whose sequences are read, and of each what; three lists of the same length.

    followers: sequences that begin like another, their lead, of which they take over what it reads
    writing: the calls of which sequences are being written; written: how many of these are read
    prompted: how many tokens of prompts are read; chunk: how many may be, where sequences of other calls are held up
    """

    groups: list[SequenceGroup] = field(default_factory=list[SequenceGroup])
    readers: list[KVSequence] = field(default_factory=list[KVSequence])
    chunks: list[Chunk] = field(default_factory=list[Chunk])
    followers: list[tuple[SequenceGroup, KVSequence, KVSequence]] = field(
        default_factory=list[tuple[SequenceGroup, KVSequence, KVSequence]]
    )
    writing: set[Call] = field(default_factory=set[Call])
    written: int = 0
    prompted: int = 0
    chunk: int = 0

    def add(self, group: SequenceGroup, reader: KVSequence, tokens: list[int]) -> None:
        """Let a text be read; all that is pending is not copied."""
        self.groups.append(group)
        self.readers.append(reader)
        self.chunks.append(Chunk(reader.table, tokens))

    @property
    def is_all_pending(self) -> bool:
        """True if sequences that are read are read to their ends."""
        both = zip(self.readers, self.chunks, strict=True)
        return all(len(chunk.tokens) == len(reader.pending) for reader, chunk in both)

    @property
    def is_short(self) -> bool:
        """True if all that is read are the next tokens of sequences that are being written."""
        return not self.prompted and not self.followers

    def everyone(self) -> list[SequenceGroup]:
        """Those that take part, each once."""
        return list(dict.fromkeys(self.groups) | dict.fromkeys(group for group, _, _ in self.followers))


class Scheduler:
    """running: entries in line; preempted: those that gave their memory up, in line before all of their priority.

    budget: how much of prompts fits beside texts
    begin: makes the work of a call's next request; again: makes that of an entry that were preempted
    whole: how many of some tokens to read where so many were to be, if some have to be read together
    """

    def __init__(
        self,
        pool: Pool,
        config: SchedulerConfig,
        budget: Budget,
        begin: Callable[[Call], SequenceGroup],
        again: Callable[[SequenceGroup], Work],
        whole: Callable[[Sequence[int], int], int] | None = None,
    ) -> None:
        self.config = config
        self.running: list[SequenceGroup] = []
        self.preempted: deque[SequenceGroup] = deque()
        self._pool = pool
        self._budget = budget
        self._begin = begin
        self._again = again
        self._whole = whole

    def plan(self, calls: Sequence[Call]) -> StepPlan:
        """The reads of the next step. Those that are done as soon as they begin are among `running`."""
        plan = StepPlan()
        leaders: Leaders = {}
        prompts: list[SequenceGroup] = []
        for group in list(self.running):
            if group.is_preempted or group.waits or group.work.done:
                continue
            work = group.work
            if isinstance(work, SequenceState) and len(work.pending) <= SHORT:
                # As below, and quicker: most that runs is this.
                if self._pool.has_slack(work.table, len(work.pending)) or self._make_room(group):
                    plan.writing.add(group.call)
                    if work.pending:
                        plan.add(group, work, work.pending)
                continue
            readers = work.readers
            if any(len(reader.pending) > SHORT for reader in readers):
                prompts.append(group)
            elif all(self._pool.has_slack(each.table, len(each.pending)) for each in readers) or self._make_room(group):
                plan.writing.add(group.call)
                for each in readers:
                    if each.pending:
                        plan.add(group, each, each.pending)
        plan.written = len(plan.groups)
        waiting = [call for call in calls if call.is_waiting]
        joining = len(self.preempted) + len(waiting)
        if prompts or joining:
            plan.chunk = self._chunk(plan.written, len(prompts) + joining)
        for group in prompts:
            if not group.is_preempted:
                self._read_on(group, plan, leaders)
        if joining:
            self._join(waiting, plan, leaders)
        return plan

    def drop(self, group: SequenceGroup) -> None:
        """Forget an entry, and free its blocks."""
        if group in self.running:
            self.running.remove(group)
            for reader in group.work.readers:
                self._pool.release(reader.table)
        elif group in self.preempted:
            self.preempted.remove(group)

    def _make_room(self, group: SequenceGroup) -> bool:
        """Reserve blocks for all that an entry has to read; False where it had to give up its own."""
        while self._missing(group) > self._pool.available:
            last = self.running[-1]
            self._preempt(last)
            if last is group:
                return False
        for reader in group.work.readers:
            if reader.pending:
                self._pool.reserve(reader.table, reader.pending)
        return True

    def _missing(self, group: SequenceGroup) -> int:
        """Number of blocks that all that an entry has to read would take."""
        return sum(self._pool.missing(each.table, len(each.pending)) for each in group.work.readers if each.pending)

    def _preempt(self, group: SequenceGroup) -> None:
        """Free an entry's blocks, and let it wait."""
        self.running.remove(group)
        for reader in group.work.readers:
            self._pool.release(reader.table)
        group.is_preempted = group.is_again = True
        group.work = self._again(group)
        insort(self.preempted, group, key=in_line)

    def _left(self, call: Call, plan: StepPlan) -> int:
        """Number of tokens of prompts that a call may still read in a step, which holds up no texts but its own."""
        holds_up = len(plan.writing) > (call in plan.writing)
        return max(0, (plan.chunk if holds_up else self.config.max_num_batched_tokens) - plan.prompted)

    def _chunk(self, written: int, waiting: int) -> int:
        """Number of tokens of prompts beside so many sequences that are written, while so many requests wait."""
        config = self.config
        if config.prefill_chunk_size is None:
            return self._budget.prompt_tokens(written, waiting, config.max_gap, config.max_num_batched_tokens)
        return min(config.prefill_chunk_size, config.max_num_batched_tokens)

    def _read_on(self, group: SequenceGroup, plan: StepPlan, leaders: Leaders) -> None:
        """Let an entry read as much as it may.

        Beams read their last tokens in the same step, since they are continued together. A prompt whose tokens are
        scored is read whole.
        """
        work = group.work
        scores = work.request.prompt_best if isinstance(work, SequenceState) and work.scores_prompt else None
        left, readers = self._left(group.call, plan), group.work.readers
        is_much = sum(len(reader.pending) for reader in readers) > left or self._missing(group) > self._pool.available
        last = int(is_much and len(readers) > 1)
        for reader in readers:
            if len(reader.pending) <= last or left == 0:
                continue
            begin = None if reader.table.tokens or last else (reader.table.node, scores, tuple(reader.pending))
            if begin in leaders:
                plan.followers.append((group, reader, leaders[begin]))
                group.find(len(reader.pending))
                continue
            if scores is None and (adopted := self._pool.adopt(reader.table, reader.pending)):
                del reader.pending[:adopted]
                group.find(adopted)
            count = min(left, len(reader.pending) - last)
            if self._whole is not None:
                count = self._whole(reader.pending, count)
            if self._pool.missing(reader.table, count) > self._pool.available:
                count = self._preempt_others(group, reader, count, plan)
            if count == 0:
                continue
            self._pool.reserve(reader.table, reader.pending[:count])
            plan.add(group, reader, reader.pending[:count])
            if begin is not None and count == len(reader.pending):
                leaders[begin] = reader
            left = max(0, left - count)
            plan.prompted += count

    def _preempt_others(self, group: SequenceGroup, reader: KVSequence, count: int, plan: StepPlan) -> int:
        """Let others give up their blocks for the first in line, where nobody else reads in this step.

        Returns how many of its `count` tokens it may read: behind a window, all of a text never lies in memory.
        """
        if plan.groups or self.running[0] is not group:
            return 0
        while len(self.running) > 1 and self._pool.missing(reader.table, count) > self._pool.available:
            self._preempt(self.running[-1])
        while count > 0 and self._pool.missing(reader.table, count) > self._pool.available:
            count -= min(count, BLOCK)
        return count

    def _join(self, waiting: Sequence[Call], plan: StepPlan, leaders: Leaders) -> None:
        """Take up requests while there is room for all that they have to read: by priority, and of each those first
        that were preempted. Where there is none for one, those behind it wait too."""
        priorities = {group.work.request.options.priority for group in self.preempted}
        for priority in sorted(priorities.union(call.priority for call in waiting)):
            calls = [call for call in waiting if call.priority == priority]
            if not (self._resume(priority, plan, leaders) and self._take_up(calls, plan, leaders)):
                return

    def _resume(self, priority: int, plan: StepPlan, leaders: Leaders) -> bool:
        """Let preempted requests of a priority go on; False where there is no room for one."""
        texts = sum(group.width for group in self.running)
        while self.preempted and self._left(self.preempted[0].call, plan):
            group = self.preempted[0]
            if group.work.request.options.priority != priority:
                break
            readers = group.work.readers
            needed = sum(-(-len(reader.pending) // BLOCK) + 1 for reader in readers)
            if not self._has_room(texts + group.width, needed):
                return False
            insort(self.running, group, key=in_line)
            self.preempted.popleft()
            group.is_preempted = False
            # Read again, a sequence that was broken off may turn out to be at its end.
            if not group.work.done:
                texts += group.width
                if not group.waits:
                    self._read_on(group, plan, leaders)
        return True

    def _take_up(self, calls: Sequence[Call], plan: StepPlan, leaders: Leaders) -> bool:
        """Let the next requests of calls begin; False where there is no room for one."""
        texts = sum(group.width for group in self.running)
        for call in calls:
            while call.is_waiting and self._left(call, plan):
                request = call.requests[call.begun]
                needed = -(-len(request.start.prompt) // BLOCK) + request.width
                if not self._has_room(texts + request.width, needed):
                    return False
                group = self._begin(call)
                insort(self.running, group, key=in_line)
                if not group.work.done:
                    texts += group.width
                    if not group.waits:
                        self._read_on(group, plan, leaders)
        return True

    def _has_room(self, texts: int, blocks: int) -> bool:
        """True if one more may join, with which there are so many sequences, and that needs so many blocks."""
        fits = texts <= self.config.max_num_seqs and blocks + len(self.running) <= self._pool.available
        return fits or not self.running


def in_line(group: SequenceGroup) -> tuple[int, int]:
    """The key by which entries are put in line: their priority, and then their arrival."""
    return group.work.request.options.priority, group.arrival
