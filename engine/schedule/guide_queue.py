"""Sequences that sit out steps until their constraints have found out what may follow, so that nobody waits for them.

What takes long, a schema that is met for the first time, is found out by another thread: that of the engine, where it
has some, or else the one that waits for the text. Where neither is there, it is found out in the step.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..decode.sampler import Sampler
from ..decode.sequence import SequenceState
from .call import Call, Preparation, SequenceGroup

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
