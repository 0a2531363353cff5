"""Drafts are read along, and nothing else changes: tokens, memory and errors are those of texts without."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from trellm import Beam, Greedy, OptionError, Sample, generate, models
from trellm.guides import SubstringGuide

from ...watching import watched
from ..machines import VOCABULARY as OTHER_VOCABULARY
from ..paged import LETTERS, VOCABULARY, PagedModel, drain, results
from ..support import (
    Call,
    Drafter,
    EngineCore,
    ForwardCosts,
    Options,
    Request,
    SchedulerConfig,
    drafts_pay,
    listed,
    requests_of,
    steps_by_clock,
)

SCHEMA = {
    "type": "object",
    "properties": {"on": {"type": "string"}, "in": {"type": "integer", "minimum": 0}, "the": {"enum": ["an", "on"]}},
    "required": ["on", "in", "the"],
    "additionalProperties": False,
}
TEXT = "the inn on the 12th then the inn on the 23rd an oath on the inn"


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Drafts are read whatever they cost. How many there were in each step, and how many of them were right."""
    counts: list[int] = []
    advance = Drafter.advance

    def counted(self: Drafter, reading: Any, found: Any) -> None:
        before = {row: len(row.table.tokens) for row in found.tokens}
        advance(self, reading, found)
        counts.append(sum(len(row.table.tokens) - before[row] for row in found.tokens))

    drafts_pay(monkeypatch, lambda probability: probability > 0)
    monkeypatch.setattr(Drafter, "advance", counted)
    yield counts


class Some:
    """Random requests: some draft by themselves, some by a model, which may be the same or always wrong."""

    def __init__(self, model: PagedModel, seed: int) -> None:
        self.model = model
        self.pick = random.Random(seed)
        patterns = [None, "[a-d]{3,9}e", "(ab|ba|c){2,}d", "[a-h]{40,60}", "(abcdefgh){3}[ab]{9}(hgfe){4}"]
        self.generators = [generate.text(model) if p is None else generate.regex(model, p) for p in patterns]
        self.generators.append(generate.Generator(model, SubstringGuide("abcdefgh" * 3 + "hgfedcba", VOCABULARY)))
        wrong = models.from_function(lambda ids: [1.0 * (token == ids[-1]) for token in range(len(VOCABULARY.tokens))],
                                     VOCABULARY)  # fmt: skip
        self.drafts = [True, model, PagedModel(), wrong]
        self.prompts = ["".join(self.pick.choices(LETTERS, k=self.pick.choice([1, 5, 40, 90]))) for _ in range(4)]

    def request(self) -> Request:
        pick = self.pick
        prompt = pick.choice(self.prompts)[: pick.randint(1, 90)] * pick.choice([1, 1, 2])
        search = pick.choice([Greedy(), Greedy(), Sample(), Sample(temperature=0.5, top_k=3), Beam(2)])
        number = pick.randrange(len(self.generators))
        options = Options(
            search=search,
            seed=pick.randrange(100),
            max_tokens=pick.choice([60, 70]),
            min_tokens=pick.choice([0, 30]),
            no_repeat_ngram_size=pick.choice([0, 0, 0, 3]),
            repetition_penalty=pick.choice([1.0, 1.0, 1.3]),
            logprobs=pick.random() < 0.2,
            heal=pick.random() < 0.5,
            include="hag" if number == 0 and pick.random() < 0.3 else (),
            stop="gab" if number == 0 and pick.random() < 0.3 else (),
            draft=True if isinstance(search, Beam) else pick.choice(self.drafts),
        )
        return requests_of(self.model, [self.generators[number].job(prompt, options)], options)[0]


@pytest.mark.parametrize(
    ("blocks", "config", "window"),
    [
        (34, SchedulerConfig(prefill_chunk_size=32), None),
        (34, SchedulerConfig(max_num_batched_tokens=32, prefill_chunk_size=16), 24),
    ],
)
def test_requests_come_to_what_they_come_to_without(
    blocks: int, config: SchedulerConfig, window: int | None, eager: list[int]
) -> None:
    """Alone and without drafts, that is; with blocks, their content and whose they are looked at in each step."""
    model = PagedModel(window, reads_drafts=True)
    loop, some, pick = EngineCore(model, blocks, config), Some(model, blocks), random.Random(blocks)
    calls: list[Call] = []
    for _ in range(9):
        calls.append(Call([some.request() for _ in range(pick.randint(1, 4))], pick.choice([1, 3, 16])))
        loop.calls.append(calls[-1])
        for _ in range(pick.choice([0, 1, 10])):
            loop.step()
            loop.check()
    drain(loop)
    assert not loop.tables
    assert loop.held_blocks == 0
    assert sum(eager) > 40
    for call in calls:
        for request, found in zip(call.requests, results(call), strict=True):
            plain = EngineCore(PagedModel(window), 4096, SchedulerConfig())
            alone = Call([request], 100)
            plain.calls.append(alone)
            drain(plain)
            assert found == results(alone)[0], request
            for mine, other in zip(call.outcomes[0].sequences, alone.outcomes[0].sequences, strict=False):
                assert request is not call.requests[0] or mine.scores == other.scores


