"""A small tokenizer, and tiny random models for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from .vllm_parts import vllm_alone

torch.set_num_threads(1)

CONFIGS: dict[str, Callable[..., Any]] = {
    "llama": lambda **options: transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
        **options,
    ),
    "gpt2": lambda **options: transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=512, **options),
}


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """The bytes, some merges that cross what guides tell apart, BOS and EOS."""
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("o", "n"), ("1", "2"), ('"', ":"), ('"', ","), ("t", "rue")]
    merges[-1:] = [("r", "u"), ("t", "ru"), ("tru", "e"), ("Ġ", "1")]
    tokens = ["<bos>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in merges)]
    backend = Tokenizer(BPE({token: number for number, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>", pad_token="<eos>", padding_side="left"
    )


@pytest.fixture(scope="session")
def network(tokenizer: Any) -> Callable[..., Any]:
    """A random model of an architecture, as wide as the tokenizer or wider."""
    made: dict[Any, Any] = {}

    def make(name: str = "llama", seed: int = 0, width: int = len(tokenizer)) -> Any:
        if (name, seed, width) not in made:
            torch.manual_seed(seed)
            config = CONFIGS[name](
                vocab_size=width, bos_token_id=0, eos_token_id=1, pad_token_id=1, initializer_range=0.4
            )
            made[name, seed, width] = transformers.AutoModelForCausalLM.from_config(config).eval()
        return made[name, seed, width]

    return make


@pytest.fixture
def vllm(tokenizer: Any) -> Iterator[Any]:
    """The adapter for vLLM, with vLLM around it."""
    with vllm_alone(tokenizer) as adapter:
        yield adapter
