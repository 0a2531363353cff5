"""The scheduler: whatever runs beside it, in however little memory, a request comes to what it comes to alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from trellm import Beam, Greedy, ModelError, Sample, generate

from ..paged import LETTERS, PagedModel, drain, results
from ..support import BLOCK, Call, EngineCore, Options, Request, SchedulerConfig, requests_of

PATTERNS = [None, "[a-d]{3,9}e", "(ab|ba|c){2,}d", "[a-h]{40,60}", "[a-h]{50}"]


class Some:
    """Random requests for one model."""

    def __init__(self, model: PagedModel, seed: int) -> None:
        self.model = model
        self.pick, self.others = random.Random(seed), random.Random(seed)
        self.generators = [generate.text(model) if p is None else generate.regex(model, p) for p in PATTERNS]
        self.prompts = ["".join(self.pick.choices(LETTERS, k=self.pick.choice([1, 5, 40, 90]))) for _ in range(4)]

    def request(self) -> Request:
        """One, of any search, with a beginning that others may have too."""
        prompt = self.pick.choice(self.prompts)
        prompt = prompt[: self.pick.randint(1, len(prompt))] + "".join(
            self.pick.choices(LETTERS, k=self.pick.choice([0, 1, 20]))
        )
        search = self.pick.choice(
            [Greedy(), Greedy(), Sample(), Sample(temperature=0.5, top_k=3), Beam(2), Beam(4, n=2)]
        )
        options = Options(
            search=search,
            seed=self.pick.randrange(100),
            max_tokens=self.pick.choice([60, 70]),
            min_tokens=self.pick.choice([0, 30]),
            no_repeat_ngram_size=self.pick.choice([0, 0, 0, 3]),
            repetition_penalty=self.pick.choice([1.0, 1.0, 1.3]),
            logprobs=self.pick.random() < 0.2 and self.others.choice([True, 2]),
            frequency_penalty=self.others.choice([0.0, 0.0, 0.5]),
            logit_bias=self.others.choice([None, None, {5: 1.5, 3: -2.5}]),
            priority=self.others.choice([0, 0, -1, 3]),
        )
        return requests_of(self.model, [self.pick.choice(self.generators).job(prompt)], options)[0]


def alone(request: Request) -> list[tuple[int, ...]]:
    """What a request comes to with an engine of its own, which has room for everything."""
    loop = EngineCore(PagedModel(), 4096, SchedulerConfig())
    call = Call([request], 100)
    loop.calls.append(call)
    drain(loop)
    return results(call)[0]


ALONE: dict[tuple[int, int], list[tuple[int, ...]]] = {}


def alone_once(request: Request, seed: int, number: int) -> list[tuple[int, ...]]:
    """The same, found out once for the request of this number among those of a seed, wherever else it runs."""
    if (seed, number) not in ALONE:
        ALONE[seed, number] = alone(request)
    return ALONE[seed, number]


@pytest.mark.parametrize(("window", "slots"), [(None, 0), (24, 0), (None, 14), (24, 14)])
@pytest.mark.parametrize(
    ("blocks", "config"),
    [
        (32, SchedulerConfig(prefill_chunk_size=32)),
        (36, SchedulerConfig(max_num_batched_tokens=32, prefill_chunk_size=16)),
        (300, SchedulerConfig(max_num_seqs=5, prefill_chunk_size=16)),
    ],
)
def test_requests_come_to_what_they_come_to_alone(
    blocks: int, config: SchedulerConfig, window: int | None, slots: int, given_up: list[Any]
) -> None:
    model = PagedModel(window, state_bytes=slots)
    loop, some = EngineCore(model, blocks, config, slots), Some(model, blocks)
    pick = random.Random(1)
    calls: list[Call] = []
    for _ in range(18):
        call = Call([some.request() for _ in range(pick.randint(1, 5))], pick.choice([1, 3, 16]))
        calls.append(call)
        loop.calls.append(call)
        for _ in range(pick.choice([0, 1, 10, 40])):
            loop.step()
            loop.check()
            assert loop.held_slots <= slots
        if pick.random() < 0.15:
            pick.choice(calls).is_cancelled = True
        assert model.most <= config.max_num_batched_tokens + config.max_num_seqs * BLOCK
    drain(loop)
    numbers = count()
    for call in calls:
        own = [next(numbers) for _ in call.requests]
        if not call.is_cancelled:
            for number, request, found in zip(own, call.requests, results(call), strict=True):
                assert found == alone_once(request, blocks, number), request
    assert not loop.tables
    assert given_up or blocks == 300 or window or (slots and blocks > 32), (
        "where there is little memory, some had to wait for it"
    )


def test_first_come_first_served() -> None:
    """Requests begin in the order in which they came, whatever is behind them."""
    model = PagedModel()
    loop = EngineCore(model, 20, SchedulerConfig(max_num_seqs=3))
    generator = generate.text(model)
    order: list[str] = []
    calls = [Call(requests_of(model, [generator.job(letter * 30)], Options(max_tokens=20)), 16) for letter in LETTERS]
    loop.calls.extend(calls)
    while any(call.groups or call.is_waiting for call in calls):
        loop.step()
        order += [str(i) for i, call in enumerate(calls) if call.next_number and str(i) not in order]
        running = sum(len(call.groups) for call in calls)
        assert running <= 3
    assert order == [str(i) for i in range(len(calls))]


def test_the_lowest_priority_numbers_come_first() -> None:
    """Among those that wait; those that came first go first of equal ones, and nobody who runs is sent away."""
    model = PagedModel()
    loop = EngineCore(model, 64, SchedulerConfig(max_num_seqs=1))
    generator = generate.text(model)
    priorities = [0, 5, 0, -2, 5, 0, -2, 7]
    calls = [
        Call(requests_of(model, [generator.job(letter * 30)], Options(max_tokens=3, priority=priority)), 16)
        for letter, priority in zip(LETTERS, priorities, strict=True)
    ]
    order: list[int] = []
    for call in calls:  # the first runs before the others come
        loop.calls.append(call)
        if call is calls[0]:
            loop.step()
    while any(call.groups or call.is_waiting for call in calls):
        loop.step()
        order += [number for number, call in enumerate(calls) if call.next_number and number not in order]
    assert order == [0, 3, 6, 2, 5, 1, 4, 7]


def test_the_highest_priority_numbers_give_their_memory_up(given_up: list[Any]) -> None:
    """Though they came first, and none of those that came last."""
    model = PagedModel()
    loop = EngineCore(model, 12, SchedulerConfig())
    generator = generate.text(model)
    for letter, priority in zip(LETTERS, [2, 2, 2, 1, 1, 1, 0, 0], strict=True):
        options = Options(max_tokens=60, min_tokens=60, priority=priority)
        loop.calls.append(Call(requests_of(model, [generator.job(letter)], options), 16))
        loop.step()
    while loop.calls:
        running = [group.work.request.options.priority for group in loop._scheduler.running]
        assert running == sorted(running)
        loop.step()
        loop.check()
    assert {group.work.request.options.priority for group in given_up} == {2}


def test_writing_never_waits_for_more_than_a_chunk() -> None:
    model = PagedModel()
    loop = EngineCore(model, 4096, SchedulerConfig(prefill_chunk_size=32))
    generator = generate.text(model)
    writing = Call(requests_of(model, [generator.job("abc")], Options(max_tokens=60, min_tokens=60)), 1)
    loop.calls.append(writing)
    loop.step()
    long = Call(requests_of(model, [generator.job("abcdefgh" * 100)], Options(max_tokens=4)), 1)
    loop.calls.append(long)
    row: Any = writing.groups[0].work
    for step in range(2, 28):
        model.most = 0
        loop.step()
        assert len(row.tokens) == step, "a token in every step"
        assert model.most <= 1 + 32
    assert long.outcomes or long.groups[0].work.tokens, "and the prompt is read meanwhile"  # type: ignore[union-attr]


def test_an_equal_beginning_is_read_once_by_those_that_come_together_and_by_those_that_come_later() -> None:
    model = PagedModel()
    loop = EngineCore(model, 4096, SchedulerConfig())
    generator = generate.text(model)
    prefix = "abcdefghhgfedcba" * 125
    several = requests_of(model, [generator.job(prefix + end * 5) for end in LETTERS], Options(max_tokens=1))
    loop.calls.append(Call(several, 16))
    drain(loop)
    assert model.read == 2005 + 7 * 5
    again = requests_of(model, [generator.job(prefix + "aaaaab")], Options(max_tokens=1))
    loop.calls.append(Call(again, 16))
    drain(loop)
    assert model.read == 2005 + 7 * 5 + 6


def test_beams_and_samples_hold_their_prompt_once() -> None:
    model = PagedModel()
    loop = EngineCore(model, 4096, SchedulerConfig(max_num_batched_tokens=4096))
    generator = generate.text(model)
    for search in (Beam(8), Sample(n=8)):
        requests = requests_of(
            model, [generator.job("abcd" * 1000)], Options(max_tokens=30, search=search, seed=1, min_tokens=20)
        )
        call = Call(requests, 16)
        loop.calls.append(call)
        for _ in range(6):
            loop.step()
        held = {block for table in loop.tables for block in table.blocks}
        assert len(loop.tables) == 8 and len(held) <= 4000 // BLOCK + 8
        call.is_cancelled = True
        loop.step()
        assert not loop.tables


@pytest.mark.parametrize("search", [Greedy(), Beam(2)])
def test_what_a_step_raises_fails_those_that_read_and_nobody_else(search: Any) -> None:
    model = PagedModel()
    loop = EngineCore(model, 64, SchedulerConfig(max_num_seqs=2))
    generator = generate.regex(model, "[a-h]{9}")
    options = Options(max_tokens=20, search=search)
    calls = [Call(requests_of(model, [generator.job(letter)], options), 16) for letter in "abcd"]
    loop.calls.extend(calls)
    model.raises = [None, None, ModelError("no power")]
    drain(loop)
    texts = 2 // (2 if isinstance(search, Beam) else 1)
    failed = [call for call in calls if isinstance(results(call)[0], Exception)]
    assert failed == calls[:texts] and str(results(calls[0])[0]) == "no power"
    for call in calls[texts:]:
        assert results(call)[0] == alone(call.requests[0])


def test_out_of_memory_a_step_is_made_again_with_fewer_texts() -> None:
    model = PagedModel()
    loop = EngineCore(model, 256, SchedulerConfig())
    generator = generate.text(model)
    requests: Sequence[Request] = requests_of(
        model, [generator.job(letter * 20) for letter in LETTERS], Options(max_tokens=9)
    )
    call = Call(requests, 16)
    loop.calls.append(call)
    model.raises = [None, MemoryError(), None, MemoryError(), None]
    drain(loop)
    assert results(call) == [alone(request) for request in requests]
    careful = Call(requests_of(model, [generator.job("a")], Options(max_tokens=300, min_tokens=300)), 16)
    loop.calls.append(careful)
    drain(loop)
    model.most = 0
    others = [generator.job(f"{letter}{LETTERS}{letter}" * 2) for letter in LETTERS]
    loop.calls.append(Call(requests_of(model, others, Options(max_tokens=9)), 16))
    drain(loop)
    assert model.most == 20 * len(others), "after some steps as many are read at once as before"
    model.raises = [MemoryError()]
    last = Call([replace(requests[0], number=0)], 16)
    loop.calls.append(last)
    drain(loop)
    assert isinstance(results(last)[0], MemoryError), "one text alone cannot be made fewer"
