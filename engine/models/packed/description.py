"""Decoders: a description of what one computes, and the weights that go with it, whatever these were read from.

A source (source.py has that of transformers' modules, gguf_files/network.py that of a file) gives both; a backend
(host.py, device.py, quantized.py) computes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import embedding

from ....kernels.decoder.plain import HeadNorms, Heads
from ....kernels.quantized.products import QuantizedMatrix
from ..blocks.reach import Reach


@dataclass(frozen=True)
class DecoderDescription:
    """A decoder of alike layers: norm, attention, norm, MLP, each of the two added to its input, and a last norm.

    layers: how many; vocabulary: how many tokens have an embedding
    hidden, inner: numbers of a token's state, and between the products of an MLP
    heads: of queries, and of keys and values, and the size of each; products of queries and keys are scaled by
        `heads.size ** -0.5`
    reaches: how far back each layer looks
    norm, norm_eps: RMS norms, or layer norms with biases, and what is added to mean squares or variances
    head_norms: whether RMS norms of queries and of keys follow their products
    positions: "rotary" turns the halves of queries and keys against each other, "learned" adds embeddings of positions
    gated: whether an MLP multiplies the activation of its gates with a second product (SwiGLU)
    activation: SiLU, or GELU in the form with tanh
    biases: the products that have biases, by the names of PRODUCTS
    tied_head: whether the head's weights are those of the embedding
    """

    layers: int
    vocabulary: int
    hidden: int
    inner: int
    heads: Heads
    reaches: tuple[Reach, ...]
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
        """Factor of the products of queries and keys."""
        return self.heads.size**-0.5

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """The shape [out, in] of each product of a layer, by its name."""
        asked, kept = self.heads.queries * self.heads.size, self.heads.keys * self.heads.size
        shapes = {"queries": (asked, self.hidden), "keys": (kept, self.hidden), "values": (kept, self.hidden)}
        shapes |= {"out": (self.hidden, asked), "up": (self.inner, self.hidden), "down": (self.hidden, self.inner)}
        return {**shapes, "gates": (self.inner, self.hidden)} if self.gated else shapes


class Norm(NamedTuple):
    """Weights [width] of a norm, and its bias if it is a layer norm."""

    weight: Tensor
    bias: Tensor | None


class LinearWeights(NamedTuple):
    """Weights [out, in], contiguous, and the bias [out], if there is one."""

    weight: Tensor
    bias: Tensor | None


class QuantizedProducts(NamedTuple):
    """Matrices that are multiplied with the same states, and the bias [out] of each, if it has one."""

    matrices: Sequence[QuantizedMatrix]
    biases: Sequence[Tensor | None]


Product = TypeVar("Product", LinearWeights, QuantizedProducts)


class Rotary(NamedTuple):
    """Frequencies [size / 2] by which heads are turned, and what cosines and sines are multiplied by."""

    frequencies: Tensor
    scaling: float


class LayerWeights(NamedTuple, Generic[Product]):
    """A layer's weights, those that are multiplied with the same states behind one another.

    attention: queries, keys and values
    up: what goes into the MLP; gates come first, if there are any
    """

    before: Norm
    attention: Product
    head_norms: HeadNorms | None
    out: Product
    after: Norm
    up: Product
    down: Product


class DecoderWeights(NamedTuple, Generic[Product]):
    """The weights of a decoder; `rotary` or `positions` [context, hidden], as its description says.

    embedding: [vocabulary, hidden], or what gives rows of one that is quantized
    """

    embedding: Tensor | Callable[[Tensor], Tensor]
    positions: Tensor | None
    rotary: Rotary | None
    layers: Sequence[LayerWeights[Product]]
    last: Norm

    def embedded(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Embeddings [n, hidden] of tokens [n] at these positions; in place of tokens there may be these already."""
        if ids.is_floating_point():
            return ids
        words = self.embedding
        states = embedding(ids, words) if isinstance(words, Tensor) else words(ids)
        if self.positions is not None:
            states += embedding(positions, self.positions)
        return states

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [n, size / 2] of tokens at these positions; [n, 0] where heads are not turned."""
        like = self.last.weight
        dtype = like.dtype
        if self.rotary is None:
            none = like.new_empty(len(positions), 0)
            return none, none
        turns = positions[:, None].float() * self.rotary.frequencies.float()
        return (turns.cos() * self.rotary.scaling).to(dtype), (turns.sin() * self.rotary.scaling).to(dtype)


@runtime_checkable
class Source(Protocol):
    """Source of a decoder's description and weights, which tells whether it is quantized and unchanged."""

    description: DecoderDescription
    weights: DecoderWeights[Any]

    @property
    def is_quantized(self) -> bool:
        """True if products have quantized weights, which all have then."""
        ...

    @property
    def is_intact(self) -> bool:
        """True if the weights are the same, and where they were. Waits for nothing on the device."""
        ...


DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
"""Of which weights may be."""
