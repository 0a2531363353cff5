"""The package leaves alone what belongs to the whole process: its collector, and how its threads take turns."""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from trellm import Sample, Vocabulary, generate, models
from trellm.guides import CFGGuide, ChoiceGuide, JSONGuide, RegexGuide, SubstringGuide

MEMBERS = {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}}
SCHEMA = {"type": "object", "properties": MEMBERS, "required": ["a", "b"]}
GUIDES: dict[str, tuple[Callable[[Vocabulary, int], Any], bytes]] = {
    "regex": (lambda v, n: RegexGuide(f"x{{1,{n + 2}}}y", v), b"xy"),
    "choice": (lambda v, n: ChoiceGuide(["red", "green", f"blue {n}"], v), b"green"),
    "cfg": (lambda v, n: CFGGuide(f'start: "(" start ")" | "{n}x" | "y"', v), b"((y))"),
    "json": (lambda v, n: JSONGuide({**SCHEMA, "$comment": f"{n}"}, v), b'{"a": "bc", "b": [1, 23, 4]}'),
    "substring": (lambda v, n: SubstringGuide(f"one, two and {n}", v), b"two and"),
}


def grow(kind: str, vocabulary: Vocabulary, number: int) -> None:
    make, text = GUIDES[kind]
    guide = make(vocabulary, number)
    state = guide.start
    for byte in text:
        assert guide.mask(state).any()
        state = guide.advance(state, byte)
    assert guide.is_accepting(state)


OF_COLLECTOR: tuple[Any, ...] = (gc.enable, gc.disable, gc.freeze, gc.unfreeze, gc.set_threshold)
SETTERS = frozenset((*OF_COLLECTOR, sys.setswitchinterval, sys.setrecursionlimit))


@pytest.fixture
def settings() -> Iterator[list[str]]:
    """Names of all functions called that change a setting of the process, in whichever thread."""
    called: list[str] = []

    def note(frame: Any, event: str, function: Any) -> None:
        if event == "c_call" and function in SETTERS:
            called.append(function.__name__)

    threading.setprofile(note)
    sys.setprofile(note)
    yield called
    sys.setprofile(None)
    threading.setprofile(None)


def test_a_change_of_a_setting_is_seen(settings: list[str]) -> None:
    thread = threading.Thread(target=gc.enable)
    thread.start()
    thread.join()
    sys.setswitchinterval(sys.getswitchinterval())
    assert settings == ["enable", "setswitchinterval"]


@pytest.mark.parametrize("kind", GUIDES)
def test_growing_a_guide_changes_no_setting(kind: str, settings: list[str]) -> None:
    grow(kind, Vocabulary.from_bytes(), 1)
    assert settings == []


def test_generating_changes_no_setting(settings: list[str]) -> None:
    generator = generate.json(models.small(), SCHEMA)
    generator(["a", "b"], max_tokens=40)
    generator("a", search=Sample(n=2), max_tokens=40, seed=1)
    assert "".join(generator.stream("a", max_tokens=40))
    assert settings == []


def test_the_collector_runs_after_threads_have_grown_guides() -> None:
    """Switching threads at every chance, so that each is stopped between any two of its instructions."""
    vocabulary, interval = Vocabulary.from_bytes(), sys.getswitchinterval()

    def work(first: int) -> None:
        for number in range(8):
            for kind in GUIDES:
                grow(kind, vocabulary, first + number)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 400, 100)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert gc.isenabled()
