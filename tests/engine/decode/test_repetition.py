"""Controls of repetition and length: transformers' own under every search, and the guide wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Beam, Generator, Greedy, OptionError, Sample, Vocabulary, generate, models

from ..machines import VOCABULARY, accepts, letters_model, machines
from ..support import repeated

PROMPTS = ["the 12 the", "an inning then"]
OPTIONS = [{"no_repeat_ngram_size": 2}, {"repetition_penalty": 1.8}, {"min_tokens": 9, "no_repeat_ngram_size": 3},
           {"no_repeat_ngram_size": 1, "repetition_penalty": 0.6, "min_tokens": 4}]  # fmt: skip


@given(st.lists(st.integers(0, 2), max_size=12), st.integers(1, 4))
@settings(max_examples=200, derandomize=True, deadline=None)
def test_what_would_repeat_is_what_repeats(ids: list[int], size: int) -> None:
    def grams(tokens: list[int]) -> list[tuple[int, ...]]:
        return [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]

    wanted = {token for token in range(3) if len(ids) >= size and grams([*ids, token])[-1] in grams(ids)}
    assert repeated(ids, size) == wanted


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("search", [Greedy(), Beam(3), Beam(4, 0.5, early_stopping=True)], ids=str)
def test_controls_are_those_of_transformers(decoder: Callable[..., Any], search: Any, options: Any) -> None:
    model = decoder("gpt2")
    names = {"min_tokens": "min_new_tokens"}
    wide: dict[str, Any] = {} if search.n == 1 and isinstance(search, Greedy) else {
        "num_beams": search.width, "length_penalty": search.length_penalty, "early_stopping": search.early_stopping,
    }  # fmt: skip
    for prompt in PROMPTS:
        ids = torch.tensor([model.tokenizer.encode(prompt)])
        wanted = model.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=14, **wide,
            **{names.get(name, name): value for name, value in options.items()},
        )[0, ids.shape[1] :].tolist()  # fmt: skip
        found = generate.text(model).run(prompt, search=search, max_tokens=14, heal=False, **options)
        assert list(found.token_ids) == [token for token in wanted if token != 1]
        assert found.overruled == ()


@given(
    machines(), st.integers(0, 6), st.sampled_from([Greedy(), Sample(), Beam(3)]), st.integers(0, 3), st.integers(0, 4)
)
@settings(max_examples=120, derandomize=True, deadline=None)
def test_the_guide_wins_and_the_result_says_so(
    table_guide: Any, machine: Any, spare: int, search: Any, size: int, least: int
) -> None:
    guide = table_guide(VOCABULARY, *machine)
    budget = max(guide.distance(guide.start) + spare, 1)
    least = min(least, budget)
    result = Generator(letters_model(), guide).run(
        "a", max_tokens=budget, search=search, seed=1, no_repeat_ngram_size=size, min_tokens=least
    )
    tokens = list(result.token_ids)
    assert accepts(guide, tokens) and len(tokens) <= budget
    again = any(tokens[i] in repeated([0, *tokens[:i]], size) for i in range(len(tokens)))
    assert ("no_repeat_ngram_size" in result.overruled) == again
    assert ("min_tokens" in result.overruled) == (len(tokens) < least)


def test_log_probabilities_are_the_models_own(decoder: Callable[..., Any]) -> None:
    model = decoder("gpt2")
    for search in (Greedy(), Beam(2)):
        result = generate.text(model).run("the", search=search, max_tokens=5, logprobs=True, repetition_penalty=2.0)
        ids = torch.tensor([[*model.tokenizer.encode("the"), *result.token_ids]])
        with torch.inference_mode():
            logits = model.model(ids, use_cache=False).logits[0].log_softmax(-1)
        begin = ids.shape[1] - len(result.token_ids)
        wanted = [float(logits[begin + i - 1, token]) for i, token in enumerate(result.token_ids)]
        assert result.raw_logprobs == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(
    "options",
    [{"no_repeat_ngram_size": -1}, {"no_repeat_ngram_size": 2.0}, {"repetition_penalty": 0}, {"min_tokens": True},
     {"min_tokens": 12}],
)  # fmt: skip
def test_impossible_controls_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(options))}="):
        generate.text(letters_model())("a", max_tokens=9, **options)


def test_repetition_of_every_token_is_a_last_resort() -> None:
    model = models.from_function(lambda ids: [1.0, 2.0, 3.0, 4.0, 5.0, -9.0], VOCABULARY)
    result = generate.text(model).run("a", max_tokens=8, no_repeat_ngram_size=1, min_tokens=8)
    assert (result.text, result.overruled) == ("edcbeeee", ("no_repeat_ngram_size",))


@pytest.mark.parametrize(("most", "has"), [(None, 256), (8, 8)])
def test_more_than_the_budget_is_refused(most: int | None, has: int) -> None:
    model = models.from_function(lambda ids: [0.0] * 257, Vocabulary.from_bytes())
    with pytest.raises(OptionError, match=f"prompt 0 has at most {has} tokens; ask for fewer, or raise max_tokens"):
        generate.text(model)("ab", max_tokens=most, min_tokens=257)
