"""Compilation gives way to texts that are being written, and to nothing else."""

import asyncio
import threading

import pytest
from trellm import Cancellation, Limits
from trellm.errors import Cancelled
from trellm.serve import Settings

from .conftest import turned
from .support import ConstraintCompiler, Meter, Metrics, TokenBucket, compiler, spend


class Clock:
    """Time that passes as one works or sleeps. A thread works for a millisecond between two looks."""

    def __init__(self) -> None:
        self.now = self.worked = self.slept = 0.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.worked

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= compiler.MAX_SLEEP
        self.now += seconds
        self.slept += seconds

    def work(self, made: TokenBucket, seconds: float) -> None:
        for _ in range(round(seconds * 1000)):
            self.now += 1e-3
            self.worked += 1e-3
            made.throttle()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_what_takes_long_gets_its_share(clock: Clock) -> None:
    made = TokenBucket(lambda: True, share=lambda: 0.2, burst=0.1, clock=clock)
    made.begin(lambda: False)
    clock.work(made, 0.1)
    assert clock.slept == 0  # what takes a moment is not held up
    clock.work(made, 2.0)
    assert clock.now == pytest.approx(0.1 + (2.0 - 0.02) / 0.2, abs=0.05)


def test_a_share_may_become_another(clock: Clock) -> None:
    share = 0.2
    made = TokenBucket(lambda: True, share=lambda: share, burst=0.1, clock=clock)
    made.begin(lambda: False)
    clock.work(made, 0.5)
    then, share = clock.now, 0.8
    clock.work(made, 2.0)
    assert clock.now - then == pytest.approx(2.0 / 0.8, abs=0.1)


def test_the_more_wait_for_compilation_the_more_it_has() -> None:
    """Beside 8 that write 2 that wait have what is set; beside 2 that write 8 that wait have more."""
    shares: list[float] = []

    async def run(writing: int, waiting: int) -> None:
        made = ConstraintCompiler(Settings(compile_share=0.3), Metrics().of("small"), writing=lambda: writing)
        is_free = threading.Event()
        several = [asyncio.create_task(made.compile(0, is_free.wait, lambda _: 1)) for _ in range(waiting)]
        await turned(lambda: made._waiting == waiting)
        shares.append(made._share())
        is_free.set()
        await asyncio.gather(*several)
        shares.append(made._share())
        made.close()

    for writing, waiting in ((8, 2), (2, 8), (0, 1)):
        asyncio.run(run(writing, waiting))
    assert shares == [0.3, 0.3, 0.8, 0.3, 1.0, 0.3]


def test_nobody_waits_for_nobody(clock: Clock) -> None:
    busy = False
    made = TokenBucket(lambda: busy, share=lambda: 0.2, burst=0.1, clock=clock)
    made.begin(lambda: False)
    clock.work(made, 5.0)
    assert clock.slept == 0
    busy = True
    clock.work(made, 0.01)
    assert clock.slept < 0.1  # and no debt is left of what held up nobody


def test_the_bucket_fills_again_and_not_over(clock: Clock) -> None:
    made = TokenBucket(lambda: True, share=lambda: 0.2, burst=0.1, clock=clock)
    made.begin(lambda: False)
    clock.now += 1000
    clock.work(made, 0.12)
    assert clock.slept == 0
    clock.work(made, 0.2)
    assert clock.slept > 0.5


def test_what_is_short_waits_for_what_was_worked_before_it(clock: Clock) -> None:
    """One piece of work after the other, none of which looks at the time itself, in two threads by turns."""
    made = TokenBucket(lambda: True, share=lambda: 0.2, burst=0.1, clock=clock)
    for _ in range(100):
        made.begin(lambda: False)
        clock.now += 0.03
        clock.worked += 0.03
        made.end()
    assert clock.worked == pytest.approx(3.0)
    assert clock.now == pytest.approx((3.0 - 0.1) / 0.2, rel=0.05)


def test_a_long_piece_of_work_that_does_not_look_is_made_up_for(clock: Clock) -> None:
    made = TokenBucket(lambda: True, share=lambda: 0.2, burst=0.1, clock=clock)
    made.begin(lambda: False)
    clock.now += 1.1
    clock.worked += 1.1
    made.throttle()
    assert clock.now == pytest.approx(1.1 + (1.1 - 0.1) / 0.2, rel=0.05)


def test_who_is_not_waited_for_waits_no_more(clock: Clock) -> None:
    made = TokenBucket(lambda: True, share=lambda: 0.2, burst=0.1, clock=clock)
    made.begin(lambda: clock.slept > 0.5)
    clock.now += 10.0
    clock.worked += 10.0
    made.throttle()
    assert clock.slept == pytest.approx(0.5, abs=2 * compiler.MAX_SLEEP)


def test_counted_work_breathes_until_it_is_cancelled() -> None:
    """Also in calls within calls; and whoever waits notices that it is to stop."""
    breaths = 0

    def breathe() -> None:
        nonlocal breaths
        breaths += 1
        if breaths == 50:
            stop.cancel()

    stop = Cancellation(breathe)
    with stop, pytest.raises(Cancelled), Meter(Limits(work=2**60)), Meter(Limits(work=2**60)):
        while True:
            spend(1 << 15)
    assert breaths == 50
