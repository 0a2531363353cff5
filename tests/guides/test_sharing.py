"""Guides shared between threads, and tables too small for all masks: the same answers as alone and with room."""

import gc
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from trellm import Vocabulary
from trellm.guides import (
    CFGGuide,
    ChoiceGuide,
    GoalGuide,
    JSONGuide,
    RegexGuide,
    locks,
    mask_within,
    tokens_of,
)

from ..thresholds import thresholds
from .support import LiftedGuide, MaskTable, VocabularyTables
from .vocabularies import SMALL

NESTED = 'start: "[" (start ("," start)*)? "]" | /"[^"]{0,9}"/ | /-?[0-9]+/'
SUMS = (
    'start: product | start ("+" | "-") product\nproduct: atom | product "*" atom\natom: /[0-9]{1,4}/ | "(" start ")"'
)
Make = Callable[[Vocabulary], LiftedGuide]


def numbers(vocabulary: Vocabulary) -> ChoiceGuide:
    """Many states, each with a mask of its own."""
    random = Random(5)
    return ChoiceGuide([str(random.randrange(10**6)) for _ in range(400)], vocabulary)


MAKERS: list[Make] = [
    numbers,
    lambda vocabulary: RegexGuide(r"(?:[ab]{3,9}|\d{2,30}é)*", vocabulary),
    lambda vocabulary: RegexGuide('"[^"]{0,70}"', vocabulary),
    lambda vocabulary: CFGGuide(NESTED, vocabulary),
]


def copy_of(vocabulary: Vocabulary) -> Vocabulary:
    """The same tokens without what was computed for them before."""
    return Vocabulary(list(vocabulary.tokens), vocabulary.eos_ids, vocabulary.special_ids)


def test_a_vocabulary_of_few_tokens_takes_little_memory() -> None:
    """The rows of its table that are used, not as many as it may have, which are the more the fewer the tokens are."""

    def masked() -> RegexGuide:
        guide = RegexGuide("a+", Vocabulary([b"a", b"b", None], [2]))
        assert guide.mask(guide.start).any()
        return guide

    masked()  # what is made once in a process
    tracemalloc.start()
    try:
        guide = masked()
        taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, 0)])
    finally:
        tracemalloc.stop()
    assert sum(each.size for each in taken.traces) < 1 << 20, guide


def told(guide: LiftedGuide, seed: int, steps: int = 40) -> list[object]:
    """Everything a guide says along a random text."""
    random, state, said = Random(seed), guide.start, []
    for _ in range(steps):
        mask = guide.mask(state).copy()
        left = random.randint(1, 9)
        said.append((mask.tobytes(), guide.is_accepting(state), guide.distance(state)))
        said.append(mask_within(guide, state, left).tobytes())
        choices = [token for token in tokens_of(mask) if token not in guide.vocabulary.eos_ids]
        state = guide.advance(state, random.choice(choices)) if choices else guide.start
    return said


