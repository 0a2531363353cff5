"""How much a call to a guide may take, counted where the work is done, and how another thread stops it.

Work is counted in steps, so that the same call gets the same verdict on every machine: a kernel counts one for every
item that it handles, about 10 ns; Python code counts with `spend` what it does in loops that an input can make long.
"""

from __future__ import annotations

import threading
import weakref
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..errors import Cancelled, LimitError, OptionError
from ..kernels.chart import MOST, SPENT, STOPPED

CANCELLED, TIMED_OUT = 1, 2
AHEAD = 10_000
"""How many steps Python code pays for at a time, so that most of them are counted without looking at `counts`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a guide may take. Beyond any of these a call raises LimitError, and the guide stays as it was.

    work: steps that one call may take, the making of the guide among them; 75 million are about a second
    memory: bytes that the guide may hold, its automaton and what it remembers of its texts
    states: how many states the guide may meet at a time
    seconds: how long one call may take; None for any time, since a clock's verdict differs between machines
    Raises OptionError for what is no positive number.
    """

    work: int = 75_000_000
    memory: int = 512 << 20
    states: int = 8_000_000
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("work", "memory", "states"):
            value: Any = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**62:
                raise OptionError(f"Limits.{name} must be a whole number above 0, not {value!r}")
        seconds: Any = self.seconds
        if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds <= 0):
            raise OptionError(f"Limits.seconds must be a number above 0, or None, not {seconds!r}")

    @classmethod
    def of(cls, limits: Limits | None) -> Limits:
        """The limits given, or the default ones. Raises OptionError for anything else."""
        if limits is None:
            return DEFAULT
        if not isinstance(limits, cls):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"limits must be a Limits, such as Limits(work=10**9), not {limits!r}")
        return limits


DEFAULT = Limits()


class Cancellation:
    """Lets another thread stop the guides that work inside a `with` block of this thread.

        with Cancellation() as stop:      # hand `stop` to the other thread
            guide = JSONGuide(schema, vocabulary)

    `stop.cancel()` makes whatever call is at work raise `Cancelled` within some milliseconds, and every later one in
    the block; the guides stay as they were.
    """

    def __init__(self) -> None:
        self._meters: weakref.WeakSet[Meter] = weakref.WeakSet()
        self._outer: Cancellation | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """Stop what is at work, from any thread."""
        self.cancelled = True
        for meter in list(self._meters):
            meter.stop(CANCELLED)

    def __enter__(self) -> Self:
        self._outer, _local.cancellation = _local.cancellation, self
        return self

    def __exit__(self, *exception: object) -> None:
        _local.cancellation = self._outer

    def attach(self, meter: Meter) -> None:
        """Stop a meter too from now on."""
        self._meters.add(meter)
        if self.cancelled:
            meter.stop(CANCELLED)

    def detach(self, meter: Meter) -> None:
        """Leave a meter alone again."""
        self._meters.discard(meter)


class Meter:
    """Counts the work of one call at a time; `with meter:` around a call begins anew.

    counts: int64 [3], read and written by kernels: the steps SPENT and the MOST there may be, and whether another
    thread has STOPPED the call. Work of a call inside another's counts for that too. A call interrupted while it
    begins or ends leaves nothing behind that counts: the next one sets all of this again.
    paid: how many of the SPENT steps Python code has paid for and not used yet, AHEAD at most; they are within MOST
    """

    __slots__ = ("__weakref__", "_cancellation", "_outer", "_timer", "_view", "counts", "limits", "paid")

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = Limits.of(limits)
        self.counts = np.array([0, self.limits.work, 0], np.int64)
        self._view = memoryview(self.counts)  # single numbers are quicker this way  # type: ignore[arg-type]
        self.paid = 0
        self._outer: Meter | None = None
        self._cancellation: Cancellation | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        view = self._view
        view[SPENT] = view[STOPPED] = self.paid = 0
        cancellation = _local.cancellation
        if cancellation is not None:
            if cancellation.cancelled:
                view[STOPPED] = CANCELLED
                raise self.refusal()
            self._cancellation = cancellation
            cancellation.attach(self)
        if self.limits.seconds is not None:
            self._timer = threading.Timer(self.limits.seconds, self.stop, (TIMED_OUT,))
            self._timer.daemon = True
            self._timer.start()
        outer = current()
        self._outer = None if outer is self else outer
        _at_work.set(self)
        return self

    def __exit__(self, *exception: object) -> None:
        outer = self._outer
        _at_work.set(outer)
        if outer is not None:
            # It looks when it counts next.
            outer._view[SPENT] = min(outer.spent + self.spent, 2**62)
            outer.paid = 0
        if self._cancellation is not None:
            self._cancellation.detach(self)
            self._cancellation = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def spent(self) -> int:
        """The steps of the last call so far."""
        return self._view[SPENT] - self.paid

    def stop(self, reason: int) -> None:
        """Make the call at work end as soon as it looks."""
        self._view[STOPPED] = reason

    def spend(self, steps: int) -> None:
        """Count steps. Raises LimitError or Cancelled when that is enough."""
        left = self.paid - steps
        if left > 0:
            self.paid = left
        else:
            self.pay(steps)

    def pay(self, steps: int) -> None:
        """Count steps, and pay for some that are to come."""
        view = self._view
        spent = self.spent + steps
        self.paid = 0
        view[SPENT] = min(spent, 2**62)
        if spent > view[MOST] or view[STOPPED]:
            raise self.refusal()
        self.paid = paid = min(AHEAD, view[MOST] - spent)
        view[SPENT] = spent + paid

    def refusal(self) -> LimitError | Cancelled:
        """Why the call at work must end."""
        if self._view[STOPPED] == CANCELLED:
            return Cancelled("the call was cancelled by another thread; what it worked on is as it was before")
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


class _Local(threading.local):
    cancellation: Cancellation | None = None


_local = _Local()
# Whatever runs in another thread, or in another task, has its own; reading it is several times as fast as a `local`.
_at_work: ContextVar[Meter | None] = ContextVar("the meter of the call at work", default=None)
current = _at_work.get
"""The meter of the call at work here, None if there is none."""


def spend(steps: int) -> None:
    """Count steps of the call at work in this thread, if any. Raises LimitError or Cancelled when that is enough."""
    meter = current()
    if meter is not None:
        left = meter.paid - steps
        if left > 0:
            meter.paid = left
        else:
            meter.pay(steps)


def spend_growth(steps: int, held: int) -> None:
    """Count what it takes to make an array larger, which has so many bytes then. Raises LimitError or Cancelled."""
    meter = current()
    if meter is not None:
        meter.check_memory(held)
        meter.spend(steps)
