"""Whatever interrupts a guide while it grows leaves it as it was: it goes on as if nothing had happened."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import numpy as np
import pytest
from trellm import Cancellation, Limits, Vocabulary
from trellm.errors import Cancelled, LimitError
from trellm.guides import CFGGuide, Guide, JSONGuide, RegexGuide, json_guide, mask_within, tokens_of
from trellm.guides.chart import arrays, automaton
from trellm.guides.chart import arrays as chart_arrays
from trellm.guides.distinct import trail
from trellm.guides.json_schema.lower import rules

from ..watching import failing_at, watched
from .support import Graph
from .vocabularies import SMALL

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 9, "pattern": "^[a-z]"},
        "tags": {"type": "array", "items": {"enum": ["a", "ab", 1, None]}, "uniqueItems": True, "maxItems": 3},
        "more": {"$ref": "#"},
        "count": {"type": "integer", "minimum": 3},
    },
    "required": ["name", "count"],
    "patternProperties": {"^x": {"type": "boolean"}},
    "minProperties": 2,
}
SUMS = 'start: sum\nsum: sum "+" item | item\nitem: "(" sum ")" | word~1..3 | /[0-9]+/\nword: "a" | "b" word?'
MAKERS: dict[str, Callable[..., Guide]] = {
    "json": lambda v, **options: JSONGuide(SCHEMA, v, **options),
    "grammar": lambda v, **options: CFGGuide(SUMS, v, **options),
    "regex": lambda v, **options: RegexGuide("([ab]{1,30}é?)*(?=.{3,9}$)[0-9]+", v, **options),
}


def copied() -> Vocabulary:
    return Vocabulary(SMALL.tokens, SMALL.eos_ids)


def told(guide: Guide, seed: int, steps: int = 12) -> list[object]:
    """What a guide says along a random text; states are not said, since their numbers may differ."""
    random, said, state = Random(seed), [], guide.start
    eos = set(guide.vocabulary.eos_ids)
    for _ in range(steps):
        mask = guide.mask(state).copy()
        needed = guide.distance(state)
        said += [mask.tobytes(), needed, guide.is_accepting(state), mask_within(guide, state, needed + 2).tobytes()]
        tokens = [token for token in tokens_of(mask) if token not in eos]
        if not tokens:
            break
        state = guide.advance(state, random.choice(tokens))
    return said


class Injected(KeyboardInterrupt):
    """Raised in the middle of things."""


@contextmanager
def failing(owner: object, name: str, at: int) -> Iterator[list[object]]:
    """Let one function raise at its call number `at`; gives the calls that ended."""
    with pytest.MonkeyPatch.context() as patch:
        yield watched(patch, owner, name, failing_at(at, Injected()))


PLACES = [(Graph, "reserve"), (Graph, "define"), (Graph, "expand"), (Graph, "arrays"), (Graph, "promises")]
PLACES += [(automaton, "larger"), (automaton, "index_of"), (automaton, "scratch"), (automaton, "begin")]


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[1])
def test_an_exception_anywhere_changes_nothing(kind: str, place: tuple[object, str]) -> None:
    expected = [told(MAKERS[kind](copied()), seed) for seed in range(3)]
    for at in (1, 2, 3, 5, 8, 13, 21, 34, 55):
        json_guide.remembered._values.clear()
        vocabulary = copied()
        guide: Guide | None = None
        with failing(*place, at):
            try:
                guide = MAKERS[kind](vocabulary)
                told(guide, 0)
                is_over = True
            except Injected:
                is_over = False
        for again in (guide, MAKERS[kind](vocabulary)):
            if again is not None:
                assert [told(again, seed) for seed in range(3)] == expected
        if is_over:
            break


def test_kinds_of_containers_are_numbered_or_not() -> None:
    """Guides of a vocabulary share them: none of the others is hurt."""

    def items_of(title: str) -> list[object]:
        guide = JSONGuide({"title": title, "type": "array", "uniqueItems": True}, vocabulary)
        state = guide.read(guide.start, b'["a"')
        return [guide.mask(guide.read(state, each)).tobytes() for each in (b",", b',[["', b',{"a":[', b",[{")]

    vocabulary = copied()
    expected = items_of("none fails")
    for at in range(1, 9):
        vocabulary = copied()
        with failing(trail, "Shape", at), pytest.raises(Injected):
            items_of("one fails")
        assert items_of("one fails") == items_of("another") == expected


def test_making_room_is_done_or_not_done() -> None:
    expected = told(MAKERS["json"](copied()), 1, 30)
    for name in ("to_be_compacted", "find_needed", "keep_needed", "keep_sets", "reindexed"):
        json_guide.remembered._values.clear()
        guide = MAKERS["json"](copied())
        assert told(guide, 1, 30) == expected
        with failing(arrays, name, 1), pytest.raises(Injected):
            guide.automaton.collect(0)  # type: ignore[attr-defined]
        assert told(guide, 1, 30) == expected, name


def test_a_schema_that_fails_in_use_fails_the_same_way_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One member's value is found to be too large when it is met; the rest of the schema is not hurt by that."""

    def refuse(*_: object) -> None:
        raise LimitError("too many states")

    watched(monkeypatch, rules, "number_fragment", refuse)
    members = {"a": {"type": "number", "multipleOf": 0.7}, "b": {"type": "boolean"}}
    schema = {"title": "fails", "type": "object", "properties": members, "additionalProperties": False}
    guide = JSONGuide(schema, SMALL)
    for _ in range(25):
        with pytest.raises(LimitError, match="too many states"):
            guide.mask(guide.read(guide.start, b'{"a":'))
    state = guide.read(guide.start, b'{"b":')
    assert guide.mask(state).any()
    assert guide.advance(state, ord("t")) >= 0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here")