@pytest.fixture(scope="module")
def double(hugging_face: Callable[[str], Any], tokenizer: Any) -> Callable[[str], Any]:
    """A model in float64, so that a wider step comes to the same numbers."""
    import copy

    return lambda name: models.transformers(copy.deepcopy(hugging_face(name)).double(), tokenizer)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_models_write_the_same(name: str, double: Callable[[str], Any], eager: list[int]) -> None:
    model = double(name)
    json = generate.json(model, SCHEMA, whitespace="compact")
    quote = generate.extract(model, TEXT)
    regex = generate.regex(model, "(the (inn|oath) (on|in) )+12")
    text = generate.text(model)
    taken: list[int] = []
    for generator in (text, regex, json, quote):
        for search, draft in ((Greedy(), True), (Sample(n=2), model)):
            options: dict[str, Any] = {"search": search, "seed": 5, "max_tokens": 30}
            eager.clear()
            found = generator.run([TEXT, "then th"], **options, draft=draft)
            taken.append(sum(eager))
            expected = generator.run([TEXT, "then th"], **options, draft=False)
            for one, other in zip(flat(found), flat(expected), strict=True):
                assert (one.text, one.token_ids, one.value) == (other.text, other.token_ids, other.value)
                assert one.steps <= other.steps
    assert sum(count > 0 for count in taken) >= len(taken) // 2


def flat(results: list[Any]) -> list[Any]:
    return [each for entry in results for each in listed(entry)]


def test_a_model_that_drafts_for_itself_reads_many_tokens_a_step(double: Callable[[str], Any]) -> None:
    """Its drafts are right, so that nearly the fewest steps come out that there can be."""
    model = double("llama")
    generator = generate.text(model)
    with pytest.MonkeyPatch.context() as patch:
        drafts_pay(patch, lambda probability: probability > 0)
        found = generator.run("the", max_tokens=49, min_tokens=49, seed=1, search=Sample(), draft=model, heal=False)
    expected = generator.run("the", max_tokens=49, min_tokens=49, seed=1, search=Sample(), draft=False, heal=False)
    assert found.token_ids == expected.token_ids
    assert expected.steps == 49
    assert found.steps <= 8  # 4, but for drafts of repeats that come by chance


