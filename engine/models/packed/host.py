"""Described decoders on a CPU, by two kernels for each layer and attention, or by one kernel for a small step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....kernels.attention.paged import AttentionRows
from ....kernels.attention.stored import Stored, room_near
from ....kernels.decoder.layers import AttentionInputs, LayerStack, begin_layer, end_layer, normalise_rows, read_layers
from ....kernels.decoder.plain import Heads
from ....kernels.decoder.products import lanes_of, room_of
from ..blocks.attention import ScoreOptions, attend_layer, is_undivided
from ..blocks.step import DeviceStep, PackedStep
from ..blocks.storage import IN_PLACE
from .description import DecoderDescription, DecoderWeights, LayerWeights, LinearWeights

Reals = NDArray[Any]
_LARGE = 1 << 20
"""Number of MLP weights that justifies several threads."""
_FEW_THREADS = 2
_MUCH = 1 << 29
"""Most multiplications in one call, some 20 ms. Larger steps call kernels for each layer, and handle Ctrl-C between."""
_READ = 4
"""Time to read a weight, in multiplications."""


class _Layer(NamedTuple):
    """A layer's weights in kernel order; missing ones are empty."""

    norm: Reals
    norm_bias: Reals
    attention: Reals
    attention_bias: Reals
    query_norm: Reals
    key_norm: Reals
    out: Reals
    out_bias: Reals
    after: Reals
    after_bias: Reals
    up: Reals
    up_bias: Reals
    down: Reals
    down_bias: Reals


class HostKernels:
    """Decoders on a CPU, in float32 and float64, on one thread.

    In a small step, calling a kernel takes as long as the kernel, and another thread may take the GIL after each call.
    So one kernel computes all layers.

    On one thread the kernels are 2 to 8 times as fast as the body's own code for Llama's family, and 1.4 to 2.4 times
    for GPT-2 (hidden sizes 192 to 2,048). For large layers, torch on several threads is as fast or faster, so `takes`
    refuses them. The last bits of a token's states depend on the number of tokens in the step, see `few_of`.
    """

    def __init__(self, description: DecoderDescription, weights: DecoderWeights[LinearWeights]) -> None:
        self._description = description
        self._weights = weights
        # Kernels only have addresses of these arrays, so they must live until a step ends, even if weights move.
        self.arrays = [_arrays(layer) for layer in weights.layers]
        self._last = weights.last.arrays
        shapes = [(*array.shape, 1)[:2] for array in self.arrays[0]]
        tallest = max(len(array) for array in self.arrays[0] if array.ndim == 2)
        self._sizes = tallest, max(tallest, *(columns for _, columns in shapes))
        self._numbers = sum(array.size for layer in self.arrays for array in layer)
        self._stack = LayerStack(
            np.array([[array.ctypes.data for array in layer] for layer in self.arrays], np.int64),
            np.array(shapes, np.int64),
            np.full((len(self.arrays), 3), description.norm_eps),
        )

    @staticmethod
    def takes(description: DecoderDescription, weight: Tensor) -> bool:
        """Test whether kernels support the dtype, and are as fast on one thread as torch on its threads."""
        numbers = (3 if description.gated else 2) * description.hidden * description.inner
        has_threads = numbers > _LARGE and torch.get_num_threads() > _FEW_THREADS
        return weight.device.type == "cpu" and weight.dtype in IN_PLACE and not has_threads

    def read(self, ids: Tensor, positions: Tensor, step: PackedStep | DeviceStep) -> Tensor:
        """Compute `Backend.read`."""
        slots = step.places.on(positions.device)
        if isinstance(step, PackedStep) and self._is_small(step, len(ids)):
            return self._read_small(ids, positions, slots, step)
        residual = self._weights.embedded(ids, positions)
        cos, sin = (each.numpy() for each in self._weights.angles(positions))
        heads, eps, tokens = self._description.heads, self._description.norm_eps, len(residual)
        queries = residual.new_empty(tokens, heads.queries, heads.size)
        like = residual.new_empty(0, heads.keys, heads.size)
        written, inner, places = queries.numpy(), residual.numpy(), slots.numpy()
        room = self._make_buffers()
        for number, (arrays, layer) in enumerate(zip(self.arrays, step.layers, strict=True)):
            layer.allocate(like, like)
            assert layer.arrays is not None
            begin_layer(written, *layer.arrays, inner, places, cos, sin, *arrays[:2], eps, *arrays[2:6], eps, *room)
            mixed = attend_layer(step, number, queries, self._description.scale).numpy().reshape(tokens, -1)
            end_layer(inner, mixed, *arrays[6:10], eps, *arrays[10:], *room)
        normalise_rows(inner, inner, *self._last, eps)
        return residual

    def _read_small(self, ids: Tensor, positions: Tensor, slots: Tensor, step: PackedStep) -> Tensor:
        """Compute the states of a small step by the kernel of all layers, including attention."""
        residual = self._weights.embedded(ids, positions)
        inner, description = residual.numpy(), self._description
        heads = description.heads
        queries, mixed = np.empty((2, len(inner), heads.queries, heads.size), inner.dtype)
        scores = (
            step.scratch(0, heads.queries, inner.dtype) if step.short else np.empty((heads.queries, 0), inner.dtype)
        )
        settings = ScoreOptions(description.scale).settings(inner.dtype)
        cos, sin = (each.numpy() for each in self._weights.angles(positions))
        inputs, stored_room = attention_inputs(step, heads, residual, step.rows, step.long_rows)
        read_layers(
            inner, queries, mixed, slots.numpy(), cos, sin, self._stack, inputs, *self._last, description.norm_eps,
            settings, scores, stored_room[0], *self._make_buffers(),
        )  # fmt: skip
        return residual

    def _is_small(self, step: PackedStep, tokens: int) -> bool:
        if max(tokens, _READ) * self._numbers > _MUCH or step.uploaded is not None or step.mutual:
            return False
        return is_undivided(step, self._description.heads)

    def _make_buffers(self) -> tuple[Reals, Reals, Reals, Reals]:
        """Create a step's buffers, the last arguments of kernels. They are not shared: threads may share a model."""
        (tallest, widest), kind = self._sizes, self._last[0].dtype
        width, lanes = len(self._last[0]), lanes_of(kind)
        return np.empty((lanes, width), kind), np.empty((lanes, tallest), kind), *room_of(widest, tallest, kind)


def attention_inputs(
    step: PackedStep, heads: Heads, like: Tensor, short: AttentionRows, long: AttentionRows, threads: int = 1
) -> tuple[AttentionInputs, Stored]:
    """Allocate blocks. Return a step's inputs of attention, and `room_near`. like: a tensor of the states' dtype"""
    none = like.new_empty(0, heads.keys, heads.size)
    for layer in step.layers:
        layer.allocate(none, none)
    stored = [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in step.layers]
    arrays = step.layers[0].arrays
    assert arrays is not None
    inputs = AttentionInputs(np.array(stored, np.int64), np.array(arrays[0].shape, np.int64), step.limits, short, long)
    return inputs, room_near(arrays, threads)


def _arrays(layer: LayerWeights[LinearWeights]) -> _Layer:
    none = layer.before.weight.new_empty(0)
    heads = (None, None) if layer.head_norms is None else layer.head_norms[:2]
    tensors = (*layer.before, *layer.attention, *heads, *layer.out, *layer.after, *layer.up, *layer.down)
    return _Layer(*((none if tensor is None else tensor).numpy() for tensor in tensors))
