"""What tests of kernels share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from .watched import watched

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@pytest.fixture(autouse=INTERPRETED)
def nothing_beside_tensors() -> Iterator[None]:
    """Launches are looked after."""
    with watched():
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
