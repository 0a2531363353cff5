"""What a model's generation config says is respected as transformers does, or named in a warning."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig
from trellm import Beam, Greedy, Sample, generate, models

from .support import NOTHING, suppressed_of

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


@pytest.mark.parametrize(
    "search", [Greedy(), Beam(3), Beam(4, 2.0, n=3), Beam(3, early_stopping="never", n=2)], ids=str
)
def test_eos_is_forced_as_transformers_does(network: Any, tokenizer: Any, search: Any) -> None:
    ends = [1, 17, 30, 44]
    fields: dict[str, Any] = {"eos_token_id": ends, "forced_eos_token_id": 1, "pad_token_id": 1}
    network.generation_config = GenerationConfig(bos_token_id=0, **fields)
    model = models.transformers(network, tokenizer)
    cut = 0
    for prompt, max_tokens in (("the 12 the", 9), ("an", 5), ("1 2 3", 2)):
        found: Any = generate.text(model).run(prompt, search=search, max_tokens=max_tokens, heal=False)
        texts: list[Any] = found if isinstance(found, list) else [found]
        wanted = _generated(network, tokenizer.encode(prompt), search, max_tokens, ends)
        assert [list(one.token_ids) for one in texts] == [ids for ids, _ in wanted]
        if isinstance(search, Beam):
            assert [one.score for one in texts] == pytest.approx([score for _, score in wanted], abs=2e-4)
        cut += sum(one.finish_reason == "length" and len(one.token_ids) == max_tokens - 1 for one in texts)
    assert cut


def _generated(network: Any, ids: list[int], search: Any, most: int, ends: list[int]) -> list[tuple[list[int], float]]:
    """The tokens that transformers writes up to EOS, and their scores."""
    wide: dict[str, Any] = {}
    if isinstance(search, Beam):
        wide = {"num_beams": search.width, "num_return_sequences": search.n, "length_penalty": search.length_penalty,
                "early_stopping": search.early_stopping}  # fmt: skip
    prompt = torch.tensor([ids])
    options: dict[str, Any] = {"max_new_tokens": most, "return_dict_in_generate": True, "output_scores": True}
    found = network.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, **options, **wide)
    rows = found.sequences[:, len(ids) :].tolist()
    texts = [row[: next((i for i, token in enumerate(row) if token in ends), len(row))] for row in rows]
    return list(zip(texts, found.sequences_scores.tolist() if wide else [0.0] * len(rows), strict=True))


def test_a_forced_eos_leaves_what_is_asked_for(network: Any, tokenizer: Any) -> None:
    network.generation_config = GenerationConfig(eos_token_id=1, forced_eos_token_id=[1])
    model = models.transformers(network, tokenizer)
    for search in (Greedy(), Beam(2, n=2)):
        one: Any = generate.text(model).run("x", search=search, max_tokens=1, heal=False)
        texts: list[Any] = one if isinstance(one, list) else [one]
        assert {len(each.token_ids) for each in texts} == {1}
    assert generate.regex(model, "[abc]{5}").run("x", max_tokens=5, heal=False).finish_reason == "complete"
    for search in (Greedy(), Sample(), Beam(2)):
        found = generate.text(model).run("x", search=search, include="ban", max_tokens=3, heal=False, seed=1)
        assert found.text == "ban"
    traced = generate.text(model).run("x", search=Beam(3), max_tokens=4, trace=True)
    assert traced.trace is not None
    assert [beam.finish_reason for beam in traced.trace.steps[-1]].count("length") == 3


def test_every_field_is_known() -> None:
    """What becomes of a field is said on the page, and a config's other fields are named."""
    page = (Path(__file__).parents[3] / "docs" / "search.md").read_text()
    table = page[page.index("## Generation configs of models") : page.index("## Encoder-decoder models")]
    fields = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)(?:=[^`]*)?`", table)) >= fields


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
        ({"forced_eos_token_id": 7, "max_new_tokens": 99}, "give max_tokens=99 to.*; forced_eos_token_id=7 have no"),
        ({"do_sample": True, "num_return_sequences": 3}, r"Sample\(top_k=50, n=3\) to"),
        ({"num_beams": 4, "do_sample": True, "top_p": 0.9}, r"Beam\(4\) to .*; do_sample=True, top_p=0\.9 have no"),
        ({"forced_bos_token_id": 4}, ": forced_bos_token_id=4 have no"),
        ({"cache_implementation": "quantized", "max_time": 2.0}, "max_time=2.0, cache_implementation='quantized' have"),
        ({"a_field_of_tomorrow": [3]}, r"a_field_of_tomorrow=\[3\] have no effect"),
    ],
)  # fmt: skip
def test_what_is_the_callers_is_named_in_one_warning(
    network: Any, tokenizer: Any, fields: dict[str, Any], said: str
) -> None:
    network.generation_config = GenerationConfig(**fields)
    with pytest.warns(UserWarning, match=said) as caught:
        models.transformers(network, tokenizer)
    assert len(caught) == 1


@pytest.mark.parametrize(
    "fields",
    [{}, {"temperature": 1.0, "top_p": 1.0, "num_beams": 1, "repetition_penalty": 1.0, "max_length": 20},
     {"do_sample": False, "top_k": 50}, {"suppress_tokens": [5]}, {"pad_token_id": 1, "use_cache": False},
     {"forced_eos_token_id": 1, "cache_implementation": "static"}],
)  # fmt: skip
def test_what_changes_nothing_is_not_named(network: Any, tokenizer: Any, fields: dict[str, Any]) -> None:
    network.generation_config = GenerationConfig(**fields)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models.transformers(network, tokenizer)
