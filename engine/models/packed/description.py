"""Descriptions of decoders' computation, and their weights, independent of the weights' source.

Sources provide both (source.py from modules of transformers, gguf_files/network.py from a file). Backends compute with
them (host.py, device.py, quantized.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding

from ....kernels.decoder.plain import HeadNorms, Heads
from ....kernels.quantized.products import QuantizedMatrix
from ..blocks.reach import AttentionSpan


@dataclass(frozen=True)
class DecoderDescription:
    """Description of a decoder of uniform layers: norm, attention, norm, MLP, with residual connections; a last norm.

    layers: number of layers; vocabulary: number of embeddings
    hidden, inner: sizes of hidden states and of the MLP
    heads: numbers of query heads and of key-value heads, and the size of each; attention scores are scaled by
        `heads.size ** -0.5`
    reaches: attention span of each layer
    norm, norm_eps: "rms" for RMS norms, "layer" for layer norms with biases; their epsilon
    head_norms: True if queries and keys have an RMS norm of each head
    positions: "rotary" for rotary embeddings of halves, "learned" for position embeddings
    gated: True for a gated MLP (SwiGLU)
    activation: SiLU, or GELU with the tanh approximation
    biases: names in `products` of the products with biases
    tied_head: True if the head shares the embedding's weights
    """

    layers: int
    vocabulary: int
    hidden: int
    inner: int
    heads: Heads
    reaches: tuple[AttentionSpan, ...]
    norm: Literal["rms", "layer"]
    norm_eps: float
    head_norms: bool
    positions: Literal["rotary", "learned"]
    gated: bool
    activation: Literal["silu", "gelu_tanh"]
    biases: frozenset[str]
    tied_head: bool

    @property
    def scale(self) -> float:
        """Factor of attention scores."""
        return self.heads.size**-0.5

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """Shapes [out, in] of a layer's products by name."""
        queries, keys = self.heads.queries * self.heads.size, self.heads.keys * self.heads.size
        shapes = {"queries": (queries, self.hidden), "keys": (keys, self.hidden), "values": (keys, self.hidden)}
        shapes |= {"out": (self.hidden, queries), "up": (self.inner, self.hidden), "down": (self.hidden, self.inner)}
        return {**shapes, "gates": (self.inner, self.hidden)} if self.gated else shapes


class Norm(NamedTuple):
    """Weights [width] of a norm, and the bias of a layer norm."""

    weight: Tensor
    bias: Tensor | None

    @property
    def arrays(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Weights and bias in memory; a missing bias is empty."""
        return self.weight.numpy(), (self.weight.new_empty(0) if self.bias is None else self.bias).numpy()


class LinearWeights(NamedTuple):
    """Contiguous weights [out, in], and an optional bias [out]."""

    weight: Tensor
    bias: Tensor | None


class QuantizedProducts(NamedTuple):
    """Quantized matrices of products with the same states, and an optional bias [out] of each."""

    matrices: Sequence[QuantizedMatrix]
    biases: Sequence[Tensor | None]


Product = TypeVar("Product", LinearWeights, QuantizedProducts)


class Rotary(NamedTuple):
    """Rotary frequencies [size / 2], and the factor of cosines and sines."""

    frequencies: Tensor
    scaling: float


class LayerWeights(NamedTuple, Generic[Product]):
    """A layer's weights. Matrices of products with the same states are concatenated.

    attention: queries, keys and values
    up: gates, if there are any, and up projection
    """

    before: Norm
    attention: Product
    head_norms: HeadNorms | None
    out: Product
    after: Norm
    up: Product
    down: Product


class DecoderWeights(NamedTuple, Generic[Product]):
    """The weights of a decoder, with either `rotary` or `positions` [context, hidden].

    embedding: [vocabulary, hidden], or a function that unpacks rows of a quantized one
    """

    embedding: Tensor | Callable[[Tensor], Tensor]
    positions: Tensor | None
    rotary: Rotary | None
    layers: Sequence[LayerWeights[Product]]
    last: Norm

    def embedded(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Return embeddings [n, hidden] of tokens [n] at positions. Floating-point ids are embeddings already."""
        if ids.is_floating_point():
            return ids
        words = self.embedding
        states = embedding(ids, words) if isinstance(words, Tensor) else words(ids)
        if self.positions is not None:
            states += embedding(positions, self.positions)
        return states

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [n, size / 2] of positions; [n, 0] without rotary embeddings."""
        like = self.last.weight
        dtype = like.dtype
        if self.rotary is None:
            none = like.new_empty(len(positions), 0)
            return none, none
        turns = positions[:, None].float() * self.rotary.frequencies.float()
        return (turns.cos() * self.rotary.scaling).to(dtype), (turns.sin() * self.rotary.scaling).to(dtype)


@runtime_checkable
class DecoderSource(Protocol):
    """A source of a decoder's description and weights."""

    description: DecoderDescription
    weights: DecoderWeights[Any]

    @property
    def is_quantized(self) -> bool:
        """True if all products have quantized weights."""
        ...

    @property
    def is_intact(self) -> bool:
        """True if no weight was replaced or moved. Does not synchronise with the device."""
        ...


DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
"""Supported dtypes of weights."""
