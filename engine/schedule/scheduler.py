"""The scheduler: who reads how much in a step, who joins, and who gives its memory up.

First come, first served. Texts that have few tokens to read, as those have that are being written, all read in every
step. What is left of a step's tokens goes to longer ones, prompts: as much as it has where only texts of the same call
are held up by that, else a chunk, as long as fits between two tokens (`Budget`); then to requests that join, as long as
there is room for all that they have to read.
Where a text needs a block and none is available the request that came last gives up its own and waits, first in line;
it reads again what is not known any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..decode.row import Reader, Row
from ..memory.pool import Pool
from ..memory.tables import BLOCK, Chunk
from .budget import Budget
from .call import Call, Entry, Work

SHORT = BLOCK
"""Up to so many tokens are read at once, whatever else there is to read."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is read in a step.

    texts: at most so many at once; tokens: of prompts, where no texts of other calls are held up
    chunk: where some are; None for as many as let no more than `gap` seconds pass between two tokens of those texts
    """

    texts: int = 256
    tokens: int = 2048
    chunk: int | None = None
    gap: float = 0.1


Leads = dict[tuple[int, tuple[int, ...]] | None, Reader]
"""Texts that read all that they have from their beginning on, by what that is."""


@dataclass(slots=True)
class Plan:
    """A step: who takes part, whose texts are read, and of each what; three lists of the same length.

    twins: texts that begin like another, their lead, of which they take over what it reads
    writing: the calls of which texts are being written; written: how many of these are read
    prompted: how many tokens of prompts are read; chunk: how many may be, where texts of other calls are held up
    """

    entries: list[Entry] = field(default_factory=list[Entry])
    readers: list[Reader] = field(default_factory=list[Reader])
    chunks: list[Chunk] = field(default_factory=list[Chunk])
    twins: list[tuple[Entry, Reader, Reader]] = field(default_factory=list[tuple[Entry, Reader, Reader]])
    writing: set[Call] = field(default_factory=set[Call])
    written: int = 0
    prompted: int = 0
    chunk: int = 0

    def add(self, entry: Entry, reader: Reader, tokens: list[int]) -> None:
        """Let a text be read; all that is pending is not copied."""
        self.entries.append(entry)
        self.readers.append(reader)
        self.chunks.append(Chunk(reader.table, tokens))

    @property
    def is_all_pending(self) -> bool:
        """Whether texts that are read are read to their ends."""
        both = zip(self.readers, self.chunks, strict=True)
        return all(len(chunk.tokens) == len(reader.pending) for reader, chunk in both)

    @property
    def is_short(self) -> bool:
        """Whether all that is read are the next tokens of texts that are being written."""
        return not self.prompted and not self.twins

    def everyone(self) -> list[Entry]:
        """Those that take part, each once."""
        return list(dict.fromkeys(self.entries) | dict.fromkeys(entry for entry, _, _ in self.twins))


class Scheduler:
    """running: entries in the order of their arrival; back: those that gave up their memory, first in line.

    budget: how much of prompts fits beside texts
    begin: makes the work of a call's next request; again: makes that of an entry that gave up
    """

    def __init__(
        self,
        pool: Pool,
        pace: Pace,
        budget: Budget,
        begin: Callable[[Call], Entry],
        again: Callable[[Entry], Work],
    ) -> None:
        self.pace = pace
        self.running: list[Entry] = []
        self.back: deque[Entry] = deque()
        self._pool = pool
        self._budget = budget
        self._begin = begin
        self._again = again

    def plan(self, calls: Sequence[Call]) -> Plan:
        """What the next step reads. Those that are done as soon as they begin are among `running`."""
        plan = Plan()
        leads: Leads = {}
        prompts: list[Entry] = []
        for entry in list(self.running):
            if entry.gave_up or entry.waits or entry.work.done:
                continue
            work = entry.work
            if isinstance(work, Row) and len(work.pending) <= SHORT:
                # As below, and quicker: most that runs is this.
                if self._pool.has_slack(work.table, len(work.pending)) or self._make_room(entry):
                    plan.writing.add(entry.call)
                    if work.pending:
                        plan.add(entry, work, work.pending)
                continue
            readers = work.readers
            if any(len(reader.pending) > SHORT for reader in readers):
                prompts.append(entry)
            elif all(self._pool.has_slack(each.table, len(each.pending)) for each in readers) or self._make_room(entry):
                plan.writing.add(entry.call)
                for each in readers:
                    if each.pending:
                        plan.add(entry, each, each.pending)
        plan.written = len(plan.entries)
        joining = len(self.back) + sum(call.is_waiting for call in calls)
        if prompts or joining:
            plan.chunk = self._chunk(plan.written, len(prompts) + joining)
        for entry in prompts:
            if not entry.gave_up:
                self._read_on(entry, plan, leads)
        if joining:
            self._join(calls, plan, leads)
        return plan

    def drop(self, entry: Entry) -> None:
        """Forget an entry, and free its blocks."""
        if entry in self.running:
            self.running.remove(entry)
            for reader in entry.work.readers:
                self._pool.release(reader.table)
        elif entry in self.back:
            self.back.remove(entry)

    def _make_room(self, entry: Entry) -> bool:
        """Reserve blocks for all that an entry has to read; False where it had to give up its own."""
        while self._missing(entry) > self._pool.available:
            last = self.running[-1]
            self._give_up(last)
            if last is entry:
                return False
        for reader in entry.work.readers:
            if reader.pending:
                self._pool.reserve(reader.table, reader.pending)
        return True

    def _missing(self, entry: Entry) -> int:
        """How many blocks all that an entry has to read would take."""
        return sum(self._pool.missing(each.table, len(each.pending)) for each in entry.work.readers if each.pending)

    def _give_up(self, entry: Entry) -> None:
        """Free an entry's blocks, and let it wait."""
        self.running.remove(entry)
        for reader in entry.work.readers:
            self._pool.release(reader.table)
        entry.gave_up = entry.is_again = True
        entry.work = self._again(entry)
        self.back.appendleft(entry)

    def _left(self, call: Call, plan: Plan) -> int:
        """How many more tokens of prompts a call may read in a step; it may hold up its own texts, not others'."""
        holds_up = len(plan.writing) > (call in plan.writing)
        return max(0, (plan.chunk if holds_up else self.pace.tokens) - plan.prompted)

    def _chunk(self, written: int, waiting: int) -> int:
        """How many tokens of prompts to read beside so many texts that are written, while so many requests wait."""
        pace = self.pace
        if pace.chunk is None:
            return self._budget.prompt_tokens(written, waiting, pace.gap, pace.tokens)
        return min(pace.chunk, pace.tokens)

    def _read_on(self, entry: Entry, plan: Plan, leads: Leads) -> None:
        """Let an entry read as much as it may.

        Beams read their last tokens in the same step, since they are continued together.
        """
        left, readers = self._left(entry.call, plan), entry.work.readers
        is_much = sum(len(reader.pending) for reader in readers) > left or self._missing(entry) > self._pool.available
        last = int(is_much and len(readers) > 1)
        for reader in readers:
            if len(reader.pending) <= last or left == 0:
                continue
            begin = None if reader.table.tokens or last else (reader.table.node, tuple(reader.pending))
            if begin in leads:
                plan.twins.append((entry, reader, leads[begin]))
                entry.find(len(reader.pending))
                continue
            if adopted := self._pool.adopt(reader.table, reader.pending):
                del reader.pending[:adopted]
                entry.find(adopted)
            count = min(left, len(reader.pending) - last)
            if self._pool.missing(reader.table, count) > self._pool.available:
                count = self._gives_way(entry, reader, count, plan)
            if count == 0:
                continue
            self._pool.reserve(reader.table, reader.pending[:count])
            plan.add(entry, reader, reader.pending[:count])
            if begin is not None and count == len(reader.pending):
                leads[begin] = reader
            left -= count
            plan.prompted += count

    def _gives_way(self, entry: Entry, reader: Reader, count: int, plan: Plan) -> int:
        """Where nobody else reads in this step, let others give up their blocks for the first in line.

        Returns how many of its `count` tokens it may read: behind a window, all of a text never lies in memory.
        """
        if plan.entries or self.running[0] is not entry:
            return 0
        while len(self.running) > 1 and self._pool.missing(reader.table, count) > self._pool.available:
            self._give_up(self.running[-1])
        while count > 0 and self._pool.missing(reader.table, count) > self._pool.available:
            count -= min(count, BLOCK)
        return count

    def _join(self, calls: Sequence[Call], plan: Plan, leads: Leads) -> None:
        """Take up those that gave up, and then requests, while there is room for all that they have to read."""
        texts = sum(entry.width for entry in self.running)
        while self.back and self._left(self.back[0].call, plan):
            entry = self.back[0]
            readers = entry.work.readers
            needed = sum(-(-len(reader.pending) // BLOCK) + 1 for reader in readers)
            if not self._has_room(texts + entry.width, needed):
                return
            self.running.append(entry)
            self.running.sort(key=by_arrival)
            self.back.popleft()
            entry.gave_up = False
            # Read again, a text that was broken off may turn out to be at its end.
            if not entry.work.done:
                texts += entry.width
                if not entry.waits:
                    self._read_on(entry, plan, leads)
        for call in calls:
            while call.is_waiting and self._left(call, plan):
                request = call.requests[call.begun]
                needed = -(-len(request.start.prompt) // BLOCK) + request.width
                if not self._has_room(texts + request.width, needed):
                    return
                entry = self._begin(call)
                self.running.append(entry)
                if not entry.work.done:
                    texts += entry.width
                    if not entry.waits:
                        self._read_on(entry, plan, leads)

    def _has_room(self, texts: int, blocks: int) -> bool:
        """Whether one more may join, with which there are so many texts, and that needs so many blocks."""
        fits = texts <= self.pace.texts and blocks + len(self.running) <= self._pool.available
        return fits or not self.running


def by_arrival(entry: Entry) -> int:
    """What entries are put in line by."""
    return entry.arrival
