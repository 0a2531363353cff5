"""Rows that go on by themselves: the same tokens as step by step, whatever is asked of them."""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from trellm import Engine, Greedy, Sample, generate, models
from trellm.errors import LimitError, ModelError
from trellm.guides import DEAD, RegexGuide

from ...thresholds import thresholds
from ...watching import watched
from ..support import Chunk, DecoderModel, GuideCache
from .support import (
    COUNT,
    OFTEN,
    TOKENS,
    UNKNOWN,
    DeviceBatch,
    DeviceStateTable,
    HostBackend,
    StateKey,
    charsets,
    loops,
)

PROMPTS = ["the 12", "on", "then the inn of thirteen 1", "a", "in 3", "oath"]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
        "short": {"type": "string", "maxLength": 5},
    },
    "required": ["name", "age", "tags", "short"],
    "additionalProperties": False,
}


class WatchedDecoder(DecoderModel):
    """A model of which tests know what it reads, and may change what it says.

    meets: is told of the chunks of each pass before it, and may raise; spells: what becomes of logits
    """

    stays = True
    meets: Callable[[Sequence[Chunk]], None] | None = None
    spells: Callable[[torch.Tensor], torch.Tensor] | None = None

    def forward(self, chunks: Sequence[Chunk], memory: Any) -> Any:
        if self.meets is not None:
            self.meets(chunks)
        return super().forward(chunks, memory)

    def forward_ends(self, chunks: Sequence[Chunk], ends: Sequence[int], memory: Any) -> Any:
        if self.meets is not None:
            self.meets(chunks)
        return super().forward_ends(chunks, ends, memory)

    def logits(self, *given: Any) -> torch.Tensor:
        found = super().logits(*given)
        return found if self.spells is None else self.spells(found)


