"""Detection of changed modules, PEFT's wrappers, and accelerate's hooks, which spread a model over devices.

A network is stock if transformers, torch or `quantized` define all its code.
"""

from __future__ import annotations

import inspect
import os
from types import FunctionType
from typing import Any

import torch
import transformers

from ...errors import OptionError
from . import quantized

_FILES: tuple[Any, ...] = (torch.__file__, transformers.__file__, quantized.__file__)
_HOMES = tuple(os.path.dirname(os.path.abspath(str(file))) + os.sep for file in _FILES)
_NAMES = ("torch.nn.modules.", "transformers.", f"{quantized.__name__}.")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CAPTURING = "transformers.utils.output_capturing"
_CACHES = ("cache", "past_key_values", "cache_params", "state")


def cache_argument(network: Any) -> str:
    """Return the name of a network's argument for a cache or states; it is `cache` from transformers 5.24 on."""
    names = inspect.signature(network.forward).parameters
    return next((name for name in _CACHES if name in names), "past_key_values")


def strangeness(network: Any) -> str | None:
    """Return the first reason why a network's computation may differ from its classes; None if there is none."""
    if getattr(network, "hf_quantizer", None) is not None:
        return "quantized weights"
    return next((f"{name or type(network).__name__}: {reason}" for name, module in network.named_modules()
                 if (reason := strangeness_of(module)) is not None), None)  # fmt: skip


def strangeness_of(module: Any) -> str | None:
    """Return the reason for a module without its submodules, None if there is none.

    Reasons are foreign classes (adapters, parametrizations), hooks and patched code.
    """
    if not type(module).__module__.startswith(_NAMES):
        return f"a module of class {type(module).__module__}.{type(module).__qualname__}"
    if "forward" in vars(module):
        return "another forward"
    for name in _HOOKS:
        for hook in getattr(module, name).values():
            # transformers leaves these hooks on modules; they only act if a call requests captured outputs.
            if getattr(hook, "__module__", None) != _CAPTURING:
                return "hooks"
    return None if _has_own_forward(module.__class__) else f"another forward of {type(module).__name__}"


def _has_own_forward(kind: type[Any]) -> bool:
    """Test whether a class's `forward` is its own, and files of `_HOMES` define it, its wrappers and its functions."""
    owner = next(each for each in kind.__mro__ if "forward" in vars(each))
    function: Any = vars(owner)["forward"]
    while isinstance(function, FunctionType) and _is_at_home(function):
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            called = (function.__globals__.get(name) for name in function.__code__.co_names)
            is_own = (function.__module__, function.__qualname__) == (owner.__module__, f"{owner.__qualname__}.forward")
            # `nn.Module`'s placeholder for forward has another name.
            is_own = is_own or owner is torch.nn.Module
            return is_own and all(_is_at_home(each) for each in called if isinstance(each, FunctionType))
        function = inner
    return False


def _is_at_home(function: FunctionType) -> bool:
    return os.path.abspath(function.__code__.co_filename).startswith(_HOMES)


def unwrap(model: Any) -> Any:
    """Return the transformers model inside a PEFT model, with the adapter in its layers; other models unchanged.

    Raises OptionError for prompt learning, where only PEFT's own `generate` adds the learned keys and values.
    """
    if not any(kind.__module__.split(".")[0] == "peft" for kind in type(model).__mro__):
        return model
    adapters: dict[str, Any] = getattr(model, "peft_config", None) or {}
    for name, config in adapters.items():
        if getattr(config, "is_prompt_learning", False):
            raise OptionError(prompt_learned(f"the adapter {name!r} of {type(model).__name__}", config))
    inner = getattr(model, "base_model", model)
    return getattr(inner, "model", inner)


def prompt_learned(what: str, config: Any) -> str:
    """Return the error message for an adapter of prompt learning."""
    kind = getattr(config, "peft_type", "")
    return (
        f"{what} is of the kind {getattr(kind, 'value', kind)}, which puts learned keys or embeddings before every "
        "text; adapters that are in the model's layers run, such as LoRA, IA3 and OFT"
    )


def is_spread(model: torch.nn.Module) -> bool:
    """Test whether accelerate moves inputs and weights when modules are called."""
    return any(_hooks(module) for module in model.modules())


def is_absent(model: torch.nn.Module) -> bool:
    """Test whether some weights are on the meta device, and accelerate does not load them on use."""
    return any(
        parameter.device.type == "meta"
        for module in model.modules()
        if not any(getattr(hook, "offload", False) for hook in _hooks(module))
        for parameter in module.parameters(recurse=False)
    )


def entry_device(model: Any) -> torch.device:
    """Return the device for a model's input ids. accelerate keeps offloaded weights on 'meta' until they are used."""
    device: torch.device = model.device
    if device.type != "meta":
        return device
    hooks = [hook for module in model.modules() for hook in _hooks(module)]
    places = [place for hook in hooks if (place := getattr(hook, "execution_device", None)) is not None]
    return next((found for place in places if (found := torch.device(place)).type != "meta"), torch.device("cpu"))


def _hooks(module: Any) -> list[Any]:
    """Return accelerate's hooks of a module."""
    hook: Any = getattr(module, "_hf_hook", None)
    return [] if hook is None else list(getattr(hook, "hooks", [hook]))
