"""Scans in chunks, which transformers' code for CPUs fills up to whole ones."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

_FEW, _MANY = 16, 32


class Scans:
    """The modules of a body that scan tokens in chunks (Mamba 2 and its kin), and how long a pass lets these be.

    What they compute is the same for every length of chunks, but for rounding. Configurations say 256, which suits
    kernels of GPUs; in torch the work grows with its square, and a prompt of 8 tokens is filled up to it: measured with
    Mamba 2 of hidden size 256, 8 tokens took 62 ms with chunks of 256 and 5 ms with chunks of 16, and 512 tokens 147 ms
    and 55 ms with chunks of 32.
    """

    def __init__(self, body: Any, device: torch.device) -> None:
        found = body.modules() if device.type == "cpu" else ()
        self._scanning = [(module, size) for module in found if (size := _chunks(module)) > _FEW]

    @contextmanager
    def of(self, width: int) -> Generator[None, None, None]:
        """The modules as a pass of so many tokens wants them; then as they were."""
        if width == 1 or not self._scanning:
            yield
            return
        try:
            for module, size in self._scanning:
                module.chunk_size = min(size, _FEW if width <= _FEW else _MANY)
            yield
        finally:
            for module, size in self._scanning:
                module.chunk_size = size


def _chunks(module: Any) -> int:
    """How many tokens a module scans at once; 0 for one that does not scan as Mamba 2 does."""
    size: Any = getattr(module, "chunk_size", None)
    return size if type(size) is int and isinstance(getattr(module, "A_log", None), torch.Tensor) else 0
