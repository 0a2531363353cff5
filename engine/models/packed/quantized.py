"""Described decoders with weights in GGUF formats on a CPU. A call runs several layers on several threads."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from ....errors import ModelError
from ....kernels.quantized.barrier import GIVEN_UP
from ....kernels.quantized.formats import GROUP
from ....kernels.quantized.layers import GATES, UP, VALUES, QuantizedBuffers, QuantizedStack, read_quantized_layers
from ....kernels.quantized.products import QuantizedMatrix
from ..blocks.attention import ScoreOptions
from ..blocks.step import DeviceStep, PackedStep
from ..threads import run_together, thread_count
from .description import DecoderDescription, DecoderWeights, LayerWeights, QuantizedProducts
from .host import attention_inputs

_MAX_TOKENS = 64
"""Most tokens in one product. Their states stay in the CPU cache while weights are read."""
_PIECE = 8
"""Most tokens of a sequence in one task of attention."""
_MUCH = 1 << 29
"""Multiplications of a thread in one call, about 100 ms. Ctrl-C is handled between calls."""
_READ = 4
"""Time to read a weight, in multiplications."""
_WORTH = 1 << 20
"""Number of multiplications that justifies another thread."""


class QuantizedKernels:
    """Decoders with weights in GGUF formats; norms and operations between products use float32.

    A token's states are bitwise the same for any number of threads, any batch, and any division of its text into
    chunks. Rounding to 8 bits would magnify differences in last bits.
    """

    def __init__(self, description: DecoderDescription, weights: DecoderWeights[QuantizedProducts]) -> None:
        self._description = description
        self._weights = weights
        self._last = weights.last.arrays
        layers = [_matrices_of(layer) for layer in weights.layers]
        first = [matrix for matrix, _ in layers[0]]
        rows = [0 if matrix is None else len(matrix.data) for matrix in first]
        self._most_rows = max(sum(rows[: VALUES + 1]), rows[GATES] + rows[UP])
        self._most_columns = max(matrix.width for matrix in first if matrix is not None)
        self._numbers = sum(matrix.width * len(matrix.data) for matrix in first if matrix is not None)
        # Kernels only have addresses of weights, so `weights` must live until a step ends.
        self._stack = QuantizedStack(
            np.array([_matrix_address(matrix) for layer in layers for matrix, _ in layer], np.int64),
            np.array(rows, np.int64),
            np.array([[_address(bias) for _, bias in layer] for layer in layers], np.int64),
            np.array([_norms_of(layer) for layer in weights.layers], np.int64),
            np.full((len(layers), 3), description.norm_eps),
        )

    @staticmethod
    def takes(description: DecoderDescription, weight: Tensor) -> bool:
        """Test whether norms are in float32 on a CPU. All GGUF formats of `QuantizedMatrix` are supported."""
        return weight.device.type == "cpu" and weight.dtype == torch.float32

    def read(self, ids: Tensor, positions: Tensor, step: PackedStep | DeviceStep) -> Tensor:
        """Compute `Backend.read`. Raises ModelError for a step on a device, or with bidirectional attention."""
        if not isinstance(step, PackedStep) or step.mutual:
            raise ModelError("quantized weights are read together with attention, in steps of sequences on a CPU")
        description, heads = self._description, self._description.heads
        residual = self._weights.embedded(ids, positions)
        states = residual.numpy()
        queries, mixed = np.empty((2, len(states), heads.queries, heads.size), np.float32)
        cos, sin = (each.numpy() for each in self._weights.angles(positions))
        work = max(len(states), _READ) * self._numbers
        threads = min(thread_count(), max(1, work * description.layers // _WORTH))
        scratch = np.empty((threads, heads.queries, max(step.ends)), np.float32)
        settings = ScoreOptions(description.scale).settings(states.dtype)
        slots = step.places.on(positions.device).numpy()
        rows = step.rows_of(_PIECE)  # never `long_rows`, whose kernel sums in another order
        inputs, stored_room = attention_inputs(step, heads, residual, rows, rows, threads)
        room = self._make_buffers(len(states))
        some = max(1, _MUCH * threads // work)
        for begin in range(0, description.layers, some):
            room.arrivals[0] = 0
            end = min(begin + some, description.layers)
            share = partial(
                read_quantized_layers, states, queries, mixed, slots, cos, sin, self._stack, inputs, *self._last,
                description.norm_eps, settings, scratch, stored_room, room, begin, end, threads,
            )  # fmt: skip
            run_together(share, threads, partial(room.arrivals.__setitem__, 0, GIVEN_UP))
        return residual

    def _make_buffers(self, tokens: int) -> QuantizedBuffers:
        """Create the buffers of a step. They are not shared, since threads may share a model."""
        tokens = min(tokens, _MAX_TOKENS)
        hidden, columns = self._description.hidden, tokens * self._most_columns
        return QuantizedBuffers(
            np.empty((tokens, hidden), np.float32), np.empty((tokens, self._most_rows), np.float32),
            np.empty(columns, np.int8), np.empty(columns // GROUP, np.float32),
            np.empty(2 * columns // GROUP, np.float32), np.zeros(1, np.int64),
        )  # fmt: skip


def _matrices_of(layer: LayerWeights[QuantizedProducts]) -> list[tuple[QuantizedMatrix | None, Tensor | None]]:
    """Return a layer's matrices and biases in kernel order; None for missing gates."""
    found: list[tuple[QuantizedMatrix | None, Tensor | None]] = []
    for part in (layer.attention, layer.out, layer.up, layer.down):
        found += zip(part.matrices, part.biases, strict=True)
    if len(layer.up.matrices) == 1:
        found.insert(GATES, (None, None))
    return found


def _norms_of(layer: LayerWeights[QuantizedProducts]) -> list[int]:
    """Return addresses of weights and biases of the norms; head norms have no biases."""
    heads = (None, None) if layer.head_norms is None else layer.head_norms[:2]
    return [_address(part) for part in (*layer.before, *layer.after, heads[0], None, heads[1], None)]


def _matrix_address(matrix: QuantizedMatrix | None) -> tuple[int, int, int, int, int]:
    if matrix is None:
        return 0, 0, 0, 0, 0
    order = 0 if matrix.order is None else matrix.order.ctypes.data
    return matrix.data.ctypes.data, matrix.number, matrix.data.shape[1], matrix.blocks, order


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
