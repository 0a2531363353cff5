"""Which bodies are of the Llama family, to the last detail, and what they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ....kernels.decoder.plain import Heads

FAMILIES = ("Llama", "Mistral", "Ministral", "Qwen2", "Qwen3", "Cwm")
"""How the classes of such bodies begin; their layers differ in biases, norms of heads and windows only."""
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_STEADY = ("default", "linear", "llama3", "yarn")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CAPTURING = "transformers.utils.output_capturing"


class UnknownBodyError(Exception):
    """A body that is not, or no longer, of the Llama family."""


class Link(NamedTuple):
    """Where a part of a body hangs: `holder[name]` is `part`, a module, a parameter or a buffer."""

    holder: dict[str, Any]
    name: str
    part: Any


class Layer(NamedTuple):
    """The modules of a layer."""

    before: Any
    queries: nn.Linear
    keys: nn.Linear
    values: nn.Linear
    head_norms: tuple[Any, Any] | None
    out: nn.Linear
    after: Any
    gate: nn.Linear
    up: nn.Linear
    down: nn.Linear


class Structure(NamedTuple):
    """What a body is made of.

    links: all modules, parameters and buffers of it, as they are reached
    """

    embedding: nn.Embedding
    rotary: Any
    layers: Sequence[Layer]
    norm: Any
    heads: Heads
    links: Sequence[Link]


def structure_of(body: Any, config: Any) -> Structure:
    """Look through a body. Raises UnknownBodyError with the first thing that is not as in the Llama family."""
    family = type(body).__name__.removesuffix("Model")
    home = type(body).__module__
    need(family in FAMILIES and home.startswith("transformers."), type(body).__name__)
    need(not body.training, "training")
    found = Structure(
        module_of(body, "embed_tokens", nn.Embedding),
        part_of(body, "rotary_emb", home, f"{family}RotaryEmbedding"),
        [_layer(each, home, family) for each in children_of(body.layers, config.num_hidden_layers)],
        part_of(body, "norm", home, f"{family}RMSNorm"),
        _heads(body.layers[0].self_attn, config),
        list(links_of(body)),
    )
    need(found.embedding.max_norm is None, "max_norm of the embedding")
    for module in body.modules():
        check_calls(module)
    for number in range(len(found.layers)):
        need(_heads(body.layers[number].self_attn, config) == found.heads, "layers of several sizes")
    _check_rotary(found.rotary, config, found.heads)
    _check_sizes(found, config)
    check_parameters(body, found.embedding.weight)
    return found


def _layer(layer: Any, home: str, family: str) -> Layer:
    need(_is(layer, home, f"{family}DecoderLayer"), type(layer).__name__)
    attention = part_of(layer, "self_attn", home, f"{family}Attention")
    mlp = part_of(layer, "mlp", home, f"{family}MLP")
    norm = f"{family}RMSNorm"
    known = {"q_proj", "k_proj", "v_proj", "o_proj"}
    head_norms = None
    if family == "Qwen3":
        known |= {"q_norm", "k_norm"}
        head_norms = part_of(attention, "q_norm", home, norm), part_of(attention, "k_norm", home, norm)
    need({*layer._modules} == {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}, "parts of a layer")
    need({*attention._modules} == known, "parts of attention")
    need({*mlp._modules} == {"gate_proj", "up_proj", "down_proj", "act_fn"}, "parts of an MLP")
    need(type(mlp.act_fn).__name__ in ("SiLU", "SiLUActivation"), f"the activation {type(mlp.act_fn).__name__}")
    need(attention.is_causal, "attention that is not causal")
    return Layer(
        part_of(layer, "input_layernorm", home, norm),
        module_of(attention, "q_proj", nn.Linear),
        module_of(attention, "k_proj", nn.Linear),
        module_of(attention, "v_proj", nn.Linear),
        head_norms,
        module_of(attention, "o_proj", nn.Linear),
        part_of(layer, "post_attention_layernorm", home, norm),
        module_of(mlp, "gate_proj", nn.Linear),
        module_of(mlp, "up_proj", nn.Linear),
        module_of(mlp, "down_proj", nn.Linear),
    )


def _heads(attention: Any, config: Any) -> Heads:
    size: int = attention.head_dim
    need(attention.scaling == size**-0.5, "scaling of attention")
    need(size % 2 == 0, "heads of an odd size")
    return Heads(config.num_attention_heads, config.num_key_value_heads, size)


def _check_rotary(rotary: Any, config: Any, heads: Heads) -> None:
    given: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    kind = given.get("rope_type")
    need(kind in _STEADY and rotary.rope_type == kind, f"rotary embeddings of type {kind!r}")
    need(rotary.inv_freq.shape == (heads.size // 2,), "rotary embeddings of a part of a head")


def _check_sizes(found: Structure, config: Any) -> None:
    """Whether products fit together."""
    width: int = config.hidden_size
    asked, kept = found.heads.queries * found.heads.size, found.heads.keys * found.heads.size
    for layer in found.layers:
        inner = layer.gate.out_features
        shapes = {
            layer.queries: (asked, width),
            layer.keys: (kept, width),
            layer.values: (kept, width),
            layer.out: (width, asked),
            layer.gate: (inner, width),
            layer.up: (inner, width),
            layer.down: (width, inner),
        }
        for linear, shape in shapes.items():
            need(tuple(linear.weight.shape) == shape, f"a product of shape {tuple(linear.weight.shape)}")
        for together in ((layer.queries, layer.keys, layer.values), (layer.gate, layer.up)):
            biased = {getattr(linear, "bias", None) is not None for linear in together}
            need(len(biased) == 1, "biases of some of several products")


def check_parameters(body: Any, first: Any, turned: Sequence[Any] = ()) -> None:
    """Whether weights are plain tensors like the first, each with one owner among those that are laid side by side.

    turned: those that may lie in memory by columns
    """
    weights = list(body.parameters())
    by_columns = {id(weight) for weight in turned}
    need(first.dtype in DTYPES, f"weights of type {first.dtype}")
    for weight in weights:
        plain = type(weight) is nn.Parameter and type(weight.data) is Tensor and weight.layout == torch.strided
        need(plain and not weight.is_inference() and weight.device.type != "meta", "weights of another kind")
        need(weight.dtype == first.dtype and weight.device == first.device, "weights of several types or devices")
        whole = weight.is_contiguous() or (id(weight) in by_columns and weight.T.is_contiguous())
        need(whole, "weights that lie apart")
    owned = sum(len(module._parameters) - [*module._parameters.values()].count(None) for module in body.modules())
    need(owned == len(weights), "weights that modules share")


def check_calls(module: Any) -> None:
    """Whether calling a module is calling its class's `forward`, and nothing else."""
    need("forward" not in vars(module), "another forward")
    for name in _HOOKS:
        for hook in getattr(module, name).values():
            # transformers leaves these on modules; they do nothing unless a call asks for what they capture.
            need(getattr(hook, "__module__", None) == _CAPTURING, "hooks")


