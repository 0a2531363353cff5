"""What a graph is asked for later, while it is explored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Named(Protocol):
    """What people know a rule by."""

    def name(self) -> str:
        """What it is called when a state is described."""
        ...

    def pointer(self) -> str | None:
        """The JSON pointer of the part of a schema that it is of; None of other constraints."""
        ...


class Later:
    """What a graph asks for when it is explored: bodies of lazy nodes, promises, weights of sets, names of rules.

    targets, lacking: of a node with a promise, where it has them. They are apart, since nothing is made for a number in
    a dictionary that Python's garbage collector would have to look through.
    """

    def __init__(self) -> None:
        self.expanders: dict[int, Callable[[int], None]] = {}
        self.promises: dict[int, Callable[[], int] | int] = {}
        self.targets: dict[int, int] = {}
        self.lacking: dict[int, int] = {}
        self.weights: list[Callable[[], list[int]]] = []
        self.names: dict[int, Named] = {}
