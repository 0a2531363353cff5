"""A body of another's modules: the same attributes, parameters and hooks, and quick parts in place of slow ones."""

from __future__ import annotations

from operator import is_
from typing import Any

import torch
from torch import nn

from ..blocks.storage import IN_PLACE
from .parts import QuickLinear, norm_like
from .steps import quick_steps_of

_get: Any = dict[str, Any].get
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


class Twin:
    """The twin of a body.

    Each of its modules shares all attributes with the one that it stands for: what is set on one, a parameter, a state,
    a hook, is set on the other. Only the modules below it are others, and some have a quicker `forward`. It is made
    anew when modules of the body are replaced.
    """

    def __init__(self, body: nn.Module) -> None:
        self._body = body
        self._make()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is one of the copied body."""
        return type(self), (self._body,)

    @staticmethod
    def suits(body: nn.Module) -> bool:
        """Whether there are quick parts for a body: one of transformers', on a CPU, in a type that the kernels have."""
        kinds = {(weights.device.type, weights.dtype) for weights in body.parameters()}
        return _is_known(body) and all(place == "cpu" and dtype in IN_PLACE for place, dtype in kinds)

    @property
    def body(self) -> Any:
        """The twin, as the body is now."""
        found: Any = map(_get, self._holders, self._names)
        if not all(map(is_, found, self._children)):
            self._make()
        return self._twin

    def _make(self) -> None:
        links = [
            (held, name, child)
            for each in self._body.modules()
            for held in (_below(each),)
            for name, child in held.items()
        ]
        self._holders, self._names, self._children = ([link[place] for link in links] for place in range(3))
        self._twin = _twin_of(self._body, {})


def _is_known(module: nn.Module) -> bool:
    return type(module).__module__.startswith(("torch.nn.modules.", "transformers.")) and not isinstance(
        module, torch.jit.ScriptModule
    )


def _twin_of(module: nn.Module, made: dict[int, nn.Module]) -> nn.Module:
    """What stands for a module, itself if nothing does; modules that are in several places stay one."""
    if id(module) in made:
        return made[id(module)]
    children = {name: None if child is None else _twin_of(child, made) for name, child in _below(module).items()}
    kind = type(module)
    quick: Any = None
    own = vars(module)
    if kind in _CONTAINERS:
        quick, own = kind, {**own, "_modules": children}
    elif kind is nn.Linear and module.weight.dtype in IN_PLACE:
        quick = QuickLinear
    elif not children and (norm := norm_like(module)) is not None:
        quick = type(kind.__name__, (norm, kind), {})
    elif children and _is_known(module):
        # Attributes of the class are found before `nn.Module` looks for those of the instance, which are the other's.
        more: dict[str, Any] = {name: child for name, child in children.items() if name.isidentifier()}
        quick = type(kind.__name__, (kind,), {**quick_steps_of(kind), **more, "_modules": _fixed(children)})
    found = module
    if quick is not None:
        found = object.__new__(quick)
        object.__setattr__(found, "__dict__", own)
    made[id(module)] = found
    return found


def _below(module: nn.Module) -> dict[str, Any]:
    """The modules that are parts of one."""
    return vars(module)["_modules"]


def _fixed(children: dict[str, Any]) -> property:
    """Takes the place of an attribute of each instance."""
    return property(lambda module: children)
