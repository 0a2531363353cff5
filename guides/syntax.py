"""The syntax of constraints, produced by every front end: regexes, grammars and schemas.

Nodes are immutable values over *characters*; lowering turns characters into UTF-8 bytes.
`guides/graph/lowering.py` turns nodes into the graph that the automaton walks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set: inclusive code point ranges, sorted, disjoint, without surrogates."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Literal:
    """Exactly these bytes; whole characters, as mask computations require. `Literal(b"")` is the empty text."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Sequence:
    """All items, one after the other. `Sequence(())` is the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of the items. `Alternation(())` is the empty language."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`min` to `max` repetitions of the item; `max=None` is unbounded."""

    item: Node
    min: int
    max: int | None


@dataclass(frozen=True, slots=True)
class Reference:
    """A rule of the grammar, by name."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A complete byte automaton as a table; compared by identity.

    transitions: int32 [states, 256], the next state, -1 where there is none
    accepting: bool [states]; start: the first state
    Every state must reach an accepting one (trimmed).
    """

    transitions: NDArray[np.int32]
    accepting: NDArray[np.bool_]
    start: int = field(default=0)


Node = Chars | Literal | Sequence | Alternation | Repeat | Reference | Table

EMPTY = Literal(b"")
NOTHING = Alternation(())

Flat = tuple[tuple[type, tuple[int, ...], Any], ...]
"""Nodes, inner ones first: the class of each, the numbers of its items, and its other fields."""


def flattened(node: Any) -> Flat:
    """Flatten a syntax to a sequence without recursion, for any depth. Nodes without items are kept unchanged."""
    found: list[tuple[type, tuple[int, ...], Any]] = []
    numbers: dict[int, int] = {}
    open_ones: list[Any] = [node]
    while open_ones:
        top = open_ones[-1]
        kind = cast("type[object]", type(top))
        items: tuple[Any, ...] = (top.item,) if isinstance(top, Repeat) else getattr(top, "items", ())
        missing = [item for item in items if id(item) not in numbers]
        if missing:
            open_ones += missing
            continue
        open_ones.pop()
        if id(top) not in numbers:
            rest = (top.min, top.max) if isinstance(top, Repeat) else None if items else top
            numbers[id(top)] = len(found)
            found.append((kind, tuple(numbers[id(item)] for item in items), rest))
    return tuple(found)


def unflattened(flat: Flat) -> Any:
    """Rebuild the syntax from the result of `flattened`."""
    nodes: list[Any] = []
    for kind, numbers, rest in flat:
        items = tuple(nodes[number] for number in numbers)
        if kind is Repeat:
            nodes.append(Repeat(items[0], *rest))
        else:
            nodes.append(kind(items) if items else rest)
    return nodes[-1]
