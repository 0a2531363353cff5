"""The loop under constraints: complete within the budget, forced tokens, mixed rows, scores, interruption."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import (
    BudgetError,
    Generation,
    Generator,
    Greedy,
    Interrupted,
    ModelError,
    OptionError,
    Sample,
    generate,
    models,
)

from ..machines import TABLE, VOCABULARY, accepts, letters_model, machines
from ..support import FunctionModel, Options, run_together


@given(machines(), st.integers(0, 6), st.booleans(), st.booleans())
@settings(max_examples=120, derandomize=True, deadline=None)
def test_constrained_output_is_complete_within_any_budget_that_can_hold_it(
    table_guide: Any, machine: tuple[list[dict[int, int]], set[int]], spare: int, listed: bool, scores: bool
) -> None:
    guide = table_guide(VOCABULARY, *machine)
    some = (lambda ids, tokens: TABLE[ids[-1], list(tokens)]) if listed else None
    generator = Generator(letters_model(some_logits=some), guide)
    shortest = guide.distance(guide.start)
    if shortest + spare > 0:
        results = generator.run(
            "a", max_tokens=shortest + spare, search=Sample(temperature=2.0, n=6), seed=spare, logprobs=scores
        )
        for result in results:
            assert accepts(guide, result.token_ids) and result.finish_reason == "complete"
            assert len(result.token_ids) <= shortest + spare
    if shortest > 1:
        with pytest.raises(BudgetError, match=f"takes {shortest} tokens") as caught:
            generator("a", max_tokens=shortest - 1)
        assert caught.value.needed == shortest


def test_all_of_a_finite_language_can_come_out(table_guide: Any) -> None:
    """Closing within the budget takes nothing away that fits: 'ab*' of up to 4 letters, budget 4."""
    guide = table_guide(VOCABULARY, [{0: 1}, {1: 2, 0: 1}, {1: 2}], {2})
    texts = set(Generator(letters_model(), guide)("a", max_tokens=4, search=Sample(temperature=3.0, n=300), seed=1))
    assert texts == {"ab", "abb", "aab", "abbb", "aabb", "aaab"}


class Counting(FunctionModel):
    """Counts forward passes and the tokens they read."""

    def __init__(self) -> None:
        super().__init__(lambda ids: TABLE[ids[-1]], VOCABULARY)
        self.chunks: list[list[int]] = []

    def forward(self, chunks: Any, memory: Any) -> Any:
        self.chunks += [list(chunk.tokens) for chunk in chunks]
        return super().forward(chunks, memory)


def test_forced_tokens_are_read_together_and_cost_no_pass_of_their_own(table_guide: Any) -> None:
    # ab(a|b)cde: only the third letter is a choice.
    guide = table_guide(VOCABULARY, [{0: 1}, {1: 2}, {0: 3, 1: 3}, {2: 4}, {3: 5}, {4: 6}, {}], {6})
    model = Counting()
    result = Generator(model, guide).run("e")
    assert model.chunks == [[4, 0, 1]]
    assert result.text in {"abacde", "abbcde"} and result.finish_reason == "complete"
    asked = Generator(model, guide).run("e", logprobs=True)
    assert asked.text == result.text
    assert [score == 0.0 for score in asked.logprobs] == [True, True, False, True, True, True]


def test_a_text_that_is_wholly_forced_needs_no_model(table_guide: Any) -> None:
    model = Counting()
    result = Generator(model, table_guide(VOCABULARY, [{0: 1}, {1: 2}, {}], {2})).run("e")
    assert (result.text, model.chunks) == ("ab", [])


def test_samples_of_one_prompt_read_it_once() -> None:
    model = Counting()
    generate.text(model)("abcd", search=Sample(n=5), max_tokens=1, seed=0)
    assert model.chunks == [[0, 1, 2, 3]]


def test_rows_with_different_constraints_share_a_batch(decoder: Callable[..., Any], table_guide: Any) -> None:
    model = decoder("mistral")
    size = model.vocabulary.size
    digits = [model.tokenizer.convert_tokens_to_ids(digit) for digit in "0123456789"]
    some = table_guide(model.vocabulary, [dict.fromkeys(digits, 1), dict.fromkeys(digits, 1)], {1})
    many = table_guide(model.vocabulary, [dict.fromkeys(range(2, size), 0)], {0})
    generators = [Generator(model), Generator(model, some), Generator(model, many), Generator(model, some)]
    prompts = ["the", "12", "an inning", "in 123 the then"]
    pairs = list(zip(generators, prompts, strict=True))
    alone = [generator(prompt, max_tokens=9) for generator, prompt in pairs]
    assert generate.batch(pairs, max_tokens=9) == alone
    assert generate.batch(pairs, max_tokens=9, batch_size=2) == alone
    assert alone[1].isdigit() and alone[3].isdigit()
    assert run_together([], Options()) == []
    with pytest.raises(OptionError, match="share one model"):
        generate.batch([pairs[0], (Generator(decoder("gpt2")), "the")])


def test_log_probabilities_are_those_of_the_model(decoder: Callable[..., Any], table_guide: Any) -> None:
    model = decoder("llama")
    allowed = list(range(10, 60))
    guide = table_guide(model.vocabulary, [*(dict.fromkeys(allowed, state + 1) for state in range(4)), {1: 3}], {4})
    prompt = model.tokenizer.encode("the 12")
    result = Generator(model, guide).run("the 12", max_tokens=6, search=Sample(), seed=5, logprobs=True)
    ids = torch.tensor([[*prompt, *result.token_ids]])
    with torch.inference_mode():
        logits = model.model(ids, use_cache=False).logits[0].double()
    for place, token in enumerate(result.token_ids):
        row = logits[len(prompt) + place - 1]
        among = row[allowed]
        assert result.raw_logprobs[place] == pytest.approx(float(row[token] - row.logsumexp(0)), abs=1e-4)
        assert result.logprobs[place] == pytest.approx(float(row[token] - among.logsumexp(0)), abs=1e-4)
    assert len(result.logprobs) == len(result.raw_logprobs) == len(result.token_ids) == 4
    plain = Generator(model, guide).run("the 12", max_tokens=6, search=Sample(), seed=5)
    assert (plain.token_ids, plain.logprobs, plain.score) == (result.token_ids, None, None)


def test_the_score_counts_the_end(table_guide: Any) -> None:
    guide = table_guide(VOCABULARY, [{0: 1}, {1: 1}], {1})
    model = models.from_function(lambda ids: [0, 0, 0, 0, 0, 1.0], VOCABULARY)
    result = Generator(model, guide).run("c", logprobs=True)
    assert result.text == "a"
    assert result.logprobs == (0.0,)
    assert result.score == pytest.approx(1 - math.log(math.e + 1), abs=1e-5)


@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf])
@pytest.mark.parametrize("search", [Greedy(), Sample()])
def test_unusable_logits_are_an_error_that_names_step_and_prompt(search: Any, bad: float, table_guide: Any) -> None:
    def logits(ids: Sequence[int]) -> list[float]:
        return [bad] * 6 if list(ids) == [1, 0, 0] else [9.0, 0, 0, 0, 0, -99]

    guide = table_guide(VOCABULARY, [{0: 0, 1: 0}], {0})
    for generator in (Generator(models.from_function(logits, VOCABULARY), guide), generate.text(
        models.from_function(logits, VOCABULARY))):  # fmt: skip
        with pytest.raises(ModelError, match="step 2 of prompt 1 "):
            generator(["c", "b"], search=search, seed=0, max_tokens=5)


def test_a_wrong_shape_is_an_error() -> None:
    for wrong in ([0.0] * 5, [[0.0] * 6]):
        with pytest.raises(ModelError, match=r"expected \(6,\)"):
            generate.text(models.from_function(lambda ids, wrong=wrong: wrong, VOCABULARY))("a")


def test_interruption_keeps_what_is_finished() -> None:
    calls = 0

    def logits(ids: Sequence[int]) -> list[float]:
        nonlocal calls
        calls += 1
        if calls > 10:
            raise KeyboardInterrupt
        return [1.0, 0, 0, 0, 0, 5.0 if len(ids) > ids[0] else -5.0]

    generator = generate.text(models.from_function(logits, VOCABULARY))
    with pytest.raises(KeyboardInterrupt) as caught:
        generator.run(["b", "e", "c", "d"], batch_size=2)
    assert isinstance(caught.value, Interrupted)
    assert [type(result) for result in caught.value.finished] == [Generation, Generation, Generation, type(None)]
    assert caught.value.finished[2].text == "aa"
    assert "3 of 4" in str(caught.value)
