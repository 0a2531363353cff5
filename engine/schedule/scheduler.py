"""The scheduler: chooses the tokens that each sequence reads in a step, admits requests and preempts them.

Requests of one priority are served in order of arrival. Sequences with few pending tokens, as in decode, read in every
step. The remaining tokens of a step go to prompts. If these delay only sequences of their own call, they may use all of
them, otherwise one chunk as long as the gap between two tokens allows (`Budget`). New requests are admitted if their
whole prompt has room. If a sequence needs a block and none is available, the last request in line is preempted. It
waits before requests that never ran, and later reads those tokens again that the pool no longer has.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...checks import check_int, check_positive, shown
from ...errors import OptionError
from ..decode.sequence import KVSequence, SequenceState
from ..memory.pool import Pool
from ..memory.tables import BLOCK, Chunk
from ..models.protocol import Model
from .call import Call, SequenceGroup, Work

GAP_MS = 100.0
"""Default gap on a CPU. Ten tokens a second are faster than reading, and longer chunks hardly read faster."""
CHUNK_OF_DEVICES = 512
LONGEST = 1 << 20
LEAST = 16
"""The least number of prompt tokens in a step, so that prompts always progress."""
SELDOM = 8
"""Once in this many steps no prompt is read, so that the cost of decode alone is measured."""
_FIXED = 8.0
"""Initial estimate of a step's fixed cost, in tokens."""
_GAIN = 0.3
"""Learning rate: the share of an error that corrects the estimate."""
_OUTLIER = 2.0
_STALE = 3.0
"""A step this many times faster than expected resets the estimate: kernels were compiled before."""


class Budget:
    """An estimate of the time of a step as `fixed + text_seconds * written + token_seconds * prompted`.

    An error of the estimate scales each of the three, in proportion to its share of the time. None of them becomes
    negative, and a uniformly slower machine scales all of them.
    Source: normalised least mean squares, with errors and costs relative to the estimate.
    """

    def __init__(self) -> None:
        self._fixed = self._text_seconds = self._token_seconds = 0.0
        self._planned = 0

    def seconds(self, written: int, prompted: int) -> float:
        """Return the expected time of a step with `written` sequences in decode and `prompted` prompt tokens."""
        return sum(self._parts(written, prompted))

    def prompt_tokens(self, written: int, waiting: int, gap: float, most: int) -> int:
        """Return the number of prompt tokens to read beside `written` sequences, as many as fit into `gap` seconds.

        waiting: number of requests with unread prompt tokens. If decode takes most of the gap, prompts get a share that
            grows with `waiting`, up to the time of decode or to `gap`
        """
        self._planned += 1
        if written and self._planned % SELDOM == 0:
            return 0
        texts, token_seconds = self.seconds(written, 0), self._token_seconds
        shared = min(texts, gap) * min(1.0, waiting / max(1, written))
        left = max(gap - texts, shared)
        return max(LEAST, int(min(most, left / token_seconds))) if token_seconds else LEAST

    def note(self, written: int, prompted: int, seconds: float) -> None:
        """Update the estimate with a step. An outlier counts less, since the machine may have been busy otherwise."""
        parts = self._parts(written, prompted)
        expected = sum(parts)
        if expected == 0.0:
            self._text_seconds = self._token_seconds = seconds / (_FIXED + written + prompted)
            self._fixed = _FIXED * self._token_seconds
        elif _STALE * seconds < expected:
            self._scale(*[seconds / expected] * 3)
        else:
            shares = [part / expected for part in parts]
            off = _GAIN * (min(seconds / expected, _OUTLIER) - 1) / sum(share * share for share in shares)
            self._scale(*(1 + off * share for share in shares))

    def _parts(self, written: int, prompted: int) -> tuple[float, float, float]:
        return self._fixed, self._text_seconds * written, self._token_seconds * prompted

    def _scale(self, fixed: float, text_seconds: float, token_seconds: float) -> None:
        self._fixed *= fixed
        self._text_seconds *= text_seconds
        self._token_seconds *= token_seconds


def chunk_or_gap(model: Model, chunk: Any, max_gap_ms: Any) -> tuple[int | None, float]:
    """Return the prompt tokens of a step beside other calls, None for what fits the gap; and the gap in seconds."""
    if chunk is not None and max_gap_ms is not None:
        raise OptionError(
            f"chunk={shown(chunk)} with max_gap_ms={shown(max_gap_ms)}: both bound the prompt tokens of a step; give "
            "one of them"
        )
    gap = GAP_MS if max_gap_ms is None else check_positive(max_gap_ms, "max_gap_ms", "milliseconds")
    if chunk is None and max_gap_ms is None and str(getattr(model, "device", "cpu")) != "cpu":
        chunk = CHUNK_OF_DEVICES
    return None if chunk is None else check_int(chunk, "chunk", LEAST, LONGEST), gap / 1e3


