"""A device that does things late, and has graphs: what GraphBackend asks of CUDA, made of a CPU's tensors.

What is written in place while a launch is begun waits until an event behind it is waited for. A graph holds operations
with the tensors that they were done on, and repeats just these. Kernels are run by Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from trellm.engine.device import graphs


class Device:
    """Its one stream; how many graphs were captured and repeated, and streams made. The current device is another."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], Any]] = []
        self.done = 0
        self.captured = self.repeated = self.streams = 0
        self.current, self.home = "another", "the model's"
        self.tape: list[Callable[[], Any]] | None = None

    def catch_up(self, until: int | None = None) -> None:
        """Do what was asked for."""
        with _disable_current_modes():
            while self.waiting and (until is None or self.done < until):
                self.done += 1
                self.waiting.pop(0)()

    @property
    def asked(self) -> int:
        return self.done + len(self.waiting)


class _Late(TorchDispatchMode):
    """Puts off what is written in place."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        more = kwargs or {}
        if self._device.tape is None and func.overloadpacket.__name__ in ("copy_", "fill_", "index_put_", "zero_"):
            self._device.waiting.append(lambda: func(*args, **more))
            return args[0]
        if self._device.tape is None and tree_leaves(args):
            self._device.catch_up()
        return func(*args, **more)


class _Tape(TorchDispatchMode):
    """Notes what is done, so that it can be done again."""

    def __init__(self, tape: list[Callable[[], Any]]) -> None:
        super().__init__()
        self._tape = tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        more = kwargs or {}
        made = func(*args, **more)

        def again() -> None:
            for before, now in zip(tree_leaves(made), tree_leaves(func(*args, **more)), strict=True):
                if isinstance(now, torch.Tensor) and now.data_ptr() != before.data_ptr():
                    before.copy_(now)

        self._tape.append(again)
        return made


class _Event:
    def __init__(self, device: Device) -> None:
        self._device, self._until = device, 0

    def record(self) -> None:
        # An event is recorded in the current stream of the current device.
        self._until = self._device.asked if self._device.current == self._device.home else 0

    def synchronize(self) -> None:
        self._device.catch_up(self._until)


class _Stream:
    def __init__(self, device: Device) -> None:
        self._device = device

    def wait_stream(self, other: Any) -> None:
        self._device.catch_up()


class _Graph:
    def __init__(self, device: Device) -> None:
        self._device = device
        self.tape: list[Callable[[], Any]] = []

    def pool(self) -> Any:
        return self._device

    def replay(self) -> None:
        self._device.repeated += 1
        self._device.waiting += self.tape


class _Cuda:
    """What stands for torch.cuda."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def Stream(self, device: Any) -> Any:  # noqa: N802
        self._device.streams += 1
        return _Stream(self._device)

    def Event(self) -> Any:  # noqa: N802
        return _Event(self._device)

    def CUDAGraph(self) -> Any:  # noqa: N802
        return _Graph(self._device)

    def current_stream(self, device: Any) -> Any:
        return _Stream(self._device)

    def stream(self, stream: Any) -> Any:
        return nullcontext()

    @contextmanager
    def graph(self, graph: Any, pool: Any, capture_error_mode: str) -> Iterator[None]:
        assert self._device.current == self._device.home, "captured on a stream of another device"
        self._device.catch_up()
        self._device.captured += 1
        self._device.tape = graph.tape
        try:
            with _Tape(graph.tape):
                yield
        finally:
            self._device.tape = None


class _Torch:
    """torch, but for its CUDA and for memory that devices read by themselves."""

    def __init__(self, device: Device) -> None:
        self.cuda = _Cuda(device)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *shape: Any, pin_memory: bool = False, **more: Any) -> torch.Tensor:
        return torch.empty(*shape, **more)


@contextmanager
def recorded() -> Iterator[Device]:
    """While this lasts GraphBackend, made on the CPU, runs on such a device, with the kernels of a GPU."""
    from trellm.engine.models import head, modules
    from trellm.engine.models.blocks import attention, step, storage
    from trellm.engine.models.packed import decoder as packed_decoder
    from trellm.engine.models.packed import device as packed_device
    from trellm.engine.models.packed.device import DeviceKernels
    from trellm.kernels.decoder import operations, triton_decoder
    from triton.runtime.interpreter import InterpretedFunction

    device = Device()
    run = InterpretedFunction.run

    def launched(kernel: Any, *arguments: Any, **more: Any) -> Any:
        if device.tape is None:
            device.catch_up()
        else:
            device.tape.append(lambda: run(kernel, *arguments, **more))
        with _disable_current_modes():
            return run(kernel, *arguments, **more)

    @contextmanager
    def on(tensor: Any) -> Iterator[None]:
        before, device.current = device.current, device.home
        try:
            yield
        finally:
            device.current = before

    launch = graphs.GraphBackend.launch

    def late(backend: Any, given: Any) -> Any:
        with _Late(device):
            return launch(backend, given)

    def few(states: Any, weight: Any) -> Any:
        return triton_decoder.multiply if triton_decoder.can_multiply(states, weight) else None

    stands_for: list[tuple[Any, str, Any]] = [
        (InterpretedFunction, "run", launched),
        (graphs, "torch", _Torch(device)),
        (graphs, "_has_graphs", lambda _: True),
        (graphs, "_trial_stream", cache(graphs._trial_stream.__wrapped__)),
        (graphs, "on", on),
        (graphs.GraphBackend, "launch", late),
        (head, "product", torch.nn.functional.linear),
        (modules, "has_quick_parts", lambda body: False),
        # transformers leaves out what it only warns of.
        (torch.cuda, "is_current_stream_capturing", lambda: device.tape is not None),
        *((operations, name, getattr(triton_decoder, name)) for name in ("norm", "place", "gate")),
        *((packed_device, name, getattr(triton_decoder, name)) for name in ("norm", "place")),
        (operations, "_matvec", few),
        *((module, "has_kernels", lambda _: True) for module in (attention, step, storage)),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(packed_decoder.BACKENDS, "cpu", DeviceKernels)
        for owner, name, other in stands_for:
            patch.setattr(owner, name, other)
        yield device
