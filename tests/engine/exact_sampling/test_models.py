"""Draws from models with states, which cannot be cut, and from encoder-decoders: those of a model without memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from trellm import SMC, Engine, Exact, Importance, SamplingError, generate, models

from ..models.recurrent_architectures import build

SPELT = "[^0-9]{1,4}"
RARE = "[0-9]{5}|x[0-9]{4}"
SEARCHES = [
    Exact(3, parallel=4, temperature=2.0),
    SMC(6, ess=1.0),
    Importance(4),
    SMC(5, accepts=lambda text, complete: "e" not in text),
]
IDS = ["exact", "smc", "importance", "accepts"]


def check(model: Any, slow: Callable[[str], tuple[Any, Any]], prompts: list[str], search: Any) -> None:
    """Whether a model with memory draws for prompts together what one without does for each alone."""
    options: dict[str, Any] = {"search": search, "seed": 4, "max_tokens": 8, "heal": False}
    results: Any = generate.regex(model, SPELT).run(prompts, **options)
    assert all(re.fullmatch(SPELT, one.text) for several in results for one in several)
    for prompt, several in zip(prompts, results, strict=True):
        reader, given = slow(prompt)
        expected: Any = generate.regex(reader, SPELT).run(given, **options)
        assert [one.text for one in several] == [one.text for one in expected]
        weights, wanted = ([one.log_weight for one in each] for each in (several, expected))
        assert weights == pytest.approx(wanted, abs=1e-3)
        assert several[0].log_z == pytest.approx(expected[0].log_z, abs=1e-3)


def check_rare(model: Any, slow: Callable[[str], tuple[Any, Any]]) -> None:
    """Whether particles, which are asked where no attempt comes to an end, go on from the prompt as it was read."""
    options: dict[str, Any] = {"search": Exact(1, parallel=4, attempts=4), "seed": 4, "max_tokens": 8, "heal": False}
    with pytest.raises(SamplingError, match="0 of 1 texts") as caught:
        generate.regex(model, RARE)("the 12th", **options)
    reader, given = slow("the 12th")
    with pytest.raises(SamplingError) as expected:
        generate.regex(reader, RARE)(given, **options)
    assert -100 < caught.value.log_z < -3
    assert caught.value.log_z == pytest.approx(expected.value.log_z, abs=1e-3)


@pytest.fixture(scope="module")
def stateful(tokenizer: Any) -> Callable[[str], Any]:
    return cache(lambda name: models.transformers(build(name), tokenizer))


@pytest.mark.parametrize(
    ("name", "search"),
    [*(("mamba2", search) for search in SEARCHES), *(("lfm2", search) for search in SEARCHES[1:3])],
    ids=[*(f"mamba2-{kind}" for kind in IDS), *(f"lfm2-{kind}" for kind in IDS[1:3])],
)
def test_models_with_states(name: str, search: Any, stateful: Callable[[str], Any]) -> None:
    """States cannot be cut: attempts that go on behind the deepest known beginning read it again."""
    model = stateful(name)
    check(model, without_states(model), ["the 12th", "an inning"], search)


def without_states(model: Any) -> Callable[[str], tuple[Any, Any]]:
    """The same model, which reads every text from its beginning."""

    def logits(ids: Sequence[int]) -> Any:
        with torch.no_grad():
            return model.model(torch.tensor([list(ids)]), use_cache=False).logits[0, -1]

    return lambda prompt: (models.from_function(logits, model.vocabulary, model.tokenizer), prompt)


def test_states_of_a_prompt_go_on_when_attempts_fail(stateful: Callable[[str], Any]) -> None:
    check_rare(stateful("mamba2"), without_states(stateful("mamba2")))


def test_states_that_had_to_make_room_are_read_again(tokenizer: Any) -> None:
    """With states for one prompt's texts and few more, prompts give way to each other, and draw as if alone."""
    model = models.transformers(build("mamba2"), tokenizer)
    with Engine(model, memory=model.state_bytes * 9 + model.block_bytes * 40):
        check(model, without_states(model), ["the 12th", "an inning", "x"], Exact(2, parallel=6, temperature=2.0))


@pytest.mark.parametrize("search", SEARCHES, ids=IDS)
def test_encoder_decoders(search: Any, translator: Any) -> None:
    """Each prompt is encoded once, and its texts are those that this source makes likely."""
    check(translator, without_sources(translator), ["the 12th", "an inning"], search)


def test_a_source_is_there_when_attempts_fail(translator: Any) -> None:
    check_rare(translator, without_sources(translator))


def without_sources(translator: Any) -> Callable[[str], tuple[Any, Any]]:
    """A model of each source that reads every text from its beginning."""

    def slow(prompt: str) -> tuple[Any, Any]:
        source = torch.tensor([translator.tokenizer.encode(prompt)])

        def logits(ids: Sequence[int]) -> Any:
            with torch.no_grad():
                found = translator.model(input_ids=source, decoder_input_ids=torch.tensor([list(ids)]), use_cache=False)
            return found.logits[0, -1]

        return models.from_function(logits, translator.vocabulary), list(translator.start_ids)

    return slow


@pytest.fixture(scope="module")
def translator(tokenizer: Any, t5: Callable[[], Any]) -> Any:
    return models.transformers(t5(), tokenizer)


def test_what_was_learnt_is_forgotten_when_weights_change() -> None:
    model = models.small()
    generator = generate.choice(model, ["red", "green", "blue"])
    given: dict[str, Any] = {"search": Exact(200), "max_tokens": 8}
    before = generator.run("The colour is ", **given)
    assert generator.run("The colour is ", **given)[0].log_z == pytest.approx(before[0].log_z, abs=0.3)
    with torch.no_grad():
        for weights in model.model.parameters():
            weights += torch.randn(weights.shape, generator=torch.Generator().manual_seed(1)) * 0.05
    after = generator.run("The colour is ", **given)
    exact = generator.run("The colour is ", seed=3, **given)
    assert after[0].log_z == pytest.approx(exact[0].log_z, abs=0.3)
    assert after[0].log_z != pytest.approx(before[0].log_z, abs=0.5)
