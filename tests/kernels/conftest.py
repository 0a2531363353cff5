"""What tests of kernels share."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from ..watching import watched

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
SHARED = 227 << 10
"""Bytes that a program may have of an H100's fast memory."""


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What Triton's real compiler makes of a kernel for an H100; see `_compiled` for the arguments."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    return _compiled


@pytest.fixture(autouse=INTERPRETED)
def nothing_beside_tensors() -> Iterator[None]:
    """Launches are looked after."""
    with looked_after():
        yield


@pytest.fixture(autouse=INTERPRETED)
def bfloat16_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's interpreter keeps bfloat16 as integers, which it multiplies as such: products are to be of numbers."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    known = InterpreterBuilder.create_dot

    def wide(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return TensorHandle((handle.data.astype("uint32") << 16).view("float32"), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        return known(self, wide(a), wide(b), *others)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)


@contextmanager
def looked_after() -> Iterator[None]:
    """While kernels run in Triton's interpreter: AssertionError for addresses outside of the tensors that a launch was
    given, and for places that one program writes and another one reads or writes."""
    from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, _get_np_dtype, interpreter_builder

    given, launch = GridExecutor._init_args_hst, _Launch([], "")

    def note(kind: str, pointers: Any, mask: Any) -> None:
        addresses = np.asarray(pointers.data, np.int64)[np.asarray(mask.data, bool)]
        size = np.dtype(_get_np_dtype(pointers.get_element_ty())).itemsize
        launch.note(kind, addresses, size, interpreter_builder.grid_idx)

    def beginning(executor: Any, arguments: Any, more: Any) -> Any:
        nonlocal launch
        found = given(executor, arguments, more)
        tensors = [each for each in (*found[0], *found[1].values()) if isinstance(each, torch.Tensor)]
        launch = _Launch(tensors, executor.fn.__name__)
        return found

    with pytest.MonkeyPatch.context() as patch:
        watched(patch, InterpreterBuilder, "create_masked_load", lambda _, at, mask, *__: note("reads", at, mask))
        watched(
            patch, InterpreterBuilder, "create_masked_store", lambda _, at, __, mask, *___: note("writes", at, mask)
        )
        watched(patch, GridExecutor, "_restore_args_dev", lambda *_: launch.check_races())
        patch.setattr(GridExecutor, "_init_args_hst", beginning)
        yield


class _Launch:
    """The tensors of a launch, and which of their places its programs read and wrote."""

    def __init__(self, tensors: list[torch.Tensor], name: str) -> None:
        self._name = name
        spans = sorted(_span(each) for each in tensors)
        self._lows = np.array([low for low, _ in spans], np.int64)
        # A view of a tensor may be given beside it.
        self._highs = np.maximum.accumulate(np.array([high for _, high in spans], np.int64))
        self._noted: dict[str, list[tuple[np.ndarray, int]]] = {"reads": [], "writes": []}
        self._programs: dict[Any, int] = {}

    def note(self, kind: str, addresses: np.ndarray, size: int, program: Any) -> None:
        if not len(addresses):
            return
        span = np.searchsorted(self._lows, addresses, "right") - 1
        inside = (span >= 0) & (addresses + size <= self._highs[span])
        assert inside.all(), f"{self._name} {kind} beside its tensors, in program {tuple(program)}"
        self._noted[kind].append((addresses, self._programs.setdefault(tuple(program), len(self._programs))))

    def check_races(self) -> None:
        written, by = self._all("writes")
        order = np.lexsort((by, written))
        written, by = written[order], by[order]
        several = (written[1:] == written[:-1]) & (by[1:] != by[:-1])
        assert not several.any(), f"programs of {self._name} write to the same place"
        read, reader = self._all("reads")
        places = np.searchsorted(written, read)
        places[places == len(written)] = 0
        others = (written[places] == read) & (by[places] != reader) if len(written) else np.zeros(0, bool)
        assert not others.any(), f"a program of {self._name} reads what another one writes"

    def _all(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Places, and the program that touched each."""
        noted = self._noted[kind]
        if not noted:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        programs = [np.full(len(addresses), program) for addresses, program in noted]
        return np.concatenate([addresses for addresses, _ in noted]), np.concatenate(programs)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of the first number, and behind the last."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    count = last + 1 if tensor.numel() else 0
    return tensor.data_ptr(), tensor.data_ptr() + count * tensor.element_size()


def _compiled(
    module: str,
    kernel: str,
    types: dict[str, str],
    constants: dict[str, Any],
    whole: str = "any",
    steps: Collection[str] = (),
    **options: int,
) -> Any:
    """What the compiler makes of a kernel.

    steps: arguments that are steps through memory, which are divisible by 16 mostly
    whole: of whole numbers that are no constants, for which Triton compiles apart: any, all 1, all divisible by 16
    """
    triton = pytest.importorskip("triton")
    from importlib import import_module

    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(import_module(f"trellm.kernels.{module}"), kernel)
    names = function.arg_names
    if whole == "ones":
        constants = constants | dict.fromkeys((name for name in names if types.get(name, "")[:1] == "i"), 1)
    types = types | dict.fromkeys(constants, "constexpr")
    kinds = "*i" if whole == "sixteens" else "*"
    aligned = [name for name in names if types[name][0] in kinds or name in steps]
    source = ASTSource(
        function,
        {name: types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert made.asm["cubin"]
    assert made.metadata.shared <= SHARED
    return made
