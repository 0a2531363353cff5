"""Limits of a call to a guide, counted where the work is done, and how another thread stops it.

Work is counted in steps, so that the same call gets the same verdict on every machine: a kernel counts one for every
item that it handles, about 10 ns; Python code counts with `spend` what it does in loops that an input can make long.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..checks import brief
from ..errors import Cancelled, LimitError, OptionError
from ..kernels.answers import MOST, SPENT, STOPPED

CANCELLED, TIMED_OUT = 1, 2
# Python counts so many steps, about a millisecond, before it looks at what there is in all.
AT_A_TIME = 1 << 16


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a guide. Beyond any of these a call raises LimitError, and the guide stays as it was.

    work: steps that one call may take, the making of the guide among them; 60 million are about a second
    memory: bytes that the guide may hold, its automaton and what it remembers of its texts
    states: how many states the guide may meet at a time
    seconds: how long one call may take; None for any time, since a clock's verdict differs between machines
    Raises OptionError for what is no positive number.
    """

    work: int = 60_000_000
    memory: int = 512 << 20
    states: int = 8_000_000
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("work", "memory", "states"):
            value: Any = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**62:
                raise OptionError(f"Limits.{name} must be a whole number above 0, not {brief(value)}")
        seconds: Any = self.seconds
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and 0 < seconds <= threading.TIMEOUT_MAX):
            raise OptionError(
                f"Limits.seconds must be a number above 0, at most {threading.TIMEOUT_MAX:.0f}, or None for any time, "
                f"not {brief(seconds)}"
            )

    @classmethod
    def of(cls, limits: Limits | None) -> Limits:
        """The limits given, or the default ones. Raises OptionError for anything else."""
        if limits is None:
            return DEFAULT
        if not isinstance(limits, cls):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"limits must be a Limits, such as Limits(work=10**9), not {brief(limits)}")
        return limits


DEFAULT = Limits()


class Cancellation:
    """Lets another thread stop the guides that work inside a `with` block of this thread.

        with Cancellation() as stop:      # hand `stop` to the other thread
            guide = JSONGuide(schema, vocabulary)

    `stop.cancel()` makes whatever call is at work raise `Cancelled` within some milliseconds, and every later one in
    the block; the guides stay as they were.

    breathe: called in the working thread about every millisecond of work that Python counts; it may wait, so that
        others get on meanwhile
    """

    def __init__(self, breathe: Callable[[], None] | None = None) -> None:
        self.breathe = breathe
        self._meters: weakref.WeakSet[Meter] = weakref.WeakSet()
        self._outer: Cancellation | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """Stop what is at work, from any thread."""
        self.cancelled = True
        for meter in list(self._meters):
            meter.stop(CANCELLED)

    def __enter__(self) -> Self:
        work = _local.work
        self._outer, work.cancellation = work.cancellation, self
        return self

    def __exit__(self, *exception: object) -> None:
        _local.work.cancellation = self._outer

    def attach(self, meter: Meter) -> None:
        """Stop a meter too from now on."""
        self._meters.add(meter)
        if self.cancelled:
            meter.stop(CANCELLED)

    def detach(self, meter: Meter) -> None:
        """Leave a meter alone again."""
        self._meters.discard(meter)


class NotReadyError(Exception):
    """A guide has not been asked this before, and finding out takes longer than it may take `quickly`."""


class quickly:  # noqa: N801 - used like a function
    """A `with` block in which guides answer what takes up to so many steps; else they raise NotReadyError, unchanged.

    Nor are lazy parts of a constraint defined in it, however short: what defines them is Python, and may be long.
    """

    __slots__ = ("_outer", "_steps")

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._outer = 0

    def __enter__(self) -> None:
        work = _local.work
        self._outer, work.quick = work.quick, self._steps

    def __exit__(self, *exception: object) -> None:
        _local.work.quick = self._outer


