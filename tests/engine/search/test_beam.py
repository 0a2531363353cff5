"""Beam search: transformers' own, token for token; brute force under guides; no beam lost, none twice."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Beam, Generator, ModelError, OptionError, Vocabulary, generate, models

from ..machines import EOS, LETTERS, TABLE, VOCABULARY, accepts, letters_model, machines

PROMPTS = ["the 12", "an inning then", "23", "in the on"]
ENDS = [1, 5, 17, 30, 31, 44, 80, 101, 105]


@pytest.fixture(scope="module")
def ending(hugging_face: Callable[[str], Any], tokenizer: Any) -> Callable[[str], models.Model]:
    """Models with several EOS ids, so that beams end at many lengths."""
    made: dict[str, models.Model] = {}

    def make(name: str) -> models.Model:
        if name not in made:
            base = hugging_face(name)
            model = type(base)(base.config).eval()
            model.load_state_dict(base.state_dict())
            model.generation_config.eos_token_id = ENDS
            model.generation_config.pad_token_id = 1
            made[name] = models.transformers(model, tokenizer)
        return made[name]

    return make


def expected(model: models.Model, prompt: str, search: Beam, max_tokens: int) -> list[tuple[tuple[int, ...], float]]:
    """What transformers finds: token ids up to the first EOS, and scores."""
    ids = torch.tensor([model.tokenizer.encode(prompt)])
    found = model.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_beams=search.width,
        num_return_sequences=search.n,
        length_penalty=search.length_penalty,
        early_stopping=search.early_stopping,
        max_new_tokens=max_tokens,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    texts: list[tuple[int, ...]] = []
    for sequence in found.sequences[:, ids.shape[1] :].tolist():
        end = next((i for i, token in enumerate(sequence) if token in model.vocabulary.eos_ids), len(sequence))
        texts.append(tuple(sequence[:end]))
    return list(zip(texts, found.sequences_scores.tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "early_stopping"),
    [("gpt2", False), ("gpt2", True), ("gpt2", "never"), ("llama", False), ("qwen3", "never")],
)
def test_beams_are_those_of_transformers(ending: Callable[[str], models.Model], name: str, early_stopping: Any) -> None:
    model = ending(name)
    ended = 0
    for width, length_penalty in ((2, 1.0), (3, 2.0), (5, 0.0), (4, -1.0)):
        search = Beam(width, length_penalty, n=width - 1, early_stopping=early_stopping)
        found = generate.text(model).run(PROMPTS, search=search, max_tokens=12, batch_size=3 * width)
        for prompt, results in zip(PROMPTS, found, strict=True):
            wanted = expected(model, prompt, search, 12)
            results = results if search.n > 1 else [results]
            assert [result.token_ids for result in results] == [tokens for tokens, _ in wanted]
            assert [result.score for result in results] == pytest.approx([score for _, score in wanted], abs=2e-4)
            ended += sum(result.finish_reason == "complete" for result in results)
    assert ended > 5


def texts_within(guide: Any, budget: int, last: int) -> list[tuple[float, int, tuple[int, ...]]]:
    """Every text of a guide within a budget, with its log-probability and length, EOS included if it is said."""
    scores = TABLE - np.log(np.exp(TABLE).sum(axis=1, keepdims=True))
    found: list[tuple[float, int, tuple[int, ...]]] = []

    def go(state: int, tokens: tuple[int, ...], total: float, last: int) -> None:
        if guide.is_accepting(state):
            ends = len(tokens) < budget
            found.append((total + (scores[last, EOS] if ends else 0), len(tokens) + ends, tokens))
        if len(tokens) < budget:
            for token in range(EOS):
                if (after := guide.advance(state, token)) >= 0:
                    go(after, (*tokens, token), total + scores[last, token], token)

    go(guide.start, (), 0.0, last)
    return found


@given(machines(), st.integers(0, 2), st.sampled_from([-0.5, 0.0, 1.0]), st.integers(0, 4))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_wide_beams_under_a_guide_find_the_best_there_is(
    table_guide: Any, machine: Any, spare: int, length_penalty: float, first: int
) -> None:
    guide = table_guide(VOCABULARY, *machine)
    budget = max(guide.distance(guide.start) + spare, 1)
    search = Beam(1500, length_penalty, n=4, early_stopping="never")
    ranked = sorted(
        ((total / length**length_penalty, tokens) for total, length, tokens in texts_within(guide, budget, first)),
        key=lambda entry: -entry[0],
    )
    assert len(ranked) < 1500
    found = Generator(letters_model(), guide).run(LETTERS[first], max_tokens=budget, search=search, logprobs=True)
    assert [result.token_ids for result in found] == [tokens for _, tokens in ranked[:4]]
    assert [result.score for result in found] == pytest.approx([score for score, _ in ranked[:4]], abs=1e-5)


@given(machines(), st.integers(0, 5), st.integers(1, 4), st.booleans())
@settings(max_examples=100, derandomize=True, deadline=None)
def test_narrow_beams_under_a_guide_are_complete_within_any_budget_that_can_hold_them(
    table_guide: Any, machine: Any, spare: int, width: int, soon: bool
) -> None:
    guide = table_guide(VOCABULARY, *machine)
    budget = max(guide.distance(guide.start) + spare, 1)
    search = Beam(width, n=width, early_stopping=soon)
    for results in Generator(letters_model(), guide).run(["a", "b", "c"], max_tokens=budget, search=search):
        results = results if isinstance(results, list) else [results]
        assert 0 < len(results) <= width
        assert len({result.text for result in results}) == len(results)
        for result in results:
            assert accepts(guide, result.token_ids) and result.finish_reason == "complete"
            assert len(result.token_ids) <= budget
        assert [result.score for result in results] == sorted((result.score for result in results), reverse=True)


def test_there_are_no_more_texts_than_the_constraint_has_and_none_twice() -> None:
    vocabulary = Vocabulary([b"y", b"es", b"yes", b"e", b"s", b"no", b"n", b"o", None], eos_ids=(8,))
    model = models.from_function(lambda ids: [0.0, 0.5, 1.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6], vocabulary)
    found = generate.choice(model, ["yes", "no"]).run("n", search=Beam(6, n=5))
    assert [result.text for result in found] == ["yes", "no"]
    assert [len(values) for values in generate.choice(model, ["yes", "no"])(["n", "o"], search=Beam(6, n=5))] == [2, 2]
    free = generate.text(model).run("n", search=Beam(6, n=6), max_tokens=2)
    assert len({result.token_ids for result in free}) == 6


def test_log_probabilities_of_beams_are_those_of_their_tokens(decoder: Callable[..., models.Model]) -> None:
    model = decoder("llama")
    generator = generate.regex(model, "(the|on|in|[0-9]){2,5}")
    found = generator.run("the 12", search=Beam(4, 0.7, n=3), logprobs=True, max_tokens=8, heal=False)
    assert len(found) == 3
    for result in found:
        ids = [*model.tokenizer.encode("the 12"), *result.token_ids]
        with torch.inference_mode():
            logits = model.model(torch.tensor([[*ids, 1]]), use_cache=False).logits[0].double().log_softmax(-1)
        wanted = [float(logits[len(ids) - len(result.token_ids) - 1 + i, token])
                  for i, token in enumerate(result.token_ids)]  # fmt: skip
        assert result.raw_logprobs == pytest.approx(wanted, abs=1e-4)
        assert all(masked > raw for masked, raw in zip(result.logprobs, result.raw_logprobs, strict=True))
        length = len(wanted) + (len(wanted) < 8)
        total = sum(wanted) + (float(logits[len(ids) - 1, 1]) if len(wanted) < 8 else 0.0)
        assert result.score == pytest.approx(total / length**0.7, abs=1e-4)


def test_beams_of_several_constraints_share_a_batch(decoder: Callable[..., models.Model]) -> None:
    model = decoder("mistral")
    generators = [generate.text(model), generate.regex(model, "[0-9]+"), generate.choice(model, ["in", "then", "on"])]
    pairs = [(generator, prompt) for generator in generators for prompt in ("the", "in 123 the then")]
    search = Beam(3)
    alone = [generator(prompt, max_tokens=7, search=search) for generator, prompt in pairs]
    for batch_size in (1, 6, 7, 64):
        assert generate.batch(pairs, max_tokens=7, search=search, batch_size=batch_size) == alone


def test_stop_strings_and_ids_end_beams() -> None:
    model = letters_model()
    found = generate.text(model).run("a", search=Beam(4, n=4), stop="dd", stop_ids=[2], max_tokens=6)
    assert all("dd" not in result.text and 2 not in result.token_ids for result in found)
    assert "stop" in {result.finish_reason for result in found}


def test_a_stream_of_beams_shows_what_is_certain() -> None:
    generator = generate.regex(letters_model(), "aab+c[a-e]{3}")
    pieces = list(generator.stream("a", search=Beam(3), max_tokens=12))
    assert "".join(pieces) == generator("a", search=Beam(3), max_tokens=12)
    assert pieces[0] == "a" and len(pieces) > 2
    free = generate.text(letters_model())
    wanted = free("c", search=Beam(3), stop="ab", max_tokens=12)
    assert "".join(free.stream("c", search=Beam(3), stop="ab", max_tokens=12)) == wanted


@pytest.mark.parametrize(
    "options",
    [{"width": 0}, {"width": 2.0}, {"width": True}, {"width": 3, "n": 4}, {"width": 3, "n": 0},
     {"width": 2, "length_penalty": math.nan}, {"width": 2, "early_stopping": "always"},
     {"width": 2, "sibling_penalty": -0.1}, {"width": 2, "sibling_penalty": 1001},
     {"width": 2, "sibling_penalty": math.inf}, {"width": 2, "sibling_penalty": True}],
)  # fmt: skip
def test_impossible_beams_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"{list(options)[-1]}="):
        Beam(**options)


def test_more_beams_than_memory_are_refused_before_they_are_allocated(decoder: Callable[..., models.Model]) -> None:
    with pytest.raises(OptionError, match=r"the logits of 1000000000 beams take [\d,.]+ GiB"):
        generate.text(decoder("gpt2"))("the", search=Beam(10**9), max_tokens=13)


@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf])
def test_unusable_logits_are_an_error(bad: float) -> None:
    model = models.from_function(lambda ids: [bad] * 6 if len(ids) > 2 else [1.0] * 6, VOCABULARY)
    with pytest.raises(ModelError, match="step 2 of prompt 0 "):
        generate.regex(model, "[a-e]{4}")("a", search=Beam(3))


def test_beams_without_a_future_are_dropped() -> None:
    """After `a` everything is impossible; the others live on."""
    table = TABLE.copy()
    table[0] = -np.inf
    model = models.from_function(lambda ids: table[ids[-1]], VOCABULARY)
    found = generate.regex(model, "[a-e]{3}").run("b", search=Beam(5, n=5))
    assert all("a" not in result.text for result in found) and len(found) == 5
