"""The modules of a transformers body, as runners call them; on a CPU with faster products, norms and state updates.

Products are replaced in float32 and float64, norms in float32 only: norms of transformers always compute in float32,
so with float64 weights a kernel's rounding would show.

Functions that update recurrent states by one token have the same names in all architectures of transformers. Kernels
replace them; calls with unsupported arguments or dtypes use the original function.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from inspect import unwrap
from itertools import chain
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu, softplus

from ...errors import ModelError
from ...kernels.decoder.layers import normalise_rows
from ...kernels.decoder.recurrent import step_convolution, step_delta, step_heads, step_selective
from ..memory.weights import ModuleLinks
from .blocks.storage import IN_PLACE
from .head import product
from .stock import cache_argument, strangeness

_TOLERANCE = 1e-5
_NONE = np.empty(0, np.float32)


class Modules:
    """A callable body, or a copy of it in which some modules have a faster `forward`.

    The copy shares weights and configurations, and the body itself is not changed. Writes to weights take effect at
    once. `refresh` detects other modules, parameters or buffers, hooks, and training mode.

    body: the body of the model; network: the body or its copy, which calls run
    model: the model, called in place of the body if its head is not separate; it returns `width` logits
    is_quick: True if a copy may be called in place of the body
    """

    def __init__(self, body: Any, model: Any = None, width: int = 0, *, is_quick: bool = True) -> None:
        self.body: Any = body
        self.network: Any = body
        self.cache_name = cache_argument(body)
        self.takes_positions = "position_ids" in inspect.signature(body.forward).parameters
        self._model = model
        self._width = width
        self._links: ModuleLinks | None = None
        if is_quick:
            self._copy()

    def _copy(self) -> None:
        """Copy the body with faster modules if it supports them; otherwise use the body itself."""
        has_parts = has_quick_parts(self.body)
        self._links = ModuleLinks(self.body) if has_parts else None
        self.network = quick_copy(self.body) if has_parts else self.body

    @property
    def is_quick(self) -> bool:
        """True if a copy with faster parts is called."""
        return self._links is not None

    def refresh(self) -> None:
        """Copy the body again if it has changed since it was copied."""
        if self._links is not None and not (self._links.are_intact and self._links.are_called_alike):
            self._copy()

    def __call__(self, ids: Tensor, **arguments: Any) -> Tensor:
        """Return states [rows, width, size] of ids [rows, width] or of embeddings; or logits, by `model`."""
        if self._model is None:
            inputs = {"inputs_embeds" if ids.is_floating_point() else "input_ids": ids}
            with torch.no_grad():  # kernels do not record gradients
                return self.network(**inputs, **arguments).last_hidden_state
        logits: Tensor = self._model(input_ids=ids, **arguments).logits
        if logits.shape[-1] != self._width:
            raise ModelError(f"the model returned {logits.shape[-1]} logits; it began with {self._width}")
        return logits


def has_quick_parts(body: nn.Module) -> bool:
    """Test whether a body is stock (see stock.py), on a CPU, and in float32 or float64."""
    kinds = {(weights.device.type, weights.dtype) for weights in body.parameters()}
    return all(place == "cpu" and dtype in IN_PLACE for place, dtype in kinds) and strangeness(body) is None


def quick_copy(body: nn.Module) -> Any:
    """Return a copy of a body in which some modules have a faster `forward`. It shares tensors and configurations."""
    shared: list[Any] = list(chain(body.parameters(), body.buffers()))
    shared += [each for module in body.modules() if (each := getattr(module, "config", None)) is not None]
    network = copy.deepcopy(body, {id(each): each for each in shared})
    for module in network.modules():
        forward: Any = _quick_forward(module)
        if forward is not None:
            module.forward = forward
    return network


def _quick_forward(module: Any) -> Any:
    """Return a faster function for a module's `forward`; None if there is none."""
    if type(module) is nn.Linear:
        return partial(_multiply, module.weight, module.bias)
    shift = norm_shift(module)
    if shift is not None:
        return partial(_normalise, module.weight, shift, epsilon_of(module), module.forward)
    forward = quick_forward(module.__class__)
    return None if forward is None else MethodType(forward, module)