def test_what_is_read_before_a_rejection_leaves_nothing(eager: list[int]) -> None:
    """Blocks that drafts were read into are free again, and known by nothing but tokens that stayed."""
    model = PagedModel(reads_drafts=True)
    loop = EngineCore(model, 64, SchedulerConfig())
    prompt = "abcdefgh" * 5
    call = Call(requests_of(model, [generate.text(model).job(prompt)], Options(max_tokens=60, min_tokens=60)), 1)
    loop.calls.append(call)
    known: set[tuple[int, ...]] = set()
    while not call.outcomes:
        loop.step()
        loop.check()
        known |= {content for _, content in loop._pool._by_content}  # type: ignore[union-attr]
    row = call.outcomes[0].sequences[0]
    text = [*row.request.start.prompt, *row.tokens]
    assert model.ends > row.steps, "drafts were read"
    assert known <= {tuple(text[i : i + 16]) for i in range(0, len(text), 16)}


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        (models.from_function(lambda ids: [0.0] * 6, OTHER_VOCABULARY), "another vocabulary"),
        (PagedModel(state_bytes=8), "cannot roll back"),
        ("small", "True, False, or a smaller model"),
        (1, "True, False, or a smaller model"),
    ],
)
def test_drafts_that_cannot_be(draft: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        generate.text(PagedModel(reads_drafts=True))("abc", draft=draft)


def test_models_and_searches_that_read_no_drafts() -> None:
    with pytest.raises(OptionError, match="beam search reads no drafts"):
        generate.text(PagedModel(reads_drafts=True))("abc", draft=PagedModel(), search=Beam(2))
    with pytest.raises(OptionError, match="does not support drafts"):
        generate.text(PagedModel())("abc", draft=PagedModel())


def test_a_smaller_model_that_fails_fails_its_texts_alone(eager: list[int]) -> None:
    model, draft = PagedModel(reads_drafts=True), PagedModel()
    draft.raises = [RuntimeError("no more")]
    generator = generate.text(model)
    loop = EngineCore(model, 64, SchedulerConfig())
    call = Call(
        [
            requests_of(model, [generator.job("ab")], Options(max_tokens=60, min_tokens=60, draft=each))[0]
            for each in (draft, True)
        ],
        4,
    )
    loop.calls.append(call)
    drain(loop)
    assert repr(call.outcomes[0].error) == "RuntimeError('no more')"
    assert call.outcomes[1].error is None


class TimedModel(PagedModel):
    """A model whose steps take what is said here of their tokens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: Callable[[int], float]) -> None:
        super().__init__(reads_drafts=True)
        self.seconds, self.now = seconds, 0.0
        steps_by_clock(monkeypatch, lambda: self.now)

    def forward(self, chunks: Any, memory: Any) -> Any:
        """Read, and let time pass."""
        self.now += self.seconds(sum(len(tokens) for _, tokens in chunks))
        return super().forward(chunks, memory)


def test_costs_are_those_of_reading_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """To choose a token takes as long whether it was drafted or not, and says nothing of what a draft costs."""
    model = TimedModel(monkeypatch, lambda tokens: 1.0)
    noted = watched(monkeypatch, ForwardCosts, "note", lambda _, tokens, seconds: seconds)

    class Slow(Greedy):
        """A search that takes long."""

        def pick(self, logits: Any, masks: Any, draws: Any) -> list[int]:
            model.now += 100.0
            return super().pick(logits, masks, draws)

    generate.text(model).run("abcdefgh" * 5, max_tokens=20, min_tokens=20, search=Slow())
    assert model.now > 100.0 and noted and set(noted) == {1.0}


def test_costs_are_what_steps_took() -> None:
    """Steps of 4 ms and 1 ms a token: drafts pay as long as they bring more than the step does as a whole."""
    costs, pick = ForwardCosts(), random.Random(3)
    for _ in range(400):
        tokens = pick.choice([1, 1, 4, 9, 16])
        costs.note(tokens, 0.004 + 0.001 * tokens + pick.choice([0, 0, 0, 0.0002]))
    assert costs.token_seconds == pytest.approx(0.001, rel=0.15)
    assert costs.time(10) == pytest.approx(0.014, rel=0.15)
    assert costs.pays(0.5, 1, 1)
    assert not costs.pays(0.1, 1, 1)
    assert not costs.pays(0.5, 64, 64)
    for _ in range(400):
        costs.note(1, 0.005)
    assert costs.token_seconds == pytest.approx(0.001, rel=0.2), "steps of one size say nothing of wider ones"


@pytest.mark.parametrize("slow", [1, 16])
def test_costs_that_were_measured_wrongly_are_measured_again(slow: int) -> None:
    """The first steps of all, or all wide ones, were slow: sure drafts are read again, as many as there are."""
    costs = ForwardCosts()
    for step in range(40):
        tokens = (1, 16)[step % 2]
        costs.note(tokens, 30.0 if tokens == slow and (slow == 16 or step < 4) else 0.001 + 0.00002 * tokens)
    widths: list[int] = []
    for _ in range(150):
        count = 0
        while count < 15 and costs.pays(0.95 ** (count + 1), 1 + count, sum(0.95**n for n in range(count + 1))):
            count += 1
        costs.note(1 + count, 0.001 + 0.00002 * (1 + count))
        widths.append(count)
    assert (slow == 16) == (widths[0] == 0), "what was measured is believed at first"
    assert min(widths[-20:]) == 15


def test_costs_of_tokens_that_take_as_long_as_steps_let_little_be_read() -> None:
    costs, pick = ForwardCosts(), random.Random(4)
    read = 0
    for _ in range(1000):
        pays = pick.random() < 0.7 and costs.pays(0.7, 1, 1)
        costs.note(1 + pays, 0.001 * (1 + pays))
        read += pays
    assert read < 40


def test_where_nothing_repeats_nothing_is_read_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of random tokens, which knows only chance repeats; a token costs a third of what a step does beside."""
    model = TimedModel(monkeypatch, lambda tokens: 3.0 + tokens)
    result = generate.text(model).run("ah", max_tokens=200, min_tokens=200, search=Sample(temperature=8.0), seed=2)
    assert len(result.token_ids) == 200
    assert model.ends < 60
    again = generate.text(model).run("ah" * 20, max_tokens=200, min_tokens=200, search=Sample(temperature=0.01), seed=2)
    assert again.steps < 150, "what repeats is read along, all the same"
