"""Detection of changes of a model's weights, which invalidate the KV cache and cached probabilities."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator, Sequence
from itertools import chain
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Self, cast
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ...errors import OptionError

_NO_HOLDERS = (type, ModuleType, FunctionType, BuiltinFunctionType, str, bytes, int, float)
"""Types whose objects hold no weights, or refer to the whole interpreter."""


class Weights:
    """The state of a model's weights and active adapters. A model without a torch module never changes.

    Detected: in-place writes of parameters and buffers (optimisers, loading), their replacement, added or replaced
    modules, training mode, and adapters of PEFT that are selected, scaled, disabled or merged. Not detected: writes
    through `.data` and to inference tensors, since torch has no version counters for these. Raises OptionError as
    `check` does.
    """

    def __init__(self, model: Any) -> None:
        network = getattr(model, "model", None)
        self._network = network if isinstance(network, nn.Module) else None
        self._kind: str | None = getattr(model, "weights_kind", None)
        self._parts = None if self._network is None else Parts(self._network)
        self.check()

    def state(self) -> int:
        """Return a hash of the weights' state. It takes about 50 us for 100 modules."""
        if self._parts is None:
            return 0
        parts = self._parts
        structure = parts.structure()
        return hash((*structure, parts.replaced(), *map(_written, parts.tensors), *parts.training, *parts.adapters))

    def check(self) -> None:
        """Raise OptionError if dtype or device of the weights differ from those at wrapping."""
        now = None if self._network is None or self._kind is None else kind_of(self._network)
        if now is not None and now != self._kind:
            raise OptionError(
                f"the model's weights are {now} now, and were {self._kind} when it was wrapped, which its memory is "
                "made for; wrap it again: models.transformers(model, tokenizer)"
            )


class Parts:
    """Modules and tensors of a network, cached by their own dictionaries, since `Module.modules()` is slow."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._children: list[dict[str, nn.Module | None]] = []
        self._held: list[dict[str, nn.Parameter | None]] = []
        self._buffers: list[dict[str, Tensor | None]] = []
        self._adapted: list[dict[str, Any]] = []
        self._modules: list[dict[str, Any]] = []
        self._structure: list[int] = []
        self._seen = Seen(())
        self._replaced = 0

    def structure(self) -> list[int]:
        """Return the identities of all modules, and refresh the cached dictionaries if they changed."""
        if not self._structure or self._found() != self._structure:
            modules = self._modules = list(map(vars, self._network.modules()))
            self._children = [module["_modules"] for module in modules if module["_modules"]]
            self._held = [module["_parameters"] for module in modules if module["_parameters"]]
            self._buffers = [module["_buffers"] for module in modules if module["_buffers"]]
            self._adapted = [module for module in modules if "_disable_adapters" in module]
            self._structure = self._found()
        return self._structure

    @property
    def weights(self) -> Iterator[nn.Parameter]:
        """All parameters."""
        return (each for held in self._held for each in held.values() if each is not None)

    @property
    def buffers(self) -> Iterator[Tensor]:
        """All buffers. Some quantisation methods store weights there."""
        return (each for held in self._buffers for each in held.values() if each is not None)

    @property
    def tensors(self) -> Iterator[Tensor]:
        """All parameters and buffers."""
        return chain(self.weights, self.buffers)

    @property
    def training(self) -> Iterator[bool]:
        """Training flags of all modules."""
        return (module["training"] for module in self._modules)

    def replaced(self) -> int:
        """Return how often tensors were replaced. Addresses alone do not tell, since new tensors reuse freed memory."""
        tensors = list(self.tensors)
        if not self._seen.are(tensors):
            self._seen, self._replaced = Seen(tensors), self._replaced + 1
        return self._replaced

    @property
    def adapters(self) -> Iterator[tuple[bool, str, int, str]]:
        """The active adapters of each layer with adapters."""
        return map(_chosen, self._adapted)

    def baked(self) -> tuple[Any, ...]:
        """Return a key of everything a captured graph depends on: modules, adapters, addresses of parameters and
        buffers.

        Plain Python attributes of modules are not covered.
        """
        structure = self.structure()
        return (*structure, *map(_place, self.tensors), *self.adapters)

    def _found(self) -> list[int]:
        return [id(child) for held in self._children for child in held.values()]


class Seen:
    """Weak references to tensors, which distinguish them from new tensors at reused addresses."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._references: list[ReferenceType[Tensor]] = list(map(ref, tensors))

    def are(self, tensors: Sequence[Tensor]) -> bool:
        """Test whether these are the same tensors in the same order."""
        return len(tensors) == len(self._references) and all(
            was() is own for was, own in zip(self._references, tensors, strict=True)
        )


class Loaded:
    """The parameters of a network as loaded, without those on the meta device."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        parameters = self._parameters()
        self._seen, self._versions = Seen(parameters), list(map(_version, parameters))
        self._was_changed = False

    @property
    def is_changed(self) -> bool:
        """True if any parameter was written or replaced."""
        now = self._parameters()
        return self._was_changed or not self._seen.are(now) or list(map(_version, now)) != self._versions

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy with the network. The copy is changed if this one is."""
        made = type(self)(copy.deepcopy(self._network, memo))
        made._was_changed = self.is_changed
        return made

    def _parameters(self) -> list[nn.Parameter]:
        return [each for each in self._network.parameters() if each.device.type != "meta"]


def held_bytes(model: Any) -> int:
    """Return the bytes of all tensors and arrays that a model refers to, shared storage counted once, mapped files
    included.

    It follows Python references, since a decoder's runner has weights outside torch modules.
    """
    left, known, sizes = [model], {id(model)}, dict[int, int]()
    while left:
        each = left.pop()
        if isinstance(each, Tensor):
            if each.device.type != "meta":
                storage = each.untyped_storage()
                sizes[storage.data_ptr()] = storage.nbytes()
        elif isinstance(each, np.ndarray):
            whole = cast("NDArray[Any]", each)
            while isinstance(whole.base, np.ndarray):
                whole = whole.base
            sizes[whole.ctypes.data] = whole.nbytes
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
    """Return the address of a tensor's data. Quantised subclasses have no such address, and use their identity."""
    return weights.data_ptr() if type(weights) in (nn.Parameter, Tensor) else id(weights)


def _written(weights: Tensor) -> tuple[int, int]:
    """Return a tensor's address and version counter."""
    return _place(weights), _version(weights)


def _version(weights: Tensor) -> int:
    """Return a tensor's version counter; 0 if torch has none."""
    return 0 if weights.is_inference() else weights._version


def _chosen(layer: dict[str, Any]) -> tuple[bool, str, int, str]:
    """Return the active adapters of a layer and their scales. PEFT keeps lists of names, and scales by name."""
    chosen, merged = str(layer.get("_active_adapter")), len(layer.get("merged_adapters", ()))
    return layer["_disable_adapters"], chosen, merged, str(layer.get("scaling"))
