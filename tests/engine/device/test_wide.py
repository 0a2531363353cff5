"""Launches in which rows read several tokens: what is forced, together with what it follows."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest
from trellm import Engine, Greedy, Sample, generate, models

from ...thresholds import thresholds
from .support import WIDTH
from .test_batch import BatchDecoder, Chain, facts

RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 9},
        "number": {"type": "integer", "minimum": 0, "maximum": 150},
        "colour": {"enum": ["red", "green", "blue"]},
    },
    "required": ["name", "number", "colour"],
    "additionalProperties": False,
}
PATTERNS = [r"([ab]xyzwvuqpxyzwvuq[ab]){1,3}x?", r"([a-c]{1,2}qrsu)*", r"[a-c]xyzw|d{3}z", "([ab]uvwxyz+)+"]


@pytest.fixture(scope="module")
def pair(hugging_face: Any, tokenizer: Any) -> Iterator[tuple[Any, BatchDecoder]]:
    network = hugging_face("llama").double()
    yield models.transformers(network, tokenizer), BatchDecoder(network, tokenizer)
    network.float()


def launches_of(model: BatchDecoder, generator: Any, **given: Any) -> int:
    """How many launches a text takes whose states were met before."""
    for _ in range(3):
        model.launches = []
        generator.run("the 12", **given)
    return len(model.launches)


@pytest.mark.parametrize("search", [Greedy(), Sample()], ids=["greedy", "sample"])
def test_forced_tokens_take_no_launch_of_their_own(pair: Any, monkeypatch: Any, search: Any) -> None:
    plain, model = pair
    given = {"max_tokens": 90, "search": search, "seed": 3, "draft": False}
    generator = generate.json(model, RECORD, whitespace="compact")
    expected = generate.json(plain, RECORD, whitespace="compact").run("the 12", **given)
    wide = launches_of(model, generator, **given)
    result = generator.run("the 12", **given)
    assert facts(result) == facts(expected)
    # What the CPU's steps read together is read together here, but for what is under way when a text begins or ends.
    assert result.steps <= expected.steps + 6
    thresholds(monkeypatch, few_rows_of_a_launch=0)
    narrow = launches_of(model, generator, **given)
    assert facts(generator.run("the 12", **given)) == facts(expected)
    count = len(expected.token_ids)
    assert wide < 0.6 * count < 0.9 * count < narrow


def test_free_text_and_many_rows_read_one_token_each(pair: Any) -> None:
    model = pair[1]
    for prompts, generator in (["on"], generate.text(model)), (["on", "in a"] * 3, generate.json(model, RECORD)):
        generator.run(prompts, max_tokens=90, heal=False, draft=False)
        model.launches = []
        generator.run(prompts, max_tokens=90, heal=False, draft=False)
        assert {launch.width for launch in model.launches} == {1}


@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_the_same_tokens_by_any_width(pair: Any, monkeypatch: Any, width: int) -> None:
    thresholds(monkeypatch, widths_of_a_launch=(1, width))
    pick = random.Random(width)
    plain, model = pair
    tokens = plain.vocabulary.tokens
    stops = [tokens.index(text) for text in (b"z", b"w")]
    read: list[int] = []
    for pattern in (*PATTERNS, None):
        one, other = (generate.text(each) if pattern is None else generate.regex(each, pattern) for each in pair)
        for _ in range(3):
            given: dict[str, Any] = {
                "max_tokens": pick.choice([17, 18, 20, 33, 61, 70]),
                "search": pick.choice([Greedy(), Sample(), Sample(temperature=0.7, top_p=0.8)]),
                "seed": pick.randrange(2),
                "heal": pick.random() < 0.5,
            }
            if pattern is None:
                given |= {"include": Chain(), "stop_ids": pick.choice([(), stops])}
            prompts = pick.choice([["on"], ["in a", "the 12"], ["ax", "b", "axyzwvuq", "12"]])
            model.launches = []
            expected = [facts(each) for each in one.run(prompts, draft=False, **given)]
            for _ in range(2):
                assert [facts(each) for each in other.run(prompts, draft=False, **given)] == expected
            read += [int(launch.rows[:, WIDTH].max()) for launch in model.launches]
    assert max(read) == width


def test_what_a_launch_reads_at_most_is_within_the_budget(pair: Any, monkeypatch: Any) -> None:
    """Nothing is read that lies behind the last token but one that a text may have."""
    thresholds(monkeypatch, widths_of_a_launch=(1, 16))
    model, ends = pair[1], list[int]()
    model.meets = lambda chunks: ends.extend(len(chunk.table.tokens) + len(chunk.tokens) for chunk in chunks)
    generator = generate.regex(model, "([ab]uvwxyz)+")
    try:
        for tokens in range(14, 43, 7):
            for seed in range(2):
                ends.clear()
                for _ in range(2):
                    generator.run("ba", max_tokens=tokens, search=Sample(), seed=seed, heal=False)
                assert max(ends) < 2 + 1 + tokens
    finally:
        model.meets = None


def test_little_memory_makes_launches_narrower(hugging_face: Any, tokenizer: Any) -> None:
    network = copy.deepcopy(hugging_face("llama")).double()
    plain, model = models.transformers(network, tokenizer), BatchDecoder(network, tokenizer)
    given = {"max_tokens": 70, "search": Sample(n=2), "seed": 1, "heal": False}
    expected = facts(generate.regex(plain, PATTERNS[0]).run("ba", **given))
    with Engine(model, memory=9 * model.block_bytes) as engine:
        for _ in range(3):
            assert facts(engine.submit(generate.regex(model, PATTERNS[0]), "ba", **given).result()) == expected
            engine._loop.check()


def test_the_device_says_what_it_read(pair: Any) -> None:
    model = pair[1]
    generator = generate.regex(model, PATTERNS[0])
    generator.run("ba")
    for _ in range(3):
        model.counts.clear()
        generator.run("ba", max_tokens=70, search=Sample(), seed=1, heal=False, draft=False)
    assert model.counts.count(8) >= 2, "a run of 14 and what it follows are read in two launches"
