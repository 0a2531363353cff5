"""Greedy text equals transformers' own `generate`, token for token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from trellm import Generator, Greedy, models

PROMPTS = ["the", "on the 12th of an inning, then another one", "x", "a b c", "then on and on and on 123123"]
ARCHITECTURES = ["gpt2", "llama", "qwen3", "mistral", "gemma", "gemma2", "gemma3"]


def generate_alone(model: Any, tokenizer: Any, prompt: str, tokens: int) -> list[int]:
    ids = torch.tensor([tokenizer.encode(prompt)])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False)
    new = out[0, ids.shape[1] :].tolist()
    return new[: new.index(1)] if 1 in new else new


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_equals_transformers(
    name: str, hugging_face: Any, tokenizer: Any, decoder: Callable[..., models.Model]
) -> None:
    expected = [generate_alone(hugging_face(name), tokenizer, prompt, 9) for prompt in PROMPTS]
    assert len({tuple(tokens) for tokens in expected}) > 1
    for cache, batch_size in [(True, 1), (True, 2), (True, 8), (False, 8)]:
        results = Generator(decoder(name, cache=cache)).run(
            PROMPTS, max_tokens=9, search=Greedy(), batch_size=batch_size
        )
        found = [list(result.token_ids) for result in results]
        assert found == expected, f"cache={cache}, batch_size={batch_size}"
