"""States of recurrent layers, in slots: what each text has come to, whatever its length."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from ..blocks.storage import BlockStorage

States = dict[Hashable, Tensor]
"""Tensors [rows, ...], by which state of which layer they are."""


class StateStorage(BlockStorage):
    """Blocks of keys and values, and slots for the states of texts; these grow with the slots in use."""

    def __init__(self, blocks: int, layers: int, kept: torch.dtype | None = None) -> None:
        super().__init__(blocks, layers, kept)
        self._stored: States = {}

    @property
    def state_bytes(self) -> int:
        """Bytes of the state of one text."""
        return sum(stored[0].nbytes for stored in self._stored.values())

    def rows(self, slots: Sequence[int]) -> States:
        """The states of texts. Where their slots lie side by side what is written to these is stored at once."""
        first, count = slots[0], len(slots)
        if list(slots) == list(range(first, first + count)):
            return {key: stored[first : first + count] for key, stored in self._stored.items()}
        return {key: stored[torch.tensor(slots, device=stored.device)] for key, stored in self._stored.items()}

    def store(self, slots: Sequence[int], states: States) -> None:
        """Keep the states of texts, all that there are."""
        index: Tensor | None = None
        for key, state in states.items():
            stored = self._room(key, state, max(slots) + 1)
            if stored[slots[0]].data_ptr() == state.data_ptr():
                continue
            if index is None:
                index = torch.tensor(slots, device=state.device)
            stored[index] = state

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy states, all at once: each pair is (from, to)."""
        most = max(target for _, target in pairs) + 1
        for key in self._stored:
            stored = self._room(key, self._stored[key], most)
            sources, targets = torch.tensor(pairs, device=stored.device).T
            stored[targets] = stored[sources]

    def _room(self, key: Hashable, like: Tensor, count: int) -> Tensor:
        """Room under a key, with as many slots or more; made for entries such as those of `like`."""
        stored = self._stored.get(key)
        if stored is not None and len(stored) >= count:
            return stored
        larger = like.new_zeros(max(count, 8 if stored is None else 2 * len(stored)), *like.shape[1:])
        if stored is not None:
            larger[: len(stored)] = stored
        self._stored[key] = larger
        return larger
