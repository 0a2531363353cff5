"""Subset construction for trees with lookarounds: pending conditions ahead and behind become part of the state.

A `PatternMachine` is a tree as a nondeterministic automaton over classes of characters.

A `Run` is a formula on the text that follows: *some* of its threads matches, and each thread has obligations,
conditions on the same text, all of which must hold. An obligation is a run that must match or must not match.
Lookbehinds are known at each position: the set tests of the previous character, and for each lookbehind the run that
began at every position so far. Reading a character maps formulas to formulas, and there are finitely many of them:
subset construction for an alternating automaton. `guides/automata/positions.py`, with plain subsets as states, does
not need it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitError
from ...kernels.answers import DEAD
from ..automata.byte_table import byte_table
from ..automata.charsets import partition, segments_of, sets_of, single
from ..automata.dfa import StateNumbering, minimise
from ..limits import spend
from ..syntax import NOTHING, Alternation, Chars, Literal, Node, Ranges, Repeat, Sequence
from .tree import (
    NO_GROUPS,
    STEPS_PER_NODE,
    AtomicGroup,
    Concat,
    Lookaround,
    LookaroundAlternation,
    LookaroundLoop,
    NamedGroup,
    Tree,
)


class NextTest(NamedTuple):
    """Test of the next character: it is in one of these classes (a bit for each), or is not."""

    classes: int
    negative: bool


class PreviousTest(NamedTuple):
    """Test of the previous character: it is in set number `test`, or is not."""

    test: int
    negative: bool


class LookaheadTest(NamedTuple):
    """Lookahead: the machine matches here from state `start`, or does not."""

    start: int
    negative: bool


class LookbehindTest(NamedTuple):
    """Lookbehind: the machine of tracker number `tracker`, started anywhere before, has matched here, or has not."""

    tracker: int
    negative: bool


Guard = NextTest | PreviousTest | LookaheadTest | LookbehindTest


class Tracker(NamedTuple):
    """A lookbehind: started at every position, matched in state `goal`."""

    start: int
    goal: int


class PatternMachine:
    """A nondeterministic automaton with guarded epsilon links; states are 0 to n - 1.

    moves: transitions on classes (a bit for each); links: epsilon transitions, each with a guard or None
    atoms: the characters of each class; tests: the classes of each set that a previous character is tested against
    tracker_bits, test_bits: for each state, a bit for each tracker reachable from it, and for each test reachable from
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
        self._guards: dict[Lookaround, int] = {}
        found: set[Ranges] = set()
        _sets_of(tree, found)
        self.atoms, self._classes = partition(found)
        self.class_count = len(self.atoms)
        self.start = self._add_state()
        self.accept = self._add(tree, self.start)
        self.test_bits, self.tracker_bits = self._compute_reachable()

    def _add_state(self) -> int:
        if len(self.moves) >= self.max_states:
            raise too_many_states(self.max_states)
        self.moves.append([])
        self.links.append([])
        return len(self.moves) - 1

    def _link(self, source: int, target: int, guard: Guard | None = None) -> None:
        self.links[source].append((target, guard))

    def _add(self, tree: Tree, source: int) -> int:
        """Add the tree behind `source` and return the state in which it has matched."""
        spend(STEPS_PER_NODE)
        if isinstance(tree, Chars):
            return self._add_move(tree.ranges, source)
        if isinstance(tree, Literal):
            for char in tree.data.decode():
                spend(STEPS_PER_NODE)
                source = self._add_move(single(ord(char)), source)
            return source
        if isinstance(tree, (Sequence, Concat)):
            for item in tree.items:
                source = self._add(item, source)
            return source
        if isinstance(tree, (Alternation, LookaroundAlternation)):
            end = self._add_state()
            for item in tree.items:
                begin = self._add_state()
                self._link(source, begin)
                self._link(self._add(item, begin), end)
            return end
        if isinstance(tree, (Repeat, LookaroundLoop)):
            return self._add_repeat(tree, source)
        assert isinstance(tree, Lookaround), "no references, no tables"
        end = self._add_state()
        self._link(source, end, self._guard_of(tree))
        return end

    def _add_move(self, ranges: Ranges, source: int) -> int:
        end = self._add_state()
        self.moves[source].append((self._classes[ranges], end))
        return end

    def _add_repeat(self, tree: Repeat | LookaroundLoop, source: int) -> int:
        for _ in range(tree.min):
            source = self._add(tree.item, source)
        if tree.max is None:
            loop = self._add_state()
            self._link(source, loop)
            self._link(self._add(tree.item, loop), loop)
            return loop
        end = self._add_state()
        self._link(source, end)
        for _ in range(tree.max - tree.min):
            source = self._add(tree.item, source)
            self._link(source, end)
        return end

    def _guard_of(self, look: Lookaround) -> Guard:
        """Return the guard of a condition. Its machine is built once, however often the tree is unrolled."""
        if isinstance(look.body, Chars):
            classes = self._classes[look.body.ranges]
            if look.ahead:
                return NextTest(classes, look.negative)
            if classes not in self.tests:
                self.tests.append(classes)
            return PreviousTest(self.tests.index(classes), look.negative)
        known = self._guards.get(look)
        if known is None:
            begin = self._add_state()
            goal = self._add(look.body, begin)
            if look.ahead:
                self.goals.add(goal)
                known = begin
            else:
                self.trackers.append(Tracker(begin, goal))
                known = len(self.trackers) - 1
            self._guards[look] = known
        return LookaheadTest(known, look.negative) if look.ahead else LookbehindTest(known, look.negative)

    def _compute_reachable(self) -> tuple[list[int], list[int]]:
        """Return (tests reachable without reading, trackers reachable at all) for each state, as bits."""
        test_bits, tracker_bits = [0] * len(self.moves), [0] * len(self.moves)
        changed = True
        while changed:
            changed = False
            spend(STEPS_PER_NODE * len(self.moves))
            for state in reversed(range(len(self.moves))):
                tests, trackers = test_bits[state], tracker_bits[state]
                for target, guard in self.links[state]:
                    tests |= test_bits[target]
                    trackers |= tracker_bits[target]
                    if isinstance(guard, PreviousTest):
                        tests |= 1 << guard.test
                    elif isinstance(guard, LookaheadTest):
                        tests |= test_bits[guard.start]
                        trackers |= tracker_bits[guard.start]
                    elif isinstance(guard, LookbehindTest):
                        trackers |= 1 << guard.tracker | tracker_bits[self.trackers[guard.tracker].start]
                for _, target in self.moves[state]:
                    trackers |= tracker_bits[target]
                if (tests, trackers) != (test_bits[state], tracker_bits[state]):
                    test_bits[state], tracker_bits[state] = tests, trackers
                    changed = True
        return test_bits, tracker_bits


