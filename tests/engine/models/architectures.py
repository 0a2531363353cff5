"""Small configurations of many architectures, over a vocabulary of 128 tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hub

NAMES = {"vocab_size": 128, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "initializer_range": 0.4}
PLAIN = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128}
FEW = {**PLAIN, "intermediate_size": 48, "num_key_value_heads": 2}
GROUPED = {**FEW, "head_dim": 8}
OLD = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
BOTH = ["sliding_attention", "full_attention"]
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 2}
LATENT = {
    **PLAIN, "num_key_value_heads": 4, "q_lora_rank": None, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8, "v_head_dim": 6, "intermediate_size": 48, "moe_intermediate_size": 16,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
LOCAL = {"num_layers": 2, "num_heads": 4, "hidden_size": 32, "max_position_embeddings": 128, "window_size": 8}

CONFIGS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: hub.GPT2Config(**OLD, **NAMES),
    "llama": lambda: hub.LlamaConfig(**GROUPED, **NAMES),
    "mistral": lambda: hub.MistralConfig(**GROUPED, sliding_window=7, **NAMES),
    "gemma2": lambda: hub.Gemma2Config(**GROUPED, sliding_window=6, layer_types=BOTH, **NAMES),
    "gemma3": lambda: hub.Gemma3TextConfig(**GROUPED, sliding_window=5, layer_types=BOTH, **NAMES),
    "qwen3": lambda: hub.Qwen3Config(**GROUPED, **NAMES),
    "gpt_oss": lambda: hub.GptOssConfig(**GROUPED, **EXPERTS, sliding_window=6, layer_types=BOTH, rope_parameters={
        "rope_type": "default", "rope_theta": 10_000.0}, **NAMES),
    "phi3": lambda: hub.Phi3Config(**FEW, sliding_window=20, **NAMES),
    "deepseek_v2": lambda: hub.DeepseekV2Config(**LATENT, **NAMES),
    "deepseek_v3": lambda: hub.DeepseekV3Config(**LATENT, **NAMES),
    "llama4": lambda: hub.Llama4TextConfig(**GROUPED, intermediate_size_mlp=48, num_local_experts=2,
                                           attention_chunk_size=5, floor_scale=4, attn_scale=0.5,
                                           no_rope_layers=[1, 0], **NAMES),
    "bloom": lambda: hub.BloomConfig(n_layer=2, n_head=4, hidden_size=32, **NAMES),
    "gpt_neo": lambda: hub.GPTNeoConfig(**LOCAL, attention_types=[[["global", "local"], 1]], **NAMES),
    "gptj": lambda: hub.GPTJConfig(**OLD, rotary_dim=4, **NAMES),
    "falcon": lambda: hub.FalconConfig(**PLAIN, alibi=False, **NAMES),
    "mpt": lambda: hub.MptConfig(d_model=32, n_layers=2, n_heads=4, max_seq_len=128, **NAMES),
}  # fmt: skip


def build(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A random model."""
    torch.manual_seed(1)
    return hub.AutoModelForCausalLM.from_config(CONFIGS[name](), experts_implementation="eager").eval().to(dtype)
