"""Biases and penalties: OpenAI's definition, transformers' own beams, and never a text outside of the guide."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Beam, Engine, Generator, Greedy, OptionError, Sample, Vocabulary, generate, models

from ..machines import VOCABULARY, accepts, letters_model, machines
from ..support import Options, requests_of

NEVER = -math.inf
PROMPTS = ["the 12 the", "an inning then"]
SEARCHES = [Greedy(), Sample(temperature=1.3, top_p=0.9, n=3), Beam(3)]


def penalised(logits: Any, made: Sequence[int], frequency: float, presence: float, bias: dict[int, float]) -> Any:
    """OpenAI's definition, token by token."""
    found = [float(logit) for logit in logits]
    for token in range(len(found)):
        times = Counter(made)[token]
        found[token] += bias.get(token, 0.0) - times * frequency - float(times > 0) * presence
    return found


@pytest.mark.parametrize("search", [Greedy(), Beam(3), Beam(4, 0.5, early_stopping=True)], ids=str)
def test_biases_and_penalties_of_transformers_searches(decoder: Callable[..., Any], search: Any) -> None:
    model = decoder("gpt2")
    bias, banned = {5: 3.0, 70: -4.0, 102: 2.5, 1: -1.0}, [9, 30, 81]
    wide: dict[str, Any] = {} if isinstance(search, Greedy) else {
        "num_beams": search.width, "length_penalty": search.length_penalty, "early_stopping": search.early_stopping,
    }  # fmt: skip
    for prompt in PROMPTS:
        ids = torch.tensor([model.tokenizer.encode(prompt)])

        def penalties(texts: Any, scores: Any, begin: int = ids.shape[1]) -> Any:
            made = [text[begin:].tolist() for text in texts]
            return torch.tensor([penalised(*both, 0.7, 0.4, {}) for both in zip(scores, made, strict=True)])

        wanted = model.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=14, **wide,
            sequence_bias={(token,): value for token, value in bias.items()}, suppress_tokens=banned,
            logits_processor=[penalties],
        )[0, ids.shape[1] :].tolist()  # fmt: skip
        found = generate.text(model).run(
            prompt, search=search, max_tokens=14, heal=False, frequency_penalty=0.7, presence_penalty=0.4,
            logit_bias={**bias, **dict.fromkeys(banned, NEVER)},
        )  # fmt: skip
        assert list(found.token_ids) == [token for token in wanted if token != 1]


@pytest.mark.parametrize("search", SEARCHES[:2], ids=str)
@pytest.mark.parametrize("pattern", [None, "[a-e]{4,12}", "(ab|c(d|e))+"])
def test_what_is_chosen_is_what_a_model_with_other_logits_chooses(search: Any, pattern: str | None) -> None:
    bias, names = {0: 1.0, 2: -2.0, 3: NEVER}, {"frequency_penalty": 0.8, "presence_penalty": -0.5}

    def logits(ids: Sequence[int]) -> Any:
        return np.cos(np.arange(6) * (1 + sum(ids) % 7)) * 2

    plain = models.from_function(logits, VOCABULARY)
    other = models.from_function(lambda ids: penalised(logits(ids), ids[1:], 0.8, -0.5, bias), VOCABULARY)

    def texts(model: Any, **more: Any) -> Any:
        made = generate.text(model) if pattern is None else generate.regex(model, pattern)
        return made(["a", "b", "e"], search=search, max_tokens=12, seed=5, **more)

    assert texts(plain, logit_bias=bias, **names) == texts(other)
    assert texts(plain) != texts(other)


@given(
    machines(), st.integers(0, 6), st.sampled_from([*SEARCHES[:1], Sample(), Beam(3)]),
    st.dictionaries(st.integers(0, 5), st.sampled_from([NEVER, NEVER, -100.0, 2.0, 100.0]), max_size=4),
)  # fmt: skip
@settings(max_examples=60, derandomize=True, deadline=None)
def test_no_bias_leads_out_of_the_guide(
    table_guide: Any, machine: Any, spare: int, search: Any, bias: dict[int, float]
) -> None:
    guide = table_guide(VOCABULARY, *machine)
    budget = max(guide.distance(guide.start) + spare, 1)
    options: dict[str, Any] = {"max_tokens": budget, "search": search, "seed": 1}
    generator = Generator(letters_model(), guide)
    banned = {token for token, value in bias.items() if value == NEVER}
    try:
        result = generator.run("a", logit_bias=bias, frequency_penalty=1.5, presence_penalty=-1.0, **options)
    except OptionError as error:
        assert "logit_bias: at step" in str(error)
        assert banned
        if isinstance(search, Greedy):
            weak = {token: max(value, -1e6) for token, value in bias.items()}
            forced = generator.run("a", logit_bias=weak, frequency_penalty=1.5, presence_penalty=-1.0, **options)
            assert banned & set(forced.token_ids)
        return
    tokens = list(result.token_ids)
    assert accepts(guide, tokens)
    assert len(tokens) <= budget
    assert not banned & set(tokens)


@pytest.mark.parametrize("more", [{}, {"logprobs": True}, {"diagnostics": True}], ids=str)
@pytest.mark.parametrize("search", [Greedy(), Beam(2)], ids=str)
def test_a_banned_eos_ends_only_what_must_end(search: Any, more: dict[str, bool]) -> None:
    model = models.from_function(lambda ids: [1.0, 0.5, 0.2, 0.1, 0.0, 9.0], VOCABULARY)
    options = {"search": search, "logit_bias": {5: NEVER}, **more}
    result = generate.regex(model, "[ab]{1,4}").run("a", max_tokens=9, **options)
    assert (result.text, result.finish_reason) == ("aaaa", "complete")
    free = generate.text(model).run("a", max_tokens=7, **options)
    assert (free.text, free.finish_reason) == ("aaaaaaa", "length")


