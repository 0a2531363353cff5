"""Modules of torch whose weights stay quantized: in place of the linear layers and the embedding of a body."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ....kernels.quantized.products import QuantizedMatrix

Unpack = Callable[[NDArray[np.uint8]], NDArray[np.float32]]


class QuantizedLinear(nn.Module):
    """A linear layer with quantized weights, of states in float32 on a CPU; its products are not differentiable.

    matrix: its weights [out, in]; several where its rows lie in several tensors, one behind the other
    """

    def __init__(self, matrix: QuantizedMatrix, bias: Tensor | None = None) -> None:
        super().__init__()
        self.matrix = matrix
        self.in_features, self.out_features = matrix.width, len(matrix.data)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    @property
    def weight(self) -> Tensor:
        """float32 [out, in] of NaN, of which architectures ask for the type and the device; it takes no memory."""
        return _unusable(self.matrix)

    def forward(self, states: Tensor) -> Tensor:
        """float32 [..., out] of states [..., in]."""
        flat = states.detach().reshape(-1, self.in_features).contiguous()
        out = torch.as_tensor(self.matrix.product(flat.numpy())).reshape(*states.shape[:-1], self.out_features)
        return out if self.bias is None else out.add_(self.bias)

    def extra_repr(self) -> str:
        """Its sizes and format."""
        return f"in_features={self.in_features}, out_features={self.out_features}, {self.matrix.kind}"


class QuantizedEmbedding(nn.Module):
    """An embedding whose rows are unpacked as they are asked for. scale: what they are multiplied by"""

    def __init__(self, matrix: QuantizedMatrix, unpack: Unpack, scale: float = 1.0) -> None:
        super().__init__()
        self.matrix = matrix
        self.num_embeddings, self.embedding_dim = len(matrix.data), matrix.width
        self._unpack = unpack
        self._scale = np.float32(scale)

    @property
    def weight(self) -> Tensor:
        """float32 [rows, width] of NaN, as of `QuantizedLinear`."""
        return _unusable(self.matrix)

    def forward(self, ids: Tensor) -> Tensor:
        """float32 [..., width] of ids [...]."""
        rows = self._unpack(self.matrix.data[ids.reshape(-1).numpy()])
        if self._scale != 1:
            rows *= self._scale
        return torch.as_tensor(rows).reshape(*ids.shape, self.embedding_dim)


def _unusable(matrix: QuantizedMatrix) -> Tensor:
    """What would be computed with it shows: logits of NaN are refused when a model is wrapped."""
    return torch.full((1, 1), math.nan).expand(len(matrix.data), matrix.width)
