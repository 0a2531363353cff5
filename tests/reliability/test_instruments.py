"""The instruments find what they are for: each is shown a fault."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from .conftest import INSTRUMENTS


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Modules of the instruments by name, which are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(INSTRUMENTS))

    def load(name: str) -> Any:
        return __import__(name)

    yield load
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(INSTRUMENTS)):
            del sys.modules[name]


def working() -> None:
    while True:
        pass


@pytest.mark.parametrize("hang", [working, pytest.param(signal.pause, marks=pytest.mark.slow)])
def test_cases_that_hang_or_crash_end_only_themselves(hang: Callable[[], Any], modules: Callable[[str], Any]) -> None:
    """A case has twenty times as long to wait as to work; a crash gives back all memory of the tests meanwhile."""
    verdicts, pool = modules("verdicts"), modules("pool")

    def run(number: int) -> Any:
        if number == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        while number == 3:
            hang()
        return verdicts.Outcome(number, "kind", "fine")

    found = [(outcome.case, outcome.verdict) for outcome in pool.run_range(run, range(5), seconds=4)]
    assert found == [(0, "fine"), (1, "crash"), (2, "fine"), (3, "hang"), (4, "fine")]


@pytest.mark.parametrize(
    ("act", "verdict"),
    [
        (lambda: None, "fine"),
        (lambda: 1 // 0, "foreign exception"),
        (lambda: np.ones(80_000_000).sum(), "memory"),
        (lambda: [][0], "foreign exception"),
    ],
)
def test_a_case_is_judged_by_what_it_does(act: Callable[[], Any], verdict: str, modules: Callable[[str], Any]) -> None:
    verdicts, pool = modules("verdicts"), modules("pool")

    class Case:
        kind, shown = "kind", ""

        def run(self, probe: Any) -> None:
            probe.call(act)

    (outcome,) = pool.run_range(lambda number: verdicts.judged(Case(), number), range(1))
    assert outcome.verdict == verdict


def test_a_guide_that_contradicts_itself_is_found(modules: Callable[[str], Any]) -> None:
    from random import Random

    from trellm import Vocabulary
    from trellm.guides import RegexGuide

    probe = modules("probe")
    guide: Any = RegexGuide("[ab]{2,9}", Vocabulary.from_bytes())

    class Lying:
        vocabulary, start = guide.vocabulary, guide.start

        def __getattr__(self, name: str) -> Any:
            return getattr(guide, name)

        def advance(self, state: int, token: int) -> int:
            return -1 if token == ord("b") else guide.advance(state, token)

    def broken(each: Any) -> bool:
        try:
            probe.Walk(probe.Probe(), each, Random(0), unknown=False).run(12)
        except probe.Wrong:
            return True
        return False

    assert broken(Lying()) and not broken(guide)


def test_an_exception_is_raised_at_every_place_once(modules: Callable[[str], Any]) -> None:
    interrupting = modules("interrupting")

    def act() -> int:
        return len([index for index in range(3)])

    with interrupting.Interrupter(None, KeyboardInterrupt) as counter:
        act()
    assert counter.count > 3
    for place in range(counter.count):
        with pytest.raises(KeyboardInterrupt), interrupting.Interrupter(place, KeyboardInterrupt):
            act()


def test_a_lock_that_stays_held_is_found(modules: Callable[[str], Any]) -> None:
    injection = modules("injection")
    injection.SECONDS = 0.2
    injections = object.__new__(injection.Injections)
    lock = threading.Lock()
    with lock:
        injections._compared = lambda *_: lock.acquire()
        assert injections._looked(None, None, [])["verdict"] == "lock held, or a hang"
