"""Refusal of what may not be captured in a CUDA graph: that the host waits for what the device finds out."""
# torch's modes say little of their types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_COPIES = {"_to_copy", "copy_"}
_BY_INDEX = {"index", "index_put", "index_put_", "_index_put_impl_"}
_MASKS = {torch.bool, torch.uint8}
_FOUND = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class WaitsError(Exception):
    """The host would wait for the device."""


class WithoutWaiting(TorchDispatchMode):
    """Raises WaitsError in this thread in place of the first operation by which the host would wait for a device.

    A capture that is broken off so may still be ended in order, which one may not after what CUDA itself refuses.
    Source: torch's notes on CUDA semantics, which say what a graph must not hold, and its tags of operators. What is no
    operation of torch's, such as a kernel of ours, is not seen, nor is a tensor that is made of numbers of the host.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._kind = device.type

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do what was asked for, by the operations that it is made of if there are such."""
        given: dict[str, Any] = kwargs or {}
        with self:
            made = func.decompose(*args, **given)
        if made is not NotImplemented:
            return made
        if self._waits(func, args, given):
            raise WaitsError(str(func))
        return func(*args, **given)

    def _waits(self, func: Any, args: Any, given: dict[str, Any]) -> bool:
        kinds = {each.device.type for each in tree_leaves((args, given)) if isinstance(each, Tensor)}
        to = given.get("device")
        if to is not None:
            kinds.add(torch.device(to).type)
        if self._kind not in kinds:
            return False
        name: str = func.overloadpacket.__name__
        if name in _COPIES:
            return len(kinds) > 1
        if name in _BY_INDEX:
            # A mask stands for as many places as the device finds in it.
            return any(isinstance(each, Tensor) and each.dtype in _MASKS for each in tree_leaves(args[1]))
        return not _FOUND.isdisjoint(func.tags)
