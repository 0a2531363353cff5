"""A goal as a deterministic automaton over bytes: the subsets of its machine's nodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...checks import brief
from ...errors import LimitError, OptionError
from ...kernels.jit.aliases import Ints
from ...tokenizers_adapter import Vocabulary
from ..automata.charsets import unicode_class
from ..automata.last_character import OUTSIDE, WORD, last_character
from ..automata.numbers import Numbers
from ..limits import spend
from .machine import ALWAYS, BEFORE_BOUNDARY, Count, GoalMachine
from .specs import CustomGoal, Goal

Thread = tuple[int, bool]
Threads = frozenset[Thread]

MAX_GOAL_STATES = 10_000
# Of work
STEPS_PER_ROW, STEPS_PER_THREAD = 5000, 100


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
    """The automaton of a goal that is no AllOf. Raises LimitError, and LanguageError for token ids without text.

    Raises OptionError for a goal of the caller's own whose automaton is none.
    """
    if isinstance(goal, CustomGoal):
        return _given(goal)
    subsets = NodeSets(GoalMachine(goal, vocabulary))
    rows: list[Ints] = []
    while len(rows) < len(subsets.states):
        spend(STEPS_PER_ROW)
        rows.append(subsets.row(len(rows)))
        if len(rows) > MAX_GOAL_STATES:
            raise LimitError(
                f"the goal {brief(goal)} takes more than {MAX_GOAL_STATES:,} states, which is fixed; make its phrases "
                "shorter or its gaps smaller"
            )
    after = np.stack(rows)
    met = np.array([subsets.is_met(state) for state in subsets.states])
    return GoalAutomaton(goal, after, met, met & (after == np.arange(len(after))[:, None]).all(1))


def _given(goal: CustomGoal) -> GoalAutomaton:
    """The automaton that a goal of the caller's own has."""
    try:
        given, met = map(np.asarray, goal.automaton())
    except (TypeError, ValueError) as error:
        raise OptionError(f"the automaton of {brief(goal)} is no pair of arrays: {error}") from error
    count = len(given) if given.ndim else 0
    if given.shape != (count, 256) or given.dtype.kind not in "iu" or not ((given >= 0) & (given < count)).all():
        raise OptionError(
            f"the automaton of {brief(goal)}: `after` must be whole numbers [states, 256] below the number of states, "
            f"not {given.dtype}{list(given.shape)}"
        )
    if met.shape != (count,) or met.dtype != np.bool_ or count == 0:
        raise OptionError(f"the automaton of {brief(goal)}: `met` must be bool [{count}], one for each state")
    if count > MAX_GOAL_STATES:
        raise LimitError(
            f"the goal {brief(goal)} has {count:,} states, and may have {MAX_GOAL_STATES:,}, which is fixed"
        )
    after = given.astype(np.int32)
    settled = met.copy()
    spend(STEPS_PER_ROW * count)
    while not np.array_equal(still := settled & settled[after].all(1), settled):
        spend(STEPS_PER_ROW * count)
        settled = still
    return GoalAutomaton(goal, after, met, settled)


class NodeSets:
    """Subsets of a machine's nodes, numbered as they are met; one state also says what the last character was.

    A thread is a node, and whether the next character must not be of a word. Threads that others make needless are left
    out, counts among them, and texts need not be UTF-8: so this is over bytes, and not `guides/automata/positions.py`.
    """

    def __init__(self, machine: GoalMachine) -> None:
        self._machine = machine
        self._characters = last_character(unicode_class("w") if machine.has_words else ())
        self._classes, self._bytes = _byte_classes(machine)
        self._moved: dict[tuple[Threads, int, int], Threads] = {}
        self._numbers: Numbers[tuple[int, Threads]] = Numbers()
        self.states = self._numbers.states
        self._number(OUTSIDE, self._closed({(machine.start, False)}, OUTSIDE))

    def is_met(self, state: tuple[int, Threads]) -> bool:
        """Tell whether the goal is met if the text ends here."""
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
        return self._numbers[OUTSIDE if threads == self._done else last, threads]

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
        spend(STEPS_PER_THREAD * len(threads))
        return frozenset(self._needed(threads))

    def _needed(self, threads: set[Thread]) -> set[Thread]:
        """The threads for which no other one comes to whatever they come to."""
        resets, counts = self._machine.resets, self._machine.counts
        free = [node for node, guarded in threads if not guarded]
        if len(free) < len(threads):
            threads = threads - {(node, True) for node in free}
        for other in free:
            if other in resets:
                first = resets[other]
                threads = {thread for thread in threads if not first <= thread[0] < other}
        counted = [count for node in free if (count := counts.get(node)) is not None]
        if not counted:
            return threads
        front = _Front(counted)
        return {thread for thread in threads if not front.is_beyond(counts.get(thread[0]))}


class _Front:
    """Counts with which nothing else need be counted: those with the fewest words and characters of each gap."""

    def __init__(self, counts: Iterable[Count]) -> None:
        self._fewest: dict[tuple[int, bool, int], int] = {}  # the characters by gap, inside, and words if these matter
        self._steps: dict[tuple[int, bool], list[tuple[int, int]]] = {}  # (words, characters): more, and fewer
        for count in sorted(counts):
            if count.exact:
                self._fewest.setdefault(count[:3], count.chars)
                continue
            steps = self._steps.setdefault(count[:2], [])
            if not steps or count.chars < steps[-1][1]:
                steps.append((count.words, count.chars))

    def is_beyond(self, count: Count | None) -> bool:
        """Tell whether others count fewer of one thing and not more of the other."""
        if count is None:
            return False
        if count.exact:
            return self._fewest.get(count[:3], count.chars) < count.chars
        steps = self._steps.get(count[:2], [])
        at = bisect_right(steps, (count.words, count.chars)) - 1
        return at >= 0 and steps[at][1] <= count.chars and steps[at] != (count.words, count.chars)


def _byte_classes(machine: GoalMachine) -> tuple[NDArray[np.int64], list[int]]:
    """The class of each byte, int64 [256], and a byte of each class: bytes that all edges take alike."""
    sets = sorted({read for edges in machine.edges for read, _ in edges}, key=sorted)
    columns = np.array([[byte in read for byte in range(256)] for read in sets], np.int64)
    _, first, classes = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    return classes.reshape(-1), first.tolist()
