"""The budget of prompts beside texts that are written, by invented costs: no clock is looked at."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trellm import Engine, OptionError, generate

from ...watching import watched
from ..paged import LETTERS, PagedModel
from ..support import LEAST, SELDOM, Budget, steps_by_clock

GAP = 0.1
MAX = 2048


@dataclass(frozen=True)
class Machine:
    """What steps take on it, in seconds."""

    fixed: float
    each_text: float
    each_token: float

    def seconds(self, written: int, prompted: int) -> float:
        """Of a step."""
        return self.fixed + self.each_text * written + self.each_token * prompted


SMALL = Machine(0.004, 0.00035, 0.0003)
LARGE = Machine(0.15, 0.005, 0.01)
WIDE = Machine(0.02, 0.0001, 0.00005)
HEAVY = Machine(0.002, 0.002, 0.0003)


def steps(
    budget: Budget, machine: Machine, written: int, waiting: int, count: int, noise: float = 0.0, slow: float = 0.0
) -> list[tuple[int, float]]:
    """So many steps that are planned by the budget: tokens of prompts in each, and what it took.

    noise: by what share a step is off; slow: how many are ten times as slow as they should be
    """
    pick, found = random.Random(1), list[tuple[int, float]]()
    for _ in range(count):
        prompted = budget.prompt_tokens(written, waiting, GAP, MAX)
        seconds = machine.seconds(written, prompted) * pick.uniform(1 - noise, 1 + noise)
        budget.note(written, prompted, seconds * (10 if pick.random() < slow else 1))
        found.append((prompted, seconds))
    return found


def planned(budget: Budget, written: int, waiting: int) -> int:
    """What is planned, but where the texts are to be seen alone."""
    return budget.prompt_tokens(written, waiting, GAP, MAX) or budget.prompt_tokens(written, waiting, GAP, MAX)


def begun(machine: Machine) -> Budget:
    """A budget of a machine on which one prompt was read before."""
    budget = Budget()
    budget.note(0, 80, machine.seconds(0, 80))
    return budget


@pytest.mark.parametrize("written", [1, 8, 64])
@pytest.mark.parametrize("machine", [SMALL, WIDE])
@pytest.mark.parametrize(("noise", "slow"), [(0.0, 0.0), (0.3, 0.02)])
def test_a_step_beside_prompts_takes_about_as_long_as_the_gap_may_be(
    machine: Machine, written: int, noise: float, slow: float
) -> None:
    found = [each for each in steps(begun(machine), machine, written, 8, 400, noise, slow)[30:] if each[0]]
    middle = sorted(machine.seconds(written, prompted) for prompted, _ in found)[len(found) // 2]
    assert 0.75 * GAP < middle < 1.15 * GAP
    assert max(seconds for _, seconds in found) < 2 * GAP


def test_nothing_is_known_before_the_first_step_and_then_little_is_read() -> None:
    assert planned(Budget(), 4, 4) == LEAST


def test_prompts_move_on_where_texts_alone_take_longer_than_the_gap() -> None:
    found = [prompted for prompted, _ in steps(begun(LARGE), LARGE, 8, 1, 64)]
    assert [prompted for prompted in found if prompted] == [LEAST] * (64 - 64 // SELDOM)


def test_the_more_requests_wait_the_more_of_a_step_is_theirs_where_texts_leave_little() -> None:
    """64 texts take 130 ms of 100: prompts get a share of as much again, by how many wait."""
    budget = begun(HEAVY)
    steps(budget, HEAVY, 64, 64, 300)
    found = [planned(budget, 64, waiting) for waiting in (1, 8, 16, 32, 64, 1000)]
    assert found == sorted(found)
    assert found[0] < found[-1] / 8
    assert found[-1] == found[-2]
    assert 0.6 * GAP < HEAVY.each_token * found[-1] < 1.4 * GAP


def test_texts_that_come_and_go_change_the_share_of_prompts() -> None:
    budget = begun(SMALL)
    for written in list(range(1, 65)) * 3:
        steps(budget, SMALL, written, 8, 1)
        budget.note(written, 0, SMALL.seconds(written, 0))
    few, many = (planned(budget, written, 8) for written in (1, 64))
    assert few > many > LEAST
    for written, prompted in ((1, few), (64, many)):
        assert 0.7 * GAP < SMALL.seconds(written, prompted) < 1.4 * GAP


@pytest.mark.parametrize("compiling", [1, 2, 3])
def test_first_steps_that_compile_are_not_taken_for_what_steps_cost(compiling: int) -> None:
    budget = Budget()
    for _ in range(compiling):
        budget.note(0, 80, 3.0)
        budget.note(1, 0, 2.0)
    found = steps(budget, SMALL, 1, 4, 12)
    assert max(seconds for _, seconds in found) < 2 * GAP
    assert found[2][0] > 100, "after two steps that are as quick as they are"


def test_compiling_in_the_midst_of_others_holds_prompts_up_for_few_steps() -> None:
    budget = begun(SMALL)
    steps(budget, SMALL, 8, 8, 50)
    before = planned(budget, 8, 8)
    budget.note(8, before, 3.0)
    found = [prompted for prompted, _ in steps(budget, SMALL, 8, 8, 12) if prompted]
    assert min(found) > before / 2
    assert found[-1] > 0.9 * before


@pytest.mark.parametrize("times", [0.1, 6.0])
def test_a_machine_that_becomes_slower_or_quicker_is_known_as_that(times: float) -> None:
    budget = begun(SMALL)
    steps(budget, SMALL, 8, 8, 50)
    other = Machine(times * SMALL.fixed, times * SMALL.each_text, times * SMALL.each_token)
    steps(budget, other, 8, 8, 40)
    prompted = planned(budget, 8, 8)
    assert 0.8 * GAP < other.seconds(8, prompted) < 1.2 * GAP or prompted == MAX


costs = st.floats(1e-4, 1.0)


@given(
    machine=st.builds(Machine, costs, costs, costs),
    noted=st.lists(st.tuples(st.integers(0, 300), st.integers(0, MAX), st.just(0.0) | costs), max_size=6),
    gap=st.floats(1e-300, 1e305),
)
def test_whatever_was_noted_a_plan_is_within_its_bounds(
    machine: Machine, noted: list[tuple[int, int, float]], gap: float
) -> None:
    budget = Budget()
    for written, prompted, seconds in noted:
        budget.note(written, prompted, seconds)
        beside, alone = (budget.prompt_tokens(several, 3, gap, MAX) for several in (written, 0))
        assert beside == 0 or LEAST <= beside <= MAX
        assert LEAST <= alone <= MAX
        assert budget.seconds(written, prompted) >= 0
    for _ in range(100):
        budget.note(4, 100, machine.seconds(4, 100))
    assert budget.seconds(4, 100) == pytest.approx(machine.seconds(4, 100), rel=0.1)


class Clock:
    """Time that passes only where a machine's steps take some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        steps_by_clock(monkeypatch, lambda: self.now)


