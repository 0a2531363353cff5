"""Joint states of a guide and goals, and their transitions.

`GoalTokens` has a goal's transitions over the tokens of a vocabulary, and its distances. `ChildGuide` is the guide, as
the search needs it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ...checks import implements
from ...errors import LanguageError
from ...kernels.answers import NEVER
from ...kernels.jit.aliases import Ints
from ...tokenizers_adapter import Vocabulary
from ..arguments import check_state
from ..lift.tables import VocabularyTables
from ..limits import spend
from ..protocol import DEAD, ByteGuide, tokens_of
from .automaton import GoalAutomaton, automaton_of
from .specs import Goal

MAX_ROWS = 128


class GoalTokens:
    """Distances for each state of a goal's automaton, int32 [states]; NEVER where there is no path.

    bytes_to_meet, bytes_to_settle: fewest bytes until the goal is met, and is met whatever follows
    needed: tokens until the goal is met. Exact if not every byte is a token, so that tokens have to be searched;
        else the fewest that spell the shortest path in bytes.
    progress: steps done of the `steps` = needed[start] tokens
    """

    def __init__(self, automaton: GoalAutomaton, tables: VocabularyTables) -> None:
        self.automaton = automaton
        self._tables = tables
        self._rows: OrderedDict[int, Ints] = OrderedDict()
        self.bytes_to_meet = _steps_to(automaton.met, automaton.after[:, tables.spelled])
        self.bytes_to_settle = _steps_to(automaton.settled, automaton.after[:, tables.spelled])
        self.needed = self._split_ways() if tables.spells_all_bytes else self._searched()
        self.steps = int(self.needed[0])
        self.progress = np.maximum(self.steps - self.needed, 0)

    @classmethod
    def of(cls, goal: Goal, vocabulary: Vocabulary) -> GoalTokens:
        """Return the cached numbers of a goal for a vocabulary. Raises as `automaton_of`."""
        tables = VocabularyTables.of(vocabulary)

        def make() -> GoalTokens:
            tokens = cls(automaton_of(goal, vocabulary), tables)
            if tokens.steps >= NEVER:
                raise LanguageError(f"the vocabulary has no tokens that spell a text with {goal!r}")
            return tokens

        return tables.cached((cls, goal), make)

    @property
    def held_bytes(self) -> int:
        """Bytes of the arrays, of which `after` adds some."""
        return self.automaton.after.nbytes + len(self._rows) * 4 * len(self._tables.trie.ids)

    def after(self, state: int, node: int = 0) -> Ints:
        """Return the state after the rest of each token below a node of the trie: int32 in trie order. Read-only."""
        row = None if node else self._rows.get(state)
        if row is None:
            row = self._tables.follow(self.automaton.after, state, node)
            if not node:
                self._rows[state] = row
                if len(self._rows) > MAX_ROWS:
                    self._rows.popitem(last=False)
        return row

    def next_byte(self, state: int, needed: Ints) -> int:
        """Return the first byte that decreases the number in `needed` by one; there must be one."""
        fewer = needed[self.automaton.after[state]] == needed[state] - 1
        return int(np.argmax(fewer & self._tables.spelled))

    def _split_ways(self) -> Ints:
        """Return the fewest tokens that spell the shortest path in bytes, for each state."""
        found = np.full(len(self.automaton), NEVER, np.int32)
        for state in np.flatnonzero(self.bytes_to_meet < NEVER).tolist():
            way = bytearray()
            place = state
            while self.bytes_to_meet[place]:
                way.append(self.next_byte(place, self.bytes_to_meet))
                place = self.automaton.after.item(place, way[-1])
            found[state] = self._tables.fewest_tokens(bytes(way))[0]
        return found

    def _searched(self) -> Ints:
        """Return the fewest tokens from each state until the goal is met, by backward search."""
        count = len(self.automaton)
        before: list[list[int]] = [[] for _ in range(count)]
        for state in range(count):
            targets: list[int] = np.unique(self._tables.follow(self.automaton.after, state)).tolist()
            for target in targets:
                before[target].append(state)
        found = np.where(self.automaton.met, 0, NEVER).astype(np.int32)
        queue: list[int] = np.flatnonzero(self.automaton.met).tolist()
        for target in queue:
            for state in before[target]:
                if found[state] == NEVER:
                    found[state] = found[target] + 1
                    queue.append(state)
        return found


def _steps_to(goal: NDArray[np.bool_], after: Ints) -> Ints:
    """Return the fewest steps from each state into `goal`."""
    found = np.where(goal, 0, NEVER).astype(np.int32)
    while True:
        nearer = np.minimum(found, np.minimum(found[after].min(1, initial=NEVER), NEVER - 1) + 1)
        if np.array_equal(nearer, found):
            return found
        found = nearer.astype(np.int32)


@runtime_checkable
class ChildGuide(Protocol):
    """The transitions and bounds of a guide that the search needs; see `LiftedGuide`, whose names these are."""

    def after_bytes(self, state: int) -> Ints:
        """Return the state after each byte: int32 [256], DEAD where there is none."""
        ...

    def after_tokens(self, state: int, node: int = 0) -> Ints:
        """Return the state after the rest of each token below a node of the trie, in trie order.

        int32 [tokens], DEAD where the token is not allowed
        """
        ...

    def bytes_needed(self, states: Ints) -> Ints:
        """Return a lower bound of the bytes that complete a text from each state: int32 [states]."""
        ...


class OtherChild:
    """The Child of a guide that has only the methods of all guides, asked for one byte or token at a time."""

    def __init__(self, guide: ByteGuide, tables: VocabularyTables) -> None:
        self._guide = guide
        self._tables = tables

    def after_bytes(self, state: int) -> Ints:
        """Return the state after each byte, by `read`."""
        return np.array([self._guide.read(state, bytes([byte])) for byte in range(256)], np.int32)

    def after_tokens(self, state: int, node: int = 0) -> Ints:
        """Return the state after each token, by `advance` for the tokens of the mask; below a node by `read`."""
        texts, trie = self._guide.vocabulary.tokens, self._tables.trie
        if node:
            depth = trie.depth.item(node)
            rests = ((texts[token] or b"")[depth:] for token in map(int, trie.ids[self._tables.below(node)]))
            return np.array([self._guide.read(state, rest) for rest in rests], np.int32)
        after = np.full(len(trie.ids), DEAD, np.int32)
        for token in tokens_of(self._guide.mask(state)):
            if texts[token]:
                after[self._tables.places[token]] = self._guide.advance(state, token)
        return after

    def bytes_needed(self, states: Ints) -> Ints:
        """Return 0 for each state: no bound is known."""
        return np.zeros(len(states), np.int32)


START = 0
STATE_BYTES = 250
"""Estimated bytes of a state, without its goal states."""


class JointSteps(NamedTuple):
    """Transitions of bytes or tokens: label i leads to states[which[i]], nowhere if which[i] is DEAD."""

    states: list[int]
    which: NDArray[np.intp]


class Joint:
    """The states (of the guide, of goal 1, of goal 2, ...), numbered in order of occurrence; START is the first."""

    def __init__(self, guide: ByteGuide, goals: Sequence[GoalTokens], tables: VocabularyTables) -> None:
        self.guide = guide
        self.goals = goals
        self.child: ChildGuide = guide if implements(guide, ChildGuide) else OtherChild(guide, tables)
        self.members: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._deepest = max(tables.trie.deepest, 1)
        self.number((self.guide.start, *(0 for _ in goals)))

    def number(self, members: tuple[int, ...]) -> int:
        """Return the number of a joint state."""
        number = self._numbers.get(members)
        if number is None:
            number = len(self.members)
            self.members.append(members)
            self._numbers[members] = number
        return number

    def check(self, state: int) -> int:
        """Return a state, possibly DEAD, as an int. Raises StateError for anything else."""
        return check_state(state, len(self.members))

    @property
    def held_bytes(self) -> int:
        """Estimated bytes of all states."""
        return (STATE_BYTES + 8 * len(self.goals)) * len(self.members)

    def read(self, state: int, child: int, data: bytes) -> int:
        """Return the joint state after `data`, with the guide in the state `child`."""
        _, *places = self.members[state]
        after = (goal.automaton.read(place, data) for goal, place in zip(self.goals, places, strict=True))
        return self.number((child, *after))

    def is_met(self, state: int) -> bool:
        """Test whether a text that ends here meets all goals."""
        _, *places = self.members[state]
        return all(goal.automaton.met[place] for goal, place in zip(self.goals, places, strict=True))

    def is_settled(self, state: int) -> bool:
        """Test whether all goals are met whatever follows."""
        _, *places = self.members[state]
        return all(goal.automaton.settled[place] for goal, place in zip(self.goals, places, strict=True))

    def by_bytes(self, state: int, spelled: NDArray[np.bool_]) -> JointSteps:
        """Return the transitions of all bytes; bytes that are not `spelled` lead nowhere."""
        child, *places = self.members[state]
        after = np.where(spelled, self.child.after_bytes(child), DEAD)
        return self._steps([after, *(g.automaton.after[p] for g, p in zip(self.goals, places, strict=True))])

    def by_tokens(self, state: int, node: int = 0) -> JointSteps:
        """Return the transitions of the rests of the tokens below a node of the trie, in trie order."""
        child, *places = self.members[state]
        rows = (goal.after(place, node) for goal, place in zip(self.goals, places, strict=True))
        return self._steps([self.child.after_tokens(child, node), *rows])

    def least_left(self, states: Sequence[int], *, in_bytes: bool) -> list[int]:
        """Return a lower bound of the bytes or tokens left for each state: the maximum over the guide and the goals."""
        child, *goals = self._lower_bounds(states, in_bytes)
        return np.max([child, *goals], axis=0).tolist()

    def sum_left(self, states: Sequence[int], *, in_bytes: bool) -> list[int]:
        """Return a heuristic of the bytes or tokens left for each state: the sum over the guide and the goals."""
        return np.minimum(np.sum(self._lower_bounds(states, in_bytes), axis=0, dtype=np.int64), NEVER).tolist()

    def _lower_bounds(self, states: Sequence[int], in_bytes: bool) -> list[Ints]:
        columns = np.array([self.members[state] for state in states], np.int32).T
        child = self.child.bytes_needed(np.ascontiguousarray(columns[0]))
        needed = [goal.bytes_to_meet if in_bytes else goal.needed for goal in self.goals]
        if not in_bytes:
            child = -(-child // self._deepest)
        return [child, *(n[at] for n, at in zip(needed, columns[1:], strict=True))]

    def _steps(self, columns: list[Ints]) -> JointSteps:
        """Merge labels with equal members in all columns; the first column has DEAD for nowhere."""
        spend(4 * len(columns) * len(columns[0]))
        places = np.flatnonzero(columns[0] != DEAD)
        values, key = _compressed(columns[0][places])
        lists = [values]
        for column in columns[1:]:
            values, digit = _compressed(column[places])
            pairs, key = _compressed(key.astype(np.int64) * len(values) + digit)
            firsts, seconds = np.divmod(pairs, max(len(values), 1))
            lists = [*(members[firsts] for members in lists), values[seconds]]
        which = np.full(len(columns[0]), DEAD, np.intp)
        which[places] = key
        return JointSteps(
            [self.number(members) for members in zip(*(row.tolist() for row in lists), strict=True)], which
        )


def _compressed(column: NDArray[np.integer]) -> tuple[NDArray[np.integer], NDArray[np.intp]]:
    """Return the distinct values of a column without negative numbers, ascending, and each entry's index among them."""
    if len(column) == 0 or int(column.max()) > 4 * len(column) + 1024:
        values, places = np.unique(column, return_inverse=True)
        return values, places.reshape(-1)
    seen = np.zeros(int(column.max()) + 1, np.bool_)
    seen[column] = True
    values = np.flatnonzero(seen)
    place = np.empty(len(seen), np.intp)
    place[values] = np.arange(len(values))
    return values, place[column]
