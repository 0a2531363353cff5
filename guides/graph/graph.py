"""The graph that a constraint is lowered to: nodes with byte edges and links, extended during exploration.

`DeferredCallbacks` holds the callbacks for lazy parts; a `NamedRule` describes a lazy rule.
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
"""Weight of a rule that is never defined before it is reached."""


class NamedRule(ABC):
    """A rule with a display name, and an estimate of the cost to define it.

    has_siblings: rules made right before and after it are likely to be reached soon after it
    """

    __slots__ = ()
    has_siblings = False

    @abstractmethod
    def name(self) -> str:
        """Return the name used in descriptions of states."""

    def pointer(self) -> str | None:
        """Return the JSON pointer of the rule's part of a schema; None for other constraints."""
        return None

    def weight(self) -> int:
        """Return the cost of defining the rule: 1 for the smallest, HEAVY for a rule defined only on demand.

        Does not change the graph. Raises LimitError.
        """
        return HEAVY


class DeferredCallbacks:
    """Callbacks used during exploration: bodies of lazy nodes, promises, weights of sets, names of rules.

    targets, lacking: the target and the promise without missing bits of a node. They are separate dicts of ints,
    which Python's garbage collector does not traverse.
    """

    def __init__(self) -> None:
        self.expanders: dict[int, Callable[[int], None]] = {}
        self.promises: dict[int, Callable[[], int] | int] = {}
        self.targets: dict[int, int] = {}
        self.lacking: dict[int, int] = {}
        self.weights: list[Callable[[], list[int]]] = []
        self.names: dict[int, NamedRule] = {}


NEAR = 8
"""Distance in node numbers within which siblings of a reached rule are considered."""
WEIGHT, FIRST_WEIGHT = 16, 6
"""Budget of weights for early definitions: beside a member, and beside other rules, such as those of the first mask."""
LIMITS = Limits(work=10_000)
"""Budget for the weights themselves, some hundred microseconds."""


