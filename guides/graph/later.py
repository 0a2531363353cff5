"""What a graph is asked for later, while it is explored."""

from __future__ import annotations

from collections.abc import Callable


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
        self.names: dict[int, Callable[[], str]] = {}
