"""Objects as fragments of a graph where only the set of members matters. The items hold that set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from .....kernels.chart.layout import CALL, EPSILON
from ....graph.array_graph import NameTrie
from ....graph.graph import Graph, Link
from ...algebra.cases import Object
from ...algebra.formula import Formula
from ...automata.spelling import all_spelt, spelt
from ..rules import MAX_LENGTH, RuleLowering
from .names import MAX_BITS, MemberNames, uncounted


def suits(case: Object, names: MemberNames) -> bool:
    """Test whether a set suffices: no counts, no `some` rule, and few enough names for bits."""
    return not case.some and uncounted(case) and names.are_few


class MemberSet:
    """One object case at one depth, in the current rule, before the node `target`.

    All places between members share one node. The names that can no longer come are bits in the count of the items (see
    `FewNames` and `ManyNames`).
    """

    def __init__(self, owner: RuleLowering, names: MemberNames, depth: int, target: int) -> None:
        self._owner = owner
        self._graph = owner.graph
        self._names = names
        self._depth = depth
        self._target = target
        self._bits = (FewNames if len(names.names) <= MAX_BITS else ManyNames)(self._graph, names, self._weight)
        self._after = 0  # the node after a member, set before names are reached

    def entry(self) -> int:
        """Return the node before the opening brace."""
        owner, graph, names, spacing = self._owner, self._graph, self._names, self._owner.form.spacing
        end = graph.literal(b"}", self._target)
        close = owner.gap(spacing.at_end(self._depth), end)
        empty = owner.gap(spacing.free(), end)
        outside = graph.counter
        graph.counter = self._bits.counter
        links: list[Link] = [] if names.required else [(EPSILON, empty, 0)]
        if names.names or names.others:
            # The weight of the first missing member includes a comma and a line too many.
            lacking = owner.last_line(self._depth) - owner.line(self._depth)
            member = graph.lazy_node(self._define, self._sure_member, self._target, lacking)
            more = self._bits.more(owner.comma(member, self._depth)[1])
            self._after = graph.node(links=(self._bits.done(close), more))
            links.append(owner.first(member, self._depth))
        start = graph.node(((0x7B, 0x7B, graph.node(links=links)),))
        graph.counter = outside
        return start

    def _define(self, node: int) -> None:
        """Define the names that may come next."""
        owner, graph, names, after = self._owner, self._graph, self._names, self._after
        links: list[Link] = []
        for region, formula in names.regions:
            entry = owner.string_rule(region)
            if entry is not None:
                # Every beginning of a name may belong to another name, and tokens read on after its quote.
                graph.offer((owner.member(formula, self._depth),))
                call = graph.node(links=((CALL, entry, self._tail(formula, after)),))
                links.append(self._bits.other(call))
        if names.choice is not None:
            end = owner.last_line(self._depth) + 1
            entry = names.choice.entry(lambda formula: self._tail(formula, after), self._target, end)
            links.append(self._bits.other(entry))
        if owner.form.escapes == "canonical" and names.names:
            self._define_spelt(node, links)
            return
        named: list[Link] = []
        for index, name in enumerate(names.names):
            entry = owner.lowering.lower(owner.strings.literal(name), self._tail(names.formulas[index], after))
            if entry is not None:
                needed, refused, kept, added = self._bits.name(index)
                named.append(graph.guard(entry, needed=needed, refused=refused, kept=kept, added=added))
        graph.define(node, links=[*named, *links])

    def _define_spelt(self, node: int, links: list[Link]) -> None:
        """Define the names that may come next, where every name has one spelling."""
        names, depth = self._names, self._depth
        texts = all_spelt(names.names)
        tries: list[NameTrie] = []
        grouped = set[int]()
        for indices, bit in self._bits.groups:
            rule = self._owner.member(names.formulas[indices[0]], depth)
            tries.append(NameTrie([texts[index] for index in indices], rule, bit))
            grouped.update(indices)
        alone = [index for index in range(len(texts)) if index not in grouped]
        guards = [number for index in alone for number in self._bits.name(index)]
        rules = [self._owner.member(names.formulas[index], depth) for index in alone]
        self._graph.offer(rules)
        self._graph.define_names(node, [texts[index] for index in alone], rules, guards, self._after, links, tries)

    def _tail(self, formula: Formula, after: int) -> int:
        """Return the node after a name: colon and value."""
        # A return node of its own identifies the value that a state is in.
        back = self._graph.node(links=((EPSILON, after, 0),))
        return self._owner.after_name(formula, self._depth, back)

    def _weight(self, index: int) -> int:
        """Return the bytes of a name's member, with its separator."""
        return min(1 + self._owner.line(self._depth) + self._length(index), MAX_LENGTH)

    def _length(self, index: int) -> int:
        return len(spelt(self._names.names[index])) + self._owner.length_after_name(
            self._names.formulas[index], self._depth
        )

    def _sure_member(self) -> int:
        """Return the bytes from before an optional member to after the closing brace, for any set of members left."""
        names, owner = self._names, self._owner
        lengths = [
            owner.strings.shortest(region) + owner.length_after_name(formula, self._depth)
            for region, formula in names.regions
        ]
        if names.choice is not None:
            lengths.append(names.choice.shortest)
        if not lengths:
            lengths = [max(map(self._length, range(len(names.names))))]
        return min(min(lengths) + owner.last_line(self._depth) + 1, MAX_LENGTH)


