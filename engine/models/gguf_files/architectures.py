"""Architectures of GGUF files: their classes in transformers, and the translation of metadata to configurations.

Keys and defaults are those of llama.cpp, as are a converter's changes of weights: some architectures interleave the
rows of queries and keys in pairs, and norms of Gemma are stored with 1 added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ....errors import ModelError
from .file import GGUFFile

_MAX_COUNT = 1 << 31
_HARMLESS = {
    "vocab_size", "rope.scaling.finetuned", "tensor_data_layout", "rope.scaling.yarn_ext_factor",
    "attention.temperature_length",
}  # fmt: skip
"""Keys of metadata that are redundant or do not affect computation."""
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"


class ArchitectureMetadata:
    """The metadata of an architecture, by keys without the prefix `NAME.`. It records the keys that were read."""

    def __init__(self, file: GGUFFile, name: str) -> None:
        self.file = file
        self._prefix = f"{name}."
        self._keys_read: set[str] = set()

    def has(self, key: str) -> bool:
        """Test whether the file has a key."""
        return self._prefix + key in self.file.metadata

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Return an integer, or the common value of a per-layer array. Raises ModelError."""
        value = self.value(key, default)
        if isinstance(value, np.ndarray):
            several: list[Any] = cast("NDArray[Any]", value).tolist()
            value = several[0] if several and several.count(several[0]) == len(several) else several
        if type(value) is not int or not least <= value < _MAX_COUNT:
            raise self._unusable_error(key, value, f"one number from {least} on, the same for all layers,")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """Return a number above zero. Raises ModelError."""
        value = self.value(key, default)
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise self._unusable_error(key, value, "a number above 0")
        return float(value)

    def real_or(self, key: str, otherwise: float | None) -> float | None:
        """Return a number above zero, or another value for a missing number and for 0. Raises ModelError."""
        value = self.value(key)
        return otherwise if value is None or (isinstance(value, int | float) and not value) else self.real(key)

    def value(self, key: str, default: Any = None) -> Any:
        """Return a value unchanged, or the default."""
        self._keys_read.add(key)
        return self.file.metadata.get(self._prefix + key, default)

    def check_all_read(self) -> None:
        """Raise ModelError for an unread key of the architecture with a value other than 0 or False."""
        for key, value in self.file.metadata.items():
            inner = key.removeprefix(self._prefix)
            if inner == key or inner in self._keys_read or inner in _HARMLESS:
                continue
            if not isinstance(value, int | float) or value:
                raise ModelError(
                    f"{self.file.path}: the metadata have {key!r} ({value!r:.60}), of which it is not known what it "
                    "changes; convert the model again, or run it with transformers from its original files"
                )

    def _unusable_error(self, key: str, value: Any, expected: str) -> ModelError:
        found = "is missing" if value is None else f"is {value!r:.60}"
        return ModelError(
            f"{self.file.path}: the metadata's {self._prefix + key!r} {found}; {expected} is expected: convert the "
            "model again, or fetch the file again"
        )


@dataclass(frozen=True)
class Architecture:
    """An architecture of GGUF files.

    network, config: names of its classes in transformers
    options: returns the configuration's arguments
    in_pairs: True if rotary pairs are adjacent rows of queries and keys, rather than in two halves as in transformers
    added: constant that stored norm weights contain in addition
    """

    network: str
    config: str
    options: Callable[[ArchitectureMetadata], dict[str, Any]]
    in_pairs: bool = False
    added: float = 0.0


