"""Guides through the doors of Outlines: its processors and its generators, without its other models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LogitsProcessorList
from trellm import OptionError, Vocabulary
from trellm.guides import RegexGuide, tokens_of

from .hosts import loaded_alone

PROCESSORS = "outlines.processors"
ADAPTERS = f"{PROCESSORS}.tensor_adapters"
REAL = {
    *(PROCESSORS, f"{PROCESSORS}.base_logits_processor", ADAPTERS, "outlines.backends.base", "outlines.generator"),
    *(f"{ADAPTERS}.{name}" for name in ("base", "torch", "numpy", "mlx")),
}


@pytest.fixture
def outlines() -> Iterator[Any]:
    """The adapter, with Outlines around it."""
    with loaded_alone("outlines", REAL):
        yield import_module("trellm.adapters.outlines")


def test_a_generator_with_a_processor(outlines: Any, network: Callable[..., Any], tokenizer: Any) -> None:
    """Outlines' own generator with a model of transformers; batches, and one call after the other."""
    network = network()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    steerable = import_module("outlines.models").SteerableModel

    class Model(steerable):
        tensor_library_name = "torch"

        def generate(self, prompts: list[str], processor: Any, **options: Any) -> list[str]:
            inputs = tokenizer(prompts, padding=True, return_tensors="pt")
            found = network.generate(
                input_ids=inputs.input_ids,
                attention_mask=inputs.attention_mask,
                logits_processor=LogitsProcessorList([processor]),
                **options,
            )
            return [vocabulary.decode(row[inputs.input_ids.shape[1] :].tolist()).decode() for row in found]

    generator = import_module("outlines.generator")
    guides = [RegexGuide(pattern, vocabulary) for pattern in ("[0-9]{2,3}", "(on|the)+")]
    made = generator.Generator(Model(), processor=outlines.GuideProcessor(guides, "torch", max_tokens=9))
    for prompts in (["the", "on the"], ["12 and", "1"]):
        texts = made(prompts, max_new_tokens=9, do_sample=True)
        assert all(re.fullmatch(guide.pattern, text) for guide, text in zip(guides, texts, strict=True))
    backend = outlines.TrellmBackend(Model(), vocabulary)
    for processor, pattern in (
        (backend.get_regex_logits_processor("[ab]{3}"), "[ab]{3}"),
        (backend.get_json_schema_logits_processor('{"enum": [[1], "a"]}'), r'\[1\]|"a"'),
        (backend.get_cfg_logits_processor('start: "on" start | "12"'), "(on)*12"),
    ):
        texts = generator.Generator(Model(), processor=processor)(["a", "b"], max_new_tokens=80)
        assert all(re.fullmatch(pattern, text) for text in texts)


@pytest.mark.parametrize("library", ["torch", "numpy"])
@pytest.mark.parametrize("rows", [1, 3])
def test_tensors_of_any_library(outlines: Any, tokenizer: Any, library: str, rows: int) -> None:
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    guide = RegexGuide("[0-9]+x", vocabulary)
    made: Any = torch.tensor if library == "torch" else np.array
    processor = outlines.GuideProcessor(guide, library)
    state = guide.start
    ids = [[7, 9]] * rows
    for token in (None, *tokenizer("1x").input_ids, tokenizer.eos_token_id):
        if token is not None:
            state = guide.advance(state, token)
            ids = [[*row, token] for row in ids]
        logits = made(np.ones((rows, vocabulary.size), np.float32))
        found = processor(made(ids[0]), logits[0]) if rows == 1 else processor(made(ids), logits)
        assert type(found) is type(logits)
        for row in np.asarray(found).reshape(rows, -1):
            assert np.flatnonzero(np.isfinite(row)).tolist() == tokens_of(guide.mask(state))


def test_every_method_of_the_interface(outlines: Any) -> None:
    base = import_module("outlines.backends.base").BaseBackend
    assert base.__abstractmethods__ and not outlines.TrellmBackend.__abstractmethods__
    assert issubclass(outlines.GuideProcessor, import_module(PROCESSORS).OutlinesLogitsProcessor)


def test_mistakes(outlines: Any, tokenizer: Any) -> None:
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    model = SimpleNamespace(tensor_library_name="torch")
    with pytest.raises(OptionError, match="takes no logits processors"):
        outlines.TrellmBackend(SimpleNamespace(), vocabulary)
    with pytest.raises(OptionError, match="vocabulary must be a Vocabulary"):
        outlines.TrellmBackend(model, tokenizer)
    with pytest.raises(OptionError, match="whitespace_pattern is not supported"):
        outlines.TrellmBackend(model, vocabulary).get_json_schema_logits_processor("{}", " ")
    with pytest.raises(OptionError, match="library='jax'"):
        outlines.GuideProcessor(RegexGuide("1", vocabulary), "jax")
    for library, logits in (("numpy", torch.zeros((1, 300))), ("torch", np.zeros((1, 300), np.float32))):
        processor = outlines.GuideProcessor(RegexGuide("1", vocabulary), library)
        with pytest.raises(OptionError, match=rf"library='{library}', but the model's logits are of .*tensor_library"):
            processor.process_logits(np.zeros((1, 2), np.int64), logits)
    for make in ("get_cfg_logits_processor", "get_regex_logits_processor"):
        with pytest.raises(OptionError, match="must be a text, not None"):
            getattr(outlines.TrellmBackend(model, vocabulary), make)(None)
