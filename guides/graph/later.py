"""Questions that a graph is asked later, while it is explored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

HEAVY = 1 << 30
"""The weight of a rule that is not defined before it is reached."""


class NamedRule(ABC):
    """A rule with a name for people, and what it takes to define it.

    has_siblings: whether whoever comes to the rule is likely to come soon to those made right before and after it
    """

    __slots__ = ()
    has_siblings = False

    @abstractmethod
    def name(self) -> str:
        """The name by which a description of a state calls it."""

    def pointer(self) -> str | None:
        """The JSON pointer of the part of a schema that it is of; None of other constraints."""
        return None

    def weight(self) -> int:
        """The weight of defining the rule: 1 for the smallest, HEAVY if that is for when it is reached.

        Changes nothing in the graph. Raises LimitError.
        """
        return HEAVY


class Later:
    """Answers that a graph needs when it is explored: bodies of lazy nodes, promises, weights of sets, names of rules.

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