def _sets_of(tree: Tree, found: set[Ranges]) -> None:
    """Add all sets of characters in the tree to `found`."""
    if isinstance(tree, Lookaround):
        _sets_of(tree.body, found)
    elif isinstance(tree, LookaroundLoop):
        _sets_of(tree.item, found)
    elif isinstance(tree, (Concat, LookaroundAlternation)):
        for item in tree.items:
            _sets_of(item, found)
    else:
        assert not isinstance(tree, (NamedGroup, AtomicGroup)), NO_GROUPS
        sets_of(tree, found)


def too_many_states(max_states: int) -> LimitError:
    """Return the error for a pattern whose lookarounds require too large an automaton."""
    return LimitError(
        f"lookaround or an atomic group gives this pattern an automaton of more than {max_states:,} states, a fixed "
        "limit; look over fewer characters, or express the condition without lookaround"
    )


Run = frozenset["Thread"]
Obligations = frozenset["Obligation"]


class Thread(NamedTuple):
    """A state of the machine, with obligations on the text that follows."""

    state: int
    obligations: Obligations


class Obligation(NamedTuple):
    """A demand that a run matches a prefix of the text that follows, or that it matches none."""

    run: Run
    negative: bool


class State(NamedTuple):
    """A state of the subset construction: tests of the previous character, lookbehinds, and the match itself."""

    previous: int
    trackers: tuple[Run | None, ...]
    run: Run


NO_OBLIGATIONS: Obligations = frozenset()
NO_RUN: Run = frozenset()
# Estimates that bound the search before the states over bytes can be counted
STATES_PER_CHARACTER = 5
STEPS_PER_STATE = 2
# Work
STEPS_PER_CLASS, STEPS_PER_THREAD = 200, 200


def lower_lookarounds(tree: Tree, max_states: int) -> Node:
    """Return the language of a tree over the whole text as a table. Raises LimitError beyond `max_states`."""
    machine = PatternMachine(tree, max_states)
    transitions, accepting = _Explorer(machine, max_states).explore()
    transitions, accepting = minimise(transitions, accepting)
    if not accepting.any():
        return NOTHING
    return byte_table(segments_of(machine.atoms), transitions, accepting, max_states, too_many_states)


