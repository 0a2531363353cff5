"""Whatever a guide is at looks every few steps of work whether another thread stops it, and leaves it as it was."""

import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from trellm import Cancellation, Cancelled, LimitError, Limits, Vocabulary
from trellm.guides import CFGGuide, ChoiceGuide, RegexGuide, SubstringGuide
from trellm.guides.graph import text_tree
from trellm.guides.limits import AT_A_TIME
from trellm.guides.quoting import source

from ..guides.support import WatchedCancellation
from ..thresholds import thresholds
from ..watching import watched

BYTES = Vocabulary.from_bytes()
WORDS = Vocabulary([*(bytes(word) for length in range(1, 13) for word in product(b"ab", repeat=length)), None], [8190])
# Python looks every so many steps, a millisecond; kernels more often.
SOON = AT_A_TIME
RULES = "start: " + " | ".join(f"r{i}" for i in range(30_000)) + "\n"
RULES += "\n".join(f'r{i}: "word{i}" r{i // 2}?' for i in range(30_000))
LOOKING = "".join(f"(?=.*{letter}{letter})" for letter in "abcdefghi") + ".*"

Made = Callable[[Limits], Any]
Asked = Callable[[Any], object]


def grammar(text: str) -> Made:
    return lambda limits: CFGGuide(text, BYTES, limits=limits)


def regex(pattern: str, vocabulary: Vocabulary = BYTES) -> Made:
    return lambda limits: RegexGuide(pattern, vocabulary, limits=limits)


def reading(text: bytes) -> Asked:
    return lambda guide: guide.read(guide.start, text)


# Calls that would go on for a minute, or until they were refused for other reasons
CALLS: dict[str, tuple[Made, Asked]] = {
    "states of ever more items": (grammar('start: "a" start "a" | "b" start "b" |'), reading(200_000 * b"a")),
    "ever more states": (grammar('start: "i" start ("e" start)? | "x"'), reading(8_000_000 * b"i")),
    "bytes": (regex("[ab]*a[ab]{200000}c"), reading(100_000 * b"ab")),
    "a distance": (regex("(?:.*a){20000}b"), lambda guide: guide.distance(guide.start)),
    "all states": (regex("[ab]*a[ab]{20}"), lambda guide: guide.dfa(max_states=10**7)),
    "a mask": (regex("[ab]*a.{3000}c", WORDS), lambda guide: guide.mask(guide.read(0, 1000 * b"ab"))),
    "a mask within": (regex("(?:.*a){200}", WORDS), lambda guide: guide.mask_within(guide.read(0, 50 * b"ab"), 60)),
}
# What has no guide before it ends
MAKING: dict[str, Made] = {"an automaton": regex(LOOKING), "a grammar": grammar(RULES)}


@pytest.mark.parametrize("work", [50_000, 200_000])
@pytest.mark.parametrize("name", [*CALLS, *MAKING])
def test_no_call_works_on_for_long_when_it_is_to_end(name: str, work: int) -> None:
    """It looks for cancellation where it looks for the end of what it may spend."""
    make, asked = CALLS[name] if name in CALLS else (MAKING[name], id)
    with WatchedCancellation() as watched, pytest.raises(LimitError, match=f"more than {work:,} steps"):
        asked(make(Limits(work=work)))
    assert 0 < min(meter.spent - work for meter in watched.meters if meter.spent > work) <= SOON


def stop_in(asked: Callable[[], object], steps: int) -> None:
    """Stop a call from another thread, as soon as that sees so many steps of it."""
    has_ended = threading.Event()
    with WatchedCancellation() as stop:

        def cancel() -> None:
            while not has_ended.wait(0.001):
                if any(meter.spent > steps for meter in stop.meters):
                    stop.cancel()
                    return

        thread = threading.Thread(target=cancel)
        thread.start()
        try:
            with pytest.raises(Cancelled):
                asked()
        finally:
            has_ended.set()
            thread.join()


ENDLESS = Limits(work=1 << 60, memory=4 << 30)
LONG = [name for name in CALLS if not name.startswith("a mask")]


@pytest.mark.parametrize("name", LONG)
def test_another_thread_stops_a_call(name: str) -> None:
    make, asked = CALLS[name]
    guide = make(ENDLESS)
    stop_in(lambda: asked(guide), 10_000)
    assert guide.mask(guide.start).any(), "it goes on"


@pytest.mark.parametrize("name", MAKING)
def test_another_thread_stops_the_making_of_a_guide(name: str) -> None:
    looked, is_cancelled = threading.Event(), threading.Event()
    looks = 0

    def breathe() -> None:
        nonlocal looks
        looks += 1
        looked.set()
        assert is_cancelled.wait(60)

    def cancel() -> None:
        assert looked.wait(60)
        stop.cancel()
        is_cancelled.set()

    thread = threading.Thread(target=cancel)
    thread.start()
    with Cancellation(breathe) as stop, pytest.raises(Cancelled):
        MAKING[name](ENDLESS)
    thread.join()
    assert looks == 1, "nothing was worked on"


SORTED: dict[str, tuple[Any, Callable[[int], object]]] = {
    "choices": (text_tree, lambda count: ChoiceGuide([f"choice {i * 7919}" for i in range(count)], BYTES)),
    "a context": (source, lambda count: SubstringGuide("".join(chr(97 + i * i % 26) for i in range(count)), BYTES)),
}


@pytest.mark.parametrize("name", SORTED)
def test_what_is_sorted_is_sorted_in_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps are counted before; so many keys as a sort takes some milliseconds for lie between two looks."""
    module, make = SORTED[name]
    thresholds(monkeypatch, keys_sorted_at_once=256)
    looks = watched(monkeypatch, module, "spend", lambda steps: steps)
    make(20_000)
    assert looks.count(0) > 3 * 20_000 // 256


def test_a_guide_that_was_stopped_goes_on() -> None:
    make, asked = CALLS["states of ever more items"]
    guide, other = make(ENDLESS), make(ENDLESS)
    for steps in (10, 1000, 100_000, 1_000_000, 3_000_000):
        stop_in(lambda: asked(guide), steps)
    for text in (b"", b"ab", b"abb", b"abba", b"aab"):
        state, same = guide.read(guide.start, text), other.read(other.start, text)
        assert (guide.mask(state) == other.mask(same)).all()
        assert guide.distance(state) == other.distance(same)