def chosen_early(
    reached: Sequence[int], offered: Sequence[int], names: Mapping[int, NamedRule], lazy: Container[int]
) -> tuple[int, ...]:
    """Choose rules to be defined together with those that are reached.

    offered: rules that these lead to; names: the rules by their start nodes; lazy: those not defined yet. Rules whose
    weights exceed the budget are left until they are reached.
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
    """Yield the lazy rules made right after a rule, then those right before it, nearest first."""
    for step in (1, -1):
        for sibling in range(member + step, member + (NEAR + 1) * step, step):
            if sibling not in names:
                break
            if sibling in lazy:
                yield sibling


Edge = tuple[int, int, int]


class Graph(ArrayGraph):
    """A graph of nodes, edges and links; parts may be lazy."""

    def __init__(self) -> None:
        super().__init__()
        self._later = DeferredCallbacks()
        self._lazy: list[int] = []
        self._offered: list[int] = []
        self._terminals: list[tuple[int, int, str]] = []
        self._outer: dict[int, int] = {}  # the enclosing rule of each rule begun in another

    @property
    def names(self) -> dict[int, NamedRule]:
        """Named rules by start node, for descriptions of states and for errors."""
        return self._later.names

    def define(self, node: int, edges: Iterable[Edge] = (), links: Iterable[Link] = (), flags: int = 0) -> int:
        """Give a reserved node its edges and links, once; return the node."""
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
        """Make a node with these edges and links."""
        return self.define(self.reserve(), edges, links, flags)

    def counter_for(self, least: int, most: int) -> int:
        """Make a counter with these bounds. Raises LimitError for a bound that no text can reach."""
        if least >= UNBOUNDED:
            raise LimitError(f"a text of the constraint repeats something at least {least:,} times; ask for fewer")
        return self._counters.append((least, min(most, UNBOUNDED)))

    def new_set(self, needed: int, weights: Callable[[], list[int]]) -> int:
        """Make a set of bits 0 ... 30; `needed`: the bits required at the end.

        `weights()` is called when distances are needed: for each bit the fewest bytes that set it.
        """
        self._later.weights.append(weights)
        return self._counters.append((needed, -len(self._later.weights)))

    def new_large_set(self, needed: int, weights: Callable[[], list[int]]) -> int:
        """Make a set of any size; its first `needed` bits are required at the end and have weights."""
        known = cache(weights)
        counter = self._counters.append((-1 - needed, -1 - len(self._later.weights)))
        for first in range(0, max(needed, 1), BITS):
            self._later.weights.append(lambda first=first: known()[first : first + BITS])
        return counter

    def weights(self, first: int) -> list[list[int]]:
        """Return the weights of the sets from number `first` on; a large set has several numbers."""
        return [weights() for weights in self._later.weights[first:]]

    def guard(self, target: int, *, needed: int = 0, refused: int = 0, kept: int = -1, added: int = 0) -> Link:
        """Return a guarded link within a set; see `guards` of kernels/chart/layout.py; large sets: interning.py."""
        return (GUARD, target, self._guards.append((needed, refused, kept, added)))

    def begin_rule(self) -> int:
        """Reserve the start node of a rule and make the rule current; a rule's id is its start node."""
        start = self.reserve()
        self.rule, self.counter = start, 0
        self._nodes.flat[8 * start + RULE] = start
        self._nodes.flat[8 * start + COUNTER] = 0
        return start

    @contextmanager
    def new_rule(self) -> Generator[int]:
        """Build a rule inside the block, then restore the current one; yields its start node."""
        outer = self.rule, self.counter
        start = self.begin_rule()
        self._outer[start] = outer[0]
        yield start
        self.rule, self.counter = outer

    def name_nodes(self, first: int, name: str) -> None:
        """Record that the nodes made since `first` belong to a named terminal."""
        self._terminals.append((first, self.node_count, name))

    def terminal_at(self, node: int) -> str | None:
        """Return the innermost named terminal of a node."""
        around = [(last - first, name) for first, last, name in self._terminals if first <= node < last]
        return min(around)[1] if around else None

    def final(self) -> int:
        """Make the end node of the current rule."""
        return self.node(flags=FINAL | TAIL)

    def lazy(self, expand: Callable[[int], None], promise: Callable[[], int], named: NamedRule | None = None) -> int:
        """Make a rule whose body `expand(start)` defines when the automaton first reaches it; return its start node.

        `promise()` is called when distances are needed: a bound, at least the fewest bytes of the rule's texts; named:
        its entry in `names`
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
        """Make a node of the current rule that `expand(node)` defines when the automaton first reaches it.

        `promise()`: the fewest bytes from the node to `target`, or more; `lacking`: the same without the weights of
        missing bits of its set, if that differs.
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
        """Make a reserved node lazy, as `lazy_node` does; nodes come in ascending order."""
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
        """Make the latest nodes lazy, as `define_later` does, with known promises."""
        self._nodes.array[nodes.start : nodes.stop, FLAGS] = LAZY
        self._later.expanders.update(dict.fromkeys(nodes, expand))
        self._later.targets.update(dict.fromkeys(nodes, target))
        self.promise_all(nodes, promises)

    def promise_all(self, nodes: range, promises: Sequence[int]) -> None:
        """Set known promises of the latest nodes."""
        self._lazy += nodes
        self._later.promises.update(zip(nodes, promises, strict=True))

    def promised(self, links: Iterable[Link], promise: Callable[[], int]) -> int:
        """Make a node of the current rule with these links, from which `promise()` bytes lead to the end of the rule.

        For links into a set from outside: the costs of its nodes exclude the weights of its bits.
        """
        node = self.node(links=links)
        self.promise(node, promise)
        return node

    def promise(self, node: int, promise: Callable[[], int]) -> None:
        """Set the promise of an existing node; nodes come in ascending order."""
        self._lazy.append(node)
        self._later.promises[node] = promise

    def hand_over(self) -> DeferredCallbacks:
        """Hand the callbacks over to the caller, who keeps them alive; the graph keeps a weak reference.

        The callbacks refer to the graph. Without the cycle, both are freed at once rather than by the garbage
        collector.
        """
        later = self._later
        self._later = weakref.proxy(later)
        return later

    def expand(self, nodes: Iterable[int], early: Iterable[int] | None = None) -> tuple[int, ...]:
        """Call the expanders of lazy nodes, each in its node's rule; they must define the nodes, or raise.

        Lazy nodes that these reach without reading a byte are expanded too: the closure would otherwise restart for
        each.
        Defined nodes are skipped. After an exception the graph is unusable. LimitError carries a JSON pointer, if
        known.

        early: rules to be defined too; by default those of `chosen_early`. Returns these rules.
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
        """Add to an error at a node the JSON pointer of its rule, or of the nearest enclosing rule that has one."""
        rule: int | None = int(self._nodes.flat[8 * node + RULE])
        while rule is not None and rule not in self.names:
            rule = self._outer.get(rule)
        pointer = None if rule is None else self.names[rule].pointer()
        if pointer is not None:
            error.locate(pointer)

    def offer(self, rules: Iterable[int]) -> None:
        """Register, from an expander, lazy rules of which some will be reached soon."""
        self._offered += rules

    def _ahead(self, nodes: list[int]) -> list[int]:
        """Return the lazy nodes that links, whatever their counters, lead to from nodes that were just defined."""
        self._flush()
        found = np.empty(self._nodes.count, np.int32)
        count = call(look_ahead, self._nodes.array, self._links.array, np.array(nodes, np.int32), found)
        return found[:count].tolist() if count else []

    def promises(self, first: int, last: int) -> list[tuple[int, int, int, int]]:
        """Return the promises of the nodes among first ... last - 1 that are or were lazy.

        Each is (node, bytes with all bits of its set, bytes with bits missing, target or -1). LimitError carries a JSON
        pointer, if known.
        """
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
        """Make a chain of nodes that reads `data` and leads to `target`; return its first node."""
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
        """Return the graph, with its first rule, as a fragment for other graphs; it has no lazy nodes and no sets."""
        assert not self._lazy and not self._later.weights, "what is worked out when it is reached belongs to one graph"
        self._flush()
        nodes = self._nodes.used()
        spans = list(self._spans)
        promising: list[int] = nodes[:, SPAN].nonzero()[0].tolist()
        promises = tuple((node, spans[int(nodes[node, SPAN])]) for node in promising)
        return Fragment(
            FragmentArrays(nodes, self._edges.used(), self._links.used()), self._counters.used()[1:], promises
        )
