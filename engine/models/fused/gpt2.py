"""Bodies of GPT-2's family, to the last detail, and how they are run on a CPU: two kernels a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding

from ....kernels.decoder.biased_layers import begin_biased_layer, end_biased_layer, standardise_rows
from ....kernels.decoder.plain import Heads
from ....kernels.decoder.products import lanes_of, room_of
from ....kernels.decoder.stacks import read_biased_layers
from ..blocks.step import Step
from ..blocks.storage import IN_PLACE, LayerBlocks
from .at_once import AtOnce, Weights
from .host import has_use_of_threads
from .prepared import Attend, PreparedBody
from .structure import Link, check_calls, check_parameters, children_of, links_of, module_of, need, part_of

Reals = NDArray[Any]
_BENDS = ("NewGELUActivation", "GELUTanh")
"""GELU in the form with tanh."""
_CONV = "transformers.pytorch_utils"


class _Norm(NamedTuple):
    weight: Reals
    bias: Reals
    eps: float


class _Product(NamedTuple):
    """weight: [out, in]; bias: [out]"""

    weight: Reals
    bias: Reals


class _Layer(NamedTuple):
    before: _Norm
    attention: _Product
    out: _Product
    after: _Norm
    up: _Product
    down: _Product


class Gpt2Decoder(PreparedBody):
    """Runs the stock layers of GPT-2 on a CPU, in float32 and float64, on one thread.

    Its products have their weights by columns; they are laid by rows, of which the model's parameters are views then.
    Measured with one thread, against the body's own products, 1 to 32 tokens of 768 states: 1.4 to 2.4 times as fast.
    A token's states depend in their last bits on whether many tokens are read at once or few.
    """

    @classmethod
    def of(cls, body: Any, config: Any) -> Self | None:
        """A decoder as `PreparedBody.of` has it, where one thread is as fast as torch's are."""
        if type(body).__name__ != "GPT2Model":
            return None
        width: int = config.hidden_size
        is_spread = has_use_of_threads(2 * width * (config.n_inner or 4 * width))
        return None if is_spread else super().of(body, config)

    @property
    def heads(self) -> Heads:
        """How many heads queries and keys have, and their size."""
        return self._heads

    @torch.no_grad()
    def run_prepared(
        self, ids: Tensor, positions: Tensor, slots: Tensor, layers: Sequence[LayerBlocks], attend: Attend
    ) -> Tensor:
        """As `PreparedBody.run_prepared` says."""
        residual = self._embedded(ids, positions)
        heads, tokens = self._heads, len(residual)
        queries = residual.new_empty(tokens, heads.queries, heads.size)
        like = residual.new_empty(0, heads.keys, heads.size)
        written, inner, places = queries.numpy(), residual.numpy(), slots.numpy()
        room = self._room(inner.dtype)
        for number, (own, layer) in enumerate(zip(self._layers, layers, strict=True)):
            layer.allocate(like, like)
            assert layer.arrays is not None
            begin_biased_layer(written, *layer.arrays, inner, places, *own.before, *own.attention, *room)
            mixed = attend(number, queries).numpy().reshape(tokens, -1)
            end_biased_layer(inner, mixed, *own.out, *own.after, *own.up, *own.down, *room)
        standardise_rows(inner, inner, *self._last)
        return residual

    @torch.no_grad()
    def run_at_once(self, ids: Tensor, positions: Tensor, slots: Tensor, step: Step) -> Tensor | None:
        """As `PreparedBody.run_at_once` says."""
        at_once = self._at_once
        if not at_once.takes(step, len(ids)):
            return None
        residual = self._embedded(ids, positions)
        room = self._room(self._last.weight.dtype)
        return at_once.read(read_biased_layers, residual, [slots], step, self._last, self.scale, room)

    def _embedded(self, ids: Tensor, positions: Tensor) -> Tensor:
        """What tokens at these positions begin as [n, hidden]."""
        residual = embedding(ids, self._words.weight)
        residual += embedding(positions, self._positions.weight)
        return residual

    def _room(self, kind: Any) -> tuple[Reals, ...]:
        """What kernels compute in, for as many tokens as they multiply at once; of this step alone."""
        width = len(self._last.weight)
        tallest = max(len(product.weight) for own in self._layers for product in (own.attention, own.up))
        lanes = lanes_of(kind)
        return (np.empty((lanes, width), kind), np.empty((lanes, tallest), kind), *room_of(tallest, tallest, kind))

    def _lay(self) -> Sequence[Link]:
        body, config = self._body, self._config
        home = type(body).__module__
        need(type(body).__name__ == "GPT2Model" and home.startswith("transformers."), type(body).__name__)
        need(not any(module.training for module in body.modules()), "training")
        need(body.device.type == "cpu" and body.dtype in IN_PLACE, f"{body.dtype} on {body.device}")
        need({*body._modules} == {"wte", "wpe", "drop", "h", "ln_f"}, "parts of the body")
        words, positions = module_of(body, "wte", nn.Embedding), module_of(body, "wpe", nn.Embedding)
        blocks = children_of(body.h, config.num_hidden_layers)
        for each in blocks:
            _check_block(each, home)
        convs = [conv for each in blocks for conv in _products(each)]
        need(words.max_norm is None and positions.max_norm is None, "max_norm of an embedding")
        for module in body.modules():
            check_calls(module)
        check_parameters(body, words.weight, [conv.weight for conv in convs])
        width, count = config.hidden_size, config.num_attention_heads
        need(words.weight.shape[1] == positions.weight.shape[1] == width, "embeddings of several sizes")
        for each in blocks:
            _check_sizes(each, width, count)
        self._heads = Heads(count, count, width // count)
        self._words, self._positions = words, positions
        self._layers = [_layer(each) for each in blocks]
        self._last = _norm(_whole(module_of(body, "ln_f", nn.LayerNorm), width))
        self._at_once = AtOnce([_weights(own) for own in self._layers], self._heads)
        return list(links_of(body))


def _check_block(block: Any, home: str) -> None:
    """Whether a layer is made of the parts of one. Raises UnknownBodyError."""
    need(type(block).__module__ == home and type(block).__name__ == "GPT2Block", type(block).__name__)
    need({*block._modules} == {"ln_1", "attn", "ln_2", "mlp"}, "parts of a layer")
    attention, mlp = part_of(block, "attn", home, "GPT2Attention"), part_of(block, "mlp", home, "GPT2MLP")
    need({*attention._modules} == {"c_attn", "c_proj", "attn_dropout", "resid_dropout"}, "parts of attention")
    need({*mlp._modules} == {"c_fc", "c_proj", "act", "dropout"}, "parts of an MLP")
    for owner, name in ((attention, "c_attn"), (attention, "c_proj"), (mlp, "c_fc"), (mlp, "c_proj")):
        part_of(owner, name, _CONV, "Conv1D")
    need(type(mlp.act).__name__ in _BENDS, f"the activation {type(mlp.act).__name__}")
    need(attention.is_causal and not attention.is_cross_attention, "attention that is not causal")
    need(not attention.reorder_and_upcast_attn, "attention in another order")
    for name in ("ln_1", "ln_2"):
        module_of(block, name, nn.LayerNorm)


def _products(block: Any) -> list[Any]:
    return [block.attn.c_attn, block.attn.c_proj, block.mlp.c_fc, block.mlp.c_proj]


def _check_sizes(block: Any, width: int, heads: int) -> None:
    """Whether products fit together. Raises UnknownBodyError."""
    attention, mlp = block.attn, block.mlp
    need(attention.num_heads == heads and attention.split_size == width, "layers of several sizes")
    need(attention.head_dim * heads == width and attention.scaling == attention.head_dim**-0.5, "scaling of attention")
    inner = mlp.c_fc.weight.shape[1]
    shapes = {
        attention.c_attn: (width, 3 * width),
        attention.c_proj: (width, width),
        mlp.c_fc: (width, inner),
        mlp.c_proj: (inner, width),
    }
    for conv, shape in shapes.items():
        need(tuple(conv.weight.shape) == shape, f"a product of shape {tuple(conv.weight.shape)}")
        need(conv.bias is not None and tuple(conv.bias.shape) == shape[1:], "a product without a bias")
    for norm in (block.ln_1, block.ln_2):
        _whole(norm, width)


def _whole(norm: Any, width: int) -> Any:
    """A layer norm over all of a state, with weights and biases. Raises UnknownBodyError."""
    need(norm.normalized_shape == (width,), "a norm of another size")
    need(norm.weight is not None and norm.bias is not None, "a norm without weights")
    return norm


def _layer(block: Any) -> _Layer:
    """A layer's weights as kernels take them."""
    attention, mlp = block.attn, block.mlp
    return _Layer(
        _norm(block.ln_1), _product(attention.c_attn), _product(attention.c_proj), _norm(block.ln_2),
        _product(mlp.c_fc), _product(mlp.c_proj),
    )  # fmt: skip


def _norm(norm: Any) -> _Norm:
    return _Norm(norm.weight.data.numpy(), norm.bias.data.numpy(), norm.eps)


def _product(conv: Any) -> _Product:
    """The weights of a product by rows, of which its parameter becomes a view unless it is already."""
    weight: Any = conv.weight
    if not weight.data.T.is_contiguous():
        # A tensor made in inference mode could never again be trained.
        with torch.inference_mode(False), torch.no_grad():
            weight.data = weight.data.T.contiguous().T
    return _Product(weight.data.T.numpy(), conv.bias.data.numpy())


def _weights(own: _Layer) -> Weights:
    """A layer's weights as `read_biased_layers` takes them."""
    before, attention, out, after, up, down = own
    return Weights(
        [before.weight, before.bias, *attention, *out, after.weight, after.bias, *up, *down],
        (before.eps, after.eps, 0.0),
    )