class _Explorer:
    """Subset construction from the start of the text."""

    def __init__(self, machine: PatternMachine, max_states: int) -> None:
        self.machine = machine
        self.max_states = max_states
        self.steps = 0
        self.numbers: StateNumbering[State] = StateNumbering()
        self.classes = _equivalent_classes(machine)

    def explore(self) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Return (transitions int32 [states, classes], accepting bool [states]); state 0 is the start."""
        start = frozenset((Thread(self.machine.start, NO_OBLIGATIONS),))
        self._number_of(self._make_state(0, (NO_RUN,) * len(self.machine.trackers), start))
        rows: list[list[int]] = []
        accepting: list[bool] = []
        for state in self.numbers.states:  # grows during the loop
            row = [DEAD] * self.machine.class_count
            spend(STEPS_PER_CLASS * self.machine.class_count)
            for group in self.classes:
                position = Position(self.machine, state, group[0])
                for bit in group:
                    row[bit.bit_length() - 1] = self._number_of(self._state_after(position, bit))
                self.steps += position.steps
            rows.append(row)
            accepting.append(Position(self.machine, state, 0).accepts())
            states = max(len(self.numbers) * STATES_PER_CHARACTER, self.steps // STEPS_PER_STATE)
            if states > self.max_states:
                raise too_many_states(self.max_states)
        return np.array(rows, np.int32), np.array(accepting, np.bool_)

    def _number_of(self, state: State) -> int:
        return self.numbers[state] if state.run else DEAD

    def _state_after(self, position: Position, bit: int) -> State:
        """Return the state after a character of the class `bit`."""
        before = position.state
        previous = sum(1 << index for index, classes in enumerate(self.machine.tests) if classes & bit)
        trackers = tuple(
            None if run is None else position.advance(position.lookbehind_run(index), bit)
            for index, run in enumerate(before.trackers)
        )
        return self._make_state(previous, trackers, position.advance(before.run, bit))

    def _make_state(self, previous: int, trackers: tuple[Run | None, ...], run: Run) -> State:
        """Return a state without the parts that no later condition uses."""
        test_bits, tracker_bits = self._relevant_bits(run)
        relevant: list[Run | None] = []
        for index, (tracker, tracker_run) in enumerate(zip(self.machine.trackers, trackers, strict=True)):
            if not tracker_bits >> index & 1:
                relevant.append(None)
                continue
            relevant.append(tracker_run)
            test_bits |= self.machine.test_bits[tracker.start] | self._relevant_bits(tracker_run or NO_RUN)[0]
        return State(previous & test_bits, tuple(relevant), run)

    def _relevant_bits(self, run: Run) -> tuple[int, int]:
        """Return (tests that the next position may use, trackers that any position may use), as bits."""
        test_bits = tracker_bits = 0
        for thread in run:
            test_bits |= self.machine.test_bits[thread.state]
            tracker_bits |= self.machine.tracker_bits[thread.state]
            for obligation in thread.obligations:
                inner = self._relevant_bits(obligation.run)
                test_bits, tracker_bits = test_bits | inner[0], tracker_bits | inner[1]
        return test_bits, tracker_bits


class Position:
    """A position in the text: the state before it, and the class (a bit) of the next character, 0 at the end."""

    def __init__(self, machine: PatternMachine, state: State, following: int) -> None:
        self.machine = machine
        self.state = state
        self.following = following
        self.steps = 0
        self._closures: dict[Run, Run] = {}
        self._lookbehinds: dict[int, frozenset[Obligations]] = {}

    def accepts(self) -> bool:
        """Test whether the text may end here."""
        accept = self.machine.accept
        return any(thread.state == accept and self._is_fulfilled(thread) for thread in self._close(self.state.run))

    def _is_fulfilled(self, thread: Thread) -> bool:
        """Test whether the end of the text meets the thread's obligations."""
        return all(self._matches_at_end(obligation.run) != obligation.negative for obligation in thread.obligations)

    def _matches_at_end(self, run: Run) -> bool:
        goals = self.machine.goals
        return any(thread.state in goals and self._is_fulfilled(thread) for thread in self._close(run))

    def lookbehind_run(self, index: int) -> Run:
        """Return the run of a lookbehind, with the thread that begins here."""
        run = self.state.trackers[index]
        assert run is not None, "trackers are kept as long as a condition may ask them"
        return run | {Thread(self.machine.trackers[index].start, NO_OBLIGATIONS)}

    def advance(self, run: Run, bit: int) -> Run:
        """Return the run after a character of class `bit`, equivalent to `following` for all guards."""
        after: set[Thread] = set()
        for thread in self._close(run):
            if thread.state in self.machine.goals:
                targets = [thread.state]
            else:
                targets = [target for classes, target in self.machine.moves[thread.state] if classes & bit]
            obligations = self._advance_obligations(thread.obligations, bit) if targets else None
            if obligations is not None:
                after.update(Thread(target, obligations) for target in targets)
            self.steps += 1
            spend(STEPS_PER_THREAD)
        return _reduce(after)

    def _advance_obligations(self, obligations: Obligations, bit: int) -> Obligations | None:
        """Return the obligations that remain after the character; None if one is violated."""
        remaining: set[Obligation] = set()
        for obligation in obligations:
            run = self._close(obligation.run)
            if not self._has_matched(run):
                run = self.advance(obligation.run, bit)
            if self._has_matched(run) or not run:
                if self._has_matched(run) == obligation.negative:
                    return None
            elif Obligation(run, not obligation.negative) in remaining:
                return None
            else:
                remaining.add(Obligation(run, obligation.negative))
        return frozenset(remaining)

    def _has_matched(self, run: Run) -> bool:
        """Test whether the run has matched, whatever follows."""
        return any(thread.state in self.machine.goals and not thread.obligations for thread in run)

    def _close(self, run: Run) -> Run:
        """Return the epsilon closure of the run at this position."""
        closed = self._closures.get(run)
        if closed is None:
            found = set(run)
            pending = list(run)
            while pending:
                thread = pending.pop()
                for target, guard in self.machine.links[thread.state]:
                    for obligations in ALWAYS if guard is None else self._alternatives(guard):
                        reached = Thread(target, thread.obligations | obligations)
                        if reached not in found:
                            found.add(reached)
                            pending.append(reached)
            self.steps += len(found)
            spend(STEPS_PER_THREAD * len(found))
            closed = self._closures[run] = _reduce(found)
        return closed

    def _alternatives(self, guard: Guard) -> Iterable[Obligations]:
        """Yield the sets of obligations under any one of which a condition holds."""
        if isinstance(guard, NextTest):
            return NO_WAY if bool(guard.classes & self.following) == guard.negative else ALWAYS
        if isinstance(guard, PreviousTest):
            return NO_WAY if bool(self.state.previous >> guard.test & 1) == guard.negative else ALWAYS
        if isinstance(guard, LookaheadTest):
            return (frozenset((Obligation(frozenset((Thread(guard.start, NO_OBLIGATIONS),)), guard.negative),)),)
        matched = self._lookbehinds.get(guard.tracker)
        if matched is None:
            goal = self.machine.trackers[guard.tracker].goal
            threads = self._close(self.lookbehind_run(guard.tracker))
            matched = frozenset(thread.obligations for thread in threads if thread.state == goal)
            self._lookbehinds[guard.tracker] = matched
        if not guard.negative:
            return matched
        found: set[Obligations] = set()
        for choice in product(*matched):
            spend(STEPS_PER_THREAD * (1 + len(choice)))
            found.add(frozenset(Obligation(obligation.run, not obligation.negative) for obligation in choice))
        return found


ALWAYS = (NO_OBLIGATIONS,)
NO_WAY: tuple[Obligations, ...] = ()


def _reduce(threads: set[Thread]) -> Run:
    """Drop threads whose obligations are a proper superset of another thread's in the same state."""
    if len(threads) == 1 or not any(thread.obligations for thread in threads):
        return frozenset(threads)
    by_state: dict[int, list[Thread]] = {}
    for thread in threads:
        by_state.setdefault(thread.state, []).append(thread)
    return frozenset(
        thread
        for group in by_state.values()
        for thread in group
        if not any(other.obligations < thread.obligations for other in group)
    )


def _equivalent_classes(machine: PatternMachine) -> list[list[int]]:
    """Group the classes (as bits) that no condition on the next character separates."""
    tests = {guard.classes for links in machine.links for _, guard in links if isinstance(guard, NextTest)}
    groups: dict[tuple[bool, ...], list[int]] = {}
    for number in range(machine.class_count):
        bit = 1 << number
        groups.setdefault(tuple(bool(classes & bit) for classes in tests), []).append(bit)
    return list(groups.values())
