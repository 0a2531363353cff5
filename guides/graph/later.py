"""What a graph is asked for later, while it is explored."""

from __future__ import annotations

from collections.abc import Callable

Promise = tuple[Callable[[], int] | int, int, int | None]


class Later:
    """What a graph asks for when it is explored: bodies of lazy nodes, promises, weights of sets, names of rules."""

    def __init__(self) -> None:
        self.expanders: dict[int, Callable[[], None]] = {}
        self.promises: dict[int, Promise] = {}
        self.weights: list[Callable[[], list[int]]] = []
        self.names: dict[int, Callable[[], str]] = {}
