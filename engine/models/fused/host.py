"""A fused decoder on a CPU: two kernels a layer, beside those of attention, and no call of a library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding

from ....kernels.decoder.layers import begin_layer, end_layer, normalise_rows
from ....kernels.decoder.products import lanes_of, room_of
from ....kernels.decoder.stacks import read_layers
from ..blocks.step import Step
from ..blocks.storage import IN_PLACE, LayerBlocks
from .at_once import AtOnce, Weights
from .decoder import FusedDecoder
from .prepared import Attend
from .weights import LayerWeights, norm_of

Reals = NDArray[Any]
_LARGE = 1 << 20
"""Numbers of an MLP whose products are worth several threads."""
_FEW_THREADS = 2


class _Room(NamedTuple):
    """What kernels compute in, for as many tokens as they multiply at once."""

    states: Reals
    product: Reals
    across: Reals
    sums: Reals


class _Before(NamedTuple):
    """What `begin_layer` takes of a layer's weights."""

    norm: Reals
    eps: float
    weight: Reals
    bias: Reals
    query_norm: Reals
    key_norm: Reals
    head_eps: float


class _After(NamedTuple):
    """What `end_layer` takes of a layer's weights."""

    out: Reals
    out_bias: Reals
    norm: Reals
    eps: float
    gates: Reals
    gates_bias: Reals
    down: Reals
    down_bias: Reals


def has_use_of_threads(numbers: int) -> bool:
    """Whether torch multiplies by so many numbers of an MLP faster, since it has several threads."""
    return numbers > _LARGE and torch.get_num_threads() > _FEW_THREADS


class HostDecoder(FusedDecoder):
    """Runs the stock layers of the Llama family on a CPU, in float32 and float64, on one thread.

    A step that takes little is one kernel, see `AtOnce`; others are two a layer, beside those of attention.

    Measured with one thread, against the body's own code on one thread, layers of 192 to 2,048 states: 2 to 8 times as
    fast. Where torch has several threads they make up for that in large layers; so those are left to it.

    A token's states depend in their last bits on whether many tokens are read at once or few, see `few_of`.
    """

    @classmethod
    def of(cls, body: Any, config: Any) -> Self | None:
        """A decoder as `PreparedBody.of` has it, where one thread is as fast as torch's are."""
        sizes: list[Any] = [getattr(config, name, None) for name in ("hidden_size", "intermediate_size")]
        # Configurations of other layers may have a number for each, or none.
        large = all(isinstance(size, int) for size in sizes) and has_use_of_threads(3 * math.prod(sizes))
        return None if large else super().of(body, config)

    @torch.no_grad()
    def run_at_once(self, ids: Tensor, positions: Tensor, slots: Tensor, step: Step) -> Tensor | None:
        """As `PreparedBody.run_at_once` says."""
        at_once = self._at_once
        if not at_once.takes(step, len(ids)):
            return None
        residual = embedding(ids, self._structure.embedding.weight)
        places = slots, *self._angles(positions, residual.dtype)
        return at_once.read(read_layers, residual, places, step, self._last, self.scale, self._room())

    def _states(
        self,
        residual: Tensor,
        angles: tuple[Tensor, Tensor],
        slots: Tensor,
        layers: Sequence[LayerBlocks],
        attend: Attend,
    ) -> Tensor:
        tokens, heads = len(residual), self.heads
        queries = residual.new_empty(tokens, heads.queries, heads.size)
        like = residual.new_empty(0, heads.keys, heads.size)
        written, inner, places = queries.numpy(), residual.numpy(), slots.numpy()
        cos, sin = angles[0].numpy(), angles[1].numpy()
        room = self._room()
        for number, ((before, after), layer) in enumerate(zip(self._arrays, layers, strict=True)):
            layer.allocate(like, like)
            assert layer.arrays is not None
            begin_layer(written, *layer.arrays, inner, places, cos, sin, *before, *room)
            mixed = attend(number, queries).numpy().reshape(tokens, -1)
            end_layer(inner, mixed, *after, *room)
        normalise_rows(inner, inner, self._last[0], self._last[1])
        return residual

    def _arrange(self) -> bool:
        if self._body.device.type != "cpu" or self._body.dtype not in IN_PLACE or not super()._arrange():
            return False
        self._arrays = [_arrays(own) for own in self._weights]
        shapes = [product.weight.shape for own in self._weights for product in (own.attention, own.gates, own.out)]
        width, tallest = self._weights[0].out.weight.shape[0], max(count for count, _ in shapes)
        self._sizes = width, tallest, max(width, tallest // 2, *(each for _, each in shapes))
        last = norm_of(self._structure.norm)
        self._last: tuple[Reals, float] = last.weight.numpy(), last.eps
        self._at_once = AtOnce([_weights(*both) for both in self._arrays], self.heads)
        return True

    def _room(self) -> _Room:
        """Room for the largest of the layers; of this step alone, since several threads may run one model."""
        (width, tallest, widest), kind = self._sizes, self._last[0].dtype
        lanes = lanes_of(kind)
        return _Room(np.empty((lanes, width), kind), np.empty((lanes, tallest), kind), *room_of(widest, tallest, kind))


def _arrays(own: LayerWeights) -> tuple[_Before, _After]:
    """A layer's weights as the first kernel takes them, and the second."""
    none = own.before.weight.new_empty(0)

    def array(tensor: Tensor | None) -> Reals:
        return (none if tensor is None else tensor).numpy()

    queries, keys, eps = (None, None, 0.0) if own.head_norms is None else own.head_norms
    before = _Before(
        array(own.before.weight), own.before.eps, array(own.attention.weight), array(own.attention.bias),
        array(queries), array(keys), eps,
    )  # fmt: skip
    after = _After(
        array(own.out.weight), array(own.out.bias), array(own.after.weight), own.after.eps,
        array(own.gates.weight), array(own.gates.bias), array(own.down.weight), array(own.down.bias),
    )  # fmt: skip
    return before, after


def _weights(before: _Before, after: _After) -> Weights:
    """A layer's weights as `read_layers` takes them."""
    return Weights(
        [before.norm, before.weight, before.bias, before.query_norm, before.key_norm,
         after.out, after.out_bias, after.norm, after.gates, after.gates_bias, after.down, after.down_bias],
        (before.eps, after.eps, before.head_eps),
    )  # fmt: skip
