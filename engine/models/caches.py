"""Caches of transformers for one pass: layers of keys and values in blocks, and states of recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, LinearAttentionCacheLayerMixin, LinearAttentionLayer

from .blocks.reach import LayerMemory
from .blocks.step import PackedStep
from .blocks.storage import States


class CacheLayer(CacheLayerMixin):
    """Base of cache layers whose keys and values are stored elsewhere, for all releases of transformers 5."""

    is_sliding = False
    supports_early_init = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: there is nothing to allocate."""

    def get_max_length(self) -> int:
        """Return -1, for unbounded."""
        return -1

    def get_max_cache_shape(self) -> int:
        """Return -1, for unbounded; older releases use this name."""
        return self.get_max_length()


class EmptyLayer:
    """A cache layer for layers without memory; transformers only has such a class from 5.23 on."""

    is_initialized = is_compileable = is_croppable = True
    supports_early_init = False
    keys = values = None

    def get_max_length(self) -> int:
        """Return -1, for unbounded."""
        return -1


class StateLayer(LinearAttentionLayer):
    """The recurrent states of a layer, for rows that all begin (`states` is None) or all continue."""

    def __init__(self, number: int, count: int, states: States | None) -> None:
        LinearAttentionCacheLayerMixin.__init__(self, number_of_states=count)  # pyright: ignore[reportUnknownMemberType]
        self._number = number
        if states is None:
            return
        for place in range(count):
            conv, recurrent = states.get((number, "conv", place)), states.get((number, "recurrent", place))
            if conv is not None:
                self.conv_states[place], self.conv_kernel_size[place] = conv, conv.shape[-1]
                self.is_conv_states_initialized[place] = True
            if recurrent is not None:
                self.recurrent_states[place] = recurrent
                self.is_recurrent_states_initialized[place] = True
            state = conv if conv is not None else recurrent
            self.has_previous_state[place] = state is not None
            self.dtype, self.device = (None, None) if state is None else (state.dtype, state.device)

    def lazy_initialization(
        self,
        conv_states: Tensor | None = None,
        recurrent_states: Tensor | None = None,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
    ) -> None:
        """Allocate states of rows that begin, without transformers' marks for torch.compile."""
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
        """Return the states after the pass."""
        kinds: dict[str, dict[int, Tensor | None]] = {"conv": self.conv_states, "recurrent": self.recurrent_states}
        several = ((kind, place, state) for kind, states in kinds.items() for place, state in states.items())
        return {(self._number, kind, place): state for kind, place, state in several if state is not None}


class HybridLayer(StateLayer, CacheLayerMixin):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A layer with recurrent states, and with keys and values in `attention`."""

    def __init__(self, number: int, count: int, states: States | None, attention: Any) -> None:
        StateLayer.__init__(self, number, count, states)
        self.is_initialized = True
        self._attention = attention

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Update the layer of keys and values."""
        return self._attention.update(key_states, value_states, *args, **kwargs)

    def get_seq_length(self) -> int:
        """Return the length of the layer of keys and values."""
        return self._attention.get_seq_length()

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the mask sizes of the layer of keys and values."""
        return self._attention.get_mask_sizes(query_length)


class CurrentLayer(CacheLayer):
    """A cache layer that records the current layer in a step. Attention writes keys and values to blocks."""

    def __init__(self, step: PackedStep, number: int) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._step = step
        self._number = number

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Record the current layer, since a shared attention module has no layer number. Return the arguments."""
        self._step.turn = self._number
        return key_states, value_states

    def get_seq_length(self) -> int:
        """Return 0: positions are passed, and no masks are created."""
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return sizes without a past: no masks are created."""
        return query_length, 0


class StateInputs:
    """Arguments of a body for a pass. After the pass, `found` has the new states."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.found: States = {}


Carrier = Callable[[Any, Sequence[Any], States | None], AbstractContextManager[StateInputs]]
"""Function that passes recurrent states to a body. It takes the body, the attention layers of a pass, and the states of
all rows, None if they begin; and returns a context manager of `StateInputs` for a call of the body."""


@contextmanager
def _in_layers(
    kinds: Sequence[LayerMemory], name: str, body: Any, attention: Sequence[Any], states: States | None
) -> Generator[StateInputs]:
    """Pass states in the layers of transformers' cache: nearly all architectures."""
    layers: list[Any] = []
    for number, (kind, layer) in enumerate(zip(kinds, attention, strict=False)):
        if kind.states and kind.reach is not None:
            layers.append(HybridLayer(number, kind.states, states, layer))
        elif kind.states:
            layers.append(StateLayer(number, kind.states, states))
        else:
            layers.append(EmptyLayer() if kind.reach is None else layer)
    inputs = StateInputs({name: Cache(layers=layers)})
    yield inputs
    for layer in layers:
        if isinstance(layer, StateLayer):
            inputs.found |= layer.found()


