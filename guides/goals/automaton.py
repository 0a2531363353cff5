"""A goal as a deterministic automaton over bytes: the subsets of its machine's nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitError
from ...tokenizers_adapter import Vocabulary
from ..given import shown
from ..limits import spend
from .machine import ALWAYS, BEFORE_BOUNDARY, OUTSIDE, WORD, Machine, characters
from .specs import Goal

Ints = NDArray[np.int32]
Thread = tuple[int, bool]
Threads = frozenset[Thread]

MAX_STATES = 10_000
# Of work
STEPS_PER_ROW, STEPS_PER_THREAD, STEPS_PER_PAIR = 5000, 50, 20


@dataclass(frozen=True, slots=True, eq=False)
class GoalAutomaton:
    """Every byte leads from every state to a state; the goal is met by texts that end in a `met` state.

    For a phrase this is the automaton of Knuth, Morris and Pratt (1977), for any of several that of Aho and
    Corasick (1975): a broken phrase falls back to the longest beginning of one that the text ends with.

    after: int32 [states, 256]; met: bool [states]; settled: bool [states], met whatever follows; start is state 0
    """

    goal: Goal
    after: Ints
    met: NDArray[np.bool_]
    settled: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.after)

    def read(self, state: int, data: bytes) -> int:
        """The state after `data`."""
        for byte in data:
            state = self.after.item(state, byte)
        return state


def automaton_of(goal: Goal, vocabulary: Vocabulary) -> GoalAutomaton:
    """The automaton of a goal that is no AllOf. Raises LimitError, and LanguageError for token ids without text."""
    subsets = Subsets(Machine(goal, vocabulary))
    rows: list[Ints] = []
    while len(rows) < len(subsets.states):
        spend(STEPS_PER_ROW)
        rows.append(subsets.row(len(rows)))
        if len(rows) > MAX_STATES:
            raise LimitError(
                f"the goal {shown(goal)} takes more than {MAX_STATES:,} states, which is fixed; make its phrases "
                "shorter or its gaps smaller"
            )
    after = np.stack(rows)
    met = np.array([subsets.is_met(state) for state in subsets.states])
    return GoalAutomaton(goal, after, met, met & (after == np.arange(len(after))[:, None]).all(1))


class Subsets:
    """Subsets of a machine's nodes, numbered as they are met; one state also says what the last character was.

    A thread is a node, and whether the next character must not be of a word.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._characters = characters(machine.has_words).after
        self._classes, self._bytes = _byte_classes(machine)
        self._moved: dict[tuple[Threads, int, int], Threads] = {}
        self.states: list[tuple[int, Threads]] = []
        self._numbers: dict[tuple[int, Threads], int] = {}
        self._number(OUTSIDE, self._closed({(machine.start, False)}, OUTSIDE))

    def is_met(self, state: tuple[int, Threads]) -> bool:
        """Whether the goal is met if the text ends here."""
        last, threads = state
        end = self._machine.end
        return (end, False) in threads or ((end, True) in threads and last <= WORD)

    def row(self, number: int) -> Ints:
        """The state after each byte."""
        last, threads = self.states[number]
        if threads == self._done:
            return np.full(256, number, np.int32)
        afterwards = self._characters[last]
        # Bytes that are alike for the machine and for the last character lead to the same state.
        keys, first, inverse = np.unique(
            afterwards.astype(np.int64) * len(self._bytes) + self._classes, return_index=True, return_inverse=True
        )
        targets = np.empty(len(keys), np.int32)
        for place, byte in enumerate(first.tolist()):
            current = int(afterwards[byte])
            targets[place] = self._number(current, self._move(threads, int(self._classes[byte]), min(current, 2)))
        return targets[inverse.reshape(-1)]

    @property
    def _done(self) -> Threads:
        return frozenset([(self._machine.end, False)])

    def _number(self, last: int, threads: Threads) -> int:
        state = (OUTSIDE if threads == self._done else last, threads)
        number = self._numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
        return number

    def _move(self, threads: Threads, kind: int, last: int) -> Threads:
        """The threads after a byte of a class; last: OUTSIDE, WORD, or 2 within a character."""
        key = (threads, kind, last)
        if key not in self._moved:
            byte = self._bytes[kind]
            moved: set[Thread] = set()
            spend(STEPS_PER_THREAD * len(threads))
            for node, guarded in threads:
                if not (guarded and last == WORD):
                    still = guarded and last != OUTSIDE
                    moved.update((target, still) for read, target in self._machine.edges[node] if byte in read)
            self._moved[key] = self._closed(moved, last)
        return self._moved[key]

    def _closed(self, threads: set[Thread], last: int) -> Threads:
        """With what the links lead to, and without what others make needless."""
        pending = list(threads)
        while pending:
            node, guarded = pending.pop()
            for target, condition in self._machine.links[node]:
                if condition in (ALWAYS, BEFORE_BOUNDARY) or last == OUTSIDE:
                    thread = (target, guarded or condition == BEFORE_BOUNDARY)
                    if thread not in threads:
                        threads.add(thread)
                        pending.append(thread)
        if (self._machine.end, False) in threads:
            return self._done
        if not (self._machine.resets or self._machine.counts or self._machine.has_words):
            return frozenset(threads)
        spend(STEPS_PER_PAIR * len(threads) ** 2)
        return frozenset(thread for thread in threads if not self._is_needless(thread, threads))

    def _is_needless(self, thread: Thread, threads: set[Thread]) -> bool:
        """Whether whatever this thread comes to, another one comes to as well."""
        node, guarded = thread
        machine = self._machine
        if guarded and (node, False) in threads:
            return True
        count = machine.counts.get(node)
        for other, other_guarded in threads:
            if other_guarded:
                continue
            if machine.resets.get(other, other) <= node < other:
                return True
            rival = machine.counts.get(other)
            if count is None or rival is None or rival == count or rival[:2] != count[:2]:
                continue
            fewer = rival.words == count.words if count.exact else rival.words <= count.words
            if fewer and rival.chars <= count.chars:
                return True
        return False


def _byte_classes(machine: Machine) -> tuple[NDArray[np.int64], list[int]]:
    """The class of each byte, int64 [256], and a byte of each class: bytes that all edges take alike."""
    sets = sorted({read for edges in machine.edges for read, _ in edges}, key=sorted)
    columns = np.array([[byte in read for byte in range(256)] for read in sets], np.int64)
    _, first, classes = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    return classes.reshape(-1), first.tolist()
