"""GGUF files of a few kilobytes: models of transformers with random weights, written by the `gguf` package."""

# torch does not say of what its arguments are.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.convert_slow_tokenizer import bytes_to_unicode

NAMED = ["<s>", "</s>", "<turn>", "<note>"]
NOTHING: Mapping[str, Any] = {}
MERGES = ["t h", "th e", "Ġ the", "o n", "1 2", '" :', '" ,', "t r", "tr u", "tru e", "Ġ 1"]
NORMAL, UNKNOWN, CONTROL, LITERAL, UNUSED, BYTE = range(1, 7)
SIZES: Mapping[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 288,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "initializer_range": 0.2,
    "pad_token_id": None, "bos_token_id": None, "eos_token_id": None, "rms_norm_eps": 1e-5,
}  # fmt: skip
FACTORS = [1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 8.0]
_LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}
_YARN = {
    "rope_type": "yarn", "factor": 4.0, "rope_theta": 10_000.0, "original_max_position_embeddings": 64,
    "beta_fast": 32.0, "beta_slow": 1.0,
}  # fmt: skip
_LONG = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": FACTORS[::-1][:6], "long_factor": FACTORS[:6],
    "original_max_position_embeddings": 64, "partial_rotary_factor": 0.75,
}  # fmt: skip
_NEAR_FAR = {
    "full_attention": {**_LINEAR, "rope_theta": 1_000_000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}
_LLAMA3 = {"rope_type": "default", "rope_theta": 500_000.0}
KINDS: Mapping[str, tuple[str, str, Mapping[str, Any], Mapping[str, Any]]] = {
    "llama": ("llama", "Llama", {}, {}),
    "llama-linear": ("llama", "Llama", {"rope_parameters": _LINEAR, "tie_word_embeddings": True},
                     {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "llama3": ("llama", "Llama", {"rope_parameters": _LLAMA3}, {"rope.freq_base": 500_000.0}),
    "qwen2": ("qwen2", "Qwen2", {}, {}),
    "qwen2-yarn": ("qwen2", "Qwen2", {"rope_parameters": _YARN}, {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}),
    "qwen3": ("qwen3", "Qwen3", {"head_dim": 32, "tie_word_embeddings": True}, {}),
    "gemma2": ("gemma2", "Gemma2", {"sliding_window": 8, "query_pre_attn_scalar": 16},
               {"attention.sliding_window": 8, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
    "gemma3": ("gemma3", "Gemma3", {"num_hidden_layers": 7, "sliding_window": 8, "query_pre_attn_scalar": 16,
                                    "rope_parameters": _NEAR_FAR},
               {"attention.sliding_window": 8, "rope.freq_base": 1_000_000.0, "rope.scaling.type": "linear",
                "rope.scaling.factor": 4.0}),
    "phi3": ("phi3", "Phi3", {"sliding_window": 8}, {"attention.sliding_window": 8}),
    "phi3-long": ("phi3", "Phi3", {"rope_parameters": _LONG, "original_max_position_embeddings": 64},
                  {"rope.dimension_count": 12, "rope.scaling.original_context_length": 64}),
    "granite": ("granite", "Granite", {"attention_multiplier": 0.2, "embedding_multiplier": 3.0, "logits_scaling": 2.0,
                                       "residual_multiplier": 0.5},
                {"attention.scale": 0.2, "embedding_scale": 3.0, "logit_scale": 2.0, "residual_scale": 0.5}),
    "smollm3": ("smollm3", "SmolLM3", {"num_hidden_layers": 4}, {"rope.freq_base": 2_000_000.0}),
    "mistral3": ("mistral3", "Ministral3", {"rope_parameters": {
        **_YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}},
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64,
         "rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.1}),
}  # fmt: skip
"""Architectures and variants: name in GGUF, of the classes, options of the configuration, metadata."""
_IN_PAIRS = ("llama", "granite", "smollm3", "mistral3")


def network_of(kind: str, seed: int = 0) -> Any:
    """A model of transformers with random weights, norms included."""
    _, name, options, _ = KINDS[kind]
    library: Any = transformers
    config = getattr(library, "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config")(**{**SIZES, **options})
    torch.manual_seed(seed)
    network = getattr(library, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for weights in network.parameters():
            if weights.ndim == 1:
                weights.add_(torch.randn(len(weights)) * 0.1)
        if kind == "llama3":
            network.model.rotary_emb.inv_freq /= torch.tensor(FACTORS)
    return network


def write_model(
    path: Path,
    kind: str,
    network: Any,
    form: str = "F32",
    facts: Mapping[str, Any] = NOTHING,
    words: Mapping[str, Any] = NOTHING,
    tensors: Mapping[str, Any] = NOTHING,
) -> None:
    """Write a model, and put into its matrices what they are once they were quantized.

    facts, words, tensors: metadata of the model, those of its tokenizer, and tensors in F32 that are others than they
    would be, or are there as well; None for those that are not to be there
    """
    gguf = import_module("gguf")
    name, _, _, own = KINDS[kind]
    config = network.config
    writer = gguf.GGUFWriter(path, name)
    common = {
        "block_count": config.num_hidden_layers, "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size, "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads, "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": config.head_dim, "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps, "vocab_size": config.vocab_size,
    }  # fmt: skip
    given = {f"{name}.{key}": value for key, value in {**common, **own, **facts}.items()}
    given |= {f"tokenizer.ggml.{key}": value for key, value in {**words_of(config.vocab_size), **words}.items()}
    for key, value in given.items():
        if value is not None:
            add_value(writer, key, value)
    for tensor, data, number in tensors_of(kind, network, form):
        if tensor not in tensors:
            writer.add_tensor(tensor, data, raw_dtype=number)
    for tensor, data in tensors.items():
        if data is not None:
            writer.add_tensor(tensor, data)
    finish(writer)


@torch.no_grad()
def tensors_of(kind: str, network: Any, form: str) -> Iterator[tuple[str, Any, Any]]:
    """Names, bytes and types of all tensors, as llama.cpp's converter has them."""
    gguf = import_module("gguf")
    name, config = KINDS[kind][0], network.config
    number = next(key for key, known in gguf.MODEL_ARCH_NAMES.items() if known == name)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for own, weights in network.named_parameters():
        base, _, last = own.rpartition(".")
        found = f"{'output' if base == 'lm_head' else names.get_name(base)}.{last}"
        own_heads = heads.get(base.rpartition(".")[2]) if name in _IN_PAIRS else None
        if weights.ndim == 1:
            yield found, pairs(weights.numpy(), own_heads) + np.float32(name.startswith("gemma")), None
            continue
        number = gguf.GGMLQuantizationType[form]
        data = gguf.quantize(weights.numpy(), number)
        weights.copy_(torch.as_tensor(gguf.dequantize(data, number).reshape(weights.shape)))
        yield found, pairs(data, own_heads), number
    if kind == "llama3":
        yield "rope_freqs.weight", np.array(FACTORS, np.float32), None
    if kind == "phi3-long":
        for length in ("long", "short"):
            factors = np.array(config.rope_parameters[f"{length}_factor"], np.float32)
            yield f"rope_factors_{length}.weight", factors, None


def pairs(rows: Any, heads: int | None) -> Any:
    """Rows of the halves of each head, one of each in turn."""
    if heads is None:
        return rows
    halves = rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def words_of(count: int) -> dict[str, Any]:
    """Bytes and some merges, and behind them BOS, EOS, an end of turn, a word and tokens that are not used."""
    texts = [*map(bytes_to_unicode().get, range(256)), *(merge.replace(" ", "") for merge in MERGES)]
    first = len(texts)
    unused = [f"[unused{number}]" for number in range(count - first - len(NAMED))]
    return {
        "model": "gpt2", "pre": "gpt-2", "tokens": [*texts, *NAMED, *unused], "merges": MERGES,
        "token_type": [*[NORMAL] * first, CONTROL, CONTROL, CONTROL, LITERAL, *[UNUSED] * len(unused)],
        "bos_token_id": first, "eos_token_id": first + 1, "eot_token_id": first + 2,
    }  # fmt: skip


def add_value(writer: Any, key: str, value: Any) -> None:
    """A value of metadata by its type."""
    add: Any = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    if isinstance(value, Sequence) and not isinstance(value, str):
        writer.add_array(key, value)
    else:
        add[type(value)](key, value)


def finish(writer: Any) -> None:
    """Write all that was added."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
