"""Lowering of syntax to graph nodes.

Nodes are lowered from the end to the beginning, so that the target of each is known. A bounded repeat is a
counter in the automaton's items instead of copies: its nodes carry the counter's number, an EPSILON link that checks
the upper bound enters an iteration, an INCREMENT link ends it, and a LEAVE link checks the lower bound. An item has
one count, so a bounded repeat inside another becomes a rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from ...errors import LanguageError, LimitError
from ...kernels.answers import NOWHERE
from ...kernels.chart.layout import CALL, EPSILON, INCREMENT, LEAVE, UNBOUNDED
from ..cached import cached
from ..limits import spend
from ..syntax import Alternation, Chars, Literal, Node, Ranges, Reference, Repeat, Sequence, Table
from .graph import Edge, Graph, Link
from .text_tree import any_text
from .utf8 import ByteFragment, byte_fragment, fragment_of_rows

MAX_DEPTH = 300
MANY_TEXTS = 100
# Steps per syntax node, per graph node made for it, and per graph node copied
STEPS_PER_ITEM, STEPS_PER_NODE, STEPS_PER_COPY = 150, 30, 3


class Lowering:
    """Lowering of syntax nodes into a graph.

    resolve: returns the start node of a rule by name; nullable: tests whether a rule by name accepts the empty text
    names: the names of syntax nodes written as terminals, by `id`
    """

    def __init__(
        self,
        graph: Graph,
        resolve: Callable[[str], int] | None = None,
        nullable: Callable[[str], bool] = lambda _: False,
        names: Mapping[int, str] | None = None,
    ) -> None:
        self.graph = graph
        self._names = names or {}
        self._resolve = resolve
        self._nullable = nullable
        self._depth = 0
        self._tables: dict[int, tuple[Table, ByteFragment]] = {}

    def rule(self, body: Node | ByteFragment) -> int:
        """Make a rule with this body; return its start node."""
        with self.graph.new_rule() as start:
            self.body(start, body)
        return start

    def body(self, start: int, body: Node | ByteFragment) -> None:
        """Define the reserved start node of the current rule."""
        final = self.graph.final()
        try:
            entry = self._instance(body, final) if isinstance(body, ByteFragment) else self.lower(body, final)
        except RecursionError:
            raise LimitError(
                "the constraint is nested deeper than the rest of Python's stack allows; name its parts as rules, or "
                "write it with fewer levels"
            ) from None
        self.graph.define(start, links=() if entry is None else ((EPSILON, entry, 0),))

    def lower(self, node: Node, target: int) -> int | None:
        """Lower `node` with what follows it at `target`; return its entry, None for the empty language."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise LimitError(
                f"the constraint is nested more than {MAX_DEPTH} levels deep, a fixed limit; name its parts as rules, "
                "or write it with fewer levels"
            )
        spend(STEPS_PER_ITEM + STEPS_PER_NODE * len(node.data) if isinstance(node, Literal) else STEPS_PER_ITEM)
        first = self.graph.node_count
        match node:
            case Literal(data):
                entry = self.graph.literal(data, target)
            case Chars(ranges):
                entry = self._chars(ranges, target)
            case Sequence(items):
                entry = self._sequence(items, target)
            case Alternation(items):
                entry = self._alternation(items, target)
            case Repeat():
                entry = self._repeat(node, target)
            case Reference(name):
                if self._resolve is None:
                    raise LanguageError(f"rule {name!r} is not defined")
                entry = self.graph.node(links=((CALL, self._resolve(name), target),))
            case Table():
                entry = self._table(node, target)
        if id(node) in self._names:
            self.graph.name_nodes(first, self._names[id(node)])
        self._depth -= 1
        return entry

    def _char_edges(self, ranges: Ranges, target: int) -> list[Edge]:
        if ranges[-1][1] < 0x80:
            return [(low, high, target) for low, high in ranges]
        form = byte_fragment(ranges)
        first = self._instance(form, target)
        return [
            (low, high, target if after < 0 else first + after)
            for low, high, after in form.edges[: int(form.ends[0])].tolist()
        ]

    def _chars(self, ranges: Ranges, target: int) -> int | None:
        if not ranges:
            return None
        if ranges[-1][1] < 0x80:
            return self.graph.node([(low, high, target) for low, high in ranges])
        return self._instance(byte_fragment(ranges), target)

    def _instance(self, form: ByteFragment, target: int) -> int:
        spend(STEPS_PER_COPY * (len(form.ends) + len(form.edges)))
        return self.graph.instantiate(form, target)

    def _sequence(self, items: tuple[Node, ...], target: int) -> int | None:
        entry: int | None = target
        for item in reversed(items):
            if entry is None:
                return None
            entry = self.lower(item, entry)
        return entry

    def _alternation(self, items: tuple[Node, ...], target: int) -> int | None:
        literals = [item.data for item in items if isinstance(item, Literal) and item.data]
        entries: list[int | None] = []
        if len(literals) > 3:
            if len(literals) < MANY_TEXTS:
                entries.append(self.tree((data, target) for data in literals))
            else:
                entries.append(self._instance(any_text(literals), target))
            items = tuple(item for item in items if not (isinstance(item, Literal) and item.data))
        others: list[Node] = []
        together: list[Node] = []
        for item in items:
            (together if self._begins_with_byte(item) else others).append(item)
        if len(together) < 2:
            return self._joined([*entries, *(self.lower(item, target) for item in items)])
        edges = [edge for item in together for edge in self._first_edges(item, target)]
        entries.append(self.graph.node(edges) if edges else None)
        return self._joined([*entries, *(self.lower(item, target) for item in others)])

    def _begins_with_byte(self, node: Node) -> bool:
        """Test whether a node is unnamed and its syntax shows the first bytes of all its texts."""
        if id(node) in self._names:
            return False
        match node:
            case Chars(ranges):
                return bool(ranges)
            case Literal(data):
                return bool(data)
            case Sequence(items):
                return bool(items) and self._begins_with_byte(items[0])
            case Alternation(items):
                return bool(items) and all(map(self._begins_with_byte, items))
            case _:
                return False

    def _first_edges(self, node: Node, target: int) -> list[Edge]:
        """Return the edges of the entry of a node that begins with a byte; the alternatives' edges share one node.

        A state has an item per node, so that hundreds of alternatives cost as much as one.
        """
        spend(STEPS_PER_ITEM)
        match node:
            case Chars(ranges):
                return self._char_edges(ranges, target)
            case Literal(data):
                spend(STEPS_PER_NODE * len(data))
                return [(data[0], data[0], self.graph.literal(data[1:], target))]
            case Sequence(items):
                after = self._sequence(items[1:], target)
                return [] if after is None else self._first_edges(items[0], after)
            case Alternation(items):
                return [edge for item in items for edge in self._first_edges(item, target)]
            case _:
                raise AssertionError("what begins with a byte is one of these")

    def _joined(self, entries: list[int | None]) -> int | None:
        """Make a node that leads to all entries that are not None."""
        links = [(EPSILON, entry, 0) for entry in entries if entry is not None]
        if len(links) < 2:
            return links[0][1] if links else None
        return self.graph.node(links=links)

    def tree(self, texts: Iterable[tuple[bytes, int]]) -> int:
        """Make a deterministic trie from which each text is read and leads to its target; return its root."""
        ordered = sorted(set(texts))
        spend(STEPS_PER_NODE * sum(4 + len(data) for data, _ in ordered))
        root = self.graph.reserve()
        stack = [(root, 0, len(ordered), 0)]
        while stack:
            node, first, last, depth = stack.pop()
            links: list[Link] = []
            while first < last and len(ordered[first][0]) == depth:
                links.append((EPSILON, ordered[first][1], 0))
                first += 1
            edges: list[Edge] = []
            while first < last:
                byte = ordered[first][0][depth]
                end = first + 1
                while end < last and ordered[end][0][depth] == byte:
                    end += 1
                if end == first + 1:
                    child = self.graph.literal(ordered[first][0][depth + 1 :], ordered[first][1])
                else:
                    child = self.graph.reserve()
                    stack.append((child, first, end, depth + 1))
                edges.append((byte, byte, child))
                first = end
            self.graph.define(node, edges, links)
        return root

    def _repeat(self, repeat: Repeat, target: int) -> int | None:
        item, least, most = repeat.item, repeat.min, repeat.max
        graph = self.graph
        if most == 0:
            return target
        if (least, most) == (1, 1):
            return self.lower(item, target)
        if (most is not None and most > 1) or least > 1:
            if graph.counter:
                return graph.node(links=((CALL, self.rule(repeat), target),))
            return self._counted(item, least, UNBOUNDED if most is None else most, target)
        loop = graph.reserve()
        entry = self._turn(item, loop) if most is None else self.lower(item, target)
        if entry is None:
            return target if least == 0 else None
        graph.define(loop, links=((EPSILON, entry, 0), (EPSILON, target, 0)))
        return entry if least == 1 else loop

    def _counted(self, item: Node, least: int, most: int, target: int, *, some: bool = False) -> int | None:
        """Make a counted loop; an iteration reads at least one byte, so that empty iterations do not count.

        The head stands before the loop, outside the counter: callers return to it with nothing counted.
        some: exclude the empty text even if the item is nullable
        """
        graph = self.graph
        nullable = self._is_nullable(item)
        if nullable:
            least = int(some)
        head = graph.reserve()
        graph.counter = counter = graph.counter_for(least, most)
        turn = graph.node(links=((INCREMENT, head, counter),))
        if nullable:
            entry = self._some(item, turn)
        else:
            entry = self._turn(item, turn) if most == UNBOUNDED else self.lower(item, turn)
        graph.counter = 0
        if entry is None:
            return target if least == 0 else None
        graph.define(head, links=((EPSILON, entry, counter), (LEAVE, target, counter)))
        return head

    def _is_nullable(self, node: Node) -> bool:
        return is_nullable(node, self._nullable)

    def _some(self, node: Node, target: int) -> int | None:
        """Lower a node without the empty text; a reference is kept unchanged, and may still be empty."""
        spend(STEPS_PER_ITEM)
        if not self._is_nullable(node):
            return self.lower(node, target)
        match node:
            case Sequence(items):
                entry: int | None = target
                some: int | None = None
                for item in reversed(items):
                    if entry is not None:
                        some = self._joined([self._some(item, entry), some])
                        entry = self.lower(item, entry)
                return some
            case Alternation(items):
                empty = [item for item in items if self._is_nullable(item)]
                others = tuple(item for item in items if not self._is_nullable(item))
                return self._joined([self._alternation(others, target), *(self._some(item, target) for item in empty)])
            case Repeat(item, _, most):
                return self._some_turns(item, most, target)
            case Table():
                return self._table(_table_without_empty(node), target)
            case Reference():
                return self.lower(node, target)
            case _:
                return None

    def _some_turns(self, item: Node, most: int | None, target: int) -> int | None:
        """Lower one or more nonempty iterations inside a counter."""
        graph = self.graph
        if most is None:
            loop = graph.reserve()
            entry = self._some(item, loop)
            graph.define(loop, links=() if entry is None else ((EPSILON, entry, 0), (EPSILON, target, 0)))
            return entry
        if most < 2:
            return self._some(item, target) if most else None
        with graph.new_rule() as start:
            entry = self._counted(item, 1, most, graph.final(), some=True)
            graph.define(start, links=() if entry is None else ((EPSILON, entry, 0),))
        return None if entry is None else graph.node(links=((CALL, start, target),))

    def _turn(self, item: Node, target: int) -> int | None:
        """Lower one iteration of an unbounded loop; single characters promise that any number of them may follow."""
        if isinstance(item, Alternation):
            singles = [part for part in item.items if isinstance(part, Chars)]
            others = tuple(part for part in item.items if not isinstance(part, Chars))
            entries = [self._turn(part, target) for part in singles]
            return self._joined([*entries, self._alternation(others, target)])
        entry = self.lower(item, target)
        if entry is not None and isinstance(item, Chars):
            self.graph.promise_span(entry, item.ranges)
        return entry

    def _table(self, table: Table, target: int) -> int:
        known = self._tables.get(id(table))
        if known is None:
            known = self._tables[id(table)] = (table, fragment_of_table(table))
        return self._instance(known[1], target)


@cached(256, 64 << 20)
def fragment_of_table(table: Table) -> ByteFragment:
    """Convert a table to a fragment."""
    count = len(table.transitions)
    transitions = table.transitions[np.roll(np.arange(count), -table.start)]
    exits = (np.flatnonzero(table.accepting) - table.start) % count
    return fragment_of_rows(np.where(transitions >= 0, (transitions - table.start) % count, NOWHERE), exits)


def is_nullable(node: Node, rule: Callable[[str], bool]) -> bool:
    """Test whether the empty text is in the language; `rule` tests the rules referred to."""
    spend(STEPS_PER_NODE)
    match node:
        case Chars():
            return False
        case Literal(data):
            return not data
        case Sequence(items):
            return all(is_nullable(item, rule) for item in items)
        case Alternation(items):
            return any(is_nullable(item, rule) for item in items)
        case Repeat(item, least, _):
            return least == 0 or is_nullable(item, rule)
        case Table():
            return bool(node.accepting[node.start])
        case Reference(name):
            return rule(name)


def _table_without_empty(table: Table) -> Table:
    start = len(table.transitions)
    transitions = np.concatenate([table.transitions, table.transitions[table.start : table.start + 1]])
    return Table(transitions, np.append(table.accepting, False), start)