# It may come while somebody else's callback or finaliser runs, where Python says so, and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_time() -> None:
    expected = [told(MAKERS["json"](SMALL), seed) for seed in range(2)]
    armed = [False]

    def interrupt(*_: object) -> None:
        if armed[0]:
            armed[0] = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        for number in range(60):
            schema = {**SCHEMA, "title": f"number {number}"}
            guide: Guide | None = None
            try:
                armed[0] = True
                signal.setitimer(signal.ITIMER_REAL, Random(number).uniform(0.0002, 0.006))
                guide = JSONGuide(schema, SMALL)
                for seed in range(2):
                    told(guide, seed)
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                armed[0] = False
                signal.setitimer(signal.ITIMER_REAL, 0)
            for again in (guide, JSONGuide(schema, SMALL)):
                if again is not None:
                    assert [told(again, seed) for seed in range(2)] == expected
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 3


def test_limits_leave_a_guide_as_it_was() -> None:
    expected = told(MAKERS["grammar"](SMALL), 1)
    for work in (300, 1_000, 3_000, 10_000):
        try:
            guide = MAKERS["grammar"](SMALL, limits=Limits(work=work))
        except LimitError:
            continue
        for _ in range(3):
            try:
                said = told(guide, 1)
            except LimitError:
                said = expected[:0]
            assert said == expected[: len(said)]
    with pytest.raises(LimitError, match=r"more than 1 steps .* raise work= of its limits=Limits"):
        RegexGuide("[ab]{1,30}", SMALL, limits=Limits(work=1))


def test_cancelling_from_another_thread() -> None:
    guide = MAKERS["json"](copied())
    with Cancellation() as stop:
        assert guide.mask(guide.start).any()
        thread = threading.Thread(target=stop.cancel)
        thread.start()
        thread.join()
        with pytest.raises(Cancelled):
            guide.mask(guide.advance(guide.start, ord("{")))
        with pytest.raises(Cancelled):
            RegexGuide("[ab]+", SMALL)
    assert told(guide, 1) == told(MAKERS["json"](copied()), 1)
    with Cancellation():
        assert told(guide, 1) == told(MAKERS["json"](copied()), 1)


def test_what_is_copied_while_room_is_made() -> None:
    """All that making room writes to is copied first."""
    chart = RegexGuide("[ab]+", SMALL).automaton.chart
    copy = chart_arrays.to_be_compacted(chart)
    for name in ("states", "return_sets", "signatures", "sets", "sizes", "set_sizes"):
        assert not np.shares_memory(getattr(copy, name), getattr(chart, name))
