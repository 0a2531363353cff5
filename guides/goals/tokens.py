"""A goal as the tokens of a vocabulary see it: where each leads, and how many are still needed."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from ...errors import LanguageError
from ...kernels.answers import NEVER
from ...kernels.jit.aliases import Ints
from ...kernels.jit.compiling import call
from ...kernels.trie.align import shorten
from ...kernels.trie.branches import follow_table
from ...tokenizers_adapter import Vocabulary
from ..lift.tables import VocabularyTables
from .automaton import GoalAutomaton, automaton_of
from .specs import Goal

MAX_ROWS = 128
MAX_GOALS = 64


class GoalTokens:
    """Numbers for each state of a goal's automaton, int32 [states]; NEVER where nothing will do.

    bytes_to_meet, bytes_to_settle: the fewest bytes after which the goal is met, and is met whatever follows
    needed: tokens to meet the goal. Exact where tokens have to be searched because not every byte is a token;
        else as few as spell the shortest way in bytes.
    progress: how many of the `steps` = needed[start] tokens have been saved
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
        """Those of a goal; the last ones of a vocabulary are kept. Raises as `automaton_of`."""
        tables = VocabularyTables.of(vocabulary)
        with tables.lock:
            known: GoalTokens | None = tables.goals.pop(goal, None)
            if known is None:
                known = cls(automaton_of(goal, vocabulary), tables)
                if known.steps >= NEVER:
                    raise LanguageError(f"the vocabulary has no tokens that spell a text with {goal!r}")
            tables.goals[goal] = known
            if len(tables.goals) > MAX_GOALS:
                del tables.goals[next(iter(tables.goals))]
            return known

    def after_below(self, state: int, node: int) -> Ints:
        """The state after what each token below a node of the trie has beyond it, int32 in the order of the trie."""
        return self.after(state) if node == 0 else self._walk(state, node)

    def after(self, state: int) -> Ints:
        """The state after each token, int32 in the order of the trie. Read it, never write it."""
        row = self._rows.get(state)
        if row is None:
            row = self._rows[state] = self._walk(state)
            if len(self._rows) > MAX_ROWS:
                self._rows.popitem(last=False)
        return row

    def next_byte(self, state: int, needed: Ints) -> int:
        """The first byte that brings the number in `needed` down by one; there must be one."""
        fewer = needed[self.automaton.after[state]] == needed[state] - 1
        return int(np.argmax(fewer & self._tables.spelled))

    def _walk(self, state: int, node: int = 0) -> Ints:
        trie = self._tables.trie
        after = np.empty(len(trie.byte), np.int32)
        after[node] = state
        call(follow_table, self._tables.parents, trie.byte, self.automaton.after, node + 1, trie.skip.item(node), after)
        ends: NDArray[np.intp] = self._tables.token_nodes[self._tables.below(node)]
        return after[ends]

    def _split_ways(self) -> Ints:
        """The tokens that spell the shortest way in bytes."""
        found = np.full(len(self.automaton), NEVER, np.int32)
        for state in np.flatnonzero(self.bytes_to_meet < NEVER).tolist():
            way = bytearray()
            place = state
            while self.bytes_to_meet[place]:
                way.append(self.next_byte(place, self.bytes_to_meet))
                place = self.automaton.after.item(place, way[-1])
            found[state] = fewest_tokens(bytes(way), self._tables)
        return found

    def _searched(self) -> Ints:
        """Backwards from the states in which the goal is met."""
        count = len(self.automaton)
        before: list[list[int]] = [[] for _ in range(count)]
        for state in range(count):
            targets: list[int] = np.unique(self._walk(state)).tolist()
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
    """The fewest steps from each state into `goal`."""
    found = np.where(goal, 0, NEVER).astype(np.int32)
    while True:
        nearer = np.minimum(found, np.minimum(found[after].min(1, initial=NEVER), NEVER - 1) + 1)
        if np.array_equal(nearer, found):
            return found
        found = nearer.astype(np.int32)


def fewest_tokens(text: bytes, tables: VocabularyTables) -> int:
    """The least number of tokens that spell a text; NEVER if they cannot."""
    needed = np.full(len(text) + 1, NEVER, np.int32)
    needed[-1] = 0
    call(shorten, tables.trie, np.frombuffer(text, np.uint8), 1, needed)
    return int(needed[0])
