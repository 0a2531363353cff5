"""Quantization of a model's linear layers and embedding to GGUF formats, and modules with the results."""

# torch is only partly typed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from ....errors import ModelError, OptionError
from ....kernels.quantized.formats import FORMATS, GROUP
from ....kernels.quantized.products import QuantizedMatrix
from .modules import QuantizedEmbedding, QuantizedLinear

KINDS: Mapping[str, tuple[str, str]] = {"q8": ("Q8_0", "Q8_0"), "q4": ("Q4_1", "Q8_0")}
"""Formats of linear layers in the body, and of embedding and head, by option."""
_FEWEST_ROWS = 32
"""Fewest outputs of a quantized layer. Smaller ones, such as gates of shared experts, save little memory, and their
errors affect whole layers."""
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_MAX_WEIGHT = 65_504.0
"""The largest finite float16, the type of scales and offsets."""
_LINEAR = (
    "torch.nn.modules.linear.Linear", "transformers.pytorch_utils.Conv1D",
    "transformers.models.falcon.modeling_falcon.FalconLinear",
)  # fmt: skip
_IS_TENSOR = re.compile(r"isinstance\(self\.\w+\.weight, torch\.Tensor\)")
_SOME = 1 << 20
"""Number of weights that a thread quantizes at a time."""


class QuantizedLayer(NamedTuple):
    """A layer with a quantized weight. tensor: the weight's name; kind: format; scale: factor of an embedding's rows"""

    tensor: str
    kind: str
    scale: float = 1.0


@dataclass(frozen=True)
class QuantizedWeights:
    """All weights of a model.

    tensors: by name; quantized ones are uint8 [rows, bytes of a row], others float32 if floating-point
    layers: modules with quantized weights by path; several may share a tensor
    names: tensor names of all other parameters and buffers by path
    """

    tensors: Mapping[str, Tensor]
    layers: Mapping[str, QuantizedLayer]
    names: Mapping[str, str]


def quantized(model: Any, form: str) -> QuantizedWeights:
    """Return the quantized weights of a model, without changes of the model. form: a key of KINDS

    Quantizes linear layers (also GPT-2's Conv1D), the token embedding and the head. Does not quantize layers of a width
    that is not a multiple of 32; layers with fewer than 32 outputs, or with one for each expert (routers); layers that
    the architecture keeps in float32; weights that other modules share or use directly; and all other parameters:
    norms, biases, convolutions, position embeddings, and experts as one three-dimensional parameter.
    Raises ModelError for weights that are not finite or too large, OptionError if no layer can be quantized.
    """
    body, ends = KINDS[form]
    chosen = _modules_to_quantize(model)
    if not chosen:
        raise OptionError(
            f"weights={form!r}: {type(model).__name__} has no linear layer or embedding that can be quantized; leave "
            "the option out"
        )
    ends_of = model.get_input_embeddings(), model.get_output_embeddings()
    at_ends = {id(getattr(end, "weight", None)) for end in ends_of}
    tensors: dict[str, Tensor] = {}
    layers: dict[str, QuantizedLayer] = {}
    known: dict[int, str] = {}
    for path, module in chosen.items():
        weight: Tensor = module.weight
        kind = ends if id(weight) in at_ends else body
        name = known.setdefault(id(weight), f"{path}.weight")
        if name not in tensors:
            tensors[name] = _quantize(weight.detach().T if isinstance(module, Conv1D) else weight.detach(), kind, name)
        layers[path] = QuantizedLayer(name, kind, _scale_of(module) or 1.0)
    names: dict[str, str] = {}
    for path, tensor in _tensors_of(model):
        owner, _, leaf = path.rpartition(".")
        if owner in chosen and (leaf != "bias" or isinstance(chosen[owner], nn.Embedding)):
            continue
        names[path] = known.setdefault(id(tensor), path)
        tensors.setdefault(names[path], _unquantized(tensor))
    return QuantizedWeights(tensors, layers, names)


def fill(model: Any, weights: QuantizedWeights) -> Any:
    """Put weights into a model of this architecture, with modules for quantized ones. Return the model.

    Raises ValueError, with the path, if weights do not fit or are missing.
    """
    matrices: dict[str, QuantizedMatrix] = {}
    for path, layer in weights.layers.items():
        module = model.get_submodule(path)
        if isinstance(module, (QuantizedLinear, QuantizedEmbedding)):  # a shared module that is replaced already
            continue
        parent, leaf = model.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2]
        matrix = matrices.setdefault(layer.tensor, _matrix(weights.tensors[layer.tensor], layer.kind))
        rows, width = reversed(module.weight.shape) if isinstance(module, Conv1D) else module.weight.shape
        if (len(matrix.data), matrix.width) != (rows, width):
            raise ValueError(f"{path} has weights of another size")
        if isinstance(module, nn.Embedding):
            replacement: nn.Module = QuantizedEmbedding(matrix, layer.scale)
        else:
            bias = None if module.bias is None else weights.tensors[weights.names[f"{path}.bias"]]
            replacement = QuantizedLinear(matrix, bias)
        setattr(parent, leaf, replacement)
    parameters: dict[str, nn.Parameter] = {}
    for path, tensor in list(_tensors_of(model)):
        name = weights.names.get(path)
        if name is None or weights.tensors[name].shape != tensor.shape:
            raise ValueError(f"{path} has no weights of its size")
        owner, leaf = model.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2]
        found = weights.tensors[name]
        if isinstance(tensor, nn.Parameter):
            found = parameters.setdefault(name, nn.Parameter(found, requires_grad=False))
        setattr(owner, leaf, found)
    return model.eval()


