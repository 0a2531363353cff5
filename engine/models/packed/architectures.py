"""Described decoders of transformers: their modules and descriptions by configuration type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....kernels.decoder.plain import Heads
from ..blocks.reach import layer_reaches
from ..quantized.modules import QuantizedEmbedding, QuantizedLinear
from .description import DecoderDescription

LINEAR = (
    "torch.nn.modules.linear.Linear",
    f"{QuantizedLinear.__module__}.{QuantizedLinear.__qualname__}",
)
EMBEDDING = (
    "torch.nn.modules.sparse.Embedding",
    f"{QuantizedEmbedding.__module__}.{QuantizedEmbedding.__qualname__}",
)
_CONV = "transformers.pytorch_utils.Conv1D"
"""Class of GPT-2's linear layers, with weights [in, out]."""
_LIST, _DROPOUT = "torch.nn.modules.container.ModuleList", "torch.nn.modules.dropout.Dropout"
_LAYER_NORM = "torch.nn.modules.normalization.LayerNorm"
_SILU = ("torch.nn.modules.activation.SiLU", "transformers.activations.SiLUActivation")
_GELU_TANH = ("transformers.activations.NewGELUActivation", "transformers.activations.GELUTanh")
_STEADY = ("default", "linear", "llama3", "yarn")
"""Types of rotary scaling that do not depend on the text's length."""
_ATTENTION = frozenset({"queries", "keys", "values", "out"})
_MLP = frozenset({"gates", "up", "down"})
_NONE: frozenset[str] = frozenset()


class NotDescribedError(Exception):
    """Raised for a configuration without a description, and for modules that differ from their description."""


@dataclass(frozen=True)
class ModuleSpec:
    """Expected structure of a module.

    kinds: full names of allowed classes; a name that begins with a dot is in the body's own file
    role: a name of `DecoderDescription.products`, of a norm or an embedding; "" for modules without computation
    parts: all submodules by name, except the elements of a list
    attributes: required attribute values
    """

    kinds: tuple[str, ...]
    role: str = ""
    parts: Mapping[str, ModuleSpec] = field(default_factory=dict[str, "ModuleSpec"])
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class DecoderArchitecture:
    """A decoder of transformers. `describe` raises NotDescribedError for a configuration.

    layer: structure of each element of the body's module list
    network: class, in the body's own file, of the body with a plain linear head
    """

    body: ModuleSpec
    layer: ModuleSpec
    network: str
    describe: Callable[[Any], DecoderDescription]


def _llama(
    name: str, attention: Callable[[Any], frozenset[str]], mlp: Callable[[Any], bool], *, head_norms: bool = False
) -> DecoderArchitecture:
    """Return an architecture of Llama's family.

    attention: returns the products of attention with biases; mlp: returns True for biases of the MLP's products
    """
    norm = (f".{name}RMSNorm",)
    heads = {"q_norm": ModuleSpec(norm, "query_norm"), "k_norm": ModuleSpec(norm, "key_norm")} if head_norms else {}
    mixer = {
        "q_proj": ModuleSpec(LINEAR, "queries"), "k_proj": ModuleSpec(LINEAR, "keys"),
        "v_proj": ModuleSpec(LINEAR, "values"), "o_proj": ModuleSpec(LINEAR, "out"), **heads,
    }  # fmt: skip
    inner = {
        "gate_proj": ModuleSpec(LINEAR, "gates"), "up_proj": ModuleSpec(LINEAR, "up"),
        "down_proj": ModuleSpec(LINEAR, "down"), "act_fn": ModuleSpec(_SILU),
    }  # fmt: skip
    layer = {
        "self_attn": ModuleSpec((f".{name}Attention",), "attention", mixer, {"is_causal": True}),
        "mlp": ModuleSpec((f".{name}MLP",), parts=inner),
        "input_layernorm": ModuleSpec(norm, "before"),
        "post_attention_layernorm": ModuleSpec(norm, "after"),
    }
    body = {
        "embed_tokens": ModuleSpec(EMBEDDING, "embedding", attributes={"max_norm": None}),
        "layers": ModuleSpec((_LIST,), "layers"),
        "norm": ModuleSpec(norm, "last"),
        "rotary_emb": ModuleSpec((f".{name}RotaryEmbedding",), "rotary"),
    }

    def describe(config: Any) -> DecoderDescription:
        rotary: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
        if rotary.get("rope_type") not in _STEADY:
            raise NotDescribedError(f"rotary embeddings of type {rotary.get('rope_type')!r}")
        size: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        if size % 2 or config.num_attention_heads % config.num_key_value_heads:
            raise NotDescribedError("heads of an odd size, or that do not share keys and values evenly")
        inner: Any = config.intermediate_size
        return DecoderDescription(
            layers=config.num_hidden_layers, vocabulary=config.vocab_size, hidden=config.hidden_size,
            inner=inner if isinstance(inner, int) else max(inner),
            heads=Heads(config.num_attention_heads, config.num_key_value_heads, size),
            reaches=tuple(layer_reaches(config)), norm="rms", norm_eps=config.rms_norm_eps, head_norms=head_norms,
            positions="rotary", gated=True, activation="silu",
            biases=attention(config) | (_MLP if mlp(config) else _NONE),
            tied_head=bool(config.tie_word_embeddings),
        )  # fmt: skip

    model, block = ModuleSpec((f".{name}Model",), parts=body), ModuleSpec((f".{name}DecoderLayer",), parts=layer)
    return DecoderArchitecture(model, block, f"{name}ForCausalLM", describe)


