"""A graph to make a fragment in, with holes for what is different from copy to copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ....kernels.chart.layout import FINAL, FLAGS, GUARD, LINK_HI, LINK_KIND, LINK_LO
from ...graph.graph import Graph, Link

Hole = tuple[str, int]
"""The content of a hole: its kind, and the how manieth of that kind it is."""
NUMBER: Final = "number"
STRING: Final = "string"
ITEMS: Final = "items"
COUNT: Final = "count"
SET: Final = "set"
NAMES: Final = "names"
GUARDS: Final = "guard"
SPACE: Final = "space"


class StencilGraph(Graph):
    """A graph in which counters, sets, guards and what is lazy are holes.

    holes: what is to be in each, in the order of their numbers; final: the end of the rule; promising: the node that
    has a promise, 0 if there is none
    """

    def __init__(self) -> None:
        super().__init__()
        self.holes: list[Hole] = []
        self.promising = 0
        self._guards_made = 0

    def hole(self, kind: str, number: int = 0) -> int:
        """A number that stands for what is to be there."""
        self.holes.append((kind, number))
        return -len(self.holes)

    def counter_for(self, least: int, most: int) -> int:
        """A hole."""
        return self.hole(COUNT)

    def new_set(self, needed: int, weights: Callable[[], list[int]]) -> int:
        """A hole."""
        return self.hole(SET)

    def new_large_set(self, needed: int, weights: Callable[[], list[int]]) -> int:
        """A hole."""
        return self.hole(SET)

    def guard(self, target: int, *, needed: int = 0, refused: int = 0, kept: int = -1, added: int = 0) -> Link:
        """A link with a hole for its guard."""
        self._guards_made += 1
        return (GUARD, target, self.hole(GUARDS, self._guards_made - 1))

    def lazy_node(
        self, expand: Callable[[int], None], promise: Callable[[], int], target: int, lacking: int | None = None
    ) -> int:
        """A hole."""
        return self.hole(NAMES)

    def promised(self, links: Iterable[Link], promise: Callable[[], int]) -> int:
        """A node with these links, which is `promising`."""
        self.promising = self.node(links=links)
        return self.promising

    def final_node(self) -> int:
        """The end of the rule."""
        nodes = self._nodes.used()
        return int((nodes[:, FLAGS] & FINAL).argmax())

    def guarded_node(self) -> int:
        """The node whose links have guards; 0 if there is none."""
        self._flush()
        nodes, guarded = self._nodes.used(), self._links.used()[:, LINK_KIND] == GUARD
        if not guarded.any():
            return 0
        first = int(guarded.argmax())
        return int(((nodes[:, LINK_LO] <= first) & (first < nodes[:, LINK_HI])).argmax())