class Timed(PagedModel):
    """A model whose steps take what they do on a machine; taken: tokens of texts and prompts in each, and its time."""

    def __init__(self, machine: Machine, clock: Clock, device: str = "cpu") -> None:
        super().__init__()
        self.machine, self.clock, self.device = machine, clock, device
        self.taken: list[tuple[int, int, float]] = []

    def forward(self, chunks: Any, memory: Any) -> Any:
        """Read, and let time pass."""
        written = sum(len(tokens) <= LEAST for _, tokens in chunks)
        prompted = sum(len(tokens) for _, tokens in chunks if len(tokens) > LEAST)
        seconds = self.machine.seconds(written, prompted)
        self.clock.now += seconds
        self.taken.append((written, prompted, seconds))
        return super().forward(chunks, memory)


def words(number: int, size: int) -> str:
    """A prompt that begins like no other."""
    pick = random.Random(number)
    return "".join(pick.choices(LETTERS, k=size))


def crowd(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Timed:
    """64 callers, each with a prompt of 80 tokens and 20 to write, one after the other for three rounds each."""
    model = Timed(SMALL, Clock(monkeypatch))
    with Engine(model, **options) as engine:
        generator = generate.text(model)
        asked = {"max_tokens": 20, "min_tokens": 20, "batch_size": 1, "heal": False}
        prompts = [[words(3 * number + each, 80) for each in range(3)] for number in range(64)]
        for handle in [engine.submit(generator, each, **asked) for each in prompts]:
            handle.result()
    return model


def test_many_callers_are_not_held_up_by_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, before = crowd(monkeypatch), crowd(monkeypatch, chunk=32)
    assert len(model.taken) < len(before.taken) / 3
    beside = [seconds for written, _, seconds in model.taken[5:] if written]
    assert max(beside) < 1.3 * GAP


def beside_a_long_prompt(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, device: str = "cpu", **options: Any
) -> Timed:
    """One text that is written, and then a prompt of 2,000 tokens of somebody else's."""
    model = Timed(machine, Clock(monkeypatch), device)
    with Engine(model, **options) as engine:
        generator = generate.text(model)
        writer = engine.submit(generator, "abc", max_tokens=300, min_tokens=300, heal=False)
        for _ in range(8):
            engine.step()
        model.taken.clear()
        engine.submit(generator, words(1, 2000), max_tokens=1, heal=False).result()
        writer.cancel()
    return model


@pytest.mark.parametrize("gap", [50, 100, 400])
def test_a_text_beside_a_long_prompt_keeps_its_gap(monkeypatch: pytest.MonkeyPatch, gap: int) -> None:
    found = beside_a_long_prompt(monkeypatch, SMALL, max_gap_ms=gap).taken
    assert all(written for written, _, _ in found), "a token in every step"
    assert max(seconds for _, _, seconds in found) < 1.3 * gap / 1e3
    assert len(found) < 2.5 * SMALL.each_token * 2000 / (gap / 1e3) + 3


def test_a_chunk_is_as_large_as_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = beside_a_long_prompt(monkeypatch, SMALL, chunk=48).taken
    assert [prompted for _, prompted, _ in found] == [48] * 41 + [32]


def test_a_prompt_that_holds_nobody_up_is_read_in_large_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Timed(LARGE, Clock(monkeypatch))
    with Engine(model, max_gap_ms=1) as engine:
        engine.submit(generate.text(model), words(1, 4000), max_tokens=1, heal=False).result()
    assert [prompted for _, prompted, _ in model.taken] == [2048, 1952]


def test_engines_of_several_models_measure_each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    first = len(beside_a_long_prompt(monkeypatch, LARGE, max_gap_ms=400).taken)
    small = len(beside_a_long_prompt(monkeypatch, SMALL, max_gap_ms=400).taken)
    assert len(beside_a_long_prompt(monkeypatch, LARGE, max_gap_ms=400).taken) == first > 5 * small


def test_a_device_keeps_its_chunk_unless_a_gap_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(**options: Any) -> list[int]:
        found = beside_a_long_prompt(monkeypatch, SMALL, "mps", **options).taken
        return [prompted for _, prompted, _ in found if prompted]

    assert read() == [512, 512, 512, 464]
    assert read(chunk=1000) == [1000, 1000]
    assert max(read(max_gap_ms=50)) < 300


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_gap_ms": 0}, "max_gap_ms=0: a number of milliseconds above 0"),
        ({"max_gap_ms": -1.5}, "max_gap_ms=-1.5: a number of milliseconds above 0"),
        ({"max_gap_ms": float("inf")}, "max_gap_ms=inf: a number of milliseconds above 0"),
        ({"max_gap_ms": "100"}, "max_gap_ms='100': a number of milliseconds above 0"),
        ({"max_gap_ms": True}, "max_gap_ms=True: a number of milliseconds above 0"),
        (
            {"chunk": 64, "max_gap_ms": 50},
            "chunk=64 with max_gap_ms=50: both bound the prompt tokens .* give one of them",
        ),
    ],
)
def test_a_gap_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Engine(PagedModel(), **options)


