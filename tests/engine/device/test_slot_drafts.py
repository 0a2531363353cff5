"""Launches in which rows read drafts of what they choose: the same tokens, in fewer passes."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest
from trellm import Engine, Greedy, Sample, generate, models
from trellm.errors import LimitError

from ...watching import watched
from ..support import AcceptanceRates
from .support import DRAFTED, DeviceStateTable, SlotDrafter
from .test_batch import BatchDecoder, facts

DOCUMENT = "the man then went on to the inn on the 12 of the month, and then to another one in the north of the town"
MAKERS: dict[str, Any] = {
    "text": generate.text,
    "words": lambda model: generate.regex(model, "((one|two|three) [ab]{12}, ){3}x*"),
    "quote": lambda model: generate.extract(model, DOCUMENT),
    "json": lambda model: generate.json(
        model, {"type": "array", "items": {"enum": ["red red red", 1234567]}, "minItems": 2}, whitespace="compact"
    ),
}


@pytest.fixture(scope="module")
def pair(hugging_face: Any, tokenizer: Any) -> Iterator[tuple[Any, BatchDecoder]]:
    network = hugging_face("llama").double()
    yield models.transformers(network, tokenizer), BatchDecoder(network, tokenizer)
    network.float()


def told(model: BatchDecoder) -> int:
    """The number of drafts that launches were given."""
    return sum(int(launch.rows[:, DRAFTED].sum()) for launch in model.launches)


@pytest.mark.parametrize("kind", MAKERS)
def test_the_same_tokens_with_drafts_as_without(pair: Any, kind: str) -> None:
    pick = random.Random(kind)
    one, other = (MAKERS[kind](model) for model in pair)
    for _ in range(3):
        given: dict[str, Any] = {
            "max_tokens": pick.choice([58, 61, 75]),
            "search": pick.choice([Greedy(), Sample(), Sample(temperature=0.6, top_p=0.8, n=2)]),
            "seed": pick.randrange(3),
            "heal": pick.random() < 0.5,
            "stop_ids": pick.choice([(), pair[0].tokenizer.encode("e")]) if kind == "text" else (),
        }
        prompts = pick.choice([["on the 12, on the 12"], ["the one", "on"], [DOCUMENT[:40], "b", "12"]])
        expected = [facts(each) for each in one.run(prompts, draft=False, **given)]
        pair[1].launches = []
        for draft in (True, False, True):
            assert [facts(each) for each in other.run(prompts, draft=draft, **given)] == expected


@pytest.mark.parametrize("pattern", ["[a-z]{64}x?", "([a-z] ){32}x?", r'\["[^"\\]{50}"\]?'])
def test_what_repeats_itself_takes_fewer_passes(hugging_face: Any, tokenizer: Any, pattern: str) -> None:
    network = copy.deepcopy(hugging_face("llama")).double()
    for layer in network.model.layers:  # of which the last token alone says what comes next
        layer.self_attn.o_proj.weight.data.zero_()
        layer.mlp.down_proj.weight.data.zero_()
    model = BatchDecoder(network, tokenizer)
    generator = generate.regex(model, pattern)
    steps: list[int] = []
    for draft in (False, True):
        model.launches = []
        found = [generator.run("the", max_tokens=80, heal=False, draft=draft) for _ in range(3)]
        assert bool(told(model)) == draft
        assert facts(found[0]) == facts(found[1]) == facts(found[2])
        steps.append(found[-1].steps)
    assert steps[1] < 0.5 * steps[0]


def test_drafts_that_are_wrong_are_not_read_for_long(pair: Any) -> None:
    model = pair[1]
    generator = generate.regex(model, "[a-z]{80}")
    for seed in range(8):
        model.launches = []
        generator.run("abcd", max_tokens=90, search=Sample(temperature=3.0), seed=seed)
    assert sum(launch.width > 1 for launch in model.launches) < 0.2 * len(model.launches)


def test_many_rows_have_no_drafts(pair: Any) -> None:
    model = pair[1]
    generator = MAKERS["words"](model)
    model.launches = []
    generator.run(["one"] * 5, max_tokens=60)
    assert model.launches and not told(model)


@pytest.mark.parametrize("error", [LimitError, ZeroDivisionError])
def test_what_drafts_come_upon_is_nobodys_error(pair: Any, monkeypatch: Any, error: type[Exception]) -> None:
    generator = MAKERS["words"](pair[1])
    expected = facts(generator.run("one two", max_tokens=60))

    find, drafting = SlotDrafter._find, list[bool]()

    def failing(*_: Any) -> None:
        if drafting:
            raise error("a state to which no text came")

    def noted(self: Any, *given: Any) -> Any:
        drafting.append(True)
        try:
            return find(self, *given)
        finally:
            drafting.clear()

    watched(monkeypatch, DeviceStateTable, "lead", failing)
    monkeypatch.setattr(SlotDrafter, "_find", noted)
    assert facts(generator.run("one two", max_tokens=60)) == expected


def test_texts_of_steps_and_of_launches_share_what_was_learnt(pair: Any) -> None:
    """A row that goes on step by step meanwhile has all its tokens when it is drafted for again."""
    plain, model = pair
    given = {"max_tokens": 70, "search": Sample(), "seed": 2, "heal": False}
    prompts = ["one two, one two, ", "one", "on", "in", "a", "the"]
    expected = [facts(MAKERS["words"](plain).run(prompt, draft=False, **given)) for prompt in prompts]
    with Engine(model) as engine:
        generator = MAKERS["words"](model)
        first = engine.submit(generator, prompts[0], **given)
        for _ in range(3):
            engine.step()
        others = [engine.submit(generator, prompt, **given) for prompt in prompts[1:]]
        assert [facts(each.result()) for each in (first, *others)] == expected


def test_odds_are_those_of_all_texts(pair: Any) -> None:
    MAKERS["words"](pair[1]).run("one two, one two, ", max_tokens=60)
    slots: Any = Engine.of(pair[1])._loop._device_batch
    assert any(slots._odds.of(kind) != AcceptanceRates().of(kind) for kind in range(7))
