"""A model's body whose weights were laid out for kernels, and whether it still is what it was then."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import is_
from threading import RLock
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ....errors import ModelError
from ....kernels.decoder.plain import Heads
from ..blocks.step import Step
from ..blocks.storage import LayerBlocks
from .probe import is_right
from .structure import Link, UnknownBodyError

Attend = Callable[[int, Tensor], Tensor]
_get: Any = dict[str, Any].get
_locks: WeakKeyDictionary[Any, RLock] = WeakKeyDictionary()


class PreparedBody(ABC):
    """Weights are laid out once, and the parameters of the model's modules become views of them: the model works as
    before, its memory is not doubled, and what is written into parameters (`load_state_dict`, an optimiser) is seen
    here. What makes new ones (`to`, `deepcopy`) is noticed by `prepare`, and so are modules and buffers that are
    replaced. Hooks that are registered later are not.
    """

    def __init__(self, body: Any, config: Any) -> None:
        self._body = body
        self._config = config
        self._lock = _locks.setdefault(body, RLock())
        self._number = 0
        self._known = self._arrange()

    @classmethod
    def of(cls, body: Any, config: Any) -> Self | None:
        """A decoder for a body that is known, and gives the same states on a few tokens; None for any other."""
        found = cls(body, config)
        return found if found._known and is_right(found.run, found.scale, body, config) else None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is one of the copied body."""
        return type(self), (self._body, self._config)

    def prepare(self) -> int | None:
        """A number that changes when weights have moved; None once the body is not what it was, and cannot be run.

        Waits for nothing on the device. A captured graph holds the addresses of weights: it is good for as long as this
        number is the same, and `prepare` has to be called before one is captured.
        """
        if not self._known:
            return None
        if self._is_intact():
            return self._number
        self._number += 1
        self._known = self._arrange()
        return self._number if self._known else None

    @property
    @abstractmethod
    def heads(self) -> Heads:
        """How many heads queries and keys have, and their size."""

    @property
    def scale(self) -> float:
        """What attention multiplies the products of queries and keys by."""
        return self.heads.size**-0.5

    @torch.no_grad()
    def run(
        self, ids: Tensor, positions: Tensor, slots: Tensor, layers: Sequence[LayerBlocks], attend: Attend
    ) -> Tensor:
        """States [n, hidden] after the last norm, of packed tokens.

        ids, positions: int64 [n]
        slots: int32 [n], block * BLOCK + place in the block; -1 for tokens whose keys and values are not kept
        layers: where these go; what is not allocated yet is, which a graph that is captured should not have to do
        attend: from a layer's number and its queries [n, heads, size] to what they get from the values, of the same
            shape; keys and values are in the layer's blocks by then
        Nothing here waits for the device or depends on what is in tensors there. Raises ModelError if the body is no
        longer what it was.
        """
        if self.prepare() is None:
            raise ModelError(f"the layers of {type(self._body).__name__} were changed; wrap the model anew")
        return self.run_prepared(ids, positions, slots, layers, attend)

    @abstractmethod
    def run_prepared(
        self, ids: Tensor, positions: Tensor, slots: Tensor, layers: Sequence[LayerBlocks], attend: Attend
    ) -> Tensor:
        """`run`, where `prepare` has just given a number."""

    def run_at_once(self, ids: Tensor, positions: Tensor, slots: Tensor, step: Step) -> Tensor | None:
        """What `run_prepared` returns for a step with the attention of blocks/, in one call; None where there is none.

        Its texts' keys and values go to the blocks of the step's layers.
        """
        return None

    @abstractmethod
    def _lay(self) -> Sequence[Link]:
        """Look through the body, and lay its weights out; all parts of it. Raises UnknownBodyError."""

    def _arrange(self) -> bool:
        """`_lay`; False if the body is none that is known."""
        with self._lock:
            try:
                links = self._lay()
            except UnknownBodyError:
                return False
            self._holders = [link.holder for link in links]
            self._names = [link.name for link in links]
            self._parts = [link.part for link in links]
            self._parameters = list(self._body.parameters())
            self._places = [parameter.data_ptr() for parameter in self._parameters]
        return True

    def _is_intact(self) -> bool:
        """Whether modules and parameters are the same, and where they were."""
        found: Any = map(_get, self._holders, self._names)
        same = all(map(is_, found, self._parts))
        return same and [parameter.data_ptr() for parameter in self._parameters] == self._places
