"""The weights of a layer, those that are multiplied with the same states behind one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....kernels.decoder.plain import HeadNorms
from .structure import Layer


class Norm(NamedTuple):
    """Weights [hidden] of an RMS norm, and what is added to mean squares."""

    weight: Tensor
    eps: float


class Product(NamedTuple):
    """Weights [out, in] and the bias [out], if there is one."""

    weight: Tensor
    bias: Tensor | None


class LayerWeights(NamedTuple):
    """What a layer is computed with; `attention` gives queries, keys and values, `gates` what SwiGLU takes."""

    before: Norm
    attention: Product
    head_norms: HeadNorms | None
    out: Product
    after: Norm
    gates: Product
    down: Product


def weights_of(layer: Layer) -> LayerWeights:
    """The weights of a layer; those of several modules become views of one tensor, unless they are already."""
    norms = None
    if layer.head_norms is not None:
        queries, keys = layer.head_norms
        norms = HeadNorms(queries.weight.data, keys.weight.data, queries.variance_epsilon)
    return LayerWeights(
        norm_of(layer.before),
        _product([layer.queries, layer.keys, layer.values]),
        norms,
        _product([layer.out]),
        norm_of(layer.after),
        _product([layer.gate, layer.up]),
        _product([layer.down]),
    )


def norm_of(module: Any) -> Norm:
    """The weights of a module."""
    return Norm(module.weight.data, module.variance_epsilon)


def _product(linears: Sequence[Any]) -> Product:
    weight = _joined([linear.weight for linear in linears])
    return Product(weight, None if linears[0].bias is None else _joined([linear.bias for linear in linears]))


def _joined(parts: Sequence[Any]) -> Tensor:
    """Parameters as one tensor [all of them, ...], of which they are views from now on.

    Where they lie behind one another already nothing is done: a model can be wrapped twice, copied and loaded again.
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
    # A tensor made in inference mode could never again be trained.
    with torch.inference_mode(False), torch.no_grad():
        whole = torch.cat([part.data for part in parts])
        end = 0
        for part in parts:
            begin, end = end, end + len(part)
            part.data = whole[begin:end]
    return whole