def test_what_is_forced_and_banned_is_an_error() -> None:
    generator = generate.choice(letters_model(), ["ab", "cd"])
    for more in ({}, {"logprobs": True}, {"search": Beam(2)}, {"search": Sample()}):
        with pytest.raises(OptionError, match=r"logit_bias: at step 1 of prompt 0 every token"):
            generator.run("a", logit_bias={"b": NEVER, "d": NEVER}, seed=0, **more)  # type: ignore[arg-type]
    assert generator("a", logit_bias={"b": -100, "d": -100}) in ("ab", "cd")
    assert generator("a", logit_bias={"b": NEVER}, search=Beam(2)) == "cd"


@pytest.mark.parametrize("search", [Greedy(), Beam(3)], ids=str)
def test_the_end_of_a_prompt_has_no_bias(decoder: Callable[..., Any], search: Any) -> None:
    model = decoder("gpt2")
    encode = model.tokenizer.encode
    prompt, own = "in t", encode(" t")
    assert requests_of(model, [generate.text(model).job(prompt)], Options())[0].start.tail == 2, "it is healed"
    options: dict[str, Any] = {"search": search, "max_tokens": 9}
    result = generate.regex(model, "[^h][^t]{3,9}").run(prompt, logit_bias=dict.fromkeys(own, NEVER), **options)
    assert result.overlap == 0, "the prompt's own tokens are chosen where they are all that is left"
    assert result.token_ids
    assert not set(own) & set(result.token_ids)
    # Added to all tokens it changes nothing, but for the prompt's own, which stay behind those that go on.
    every = dict.fromkeys(range(model.vocabulary.size), 50.0)
    assert generate.text(model).run(prompt, logit_bias=every, **options).overlap > 0


def test_texts_name_the_tokens_that_spell_them(decoder: Callable[..., Any]) -> None:
    model = decoder("gpt2")
    encode = model.tokenizer.encode
    free = generate.text(model)
    by_id = free.run("an", max_tokens=9, logit_bias={encode(" the")[0]: 4.0, 1: NEVER})
    assert free.run("an", max_tokens=9, logit_bias={" the": 4, "<eos>": NEVER}) == by_id
    twice = Vocabulary([b"a", b"b", b"a", None], eos_ids=(3,))
    made = models.from_function(lambda ids: [1.0, 0.5, 2.0, -9.0], twice)
    assert generate.text(made)("b", max_tokens=2, logit_bias={"a": NEVER}) == "bb"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bias": {99: 1.0}}, "99 is not a token id; ids are 0 to 5"),
        ({"bias": {"ab": 1.0}}, "'ab' is not one token"),
        ({"bias": {"": 1.0}}, "is no token"),
        ({"bias": {0: 1.0, "a": 2.0}}, "0 and 'a' are both token 0"),
        ({"bias": {0: math.nan}}, "-inf for a token"),
        ({"bias": {0: math.inf}}, "-inf for a token"),
        ({"bias": {0: True}}, "-inf for a token"),
        ({"bias": {0: "5"}}, "-inf for a token"),
        ({"bias": {0: 2e6}}, "-inf for a token"),
        ({"bias": {-1: 2}}, "a whole number of at least 0"),
        ({"bias": {1.5: 2}}, "a whole number"),
        ({"bias": [(0, 1.0)]}, "a dict of numbers"),
        ({"frequency_penalty": 2.5}, "frequency_penalty=2.5: a number from -2 to 2"),
        ({"presence_penalty": math.nan}, "presence_penalty=nan: a number from -2 to 2"),
    ],
)
def test_what_is_no_bias_is_refused(given: dict[str, Any], said: str) -> None:
    names = {"bias": "logit_bias"}
    with pytest.raises(OptionError, match=said):
        generate.text(letters_model())("a", max_tokens=1, **{names.get(key, key): v for key, v in given.items()})


@pytest.mark.parametrize("search", [Greedy(), Beam(2)], ids=str)
def test_callers_of_one_engine_have_their_own_biases(decoder: Callable[..., Any], search: Any) -> None:
    model = decoder("llama")
    generator = generate.text(model)
    several: list[dict[str, Any]] = [
        {}, {"logit_bias": {"t": 30}}, {"logit_bias": {"h": 30}, "frequency_penalty": 2}, {"repetition_penalty": 3.0},
    ]  # fmt: skip
    several = [{"min_tokens": 8, **each} for each in several]
    alone = [generator.run("the", max_tokens=8, search=search, **each).token_ids for each in several]
    assert len(set(alone)) == len(several)
    with Engine(model) as engine:
        handles = [engine.submit(generator, "the", max_tokens=8, search=search, **each) for each in several]
        assert [handle.result().token_ids for handle in handles] == alone


@pytest.mark.parametrize("options", [{"repetition_penalty": 1.7}, {"logit_bias": {1: 2.0}}], ids=str)
def test_scores_of_beams_with_goals_are_sums_of_what_they_are_ranked_by(options: dict[str, Any]) -> None:
    base = np.array([0.1, 2.0, 1.5, -1.0, 0.3, -30.0])
    model = models.from_function(lambda ids: base, VOCABULARY)
    found = generate.text(model).run("b", include="de", search=Beam(3, length_penalty=0.0), max_tokens=4, **options)
    total, ids = 0.0, [1]
    for token in found.token_ids:
        scores = torch.tensor(base, dtype=torch.float32).log_softmax(-1).tolist()
        penalty = options.get("repetition_penalty", 1.0) if token in ids else 1.0
        total += scores[token] * penalty + options.get("logit_bias", {}).get(token, 0.0)
        ids.append(token)
    assert "de" in found.text
    assert found.score == pytest.approx(total, abs=1e-4)
