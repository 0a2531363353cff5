"""A described decoder by torch operations, or Triton kernels on a GPU."""

from __future__ import annotations

from torch import Tensor

from ....kernels.decoder.operations import multiply_gated, multiply_normed, multiply_onto, norm, place
from ..blocks.attention import attend_layer
from ..blocks.step import DeviceStep, PackedStep
from .description import DecoderDescription, DecoderWeights, LinearWeights


class DeviceKernels:
    """Decoders with RMS norms, rotary embeddings and SwiGLU, by torch or Triton.

    On a GPU a layer takes 8 launches besides attention, or 5 for up to 4 tokens. States are rounded as in transformers,
    except norms of up to 4 tokens on a GPU, which are not rounded before their product.
    The algorithm of a product depends on the number of tokens, so a token's states depend on the batch. In float32 and
    float64 only last bits differ, which matters for tokens whose probabilities are equal to a few parts in a million.
    In bfloat16 and float16 a seed may give other tokens in another batch.
    """

    def __init__(self, description: DecoderDescription, weights: DecoderWeights[LinearWeights]) -> None:
        self._heads = description.heads
        self._eps, self._scale = description.norm_eps, description.scale
        self.weights = weights

    @staticmethod
    def takes(description: DecoderDescription, weight: Tensor) -> bool:
        """Test whether all described operations are supported."""
        return (description.norm, description.positions, description.gated, description.activation) == (
            "rms", "rotary", True, "silu",
        )  # fmt: skip

    def read(self, ids: Tensor, positions: Tensor, step: PackedStep | DeviceStep) -> Tensor:
        """Compute `Backend.read`."""
        residual, angles = self.weights.embedded(ids, positions), self.weights.angles(positions)
        like = residual.new_empty(0, self._heads.keys, self._heads.size)
        added: Tensor | None = None
        slots = step.places.on(positions.device)
        for number, (weights, layer) in enumerate(zip(self.weights.layers, step.layers, strict=True)):
            product = multiply_normed(residual, added, weights.before.weight, self._eps, *weights.attention)
            layer.allocate(like, like)
            stored = layer.keys, layer.values
            queries = place(product, angles, weights.head_norms, slots, stored, self._heads)
            mixed = attend_layer(step, number, queries, self._scale)
            added = multiply_onto(residual, mixed.reshape(len(residual), -1), *weights.out)
            inner = multiply_gated(residual, added, weights.after.weight, self._eps, *weights.up)
            added = multiply_onto(residual, inner, *weights.down)
        return norm(residual, added, self.weights.last.weight, self._eps)
