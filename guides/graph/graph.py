"""The graph a constraint is lowered to: nodes with byte edges and links, grown as it is explored.

What a graph asks while it is explored is told by a `NamedRule`, and kept in `Later` until then.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache

import numpy as np

from ...errors import LimitError
from ...kernels.chart.copying import FragmentArrays, look_ahead
from ...kernels.chart.interning import BITS
from ...kernels.chart.layout import (
    COUNTER,
    EDGE_HI,
    EDGE_LO,
    FINAL,
    FLAGS,
    GUARD,
    LAZY,
    LINK_HI,
    LINK_LO,
    LOOKED,
    RULE,
    SPAN,
    TAIL,
    UNBOUNDED,
)
from ...kernels.jit.compiling import call
from ..limits import Limits, Meter
from .array_graph import ArrayGraph, Fragment, Link

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


NEAR = 8
"""Up to how far from a rule that is reached its siblings are looked for."""
WEIGHT, FIRST_WEIGHT = 16, 6
"""What may be defined early, in rules of the smallest kind: beside a member, and beside what the first mask needs."""
LIMITS = Limits(work=10_000)
"""What it may take to find out how large rules are: some hundred microseconds."""


def chosen_early(
    reached: Sequence[int], offered: Sequence[int], names: Mapping[int, NamedRule], lazy: Container[int]
) -> tuple[int, ...]:
    """Rules to be defined with those that are reached.

    offered: rules that these lead to; names: the rules by their starts; lazy: those that are not defined yet. What is
    too large to find out about is left to the time when it is reached, if ever.
    """
    members = [node for node in reached if node in names and names[node].has_siblings]
    left = WEIGHT if members else FIRST_WEIGHT
    candidates = {node: None for member in members for node in _siblings(member, names, lazy)}
    candidates.update(dict.fromkeys(node for node in offered if node in lazy))
    if not candidates:
        return ()
    found: list[int] = []
    with Meter(LIMITS):
        try:
            for node in list(candidates)[:left]:
                weight = names[node].weight()
                if weight <= left:
                    found.append(node)
                    left -= weight
        except LimitError:
            pass
    return tuple(found)


def _siblings(member: int, names: Container[int], lazy: Container[int]) -> Iterator[int]:
    """The lazy rules that were made right after a rule, then those before it, the nearest first."""
    for step in (1, -1):
        for sibling in range(member + step, member + (NEAR + 1) * step, step):
            if sibling not in names:
                break
            if sibling in lazy:
                yield sibling


Edge = tuple[int, int, int]


class Graph(ArrayGraph):
    """A graph of nodes, edges and links, made now or when they are reached."""

    def __init__(self) -> None:
        super().__init__()
        self._later = Later()
        self._lazy: list[int] = []
        self._offered: list[int] = []
        self._terminals: list[tuple[int, int, str]] = []
        self._outer: dict[int, int] = {}  # the rules that were current where others were begun

    @property
    def names(self) -> dict[int, NamedRule]:
        """The names of rules for people, by start node; asked for when a state is described, or one is too large."""
        return self._later.names

    def define(self, node: int, edges: Iterable[Edge] = (), links: Iterable[Link] = (), flags: int = 0) -> int:
        """Give a reserved node its edges and links, once; returns the node."""
        pending_edges, pending_links = self._pending_edges, self._pending_links
        flat, base = self._nodes.flat, 8 * node
        flat[base + EDGE_LO] = self._edges.count + len(pending_edges) // 3
        flat[base + LINK_LO] = self._links.count + len(pending_links) // 3
        for edge in edges:
            pending_edges += edge
        for link in links:
            pending_links += link
        flat[base + EDGE_HI] = self._edges.count + len(pending_edges) // 3
        flat[base + LINK_HI] = self._links.count + len(pending_links) // 3
        flat[base + FLAGS] = flags
        return node

    def node(self, edges: Iterable[Edge] = (), links: Iterable[Link] = (), flags: int = 0) -> int:
        """A new node with these edges and links."""
        return self.define(self.reserve(), edges, links, flags)

    def counter_for(self, least: int, most: int) -> int:
        """A new counter with these bounds; one that no text comes to is none. Raises LimitError."""
        if least >= UNBOUNDED:
            raise LimitError(f"a text of the constraint repeats something at least {least:,} times; ask for fewer")
        return self._counters.append((least, min(most, UNBOUNDED)))

    def new_set(self, needed: int, weights: Callable[[], list[int]]) -> int:
        """A new set of bits 0 ... 30; `needed`: those that must be there at the end.

        `weights()` is asked for when distances are needed: for each bit the bytes it takes to come by it.
        """
        self._later.weights.append(weights)
        return self._counters.append((needed, -len(self._later.weights)))

    def new_large_set(self, needed: int, weights: Callable[[], list[int]]) -> int:
        """A new set of any size; the first `needed` bits must be there at the end, for which there are weights."""
        known = cache(weights)
        counter = self._counters.append((-1 - needed, -1 - len(self._later.weights)))
        for first in range(0, max(needed, 1), BITS):
            self._later.weights.append(lambda first=first: known()[first : first + BITS])
        return counter

    def weights(self, first: int) -> list[list[int]]:
        """The weights of the sets from number `first` on; a large set has several numbers."""
        return [weights() for weights in self._later.weights[first:]]

    def guard(self, target: int, *, needed: int = 0, refused: int = 0, kept: int = -1, added: int = 0) -> Link:
        """A link within a set; see `guards` of kernels/chart/layout.py; large sets: interning.py."""
        return (GUARD, target, self._guards.append((needed, refused, kept, added)))

    def begin_rule(self) -> int:
        """Reserve the start node of a rule and make the rule current; the node's number names the rule."""
        start = self.reserve()
        self.rule, self.counter = start, 0
        self._nodes.flat[8 * start + RULE] = start
        self._nodes.flat[8 * start + COUNTER] = 0
        return start

    @contextmanager
    def new_rule(self) -> Generator[int]:
        """A rule to be built inside the block, beside the current one; gives its start node."""
        outer = self.rule, self.counter
        start = self.begin_rule()
        self._outer[start] = outer[0]
        yield start
        self.rule, self.counter = outer

    def name_nodes(self, first: int, name: str) -> None:
        """Remember that the nodes made since `first` are those of a named terminal."""
        self._terminals.append((first, self.node_count, name))

    def terminal_at(self, node: int) -> str | None:
        """The innermost named terminal that a node belongs to."""
        around = [(last - first, name) for first, last, name in self._terminals if first <= node < last]
        return min(around)[1] if around else None

    def final(self) -> int:
        """The end of the current rule."""
        return self.node(flags=FINAL | TAIL)

    def lazy(self, expand: Callable[[int], None], promise: Callable[[], int], named: NamedRule | None = None) -> int:
        """The start of a rule whose body `expand(start)` defines when the automaton first reaches it.

        `promise()` is asked for when distances are needed: the fewest bytes of the rule's texts, or more; named:
        as in `names`
        """
        start = self._nodes.reserve(1)
        flat, later = self._nodes.flat, self._later
        flat[8 * start + RULE], flat[8 * start + FLAGS] = start, LAZY
        self._lazy.append(start)
        later.expanders[start], later.promises[start] = expand, promise
        if named is not None:
            later.names[start] = named
        return start

    def lazy_node(
        self, expand: Callable[[int], None], promise: Callable[[], int], target: int, lacking: int | None = None
    ) -> int:
        """A node of the current rule that `expand(node)` defines when the automaton first reaches it.

        `promise()`: the fewest bytes from the node to `target`, or more; `lacking`: in a set while bits are missing,
        without their weights, if it is not the same.
        """
        return self.define_later(self.reserve(), expand, promise, target, lacking)

    def define_later(
        self,
        node: int,
        expand: Callable[[int], None],
        promise: Callable[[], int],
        target: int,
        lacking: int | None = None,
    ) -> int:
        """As `lazy_node`, for a node that was reserved; nodes are so in their order."""
        self._nodes.flat[8 * node + FLAGS] = LAZY
        self._later.expanders[node] = expand
        self.promise(node, promise)
        if target >= 0:
            self._later.targets[node] = target
        if lacking is not None:
            self._later.lacking[node] = lacking
        return node

    def define_all_later(
        self, nodes: range, expand: Callable[[int], None], promises: Sequence[int], target: int
    ) -> None:
        """As `define_later`, for the latest nodes, whose promises are known."""
        self._nodes.array[nodes.start : nodes.stop, FLAGS] = LAZY
        self._later.expanders.update(dict.fromkeys(nodes, expand))
        self._later.targets.update(dict.fromkeys(nodes, target))
        self.promise_all(nodes, promises)

    def promise_all(self, nodes: range, promises: Sequence[int]) -> None:
        """As `promise`, for the latest nodes, of which the bytes are known."""
        self._lazy += nodes
        self._later.promises.update(zip(nodes, promises, strict=True))

    def promised(self, links: Iterable[Link], promise: Callable[[], int]) -> int:
        """A node of the current rule with these links, from which `promise()` bytes lead to the end of the rule.

        For links into a set from without: what its bits weigh is not in the costs of its nodes.
        """
        node = self.node(links=links)
        self.promise(node, promise)
        return node

    def promise(self, node: int, promise: Callable[[], int]) -> None:
        """As `promised`, for a node that is there; nodes are so in their order."""
        self._lazy.append(node)
        self._later.promises[node] = promise

    def hand_over(self) -> Later:
        """Hand over what is asked for later, the caller's to keep from now on: it refers to the graph that has it.

        Whoever keeps it need not wait until Python comes to look for such circles: it goes with its keeper.
        """
        later = self._later
        self._later = weakref.proxy(later)
        return later

    def expand(self, nodes: Iterable[int], early: Iterable[int] | None = None) -> tuple[int, ...]:
        """Call the expanders of lazy nodes, each in its node's rule; they must define the nodes, or raise.

        So are those that whoever comes to these comes to before a byte is read: a closure that asked for them one
        after the other would begin as often. Nodes that are defined are passed over. After an exception the graph is
        of no use any more. LimitError says where, if that is known.

        early: rules to be defined beside them; by default those that `chosen_early` chooses. Returns which these were.
        """
        outer = self.rule, self.counter
        wanted = [node for node in nodes if node in self._later.expanders]
        self._offered = []
        self._expand(wanted)
        later = self._later
        if early is None:
            early = chosen_early(wanted, self._offered, later.names, later.expanders)
        chosen = tuple(early)
        self._expand(list(chosen))
        self.rule, self.counter = outer
        return chosen

    def _expand(self, wanted: list[int]) -> None:
        expanders, records = self._later.expanders, self._nodes
        while wanted:
            for node in wanted:
                expand = expanders.get(node)
                if expand is None:
                    continue
                self.rule = records.flat[8 * node + RULE]
                self.counter = records.flat[8 * node + COUNTER]
                try:
                    expand(node)
                except LimitError as error:
                    self._locate(error, node)
                    raise
                del expanders[node]
                records.flat[8 * node + FLAGS] |= LOOKED
            wanted = self._ahead(wanted)

    def _locate(self, error: LimitError, node: int) -> None:
        """Say in an error at a node where its rule is, or that around it."""
        rule: int | None = int(self._nodes.flat[8 * node + RULE])
        while rule is not None and rule not in self.names:
            rule = self._outer.get(rule)
        pointer = None if rule is None else self.names[rule].pointer()
        if pointer is not None:
            error.locate(pointer)

    def offer(self, rules: Iterable[int]) -> None:
        """Told by an expander: lazy rules of which some will be reached soon, if they were not defined yet."""
        self._offered += rules

    def _ahead(self, nodes: list[int]) -> list[int]:
        """The lazy nodes that links lead to, whatever is counted, from nodes that were just defined."""
        self._flush()
        found = np.empty(self._nodes.count, np.int32)
        count = call(look_ahead, self._nodes.array, self._links.array, np.array(nodes, np.int32), found)
        return found[:count].tolist() if count else []

    def promises(self, first: int, last: int) -> list[tuple[int, int, int, int]]:
        """The nodes among first ... last - 1 that are or were lazy: the bytes they promise, with all bits of their
        set and without, and up to which node. LimitError says where, if that is known."""
        later = self._later
        found: list[tuple[int, int, int, int]] = []
        for at in range(bisect_left(self._lazy, first), bisect_left(self._lazy, last)):
            node = self._lazy[at]
            promise = later.promises[node]
            if not isinstance(promise, int):
                try:
                    promise = later.promises[node] = promise()
                except LimitError as error:
                    self._locate(error, node)
                    raise
            found.append((node, promise, later.lacking.get(node, promise), later.targets.get(node, -1)))
        return found

    def literal(self, data: bytes, target: int) -> int:
        """A chain of nodes that reads `data` and leads to `target`; its first node."""
        count = len(data)
        if count == 0:
            return target
        first = self._nodes.reserve(count)
        pending = self._pending_edges
        edge = self._edges.count + len(pending) // 3
        for after, byte in enumerate(data, first + 1):
            pending += (byte, byte, after)
        pending[-1] = target
        flat, rule, counter = self._nodes.flat, self.rule, self.counter
        for base in range(8 * first, 8 * (first + count), 8):
            flat[base + EDGE_LO] = edge
            edge += 1
            flat[base + EDGE_HI] = edge
            flat[base + RULE] = rule
            flat[base + COUNTER] = counter
        return first

    def fragment(self) -> Fragment:
        """The graph as it stands, with its first rule, as a fragment for others; nothing in it is lazy or a set."""
        assert not self._lazy and not self._later.weights, "what is worked out when it is reached belongs to one graph"
        self._flush()
        nodes = self._nodes.used()
        spans = list(self._spans)
        promising: list[int] = nodes[:, SPAN].nonzero()[0].tolist()
        promises = tuple((node, spans[int(nodes[node, SPAN])]) for node in promising)
        return Fragment(
            FragmentArrays(nodes, self._edges.used(), self._links.used()), self._counters.used()[1:], promises
        )
