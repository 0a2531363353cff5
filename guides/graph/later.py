"""What a graph is asked for later, while it is explored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

HEAVY = 1 << 30
"""The weight of a rule that is not defined before it is reached."""


class NamedRule(ABC):
    """What people know a rule by, and what it takes to define it.

    has_siblings: whether whoever comes to the rule is likely to come soon to those made right before and after it
    """

    __slots__ = ()
    has_siblings = False

    @abstractmethod
    def name(self) -> str:
        """What it is called when a state is described."""

    def pointer(self) -> str | None:
        """The JSON pointer of the part of a schema that it is of; None of other constraints."""
        return None

    def weight(self) -> int:
        """How much it takes to define the rule: 1 for the smallest, HEAVY if that is for when it is reached.

        Changes nothing in the graph. Raises LimitError.
        """
        return HEAVY


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
        self.names: dict[int, NamedRule] = {}