@pytest.fixture
def eager_switches():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("make", MAKERS)
def test_threads_that_share_a_guide(make: Make) -> None:
    alone = [told(make(copy_of(SMALL)), seed) for seed in range(6)]
    shared = make(copy_of(SMALL))
    together: dict[int, list[object]] = {}
    threads = [
        threading.Thread(target=lambda seed=seed: together.__setitem__(seed, told(shared, seed))) for seed in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(6):
        assert together[seed] == alone[seed]


@pytest.mark.usefixtures("eager_switches")
def test_threads_and_guides_that_share_a_small_table() -> None:
    vocabulary = copy_of(SMALL)
    tables = VocabularyTables.of(vocabulary)
    tables.masks = MaskTable(tables.words, max_bytes=1)
    guides = [make(vocabulary) for make in MAKERS]
    alone = [told(make(copy_of(SMALL)), 100 + number) for number, make in enumerate(MAKERS)]
    together: dict[int, list[list[object]]] = {}

    def work(number: int) -> None:
        # The first guide has more masks than the table: working through it gives everybody's rows away.
        together[number] = [told(guides[number], 100 + number) for _ in range(2)]
        if number == 0:
            for state in guides[0].automaton.explore(10_000):
                guides[0].row(state)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        assert together[number] == [alone[number]] * 2
    assert tables.masks.version > tables.masks.max_rows == 256


def test_rows_given_away_are_computed_again() -> None:
    vocabulary = copy_of(SMALL)
    tables = VocabularyTables.of(vocabulary)
    tables.masks = MaskTable(tables.words, max_bytes=1)
    guide, whole = numbers(vocabulary), numbers(copy_of(SMALL))
    states = guide.automaton.explore(10_000)
    assert len(states) > 2 * tables.masks.max_rows and whole.automaton.explore(10_000) == states
    for _ in range(2):
        for state in states:
            assert np.array_equal(guide.mask(state), whole.mask(state))
    assert len(tables.masks.rows) == 256


def test_rows_in_use_are_not_given_away() -> None:
    table = MaskTable(2, max_bytes=1)
    cache: dict[int, int] = {}
    for key in range(256):
        table.store(cache, key, np.array([key, 0], np.uint32))
    for turn in range(600):
        table.touch(cache[7])
        table.store(cache, 1000 + turn, np.array([turn, 1], np.uint32))
        assert table.rows[cache[7]].tolist() == [7, 0]
        assert len(cache) == 256 and sorted(cache.values()) == list(range(256))
    for key, row in cache.items():
        assert table.rows[row].tolist() == ([key - 1000, 1] if key >= 1000 else [key, 0])


@pytest.mark.usefixtures("eager_switches")
def test_rows_are_used_by_threads_while_another_gives_rows_away() -> None:
    table = MaskTable(2, max_bytes=1)
    cache: dict[int, int] = {}
    for key in range(256):
        table.store(cache, key, np.array([key, 0], np.uint32))
    over = threading.Event()

    def use() -> None:
        while not over.is_set():
            for row in range(256):
                table.touch(row)

    users = [threading.Thread(target=use) for _ in range(3)]
    for user in users:
        user.start()
    try:
        for turn in range(20_000):
            row = table.store(cache, 256 + turn, np.array([turn, 1], np.uint32))
            assert table.rows[row].tolist() == [turn, 1]
    finally:
        over.set()
        for user in users:
            user.join()
    assert len(cache) == 256 and sorted(cache.values()) == list(range(256))


@pytest.mark.parametrize("make", [MAKERS[3], lambda vocabulary: CFGGuide(SUMS, vocabulary)], ids=["nested", "sums"])
def test_giving_up_states_changes_nothing(make: Make) -> None:
    """At every step all states are given up but those that the text has led through."""

    class Forgetful:
        def __init__(self) -> None:
            self._guide = make(SMALL)

        def advance(self, state: int, token: int) -> int:
            self._guide.automaton.is_crowded = True
            after = self._guide.advance(state, token)
            assert not self._guide.automaton.is_crowded
            return after

        def __getattr__(self, name: str) -> object:
            return getattr(self._guide, name)

    for seed in range(4):
        assert told(Forgetful(), seed, steps=25) == told(make(SMALL), seed, steps=25)  # type: ignore[arg-type]


def test_the_guide_of_a_forgotten_vocabulary_goes_with_it() -> None:
    import gc
    import weakref

    vocabulary = copy_of(SMALL)
    guide = RegexGuide("a*", vocabulary)
    guide.mask(guide.start)
    gone = weakref.ref(vocabulary), weakref.ref(VocabularyTables.of(vocabulary))
    del vocabulary, guide
    gc.collect()
    assert gone[0]() is None and gone[1]() is None


@pytest.mark.parametrize("room", [None, 1])
def test_remembered_schemas_are_forgotten_when_they_take_too_much(
    room: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    thresholds(monkeypatch, remembered_schemas_bytes=room)
    vocabulary = copy_of(SMALL)
    first = JSONGuide({"const": -1}, vocabulary)
    assert JSONGuide({"const": -1}, vocabulary).automaton is first.automaton
    JSONGuide({"const": 0}, vocabulary)
    assert (JSONGuide({"const": -1}, vocabulary).automaton is first.automaton) == (room is None)


def test_only_the_same_schema_is_remembered() -> None:
    """Equal to Python is not the same: 1, 1.0 and true, the order of members, and what was changed since."""
    vocabulary = copy_of(SMALL)

    def automaton(schema: object, resources: dict[str, object] | None = None) -> object:
        return JSONGuide(schema, vocabulary, resources=resources).automaton  # type: ignore[arg-type]

    draft = {"$schema": "http://json-schema.org/draft-04/schema#"}
    different = [
        *({**draft, "enum": [value]} for value in (1, 1.0, True, "1")),
        *({"properties": {name: {} for name in names}} for names in ("ab", "ba")),
        '{"enum":[1]}',
        '{"enum": [1]}',
    ]
    automata = [automaton(schema) for schema in different]
    assert len(set(map(id, automata))) == len(different)
    assert [automaton(schema) for schema in different] == automata
    assert automaton("".join(['{"enum":', "[1]}"])) is automata[6]
    changing: dict[str, object] = {"$ref": "x:a"}
    resources: dict[str, object] = {"x:a": {"const": 1}}
    before = automaton(changing, resources)
    assert automaton(dict(changing), dict(resources)) is before
    resources["x:a"]["const"] = 2  # type: ignore[index]
    assert automaton(changing, resources) is not before
    changing["title"] = "a"
    assert JSONGuide(changing, vocabulary, resources={"x:a": {"const": 1}}).automaton is not before


def test_threads_that_ask_for_a_schema_at_once_get_one_guide() -> None:
    vocabulary, threads = copy_of(SMALL), 4
    given: list[list[JSONGuide]] = [[] for _ in range(threads)]
    together = threading.Barrier(threads)

    def ask(found: list[JSONGuide]) -> None:
        for number in range(20):
            together.wait()
            found.append(JSONGuide({"const": f"at once {number}"}, vocabulary))

    asking = [threading.Thread(target=ask, args=(found,)) for found in given]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert [len({id(each) for each in guides}) for guides in zip(*given, strict=True)] == [1] * 20


class Wanted:
    """A lock that tells when a thread comes to take it."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.is_wanted = lock, threading.Event()

    def __enter__(self) -> None:
        self.is_wanted.set()
        self.lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self.lock.release()


def test_a_guide_that_asks_another_holds_no_lock_of_the_table() -> None:
    """Whoever works on the child may need the table while the other one waits for the child."""
    vocabulary = Vocabulary.from_bytes()
    child = RegexGuide("[ab]{1,9}", vocabulary)
    guide = GoalGuide(child, ["aa"])
    table = VocabularyTables.of(vocabulary)
    lock = Wanted(child.automaton.lock)
    child.automaton.lock = child._lock = lock  # type: ignore[assignment]
    with lock.lock:
        other = threading.Thread(target=guide.row, args=(guide.start,))
        other.start()
        assert lock.is_wanted.wait(60)
        free = table.lock.acquire(timeout=10)
        assert free
        table.lock.release()
    other.join(60)
    assert not other.is_alive()


def test_locks_are_made_while_others_make_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the midst of looking which are gone: the collector, which a list of pairs wakes, lets other threads run."""
    monkeypatch.setattr(locks, "_locks", {})
    thresholds(monkeypatch, locks_before_a_look=4000)
    held = [locks.new_lock() for _ in range(3999)]
    collector, found = gc.get_threshold(), list[int]()

    def other(phase: str, info: dict[str, int]) -> None:
        if len(found) < 10:
            found.append(phase == "start")
            locks._locks[-len(found)] = weakref.ref(held[0])

    gc.callbacks.append(other)
    gc.set_threshold(1)
    try:
        held += [locks.new_lock() for _ in range(9)]
    finally:
        gc.set_threshold(*collector)
        gc.callbacks.remove(other)
    assert found and all(locks._locks[id(lock)]() is lock for lock in held)
