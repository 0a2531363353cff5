"""Calls: requests that one caller waits for, what runs of each, what it waits for, and what has come of it.

Sequences that sit out steps until their constraints have found out what may follow, so that nobody waits for them.

What takes long, a schema that is met for the first time, is found out by another thread: that of the engine, where it
has some, or else the one that waits for the text. Where neither is there, it is found out in the step.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import Cancelled
from ...guides.limits import Cancellation
from ..decode.beam_search import BeamGroup
from ..decode.sampler import ClosingMask, Sampler
from ..decode.sequence import Request, SequenceState
from ..drawing.populations import Population

Work = SequenceState | BeamGroup | Population


@dataclass(slots=True, eq=False)
class SequenceGroup:
    """A request running.

    number: which of its call's; arrival: the how-manieth of the engine's; work: how far it has come
    is_preempted: whether it waits without memory
    steps: forward passes that read several sequences for it; a single text counts its own
    preparation: what it waits for, sitting out steps
    is_again: whether it reads what it has read before, since its memory was taken
    """

    call: Call
    number: int
    arrival: int
    work: Work
    is_preempted: bool = False
    steps: int = 0
    preparation: Preparation | None = None
    is_again: bool = False

    def find(self, tokens: int) -> None:
        """Note tokens of its prompt that it need not read, since another text has."""
        if not self.is_again:
            self.call.found[self.number] = self.call.found.get(self.number, 0) + tokens

    @property
    def width(self) -> int:
        """Number of sequences that the model may read for it at once."""
        return self.work.request.width

    @property
    def waits(self) -> bool:
        """True if it sits out steps until its constraint has found out what may follow."""
        return isinstance(self.work, SequenceState) and self.work.waits


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """The outcome of a request: its texts, or what went wrong."""

    sequences: Sequence[SequenceState]
    error: Exception | None = None

    @property
    def tokens(self) -> int:
        """Number of tokens of its texts."""
        return sum(len(each.tokens) for each in self.sequences)


class Call:
    """Requests of one caller, of which at most `limit` texts run at once; taken up in their order.

    begun: how many were taken up; groups: those running; outcomes: those that are done and not yet taken
    waiting: how many threads wait for an outcome, and find out meanwhile what its texts wait for
    found: by request, how many tokens of prompts were in memory when they were to be read
    Each change is one assignment, so that whatever breaks off a step leaves enough to go on from: see `Engine`.
    """

    def __init__(self, requests: Sequence[Request], limit: int) -> None:
        self.requests = list(requests)
        self.limit = limit
        self.begun = 0
        self.groups: dict[int, SequenceGroup] = {}
        self.outcomes: dict[int, RequestOutput] = {}
        self.found: dict[int, int] = {}
        self.is_cancelled = False
        self.waiting = 0
        self._taken: set[int] = set()

    @property
    def done(self) -> bool:
        """True if everything was taken, or is wanted no more."""
        return self.is_cancelled or len(self._taken) == len(self.requests)

    @property
    def priority(self) -> int:
        """That of its requests, which have the same."""
        return self.requests[0].options.priority if self.requests else 0

    @property
    def running(self) -> int:
        """Number of sequences that are running."""
        return sum(group.width for group in self.groups.values())

    @property
    def is_waiting(self) -> bool:
        """True if there are requests to be taken up, and few enough running."""
        if self.is_cancelled or self.begun == len(self.requests):
            return False
        running = self.running
        return not running or running + self.requests[self.begun].width <= self.limit

    def to_prepare(self) -> Preparation | None:
        """A preparation that one of its texts waits for, and nobody is at."""
        for group in list(self.groups.values()):
            found = group.preparation
            if found is not None and not found.is_taken:
                return found
        return None

    def is_settled(self, number: int) -> bool:
        """True if a request has its outcome."""
        return number in self.outcomes or number in self._taken

    def take(self, number: int) -> None:
        """Let an outcome go that was looked at."""
        self._taken.add(number)
        self.outcomes.pop(number, None)

    def refuse(self, error: Exception) -> None:
        """Let requests that were not taken up come to nothing, between two steps."""
        for number in range(self.begun, len(self.requests)):
            self.outcomes[number] = RequestOutput((), error)
            self.begun = number + 1

    def again(self, request: Request) -> None:
        """A further request in the place of one that was taken."""
        self.requests.append(request)


class Preparation:
    """Work that a sequence's guide has yet to do, for whichever thread takes it first. The sequence is not touched.

    ending: what the guide does not remember; error: what it raised
    """

    def __init__(self, sequences: Sampler, sequence: SequenceState) -> None:
        self.sequence = sequence
        self.ending: ClosingMask | None = None
        self.error: Exception | None = None
        self._sampler = sequences
        self._taken = threading.Lock()
        self._ended = threading.Event()
        self._stop = Cancellation()

    @property
    def is_taken(self) -> bool:
        """True if a thread is at it, or was."""
        return self._taken.locked()

    @property
    def is_ended(self) -> bool:
        """True if it is done, or was broken off: then the sequence finds out the rest in its step."""
        return self._ended.is_set()

    def run(self) -> None:
        """Do it; nothing if another thread does."""
        if not self._taken.acquire(blocking=False):
            return
        try:
            with self._stop:
                self.ending = self._sampler.prepare(self.sequence)
        except Cancelled:
            return
        except Exception as error:
            self.error = error
        finally:
            self._ended.set()

    def finish(self) -> None:
        """Do it, or wait for the thread that does."""
        self.run()
        self._ended.wait()

    def pause(self, seconds: float) -> None:
        """Wait for the thread that does it, so long at most."""
        self._ended.wait(seconds)

    def cancel(self) -> None:
        """Break it off: nobody wants it any more."""
        self._stop.cancel()


PATIENCE = 0.005
"""Seconds after which a step with nothing to read ends, so that others may join."""


class GuideQueue:
    """Sequences that wait for their guides. is_attended: whether a thread of the engine's finds out for all"""

    def __init__(self, sequences: Sampler) -> None:
        self.is_attended = False
        self._sampler = sequences
        self._is_any = False

    def may_wait(self, call: Call, calls: int, running: int) -> bool:
        """True if a call's texts may wait: if others are held up otherwise, and somebody finds out for them."""
        return running > 1 and (self.is_attended or (calls > 1 and call.waiting > 0))

    def begin(self, groups: Sequence[SequenceGroup]) -> None:
        """Ask for what texts wait for, from when they do; after a step."""
        for group in groups:
            work = group.work
            if isinstance(work, SequenceState) and work.waits:
                self._is_any = True
                if group.preparation is None or group.preparation.sequence is not work:
                    group.preparation = Preparation(self._sampler, work)

    def resume(self, groups: Sequence[SequenceGroup]) -> None:
        """Let those go on that have what they waited for, and those that nobody finds anything out for; before a step.

        Raises what breaks that off, and then they still wait.
        """
        if not self._is_any:
            return
        self._is_any = False
        for group in groups:
            found = group.preparation
            if found is None:
                continue
            if not found.is_ended and (self.is_attended or group.call.waiting):
                self._is_any = True
                continue
            found.finish()
            sequence = found.sequence
            if group.work is sequence and sequence.waits:
                if found.error is None:
                    self._sampler.resume(sequence, found.ending)
                else:
                    sequence.error = found.error
            group.preparation = None

    def pause(self, groups: Sequence[SequenceGroup]) -> None:
        """Let some time pass where there is nothing to read, as long as a thread is at it."""
        taken = [group.preparation for group in groups if group.preparation is not None]
        for found in taken:
            if found.is_taken and not found.is_ended:
                found.pause(PATIENCE)
                return

    def drop(self, group: SequenceGroup) -> None:
        """Break off what is found out for a sequence that nobody wants."""
        if group.preparation is not None:
            group.preparation.cancel()