@contextmanager
def _in_lists(
    kinds: Sequence[LayerMemory], name: str, kind_of_cache: Any, lists: Sequence[str],
    body: Any, attention: Sequence[Any], states: States | None,
) -> Generator[StateInputs]:  # fmt: skip
    """Pass states in lists of the model's own cache class, with an entry for each layer: MiniMax."""
    cache: Any = kind_of_cache()
    cache.layers = [EmptyLayer() if kind.reach is None else layer for kind, layer in zip(kinds, attention, strict=True)]
    for each in lists:
        setattr(cache, each, [(states or {}).get((number, each)) for number in range(len(kinds))])
    inputs = StateInputs({name: cache})
    yield inputs
    for each in lists:
        inputs.found |= {(number, each): x for number, x in enumerate(getattr(cache, each)) if isinstance(x, Tensor)}


@contextmanager
def _in_attributes(
    caches: Carrier, places: Sequence[tuple[str, str]], body: Any, attention: Sequence[Any], states: States | None
) -> Generator[StateInputs]:
    """Pass states in attributes of the body's modules, and restore these after the pass: RecurrentGemma.

    places: names of modules and attributes
    """
    owners = [(body.get_submodule(module), name) for module, name in places]
    before = [getattr(module, name) for module, name in owners]
    try:
        for number, (module, name) in enumerate(owners):
            setattr(module, name, None if states is None else states[number])
        with caches(body, attention, None) as inputs:
            yield inputs
        inputs.found = {number: getattr(module, name) for number, (module, name) in enumerate(owners)}
    finally:
        for (module, name), value in zip(owners, before, strict=True):
            setattr(module, name, value)


@contextmanager
def _in_outputs(name: str, body: Any, attention: Sequence[Any], states: States | None) -> Generator[StateInputs]:
    """Pass states as a list of tensors, an argument and an output of the same name: RWKV."""
    inputs = StateInputs({name: None if states is None else [states[number] for number in range(len(states))]})
    outputs: list[Any] = []

    def keep(module: Any, arguments: Any, output: Any) -> None:
        outputs.append(output)

    hook = body.register_forward_hook(keep)
    try:
        yield inputs
    finally:
        hook.remove()
    found: list[Tensor] = outputs[-1][name]
    inputs.found = dict(enumerate(found))


def find_carrier(body: Any, kinds: Sequence[LayerMemory], name: str, ids: Tensor) -> Carrier:
    """Return the carrier of a body's states, found by a trial pass over `ids` [rows, width] with the body's own cache.

    States are in module attributes that the pass changes, or else in lists of tensors of the cache, or in its layers.
    name: the body's cache argument; "state" for a list of tensors (RWKV)
    """
    caches = partial(_in_layers, kinds, name)
    if name == "state":
        return partial(_in_outputs, name)
    if not any(kind.states for kind in kinds):
        return caches
    before = dict(_attributes(body))
    try:
        cache = getattr(body(input_ids=ids, use_cache=True), name, None)
        changed = [place for place, value in _attributes(body) if value is not before.get(place)]
    finally:
        for (module, attribute), value in before.items():
            setattr(body.get_submodule(module), attribute, value)
    if changed:
        return partial(_in_attributes, caches, changed)
    lists = [] if cache is None else [each for each, value in _items_of(cache) if _is_list(value)]
    return partial(_in_lists, kinds, name, type(cache), lists) if lists else caches


def _attributes(body: Any) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield ((module, attribute), value) of attributes that are tensors or None, except parameters and buffers."""
    for path, module in body.named_modules():
        for name, value in _items_of(module):
            if value is None or isinstance(value, Tensor):
                yield (path, name), value


def _items_of(instance: Any) -> list[tuple[str, Any]]:
    return list(cast("dict[str, Any]", vars(instance)).items())


def _is_list(value: Any) -> bool:
    """Test whether a value is a list that contains tensors."""
    return isinstance(value, list) and any(isinstance(each, Tensor) for each in cast("list[Any]", value))


_FEW, _MANY = 16, 32
"""Chunk sizes of scans, for passes with few and with many tokens."""


class ScanChunks:
    """Smaller chunk sizes on a CPU for modules that scan tokens in chunks (Mamba 2 and similar).

    Results are equal for all chunk sizes, up to rounding. Configurations have 256, which suits GPU kernels. In torch
    the work grows with the square of the size, and short prompts are padded to it. For Mamba 2 of hidden size 256, 8
    tokens took 62 ms with chunks of 256 and 5 ms with 16; 512 tokens took 147 ms and 55 ms with chunks of 32.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_on_cpu = device.type == "cpu"
        self._cache: tuple[Any, list[tuple[Any, int]]] = None, []

    @contextmanager
    def of(self, network: Any, width: int) -> Generator[None, None, None]:
        """Set the modules' chunk sizes for a pass of `width` tokens, and restore them afterwards."""
        cached_network, scanning = self._cache
        if cached_network is not network and self._is_on_cpu:
            scanning = [(module, size) for module in network.modules() if (size := _chunks(module)) > _FEW]
            self._cache = network, scanning
        if width == 1 or not scanning:
            yield
            return
        try:
            for module, size in scanning:
                module.chunk_size = min(size, _FEW if width <= _FEW else _MANY)
            yield
        finally:
            for module, size in scanning:
                module.chunk_size = size


def _chunks(module: Any) -> int:
    """Return the chunk size of a module's scan; 0 for modules without a scan like Mamba 2's."""
    size: Any = getattr(module, "chunk_size", None)
    return size if type(size) is int and isinstance(getattr(module, "A_log", None), torch.Tensor) else 0
