"""Models that somebody has put something around: adapters of PEFT, and accelerate, which spreads a model's modules."""

from __future__ import annotations

from typing import Any

import torch

from ...errors import OptionError


def unwrapped(model: Any) -> Any:
    """The model of transformers that PEFT has wrapped, with the adapter in its layers; any other model as it is.

    Raises OptionError for an adapter that is not in the layers but in the prompt, whose keys and values only PEFT's own
    `generate` puts in front of a text.
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
    """Why an adapter cannot be run whose numbers stand before the prompt."""
    kind = getattr(config, "peft_type", "")
    return (
        f"{what} is of the kind {getattr(kind, 'value', kind)}, which puts learned keys or embeddings before every "
        "text; adapters that are in the model's layers run, such as LoRA, IA3 and OFT"
    )


def is_spread(model: torch.nn.Module) -> bool:
    """True if accelerate moves inputs and weights of the model's modules when they are called."""
    return any(_hooks(module) for module in model.modules())


def is_absent(model: torch.nn.Module) -> bool:
    """True if the model has weights without values that nothing brings when they are used."""
    return any(
        parameter.device.type == "meta"
        for module in model.modules()
        if not any(getattr(hook, "offload", False) for hook in _hooks(module))
        for parameter in module.parameters(recurse=False)
    )


def entry_device(model: Any) -> torch.device:
    """The device that takes a model's ids. Weights that accelerate brings when they are used are on 'meta' before."""
    device: torch.device = model.device
    if device.type != "meta":
        return device
    hooks = [hook for module in model.modules() for hook in _hooks(module)]
    places = [place for hook in hooks if (place := getattr(hook, "execution_device", None)) is not None]
    return next((found for place in places if (found := torch.device(place)).type != "meta"), torch.device("cpu"))


def _hooks(module: Any) -> list[Any]:
    """accelerate's hooks of a module."""
    hook: Any = getattr(module, "_hf_hook", None)
    return [] if hook is None else list(getattr(hook, "hooks", [hook]))