class Meter:
    """Counts the work of one call at a time; `with meter:` around a call begins anew.

    counts: int64 [3], read and written by kernels: the steps SPENT and the MOST there may be, and whether another
    thread has STOPPED the call. Steps that Python counts are added to it some at a time, since a look at an array takes
    longer than what they count. Work of a call inside another's counts for that too. A call interrupted while it
    begins or ends leaves nothing behind that counts: the next one sets all of this again.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = Limits.of(limits)
        self.counts = np.array([0, self.limits.work, 0], np.int64)
        self._is_timed = self.limits.seconds is not None
        self._view = memoryview(self.counts)  # single numbers are quicker this way  # type: ignore[arg-type]
        self.uncounted = 0
        self.allowance = 0  # how many steps may be uncounted before another look
        self._work = _local.work
        self._outer: Meter | None = None
        self._cancellation: Cancellation | None = None
        self._timer: threading.Timer | None = None
        self._usual = 0  # the most steps of a call, while there may be fewer; 0 else

    def __enter__(self) -> Self:
        view = self._view
        view[SPENT] = view[STOPPED] = self.uncounted = self.allowance = 0
        work = self._work = _local.work
        self._restore()
        if work.quick:
            self._usual = view[MOST]
            view[MOST] = min(work.quick, self._usual)
        cancellation = work.cancellation
        if cancellation is not None:
            if cancellation.cancelled:
                view[STOPPED] = CANCELLED
                raise self.refusal()
            self._cancellation = cancellation
            cancellation.attach(self)
        if self._timer is not None:  # of a call that was interrupted as it ended
            self._timer.cancel()
        if self.limits.seconds is not None:
            self._timer = threading.Timer(self.limits.seconds, self.stop, (TIMED_OUT,))
            self._timer.daemon = True
            self._timer.start()
        outer = work.meter
        self._outer = None if outer is self else outer
        work.meter = self
        return self

    def __exit__(self, *exception: object) -> None:
        outer = self._work.meter = self._outer
        if outer is not None:
            # Steps that were refused were not made, and may be any number. It looks when it counts next.
            outer.uncounted += min(self.spent, self._view[MOST])
        self._restore()
        if self._cancellation is not None:
            self._cancellation.detach(self)
            self._cancellation = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def begin_alone(self) -> bool:
        """Begin a call that only a kernel counts in, without `with`; False if a call or a thread must know of it."""
        work = _local.work
        if self._is_timed or work.meter is not None or work.cancellation is not None or work.quick:
            return False
        if self._usual:
            self._restore()
        view = self._view
        view[SPENT] = view[STOPPED] = self.uncounted = 0
        return True

    @property
    def spent(self) -> int:
        """The steps of the last call so far."""
        return self._view[SPENT] + self.uncounted

    def stop(self, reason: int) -> None:
        """Make the call at work end as soon as it looks."""
        self._view[STOPPED] = reason
        self.allowance = -1

    def spend(self, steps: int) -> None:
        """Count steps. Raises LimitError or Cancelled when that is enough."""
        self.uncounted += steps
        if self.uncounted > self.allowance:
            self.look()

    def look(self) -> None:
        """Add up what was spent. Raises LimitError or Cancelled when that is enough."""
        if self._cancellation is not None and self._cancellation.breathe is not None:
            self._cancellation.breathe()
        view = self._view
        spent = view[SPENT] = min(view[SPENT] + self.uncounted, 2**62)
        self.uncounted = 0
        if spent > view[MOST] or view[STOPPED]:
            self.allowance = -1
            raise self.refusal()
        self.allowance = min(AT_A_TIME, view[MOST] - spent)

    def _restore(self) -> None:
        """Let a call take all the work it may again."""
        if self._usual:
            self._view[MOST], self._usual = self._usual, 0

    def check_ready(self) -> None:
        """Raise NotReadyError where only what is quick is to be done; before something that is not."""
        if _local.work.quick:
            raise NotReadyError

    def refusal(self) -> LimitError | Cancelled | NotReadyError:
        """The reason why the call at work must end."""
        if self._view[STOPPED] == CANCELLED:
            return _cancelled()
        if _local.work.quick and not self._view[STOPPED] and self._usual and self.spent <= self._usual:
            return NotReadyError()
        if self._view[STOPPED] == TIMED_OUT:
            return LimitError(
                f"the constraint takes more than {self.limits.seconds} seconds; simplify it, or raise seconds= of its "
                "limits=Limits(...)"
            )
        return LimitError(
            f"the constraint takes more than {self.limits.work:,} steps of work in one call; simplify it, or raise "
            "work= of its limits=Limits(...)"
        )

    def check_memory(self, held: int) -> None:
        """Raise LimitError if so many bytes are too many to be held."""
        if held > self.limits.memory:
            raise LimitError(
                f"the constraint takes more than {self.limits.memory >> 20:,} MiB of memory; simplify it, or raise "
                "memory= of its limits=Limits(...)"
            )


class _Work:
    """The work of a thread, and what may stop it. quick: the steps that a call may take at once; 0 for all"""

    __slots__ = ("cancellation", "meter", "quick")

    def __init__(self) -> None:
        self.meter: Meter | None = None
        self.cancellation: Cancellation | None = None
        self.quick = 0


class _Local(threading.local):
    def __init__(self) -> None:
        self.work = _Work()


_local = _Local()


def spend(steps: int) -> None:
    """Count steps of the call at work in this thread, if any. Raises LimitError or Cancelled when that is enough."""
    meter = _local.work.meter
    if meter is not None:
        # As Meter.spend, without another call
        meter.uncounted += steps
        if meter.uncounted > meter.allowance:
            meter.look()


def spend_growth(steps: int, held: int) -> None:
    """Count what it takes to make an array larger, which has so many bytes then. Raises LimitError or Cancelled."""
    meter = _local.work.meter
    if meter is not None:
        meter.check_memory(held)
        meter.spend(steps)


def check_cancelled() -> None:
    """Raise Cancelled where the calls of this thread are, for a call that does nothing else that counts."""
    cancellation = _local.work.cancellation
    if cancellation is not None and cancellation.cancelled:
        raise _cancelled()


def _cancelled() -> Cancelled:
    return Cancelled("the call was cancelled by another thread; what it worked on is as it was before")


def current() -> Meter | None:
    """The meter of the call at work in this thread."""
    return _local.work.meter
