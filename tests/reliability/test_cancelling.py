"""Another thread stops whatever a guide is at within 50 ms, and the guide is as it was."""

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trellm import Cancellation, Cancelled, Limits, Vocabulary
from trellm.guides import CFGGuide, ChoiceGuide, RegexGuide, SubstringGuide

LLAMA = Path(__file__).parents[3] / "shared" / "data" / "tokenizers" / "llama3" / "tokenizer.json"
BYTES = Vocabulary.from_bytes()
ENDLESS = Limits(work=1 << 60, memory=4 << 30)
# After so many seconds each call is stopped once; the median of how long it worked on counts.
AFTER = (0.02, 0.03, 0.05, 0.07, 0.1)
LATER = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35)
SOON = 0.05
RULES = "start: " + " | ".join(f"r{i}" for i in range(30_000)) + "\n"
RULES += "\n".join(f'r{i}: "word{i}" r{i // 2}?' for i in range(30_000))

CONTEXT = " ".join(f"word{number * 7919 % 100_003}" for number in range(400_000))

CHOICES = [f"choice {number * 7919}" for number in range(1_500_000)]

LOOKING = "".join(f"(?=.*{letter}{letter})" for letter in "abcdefghi") + ".*"

Made = Callable[[], Any]
Asked = Callable[[Any], object]


def grammar(text: str) -> Made:
    return lambda: CFGGuide(text, BYTES, limits=ENDLESS)


def regex(pattern: str, vocabulary: Vocabulary = BYTES) -> Made:
    return lambda: RegexGuide(pattern, vocabulary, limits=ENDLESS)


def reading(text: bytes) -> Asked:
    return lambda guide: guide.read(guide.start, text)


CALLS: dict[str, tuple[Made, Asked]] = {
    "states of ever more items": (grammar('start: "a" start "a" | "b" start "b" |'), reading(200_000 * b"a")),
    "ever more states": (grammar('start: "i" start ("e" start)? | "x"'), reading(1_000_000 * b"i")),
    "bytes": (regex("[ab]*a[ab]{200000}c"), reading(100_000 * b"ab")),
    "a distance": (regex("(?:.*a){20000}b"), lambda guide: guide.distance(guide.start)),
    "all states": (regex("[ab]*a[ab]{17}"), lambda guide: guide.dfa(max_states=10**7)),
    "making an automaton": (
        lambda: None,
        lambda _: regex(LOOKING)(),
    ),
    "reading and exploring a grammar": (lambda: None, lambda _: grammar(RULES)()),
    "sorting choices and laying their tree": (lambda: CHOICES, lambda texts: ChoiceGuide(texts, BYTES, limits=ENDLESS)),
    "sorting the suffixes of a context": (lambda: None, lambda _: SubstringGuide(CONTEXT, BYTES, limits=ENDLESS)),
}


def seconds_to_stop(made: Any, asked: Asked, after: float) -> float:
    """How long a call works on that is stopped after so many seconds; while others run it does not work."""
    stopped: list[float] = []
    working = time.pthread_getcpuclockid(threading.get_ident())
    with Cancellation() as stop:

        def cancel() -> None:
            time.sleep(after)
            stopped.append(time.clock_gettime(working))
            stop.cancel()

        thread = threading.Thread(target=cancel)
        thread.start()
        try:
            with pytest.raises(Cancelled):
                asked(made)
            return time.thread_time() - stopped[0]
        finally:
            thread.join()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_stopped_soon(name: str) -> None:
    make, asked = CALLS[name]
    moments = LATER if name.startswith("sorting") else AFTER
    assert statistics.median(seconds_to_stop(make(), asked, after) for after in moments) < SOON


def test_a_guide_that_was_stopped_goes_on() -> None:
    make, asked = CALLS["states of ever more items"]
    guide, other = make(), make()
    for after in AFTER:
        seconds_to_stop(guide, asked, after)
    for text in (b"", b"ab", b"abb", b"abba", b"aab"):
        state, same = guide.read(guide.start, text), other.read(other.start, text)
        assert (guide.mask(state) == other.mask(same)).all()
        assert guide.distance(state) == other.distance(same)


@pytest.fixture(scope="module")
def llama() -> Vocabulary:
    if not LLAMA.is_file():
        pytest.skip("the tokenizer is not there")
    tokenizers = pytest.importorskip("transformers")
    vocabulary = Vocabulary.from_tokenizer(tokenizers.AutoTokenizer.from_pretrained(LLAMA.parent))
    regex("a?", vocabulary)().mask(0)
    return vocabulary


def masks(guide: RegexGuide) -> None:
    """Walk the whole vocabulary from one state after the other."""
    state = guide.start
    while True:
        guide.mask(state)
        state = guide.read(state, b"ab")


def masks_within(guide: RegexGuide) -> None:
    """The same, with the distances of all states that tokens lead to."""
    state = guide.read(guide.start, 50 * b"ab")
    while True:
        guide.mask_within(state, 60)
        state = guide.read(state, b"ab")


@pytest.mark.parametrize(
    ("pattern", "asked"), [("[ab]*a.{3000}c", masks), ("(?:.*a){200}", masks_within)], ids=["masks", "masks within"]
)
def test_walks_of_a_big_vocabulary_are_stopped_soon(llama: Vocabulary, pattern: str, asked: Asked) -> None:
    make = regex(pattern, llama)
    assert statistics.median(seconds_to_stop(make(), asked, after) for after in AFTER) < SOON
