"""Guides in MLX-LM's own generation, on the CPU, with a tiny random model."""

from __future__ import annotations

import re
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from trellm import BudgetError, ModelError, OptionError, Vocabulary
from trellm.guides import RegexGuide

from .hosts import folder_of

WIDTH = 270
VOCABULARY = Vocabulary([*(bytes([byte]) for byte in range(256)), *[None] * (WIDTH - 256)], [256])


@pytest.fixture
def mlx(monkeypatch: pytest.MonkeyPatch) -> Any:
    """MLX, the generation of MLX-LM, a model, and the adapter."""
    for host in ("mlx", "mlx_lm"):
        monkeypatch.syspath_prepend(str(folder_of(host).parent))
    core = import_module("mlx.core")
    llama = import_module("mlx_lm.models.llama")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32, "num_attention_heads": 2}

    def model(seed: int = 0) -> Any:
        core.random.seed(seed)
        return llama.Model(llama.ModelArgs(model_type="llama", rms_norm_eps=1e-5, vocab_size=WIDTH, **sizes))

    return SimpleNamespace(
        core=core,
        model=model,
        generation=import_module("mlx_lm.generate"),
        adapter=import_module("trellm.adapters.mlx_lm"),
    )


def text_of(steps: Any) -> str:
    tokens: list[int] = []
    for step in steps:
        if int(step[0]) == 256:
            break
        tokens.append(int(step[0]))
    return bytes(tokens).decode()


def test_texts_are_of_the_guide_and_complete(mlx: Any) -> None:
    pattern = "[0-9]{3}(on|the )+end"
    guide = RegexGuide(pattern, VOCABULARY)
    processor = mlx.adapter.GuideLogitsProcessor(guide, max_tokens=20)
    model, prompt = mlx.model(), mlx.core.array([1, 2, 3])
    sampler = mlx.core.random.categorical
    for options in ({}, {"sampler": sampler}, {"sampler": sampler, "prefill_step_size": 2}):
        processor.reset()
        steps = mlx.generation.generate_step(prompt, model, max_tokens=20, logits_processors=[processor], **options)
        assert re.fullmatch(pattern, text_of(steps))
    again = mlx.generation.generate_step(
        mlx.core.array([7, 7, 7, 7]), model, max_tokens=20, logits_processors=[processor]
    )
    with pytest.raises(OptionError, match="not those that this logits processor began with"):
        text_of(again)


def test_drafts_are_taken_back(mlx: Any) -> None:
    """With a draft model the text is that of greedy search without one."""
    guide = RegexGuide("([a-f]{2}[0-9]){2,4}x", VOCABULARY)
    model, draft, prompt = mlx.model(), mlx.model(5), mlx.core.array([1, 2, 3])
    plain = mlx.generation.generate_step(
        prompt, model, max_tokens=16, logits_processors=[mlx.adapter.GuideLogitsProcessor(guide, max_tokens=16)]
    )
    helped = mlx.generation.speculative_generate_step(
        prompt, model, draft, num_draft_tokens=3, max_tokens=16,
        logits_processors=[mlx.adapter.GuideLogitsProcessor(guide, max_tokens=16)],
    )  # fmt: skip
    assert text_of(helped) == text_of(plain)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 0])
def test_logits_are_masked(mlx: Any, dtype: str, rows: int) -> None:
    guide = RegexGuide("[0-9]+", VOCABULARY)
    processor = mlx.adapter.GuideLogitsProcessor(guide)
    shape = (rows, WIDTH + 9) if rows else (WIDTH + 9,)
    logits = mlx.core.random.normal(shape).astype(getattr(mlx.core, dtype))
    found = processor(mlx.core.array([5, 6]), logits)
    assert found.dtype == logits.dtype and found.shape == logits.shape
    one, other = (np.array(each.astype(mlx.core.float32)).reshape(-1) for each in (found, logits))
    digits = range(48, 58)
    np.testing.assert_array_equal(one[digits], other[digits])
    assert np.flatnonzero(np.isfinite(one)).tolist() == [*digits]


@pytest.mark.parametrize("score", [-np.inf, np.nan])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_others_leave_nothing_of(mlx: Any, score: float, is_first: bool) -> None:
    """Before, token 0 was chosen."""
    processor = mlx.adapter.GuideLogitsProcessor(RegexGuide("[1-9]{9}", VOCABULARY))
    processors = [processor]
    processors.insert(0 if is_first else 1, lambda _, logits: mlx.core.full(logits.shape, score))
    steps = mlx.generation.generate_step(
        mlx.core.array([1, 2]), mlx.model(), max_tokens=20, logits_processors=processors
    )
    error = ModelError if is_first and np.isnan(score) else OptionError
    with pytest.raises(error, match="row 0: " if is_first else "token 0 was chosen, which the guide does not allow"):
        text_of(steps)


def test_mistakes(mlx: Any) -> None:
    guide = RegexGuide("[0-9]{9}", VOCABULARY)
    with pytest.raises(BudgetError, match="max_tokens=8"):
        mlx.adapter.GuideLogitsProcessor(guide, max_tokens=8)
    with pytest.raises(OptionError, match="logits have 100 values"):
        mlx.adapter.GuideLogitsProcessor(guide)(mlx.core.array([5]), mlx.core.zeros((1, 100)))
