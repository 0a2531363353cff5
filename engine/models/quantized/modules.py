"""torch modules with weights in GGUF formats, in place of linear layers and embeddings."""

from __future__ import annotations

import math
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ....kernels.quantized.products import QuantizedMatrix
from ..threads import run_together, thread_count

_WORTH = 1 << 20
"""Number of multiplications that justify another thread."""


class QuantizedLinear(nn.Module):
    """A linear layer with weights [out, in] in a GGUF format, for float32 states on a CPU; not differentiable."""

    def __init__(self, matrix: QuantizedMatrix, bias: Tensor | None = None) -> None:
        super().__init__()
        self.matrix = matrix
        self.in_features, self.out_features = matrix.width, len(matrix.data)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    @property
    def weight(self) -> Tensor:
        """A substitute, float32 [out, in] of NaN without memory, for code that reads dtype, device and shape."""
        return _nan_weights(self.matrix)

    def forward(self, states: Tensor) -> Tensor:
        """Return float32 [..., out] of states [..., in]."""
        return self.product(states.reshape(-1, self.in_features)).reshape(*states.shape[:-1], self.out_features)

    def product(self, states: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return float32 [n, out] of states [n, in], or [n, len(ids)]. ids: weight rows to read; None for all"""
        matrix, numbers = self.matrix, None if ids is None else ids.numpy()
        rounded, rows = (
            matrix.rounded(states.detach().contiguous().numpy()),
            len(matrix.data) if ids is None else len(ids),
        )
        out = np.empty((len(states), rows), np.float32)
        threads = min(thread_count(), max(1, len(states) * rows * matrix.width // _WORTH))

        def share(thread: int) -> None:
            matrix.multiply(out, rounded, numbers, rows * thread // threads, rows * (thread + 1) // threads)

        run_together(share, threads)
        found = torch.as_tensor(out)
        if self.bias is None:
            return found
        return found.add_(self.bias if ids is None else self.bias.index_select(0, ids))

    def extra_repr(self) -> str:
        """Return its sizes and format."""
        return f"in_features={self.in_features}, out_features={self.out_features}, {self.matrix.kind}"


class QuantizedEmbedding(nn.Module):
    """An embedding whose rows are unpacked on demand. scale: factor of the rows"""

    def __init__(self, matrix: QuantizedMatrix, scale: float = 1.0) -> None:
        super().__init__()
        self.matrix = matrix
        self.num_embeddings, self.embedding_dim = len(matrix.data), matrix.width
        gguf: Any = import_module("gguf")
        self._unpack = partial(gguf.quants.dequantize, qtype=gguf.GGMLQuantizationType[matrix.kind])
        self.scale = scale

    @property
    def weight(self) -> Tensor:
        """float32 [rows, width] of NaN, as for `QuantizedLinear`."""
        return _nan_weights(self.matrix)

    def forward(self, ids: Tensor) -> Tensor:
        """Return float32 [..., width] of ids [...]."""
        rows = self._unpack(self.matrix.data[ids.reshape(-1).numpy()])
        if self.scale != 1:
            rows *= np.float32(self.scale)
        return torch.as_tensor(rows).reshape(*ids.shape, self.embedding_dim)


def _nan_weights(matrix: QuantizedMatrix) -> Tensor:
    """Return a tensor of NaN. If a model computes with it, its logits are NaN, which wrapping refuses."""
    return torch.full((1, 1), math.nan).expand(len(matrix.data), matrix.width)
