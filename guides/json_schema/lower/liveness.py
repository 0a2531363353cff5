"""Liveness of the places of an array or object: a search ahead, without recursion, that remembers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar
from weakref import WeakMethod

from ...limits import spend

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
