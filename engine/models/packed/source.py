"""Weights of a decoder in transformers' modules: checks against the description, layout for kernels, changes."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from ....kernels.decoder.plain import HeadNorms
from ...memory.weights import ModuleLinks
from ..modules import epsilon_of
from ..quantized.modules import QuantizedEmbedding, QuantizedLinear
from ..stock import strangeness_of
from .architectures import DecoderArchitecture, ModuleSpec, NotDescribedError, architecture_of
from .description import (
    DTYPES,
    DecoderDescription,
    DecoderWeights,
    LayerWeights,
    LinearWeights,
    Norm,
    QuantizedProducts,
    Rotary,
)

_locks: WeakKeyDictionary[Any, RLock] = WeakKeyDictionary()
_ALONE = ("before", "after", "last")
_JOINED = {"attention": ("queries", "keys", "values"), "up": ("gates", "up")}


class ModuleSource:
    """Weights of a transformers body, in the layout of kernels.

    The modules' parameters become views of them, so memory is not doubled, and in-place changes of parameters
    (`load_state_dict`, an optimiser) take effect. `is_intact` detects new parameters (`to`, `deepcopy`), and replaced
    modules and buffers, but not hooks registered later.
    Raises NotDescribedError unless the body matches the description of its configuration exactly.
    """

    def __init__(self, body: Any, config: Any) -> None:
        with _locks.setdefault(body, RLock()):
            architecture = architecture_of(config)
            self.description: DecoderDescription = architecture.describe(config)
            found, layers = _parts_of(body, architecture, self.description.layers)
            _check(body, found, layers, self.description)
            self.weights: DecoderWeights[Any] = _weights_of(found, layers, self.description)
            self._links = ModuleLinks(body)
            self._parameters = list(body.parameters())
            self._places = [parameter.data_ptr() for parameter in self._parameters]

    @property
    def is_quantized(self) -> bool:
        """True if all products have quantized weights."""
        return isinstance(self.weights.layers[0].out, QuantizedProducts)

    @property
    def is_intact(self) -> bool:
        """True if no module, parameter or buffer was replaced or moved. Does not synchronise with the device."""
        return self._links.are_intact and [parameter.data_ptr() for parameter in self._parameters] == self._places


Roles = dict[str, Any]
"""Modules by role."""


def _parts_of(body: Any, expected: DecoderArchitecture, count: int) -> tuple[Roles, list[Roles]]:
    """Return the modules by role of a body, and of each of its first `count` layers. Raises NotDescribedError."""
    home, found = type(body).__module__, Roles()
    _require(home.startswith("transformers."), f"a body of {home}")
    _match(body, expected.body, home, "", found)
    _require(len(found["layers"]) >= count, "too few layers")
    layers = [Roles() for _ in range(count)]
    for number, (layer, roles) in enumerate(zip(found["layers"], layers, strict=False)):
        _match(layer, expected.layer, home, f"layer {number}", roles)
    return found, layers


def _match(module: Any, part: ModuleSpec, home: str, path: str, found: Roles) -> None:
    """Check a module and its submodules, except layers, against a spec. Add them to `found` by role.

    Raises NotDescribedError. home: the body's Python module; path: of the module
    """
    kind = f"{type(module).__module__}.{type(module).__qualname__}"
    kinds = [home + name if name.startswith(".") else name for name in part.kinds]
    _require(kind in kinds, f"{path}: {type(module).__name__}")
    strange = strangeness_of(module)
    _require(strange is None, f"{path}: {strange}")
    for name, value in part.attributes.items():
        _require(getattr(module, name, None) == value, f"{path}: {name}")
    if part.role:
        found[part.role] = module
    if part.role == "layers":
        return
    children: dict[str, Any] = dict(module.named_children())
    _require(children.keys() == part.parts.keys(), f"parts of {path or 'the body'}")
    for name, inner in part.parts.items():
        _match(children[name], inner, home, f"{path} {name}".strip(), found)


def _check(body: Any, found: Roles, layers: Sequence[Roles], description: DecoderDescription) -> None:
    """Raise NotDescribedError unless modules and weights match the description."""
    _require(not any(module.training for module in body.modules()), "training")
    for number, parts in enumerate(layers):
        attention = parts["attention"]
        _require(attention.head_dim == description.heads.size, f"layer {number}: heads of another size")
        _require(attention.scaling == description.scale, f"layer {number}: scaling of attention")
        for name, (count, width) in _products_of(parts, description).items():
            weight, bias = _by_rows(parts[name]), parts[name].bias
            _require(tuple(weight.shape) == (count, width), f"layer {number}: {name} of shape {tuple(weight.shape)}")
            has_bias = name in description.biases or name == "queries_keys_values"
            _require((bias is not None) == has_bias, f"layer {number}: biases of {name}")
            _require(bias is None or tuple(bias.shape) == (count,), f"layer {number}: a bias of {name}")
    owners: list[Roles] = [found, *layers]
    norms = [(parts[name], description.hidden) for parts in owners for name in _ALONE if name in parts]
    sizes = ("query_norm", "key_norm") if description.head_norms else ()
    norms += [(parts[name], description.heads.size) for parts in layers for name in sizes]
    for norm, width in norms:
        biased, eps, norm_bias = description.norm == "layer", epsilon_of(norm), getattr(norm, "bias", None)
        _require(norm.weight is not None and tuple(norm.weight.shape) == (width,), "a norm of another size")
        _require((norm_bias is not None) == biased and eps == description.norm_eps, "a norm of another kind")
    words = found["embedding"].weight
    _require(words.shape[1] == description.hidden, "embeddings of another size")
    _require(getattr(found["embedding"], "scale", 1.0) == 1.0, "embeddings that are scaled")
    if description.positions == "learned":
        _require(found["positions"].weight.shape[1] == description.hidden, "embeddings of several sizes")
    else:
        rotary = found["rotary"]
        _require(rotary.rope_type == rotary.config.rope_parameters["rope_type"], "rotary embeddings of another type")
        _require(rotary.inv_freq.shape == (description.heads.size // 2,), "rotary embeddings of a part of a head")
    products = [
        isinstance(parts[name], QuantizedLinear) for parts in layers for name in _products_of(parts, description)
    ]
    _require(all(products) or not any(products), "products of which some are quantized")
    _check_parameters(body, words)


def _products_of(parts: Roles, description: DecoderDescription) -> dict[str, tuple[int, int]]:
    """Return shapes [out, in] of products by role. GPT-2 has one product for queries, keys and values."""
    shapes = description.products
    if "queries_keys_values" not in parts:
        return shapes
    joined = [shapes.pop(name) for name in _JOINED["attention"]]
    return {**shapes, "queries_keys_values": (sum(count for count, _ in joined), description.hidden)}


def _check_parameters(body: Any, first: Any) -> None:
    """Raise NotDescribedError unless weights are plain tensors of one dtype and device, each owned by one module."""
    weights = list(body.parameters())
    turned = {id(each.weight) for each in body.modules() if isinstance(each, Conv1D)}
    _require(first.dtype in DTYPES, f"weights of type {first.dtype}")
    for weight in weights:
        plain = type(weight) is nn.Parameter and type(weight.data) is Tensor and weight.layout == torch.strided
        _require(plain and not weight.is_inference() and weight.device.type != "meta", "weights of another kind")
        _require(weight.dtype == first.dtype and weight.device == first.device, "weights of several types or devices")
        is_dense = weight.is_contiguous() or (id(weight) in turned and weight.T.is_contiguous())
        _require(is_dense, "weights that lie apart")
    owned = sum(1 for module in body.modules() for _ in module.named_parameters(recurse=False, remove_duplicate=False))
    _require(owned == len(weights), "weights that modules share")


def _weights_of(found: Roles, layers: Sequence[Roles], description: DecoderDescription) -> DecoderWeights[Any]:
    """Return the weights of modules. Weights of products with the same states become views of one tensor."""
    learned, rotary, words = found.get("positions"), found.get("rotary"), found["embedding"]
    return DecoderWeights(
        words if isinstance(words, QuantizedEmbedding) else words.weight.data,
        None if learned is None else learned.weight.data,
        None if rotary is None else Rotary(rotary.inv_freq, rotary.attention_scaling),
        [_layer_of(parts, description.norm_eps) for parts in layers],
        _norm_of(found["last"]),
    )


def _layer_of(parts: Roles, eps: float) -> LayerWeights[Any]:
    norms = None
    if "query_norm" in parts:
        norms = HeadNorms(parts["query_norm"].weight.data, parts["key_norm"].weight.data, eps)
    together = "queries_keys_values" in parts
    return LayerWeights(
        _norm_of(parts["before"]),
        _product_of([parts[name] for name in (("queries_keys_values",) if together else _JOINED["attention"])]),
        norms,
        _product_of([parts["out"]]),
        _norm_of(parts["after"]),
        _product_of([parts[name] for name in _JOINED["up"] if name in parts]),
        _product_of([parts["down"]]),
    )


def _norm_of(module: Any) -> Norm:
    bias: Any = getattr(module, "bias", None)
    return Norm(module.weight.data, None if bias is None else bias.data)


def _product_of(modules: Sequence[Any]) -> Any:
    """Return the weights of products with the same states: `LinearWeights` or `QuantizedProducts`."""
    if isinstance(modules[0], QuantizedLinear):
        biases = [None if module.bias is None else module.bias.data for module in modules]
        return QuantizedProducts([module.matrix for module in modules], biases)
    if len(modules) == 1:
        _lay_by_rows(modules[0])
        bias: Any = modules[0].bias
        return LinearWeights(_by_rows(modules[0]).data, None if bias is None else bias.data)
    weight = _join([module.weight for module in modules])
    return LinearWeights(weight, None if modules[0].bias is None else _join([module.bias for module in modules]))


def _by_rows(module: Any) -> Tensor:
    """Return weights [out, in]."""
    return module.weight.T if isinstance(module, Conv1D) else module.weight


def _lay_by_rows(module: Any) -> None:
    """Transpose weights stored as [in, out]; the parameter becomes a view of the result."""
    weight: Any = module.weight
    if not _by_rows(module).is_contiguous():
        # Tensors created in inference mode cannot be trained.
        with torch.inference_mode(False), torch.no_grad():
            weight.data = weight.data.T.contiguous().T


def _join(parts: Sequence[Any]) -> Tensor:
    """Concatenate parameters to one tensor [total, ...]; they become views of it.

    Parameters that are adjacent in one storage stay there, so that a model can be wrapped twice.
    """
    first: Tensor = parts[0].data
    shape = (sum(len(part) for part in parts), *first.shape[1:])
    at = first.data_ptr()
    for part in parts:
        if part.data_ptr() != at or part.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
            break
        at += part.nbytes
    else:
        return first.as_strided(shape, first.stride())
    with torch.inference_mode(False), torch.no_grad():  # as above
        joined = torch.cat([part.data for part in parts])
        end = 0
        for part in parts:
            begin, end = end, end + len(part)
            part.data = joined[begin:end]
    return joined


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise NotDescribedError(what)
