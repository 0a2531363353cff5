"""Detection of changes of a model's weights, which invalidate the KV cache and cached probabilities."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from operator import is_
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Self, cast
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ...errors import OptionError

_NO_HOLDERS = (type, ModuleType, FunctionType, BuiltinFunctionType, str, bytes, int, float)
"""Types whose objects hold no weights, or refer to the whole interpreter."""
_FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_get: Any = dict[str, Any].get


class Weights:
    """State of a model's weights and active adapters. It is constant for a model without a torch module.

    Detected changes: in-place writes to parameters and buffers (optimisers, loading), replaced tensors, added or
    replaced modules, training mode, and PEFT adapters that are selected, scaled, disabled or merged. Not detected:
    writes through `.data` and to inference tensors, for which torch has no version counters.
    Raises the errors of `check`.
    """

    def __init__(self, model: Any) -> None:
        network = getattr(model, "model", None)
        self._network = network if isinstance(network, nn.Module) else None
        self._kind: str | None = getattr(model, "weights_kind", None)
        self._check_head: Callable[[], None] | None = getattr(model, "check_head", None)
        self._parts = None if self._network is None else NumberedLinks(self._network)
        self.check()

    def state(self) -> int:
        """Return a hash of the weights' state. It takes about 50 us for 100 modules."""
        if self._parts is None:
            return 0
        number, links = self._parts.now()
        written = *map(_place, links.tensors), *map(_version, links.tensors)
        return hash((number, *written, *links.training, *links.adapters))

    def check(self) -> None:
        """Raise OptionError for another dtype or device than at wrapping, ModelError for another head."""
        now = None if self._network is None or self._kind is None else kind_of(self._network)
        if now is not None and now != self._kind:
            raise OptionError(
                f"the model's weights are {now} now, and were {self._kind} when it was wrapped; wrap it again: "
                "models.transformers(model, tokenizer)"
            )
        if self._check_head is not None:
            self._check_head()


class ModuleLinks:
    """References from a network to its modules, parameters and buffers, with its hooks, training modes and `forward`s.

    Reads the modules' dictionaries directly, since `Module.modules()` is slow.
    tensors: parameters and buffers; some quantisation methods store weights in buffers
    """

    def __init__(self, network: nn.Module) -> None:
        links = list(_links_of(network))
        self._holders, self._names, self._parts = ([link[place] for link in links] for place in range(3))
        self._sizes = list({id(holder): holder for holder in self._holders}.values())
        self._size = sum(map(len, self._sizes))
        self.tensors: list[Tensor] = [part for part in self._parts if isinstance(part, Tensor)]
        self._namespaces = list(map(vars, network.modules()))
        self._adapter_layers = [held for held in self._namespaces if "_disable_adapters" in held]
        self._hooks: list[Any] = [held[name] for held in self._namespaces for name in _FORWARD_HOOKS]
        self._counts = self._count_calls()

    @property
    def are_intact(self) -> bool:
        """True if all modules, parameters and buffers are the same objects."""
        found: Any = map(_get, self._holders, self._names)
        return all(map(is_, found, self._parts)) and sum(map(len, self._sizes)) == self._size

    @property
    def are_called_alike(self) -> bool:
        """True if the numbers of hooks, modules in training, and patched forwards are unchanged."""
        return self._count_calls() == self._counts

    @property
    def training(self) -> Iterator[bool]:
        """Training flags of all modules."""
        return (module["training"] for module in self._namespaces)

    @property
    def adapters(self) -> Iterator[tuple[bool, str, int, str]]:
        """The active adapters of each layer with adapters."""
        return map(_chosen, self._adapter_layers)

    def _count_calls(self) -> tuple[int, int, int]:
        namespaces = self._namespaces
        return sum(map(len, self._hooks)), sum(self.training), sum("forward" in held for held in namespaces)


