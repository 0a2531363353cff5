"""A tree with conditions as a nondeterministic machine over classes of characters."""

from __future__ import annotations

from typing import NamedTuple

from ..limits import spend
from ..syntax import Alternation, Chars, Literal, Ranges, Repeat, Sequence
from .charsets import ALL, single
from .measure import STEPS_PER_NODE
from .tree import Concat, Either, Look, Loop, Tree
from .utf8_table import Segments, too_many_states


class Next(NamedTuple):
    """The next character is of one of these classes (a bit for each), or is not."""

    classes: int
    negative: bool


class Previous(NamedTuple):
    """The previous character is in set number `test`, or is not."""

    test: int
    negative: bool


class Ahead(NamedTuple):
    """The machine matches here when begun in `start`, or does not."""

    start: int
    negative: bool


class Behind(NamedTuple):
    """The machine of tracker number `tracker`, begun anywhere before, has matched here, or has not."""

    tracker: int
    negative: bool


Guard = Next | Previous | Ahead | Behind


class Tracker(NamedTuple):
    """A look behind: begun at every position, matched when in `goal`."""

    start: int
    goal: int


class Machine:
    """States 0 to n - 1; `moves` read a character of some classes, `links` read nothing and may be guarded.

    segments: all characters by class; tests: for each set asked about a previous character, its classes
    needs, asks: for each state, a bit for each tracker reachable from it, and for each test reachable from
    it without reading
    Raises LimitError beyond `max_states` states.
    """

    def __init__(self, tree: Tree, max_states: int) -> None:
        self.max_states = max_states
        self.moves: list[list[tuple[int, int]]] = []
        self.links: list[list[tuple[int, Guard | None]]] = []
        self.goals: set[int] = set()
        self.trackers: list[Tracker] = []
        self.tests: list[int] = []
        self._guards: dict[Look, int] = {}
        self.segments, self._classes = _partition(_sets(tree))
        self.class_count = 1 + max(number for _, _, number in self.segments)
        self.start = self._state()
        self.accept = self._add(tree, self.start)
        self.asks, self.needs = self._reachable()

    def _state(self) -> int:
        if len(self.moves) >= self.max_states:
            raise too_many_states(self.max_states)
        self.moves.append([])
        self.links.append([])
        return len(self.moves) - 1

    def _link(self, source: int, target: int, guard: Guard | None = None) -> None:
        self.links[source].append((target, guard))

    def _add(self, tree: Tree, source: int) -> int:
        """Adds the tree behind `source`; the state in which it has matched."""
        spend(STEPS_PER_NODE)
        if isinstance(tree, Chars):
            return self._read(tree.ranges, source)
        if isinstance(tree, Literal):
            for char in tree.data.decode():
                spend(STEPS_PER_NODE)
                source = self._read(single(ord(char)), source)
            return source
        if isinstance(tree, (Sequence, Concat)):
            for item in tree.items:
                source = self._add(item, source)
            return source
        if isinstance(tree, (Alternation, Either)):
            end = self._state()
            for item in tree.items:
                begin = self._state()
                self._link(source, begin)
                self._link(self._add(item, begin), end)
            return end
        if isinstance(tree, (Repeat, Loop)):
            return self._repeat(tree, source)
        assert isinstance(tree, Look), "no references, no tables"
        end = self._state()
        self._link(source, end, self._guard(tree))
        return end

    def _read(self, ranges: Ranges, source: int) -> int:
        end = self._state()
        self.moves[source].append((self._classes[ranges], end))
        return end

    def _repeat(self, tree: Repeat | Loop, source: int) -> int:
        for _ in range(tree.min):
            source = self._add(tree.item, source)
        if tree.max is None:
            again = self._state()
            self._link(source, again)
            self._link(self._add(tree.item, again), again)
            return again
        end = self._state()
        self._link(source, end)
        for _ in range(tree.max - tree.min):
            source = self._add(tree.item, source)
            self._link(source, end)
        return end

    def _guard(self, look: Look) -> Guard:
        """What a condition asks; the machine behind it is built once, however often the tree is unrolled."""
        if isinstance(look.body, Chars):
            classes = self._classes[look.body.ranges]
            if look.ahead:
                return Next(classes, look.negative)
            if classes not in self.tests:
                self.tests.append(classes)
            return Previous(self.tests.index(classes), look.negative)
        known = self._guards.get(look)
        if known is None:
            begin = self._state()
            goal = self._add(look.body, begin)
            if look.ahead:
                self.goals.add(goal)
                known = begin
            else:
                self.trackers.append(Tracker(begin, goal))
                known = len(self.trackers) - 1
            self._guards[look] = known
        return Ahead(known, look.negative) if look.ahead else Behind(known, look.negative)

    def _reachable(self) -> tuple[list[int], list[int]]:
        """(Tests reachable without reading, trackers reachable at all) for each state, as bits."""
        asks, needs = [0] * len(self.moves), [0] * len(self.moves)
        changed = True
        while changed:
            changed = False
            spend(STEPS_PER_NODE * len(self.moves))
            for state in reversed(range(len(self.moves))):
                ask, need = asks[state], needs[state]
                for target, guard in self.links[state]:
                    ask |= asks[target]
                    need |= needs[target]
                    if isinstance(guard, Previous):
                        ask |= 1 << guard.test
                    elif isinstance(guard, Ahead):
                        ask |= asks[guard.start]
                        need |= needs[guard.start]
                    elif isinstance(guard, Behind):
                        need |= 1 << guard.tracker | needs[self.trackers[guard.tracker].start]
                for _, target in self.moves[state]:
                    need |= needs[target]
                if (ask, need) != (asks[state], needs[state]):
                    asks[state], needs[state] = ask, need
                    changed = True
        return asks, needs


def _sets(tree: Tree) -> set[Ranges]:
    """All sets of characters in the tree."""
    if isinstance(tree, Chars):
        return {tree.ranges}
    if isinstance(tree, Literal):
        return {single(ord(char)) for char in tree.data.decode()}
    if isinstance(tree, Look):
        return _sets(tree.body)
    if isinstance(tree, (Repeat, Loop)):
        return _sets(tree.item)
    assert isinstance(tree, (Sequence, Alternation, Concat, Either)), "a pattern holds no references and no tables"
    return {ranges for item in tree.items for ranges in _sets(item)}


def _partition(sets: set[Ranges]) -> tuple[Segments, dict[Ranges, int]]:
    """(All characters by class, the classes of each set as bits); each set holds a class wholly or not."""
    ordered = sorted(sets)
    edges: dict[int, int] = {}
    # Each set is a bit, and so numbers are as long as there are sets.
    long = 1 + len(ordered) // 64
    spend(sum(map(len, ordered)) * (STEPS_PER_NODE + long))
    for index, ranges in enumerate([*ordered, ALL]):
        for low, high in ranges:
            edges[low] = edges.get(low, 0) ^ (1 << index)
            edges[high + 1] = edges.get(high + 1, 0) ^ (1 << index)
    inside = 1 << len(ordered)
    numbers: dict[int, int] = {}
    segments: Segments = []
    begin = membership = 0
    for edge in sorted(edges):
        if membership & inside and edge > begin:
            segments.append((begin, edge - 1, numbers.setdefault(membership, len(numbers))))
        begin = edge
        membership ^= edges[edge]
    classes = {ranges: 0 for ranges in ordered}
    spend(len(numbers) * len(ordered) * (10 + long))
    for membership, number in numbers.items():
        for index, ranges in enumerate(ordered):
            if membership >> index & 1:
                classes[ranges] |= 1 << number
    return segments, classes
