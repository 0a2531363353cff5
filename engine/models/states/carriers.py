"""Carriers, which show models the states of the texts of a pass, and find what they leave, as architectures differ."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

from torch import Tensor
from transformers.cache_utils import Cache

from ..blocks.reach import LayerMemory
from .layers import BothLayer, NoLayer, StateLayer
from .storage import States


class StateInputs:
    """Arguments of a model in a pass; after it `found` has the states that it left."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.found: States = {}


class Carrier(Protocol):
    """Shows states to a model."""

    def shown(self, body: Any, attention: Sequence[Any], states: States | None) -> Any:
        """A context in which the body may be called, as Shown; states: of all rows, None where they begin."""
        ...


class CacheCarrier:
    """States in the layers of transformers' cache, beside keys and values: nearly all architectures."""

    def __init__(self, kinds: Sequence[LayerMemory], name: str) -> None:
        self._kinds = kinds
        self._name = name

    @contextmanager
    def shown(self, body: Any, attention: Sequence[Any], states: States | None) -> Generator[StateInputs, None, None]:
        """The cache of a pass: of each layer what it keeps, its attention being one of those given."""
        layers: list[Any] = []
        for number, kind in enumerate(self._kinds):
            if kind.states and kind.reach is not None:
                layers.append(BothLayer(number, kind.states, states, attention[number]))
            elif kind.states:
                layers.append(StateLayer(number, kind.states, states))
            else:
                layers.append(attention[number] if kind.reach is not None else NoLayer())
        now = StateInputs({self._name: Cache(layers=layers)})
        yield now
        for layer in layers:
            if isinstance(layer, StateLayer):
                now.found |= layer.found()


class ListCarrier:
    """States in lists of a cache of the model's own class, an entry for each layer: MiniMax."""

    def __init__(self, kinds: Sequence[LayerMemory], name: str, cache: Any, lists: Sequence[str]) -> None:
        self._kinds = kinds
        self._name = name
        self._class: Any = type(cache)
        self._lists = lists

    @contextmanager
    def shown(self, body: Any, attention: Sequence[Any], states: States | None) -> Generator[StateInputs, None, None]:
        """The cache of a pass; entries of layers that have not begun are None."""
        cache: Any = self._class()
        cache.layers = [
            NoLayer() if kind.reach is None else layer for kind, layer in zip(self._kinds, attention, strict=True)
        ]
        for name in self._lists:
            setattr(cache, name, [(states or {}).get((number, name)) for number in range(len(self._kinds))])
        now = StateInputs({self._name: cache})
        yield now
        for name in self._lists:
            now.found |= {(number, name): x for number, x in enumerate(getattr(cache, name)) if isinstance(x, Tensor)}


class ModuleCarrier:
    """States in attributes of the model's modules: RecurrentGemma. Between two passes they are as they were.

    places: names of modules, and of their attributes
    """

    def __init__(self, caches: CacheCarrier, places: Sequence[tuple[str, str]]) -> None:
        self._caches = caches
        self._places = places
        self._held: tuple[Any, list[tuple[Any, str]]] = None, []

    @contextmanager
    def shown(self, body: Any, attention: Sequence[Any], states: States | None) -> Generator[StateInputs, None, None]:
        """The attributes as they are for the rows of a pass, None where these begin."""
        known, places = self._held
        if known is not body:
            places = [(body.get_submodule(module), name) for module, name in self._places]
            self._held = body, places
        before = [getattr(module, name) for module, name in places]
        try:
            for number, (module, name) in enumerate(places):
                setattr(module, name, None if states is None else states[number])
            with self._caches.shown(body, attention, None) as now:
                yield now
            now.found = {number: getattr(module, name) for number, (module, name) in enumerate(places)}
        finally:
            for (module, name), value in zip(places, before, strict=True):
                setattr(module, name, value)


class OutputCarrier:
    """States that the model takes and returns as a list of tensors: RWKV.

    name: of the argument, and of what the model returns
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @contextmanager
    def shown(self, body: Any, attention: Sequence[Any], states: States | None) -> Generator[StateInputs, None, None]:
        """The list, None where rows begin."""
        now = StateInputs({self._name: None if states is None else [states[number] for number in range(len(states))]})
        outputs: list[Any] = []

        def keep(module: Any, given: Any, output: Any) -> None:
            outputs.append(output)

        hook = body.register_forward_hook(keep)
        try:
            yield now
        finally:
            hook.remove()
        found: list[Tensor] = outputs[-1][self._name]
        now.found = dict(enumerate(found))


def find_carrier(body: Any, kinds: Sequence[LayerMemory], name: str, ids: Tensor) -> Carrier:
    """The carrier of a model's states, by what changes when it reads `ids` [rows, width] with a cache of its own.

    name: of the argument that it takes them by
    """
    if name == "state":
        return OutputCarrier(name)
    before = dict(_attributes(body))
    try:
        cache = getattr(body(input_ids=ids, use_cache=True), name, None)
        changed = [place for place, value in _attributes(body) if value is not before.get(place)]
    finally:
        for (module, attribute), value in before.items():
            setattr(body.get_submodule(module), attribute, value)
    caches = CacheCarrier(kinds, name)
    if changed:
        return ModuleCarrier(caches, changed)
    lists = [] if cache is None else [name for name, value in _held(cache) if _is_list(value)]
    return ListCarrier(kinds, name, cache, lists) if lists else caches


def _attributes(body: Any) -> Iterator[tuple[tuple[str, str], Any]]:
    """Attributes of modules beside parameters and buffers that are tensors, or may become one, by names of both."""
    for path, module in body.named_modules():
        for name, value in _held(module):
            if value is None or isinstance(value, Tensor):
                yield (path, name), value


def _held(what: Any) -> list[tuple[str, Any]]:
    return list(cast("dict[str, Any]", vars(what)).items())


def _is_list(value: Any) -> bool:
    """True if it is a list with tensors in it."""
    return isinstance(value, list) and any(isinstance(each, Tensor) for each in cast("list[Any]", value))