def _multiply(weight: Tensor, bias: Tensor | None, input: Tensor) -> Tensor:
    """Compute a linear layer with the product of the head."""
    if input.dtype != weight.dtype or input.dtype not in IN_PLACE:
        return linear(input, weight, bias)
    return product(input.reshape(-1, weight.shape[1]), weight, bias).view(*input.shape[:-1], weight.shape[0])


def _normalise(weight: Tensor, shift: float, eps: float, original: Any, hidden_states: Tensor) -> Tensor:
    """Compute the RMS norm of each row [..., size] with weights plus `shift`; `original` for other dtypes."""
    if hidden_states.dtype != torch.float32:
        return original(hidden_states)
    rows = hidden_states.reshape(-1, weight.shape[0]).contiguous().numpy()
    scales = weight.detach().numpy()
    out = np.empty_like(rows)
    normalise_rows(out, rows, scales + np.float32(shift) if shift else scales, _NONE, eps)
    return torch.as_tensor(out).view(hidden_states.shape)


@torch.no_grad()
def norm_shift(module: nn.Module) -> float | None:
    """Return the constant, 0 or 1, that a float32 RMS norm adds to its weights; None for other modules.

    Norms are recognised by class name, and by their output for random numbers.
    """
    weights = dict(module.named_parameters())
    if not type(module).__name__.endswith("RMSNorm") or {*weights} != {"weight"} or weights["weight"].ndim != 1:
        return None
    like = weights["weight"]
    if like.dtype != torch.float32 or not isinstance(epsilon_of(module), float):
        return None
    noise = torch.Generator().manual_seed(0)
    rows = torch.randn(3, len(like), generator=noise, dtype=like.dtype)
    scales = torch.randn(len(like), generator=noise, dtype=like.dtype)
    try:
        expected = torch.func.functional_call(module, {"weight": scales}, (rows,))
    except Exception:  # a norm with other arguments
        return None
    root = rows * (rows.square().mean(-1, keepdim=True) + epsilon_of(module)).rsqrt()
    for shift in (0.0, 1.0):
        if expected.shape == rows.shape and torch.allclose(expected, root * (scales + shift), _TOLERANCE, _TOLERANCE):
            return shift
    return None


def epsilon_of(module: nn.Module) -> Any:
    """Return a norm's epsilon, under either of its names."""
    return getattr(module, "variance_epsilon", getattr(module, "eps", None))


_WITH_SILU = {None: False, "silu": True, "swish": True}


def quick_forward(kind: type[Any]) -> FunctionType | None:
    """Return a class's `forward` that calls the functions of `_MAKERS`; None if it uses none of their names."""
    forward: Any = unwrap(kind.forward)
    if type(forward) is not FunctionType:
        return None
    names = forward.__code__.co_names
    quick = {name: make(forward.__globals__[name]) for name, make in _MAKERS.items()
             if name in names and callable(forward.__globals__.get(name))}  # fmt: skip
    if not quick:
        return None
    more = FunctionType(
        forward.__code__, {**forward.__globals__, **quick}, forward.__name__, forward.__defaults__, forward.__closure__
    )
    more.__kwdefaults__ = forward.__kwdefaults__
    return more


def _convolution(original: Callable[..., Any]) -> Callable[..., Any]:
    none = {dtype: np.empty(0, kind) for dtype, kind in ((torch.float32, np.float32), (torch.float64, np.float64))}

    def causal_conv1d_update(
        hidden_states: Tensor, conv_state: Tensor, weight: Tensor, bias: Any = None, activation: Any = None
    ) -> Tensor:
        dtype = hidden_states.dtype
        like = dtype in IN_PLACE and dtype == conv_state.dtype == weight.dtype and conv_state.is_contiguous()
        if (
            not like
            or hidden_states.shape[2] != 1
            or activation not in _WITH_SILU
            or weight.shape[1:] != conv_state.shape[2:]
        ):
            return original(hidden_states, conv_state, weight, bias, activation)
        new = hidden_states[:, :, 0].contiguous()
        out = torch.empty_like(new)
        bias_array = none[dtype] if bias is None else bias.detach().numpy()
        step_convolution(
            out.numpy(), conv_state.numpy(), new.numpy(), weight.detach().contiguous().numpy(), bias_array,
            _WITH_SILU[activation],
        )  # fmt: skip
        return out[:, :, None]

    return causal_conv1d_update


