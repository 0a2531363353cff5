"""Definitions that the lowerings of containers share.

Protocols say what they ask of the lowering of their schema, each as little as it needs. A search ahead, without
recursion, finds the places from which a text can be completed, and remembers them (`Liveness`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakMethod

from ...graph.graph import Graph
from ...graph.lowering import Lowering
from ...limits import spend
from ...syntax import Node
from ..algebra.cases import Number, String
from ..algebra.formula import Formula
from ..compiled import CompiledSchema
from .form import Form
from .strings.lowering import StringLowering

PlaceT = TypeVar("PlaceT")


class Liveness(Generic[PlaceT]):
    """Answers for places that lead to one another, or to themselves, but never back.

    may_end: whether everything may end at a place; after: the places after it, those nearest to an end first;
    methods of who keeps the search, which must not keep them, or both would stay until Python looks for circles
    """

    def __init__(self, may_end: Callable[[PlaceT], bool], after: Callable[[PlaceT], Iterable[PlaceT]]) -> None:
        self._may_end = WeakMethod(may_end)
        self._after = WeakMethod(after)
        self._known: dict[PlaceT, bool] = {}

    def __call__(self, place: PlaceT) -> bool:
        """Tell whether an end can be reached from a place."""
        known = self._known.get(place)
        if known is not None:
            return known
        may_end, after = self._may_end(), self._after()
        assert may_end is not None and after is not None
        way: list[tuple[PlaceT, Iterator[PlaceT]]] = []
        following: PlaceT | None = place
        while following is not None or way:
            spend(200)
            if following is not None:
                if self._known.get(following) or may_end(following):
                    self._known[following] = True
                    self._known.update((passed, True) for passed, _ in way)
                    return True
                way.append((following, iter(after(following))))
            at, others = way[-1]
            following = next((other for other in others if other != at and self._known.get(other, True)), None)
            if following is None:
                self._known[at] = False
                way.pop()
        return False


class Marks(NamedTuple):
    """Nodes at which a text must not have something twice that the graph does not tell apart; filled as they are made.

    items: the nodes that items return to which must differ; names: those that names of members return to
    """

    items: set[int]
    names: set[int]


class ContainerLowering(Protocol):
    """Brackets, commas and the white space around them."""

    @property
    def graph(self) -> Graph:
        """The graph that everything is added to."""
        ...

    @property
    def form(self) -> Form:
        """The form of texts."""
        ...

    def text(self, data: bytes, target: int) -> int:
        """The entry of fixed bytes before `target`."""
        ...

    def gap(self, space: Node, target: int) -> int:
        """The entry of white space before `target`."""
        ...

    def line(self, depth: int) -> int:
        """The bytes of white space that must stand before an item or member, in a container at `depth`."""
        ...

    def last_line(self, depth: int) -> int:
        """The bytes of white space that must stand before the bracket that closes a container at `depth`."""
        ...


class ItemLowering(ContainerLowering, Protocol):
    """The lowering that arrays need besides: their items."""

    @property
    def marks(self) -> Marks:
        """The nodes at which items must differ."""
        ...

    @property
    def schema(self) -> CompiledSchema:
        """The schema, with its formulas."""
        ...

    @property
    def beside_free(self) -> bool:
        """Tell whether arrays whose items must differ stand beside others."""
        ...

    def value(self, formula: Formula, depth: int) -> int:
        """The rule of the values of a formula, in a container at `depth`."""
        ...

    def shortest(self, formula: Formula, depth: int = 0) -> int:
        """The bytes of a short text of a formula's values, in a container at `depth`."""
        ...

    def length_of(self, value: Any, depth: int) -> int:
        """The bytes of a short text of one value, in a container at `depth`."""
        ...


class NameLowering(ContainerLowering, Protocol):
    """The lowering of all that is written with quotes: names of members, and strings that are constants."""

    @property
    def lowering(self) -> Lowering:
        """Adds syntax to the graph."""
        ...

    @property
    def strings(self) -> StringLowering:
        """Adds strings to the graph."""
        ...


class MemberLowering(NameLowering, Protocol):
    """The lowering that objects need besides: their members."""

    @property
    def spare(self) -> int:
        """The bytes by which a name that must come, and must be none that is there, is longer than a shortest one."""
        ...

    @property
    def marks(self) -> Marks:
        """The nodes at which names must differ."""
        ...

    @property
    def schema(self) -> CompiledSchema:
        """The schema, with its formulas."""
        ...

    def member(self, formula: Formula, depth: int) -> int:
        """The rule of colon and value, after the name of a member of an object at `depth`."""
        ...

    def after_name(self, formula: Formula, depth: int, target: int) -> int:
        """The entry of colon and value, after the name of a member of an object at `depth`."""
        ...

    def length_after_name(self, formula: Formula, depth: int) -> int:
        """The bytes of colon and value, as `after_name`."""
        ...

    def string_rule(self, case: String) -> int | None:
        """The rule of a set of strings; None if no string is in it."""
        ...


class ConstantLowering(NameLowering, Protocol):
    """The lowering that constants need besides: the numbers in them, and the bytes of values."""

    def number_rule(self, case: Number) -> int:
        """The rule of a set of numbers."""
        ...

    def length_of(self, value: Any, depth: int) -> int:
        """The bytes of a short text of one value, in a container at `depth`."""
        ...