def _links_of(module: Any) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Yield (dictionary, name, entry) for each parameter, buffer and module of a module and its submodules."""
    for held in (module._parameters, module._buffers):
        for name, tensor in held.items():
            yield held, name, tensor
    for name, child in module._modules.items():
        yield module._modules, name, child
        if child is not None:
            yield from _links_of(child)


class NumberedLinks:
    """The current links of a network, numbered: each change of the links increases the number."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._links: ModuleLinks | None = None
        self._number = 0

    def now(self) -> tuple[int, ModuleLinks]:
        """Return the number and the links."""
        links = self._links
        if links is None or not links.are_intact:
            # Links hold the tensors, since new tensors reuse the address and identity of freed ones.
            self._links = links = ModuleLinks(self._network)
            self._number += 1
        return self._number, links

    def baked(self) -> tuple[Any, ...]:
        """Return a key of all that a captured graph contains: modules, adapters, addresses of parameters and buffers.

        Plain Python attributes of modules are not included.
        """
        number, links = self.now()
        return (number, *map(_place, links.tensors), *links.adapters)


class LoadedParameters:
    """The parameters of a network at loading, except those on the meta device."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        parameters = self._parameters()
        # Weak references, so that replaced parameters are freed.
        self._references: list[ReferenceType[Tensor]] = list(map(ref, parameters))
        self._versions = list(map(_version, parameters))
        self._was_changed = False

    @property
    def is_changed(self) -> bool:
        """True if any parameter was written or replaced."""
        now = self._parameters()
        if self._was_changed or list(map(_version, now)) != self._versions:
            return True
        return any(was() is not parameter for was, parameter in zip(self._references, now, strict=True))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy for the copied network. The copy counts as changed if this one does."""
        copied = type(self)(copy.deepcopy(self._network, memo))
        copied._was_changed = self.is_changed
        return copied

    def _parameters(self) -> list[nn.Parameter]:
        return [each for each in self._network.parameters() if each.device.type != "meta"]


def held_bytes(model: Any) -> int:
    """Return the bytes of all tensors and arrays that a model refers to: also mapped files; shared storage once.

    Follows Python references, since a decoder's runner has weights outside torch modules.
    """
    left, known, sizes = [model], {id(model)}, dict[int, int]()
    while left:
        each = left.pop()
        if isinstance(each, Tensor):
            if each.device.type != "meta":
                storage = each.untyped_storage()
                sizes[storage.data_ptr()] = storage.nbytes()
        elif isinstance(each, np.ndarray):
            base = cast("NDArray[Any]", each)
            while isinstance(base.base, np.ndarray):
                base = base.base
            sizes[base.ctypes.data] = base.nbytes
        else:
            inner = [one for one in gc.get_referents(each) if not isinstance(one, _NO_HOLDERS) and id(one) not in known]
            known.update(map(id, inner))
            left += inner
    return sum(sizes.values())


def kind_of(network: nn.Module) -> str | None:
    """Return dtype and device of a network's first floating-point parameter; None if it has none in memory."""
    first = next((weights for weights in network.parameters() if weights.is_floating_point()), None)
    return None if first is None or first.device.type == "meta" else f"{first.dtype} on {first.device}"


def _place(weights: Tensor) -> int:
    """Return the address of a tensor's data; for subclasses, such as quantised ones, the identity of the object."""
    return weights.data_ptr() if type(weights) in (nn.Parameter, Tensor) else id(weights)


def _version(weights: Tensor) -> int:
    """Return a tensor's version counter; 0 for inference tensors, which have none."""
    return 0 if weights.is_inference() else weights._version


def _chosen(layer: dict[str, Any]) -> tuple[bool, str, int, str]:
    """Return a PEFT layer's state: disabled, active adapters, number of merged adapters, scales by adapter name."""
    chosen, merged = str(layer.get("_active_adapter")), len(layer.get("merged_adapters", ()))
    return layer["_disable_adapters"], chosen, merged, str(layer.get("scaling"))