class BatchDecoder(WatchedDecoder):
    """A model on the CPU whose rows go on by themselves. counts: how many tokens launches read of each row"""

    launches: list[Any]
    known: list[bool]
    counts: list[int]

    def batch_backend(self, memory: Any, records: DeviceStateTable) -> HostBackend:
        self.launches = []
        self.known = []
        self.counts = []
        backend = HostBackend(self, memory, records)
        launch, answer = backend.launch, backend.answer

        def counted(given: Any) -> int:
            self.launches.append(given)
            return launch(given)

        def noted(begun: int) -> Any:
            found = answer(begun)
            self.counts += found[:, COUNT].tolist()
            for count, after in zip(found[:, COUNT], found[:, (TOKENS + found.shape[1]) // 2 :], strict=True):
                self.known += (after[:count] != UNKNOWN).tolist()
            return found

        backend.launch, backend.answer = counted, noted  # type: ignore[method-assign]
        return backend


@pytest.fixture(scope="module")
def pair(hugging_face: Any, tokenizer: Any) -> Iterator[tuple[Any, BatchDecoder]]:
    network = hugging_face("llama").double()
    yield models.transformers(network, tokenizer), BatchDecoder(network, tokenizer)
    network.float()


GENERATORS: dict[str, Any] = {
    "text": lambda model: generate.text(model),
    "regex": lambda model: generate.regex(model, r"([a-z]+[ .,])*"),
    "counted": lambda model: generate.regex(model, r"[a-z]{3,9}( [0-9]{2}){1,6}\."),
    "unicode": lambda model: generate.regex(model, r"[\w ]+é?!"),
    "json": lambda model: generate.json(model, SCHEMA),
    "choice": lambda model: generate.choice(model, ["the first", "the second of them", "none"]),
    "extract": lambda model: generate.extract(model, "the man then went on to the inn on the 12 of the month"),
}
SEARCHES = [Greedy(), Sample(), Sample(temperature=0.7, top_k=9, top_p=0.9, min_p=0.01, n=3)]


def facts(result: Any) -> Any:
    several = result if isinstance(result, list) else [result]
    return [(each.text, each.token_ids, each.finish_reason) for each in several]


@pytest.mark.parametrize("search", SEARCHES, ids=["greedy", "sample", "filtered"])
@pytest.mark.parametrize("kind", GENERATORS)
def test_the_same_tokens_as_step_by_step(pair: Any, kind: str, search: Any) -> None:
    ones, others = (GENERATORS[kind](model) for model in pair)
    for tokens, heal in ((60, True), (75, False)):
        given = {"max_tokens": tokens, "search": search, "seed": 5, "heal": heal}
        expected = [facts(each) for each in ones.run(PROMPTS, **given)]
        pair[1].launches = []
        assert [facts(each) for each in others.run(PROMPTS, **given)] == expected
        assert pair[1].launches, "they did go on by themselves"


@pytest.mark.parametrize("given", [{"stop": ["1", " t"]}, {"stop": "e"}, {"include": ["then"]}, {"min_tokens": 4}])
def test_what_ends_a_text_ends_it_there(pair: Any, given: Any) -> None:
    for kind in ("text", "regex")[: 1 if "stop" in given else 2]:
        ones, others = (GENERATORS[kind](model) for model in pair)
        for search in SEARCHES:
            options = given | {"max_tokens": 50, "search": search, "seed": 1}
            assert facts(others.run("the 12", **options)) == facts(ones.run("the 12", **options))


@pytest.mark.parametrize("tokens", [1, 2, 3, 17])
def test_small_budgets(pair: Any, tokens: int) -> None:
    for kind in ("text", "regex"):
        ones, others = (GENERATORS[kind](model) for model in pair)
        assert facts(others.run(PROMPTS[0], max_tokens=tokens)) == facts(ones.run(PROMPTS[0], max_tokens=tokens))


def test_what_is_known_goes_on_without_the_host(pair: Any) -> None:
    model = pair[1]
    generator = generate.json(model, SCHEMA)
    # Where prompts are new they are read in an ordinary step, and so the device does not see where first tokens lead.
    for _ in range(3):
        model.launches = []
        generator.run(PROMPTS[:4], max_tokens=100)
    resumed = sum(int((launch.rows[:, 0] != 0).sum()) for launch in model.launches)
    read = sum(int((launch.rows[:, 1] != 0).sum()) for launch in model.launches)
    assert resumed > 0.5 * read
    assert not any(launch.news.transitions for launch in model.launches)


@pytest.mark.parametrize("pattern", [r"([a-z]{1,9}[ .,])*", r"([a-z]{2,9}([ .,]|[0-9]{2}))*"])
def test_tokens_not_met_before_are_known(hugging_face: Any, tokenizer: Any, monkeypatch: Any, pattern: str) -> None:
    network = copy.deepcopy(hugging_face("llama")).double()
    given: dict[str, Any] = {"max_tokens": 75, "search": Sample()}
    unknown: list[float] = []
    met: list[int] = []
    texts: list[Any] = []
    for rows in (None, 0):
        thresholds(monkeypatch, dense_rows=rows)
        model = BatchDecoder(network, tokenizer)
        generator = generate.regex(model, pattern)
        for seed in range(3):
            generator.run(PROMPTS[:3], seed=seed, **given)
        model.known, model.launches = [], []
        texts.append([facts(each) for s in range(3, 6) for each in generator.run(PROMPTS[:3], seed=s, **given)])
        unknown.append(model.known.count(False) / len(model.known))
        met.append(sum(len(launch.news.transitions) for launch in model.launches))
    assert texts[0] == texts[1]
    # What is left are the ends of the nine texts, and choices that are made to come to one.
    assert unknown[0] < 0.05 < 0.15 < unknown[1]
    assert met[0] < 9 < 30 < met[1], "but for the nine ends, which are told step by step"


def test_where_all_tokens_lead(pair: Any) -> None:
    vocabulary = pair[0].vocabulary
    cache = GuideCache(RegexGuide(r"[a-z]+( [0-9]+)*\.", vocabulary), 4)
    for each in (cache, cache.behind(b"th")):
        guide = each.guide
        states = {guide.start}
        while more := {s for p in states for t in range(vocabulary.size) if (s := guide.advance(p, t)) >= 0} - states:
            states |= more
        answers = {state: each.after_tokens(state) for state in states}
        assert [state for state in states if answers[state] is None] == list(range(0 if each is cache else 2))
        for state, found in answers.items():
            for token in range(vocabulary.size) if found is not None else ():
                ends = token in vocabulary.eos_ids
                assert found[token] == (DEAD if ends else guide.advance(state, token))


def test_classes_of_tokens(pair: Any) -> None:
    vocabulary = pair[0].vocabulary
    guide = RegexGuide(r"[a-z]+[0-9]", vocabulary)
    a, b, digit = (vocabulary.tokens.index(text) for text in (b"a", b"b", b"1"))
    cache, stops = GuideCache(guide, 4), frozenset({b})
    records = DeviceStateTable(2, 300)
    first = records.record(StateKey(cache, guide.start, stops))
    later = guide.advance(guide.start, a)
    for token in range(OFTEN):
        records.widen()
        assert not records.news().dense, "not at once"
        records.follow(first, token, 1)
    records.widen()
    ((row, (record, classes, targets)),) = records.news().dense.items()
    assert record == first
    assert classes[a]
    assert not classes[[b, digit, *vocabulary.eos_ids]].any()
    assert (targets == UNKNOWN).all()
    records.record(StateKey(cache, later, frozenset()))
    assert not records.news().targets, "another state, since other ids end its text"
    after = records.record(StateKey(cache, later, stops))
    assert records.news().targets == [(row, classes[a], after)]
    records.follow(first, a, after)
    assert not records.news().transitions
    records.forget()
    assert records.news().forgotten


def test_a_guide_for_which_that_is_too_much_is_asked_once(pair: Any) -> None:
    cache = GuideCache(RegexGuide(r"[a-z]{1,9}", pair[0].vocabulary), 4)
    asked: list[int] = []

    def refusing(state: int) -> Any:
        asked.append(state)
        raise LimitError("too many states")

    cache.after_tokens = refusing
    records = DeviceStateTable(2, 300)
    for state in range(2):
        number = records.record(StateKey(cache, state, frozenset()))
        for token in range(OFTEN):
            records.follow(number, token, 1)
        records.widen()
    assert len(asked) == 1
    assert not records.news().dense


def test_little_memory_few_records_and_many_callers(hugging_face: Any, tokenizer: Any, monkeypatch: Any) -> None:
    thresholds(monkeypatch, records_of_a_state=3)
    network = copy.deepcopy(hugging_face("llama")).double()
    plain, slots = models.transformers(network, tokenizer), BatchDecoder(network, tokenizer)
    expected = {
        kind: [facts(each) for each in make(plain).run(PROMPTS, max_tokens=75)] for kind, make in GENERATORS.items()
    }
    with Engine(slots, memory=14 * slots.block_bytes) as engine:
        handles = {kind: engine.submit(make(slots), PROMPTS, max_tokens=75) for kind, make in GENERATORS.items()}
        for kind, handle in handles.items():
            assert [facts(each) for each in handle.result()] == expected[kind]
            engine._loop.check()


def test_characters_that_lead_back(pair: Any) -> None:
    vocabulary = pair[0].vocabulary
    sets = charsets(vocabulary)
    for pattern in (r"[a-z]*[0-9]", r"[^x]*", r"\w+", r"[é-ü]*", "ab", r"[\U00010000-\U0010ffff]*", r"[a-z]{2,9}"):
        guide = RegexGuide(pattern, vocabulary)
        states = {guide.start} | {s for t in range(vocabulary.size) if (s := guide.advance(guide.start, t)) != DEAD}
        for state in states:
            back = loops(guide, state)
            for token, text in enumerate(vocabulary.tokens):
                if not (sets[token] & ~back).any():
                    assert text
                    assert guide.advance(state, token) == state
    everything = RegexGuide(r"[\s\S]*", vocabulary)
    back = loops(everything, everything.start)
    whole = [t for t, text in enumerate(vocabulary.tokens) if text and _is_whole(text)]
    assert all(not (sets[token] & ~back).any() for token in whole)


def _is_whole(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_nothing_is_taken_that_asks_for_more(pair: Any) -> None:
    model = pair[1]
    asked: list[dict[str, Any]] = [{"logprobs": True}, {"diagnostics": True}, {"repetition_penalty": 1.5}]
    for given in (*asked, {"frequency_penalty": 1.0}, {"presence_penalty": 1.0}, {"logit_bias": {"the": 3.0}}):
        model.launches = []
        expected = facts(generate.text(pair[0]).run("the", max_tokens=9, **given))
        assert facts(generate.text(model).run("the", max_tokens=9, **given)) == expected
        assert not model.launches


def failing_at(number: int) -> Callable[[Sequence[Chunk]], None]:
    """Raises ZeroDivisionError in one of the passes of a `WatchedDecoder`."""
    calls = itertools.count()

    def meet(_: Sequence[Chunk]) -> None:
        if next(calls) == number:
            raise ZeroDivisionError

    return meet


def test_a_model_that_fails_fails_its_rows(pair: Any) -> None:
    model = pair[1]
    generator = generate.json(model, SCHEMA)
    expected = facts(generator.run("the", max_tokens=75))
    model.meets = failing_at(9)
    try:
        with pytest.raises(ZeroDivisionError):
            generator.run("the", max_tokens=75)
    finally:
        model.meets = None
    assert facts(generator.run("the", max_tokens=75)) == expected
    Engine.of(model)._loop.check()


def test_bad_logits_are_named(pair: Any) -> None:
    model, calls = pair[1], itertools.count()
    model.spells = lambda found: torch.full_like(found, np.nan) if next(calls) == 5 else found
    try:
        with pytest.raises(ModelError, match="step 5 of prompt 0"):
            generate.regex(model, "[a-z]{40}").run("the", max_tokens=40, heal=False)
    finally:
        model.spells = None


def test_slots_are_given_up_where_most_pause(pair: Any) -> None:
    slots = Engine.of(pair[1])._loop._device_batch
    assert isinstance(slots, DeviceBatch)
    generate.regex(pair[1], r"[a-z]{30,60}").run(PROMPTS, max_tokens=60)
    assert slots._missing > 0.25
    generate.text(pair[1]).run(PROMPTS, max_tokens=60)
    assert slots._missing < 0.25


@pytest.mark.parametrize("kind", ["text", "regex", "unicode"])
def test_what_was_met_before_costs_no_look_at_each_token(pair: Any, monkeypatch: Any, kind: str) -> None:
    looked = watched(monkeypatch, DeviceBatch, "_take")
    generator = GENERATORS[kind](pair[1])
    for _ in range(3):
        looked.clear()
        results = generator.run(PROMPTS[3:], max_tokens=110, search=Sample(), seed=5)
    expected = GENERATORS[kind](pair[0]).run(PROMPTS[3:], max_tokens=110, search=Sample(), seed=5)
    assert [facts(each) for each in results] == [facts(each) for each in expected]
    tokens = sum(len(each.token_ids) for each in results)
    assert tokens > 100
    assert tokens > 2 * len(looked), "ends of runs and texts are looked at, and forced tokens"


def test_prompts_share_what_is_known(pair: Any) -> None:
    cache = GuideCache(RegexGuide(r"[a-z ]+[0-9]", pair[0].vocabulary), 4)
    one, other = cache.behind(b"the 1"), cache.behind(b"on")
    inner = cache.guide.start
    assert one.unwrap(5 + inner) == other.unwrap(2 + inner) == cache.unwrap(inner) == (cache, inner)
    assert one.unwrap(1) == (one, 1)


def test_forced_tokens_need_no_logits(hugging_face: Any, tokenizer: Any) -> None:
    network = copy.deepcopy(hugging_face("llama")).double()
    plain, slots = WatchedDecoder(network, tokenizer), BatchDecoder(network, tokenizer)
    (token,) = (number for number, text in enumerate(plain.vocabulary.tokens) if text == b"4")

    def without(found: torch.Tensor) -> torch.Tensor:
        if found.shape[-1] != plain.vocabulary.size:
            return found
        found = found.clone()
        found[:, token] = -torch.inf
        return found

    plain.spells = slots.spells = without
    pattern = r"([a-z]{6}4)+"
    ones, others = (generate.regex(model, pattern) for model in (plain, slots))
    for _ in range(3):
        found, expected = (each.run(PROMPTS[:2], max_tokens=90) for each in (others, ones))
        assert [facts(each) for each in found] == [facts(each) for each in expected]
    assert all("4" in each.text for each in found)


@dataclass(frozen=True)
class Chain:
    """A goal that forces bytes, one after the other, once the first of them is there."""

    chain: bytes = b"xyzwxyzw"

    def automaton(self) -> Any:
        size = len(self.chain)
        after = np.full((size + 2, 256), size + 1, np.int32)
        after[0], after[size] = 0, size
        for place, byte in enumerate(self.chain):
            after[place, byte] = place + 1
        return after, np.arange(size + 2) == size


def test_what_is_forced_ends_no_text_though_it_is_a_stop_id(pair: Any) -> None:
    tokens = pair[0].vocabulary.tokens
    stops = [tokens.index(text) for text in (b"z", b"w")]
    for seed in range(5):
        given = {"max_tokens": 60, "search": Sample(), "seed": seed, "include": Chain(), "stop_ids": stops}
        one, other = (generate.text(model) for model in pair)
        expected = [facts(each) for each in one.run(["the 12", "on"], **given)]
        for _ in range(3):  # what was met is known then
            assert [facts(each) for each in other.run(["the 12", "on"], **given)] == expected
