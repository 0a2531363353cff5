"""Described decoders on packed tokens, by the kernels of their device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self

from torch import Tensor

from ..blocks.step import DeviceStep, PackedStep
from .architectures import NotDescribedError
from .description import DecoderDescription, DecoderSource, DecoderWeights
from .device import DeviceKernels
from .host import HostKernels
from .quantized import QuantizedKernels
from .source import ModuleSource


class Backend(Protocol):
    """Kernels of a device, with the weights of one decoder."""

    def __init__(self, description: DecoderDescription, weights: DecoderWeights[Any]) -> None: ...

    @staticmethod
    def takes(description: DecoderDescription, weight: Tensor) -> bool:
        """Test whether the backend supports a description. weight: a norm's, with the dtype of states and the device"""
        ...

    def read(self, ids: Tensor, positions: Tensor, step: PackedStep | DeviceStep) -> Tensor:
        """Return states [n, hidden] of packed tokens after the last norm.

        ids, positions: int64 [n]; ids may be embeddings instead, [n, hidden]
        step: slots for keys and values, and texts for attention
        Allocates blocks at the first step, which should precede the capture of a CUDA graph. Does not synchronise with
        the device: the launches do not depend on the contents of tensors.
        """
        ...


BACKENDS: Mapping[str, type[Backend]] = {"cpu": HostKernels, "cuda": DeviceKernels}
"""Backends by device; `QuantizedKernels` runs quantized weights."""


class DescribedDecoder:
    """A described body, of transformers or a `DecoderSource` itself, with kernels for its device.

    Call `prepare` before each use of `kernels`. A captured graph contains addresses of weights; it is valid while
    `prepare` returns the same number.
    Raises NotDescribedError for other bodies.
    """

    def __init__(self, body: Any, config: Any, backend: type[Backend]) -> None:
        self._body = body
        self._config = config
        self._kind = backend
        self._number = 0
        self._arrange()

    @classmethod
    def of(cls, body: Any, config: Any, backend: type[Backend] | None = None) -> Self | None:
        """Return a decoder of a body with its device's backend, or the given one; None for other bodies."""
        kind = BACKENDS.get(body.device.type) if backend is None else backend
        if kind is None:
            return None
        try:
            return cls(body, config, kind)
        except NotDescribedError:
            return None

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy as a decoder of the copied body; as None if the body was changed."""
        return DescribedDecoder.of, (self._body, self._config, self._kind)

    def prepare(self) -> int | None:
        """Return a number that changes when weights move; None once the body has no description any more.

        Does not synchronise with the device.
        """
        if self._source is None:
            return None
        if self._source.is_intact:
            return self._number
        self._number += 1
        try:
            self._arrange()
        except NotDescribedError:
            self._source = None
            return None
        return self._number

    def _arrange(self) -> None:
        """Check the body and lay out its weights. Raises NotDescribedError."""
        body = self._body
        source: DecoderSource = body if isinstance(body, DecoderSource) else ModuleSource(body, self._config)
        kind = QuantizedKernels if source.is_quantized else self._kind
        if not kind.takes(source.description, source.weights.last.weight):
            raise NotDescribedError(f"{kind.__name__} is not for this decoder")
        self.description = source.description
        self.kernels: Backend = kind(source.description, source.weights)
        self._source: DecoderSource | None = source
