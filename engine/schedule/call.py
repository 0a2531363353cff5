"""Calls: a caller's requests, their running groups and outcomes, and guide work done outside of steps.

A sequence may skip steps while its constraint computes something expensive, such as a schema on first use, so that
others need not wait. The computation runs in the engine's preparation thread if there is one, else in the thread that
waits for the sequence, else in the step.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...errors import Cancelled
from ...guides.limits import Cancellation
from ..decode.beam_search import BeamGroup
from ..decode.sampler import ClosingMask, Sampler
from ..decode.sequence import Request, SequenceState
from ..exact_sampling.populations import Population

Work = SequenceState | BeamGroup | Population


@dataclass(slots=True, eq=False)
class SequenceGroup:
    """A running request.

    number: position in its call; arrival: order of arrival in the engine; work: its state
    is_preempted: True while it waits without blocks
    steps: forward passes that read several sequences for it; a single sequence counts its own
    preparation: the guide work it waits for
    is_restarted: True if it was preempted or recovered and reads its tokens again
    """

    call: Call
    number: int
    arrival: int
    work: Work
    is_preempted: bool = False
    steps: int = 0
    preparation: Preparation | None = None
    is_restarted: bool = False

    def count_reused(self, tokens: int) -> None:
        """Count prompt tokens that need not be read, since their blocks are known."""
        if not self.is_restarted:
            self.call.reused_tokens[self.number] = self.call.reused_tokens.get(self.number, 0) + tokens

    @property
    def width(self) -> int:
        """The greatest number of sequences that the model reads for it at once."""
        return self.work.request.width

    @property
    def waits(self) -> bool:
        """True if it skips steps while its constraint computes."""
        return isinstance(self.work, SequenceState) and self.work.waits


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """The result of a request: its texts or its error."""

    sequences: Sequence[SequenceState]
    error: Exception | None = None

    @property
    def tokens(self) -> int:
        """The number of tokens of its texts."""
        return sum(len(each.tokens) for each in self.sequences)


class Call:
    """Requests of one caller, begun in order, with at most `limit` sequences running at once.

    next_number: number of the next request to begin; groups: running requests; outcomes: finished requests not taken
        yet
    waiting: number of threads that wait for an outcome, and run preparations meanwhile
    reused_tokens: number of prompt tokens of each request that were reused from the pool
    Each change is one assignment, so that an interrupted step leaves a consistent state: see `Engine`.
    """

    def __init__(self, requests: Sequence[Request], limit: int) -> None:
        self.requests = list(requests)
        self.limit = limit
        self.next_number = 0
        self.groups: dict[int, SequenceGroup] = {}
        self.outcomes: dict[int, RequestOutput] = {}
        self.reused_tokens: dict[int, int] = {}
        self.is_cancelled = False
        self.waiting = 0
        self._delivered: set[int] = set()

    @property
    def done(self) -> bool:
        """True if all outcomes were taken or the call is cancelled."""
        return self.is_cancelled or len(self._delivered) == len(self.requests)

    @property
    def priority(self) -> int:
        """The priority of its requests, equal for all."""
        return self.requests[0].options.priority if self.requests else 0

    @property
    def running(self) -> int:
        """The number of running sequences."""
        return sum(group.width for group in self.groups.values())

    @property
    def is_waiting(self) -> bool:
        """True if its next request may begin."""
        if self.is_cancelled or self.next_number == len(self.requests):
            return False
        running = self.running
        return not running or running + self.requests[self.next_number].width <= self.limit

    def to_prepare(self) -> Preparation | None:
        """Return a preparation that no thread has taken; None if there is none."""
        for group in list(self.groups.values()):
            found = group.preparation
            if found is not None and not found.is_taken:
                return found
        return None

    def is_settled(self, number: int) -> bool:
        """Test whether a request has an outcome."""
        return number in self.outcomes or number in self._delivered

    def take(self) -> Iterator[tuple[int, RequestOutput]]:
        """Yield outcomes by request number.

        Each is removed when the next one is requested, so that an interrupt loses none.
        """
        for number, outcome in list(self.outcomes.items()):
            yield number, outcome
            self._delivered.add(number)
            self.outcomes.pop(number, None)

    def refuse(self, error: Exception) -> None:
        """Fail all requests that have not begun, between two steps."""
        for number in range(self.next_number, len(self.requests)):
            self.outcomes[number] = RequestOutput((), error)
            self.next_number = number + 1


class Preparation:
    """Guide work of a sequence, done by the first thread that takes it. It does not modify the sequence.

    ending: the part of the result that the guide does not cache; error: the exception raised
    """

    def __init__(self, sequences: Sampler, sequence: SequenceState) -> None:
        self.sequence = sequence
        self.ending: ClosingMask | None = None
        self.error: Exception | None = None
        self._sampler = sequences
        self._claim = threading.Lock()
        self._ended = threading.Event()
        self._stop = Cancellation()

    @property
    def is_taken(self) -> bool:
        """True if a thread has taken it."""
        return self._claim.locked()

    @property
    def is_ended(self) -> bool:
        """True if it is finished or cancelled. After cancellation the sequence does the rest in its step."""
        return self._ended.is_set()

    def run(self) -> None:
        """Do the work unless another thread has taken it."""
        if not self._claim.acquire(blocking=False):
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
        """Do the work, or wait for the thread that does it."""
        self.run()
        self._ended.wait()

    def pause(self, seconds: float) -> None:
        """Wait for the working thread for at most `seconds`."""
        self._ended.wait(seconds)

    def cancel(self) -> None:
        """Cancel the work."""
        self._stop.cancel()


PATIENCE = 0.005
"""Seconds after which a step without anything to read ends, so that other requests may join."""


class GuideQueue:
    """Sequences that wait for their guides. is_attended: True if the engine has a preparation thread"""

    def __init__(self, sequences: Sampler) -> None:
        self.is_attended = False
        self._sampler = sequences
        self._is_any = False

    def may_wait(self, call: Call, calls: int, running: int) -> bool:
        """Test whether a call's sequences may wait: they would delay others, and a thread can do the work."""
        return running > 1 and (self.is_attended or (calls > 1 and call.waiting > 0))

    def begin(self, groups: Sequence[SequenceGroup]) -> None:
        """Create preparations of sequences that began to wait, after a step."""
        for group in groups:
            work = group.work
            if isinstance(work, SequenceState) and work.waits:
                self._is_any = True
                if group.preparation is None or group.preparation.sequence is not work:
                    group.preparation = Preparation(self._sampler, work)

    def resume(self, groups: Sequence[SequenceGroup]) -> None:
        """Resume sequences whose preparations ended or have no thread to do them, before a step.

        An interruption is raised, and leaves the sequences waiting.
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
        """Wait briefly for a running preparation, if there is nothing to read."""
        preparations = [group.preparation for group in groups if group.preparation is not None]
        for found in preparations:
            if found.is_taken and not found.is_ended:
                found.pause(PATIENCE)
                return

    def drop(self, group: SequenceGroup) -> None:
        """Cancel the preparation of an unwanted sequence."""
        if group.preparation is not None:
            group.preparation.cancel()