def links_of(module: Any) -> Iterator[Link]:
    """Where each module, parameter and buffer below one hangs."""
    for held in (module._parameters, module._buffers):
        for name, tensor in held.items():
            yield Link(held, name, tensor)
    for name, child in module._modules.items():
        yield Link(module._modules, name, child)
        yield from links_of(child)


def children_of(layers: Any, count: int) -> list[Any]:
    """The first layers of a list."""
    need(type(layers) is nn.ModuleList and len(layers) >= count, "layers")
    return list(layers)[:count]


def part_of(owner: Any, name: str, home: str, kind: str) -> Any:
    """A part of a module, of transformers' class of that name."""
    part = getattr(owner, name, None)
    need(_is(part, home, kind), f"{name}: {type(part).__name__}")
    return part


def module_of(owner: Any, name: str, kind: type[Any]) -> Any:
    """A part of a module, of just that class."""
    part = getattr(owner, name, None)
    need(type(part) is kind, f"{name}: {type(part).__name__}")
    return part


def _is(part: Any, home: str, kind: str) -> bool:
    return type(part).__module__ == home and type(part).__name__ == kind


def need(holds: bool, what: str) -> None:
    """Raise UnknownBodyError with what is wrong unless something holds."""
    if not holds:
        raise UnknownBodyError(what)
