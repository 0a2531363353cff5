"""The network: a stock Qwen3 configuration of the transformers library, deep for its width."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

CONTEXT = 1024


def make(vocabulary: int, *, width: int, layers: int, seed: int, end: int, stop: int) -> Any:
    """A network with random weights. vocabulary: tokens; width: a multiple of 32, which is a head's size."""
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    library: Any = torch
    library.manual_seed(seed)
    heads = width // 32
    config = cast(Any, Qwen3Config)(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=width * 5 // 2,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2 if heads % 2 == 0 else heads,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=0.02,
        bos_token_id=None,
        eos_token_id=[stop, end],
        pad_token_id=end,
    )
    config._attn_implementation = "sdpa"
    network: Any = Qwen3ForCausalLM(config)
    with torch.no_grad():  # what residual branches add must not grow with depth (GPT-2)
        for name, weight in network.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight /= math.sqrt(2 * layers)
    network.generation_config = GenerationConfig(eos_token_id=[stop, end], pad_token_id=end, do_sample=False)
    return network


def load(folder: Path) -> Any:
    """A network that was saved, in float32."""
    import torch
    from transformers import Qwen3ForCausalLM

    network: Any = Qwen3ForCausalLM
    return network.from_pretrained(str(folder), dtype=torch.float32)


def save(network: Any, folder: Path) -> None:
    """Write a copy in float16, as any Hugging Face folder."""
    import copy

    import torch

    copy.deepcopy(network).to(device="cpu", dtype=torch.float16).save_pretrained(str(folder))