def _common(facts: ArchitectureMetadata) -> dict[str, Any]:
    heads, hidden = facts.count("attention.head_count"), facts.count("embedding_length")
    size = facts.count("attention.key_length", max(1, hidden // heads))
    if facts.count("attention.value_length", size) != size:
        raise ModelError(f"{facts.file.path}: keys and values of heads have two sizes, which are not read")
    key_heads = facts.count("attention.head_count_kv", heads)
    if heads % key_heads:
        raise ModelError(f"{facts.file.path}: {heads} heads cannot share {key_heads} heads of keys and values evenly")
    return {
        "hidden_size": hidden,
        "intermediate_size": facts.count("feed_forward_length"),
        "num_hidden_layers": facts.count("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "head_dim": size,
        "rms_norm_eps": facts.real("attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": facts.count("context_length"),
    }


def _rotary_options(
    facts: ArchitectureMetadata, size: int, theta: float = 10_000.0, *, in_part: bool = False
) -> dict[str, Any]:
    """Return options of rotary embeddings. size: of a head; theta: default base; in_part: permit rotation of a part"""
    rotated = facts.count("rope.dimension_count", size)
    found: dict[str, Any] = {"rope_theta": facts.real("rope.freq_base", theta)}
    if rotated != size and not (in_part and rotated < size):
        raise ModelError(f"{facts.file.path}: {rotated} numbers of heads of {size} are turned, which is not read")
    if in_part:
        found["partial_rotary_factor"] = rotated / size
    factor = facts.value("rope.scaling.factor") or facts.value("rope.scale_linear")
    kind = facts.value("rope.scaling.type", "linear" if factor else "none")
    scales = {"none": _unscaled, "linear": _linear, "yarn": _yarn, "longrope": _longrope}
    if in_part and LONG in facts.file.tensors:  # older files omit the type
        kind = "longrope"
    if kind not in scales:
        raise ModelError(f"{facts.file.path}: rope.scaling.type={kind!r:.60}; read are {', '.join(scales)}")
    return {**found, **scales[kind](facts)}


def _unscaled(facts: ArchitectureMetadata) -> dict[str, Any]:
    return {"rope_type": "default"}


def _linear(facts: ArchitectureMetadata) -> dict[str, Any]:
    key = "rope.scaling.factor" if facts.has("rope.scaling.factor") else "rope.scale_linear"
    return {"rope_type": "linear", "factor": facts.real(key)}


def _yarn(facts: ArchitectureMetadata) -> dict[str, Any]:
    factor = facts.real("rope.scaling.factor")
    found: dict[str, Any] = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": facts.count("rope.scaling.original_context_length"),
        "beta_fast": facts.real("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": facts.real("rope.scaling.yarn_beta_slow", 1.0),
    }
    if (scale := facts.real_or("rope.scaling.yarn_log_multiplier", None)) is not None:
        return {**found, "mscale": 1.0, "mscale_all_dim": scale}
    key = "rope.scaling.attn_factor" if facts.has("rope.scaling.attn_factor") else "rope.scaling.yarn_attn_factor"
    return {**found, "attention_factor": facts.real(key, 1.0) * (1 + 0.1 * math.log(factor))}


def _longrope(facts: ArchitectureMetadata) -> dict[str, Any]:
    file = facts.file
    missing = [name for name in (LONG, SHORT) if name not in file.tensors]
    if missing:
        raise ModelError(f"{facts.file.path}: the tensor {missing[0]!r} is missing; convert the model again")
    context = facts.count("context_length")
    original = facts.count("rope.scaling.original_context_length", context)
    found: dict[str, Any] = {"rope_type": "longrope", "original_max_position_embeddings": original}
    found["factor"] = max(1.0, context / original)
    found |= {"long_factor": file.reals(LONG).tolist(), "short_factor": file.reals(SHORT).tolist()}
    if facts.has("rope.scaling.attn_factor"):
        found["attention_factor"] = facts.real("rope.scaling.attn_factor")
    return found


def _llama(facts: ArchitectureMetadata) -> dict[str, Any]:
    common = _common(facts)
    return {**common, "rope_parameters": _rotary_options(facts, common["head_dim"])}


def _mistral3(facts: ArchitectureMetadata) -> dict[str, Any]:
    common = _llama(facts)
    rope = {**common["rope_parameters"], "llama_4_scaling_beta": facts.real_or("attention.temperature_scale", 0.0)}
    rope.setdefault("original_max_position_embeddings", common["max_position_embeddings"])
    return {**common, "rope_parameters": rope}


def _granite(facts: ArchitectureMetadata) -> dict[str, Any]:
    common = _llama(facts)
    return {
        **common,
        "attention_multiplier": facts.real_or("attention.scale", common["head_dim"] ** -0.5),
        "embedding_multiplier": facts.real("embedding_scale", 1.0),
        "residual_multiplier": facts.real("residual_scale", 1.0),
        "logits_scaling": facts.real("logit_scale", 1.0),
    }


def _phi3(facts: ArchitectureMetadata) -> dict[str, Any]:
    common = _common(facts)
    window = facts.count("attention.sliding_window", 0, least=0)
    rope = _rotary_options(facts, common["head_dim"], in_part=True)
    original = rope.get("original_max_position_embeddings", common["max_position_embeddings"])
    return {
        **common,
        "rope_parameters": rope,
        "original_max_position_embeddings": original,
        "sliding_window": window or None,
    }


def _gemma(facts: ArchitectureMetadata, largest: int) -> dict[str, Any]:
    """Return the common options of Gemma 2 and 3. largest: layer count of the model with its own attention scale"""
    common = _common(facts)
    heads, hidden = common["num_attention_heads"], common["hidden_size"]
    is_largest = common["num_hidden_layers"] == largest
    return {
        **common,
        "query_pre_attn_scalar": hidden // heads if is_largest else common["head_dim"],
        "sliding_window": facts.count("attention.sliding_window"),
    }


def _gemma2(facts: ArchitectureMetadata) -> dict[str, Any]:
    common = _gemma(facts, 46)
    return {
        **common,
        "rope_parameters": _rotary_options(facts, common["head_dim"]),
        "attn_logit_softcapping": facts.real("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": facts.real("final_logit_softcapping", 30.0),
    }


def _gemma3(facts: ArchitectureMetadata) -> dict[str, Any]:
    common = _gemma(facts, 62)
    count, pattern = common["num_hidden_layers"], facts.value("attention.sliding_window_pattern", 6)
    slide = [bool(each) for each in cast("NDArray[Any]", pattern)] if isinstance(pattern, np.ndarray) else []
    if len(slide) != count:
        every = facts.count("attention.sliding_window_pattern", 6)
        slide = [(number + 1) % every != 0 for number in range(count)]
    local = {"rope_type": "default", "rope_theta": facts.real("rope.freq_base_swa", 10_000.0)}
    return {
        **common,
        "layer_types": ["sliding_attention" if each else "full_attention" for each in slide],
        "rope_parameters": {
            "full_attention": _rotary_options(facts, common["head_dim"], 1_000_000.0),
            "sliding_attention": local,
        },
        "final_logit_softcapping": facts.real_or("final_logit_softcapping", None),
    }


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("LlamaForCausalLM", "LlamaConfig", _llama, in_pairs=True),
    "qwen2": Architecture("Qwen2ForCausalLM", "Qwen2Config", _llama),
    "qwen3": Architecture("Qwen3ForCausalLM", "Qwen3Config", _llama),
    "gemma2": Architecture("Gemma2ForCausalLM", "Gemma2Config", _gemma2, added=1.0),
    "gemma3": Architecture("Gemma3ForCausalLM", "Gemma3TextConfig", _gemma3, added=1.0),
    "phi3": Architecture("Phi3ForCausalLM", "Phi3Config", _phi3),
    "granite": Architecture("GraniteForCausalLM", "GraniteConfig", _granite, in_pairs=True),
    "smollm3": Architecture("SmolLM3ForCausalLM", "SmolLM3Config", _llama, in_pairs=True),
    "mistral3": Architecture("Ministral3ForCausalLM", "Ministral3Config", _mistral3, in_pairs=True),
}
"""By `general.architecture`. Early Mistral models are "llama"."""
