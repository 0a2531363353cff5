"""A body of the Llama family, run over packed tokens with keys and values in blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import embedding

from ....errors import ModelError
from ....kernels.decoder.operations import multiply_gated, multiply_normed, multiply_onto, norm, place
from ....kernels.decoder.plain import Heads
from ..blocks.storage import LayerBlocks
from .probe import is_right
from .structure import Structure, UnknownBodyError, structure_of
from .weights import LayerWeights, norm_of, weights_of

Attend = Callable[[int, Tensor], Tensor]
_get: Any = dict[str, Any].get
_locks: WeakKeyDictionary[Any, RLock] = WeakKeyDictionary()


class FusedDecoder:
    """Runs the stock layers of the Llama family: on a GPU in 8 launches a layer, with up to 4 tokens in 5, beside those
    of attention.

    Weights that are multiplied with the same states are laid behind one another, once, and the parameters of the
    model's modules become views of them: the model works as before, its memory is not doubled, and what is written
    into parameters (`load_state_dict`, an optimiser) is seen here. What makes new ones (`to`, `deepcopy`) is noticed
    by `prepare`, and so are modules that are replaced. Hooks that are registered later are not.

    States are rounded where transformers rounds them, but for norms of up to 4 tokens on a GPU, which are not rounded
    before they are multiplied. A token's states depend on what runs beside it as far as products do, whose algorithms
    are chosen by how many tokens there are: in float32 and float64 they differ in the last bits, by which no token
    changes but one of two that are as likely to a few parts in a million; in bfloat16 and float16 they differ visibly,
    and "the same seed, the same tokens in any batch" does not hold.
    """

    def __init__(self, body: Any, config: Any) -> None:
        self._body = body
        self._config = config
        self._lock = _locks.setdefault(body, RLock())
        self._number = 0
        self._known = self._arrange()

    @classmethod
    def of(cls, body: Any, config: Any) -> FusedDecoder | None:
        """A decoder for a body that is known, and gives the same states on a few tokens; None for any other."""
        found = cls(body, config)
        return found if found._known and is_right(found.run, found.scale, body, config) else None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is one of the copied body."""
        return type(self), (self._body, self._config)

    @property
    def heads(self) -> Heads:
        """How many heads queries and keys have, and their size."""
        return self._structure.heads

    @property
    def scale(self) -> float:
        """What attention multiplies the products of queries and keys by."""
        return self.heads.size**-0.5

    @property
    def layers(self) -> Sequence[LayerWeights]:
        """The weights of each layer."""
        return self._weights

    def prepare(self) -> int | None:
        """A number that changes when weights have moved; None once the body is not what it was, and cannot be run.

        Waits for nothing on the device. A captured graph holds the addresses of weights: it is good for as long as this
        number is the same, and `prepare` has to be called before one is captured.
        """
        if not self._known:
            return None
        if self._is_intact():
            return self._number
        self._number += 1
        self._known = self._arrange()
        return self._number if self._known else None

    @torch.no_grad()
    def run(
        self, ids: Tensor, positions: Tensor, slots: Tensor, layers: Sequence[LayerBlocks], attend: Attend
    ) -> Tensor:
        """States [n, hidden] after the last norm, of packed tokens.

        ids, positions: int64 [n]
        slots: int32 [n], block * BLOCK + place in the block; -1 for tokens whose keys and values are not kept
        layers: where these go; what is not allocated yet is, which a graph that is captured should not have to do
        attend: from a layer's number and its queries [n, heads, size] to what they get from the values, of the same
            shape; keys and values are in the layer's blocks by then
        Nothing here waits for the device or depends on what is in tensors there. Raises ModelError if the body is no
        longer what it was.
        """
        if self.prepare() is None:
            raise ModelError(f"the layers of {type(self._body).__name__} were changed; wrap the model anew")
        return self.run_prepared(ids, positions, slots, layers, attend)

    @torch.no_grad()
    def run_prepared(
        self, ids: Tensor, positions: Tensor, slots: Tensor, layers: Sequence[LayerBlocks], attend: Attend
    ) -> Tensor:
        """`run`, where `prepare` has just given a number."""
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

    def _arrange(self) -> bool:
        """Look through the body, and lay its weights side by side; False if it is none that is known."""
        with self._lock:
            try:
                found = structure_of(self._body, self._config)
            except UnknownBodyError:
                return False
            self._structure: Structure = found
            self._weights = [weights_of(layer) for layer in found.layers]
            self._holders = [link.holder for link in found.links]
            self._names = [link.name for link in found.links]
            self._parts = [link.part for link in found.links]
            self._parameters = list(self._body.parameters())
            self._places = [parameter.data_ptr() for parameter in self._parameters]
        return True

    def _is_intact(self) -> bool:
        """Whether modules and parameters are the same, and where they were."""
        found: Any = map(_get, self._holders, self._names)
        same = all(map(is_, found, self._parts))
        return same and [parameter.data_ptr() for parameter in self._parameters] == self._places
