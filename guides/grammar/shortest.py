"""Lengths of the shortest texts of rules."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from functools import cache

from ...kernels.answers import NEVER
from ..automata.positions import shortest_in_table
from ..limits import spend
from ..syntax import Alternation, Chars, Literal, Node, Reference, Repeat, Sequence, Table
from .grammar import children

# Work per syntax node
STEPS_EACH = 500


def shortest_texts(rules: Mapping[str, Node], known: Mapping[str, int]) -> Callable[[], Mapping[str, int]]:
    """Return a function that computes, at its first call, the fewest bytes of each rule's texts, at most NEVER.

    known: those of rules without a body
    """
    return cache(lambda: _Lengths(rules, known).found())


class _Lengths:
    """The lengths of the shortest texts of all nodes, in ascending order; each node is settled once.

    A node's length is at least those of the parts it depends on, so that D. Knuth's "A generalization of Dijkstra's
    algorithm" (1977) applies. A node shared by several rules is one node.
    """

    def __init__(self, rules: Mapping[str, Node], known: Mapping[str, int]) -> None:
        self._rules = rules
        self._number = {name: i for i, name in enumerate((*rules, *known))}
        # By number: rules first, then syntax nodes
        count = len(self._number)
        self._parents: list[list[int]] = [[] for _ in range(count)]
        self._waits = [1] * count  # parts that a node still waits for
        self._times = [1] * count  # minimum repetitions of its parts
        self._length = [0] * count  # sum of its settled parts
        self._settled = [False] * count
        self._queue: list[tuple[int, int]] = []
        for name, length in known.items():
            self._offer(self._number[name], length)

    def found(self) -> dict[str, int]:
        """Return the fewest bytes of each rule."""
        self._read()
        lengths = dict.fromkeys(self._number, NEVER)
        names = list(self._number)
        while self._queue:
            length, this = heapq.heappop(self._queue)
            if self._settled[this]:
                continue
            self._settled[this] = True
            if this < len(names):
                lengths[names[this]] = length
            for parent in self._parents[this]:
                if not self._settled[parent]:
                    self._offer(parent, length)
        return lengths

    def _offer(self, whole: int, length: int) -> None:
        """Report a settled part to a node: the last part of a sequence settles it, the first one any other node."""
        length += self._length[whole]
        if self._waits[whole] > 1:
            self._waits[whole] -= 1
            self._length[whole] = length
        else:
            heapq.heappush(self._queue, (min(NEVER, self._times[whole] * length), whole))

    def _read(self) -> None:
        """Number the syntax nodes that have parts, and queue nodes settled by leaves."""
        seen: dict[int, int] = {}
        todo: list[tuple[Node, int]] = []
        for name, body in self._rules.items():
            self._take(body, self._number[name], todo)
        while todo:
            node, parent = todo.pop()
            this = seen.get(id(node))
            if this is not None:
                self._parents[this].append(parent)
                continue
            this = seen[id(node)] = len(self._parents)
            spend(STEPS_EACH)
            parts = children(node)
            self._parents.append([parent])
            self._waits.append(len(parts) if isinstance(node, Sequence) else 1)
            self._times.append(node.min if isinstance(node, Repeat) else 1)
            self._length.append(0)
            self._settled.append(False)
            for part in parts:
                self._take(part, this, todo)

    def _take(self, part: Node, whole: int, todo: list[tuple[Node, int]]) -> None:
        """Process a part: a leaf at once, others later."""
        if isinstance(part, Reference):
            self._parents[self._number[part.name]].append(whole)
        elif children(part) and not (isinstance(part, Repeat) and part.min == 0):
            todo.append((part, whole))
        else:
            self._offer(whole, _length_without_parts(part))


def _length_without_parts(node: Node) -> int:
    match node:
        case Literal(data):
            return min(NEVER, len(data))
        case Chars(ranges):
            return len(chr(ranges[0][0]).encode()) if ranges else NEVER
        case Table():
            return shortest_in_table(node)
        case Alternation():
            return NEVER
        case _:
            return 0
