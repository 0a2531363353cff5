"""Which members an object has already, as bits in the counts of items: in one number, or in a large set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ....graph.graph import Graph, Link
from ...algebra.formula import Formula
from ...automata.spelling import all_spelt
from .member_names import MemberNames

ENOUGH = 8
"""From how many names on that are alike a group is told apart as a trie."""


class Group(NamedTuple):
    """Names that need not be there, of one length and with one formula: from any beginning all have the same end.

    indices: of the names, sorted as they are spelt; bit: of the first, the others' come in order
    """

    indices: list[int]
    bit: int


class FewNames:
    """Guards for up to MAX_BITS names. A bit says that the name can come no more."""

    groups: tuple[Group, ...] = ()

    def __init__(self, graph: Graph, names: MemberNames, weight: Callable[[int], int]) -> None:
        self._graph = graph
        self._names = names
        self._in_order = (1 << names.schema_names) - 1
        self.counter = graph.new_set(names.required, partial(_weights, names, weight))

    def name(self, index: int) -> tuple[int, int, int, int]:
        """The guard of the name at `index`, which is one more from there on, as `Graph.guard` has it."""
        names = self._names
        used, before = 1 << index, self._in_order & ((1 << index) - 1)
        added = used | before if index < names.schema_names else used | self._in_order
        return names.required & before, used, -1, added

    def other(self, entry: int) -> Link:
        """To a name without a bit."""
        return self._graph.guard(entry, needed=self._names.required & self._in_order, added=self._in_order)

    def more(self, entry: int) -> Link:
        """To one more member, if any can come."""
        every = 0 if self._names.others else (1 << len(self._names.names)) - 1
        return self._graph.guard(entry, refused=every)

    def done(self, entry: int) -> Link:
        """To the end of the object, if all required members are there."""
        return self._graph.guard(entry, needed=self._names.required, kept=0)


class ManyNames:
    """Guards for any number of names, in any order: the required ones have the first bits.

    groups: the names that are alike, without those that are to have guards of their own
    """

    def __init__(self, graph: Graph, names: MemberNames, weight: Callable[[int], int]) -> None:
        self._graph = graph
        self._names = names
        self._required = names.required.bit_count()
        texts = all_spelt(names.names)
        alike: dict[tuple[int, Formula], list[int]] = {}
        for index, text in enumerate(texts):
            if not names.required >> index & 1:
                alike.setdefault((len(text), names.formulas[index]), []).append(index)
        listed = [sorted(each, key=texts.__getitem__) for each in alike.values() if len(each) >= ENOUGH]
        grouped = {index for each in listed for index in each}
        alone = [index for index in range(len(texts)) if index not in grouped]
        order = sorted(alone, key=lambda index: not names.required >> index & 1)
        self.groups: list[Group] = []
        for each in listed:
            self.groups.append(Group(each, len(order)))
            order += each
        self._bit = {index: bit for bit, index in enumerate(order)}
        self.counter = graph.new_large_set(self._required, lambda: list(map(weight, order[: self._required])))

    def name(self, index: int) -> tuple[int, int, int, int]:
        """The guard of the name at `index`, which is one more from there on, as `Graph.guard` has it."""
        bit = self._bit[index] + 1
        return 0, bit, -1, bit

    def other(self, entry: int) -> Link:
        """To a name without a bit."""
        return self._graph.guard(entry)

    def more(self, entry: int) -> Link:
        """To one more member, if any can come."""
        return self._graph.guard(entry, refused=0 if self._names.others else -len(self._names.names))

    def done(self, entry: int) -> Link:
        """To the end of the object, if all required members are there."""
        return self._graph.guard(entry, needed=self._required, kept=0)


def _weights(names: MemberNames, weight: Callable[[int], int]) -> list[int]:
    """What the bit of each name weighs."""
    return [weight(index) if names.required >> index & 1 else 0 for index in range(len(names.names))]
