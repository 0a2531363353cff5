"""Goals as deterministic automata over bytes, by subset construction.

The nondeterministic machine of a goal loops before and after the required content.

`may_meet` tests whether some text of a graph meets goals: it intersects a context-free language with regular ones, as
far as needed. For each rule and each joint goal state on entry it computes the goal states on exit, for all rules
together up to a fixpoint, as in the tabulation of Reps, Horwitz and Sagiv (1995). This terminates also for
recursive rules, where the chart has infinitely many states.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...checks import brief
from ...errors import LanguageError, LimitError, OptionError
from ...kernels.chart.layout import (
    CALL,
    COUNTER,
    EDGE_HI,
    EDGE_LO,
    EPSILON,
    FINAL,
    FLAGS,
    GUARD,
    INCREMENT,
    LAZY,
    LINK_HI,
    LINK_LO,
    UNBOUNDED,
)
from ...kernels.jit.aliases import Ints
from ...tokenizers_adapter import Vocabulary
from ..automata.byte_table import OUTSIDE, WORD, last_character
from ..automata.charsets import unicode_class
from ..automata.dfa import StateNumbering
from ..chart.automaton import ChartAutomaton
from ..graph.utf8 import CONTINUATION
from ..limits import spend
from .specs import AnyOf, CustomGoal, Gap, Goal, Ordered, Phrase, Template

Bytes = frozenset[int]

ANY: Bytes = frozenset(range(256))
SPACE: Bytes = frozenset(b"\t\n\v\f\r ")
INSIDE: Bytes = frozenset(CONTINUATION)

ALWAYS, AFTER_BOUNDARY, BEFORE_BOUNDARY = 0, 1, 2
MAX_NODES = 20_000
STEPS_PER_NODE = 300


class GapProgress(NamedTuple):
    """The progress of a node in its gap; nodes with equal gap and `inside` are comparable.

    words, chars: counted so far; exact: the number of words must match, so that nodes with others are no substitute
    """

    gap: int
    inside: bool
    words: int
    chars: int
    exact: bool


class GoalMachine:
    """The nondeterministic machine of one goal: it starts in `start`, and meets the goal in `end`.

    edges: for each node, (bytes, target); links: for each node, (target, condition), epsilon transitions
    resets: for some nodes, the first earlier node of a chain that they make redundant
    counts: the progress of nodes in gaps with bounds

    A link's condition is ALWAYS, AFTER_BOUNDARY (the previous character is no word character), or
    BEFORE_BOUNDARY (the next character is none).
    """

    def __init__(self, goal: Goal, vocabulary: Vocabulary) -> None:
        self.goal = goal
        self.edges: list[list[tuple[Bytes, int]]] = []
        self.links: list[list[tuple[int, int]]] = []
        self.resets: dict[int, int] = {}
        self.counts: dict[int, GapProgress] = {}
        self.has_words = False
        self._vocabulary = vocabulary
        self.start = self._loop()
        self.end = self._add(goal, self.start, 0)
        self.edges[self.end].append((ANY, self.end))

    def _node(self) -> int:
        if len(self.edges) >= MAX_NODES:
            raise LimitError(
                f"the goal {brief(self.goal)} needs more than {MAX_NODES:,} states, a fixed limit; make its phrases "
                "shorter or its gaps smaller"
            )
        spend(STEPS_PER_NODE)
        self.edges.append([])
        self.links.append([])
        return len(self.edges) - 1

    def _loop(self) -> int:
        node = self._node()
        self.edges[node].append((ANY, node))
        return node

    def _add(self, goal: Goal, entry: int, first: int) -> int:
        """Add a goal that begins in the node `entry`, and return the node in which it is met.

        first: the first of the nodes that become redundant once the goal is met
        """
        if isinstance(goal, Phrase):
            return self._phrase(goal, entry)
        if isinstance(goal, AnyOf):
            return self._any(goal, entry)
        parts: tuple[Goal | Gap, ...]
        if isinstance(goal, Ordered):
            parts = tuple(part for each in goal.goals for part in (Gap(), each))[1:]
        else:
            assert isinstance(goal, Template)
            parts = goal.parts
        for part in parts:
            if not isinstance(part, Gap):
                entry = self._add(part, entry, first)
            elif part == Gap():
                loop = self._loop()
                self.links[entry].append((loop, ALWAYS))
                self.resets[loop] = first
                entry = loop
            else:
                entry = self._gap(part, entry)
        end = self._node()
        self.links[entry].append((end, ALWAYS))
        return end

    def _any(self, goal: AnyOf, entry: int) -> int:
        ends = [self._add(part, entry, len(self.edges)) for part in goal.goals]
        end = self._node()
        for each in ends:
            self.links[each].append((end, ALWAYS))
        return end

    def _phrase(self, phrase: Phrase, entry: int) -> int:
        node = self._node()
        self.links[entry].append((node, AFTER_BOUNDARY if phrase.word else ALWAYS))
        for byte in bytes_of(phrase, self._vocabulary):
            after = self._node()
            self.edges[node].append((frozenset([byte]), after))
            node = after
        end = self._node()
        self.links[node].append((end, BEFORE_BOUNDARY if phrase.word else ALWAYS))
        self.has_words |= phrase.word
        return end

    def _gap(self, gap: Gap, entry: int) -> int:
        """Add a node for each number of words and characters, between words and inside one."""
        end = self._node()
        exact = gap.min_words > 0 and gap.max_words is not None
        most = gap.min_words if gap.max_words is None else gap.max_words
        number = len(self.edges)
        nodes: dict[tuple[bool, int, int], int] = {}
        pending = [(False, 0, 0)]
        while pending:
            place = inside, words, chars = pending.pop()
            if place in nodes:
                continue
            node = nodes[place] = self._node()
            better = -words if gap.max_words is None else words
            self.counts[node] = GapProgress(number, inside, better, chars, exact)
            if words >= gap.min_words:
                self.links[node].append((end, ALWAYS))
            pending += [after for _, after in _moves(gap, most, place)]
        for place, node in nodes.items():
            self.edges[node] += [(read, nodes[after]) for read, after in _moves(gap, most, place)]
        self.links[entry].append((nodes[False, 0, 0], ALWAYS))
        return end


def _moves(gap: Gap, most: int, place: tuple[bool, int, int]) -> list[tuple[Bytes, tuple[bool, int, int]]]:
    """Return the transitions from a place in a gap: bytes, and the place after them."""
    inside, words, chars = place
    found: list[tuple[Bytes, tuple[bool, int, int]]] = []
    for is_space in (True, False):
        more = words + (not is_space and not inside)
        if more > most:
            if gap.max_words is not None:
                continue
            more = most
        read = SPACE if is_space else ANY - SPACE
        if gap.max_chars is None:
            found.append((read, (not is_space, more, 0)))
            continue
        if read & INSIDE:
            found.append((read & INSIDE, (not is_space, more, chars)))
        if chars < gap.max_chars:
            found.append((read - INSIDE, (not is_space, more, chars + 1)))
    return found


def bytes_of(phrase: Phrase, vocabulary: Vocabulary) -> bytes:
    """Return the bytes of a phrase. Raises LanguageError for token ids without bytes."""
    if isinstance(phrase.text, str):
        return phrase.text.encode()
    if isinstance(phrase.text, bytes):
        return phrase.text
    for token in phrase.text:
        if not 0 <= token < vocabulary.size or not vocabulary.tokens[token]:
            raise LanguageError(
                f"{phrase!r}: token {token} spells no text; token ids run from 0 to {vocabulary.size - 1}, and "
                "special tokens are not part of a text"
            )
    return vocabulary.decode(phrase.text)


Thread = tuple[int, bool]
Threads = frozenset[Thread]

MAX_GOAL_STATES = 10_000
# Work
STEPS_PER_ROW, STEPS_PER_THREAD = 5000, 100


@dataclass(frozen=True, slots=True, eq=False)
class GoalAutomaton:
    """The complete deterministic automaton of a goal; a text that ends in a `met` state meets the goal.

    For a phrase this is the automaton of Knuth, Morris and Pratt (1977), for one of several that of Aho and
    Corasick (1975): after a mismatch it falls back to the longest prefix of a phrase that the text ends with.

    after: int32 [states, 256]; met: bool [states]; settled: bool [states], met whatever follows; start is state 0
    """

    goal: Goal
    after: Ints
    met: NDArray[np.bool_]
    settled: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.after)

    def read(self, state: int, data: bytes) -> int:
        """Return the state after `data`."""
        for byte in data:
            state = self.after.item(state, byte)
        return state


def automaton_of(goal: Goal, vocabulary: Vocabulary) -> GoalAutomaton:
    """Build the automaton of a goal other than AllOf. Raises LimitError, and LanguageError for token ids without bytes.

    Raises OptionError for a custom goal with an invalid automaton.
    """
    if isinstance(goal, CustomGoal):
        return _checked_automaton(goal)
    subsets = NodeSets(GoalMachine(goal, vocabulary))
    rows: list[Ints] = []
    while len(rows) < len(subsets.states):
        spend(STEPS_PER_ROW)
        rows.append(subsets.row(len(rows)))
        if len(rows) > MAX_GOAL_STATES:
            raise LimitError(
                f"the goal {brief(goal)} needs more than {MAX_GOAL_STATES:,} states, a fixed limit; make its phrases "
                "shorter or its gaps smaller"
            )
    after = np.stack(rows)
    met = np.array([subsets.is_met(state) for state in subsets.states])
    return GoalAutomaton(goal, after, met, met & (after == np.arange(len(after))[:, None]).all(1))


def _checked_automaton(goal: CustomGoal) -> GoalAutomaton:
    """Check and convert the automaton of a custom goal."""
    try:
        table, met = map(np.asarray, goal.automaton())
    except (TypeError, ValueError) as error:
        raise OptionError(f"the automaton of {brief(goal)} is not a pair of arrays: {error}") from error
    count = len(table) if table.ndim else 0
    if table.shape != (count, 256) or table.dtype.kind not in "iu" or not ((table >= 0) & (table < count)).all():
        raise OptionError(
            f"the automaton of {brief(goal)}: `after` must be whole numbers [states, 256] below the number of states, "
            f"not {table.dtype}{list(table.shape)}"
        )
    if met.shape != (count,) or met.dtype != np.bool_ or count == 0:
        raise OptionError(f"the automaton of {brief(goal)}: `met` must be bool [{count}], one for each state")
    if count > MAX_GOAL_STATES:
        raise LimitError(f"the goal {brief(goal)} has {count:,} states; the fixed limit is {MAX_GOAL_STATES:,}")
    after = table.astype(np.int32)
    settled = met.copy()
    spend(STEPS_PER_ROW * count)
    while not np.array_equal(still := settled & settled[after].all(1), settled):
        spend(STEPS_PER_ROW * count)
        settled = still
    return GoalAutomaton(goal, after, met, settled)


class NodeSets:
    """Subsets of a machine's nodes, numbered in order of occurrence; a state also has the class of the last character.

    A thread is a node, and whether the next character must not be a word character. Redundant threads are dropped, also
    by their counts, and texts need not be UTF-8: so this works on bytes, unlike `guides/automata/positions.py`.
    """

    def __init__(self, machine: GoalMachine) -> None:
        self._machine = machine
        self._characters = last_character(unicode_class("w") if machine.has_words else ())
        self._classes, self._bytes = _byte_classes(machine)
        self._moved: dict[tuple[Threads, int, int], Threads] = {}
        self._numbers: StateNumbering[tuple[int, Threads]] = StateNumbering()
        self.states = self._numbers.states
        self._number(OUTSIDE, self._closed({(machine.start, False)}, OUTSIDE))

    def is_met(self, state: tuple[int, Threads]) -> bool:
        """Test whether a text that ends here meets the goal."""
        last, threads = state
        end = self._machine.end
        return (end, False) in threads or ((end, True) in threads and last <= WORD)

    def row(self, number: int) -> Ints:
        """Return the state after each byte."""
        last, threads = self.states[number]
        if threads == self._done:
            return np.full(256, number, np.int32)
        afterwards = self._characters[last]
        # Bytes that neither the machine nor the class of the last character separates lead to the same state.
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
        """Return the threads after a byte of a class; last: OUTSIDE, WORD, or 2 inside a character"""
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
        """Return the epsilon closure of the threads, without redundant ones."""
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
        """Return the threads that no other thread makes redundant."""
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
    """The Pareto front of counts: the fewest words and characters in each gap."""

    def __init__(self, counts: Iterable[GapProgress]) -> None:
        self._fewest: dict[tuple[int, bool, int], int] = {}  # fewest chars by gap, inside and exact words
        self._steps: dict[tuple[int, bool], list[tuple[int, int]]] = {}  # words ascend, characters descend
        for count in sorted(counts):
            if count.exact:
                self._fewest.setdefault(count[:3], count.chars)
                continue
            steps = self._steps.setdefault(count[:2], [])
            if not steps or count.chars < steps[-1][1]:
                steps.append((count.words, count.chars))

    def is_beyond(self, count: GapProgress | None) -> bool:
        """Test whether another count is smaller in one component and not greater in the other."""
        if count is None:
            return False
        if count.exact:
            return self._fewest.get(count[:3], count.chars) < count.chars
        steps = self._steps.get(count[:2], [])
        at = bisect_right(steps, (count.words, count.chars)) - 1
        return at >= 0 and steps[at][1] <= count.chars and steps[at] != (count.words, count.chars)


def _byte_classes(machine: GoalMachine) -> tuple[NDArray[np.int64], list[int]]:
    """Return the class of each byte, int64 [256], and a byte of each class; edges never split a class."""
    sets = sorted({read for edges in machine.edges for read, _ in edges}, key=sorted)
    columns = np.array([[byte in read for byte in range(256)] for read in sets], np.int64)
    _, first, classes = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    return classes.reshape(-1), first.tolist()


MAX_PLACES = 60_000
STEPS_PER_PLACE = 200


class RuleEntry(NamedTuple):
    """A rule, by its start node, and the joint goal state on entry."""

    rule: int
    goals: int


class ProductState(NamedTuple):
    """A node inside an entered rule, the count there, and the joint goal state."""

    within: RuleEntry
    node: int
    counted: int
    goals: int


class ProductNode(NamedTuple):
    """A node's edges (first, last byte, target), links (kind, target, argument), and whether its rule ends there."""

    edges: list[list[int]]
    links: list[list[int]]
    is_final: bool


