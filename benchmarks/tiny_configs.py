"""A small configuration of every architecture that transformers has for text, made from its default configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VOCABULARY = 288
CONTEXT = 256

# Architectures whose small sizes follow from one another in a way of their own.
OWN: dict[str, Callable[[int], dict[str, Any]]] = {
    "mamba": lambda hidden: {"state_size": 8},
    "falcon_mamba": lambda hidden: {"state_size": 8},
    "mamba2": lambda hidden: {
        "num_heads": 8, "head_dim": hidden // 4, "state_size": 8, "n_groups": 2, "chunk_size": 16},
    "bamba": lambda hidden: {"num_hidden_layers": 3, "attn_layer_indices": [1], **_mamba(hidden)},
    "falcon_h1": lambda hidden: {**_mamba(hidden), "mamba_d_ssm": 2 * hidden},
    "granitemoehybrid": lambda hidden: {
        **_mamba(hidden), "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]},
    "gemma3n_text": lambda hidden: {
        "num_hidden_layers": 4, "num_kv_shared_layers": 0, "layer_types": ["sliding_attention", "full_attention"] * 2,
        "activation_sparsity_pattern": [0.0] * 4, "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": VOCABULARY},
    "gemma4_text": lambda hidden: {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCABULARY},
    "zaya": lambda hidden: {"num_experts_per_tok": 1},
    "jamba": lambda hidden: {
        "num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2, "mamba_d_state": 8},
    "recurrent_gemma": lambda hidden: {"num_hidden_layers": 3, "attention_window_size": 16, "lru_width": hidden,
                                       "w_init_variance_scale": 0.3},
    "nemotron_h": lambda hidden: {
        "mamba_num_heads": 8, "mamba_head_dim": hidden // 4, "ssm_state_size": 8, "n_groups": 2, "chunk_size": 16,
        "layers_block_type": ["linear_attention", "moe", "full_attention", "linear_attention", "mlp"]},
    "zamba": lambda hidden: {"num_hidden_layers": 5, "mamba_d_state": 8, "layers_block_type": _ZAMBA},
    "zamba2": lambda hidden: {
        "num_hidden_layers": 5, "mamba_d_state": 8, "n_mamba_heads": 4, "chunk_size": 16, "num_mem_blocks": 1,
        "use_mem_rope": True, "layers_block_type": _ZAMBA, "num_key_value_heads": 4},
    "kimi_linear": lambda hidden: {
        "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "num_key_value_heads": 4, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
        "linear_head_dim": hidden // 4, "linear_num_heads": 4},
    "rwkv": lambda hidden: {"attention_hidden_size": hidden},
    "lfm2": lambda hidden: {"layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3},
    "lfm2_moe": lambda hidden: {"layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3,
                                "num_dense_layers": 1},
    "gpt_neo": lambda hidden: {"attention_types": [[["global", "local"], 1]], "window_size": 16},
    "gptj": lambda hidden: {"rotary_dim": hidden // 8},
    "codegen": lambda hidden: {"rotary_dim": hidden // 8},
    "cohere_compass_text": lambda hidden: {"layer_types": ["full_attention"] * 2},
    "deepseek_v2": lambda hidden: _latent(),
    "deepseek_v3": lambda hidden: _latent(),
    "axk1": lambda hidden: _latent(),
    "youtu": lambda hidden: _latent(),
    "minicpm3": lambda hidden: {key: size for key, size in _latent().items() if key != "num_key_value_heads"},
    "glm4_moe_lite": lambda hidden: _latent(),
    "longcat_flash": lambda hidden: {**_latent(), "ffn_hidden_size": 2 * hidden, "expert_ffn_hidden_size": hidden},
}  # fmt: skip
_ZAMBA = ["linear_attention", "hybrid", "linear_attention", "hybrid", "hybrid"]


def _mamba(hidden: int) -> dict[str, Any]:
    return {"mamba_n_heads": 8, "mamba_d_head": hidden // 4, "mamba_d_state": 8, "mamba_n_groups": 2,
            "mamba_chunk_size": 16}  # fmt: skip


def _latent() -> dict[str, Any]:
    return {"num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8, "v_head_dim": 8}  # fmt: skip


def sizes(hidden: int) -> dict[str, Any]:
    """What a small model has, under all the names that configurations use; those that one has not are left out."""
    heads, inner = 4, 2 * hidden
    named: dict[Any, tuple[str, ...]] = {
        VOCABULARY: ("vocab_size",),
        CONTEXT: ("max_position_embeddings", "n_positions", "max_seq_len", "context_length", "max_target_positions"),
        hidden: ("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "emb_dim"),
        2: ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "decoder_layers",
            "encoder_layers", "num_encoder_layers", "num_experts_per_tok", "experts_per_token", "moe_topk"),
        heads: ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads", "num_kv_heads",
                "encoder_attention_heads", "num_key_value_heads", "num_decoder_attention_heads",
                "num_encoder_attention_heads", "num_experts", "num_local_experts", "n_routed_experts",
                "moe_num_experts",
                "linear_num_key_heads", "linear_num_value_heads", "linear_num_heads"),
        inner: ("intermediate_size", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim", "d_ff", "n_inner",
                "ffn_hidden_size",
                "moe_intermediate_size", "shared_intermediate_size", "intermediate_size_mlp", "d_inner", "dff",
                "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"),
        hidden // heads: ("head_dim", "d_kv", "v_head_dim", "linear_key_head_dim", "linear_value_head_dim", "d_head"),
        1: ("n_group", "topk_group", "first_k_dense_replace", "n_shared_experts"),
    }  # fmt: skip
    return {name: size for size, names in named.items() for name in names}


def tiny(name: str, hidden: int = 32) -> Any:
    """The configuration of an architecture; raises whatever the library raises where these sizes do not fit it."""
    import transformers

    hub: Any = transformers
    kind = hub.models.auto.configuration_auto.CONFIG_MAPPING[name]
    default = kind()
    if not default.is_encoder_decoder and default.get_text_config() is not default:
        raise ValueError("more than text")
    given: dict[str, Any] = {key: size for key, size in sizes(hidden).items() if _has(default, key)}
    if isinstance(getattr(default, "layer_types", None), list) and name not in OWN:
        kinds = list(dict.fromkeys(default.layer_types))
        given["layer_types"] = [*kinds, *kinds][: max(2, len(kinds))]
        given["num_hidden_layers"] = len(given["layer_types"])
    if _has(default, "sliding_window") and default.sliding_window:
        given["sliding_window"] = 16
    if _has(default, "initializer_range"):
        given["initializer_range"] = 0.2
    own = OWN[name](hidden) if name in OWN else {}
    names = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    if default.is_encoder_decoder:
        names["decoder_start_token_id"] = 0
    elif _has(default, "is_decoder"):
        given["is_decoder"] = True
    return kind(**{**given, **names, **own})


def _has(config: Any, name: str) -> bool:
    return name in config.to_dict() or name in getattr(config, "attribute_map", {})
