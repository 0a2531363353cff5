"""Decoders of GGUF files for kernels: weights with a description, without modules of transformers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import nn

from ..packed.description import DecoderDescription, DecoderWeights, QuantizedProducts
from ..quantized.modules import QuantizedLinear


class GGUFNetwork(nn.Module):
    """A described decoder, faster to create than the model of transformers.

    description, weights: for kernels; lm_head: the head. Calling it runs the model of transformers.
    make: loads that model from the same file
    """

    is_quantized = is_intact = True

    def __init__(
        self,
        config: Any,
        generation_config: Any,
        description: DecoderDescription,
        weights: DecoderWeights[QuantizedProducts],
        head: QuantizedLinear,
        make: Callable[[], Any],
    ) -> None:
        super().__init__()
        self.config, self.generation_config = config, generation_config
        self.description, self.weights = description, weights
        self.norm, self.lm_head = nn.Parameter(weights.last.weight, requires_grad=False), head
        self._make = make

    @property
    def base_model(self) -> GGUFNetwork:
        """The body, which is this module itself."""
        return self

    @property
    def device(self) -> torch.device:
        """Device of quantized weights, the CPU."""
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of states and norms."""
        return torch.float32

    @cached_property
    def transformers_model(self) -> Any:
        """The model of transformers with the same weights, loaded on first use."""
        return self._make()

    def get_output_embeddings(self) -> QuantizedLinear:
        """Return the head."""
        return self.lm_head

    def forward(self, input_ids: Any, **arguments: Any) -> Any:
        """Run the model of transformers."""
        return self.transformers_model(input_ids, **arguments)