@pytest.mark.parametrize("seed", range(4))
def test_tokens_do_not_depend_on_how_prompts_are_read(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever a budget says in each step, texts are those of a fixed chunk."""

    def texts(**options: Any) -> list[str]:
        model = PagedModel()
        with Engine(model, memory=1 << 20, **options) as engine:
            generator = generate.regex(model, "[a-h]{5,30}")
            handles = list[Any]()
            for number in range(12):
                handles.append(engine.submit(generator, words(number, 30 * number + 1), max_tokens=40, heal=False))
                engine.step()
            return [handle.result().text for handle in handles]

    pick = random.Random(seed)
    times = itertools.accumulate(pick.choice([0.0, 1e-4, 0.01, 0.3]) for _ in itertools.count())
    steps_by_clock(monkeypatch, lambda: next(times))
    assert texts() == texts(chunk=32)


def test_a_step_that_is_broken_off_is_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = watched(monkeypatch, Budget, "note", lambda _, written, prompted, seconds: prompted)
    model = PagedModel()
    model.raises = [MemoryError()]
    with Engine(model, memory=1 << 20) as engine:
        handles = [engine.submit(generate.text(model), words(n, 40), max_tokens=2, heal=False) for n in range(2)]
        engine.step()
        assert noted == []
        for handle in handles:
            handle.result()
        assert sum(noted) == 80