SHORT = BLOCK
"""Greatest number of pending tokens that are always read in one step."""


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Bounds of a step.

    max_num_seqs: sequences that run at once
    max_num_batched_tokens: prompt tokens of a step that delays no sequences of other calls
    prefill_chunk_size: prompt tokens of a step that does; None for as many as keep the gap between two tokens of those
        sequences below `max_gap` seconds
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    prefill_chunk_size: int | None = None
    max_gap: float = 0.1


Leaders = dict[tuple[int, int | None, tuple[int, ...]] | None, KVSequence]
"""Sequences that read a whole text from its beginning, by root node, scoring and tokens."""


@dataclass(slots=True)
class StepPlan:
    """A step. `groups`, `readers` and `chunks` have equal lengths: request, sequence and tokens of each read.

    followers: sequences that begin like another one in this step, their leader, and later fork its table
    writing: calls with sequences in decode; written: number of these sequences
    prompted: number of prompt tokens; chunk: bound of these beside sequences of other calls
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
        """Add a read. If it is all of `pending`, the list is not copied."""
        self.groups.append(group)
        self.readers.append(reader)
        self.chunks.append(Chunk(reader.table, tokens))

    @property
    def is_all_pending(self) -> bool:
        """True if every read covers all pending tokens."""
        both = zip(self.readers, self.chunks, strict=True)
        return all(len(chunk.tokens) == len(reader.pending) for reader, chunk in both)

    @property
    def is_short(self) -> bool:
        """True if only sequences in decode are read."""
        return not self.prompted and not self.followers

    def everyone(self) -> list[SequenceGroup]:
        """Return each participating group once."""
        return list(dict.fromkeys(self.groups) | dict.fromkeys(group for group, _, _ in self.followers))


class Scheduler:
    """Admission, preemption and planning. Groups are ordered by priority and arrival.

    running: admitted groups, in order; preempted: groups without blocks, first in line of their priority
    budget: estimate of the prompt tokens that fit beside decode
    begin: creates the group of a call's next request; restart: restarts the work of a preempted group
    align: adjusts a number of tokens so that inseparable ones are read together
    """

    def __init__(
        self,
        pool: Pool,
        config: SchedulerConfig,
        budget: Budget,
        begin: Callable[[Call], SequenceGroup],
        restart: Callable[[SequenceGroup], Work],
        align: Callable[[Sequence[int], int], int] | None = None,
    ) -> None:
        self.config = config
        self.running: list[SequenceGroup] = []
        self.preempted: deque[SequenceGroup] = deque()
        self._pool = pool
        self._budget = budget
        self._begin = begin
        self._restart = restart
        self._align = align

    def plan(self, calls: Sequence[Call]) -> StepPlan:
        """Plan the next step. Groups that finish as soon as they begin stay in `running`."""
        plan = StepPlan()
        leaders: Leaders = {}
        prompts: list[SequenceGroup] = []
        for group in list(self.running):
            if group.is_preempted or group.waits or group.work.done:
                continue
            work = group.work
            if isinstance(work, SequenceState) and len(work.pending) <= SHORT:
                # fast path of the general case below
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
                self._plan_reads(group, plan, leaders)
        if joining:
            self._admit(waiting, plan, leaders)
        return plan

    def drop(self, group: SequenceGroup) -> None:
        """Remove a group, and release its blocks."""
        if group in self.running:
            self.running.remove(group)
            for reader in group.work.readers:
                self._pool.release(reader.table)
        elif group in self.preempted:
            self.preempted.remove(group)

    def _make_room(self, group: SequenceGroup) -> bool:
        """Reserve blocks for all pending tokens of a group. Return False if the group itself was preempted."""
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
        """Return the number of blocks that all pending tokens of a group would take."""
        return sum(self._pool.missing(each.table, len(each.pending)) for each in group.work.readers if each.pending)

    def _preempt(self, group: SequenceGroup) -> None:
        """Release a group's blocks, and let it wait."""
        self.running.remove(group)
        for reader in group.work.readers:
            self._pool.release(reader.table)
        group.is_preempted = group.is_restarted = True
        group.work = self._restart(group)
        insort(self.preempted, group, key=in_line)

    def _room_left(self, call: Call, plan: StepPlan) -> int:
        """Return the number of prompt tokens a call may still read in this step."""
        holds_up = len(plan.writing) > (call in plan.writing)
        return max(0, (plan.chunk if holds_up else self.config.max_num_batched_tokens) - plan.prompted)

    def _chunk(self, written: int, waiting: int) -> int:
        """Return the number of prompt tokens for a step that delays other calls."""
        config = self.config
        if config.prefill_chunk_size is None:
            return self._budget.prompt_tokens(written, waiting, config.max_gap, config.max_num_batched_tokens)
        return min(config.prefill_chunk_size, config.max_num_batched_tokens)

    def _plan_reads(self, group: SequenceGroup, plan: StepPlan, leaders: Leaders) -> None:
        """Plan the next reads of a group, within its limit.

        Beams read their last tokens in the same step, since they are advanced together. A prompt with scored tokens
        reads all of them itself.
        """
        work = group.work
        scores = work.request.prompt_best if isinstance(work, SequenceState) and work.scores_prompt else None
        left, readers = self._room_left(group.call, plan), group.work.readers
        is_much = sum(len(reader.pending) for reader in readers) > left or self._missing(group) > self._pool.available
        last = int(is_much and len(readers) > 1)
        for reader in readers:
            if len(reader.pending) <= last or left == 0:
                continue
            begin = None if reader.table.tokens or last else (reader.table.node, scores, tuple(reader.pending))
            if begin in leaders:
                plan.followers.append((group, reader, leaders[begin]))
                group.count_reused(len(reader.pending))
                continue
            if scores is None and (adopted := self._pool.adopt(reader.table, reader.pending)):
                del reader.pending[:adopted]
                group.count_reused(adopted)
            count = min(left, len(reader.pending) - last)
            if self._align is not None:
                count = self._align(reader.pending, count)
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
        """Preempt other groups for the first in line, if no other group reads in this step.

        Return the number of its tokens that then fit. With a window, the whole text never needs blocks at once.
        """
        if plan.groups or self.running[0] is not group:
            return 0
        while len(self.running) > 1 and self._pool.missing(reader.table, count) > self._pool.available:
            self._preempt(self.running[-1])
        while count > 0 and self._pool.missing(reader.table, count) > self._pool.available:
            count -= min(count, BLOCK)
        return count

    def _admit(self, waiting: Sequence[Call], plan: StepPlan, leaders: Leaders) -> None:
        """Admit requests while there is room for their prompts, by priority, preempted ones first.

        The first request without room stops admission.
        """
        priorities = {group.work.request.options.priority for group in self.preempted}
        for priority in sorted(priorities.union(call.priority for call in waiting)):
            calls = [call for call in waiting if call.priority == priority]
            if not (self._readmit(priority, plan, leaders) and self._admit_new(calls, plan, leaders)):
                return

    def _readmit(self, priority: int, plan: StepPlan, leaders: Leaders) -> bool:
        """Readmit preempted groups of a priority. Return False if one has no room."""
        texts = sum(group.width for group in self.running)
        while self.preempted and self._room_left(self.preempted[0].call, plan):
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
            # a recovered sequence may turn out to be finished
            if not group.work.done:
                texts += group.width
                if not group.waits:
                    self._plan_reads(group, plan, leaders)
        return True

    def _admit_new(self, calls: Sequence[Call], plan: StepPlan, leaders: Leaders) -> bool:
        """Begin the next requests of calls. Return False if one has no room."""
        texts = sum(group.width for group in self.running)
        for call in calls:
            while call.is_waiting and self._room_left(call, plan):
                request = call.requests[call.next_number]
                needed = -(-len(request.start.prompt) // BLOCK) + request.width
                if not self._has_room(texts + request.width, needed):
                    return False
                group = self._begin(call)
                insort(self.running, group, key=in_line)
                if not group.work.done:
                    texts += group.width
                    if not group.waits:
                        self._plan_reads(group, plan, leaders)
        return True

    def _has_room(self, texts: int, blocks: int) -> bool:
        """Test whether there is room for a total of `texts` sequences and for `blocks` more blocks."""
        fits = texts <= self.config.max_num_seqs and blocks + len(self.running) <= self._pool.available
        return fits or not self.running


def in_line(group: SequenceGroup) -> tuple[int, int]:
    """Return the sort key of groups: priority, then arrival."""
    return group.work.request.options.priority, group.arrival