ENOUGH = 8
"""Minimum number of similar names for a trie of their own."""


class NameGroup(NamedTuple):
    """Optional names of equal length and formula: all their suffixes have equal continuations.

    indices: of the names, sorted by spelling; bit: of the first; the others follow in order
    """

    indices: list[int]
    bit: int


class FewNames:
    """Guards for up to MAX_BITS names. A bit says that the name can no longer come."""

    groups: tuple[NameGroup, ...] = ()

    def __init__(self, graph: Graph, names: MemberNames, weight: Callable[[int], int]) -> None:
        self._graph = graph
        self._names = names
        self._in_order = (1 << names.schema_names) - 1
        self.counter = graph.new_set(names.required, partial(_weights, names, weight))

    def name(self, index: int) -> tuple[int, int, int, int]:
        """Return the guard of the name at `index`, with the bits it adds, for `Graph.guard`."""
        names = self._names
        used, before = 1 << index, self._in_order & ((1 << index) - 1)
        added = used | before if index < names.schema_names else used | self._in_order
        return names.required & before, used, -1, added

    def other(self, entry: int) -> Link:
        """Return a link to a name without a bit."""
        return self._graph.guard(entry, needed=self._names.required & self._in_order, added=self._in_order)

    def more(self, entry: int) -> Link:
        """Return a link to another member, if any can come."""
        all_bits = 0 if self._names.others else (1 << len(self._names.names)) - 1
        return self._graph.guard(entry, refused=all_bits)

    def done(self, entry: int) -> Link:
        """Return a link to the end of the object, if all required members are there."""
        return self._graph.guard(entry, needed=self._names.required, kept=0)


class ManyNames:
    """Guards for any number of names, in any order; required names have the first bits.

    groups: the groups of similar names, without names that need guards of their own
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
        self.groups: list[NameGroup] = []
        for each in listed:
            self.groups.append(NameGroup(each, len(order)))
            order += each
        self._bit = {index: bit for bit, index in enumerate(order)}
        self.counter = graph.new_large_set(self._required, lambda: list(map(weight, order[: self._required])))

    def name(self, index: int) -> tuple[int, int, int, int]:
        """Return the guard of the name at `index`, with the bit it adds, for `Graph.guard`."""
        bit = self._bit[index] + 1
        return 0, bit, -1, bit

    def other(self, entry: int) -> Link:
        """Return a link to a name without a bit."""
        return self._graph.guard(entry)

    def more(self, entry: int) -> Link:
        """Return a link to another member, if any can come."""
        return self._graph.guard(entry, refused=0 if self._names.others else -len(self._names.names))

    def done(self, entry: int) -> Link:
        """Return a link to the end of the object, if all required members are there."""
        return self._graph.guard(entry, needed=self._required, kept=0)


def _weights(names: MemberNames, weight: Callable[[int], int]) -> list[int]:
    """Return the weight of each name's bit."""
    return [weight(index) if names.required >> index & 1 else 0 for index in range(len(names.names))]
