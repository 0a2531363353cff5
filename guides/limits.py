"""Limits of a call to a guide, and cancellation by another thread.

Work is counted in steps, so that the same call has the same outcome on every machine. A kernel counts one step per
item, about 10 ns; Python code counts loops of input-dependent length with `spend`.
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
from ..kernels.answers import LIMIT, SPENT, STOPPED

CANCELLED, TIMED_OUT = 1, 2
# Python counts up to this many steps, about a millisecond, before it compares the total with the limit.
AT_A_TIME = 1 << 16


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a guide. A call that exceeds one raises LimitError and leaves the guide unchanged.

    work: steps of one call, including the construction of the guide; 60 million take about a second
    memory: bytes that the guide may hold: its automaton and its caches
    states: the most states of the guide at a time
    seconds: the most seconds of one call; None for no bound, since wall-clock outcomes differ between machines
    Raises OptionError for values that are not positive numbers.
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
        """Return the limits given, or the default ones. Raises OptionError for anything else."""
        if limits is None:
            return DEFAULT
        if not isinstance(limits, cls):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"limits must be a Limits, such as Limits(work=10**9), not {brief(limits)}")
        return limits


DEFAULT = Limits()


class Cancellation:
    """Cancellation, by another thread, of the guides that work inside a `with` block of this thread.

        with Cancellation() as stop:      # hand `stop` to the other thread
            guide = JSONGuide(schema, vocabulary)

    `stop.cancel()` makes the running call raise `Cancelled` within some milliseconds, and every later call in
    the block; the guides stay unchanged.

    breathe: called in the working thread about every millisecond of work counted in Python; it may wait to give way to
    other threads
    """

    def __init__(self, breathe: Callable[[], None] | None = None) -> None:
        self.breathe = breathe
        self._meters: weakref.WeakSet[Meter] = weakref.WeakSet()
        self._outer: Cancellation | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """Stop running and later calls; may be called from any thread."""
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
        """Register a meter, so that `cancel` stops its call."""
        self._meters.add(meter)
        if self.cancelled:
            meter.stop(CANCELLED)

    def detach(self, meter: Meter) -> None:
        """Unregister a meter."""
        self._meters.discard(meter)


class NotReadyError(Exception):
    """The answer is not cached and takes longer than a `quickly` block allows."""


class quickly:  # noqa: N801 - used like a function
    """A `with` block in which a call of a guide takes up to `steps` steps, or raises NotReadyError without effect.

    Lazy nodes are not defined in it at all: Python code defines them, for an unknown time.
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
    """A counter of the work of one call at a time; `with meter:` around a call resets it.

    counts: int64 [3], shared with kernels: steps SPENT, the LIMIT of them, and the reason why another thread STOPPED
    the call, or 0. Steps of Python code are added in batches, as access to an array costs more than the steps. Steps of
    a nested call count for the outer call too. An interrupt while a call begins or ends does no harm: the next call
    resets the meter.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = Limits.of(limits)
        self.counts = np.array([0, self.limits.work, 0], np.int64)
        self._is_timed = self.limits.seconds is not None
        self._view = memoryview(self.counts)  # faster than NumPy for single numbers  # type: ignore[arg-type]
        self.uncounted = 0
        self.allowance = 0  # uncounted steps allowed before the next `look`
        self._work = _local.work
        self._outer: Meter | None = None
        self._cancellation: Cancellation | None = None
        self._timer: threading.Timer | None = None
        self._usual = 0  # the usual MOST while `quickly` lowers it, else 0

    def __enter__(self) -> Self:
        view = self._view
        view[SPENT] = view[STOPPED] = self.uncounted = self.allowance = 0
        work = self._work = _local.work
        self._restore()
        if work.quick:
            self._usual = view[LIMIT]
            view[LIMIT] = min(work.quick, self._usual)
        cancellation = work.cancellation
        if cancellation is not None:
            if cancellation.cancelled:
                view[STOPPED] = CANCELLED
                raise self.refusal()
            self._cancellation = cancellation
            cancellation.attach(self)
        if self._timer is not None:  # left by a call that was interrupted at its end
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
            # Refused steps were not made, and may be any number. The outer meter compares them at its next count.
            outer.uncounted += min(self.spent, self._view[LIMIT])
        self._restore()
        if self._cancellation is not None:
            self._cancellation.detach(self)
            self._cancellation = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def begin_alone(self) -> bool:
        """Begin a call whose work only a kernel counts, without `with`; False where that is not possible.

        An outer call, a cancellation, a time limit or `quickly` needs `with`.
        """
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
        """Steps of the last call so far."""
        return self._view[SPENT] + self.uncounted

    def stop(self, reason: int) -> None:
        """Make the running call end at its next check."""
        self._view[STOPPED] = reason
        self.allowance = -1

    def spend(self, steps: int) -> None:
        """Count steps. Raises LimitError or Cancelled."""
        self.uncounted += steps
        if self.uncounted > self.allowance:
            self.look()

    def look(self) -> None:
        """Compare the steps spent with the limit. Raises LimitError or Cancelled."""
        if self._cancellation is not None and self._cancellation.breathe is not None:
            self._cancellation.breathe()
        view = self._view
        spent = view[SPENT] = min(view[SPENT] + self.uncounted, 2**62)
        self.uncounted = 0
        if spent > view[LIMIT] or view[STOPPED]:
            self.allowance = -1
            raise self.refusal()
        self.allowance = min(AT_A_TIME, view[LIMIT] - spent)

    def _restore(self) -> None:
        """Undo the lower LIMIT of `quickly`."""
        if self._usual:
            self._view[LIMIT], self._usual = self._usual, 0

    def check_ready(self) -> None:
        """Raise NotReadyError in a `quickly` block; called before slow work."""
        if _local.work.quick:
            raise NotReadyError

    def refusal(self) -> LimitError | Cancelled | NotReadyError:
        """Return the error that ends the running call."""
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
        """Raise LimitError if `held` bytes exceed the memory limit."""
        if held > self.limits.memory:
            raise LimitError(
                f"the constraint takes more than {self.limits.memory >> 20:,} MiB of memory; simplify it, or raise "
                "memory= of its limits=Limits(...)"
            )


class _Work:
    """The state of a thread: meter, cancellation, and `quick`, the most steps of a call in `quickly`, else 0."""

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
    """Count steps of this thread's running call, if any. Raises LimitError or Cancelled."""
    meter = _local.work.meter
    if meter is not None:
        # `Meter.spend`, inlined
        meter.uncounted += steps
        if meter.uncounted > meter.allowance:
            meter.look()


def spend_growth(steps: int, held: int) -> None:
    """Count steps for the growth of an array to `held` bytes. Raises LimitError or Cancelled."""
    meter = _local.work.meter
    if meter is not None:
        meter.check_memory(held)
        meter.spend(steps)


def check_cancelled() -> None:
    """Raise Cancelled if this thread is cancelled; for calls that count no work."""
    cancellation = _local.work.cancellation
    if cancellation is not None and cancellation.cancelled:
        raise _cancelled()


def _cancelled() -> Cancelled:
    return Cancelled("the call was cancelled by another thread; its objects are unchanged")


def current() -> Meter | None:
    """Return the meter of this thread's running call."""
    return _local.work.meter
