"""Detection of operations that a CUDA graph cannot contain, because the host waits for data of the device."""
# torch's dispatch modes are only partly typed.
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
    """A mode that raises WaitsError in this thread before the first operation that would make the host wait for a
    device.

    A capture stopped this way can still be ended in order. After an error of CUDA itself it cannot.
    Source: torch's notes on CUDA semantics, for the limits of graphs, and its operator tags. The mode does not see
    kernels outside torch, nor tensors made from host numbers.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._kind = device.type

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, decomposed if possible, unless it waits."""
        keywords: dict[str, Any] = kwargs or {}
        with self:
            result = func.decompose(*args, **keywords)
        if result is not NotImplemented:
            return result
        if self._waits(func, args, keywords):
            raise WaitsError(str(func))
        return func(*args, **keywords)

    def _waits(self, func: Any, args: Any, keywords: dict[str, Any]) -> bool:
        kinds = {each.device.type for each in tree_leaves((args, keywords)) if isinstance(each, Tensor)}
        to = keywords.get("device")
        if to is not None:
            kinds.add(torch.device(to).type)
        if self._kind not in kinds:
            return False
        name: str = func.overloadpacket.__name__
        if name in _COPIES:
            return len(kinds) > 1
        if name in _BY_INDEX:
            # The device determines the size of a result that is indexed by a mask.
            return any(isinstance(each, Tensor) and each.dtype in _MASKS for each in tree_leaves(args[1]))
        return not _FOUND.isdisjoint(func.tags)
