"""What is short is compiled while much that takes long waits, and what takes long is not forgotten."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from trellm import Limits
from trellm.errors import Cancelled
from trellm.serve import Settings

from ...thresholds import thresholds
from ..conftest import HANGS, turned
from ..support import DOUBLING_DELAY, LONG_DELAY, CompileQueue, ConstraintCompiler, Meter, Metrics, spend


@dataclass(eq=False)
class Asked:
    since: float
    size: int = 0
    is_abandoned: bool = False


def test_short_texts_go_first_and_nobody_waits_for_ever() -> None:
    made = CompileQueue(2)
    large, small, gone = Asked(0.0, 1023), Asked(1.0, 127), Asked(2.0, is_abandoned=True)
    later = Asked(3 * DOUBLING_DELAY + 0.1, 127)
    several = [large, small, later, gone]
    for each in several:
        made.add(each)
    assert [made.take() for _ in range(5)] == [gone, small, large, later, None]


def test_what_takes_long_gives_way_to_what_was_not_tried() -> None:
    made = CompileQueue(3)
    first, second, third, fourth = (Asked(float(number)) for number in range(4))
    for each in (first, second, third):
        made.add(each)
        assert made.take() is each and made.may_continue(each), "nobody waits"
    made.add(fourth)
    assert made.may_continue(first) and made.may_continue(second)
    assert not made.may_continue(third), "the last thread is for what was not tried"
    made.leave(third, is_done=False)
    assert made.take() is fourth
    made.leave(fourth, is_done=True)
    assert made.take() is None, "of three threads two may be at what takes long"
    made.leave(first, is_done=True)
    soon, late = Asked(third.since + LONG_DELAY - 0.1), Asked(third.since + LONG_DELAY + 0.1)
    made.add(late)
    made.add(soon)
    assert [made.take() for _ in range(3)] == [soon, third, late]


def long(count: int, has_ended: Callable[[], bool]) -> Callable[[], int]:
    """Work that goes on until it is stopped or may end."""

    def work() -> int:
        with Meter(Limits(work=2**60)):
            while not has_ended():
                spend(1000)
        return count

    return work


@pytest.mark.parametrize("compilers", [1, 2, 3])
def test_a_short_one_passes_many_long_ones(monkeypatch: pytest.MonkeyPatch, compilers: int) -> None:
    thresholds(monkeypatch, seconds_of_a_short_constraint=0.02)
    may_end = threading.Event()

    async def run() -> None:
        made = ConstraintCompiler(Settings(compilers=compilers, compile_seconds=300), Metrics().of("small"))
        several = [
            asyncio.ensure_future(made.compile(f"long {number}", long(number, may_end.is_set), lambda _: 1))
            for number in range(12)
        ]
        await turned(lambda: made._waiting == 12)
        if compilers > 1:
            for number in range(3):
                found = await asyncio.wait_for(made.compile(f"short {number}", lambda: "short", lambda _: 1), HANGS)
                assert found == "short"
            assert not any(each.done() for each in several)
        may_end.set()
        assert await asyncio.gather(*several) == list(range(12))
        made.close()

    asyncio.run(run())


def test_what_waits_is_ended_too() -> None:
    """Those that wait for their turn as those that are at work."""

    async def run() -> None:
        made = ConstraintCompiler(Settings(compilers=2, compile_seconds=300), Metrics().of("small"))
        several = [
            asyncio.ensure_future(made.compile(str(number), long(number, lambda: False), lambda _: 1))
            for number in range(8)
        ]
        await turned(lambda: len(made._compilations) == 8)
        several[0].cancel()
        several[7].cancel()
        await turned(lambda: len(made._compilations) == 6)
        made.close()
        for each in several[1:7]:
            with pytest.raises(Cancelled):
                await each

    asyncio.run(run())