def _state_space(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step of a state space with a decay for each number of a state (Mamba), or for each head (Mamba 2)."""

    def selective_state_update(
        state: Tensor, hidden_states: Tensor, dt: Tensor, decay: Tensor, into: Tensor, back: Tensor, skip: Any = None,
        dt_bias: Any = None, dt_softplus: bool = False, z: Any = None, **others: Any,
    ) -> Tensor:  # fmt: skip
        # Of Mamba 2, one step and one decay for each head are expanded over its elements.
        by_head = dt.ndim == decay.ndim == 3 and dt.stride(2) == decay.stride(1) == decay.stride(2) == 0
        by_head = by_head and (dt_bias is None or dt_bias.stride(1) == 0)
        is_supported = (by_head or state.ndim == 3) and not _has_packed_texts(others)
        if not is_supported or not _fit_kernels(state, hidden_states, dt, decay, into, back):
            return original(state, hidden_states, dt, decay, into, back, skip, dt_bias, dt_softplus, z, **others)
        if by_head:
            dt, dt_bias = dt[:, :, 0], None if dt_bias is None else dt_bias[:, 0]
        steps = dt if dt_bias is None else dt + dt_bias
        steps = softplus(steps) if dt_softplus else steps
        out = torch.empty_like(hidden_states, memory_format=torch.contiguous_format)
        step = step_heads if by_head else step_selective
        factors = torch.exp(steps * decay[:, 0, 0]) if by_head else decay
        step(out.numpy(), state.numpy(), *_arrays(hidden_states, steps, factors, into, back))
        return _add_skip(out, hidden_states, skip, z)

    return selective_state_update


def _delta(original: Callable[..., Any]) -> Callable[..., Any]:
    def torch_recurrent_gated_delta_rule(
        query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, initial_state: Any = None,
        output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, **others: Any,
    ) -> tuple[Tensor, Any]:  # fmt: skip
        single = query.shape[1] == 1 and g.ndim == 3 and output_final_state
        is_supported = single and query.dtype == torch.float32 and not _has_packed_texts(others)
        if initial_state is None or not is_supported or not _fit_kernels(initial_state, query, key, value, g, beta):
            return original(
                query, key, value, g=g, beta=beta, initial_state=initial_state, output_final_state=output_final_state,
                use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, **others,
            )  # fmt: skip
        query, key = query[:, 0], key[:, 0]
        if use_qk_l2norm_in_kernel:
            query, key = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + _EPS) for x in (query, key))
        query = query * query.shape[-1] ** -0.5
        out = torch.empty(value[:, 0].shape, dtype=value.dtype)
        arrays = _arrays(query, key, value[:, 0], g[:, 0].exp(), beta[:, 0])
        step_delta(out.numpy(), initial_state.numpy(), *arrays)
        return out[:, None], initial_state

    return torch_recurrent_gated_delta_rule


def _has_packed_texts(others: dict[str, Any]) -> bool:
    """Test whether rows contain several concatenated texts, which kernels do not support."""
    return others.get("cu_seqlens") is not None or others.get("seq_idx") is not None


def _fit_kernels(state: Any, *others: Tensor) -> bool:
    """Test whether all have the same supported dtype, and the state can be updated in place."""
    return state.dtype in IN_PLACE and state.is_contiguous() and all(other.dtype == state.dtype for other in others)


def _arrays(*tensors: Tensor) -> list[Any]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def _add_skip(out: Tensor, hidden_states: Tensor, skip: Any, gate: Any) -> Tensor:
    """Add the skip connection of a state space to its output, and multiply by the gate."""
    if skip is not None:
        out = out + hidden_states * skip
    return out if gate is None else out * silu(gate)


_EPS = 1e-6
_MAKERS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "causal_conv1d_update": _convolution,
    "mamba_selective_state_update": _state_space,
    "mamba2_selective_state_update": _state_space,
    "torch_recurrent_gated_delta_rule": _delta,
}
