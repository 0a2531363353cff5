"""A tree with conditions as a nondeterministic machine over classes of characters."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import LimitError
from ..automata.atoms import partition, sets_of
from ..automata.charsets import single
from ..limits import spend
from ..syntax import Alternation, Chars, Literal, Ranges, Repeat, Sequence
from .measure import STEPS_PER_NODE
from .tree import NO_GROUPS, Concat, Either, FirstWay, Look, LookaroundLoop, NamedGroup, Tree


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


class PatternMachine:
    """States 0 to n - 1; `moves` read a character of some classes, `links` read nothing and may be guarded.

    atoms: the characters of each class; tests: for each set asked about a previous character, its classes
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
        found: set[Ranges] = set()
        _sets_of(tree, found)
        self.atoms, self._classes = partition(found)
        self.class_count = len(self.atoms)
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
        if isinstance(tree, (Repeat, LookaroundLoop)):
            return self._repeat(tree, source)
        assert isinstance(tree, Look), "no references, no tables"
        end = self._state()
        self._link(source, end, self._guard(tree))
        return end

    def _read(self, ranges: Ranges, source: int) -> int:
        end = self._state()
        self.moves[source].append((self._classes[ranges], end))
        return end

    def _repeat(self, tree: Repeat | LookaroundLoop, source: int) -> int:
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
        """The duty of a condition; the machine behind it is built once, however often the tree is unrolled."""
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


def _sets_of(tree: Tree, found: set[Ranges]) -> None:
    """Add all sets of characters in the tree to `found`."""
    if isinstance(tree, Look):
        _sets_of(tree.body, found)
    elif isinstance(tree, LookaroundLoop):
        _sets_of(tree.item, found)
    elif isinstance(tree, (Concat, Either)):
        for item in tree.items:
            _sets_of(item, found)
    else:
        assert not isinstance(tree, (NamedGroup, FirstWay)), NO_GROUPS
        sets_of(tree, found)


def too_many_states(max_states: int) -> LimitError:
    """The error for a pattern whose conditions take too large an automaton."""
    return LimitError(
        f"looking around, or an atomic group, makes this pattern an automaton of more than {max_states:,} states, "
        "which is fixed; look over fewer characters, or say what may follow without looking around"
    )
