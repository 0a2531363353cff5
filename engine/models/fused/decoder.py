"""A body of the Llama family, run over packed tokens with keys and values in blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding

from ....kernels.decoder.operations import multiply_gated, multiply_normed, multiply_onto, norm, place
from ....kernels.decoder.plain import Heads
from ..blocks.storage import LayerBlocks
from .prepared import Attend, PreparedBody
from .structure import Link, Structure, structure_of
from .weights import LayerWeights, norm_of, weights_of


class FusedDecoder(PreparedBody):
    """Runs the stock layers of the Llama family: on a GPU in 8 launches a layer, with up to 4 tokens in 5, beside those
    of attention.

    Weights that are multiplied with the same states are laid behind one another.

    States are rounded where transformers rounds them, but for norms of up to 4 tokens on a GPU, which are not rounded
    before they are multiplied. A token's states depend on what runs beside it as far as products do, whose algorithms
    are chosen by how many tokens there are: in float32 and float64 they differ in the last bits, by which no token
    changes but one of two that are as likely to a few parts in a million; in bfloat16 and float16 they differ visibly,
    and "the same seed, the same tokens in any batch" does not hold.
    """

    @property
    def heads(self) -> Heads:
        """How many heads queries and keys have, and their size."""
        return self._structure.heads

    @property
    def layers(self) -> Sequence[LayerWeights]:
        """The weights of each layer."""
        return self._weights

    @torch.no_grad()
    def run_prepared(
        self, ids: Tensor, positions: Tensor, slots: Tensor, layers: Sequence[LayerBlocks], attend: Attend
    ) -> Tensor:
        """As `PreparedBody.run_prepared` says."""
        residual = embedding(ids, self._structure.embedding.weight)
        return self._states(residual, self._angles(positions, residual.dtype), slots, layers, attend)

    def _states(
        self,
        residual: Tensor,
        angles: tuple[Tensor, Tensor],
        slots: Tensor,
        layers: Sequence[LayerBlocks],
        attend: Attend,
    ) -> Tensor:
        """What `run` returns, from the tokens' embeddings [n, hidden], which are changed."""
        heads = self.heads
        added: Tensor | None = None
        for number, (own, layer) in enumerate(zip(self._weights, layers, strict=True)):
            product = multiply_normed(residual, added, *own.before, *own.attention)
            self._allocate(layer, product)
            stored = layer.keys, layer.values
            mixed = attend(number, place(product, angles, own.head_norms, slots, stored, heads))
            added = multiply_onto(residual, mixed.reshape(len(residual), -1), *own.out)
            inner = multiply_gated(residual, added, *own.after, *own.gates)
            added = multiply_onto(residual, inner, *own.down)
        return norm(residual, added, *norm_of(self._structure.norm))

    def _allocate(self, layer: LayerBlocks, product: Tensor) -> None:
        """Make room for a layer's first keys and values."""
        heads = self.heads
        parts = product.view(len(product), heads.queries + 2 * heads.keys, heads.size)
        keys = parts[:, heads.queries :]
        layer.allocate(keys[:, : heads.keys], keys[:, heads.keys :])

    def _angles(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines [n, size / 2] of tokens at these positions."""
        rotary = self._structure.rotary
        turns = positions[:, None].float() * rotary.inv_freq.float()
        scaling: float = rotary.attention_scaling
        return (turns.cos() * scaling).to(dtype), (turns.sin() * scaling).to(dtype)

    def _lay(self) -> Sequence[Link]:
        found = structure_of(self._body, self._config)
        self._structure: Structure = found
        self._weights = [weights_of(layer) for layer in found.layers]
        return found.links
