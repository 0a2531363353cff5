"""Ways to run decoders by configuration type, and their verification.

For all architectures of transformers, with the options of their default configurations, logits were compared with those
of passes over the whole text without a cache. tests/engine/models/test_ways.py repeats the comparison.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import transformers
from torch import Tensor, nn

from ...errors import ModelError
from .packed.architectures import ARCHITECTURES
from .stock import strangeness

_COMPARED = (5, 24)
"""The newest version of transformers whose architectures were compared."""
_VERIFY = "TRELLM_VERIFY_MODELS"
_HARMLESS = {
    "_name_or_path", "architectures", "bos_token_id", "dtype", "eos_token_id", "id2label", "label2id", "pad_token_id",
    "transformers_version", "use_cache",
    # Positions are passed explicitly; embeddings and heads are separate.
    "rope_parameters", "tie_word_embeddings",
    # blocks/reach.py reads the memory of each layer from these.
    "attn_layer_indices", "full_attn_idxs", "layer_types", "sliding_window",
    # Sizes that may be missing.
    "first_k_dense_replace", "head_dim", "intermediate_size", "moe_intermediate_size", "n_group", "n_inner",
    "n_routed_experts", "n_shared_experts", "num_experts", "num_experts_per_tok", "num_key_value_heads", "q_lora_rank",
    "shared_intermediate_size", "topk_group",
}  # fmt: skip
"""Options of a configuration that do not affect the choice of a way."""


@dataclass(frozen=True)
class Way:
    """A way to run a decoder.

    rows: form of a pass
        "packed": packed steps with attention over blocks; all other forms are rows with caches of transformers
        "states": for recurrent layers, rows of equal width that all begin, or all continue
        "padded": rows of different starts and widths, with our attention masks
        "aligned": rows of equal width and any start, padded on the left as transformers does, for models that derive
            positions from a mask or from columns
        "equal": rows of equal start and width, for which a model's own masks suffice
        "whole": whole texts, without a cache
    blocks: with "states", True for attention over blocks; otherwise continuing rows also need equal starts
    continues: with "states", True if a pass can continue a text with several tokens, rather than one
    alone: True to run each text by itself, for models that mix continuing rows, or whose attention selects among all
        columns, including padding
    """

    rows: Literal["packed", "states", "padded", "aligned", "equal", "whole"]
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
"""Verified ways by `model_type`. Not included: Nemotron-H and Zamba2, whose cached logits depend on more than options
(docs/supported-models.md), and models that are decoders only with some configurations, such as BERT and RoFormer."""


def way_of(model: Any) -> Way | None:
    """Return the verified way of a model; None for unknown types, unverified options and changed modules.

    None for all models if transformers is newer than `_COMPARED`.
    """
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    way = WAYS.get(model.config.model_type)
    if way is None or version > _COMPARED or strangeness(model) is not None:
        return None
    return way if _has_compared_options(model.config) else None


def is_to_be_verified() -> bool:
    """Test whether TRELLM_VERIFY_MODELS=1 is set, to verify also the ways of known models."""
    return os.environ.get(_VERIFY, "") not in ("", "0")


def _has_compared_options(config: Any) -> bool:
    """Test whether a configuration differs from the default of its type only in sizes and `_HARMLESS` options."""
    if config.get_text_config() is not config:
        return False
    try:
        default: dict[str, Any] = type(config)().to_dict()
    except Exception:  # a configuration without defaults may raise anything
        return False
    options: dict[str, Any] = config.to_dict()
    return all(_kind(value) <= _kind(default.get(name)) for name, value in options.items() if name not in _HARMLESS)


def _kind(value: Any) -> frozenset[Any]:
    """Return an option's values with each number replaced by "a number" or "nothing"."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return frozenset({value})
    if isinstance(value, int | float):
        return frozenset({"a number" if value else "nothing"})
    parts = cast("Iterable[Any]", value.values() if isinstance(value, dict) else value)
    return frozenset[Any]().union(*map(_kind, parts))


_COARSE = 5e-2
_TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: _COARSE}
"""Tolerated distances of logits by the model's dtype. That of float64 allows for layers that compute in float32."""
_SHORT = (torch.float16, torch.bfloat16)
_TIMES = 2
"""Tolerated multiple of the measured effect of rounding, which is one sample of noise."""


def distance(found: Tensor, expected: Tensor) -> float:
    """Return the Euclidean distance of logits [rows, V] from expected ones, relative to these minus each row's mean."""
    expected = expected.double()
    far = (found.double() - expected).square().sum().sqrt().item()
    spread = (expected - expected.mean(-1, keepdim=True)).square().sum().sqrt().item()
    return far / spread if spread else far


def tolerance(model: Any, dtype: torch.dtype) -> float:
    """Return the distance of logits that is always accepted, by the dtype of the weights.

    It is larger for quantized models, since some layers round their inputs with one scale for all rows.
    """
    is_quantized = getattr(model, "hf_quantizer", None) is not None
    return _COARSE if is_quantized else _TOLERANCES.get(dtype, _COARSE)


def is_rounding(far: float, model: Any, recompute: Callable[[], float]) -> bool:
    """Test whether rounding explains a distance of logits of a 16-bit model.

    Differences grow with width and depth, so no fixed tolerance suits all models.
    recompute: runs the model again, and returns the distance of its logits from earlier ones
    """
    return model.dtype in _SHORT and far <= _TIMES * _rounding_distance(model, recompute)


def _rounding_distance(model: Any, recompute: Callable[[], float]) -> float:
    """Return the distance of a model's logits under noise as large as the rounding of each product."""
    noise = torch.Generator(device=model.device).manual_seed(0)

    def add_noise(module: Any, arguments: Any, product: Tensor) -> Tensor:
        amounts = torch.rand(product.shape, generator=noise, device=product.device) - 0.5
        return (product.float() * (1 + torch.finfo(product.dtype).eps * amounts)).to(product.dtype)

    hooks = [part.register_forward_hook(add_noise) for part in model.modules() if isinstance(part, nn.Linear)]
    try:
        return recompute()
    finally:
        for hook in hooks:
            hook.remove()


def check_numbers(model: Any, logits: Tensor) -> None:
    """Raise ModelError if some logits are NaN. The message names the first weight that is not finite."""
    if not bool(logits.isnan().any()):
        return
    names = (name for name, weight in model.named_parameters() if not bool(weight.isfinite().all()))
    name, place = next(names, None), getattr(model.config, "name_or_path", "")
    if name is not None:
        cause = f"some weights of {name} are NaN or infinite; load weights that are whole"
    elif model.dtype in _SHORT:
        cause = "they grow too large for its type; load it with dtype=torch.float32 or bfloat16"
    else:
        cause = "they grow too large; its weights or its configuration are damaged: fetch it again"
    raise ModelError(
        f"{place}{': ' if place else ''}{type(model).__name__} gives logits that are NaN where it reads its first few "
        f"tokens: {cause}"
    )
