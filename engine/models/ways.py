"""Ways to run decoders: by the type of their configuration, where its options are those that were compared.

Compared with the whole text, without a cache, were all architectures of transformers with the options of their default
configurations: tests/engine/models/test_ways.py does so again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import transformers

from .packed.architectures import ARCHITECTURES
from .stock import strangeness

_COMPARED = (5, 24)
"""The newest version of transformers whose architectures were compared."""
_VERIFY = "TRELLM_VERIFY_MODELS"
_HARMLESS = {
    "_name_or_path", "architectures", "bos_token_id", "dtype", "eos_token_id", "id2label", "label2id", "pad_token_id",
    "transformers_version", "use_cache",
    # Positions are given, embeddings and heads are apart.
    "rope_parameters", "tie_word_embeddings",
    # What each layer keeps is read from these: see blocks/reach.py.
    "attn_layer_indices", "full_attn_idxs", "layer_types", "sliding_window",
    # Sizes that may be missing.
    "first_k_dense_replace", "head_dim", "intermediate_size", "moe_intermediate_size", "n_group", "n_inner",
    "n_routed_experts", "n_shared_experts", "num_experts", "num_experts_per_tok", "num_key_value_heads", "q_lora_rank",
    "shared_intermediate_size", "topk_group",
}  # fmt: skip
"""Options of a configuration on which the way does not depend."""


@dataclass(frozen=True)
class Way:
    """A way to run a decoder.

    rows: "packed" steps, with attention over blocks; "states" of recurrent layers; or with attention of its own, rows
        that are "padded" under masks, "aligned" on the right, or "equal" in length and beginning
    blocks: of states, whether what attends beside them does so over blocks
    continues: of states, whether a text can go on with several tokens at once; else it does so with one after the other
    alone: of states, whether each text runs by itself, where a model mixes those that go on together
    """

    rows: Literal["packed", "states", "padded", "aligned", "equal"]
    blocks: bool = True
    continues: bool = True
    alone: bool = False


_PACKED = """
afmoe apertus arcee aria_text axk1 biogpt bitnet cohere cohere2 cohere2_moe ctrl deepseek_v2 deepseek_v3 dots1
ernie4_5 ernie4_5_moe exaone4 exaone_moe flex_olmo flint gemma gemma2 gemma3_text gemma3n_text gemma4_text
gemma4_unified_text glm glm4 glm4_moe glm4_moe_lite gpt_bigcode gpt_neox gpt_oss granite granite_swa granitemoe
granitemoe_swa granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe hy_v3 hyperclovax jais2 jetmoe kolibri1 laguna
llama4_text longcat_flash mellum minicpm3 minimax_m2 minimax_m3_vl_text ministral3 mixtral modernbert-decoder nanochat
olmo olmo2 olmo3 olmoe opt persimmon phi phi3 phimoe qwen2_moe qwen3_moe seed_oss smollm3 solar_open starcoder2
vaultgemma youtu
"""
_PADDED = "codegen diffllama doge falcon gpt_neox_japanese gptj hrm_text nemotron stablelm xglm"
_STATES = """
bailing_hybrid bamba falcon_h1 granitemoehybrid kimi_linear lfm2 lfm2_moe lfm3 mamba2 minimax olmo_hybrid
qwen3_5_moe_text qwen3_5_text qwen3_next zaya
"""
_ONE_BY_ONE = "falcon_mamba jamba mamba recurrent_gemma zamba"

WAYS: Mapping[str, Way] = {
    **dict.fromkeys([*ARCHITECTURES, *_PACKED.split()], Way("packed")),
    **dict.fromkeys(_PADDED.split(), Way("padded")),
    **dict.fromkeys(("bloom", "gpt_neo", "mpt"), Way("aligned")),
    **dict.fromkeys(_STATES.split(), Way("states")),
    **dict.fromkeys(_ONE_BY_ONE.split(), Way("states", continues=False)),
    **dict.fromkeys(("inkling_text", "inkling2_text"), Way("states", blocks=False)),
    "rwkv": Way("states", alone=True),
}
"""By `model_type`. Not here are those whose cached logits depend on more than options, Nemotron-H and Zamba2 (see
docs/models.md), and those that are decoders only where their configuration says so, such as BERT and RoFormer."""


def way_of(model: Any) -> Way | None:
    """The way of a model, by its modules and its configuration, one of those above; None for any other.

    None for all with a version of transformers that is newer than what was compared.
    """
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    way = WAYS.get(model.config.model_type)
    if way is None or version > _COMPARED or strangeness(model) is not None:
        return None
    return way if _has_compared_options(model.config) else None


def is_to_be_verified() -> bool:
    """True if logits are to be compared of known models too: TRELLM_VERIFY_MODELS=1 in the environment asks for it."""
    return os.environ.get(_VERIFY, "") not in ("", "0")


def _has_compared_options(config: Any) -> bool:
    """True if a configuration differs from the default one of its type in sizes only."""
    if config.get_text_config() is not config:
        return False
    try:
        default: dict[str, Any] = type(config)().to_dict()
    except Exception:  # a configuration without defaults raises whatever it comes upon
        return False
    given: dict[str, Any] = config.to_dict()
    return all(_kind(value) <= _kind(default.get(name)) for name, value in given.items() if name not in _HARMLESS)


def _kind(value: Any) -> frozenset[Any]:
    """An option without its size."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return frozenset({value})
    if isinstance(value, int | float):
        return frozenset({"a number" if value else "nothing"})
    parts = cast("Iterable[Any]", value.values() if isinstance(value, dict) else value)
    return frozenset[Any]().union(*map(_kind, parts))
