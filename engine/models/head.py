"""The language model head, separate from the body: logits of all tokens or of a few."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import ModelError
from ...kernels.decoder.products import product_of, products_of_some
from .blocks.storage import IN_PLACE
from .gguf_files.network import GGUFNetwork
from .packed.architectures import ARCHITECTURES
from .quantized.modules import QuantizedLinear
from .stock import is_spread, strangeness_of
from .ways import distance, tolerance

_CACHED = 1 << 23
_FEW_ROWS = 4
_FEW_VECTORS = 16
_ALONE = 1 << 26
"""Most multiplications of a product for which one thread is fastest."""
# used by torch's own compiler; absent in builds without oneDNN
_ONE_DNN: Callable[..., Tensor] | None = (
    getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
)
_LINEAR = (nn.Linear, QuantizedLinear)

Finish = Callable[[Tensor], Tensor]


class Head:
    """A linear layer with the architecture's output transform. It can compute a few rows alone."""

    def __init__(self, linear: nn.Linear, finish: Finish, bias: Tensor | None = None) -> None:
        self.linear = linear
        self._finish = finish
        self._extra_bias = bias
        # offloaded weights are only fetched when the layer itself is called
        self._layer = linear if is_spread(linear) else None
        self.sparse_head_limit = 0 if self._layer is not None else linear.out_features // 32

    @property
    def _weight(self) -> Tensor:
        return self.linear.weight

    @property
    def _bias(self) -> Tensor | None:
        return self.linear.bias if self._extra_bias is None else self._extra_bias

    @property
    def baked(self) -> tuple[int, ...]:
        """Addresses of weights and bias."""
        return tuple(each.data_ptr() for each in (self._weight, self._bias) if each is not None)

    def raw(self, hidden: Tensor) -> Tensor:
        """Return logits [n, V] of hidden states [n, hidden size], in their dtype."""
        if self._layer is not None:
            out: Tensor = self._layer(hidden).to(hidden.device)
            return self._finish(out if self._extra_bias is None else out + self._extra_bias.to(out))
        return self._finish(product(hidden, self._weight, self._bias))

    def __call__(self, hidden: Tensor, ids: Tensor | None) -> Tensor:
        """Return float32 [n, V] or [n, len(ids)] of hidden states [n, hidden size]."""
        if ids is None:
            return self.raw(hidden).float()
        if self._layer is not None:
            return self.raw(hidden).float().index_select(1, ids)
        bias = None if self._bias is None else self._bias.index_select(0, ids)
        return self._finish(product(hidden, self._weight.index_select(0, ids), bias)).float()

    def listed(self, hidden: Tensor, rows: Sequence[int], several: Sequence[Tensor]) -> Tensor | None:
        """Return float32 [len(rows), most], the logits of each row's listed tokens; None without a kernel."""
        weight, bias = self._weight, self._bias
        if self._layer is not None or weight.device.type != "cpu" or weight.dtype not in IN_PLACE:
            return None
        if hidden.dtype != weight.dtype or not weight.is_contiguous():
            return None
        beside = None if bias is None else bias.detach().numpy()
        states, ids = hidden.detach().numpy()[list(rows)], [each.numpy() for each in several]
        return self._finish(torch.as_tensor(products_of_some(states, weight.detach().numpy(), beside, ids))).float()


class QuantizedHead:
    """The head of a quantized layer. It reads only the weight rows of requested tokens."""

    def __init__(self, linear: QuantizedLinear, finish: Finish) -> None:
        self.linear = linear
        self._finish = finish
        self.sparse_head_limit = linear.out_features // 32

    def __call__(self, hidden: Tensor, ids: Tensor | None) -> Tensor:
        """Return float32 [n, V] or [n, len(ids)] of hidden states [n, hidden size]."""
        return self._finish(self.linear.product(hidden, ids))

    def listed(self, hidden: Tensor, rows: Sequence[int], several: Sequence[Tensor]) -> Tensor:
        """Return float32 [len(rows), most], the logits of each row's listed tokens."""
        out = hidden.new_zeros(len(rows), max(map(len, several)))
        for row, place, ids in zip(out, rows, several, strict=True):
            row[: len(ids)] = self.linear.product(hidden[place : place + 1], ids)[0]
        return self._finish(out)


class HeadedModel:
    """A model whose logits are its head's output for hidden states. Without a head, `forward` returns logits."""

    model: Any
    _head: Head | QuantizedHead | None

    def check_head(self) -> None:
        """Raise ModelError if the model's output layer was replaced since it was wrapped."""
        if isinstance(self._head, Head) and self.model.get_output_embeddings() is not self._head.linear:
            raise ModelError(f"the output layer of {type(self.model).__name__} was replaced; load the model again")

    def logits(self, hidden: Tensor, rows: Sequence[int], ids: Tensor | None) -> Tensor:
        """Return logits of the next token: float32 [len(rows), V] or [len(rows), len(ids)]."""
        chosen = states_of(hidden, rows)
        if self._head is not None:
            return self._head(chosen, ids)
        return chosen.float() if ids is None else chosen.index_select(1, ids).float()

    def logits_listed(self, hidden: Tensor, rows: Sequence[int], several: Sequence[Tensor]) -> Tensor | None:
        """Return logits as `ListingModel` specifies."""
        is_replaced = type(self).logits is not HeadedModel.logits  # a subclass may return other logits than the head's
        return None if self._head is None or is_replaced else self._head.listed(hidden, rows, several)