def _gpt2() -> DecoderArchitecture:
    says = {"is_causal": True, "is_cross_attention": False, "reorder_and_upcast_attn": False}
    mixer = {"c_attn": ModuleSpec((_CONV,), "queries_keys_values"), "c_proj": ModuleSpec((_CONV,), "out")}
    dropouts = {"attn_dropout": ModuleSpec((_DROPOUT,)), "resid_dropout": ModuleSpec((_DROPOUT,))}
    inner = {"c_fc": ModuleSpec((_CONV,), "up"), "c_proj": ModuleSpec((_CONV,), "down")}
    layer = {
        "ln_1": ModuleSpec((_LAYER_NORM,), "before"),
        "attn": ModuleSpec((".GPT2Attention",), "attention", {**mixer, **dropouts}, says),
        "ln_2": ModuleSpec((_LAYER_NORM,), "after"),
        "mlp": ModuleSpec(
            (".GPT2MLP",), parts={**inner, "act": ModuleSpec(_GELU_TANH), "dropout": ModuleSpec((_DROPOUT,))}
        ),
    }
    body = {
        "wte": ModuleSpec(EMBEDDING, "embedding", attributes={"max_norm": None}),
        "wpe": ModuleSpec(EMBEDDING, "positions", attributes={"max_norm": None}),
        "drop": ModuleSpec((_DROPOUT,)),
        "h": ModuleSpec((_LIST,), "layers"),
        "ln_f": ModuleSpec((_LAYER_NORM,), "last"),
    }

    def describe(config: Any) -> DecoderDescription:
        width, count = config.hidden_size, config.num_attention_heads
        return DecoderDescription(
            layers=config.num_hidden_layers, vocabulary=config.vocab_size, hidden=width,
            inner=config.n_inner or 4 * width, heads=Heads(count, count, width // count),
            reaches=tuple(layer_reaches(config)), norm="layer", norm_eps=config.layer_norm_epsilon, head_norms=False,
            positions="learned", gated=False, activation="gelu_tanh", biases=_ATTENTION | {"up", "down"},
            tied_head=bool(config.tie_word_embeddings),
        )  # fmt: skip

    model, block = ModuleSpec((".GPT2Model",), parts=body), ModuleSpec((".GPT2Block",), parts=layer)
    return DecoderArchitecture(model, block, "GPT2LMHeadModel", describe)


def _attention_biases(config: Any) -> frozenset[str]:
    return _ATTENTION if config.attention_bias else _NONE


def _no_biases(config: Any) -> frozenset[str]:
    return _NONE


_LLAMA = _llama("Llama", _attention_biases, lambda config: config.mlp_bias)
ARCHITECTURES: Mapping[str, DecoderArchitecture] = {
    "llama": _LLAMA,
    "internlm3": _LLAMA,
    "iquestcoder": _LLAMA,
    "mistral": _llama("Mistral", _no_biases, lambda config: False),
    "ministral": _llama("Ministral", _no_biases, lambda config: False),
    "qwen2": _llama("Qwen2", lambda config: _ATTENTION - {"out"}, lambda config: False),
    "qwen3": _llama("Qwen3", _attention_biases, lambda config: False, head_norms=True),
    "cwm": _llama("Cwm", _no_biases, lambda config: config.mlp_bias),
    "gpt2": _gpt2(),
}
"""By `model_type` of a configuration."""


def architecture_of(config: Any) -> DecoderArchitecture:
    """Return the architecture of a configuration. Raises NotDescribedError."""
    found = ARCHITECTURES.get(config.model_type)
    if found is None:
        raise NotDescribedError(f"the architecture {config.model_type!r}")
    return found