def _modules_to_quantize(model: Any) -> dict[str, Any]:
    """Return the modules to quantize by path, including those that share weights."""
    words, config = getattr(model.get_input_embeddings(), "weight", None), model.config.get_text_config()
    experts = {getattr(config, name, None) for name in _EXPERTS}
    lists = [getattr(model, name, None) or () for name in ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict")]
    excluded = [f".{name}." for name in chain(*lists)]
    found: dict[str, Any] = {}
    for path, module in _modules_of(model):
        if any(name in f".{path}.weight." for name in excluded):
            continue
        if f"{type(module).__module__}.{type(module).__name__}" in _LINEAR:
            rows, width = reversed(module.weight.shape) if isinstance(module, Conv1D) else module.weight.shape
            is_meant = rows >= _FEWEST_ROWS and rows not in experts and not _is_read(model, path)
        elif isinstance(module, nn.Embedding):
            width, is_meant = module.embedding_dim, module.weight is words and _scale_of(module) is not None
        else:
            continue
        if is_meant and width % GROUP == 0:
            found[path] = module
    owned = {id(module.weight) for module in found.values()}
    others = [
        id(tensor) for path, tensor in _tensors_of(model)
        if id(tensor) in owned and path.removesuffix(".weight") not in found
    ]  # fmt: skip
    return {path: module for path, module in found.items() if id(module.weight) not in others}


def _is_read(model: Any, path: str) -> bool:
    """Test whether the module that owns a layer uses the layer's weight for more than its dtype or shape."""
    owner, _, leaf = path.rpartition(".")
    holder: type[Any] = model.get_submodule(owner).__class__
    source = _source_of(holder)
    return source is None or re.search(rf"\.{leaf}\.weight\b(?!\.(dtype|shape)\b)", source) is not None


@cache
def _source_of(kind: type[Any]) -> str | None:
    """Return the source code of a module class; None if it has no file."""
    try:
        return _IS_TENSOR.sub("", inspect.getsource(kind))
    except (OSError, TypeError):
        return None


def _modules_of(model: Any) -> Iterator[tuple[str, Any]]:
    return model.named_modules(remove_duplicate=False)


def _tensors_of(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield all parameters and buffers by path, shared ones repeatedly."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _scale_of(module: Any) -> float | None:
    """Return the factor of an embedding's rows; None if the embedding computes more than a product with a factor."""
    if type(module) is nn.Embedding:
        return 1.0 if module.max_norm is None else None
    scale = getattr(module, "embed_scale", None)
    is_scaled = type(module).__name__.endswith("ScaledWordEmbedding") and len(list(module.parameters())) == 1
    return float(scale) if is_scaled and scale is not None else None


def _unquantized(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor to save without quantization, in float32 if it is floating-point."""
    found = tensor.detach()
    return (found.float() if found.is_floating_point() else found).contiguous()


def _quantize(weight: Tensor, kind: str, name: str) -> Tensor:
    """Quantize weights [rows, width] to uint8 [rows, bytes] in several threads. Raises ModelError."""
    library: Any = import_module("gguf")
    quantize, number = library.quants.quantize, library.GGMLQuantizationType[kind]
    rows, width = weight.shape
    out = np.empty((rows, FORMATS[kind].row_bytes(width)), np.uint8)
    step = max(1, _SOME // width)

    def convert(begin: int) -> None:
        some: NDArray[np.float32] = weight[begin : begin + step].float().contiguous().numpy()
        if not np.abs(some).max() < _MAX_WEIGHT:  # also True for NaN
            raise ModelError(
                f"{name} has weights that are infinite, NaN, or beyond {_MAX_WEIGHT:,}; fetch the model again"
            )
        out[begin : begin + step] = quantize(some, number)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(convert, range(0, rows, step)))
    return torch.as_tensor(out)


def _matrix(tensor: Tensor, kind: str) -> QuantizedMatrix:
    """Return the matrix of a tensor. Raises ValueError unless it has rows of this format."""
    form = FORMATS[kind]
    if tensor.dtype != torch.uint8 or tensor.ndim != 2 or tensor.shape[1] % form.size:
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} is none of {kind}")
    data = tensor.numpy()
    data.flags.writeable = False
    return QuantizedMatrix(kind, tensor.shape[1] // form.size * form.weights, data)
