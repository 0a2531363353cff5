"""Steps whose layers one kernel reads, on a CPU.

Where that takes little, calling the kernels of each layer takes as long as they do, and after each of them another
thread may have the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ....kernels.decoder.plain import Heads
from ....kernels.decoder.stacks import Stack, Texts
from ...memory.tables import BLOCK
from ..blocks.attention import is_undivided
from ..blocks.step import Step

Reals = NDArray[Any]
_MUCH = 1 << 29
"""Products of numbers that take some 20 ms. A step of more is left to a call a layer, between which Ctrl-C is seen."""
_READ = 4
"""To read a weight takes as long as so many products."""


class Weights(NamedTuple):
    """One layer's: arrays of one or two dimensions as kernels take them, and what norms add, of heads last."""

    arrays: Sequence[Reals]
    eps: tuple[float, float, float]


class AtOnce:
    """The layers of a body, if they are alike: those of its arrays at the same place have one shape.

    A kernel has only addresses of them: so this keeps the arrays until it is done, since another thread may find the
    body's weights moved meanwhile.
    """

    def __init__(self, layers: Sequence[Weights], heads: Heads) -> None:
        shapes = {tuple(array.shape for array in layer.arrays) for layer in layers}
        self._layers = layers
        self._heads = heads
        self._numbers = sum(array.size for layer in layers for array in layer.arrays)
        self._stack: Stack | None = None
        if len(shapes) == 1:
            self._stack = Stack(
                np.array([[array.ctypes.data for array in layer.arrays] for layer in layers], np.int64),
                np.array([(*shape, 1)[:2] for shape in shapes.pop()], np.int64),
                np.array([layer.eps for layer in layers], np.float64),
            )

    def takes(self, step: Step, tokens: int) -> bool:
        """Whether a step of so many tokens is for the kernel."""
        if self._stack is None or max(tokens, _READ) * self._numbers > _MUCH or step.uploaded is not None:
            return False
        keys, queries = (count * self._heads.size for count in (self._heads.keys, self._heads.queries))
        return is_undivided(step, keys, queries)

    def read(
        self,
        kernel: Callable[..., None],
        residual: Tensor,
        places: Sequence[Tensor],
        step: Step,
        last: Sequence[Reals | float],
        scale: float,
        room: Sequence[Reals],
    ) -> Tensor:
        """The states [n, hidden] after the last norm, in place of `residual`, for a step that is taken.

        kernel: `read_layers` or `read_biased_layers`
        places: the slots of tokens, and what else the kernel takes of where they lie; last: what it takes of the last
            norm; room: what it computes in
        scale: of products of queries and keys
        """
        inner, heads = residual.numpy(), self._heads
        queries, mixed = np.empty((2, len(inner), heads.queries, heads.size), inner.dtype)
        scores = (
            step.scratch(0, heads.queries, inner.dtype) if step.short else np.empty((heads.queries, 0), inner.dtype)
        )
        settings, _ = step.settings(scale, None, inner.dtype)
        where = (each.numpy() for each in places)
        kernel(inner, queries, mixed, *where, self._stack, self._texts(step, residual), *last, settings, scores, *room)
        return residual

    def _texts(self, step: Step, like: Tensor) -> Texts:
        """What attention reads in a step; `like` is of the type of keys and values, for which there is room then."""
        heads = self._heads
        none = like.new_empty(0, heads.keys, heads.size)
        for layer in step.layers:
            layer.allocate(none, none)
        stored = [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in step.layers]
        shape = step.layers[0].blocks, heads.keys, BLOCK, heads.size
        return Texts(np.array(stored, np.int64), np.array(shape, np.int64), step.limits, step.rows, step.long_rows)
