"""Small configurations of architectures whose layers keep a state, over a vocabulary of 128 tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hub

NAMES = {"vocab_size": 128, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
RANGE = {"initializer_range": 0.3}
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
POSITIONS = {"max_position_embeddings": 128}
LINEAR = {
    "linear_key_head_dim": 4, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_conv_kernel_dim": 3,
}  # fmt: skip
MAMBA = {"mamba_n_heads": 4, "mamba_d_state": 8, "mamba_chunk_size": 8, "mamba_n_groups": 2}
BOTH = ["linear_attention", "full_attention", "linear_attention"]
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}

CONFIGS: dict[str, Callable[[], Any]] = {
    "mamba": lambda: hub.MambaConfig(hidden_size=32, num_hidden_layers=2, state_size=4, **RANGE, **NAMES),
    "mamba2": lambda: hub.Mamba2Config(hidden_size=32, num_hidden_layers=2, state_size=8, num_heads=8, head_dim=8,
                                       n_groups=2, chunk_size=8, **RANGE, **NAMES),
    "falcon_mamba": lambda: hub.FalconMambaConfig(hidden_size=32, num_hidden_layers=2, state_size=4, **RANGE, **NAMES),
    "qwen3_next": lambda: hub.Qwen3NextConfig(**SIZES, **POSITIONS, **LINEAR, **EXPERTS, head_dim=8,
                                              num_hidden_layers=3, shared_expert_intermediate_size=16,
                                              layer_types=BOTH, **RANGE, **NAMES),
    "qwen3_5": lambda: hub.Qwen3_5TextConfig(**SIZES, **POSITIONS, **LINEAR, head_dim=8, num_hidden_layers=3,
                                             layer_types=BOTH, **RANGE, **NAMES),
    "jamba": lambda: hub.JambaConfig(**SIZES, **POSITIONS, num_hidden_layers=4, attn_layer_period=2,
                                     attn_layer_offset=1, num_experts=2, mamba_d_state=4, **RANGE, **NAMES),
    "bamba": lambda: hub.BambaConfig(**SIZES, **POSITIONS, **MAMBA, num_hidden_layers=3, attn_layer_indices=[1],
                                     **RANGE, **NAMES),
    "lfm2": lambda: hub.Lfm2Config(**SIZES, **POSITIONS, num_hidden_layers=3,
                                   layer_types=["conv", "full_attention", "conv"], **RANGE, **NAMES),
    "lfm2_moe": lambda: hub.Lfm2MoeConfig(**SIZES, **POSITIONS, **EXPERTS, num_hidden_layers=3, num_dense_layers=1,
                                          layer_types=["conv", "full_attention", "conv"], **RANGE, **NAMES),
    "granitemoehybrid": lambda: hub.GraniteMoeHybridConfig(
        **SIZES, **POSITIONS, **MAMBA, num_hidden_layers=3, num_local_experts=2, shared_intermediate_size=16,
        layer_types=BOTH, **RANGE, **NAMES),
    "nemotron_h": lambda: hub.NemotronHConfig(
        **SIZES, **POSITIONS, head_dim=8, mamba_num_heads=8, mamba_head_dim=8, ssm_state_size=8, n_groups=2,
        chunk_size=8, n_routed_experts=4, time_step_min=1e-9,
        moe_intermediate_size=16, moe_shared_expert_intermediate_size=16,
        layers_block_type=["linear_attention", "moe", "full_attention", "linear_attention", "mlp"], **RANGE, **NAMES),
    "falcon_h1": lambda: hub.FalconH1Config(**SIZES, **POSITIONS, **MAMBA, num_hidden_layers=2, mamba_d_ssm=32,
                                            **RANGE, **NAMES),
    "recurrent_gemma": lambda: hub.RecurrentGemmaConfig(**SIZES, num_hidden_layers=3, attention_window_size=9,
                                                        w_init_variance_scale=0.3, **NAMES),
    "zamba": lambda: hub.ZambaConfig(
        hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=5,
        mamba_d_state=4, layers_block_type=["linear_attention", "hybrid", "linear_attention", "hybrid", "hybrid"],
        **POSITIONS, **RANGE, **NAMES),
    "zamba2": lambda: hub.Zamba2Config(
        hidden_size=32, intermediate_size=48, num_attention_heads=4, num_hidden_layers=5, mamba_d_state=8,
        n_mamba_heads=4, chunk_size=8, num_mem_blocks=1, use_mem_rope=True, time_step_min=1e-9,
        layers_block_type=["linear_attention", "hybrid", "linear_attention", "hybrid", "hybrid"],
        **POSITIONS, **RANGE, **NAMES),
    "kimi_linear": lambda: hub.KimiLinearConfig(
        hidden_size=32, intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=4, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=6,
        num_local_experts=4, num_experts_per_tok=2, linear_head_dim=8, linear_num_heads=4, layer_types=BOTH,
        **POSITIONS, **RANGE, **NAMES),
    "minimax": lambda: hub.MiniMaxConfig(**SIZES, **POSITIONS, head_dim=8, num_hidden_layers=3, block_size=8,
                                         num_local_experts=2, layer_types=BOTH, **RANGE, **NAMES),
    "olmo_hybrid": lambda: hub.OlmoHybridConfig(
        **SIZES, **POSITIONS, linear_key_head_dim=4, linear_value_head_dim=8, linear_num_key_heads=4,
        linear_num_value_heads=4, num_hidden_layers=3, layer_types=BOTH, **RANGE, **NAMES),
    "rwkv": lambda: hub.RwkvConfig(hidden_size=32, num_hidden_layers=2, context_length=128, vocab_size=128,
                                   bos_token_id=0, eos_token_id=1),
}  # fmt: skip


def build(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A random model."""
    torch.manual_seed(1)
    return hub.AutoModelForCausalLM.from_config(CONFIGS[name](), experts_implementation="eager").eval().to(dtype)