def states_of(hidden: Tensor, rows: Sequence[int]) -> Tensor:
    """Return some rows of hidden states, without a copy if all are requested in order."""
    return hidden if len(rows) == len(hidden) and list(rows) == list(range(len(rows))) else hidden[list(rows)]


def product(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute `nn.functional.linear` for hidden states [n, size], faster on a CPU.

    Measured with AVX-512. On one thread, our product (single-threaded) takes at most half of torch's time, and less
    than oneDNN's, for up to 16 rows and any weights (50k x 256, 50k x 768, 128k x 256, 32k x 2,048), and for any number
    of rows and up to 8 million weights. On several threads, weight @ hidden.T reads the weights once, in half the time
    for up to 4 rows; 1 row is doubled, since matrix-vector products are slow. For more rows, oneDNN takes two thirds of
    the time.
    """
    rows, numbers = hidden.shape[0], weight.numel()
    if weight.device.type != "cpu" or hidden.dtype != weight.dtype:
        return nn.functional.linear(hidden, weight, bias)
    alone = torch.get_num_threads() == 1
    if numbers <= _CACHED or (alone and rows <= _FEW_VECTORS):
        pays = alone or rows * numbers <= _ALONE
        if not (pays and weight.dtype in IN_PLACE and weight.is_contiguous()):
            return nn.functional.linear(hidden, weight, bias)
        beside = None if bias is None else bias.detach().numpy()
        return torch.as_tensor(product_of(hidden.detach().contiguous().numpy(), weight.detach().numpy(), beside))
    if weight.dtype != torch.float32:
        return nn.functional.linear(hidden, weight, bias)
    if rows > _FEW_ROWS:
        if _ONE_DNN is None:
            return nn.functional.linear(hidden, weight, bias)
        return _ONE_DNN(hidden.contiguous(), weight, bias, "none", [], "")
    columns = weight @ (torch.cat([hidden, hidden]) if rows == 1 else hidden).T
    out = columns[:, :rows].T.contiguous()
    return out if bias is None else out.add_(bias)


def described_head(model: Any, body: Any) -> Head | QuantizedHead | None:
    """Return the head of a described body's model; None if the model has another class or head, or was changed."""
    if isinstance(model, GGUFNetwork):
        return _head_of(model.get_output_embeddings(), _identity)
    network, linear = ARCHITECTURES[model.config.model_type].network, model.get_output_embeddings()
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    if kind != f"{type(body).__module__}.{network}" or type(linear) not in _LINEAR:
        return None
    return None if any(map(strangeness_of, (model, linear))) else _head_of(linear, _identity)


def find_head(model: Any, hidden: Tensor, logits: Tensor) -> Head | QuantizedHead | None:
    """Return the head that maps `hidden` [n, hidden size] to the whole model's `logits` [n, V].

    None if no known head does; then only the whole model computes logits.
    """
    linear = model.get_output_embeddings()
    if type(linear) not in _LINEAR or linear.in_features != hidden.shape[-1]:
        return None
    extra_bias: Tensor | None = getattr(model, "final_logits_bias", None)
    bias = None if extra_bias is None else extra_bias[0].to(linear.weight)
    heads = [_head_of(linear, finish, bias) for finish in _finishes(model.config.get_text_config())]
    found = [head(hidden, None) for head in heads]
    # A soft cap hardly changes small logits, so take the closest candidate, not the first within the tolerance.
    distances = [distance(each, logits) if each.shape == logits.shape else math.inf for each in found]
    best = distances.index(min(distances))
    return heads[best] if distances[best] <= tolerance(model, linear.weight.dtype) else None


def _head_of(linear: Any, finish: Finish, bias: Tensor | None = None) -> Head | QuantizedHead:
    return QuantizedHead(linear, finish) if isinstance(linear, QuantizedLinear) else Head(linear, finish, bias)


def _identity(out: Tensor) -> Tensor:
    return out


def _finishes(config: Any) -> Sequence[Finish]:
    """Return the candidates of output transforms, by options of the configuration."""
    finishes: list[Finish] = [_identity]
    if cap := getattr(config, "final_logit_softcapping", None) or getattr(config, "logits_soft_cap", None):
        finishes.append(lambda out: torch.tanh(out / cap) * cap)
    if scaling := getattr(config, "logits_scaling", None):
        finishes.append(lambda out: out / scaling)
    if scale := getattr(config, "logit_scale", None):
        finishes.append(lambda out: out * scale)
    # UMT5 and Switch depend on tied embeddings, as T5 once did
    tied = getattr(config, "is_encoder_decoder", False) and getattr(config, "tie_word_embeddings", False)
    if getattr(config, "scale_decoder_outputs", False) or (tied and hasattr(config, "d_model")):
        finishes.append(lambda out: out * config.d_model**-0.5)
    return finishes
