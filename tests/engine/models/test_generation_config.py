"""What a model's generation config says is respected as transformers does, or named in a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import GenerationConfig
from trellm import Beam, Greedy, generate, models
from trellm.engine.decode.bias import NOTHING
from trellm.engine.models.generation_config import suppressed_of, warn_of

LEFT_OUT: list[dict[str, Any]] = [
    {"suppress_tokens": [5, 9, 30, 43, 70, 81, 9999]},
    {"begin_suppress_tokens": [43, 61, 66, 85]},
    {"bad_words_ids": [[43], [85, 85], [70, 66, 61], [61, 66]]},
]


@pytest.fixture
def network(hugging_face: Callable[[str], Any]) -> Any:
    """A model whose generation config may be changed."""
    found = hugging_face("llama")
    kept = found.generation_config
    yield found
    found.generation_config = kept


@pytest.mark.parametrize("search", [Greedy(), Beam(3)], ids=str)
def test_tokens_are_left_out_as_transformers_does(network: Any, tokenizer: Any, search: Any) -> None:
    wide = {} if isinstance(search, Greedy) else {"num_beams": search.width}
    plain = generate.text(models.transformers(network, tokenizer))
    differ = 0
    for fields in LEFT_OUT:
        known = {name: [token for token in ids if token != 9999] for name, ids in fields.items()}
        network.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=1, pad_token_id=1, **known)
        for prompt in ("the 12 the", "an"):
            ids = torch.tensor([tokenizer.encode(prompt)])
            text = network.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12, **wide
            )[0, ids.shape[1] :].tolist()  # fmt: skip
            network.generation_config = GenerationConfig(eos_token_id=1, **fields)
            options = {"search": search, "max_tokens": 12, "heal": False}
            found = generate.text(models.transformers(network, tokenizer)).run(prompt, **options)
            assert list(found.token_ids) == [token for token in text if token != 1]
            differ += found.token_ids != plain.run(prompt, **options).token_ids
            network.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=1, pad_token_id=1, **known)
    assert differ > 1


def test_a_constraint_wins(network: Any, tokenizer: Any) -> None:
    a, b = tokenizer.encode("ab")
    network.generation_config = GenerationConfig(eos_token_id=1, suppress_tokens=[a, b])
    model = models.transformers(network, tokenizer)
    for search in (Greedy(), Beam(2)):
        assert generate.choice(model, ["ab", "ba"])("x", search=search) in ("ab", "ba")
        assert generate.regex(model, "[abc]{3}")("x", search=search, heal=False) == "ccc"
        assert "a" not in generate.text(model)("x", search=search, max_tokens=9)


def test_what_spells_nothing_costs_constraints_nothing(decoder: Callable[..., Any], network: Any) -> None:
    network.generation_config = GenerationConfig(suppress_tokens=[0], bad_words_ids=[[5, 0]])
    found = suppressed_of(network, 108)
    assert found.always == {0}
    assert found.of(decoder("llama").vocabulary) == NOTHING


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"do_sample": True, "temperature": 0.6, "top_p": 0.9},
            r"give search=Sample\(temperature=0\.6, top_p=0\.9, top_k=50\) to",
        ),
        ({"do_sample": True, "top_k": 20, "typical_p": 0.5}, r"Sample\(top_k=20\).*; typical_p=0\.5 have no"),
        ({"do_sample": True, "top_k": 0}, r"search=Sample\(\) to"),
        (
            {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True, "no_repeat_ngram_size": 3, "min_length": 9},
            r"search=Beam\(4, length_penalty=2\.0, early_stopping=True\), no_repeat_ngram_size=3, min_tokens=9 to",
        ),
        ({"forced_eos_token_id": 1, "max_new_tokens": 99}, "give max_tokens=99 to.*; forced_eos_token_id=1 have no"),
    ],
)  # fmt: skip
def test_what_is_the_callers_is_named_in_one_warning(network: Any, fields: dict[str, Any], said: str) -> None:
    network.generation_config = GenerationConfig(**fields)
    with pytest.warns(UserWarning, match=said) as caught:
        warn_of(network)
    assert len(caught) == 1


@pytest.mark.parametrize(
    "fields",
    [{}, {"temperature": 1.0, "top_p": 1.0, "num_beams": 1, "repetition_penalty": 1.0, "max_length": 20},
     {"do_sample": False, "top_k": 50}, {"suppress_tokens": [5]}, {"pad_token_id": 1, "use_cache": False}],
)  # fmt: skip
def test_what_changes_nothing_is_not_named(network: Any, tokenizer: Any, fields: dict[str, Any]) -> None:
    network.generation_config = GenerationConfig(**fields)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models.transformers(network, tokenizer)
