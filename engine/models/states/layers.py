"""Caches for transformers' models whose layers keep a state: that of the texts of one pass."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin, LinearAttentionCacheLayerMixin, LinearAttentionLayer

from ..blocks.step import PackedStep
from .storage import States


class NoLayer:
    """Stands in a cache for a layer that keeps nothing; transformers has a class for it only from 5.23 on."""

    is_initialized = is_compileable = is_croppable = True
    supports_early_init = False
    keys = values = None

    def get_max_length(self) -> int:
        """No limit."""
        return -1


class StateLayer(LinearAttentionLayer):
    """The states of one layer, of rows that all begin (`states` is None) or all go on."""

    def __init__(self, number: int, count: int, states: States | None) -> None:
        LinearAttentionCacheLayerMixin.__init__(self, number_of_states=count)  # pyright: ignore[reportUnknownMemberType]
        self._number = number
        for place in range(count) if states is not None else ():
            assert states is not None
            conv, recurrent = states.get((number, "conv", place)), states.get((number, "recurrent", place))
            if conv is not None:
                self.conv_states[place], self.conv_kernel_size[place] = conv, conv.shape[-1]
                self.is_conv_states_initialized[place] = True
            if recurrent is not None:
                self.recurrent_states[place] = recurrent
                self.is_recurrent_states_initialized[place] = True
            self.has_previous_state[place] = conv is not None or recurrent is not None
            known = conv if conv is not None else recurrent
            self.dtype, self.device = (None, None) if known is None else (known.dtype, known.device)

    def lazy_initialization(
        self,
        conv_states: Tensor | None = None,
        recurrent_states: Tensor | None = None,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
    ) -> None:
        """Room for the states of rows that begin. Unlike transformers' own it marks nothing for its compiler."""
        if conv_states is not None:
            size = conv_states.shape[-1] if conv_kernel_size is None else conv_kernel_size
            self.dtype, self.device = conv_states.dtype, conv_states.device
            self.conv_kernel_size[state_idx] = size
            self.conv_states[state_idx] = conv_states.new_zeros(*conv_states.shape[:-1], size)
            self.is_conv_states_initialized[state_idx] = True
        if recurrent_states is not None:
            self.recurrent_states[state_idx] = torch.zeros_like(recurrent_states)
            self.is_recurrent_states_initialized[state_idx] = True

    def found(self) -> States:
        """The states after the pass."""
        kinds: list[tuple[str, dict[int, Tensor | None]]] = [
            ("conv", self.conv_states),
            ("recurrent", self.recurrent_states),
        ]
        found: States = {}
        for kind, states in kinds:
            for place, state in states.items():
                if state is not None:
                    key: Hashable = (self._number, kind, place)
                    found[key] = state
        return found


class BothLayer(StateLayer, CacheLayerMixin):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A layer that keeps a state, and keys and values too."""

    def __init__(self, number: int, count: int, states: States | None, attention: Any) -> None:
        StateLayer.__init__(self, number, count, states)
        self.is_initialized = True
        self._attention = attention

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """As the layer of keys and values does it."""
        return self._attention.update(key_states, value_states, *args, **kwargs)

    def get_seq_length(self) -> int:
        """As the layer of keys and values says."""
        return self._attention.get_seq_length()

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """As the layer of keys and values says."""
        return self._attention.get_mask_sizes(query_length)


class TurnLayer(CacheLayerMixin):
    """A layer whose keys and values attention itself writes to blocks; says whose turn it is."""

    is_sliding = False
    supports_early_init = False

    def __init__(self, step: PackedStep, number: int) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._step = step
        self._number = number

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Blocks are allocated when they are first written."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Layers may share their attention, which then does not know its number."""
        self._step.turn = self._number
        return key_states, value_states

    def get_seq_length(self) -> int:
        """Positions are given, and masks not made."""
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Masks are not made."""
        return query_length, 0

    def get_max_length(self) -> int:
        """There is no limit here."""
        return -1