def may_meet(automaton: ChartAutomaton, goals: Sequence[GoalAutomaton], most: int = MAX_PLACES) -> bool:
    """Test whether some text of a constraint may meet all goals.

    The first pass ignores counters and sets; a second one respects them, except for large sets. Returns True if the
    search exceeds `most` states.
    """
    first = _Product(automaton, goals, counts=False)
    if not first.may_end(most):
        return False
    return not first.has_counters or first.is_cut(most) or _Product(automaton, goals, counts=True).may_end(most)


class _Product:
    """The reachable product states. counts: whether counters are respected"""

    def __init__(self, automaton: ChartAutomaton, goals: Sequence[GoalAutomaton], *, counts: bool) -> None:
        self._automaton, self._goals, self._counts = automaton, goals, counts
        self.has_counters = False
        self._nodes: dict[int, ProductNode] = {}
        self._joint: StateNumbering[tuple[int, ...]] = StateNumbering()
        self._rows: dict[int, list[int]] = {}
        self._seen: set[ProductState] = set()
        self._pending: list[ProductState] = []
        self._callers: dict[RuleEntry, set[tuple[RuleEntry, int, int]]] = {}
        self._ends: dict[RuleEntry, set[int]] = {}

    def is_cut(self, most: int) -> bool:
        """Test whether there are more than `most` states."""
        return len(self._seen) > most

    def may_end(self, most: int) -> bool:
        """Test whether the text may end with all goals met; True beyond `most` states."""
        root = RuleEntry(self._automaton.rule, self._joint[tuple(0 for _ in self._goals)])
        self._enter(root)
        while self._pending:
            spend(STEPS_PER_PLACE)
            self._visit(self._pending.pop())
            if self.is_cut(most) or any(map(self._is_met, self._ends[root])):
                return True
        return False

    def _is_met(self, goals: int) -> bool:
        places = self._joint.states[goals]
        return all(goal.met[place] for goal, place in zip(self._goals, places, strict=True))

    def _enter(self, rule: RuleEntry) -> None:
        self._callers[rule], self._ends[rule] = set(), set()
        self._push(ProductState(rule, rule.rule, 0, rule.goals))

    def _push(self, place: ProductState) -> None:
        if place not in self._seen:
            self._seen.add(place)
            self._pending.append(place)

    def _visit(self, place: ProductState) -> None:
        """Follow all edges and links of a state."""
        node = self._node(place.node)
        for first, last, target in node.edges:
            for goals in set(self._row(place.goals)[first : last + 1]):
                self._push(place._replace(node=target, goals=goals))
        for kind, target, argument in node.links:
            if kind == CALL:
                self._call(place, RuleEntry(target, place.goals), argument)
            elif (count := self._behind(place.node, kind, argument, place.counted)) is not None:
                self._push(place._replace(node=target, counted=count))
        if node.is_final and place.goals not in self._ends[place.within]:
            self._ends[place.within].add(place.goals)
            for outer, after, count in self._callers[place.within]:
                self._push(ProductState(outer, after, count, place.goals))

    def _call(self, place: ProductState, rule: RuleEntry, after: int) -> None:
        """Enter a rule that returns to the node `after`."""
        if rule not in self._callers:
            self._enter(rule)
        self._callers[rule].add((place.within, after, place.counted))
        for goals in self._ends[rule]:
            self._push(place._replace(node=after, goals=goals))

    def _behind(self, node: int, kind: int, argument: int, count: int) -> int | None:
        """Return the count after a link; None if the link is blocked."""
        if kind == EPSILON and not argument:
            return count
        graph = self._automaton.graph_arrays
        counter = int(graph.nodes[node, COUNTER]) if kind == GUARD else argument
        least, most = graph.counters[counter].tolist()
        if most < 0 and least < 0:  # a large set
            return count
        self.has_counters = True
        if not self._counts:
            return 0
        if kind == GUARD:
            needed, refused, kept, added = graph.guards[argument].tolist()
            lets_through = count & needed == needed and not (refused and count & refused == refused)
            return count & kept | added if lets_through else None
        if kind == INCREMENT:
            return count + 1 if most != UNBOUNDED or count < least else count
        if kind == EPSILON:
            return count if count < most else None
        return 0 if count >= least else None

    def _node(self, number: int) -> ProductNode:
        node = self._nodes.get(number)
        if node is None:
            graph = self._automaton.graph_arrays
            if graph.nodes[number, FLAGS] & LAZY:
                self._automaton.define(number)
                graph = self._automaton.graph_arrays
            row = graph.nodes[number].tolist()
            edges, links = graph.edges[row[EDGE_LO] : row[EDGE_HI]], graph.links[row[LINK_LO] : row[LINK_HI]]
            node = self._nodes[number] = ProductNode(edges.tolist(), links.tolist(), bool(row[FLAGS] & FINAL))
        return node

    def _row(self, goals: int) -> list[int]:
        """Return the joint goal state after each byte."""
        row = self._rows.get(goals)
        if row is None:
            places = self._joint.states[goals]
            after = (goal.after[place].tolist() for goal, place in zip(self._goals, places, strict=True))
            row = self._rows[goals] = [self._joint[each] for each in zip(*after, strict=True)]
        return row
