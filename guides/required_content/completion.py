"""Completions that meet all goals: by search through joint states, or directly in free text."""

from __future__ import annotations

import heapq
from itertools import pairwise
from typing import Protocol

import numpy as np

from ...kernels.answers import NEVER
from ..lift.lifted_guide import LiftedGuide
from ..lift.tables import VocabularyTables
from ..limits import spend
from ..protocol import DEAD
from .automaton import may_meet
from .joint import START, Joint, JointSteps

MAX_SEARCHED = 20_000
MAX_EXACT = 4_000
SOON = 1_000
"""States after which a search from the start asks `may_meet` whether there is a path at all."""
EXPANDING = 5_000
"""Steps counted for the expansion of a state."""


class GoalCompletion(Protocol):
    """Estimates of the path to completion; a step of a path is a byte or a token."""

    def is_alive(self, state: int) -> bool:
        """Test whether a path exists; False also if none was found within limits."""
        ...

    def bound(self, state: int) -> int:
        """Return the length of some path from a live state: an upper bound, fast to compute."""
        ...

    def distance(self, state: int) -> int:
        """Return the fewest known tokens to completion, EOS not counted; NEVER if the state is not live."""
        ...


class SearchedCompletion:
    """Paths through joint states, found by search.

    by_bytes: paths consist of bytes, each of which must be a token: the shortest path in bytes, ties broken by the
        order of bytes, is spelt with as few tokens as possible. Otherwise paths consist of tokens.

    Best-first search finds out whether any path exists. If it takes long from the start, `may_meet` decides, which also
    terminates for infinitely many states. The search ends after `max_states` states for the start, and a tenth
    of them for other states; a state without a result then counts as dead for good. Distances, needed when the budget
    is short, come from A* (Hart, Nilsson and Raphael 1968). It expands every state that could lie on a shortest path,
    so that the result does not depend on earlier calls; beyond MAX_EXACT states the known path counts as the shortest.
    """

    def __init__(self, joint: Joint, tables: VocabularyTables, *, by_bytes: bool, max_states: int) -> None:
        self._joint = joint
        self._tables = tables
        self._by_bytes = by_bytes
        self._max_states = max_states
        self._ways: dict[int, tuple[int, int]] = {}  # state: length of a path, and its second state
        self._dead: set[int] = set()
        self._costs: dict[int, int] = {}  # lengths of shortest paths, or of those that count as such
        self._next: dict[int, int] = {}
        self._distances: dict[int, int] = {}
        self.given_up: set[int] = set()

    def is_alive(self, state: int) -> bool:
        """See GoalCompletion."""
        if state in self._dead:
            return False
        return self._is_known(state) or self._find_way(state)

    def bound(self, state: int) -> int:
        """Return the length of the known path; see GoalCompletion."""
        way = self._ways.get(state)
        return self._cost(state) if way is None else way[0]

    def _is_known(self, state: int) -> bool:
        return state in self._ways or self._cost(state) < NEVER

    def distance(self, state: int) -> int:
        """Return the tokens to completion; see GoalCompletion."""
        if not self.is_alive(state):
            return NEVER
        if self._cost(state) >= NEVER and not self._find_shortest(state):
            self._settle_for_known_way(state)
        if not self._by_bytes:
            return self._cost(state)
        known = self._distances.get(state)
        if known is None:
            way = [state]
            while way[-1] in self._next:
                way.append(self._next[way[-1]])
            text = bytes(self._byte(before, after) for before, after in pairwise(way))
            known = self._tokens_at_end(way[-1]) + self._tables.fewest_tokens(text).item(0)
            self._distances[state] = known
        return known

    def _guide_distance(self, state: int) -> int | None:
        """Return the steps left once only the guide decides: 0 at the end; None while the goals still matter."""
        if not self._joint.is_settled(state):
            return 0 if self._is_complete(state) else None
        child, guide = self._joint.members[state][0], self._joint.guide
        if self._by_bytes and isinstance(guide, LiftedGuide):
            return int(guide.bytes_needed(np.array([child], np.int32))[0])
        return guide.distance(child)

    def _is_complete(self, state: int) -> bool:
        return self._joint.is_met(state) and self._joint.guide.is_accepting(self._joint.members[state][0])

    def _tokens_at_end(self, state: int) -> int:
        """Return the tokens that complete the text from the end of a path."""
        return 0 if self._is_complete(state) else self._joint.guide.distance(self._joint.members[state][0])

    def _steps(self, state: int) -> JointSteps:
        return self._joint.by_bytes(state, self._tables.spelled) if self._by_bytes else self._joint.by_tokens(state)

    def _byte(self, state: int, after: int) -> int:
        """Return the first byte that leads from one state to the other."""
        steps = self._steps(state)
        return int(np.argmax(steps.which == steps.states.index(after)))

    def _find_way(self, start: int) -> bool:
        """Search any path, best first, and return whether there is one."""
        before = {start: start}
        queue = [(0, start)]
        expanded = 0
        limit = self._max_states if start == START else self._max_states // 10
        while queue:
            place = heapq.heappop(queue)[1]
            if self._is_known(place):
                self._remember_way(place, before)
                return True
            if expanded == SOON and start == START and not self._may_meet():
                break
            if expanded >= limit:
                self._dead.add(start)
                self.given_up.add(start)
                return False
            expanded += 1
            spend(EXPANDING)
            fresh = [state for state in self._steps(place).states if state not in before and state not in self._dead]
            before.update(dict.fromkeys(fresh, place))
            if fresh:
                for state, left in zip(fresh, self._joint.sum_left(fresh, in_bytes=self._by_bytes), strict=True):
                    if left < NEVER:
                        heapq.heappush(queue, (left, state))
        self._dead.update(before)
        return False

    def _may_meet(self) -> bool:
        """Test whether some text may meet the goals, by the graph if there is one."""
        guide, goals = self._joint.guide, [goal.automaton for goal in self._joint.goals]
        return not isinstance(guide, LiftedGuide) or may_meet(guide.automaton, goals)

    def _remember_way(self, end: int, before: dict[int, int]) -> None:
        length = self.bound(end)
        while before[end] != end:
            length, (end, after) = length + 1, (before[end], end)
            self._ways[end] = (length, after)

    def _cost(self, state: int) -> int:
        """Return the length of a shortest path, NEVER where none is known yet."""
        rest = self._guide_distance(state)
        return self._costs.get(state, NEVER) if rest is None else rest

    def _find_shortest(self, start: int) -> bool:
        """Find the shortest paths from the live state `start`, and the costs of all states on them."""
        fewest = {start: 0}
        before: dict[int, list[int]] = {start: []}
        expanded: dict[int, JointSteps] = {}
        ends: list[tuple[int, int]] = []
        best = NEVER
        queue = [(0, 0, start)]
        while queue and queue[0][0] <= best:
            _, done, place = heapq.heappop(queue)
            done = -done
            if done > fewest[place]:
                continue
            cost = self._cost(place)
            if cost < NEVER:
                best = min(best, done + cost)
                ends.append((done + cost, place))
                continue
            if len(expanded) >= MAX_EXACT:
                return False
            spend(EXPANDING)
            steps = expanded[place] = self._steps(place)
            fresh: list[int] = []
            for target in steps.states:
                least = fewest.get(target, NEVER)
                if target in self._dead or done + 1 > least:
                    continue
                if done + 1 < least:
                    fewest[target], before[target] = done + 1, []
                    fresh.append(target)
                before[target].append(place)
            if fresh:
                for target, left in zip(fresh, self._joint.least_left(fresh, in_bytes=self._by_bytes), strict=True):
                    if left < NEVER:
                        heapq.heappush(queue, (done + 1 + left, -done - 1, target))
        assert best < NEVER, "the state is alive"
        on_way = _leading_to([place for total, place in ends if total == best], before) & expanded.keys()
        costs = {place: best - fewest[place] for place in on_way}
        # Costs come last: a reader that finds a cost follows the path.
        self._next.update({place: self._first_step(expanded[place], costs, costs[place] - 1) for place in on_way})
        self._costs.update(costs)
        return True

    def _first_step(self, steps: JointSteps, costs: dict[int, int], cost: int) -> int:
        """Return the state after the first byte or token that leads to a state of this cost."""
        nearer = np.array([(costs.get(state) or self._cost(state)) == cost for state in steps.states])
        label = int(np.argmax((steps.which != DEAD) & nearer[steps.which]))
        return steps.states[int(steps.which[label])]

    def _settle_for_known_way(self, state: int) -> None:
        """Let the known path count as the shortest, up to the first state with a known cost."""
        way = [state]
        while self._cost(way[-1]) >= NEVER:
            way.append(self._ways[way[-1]][1])
        cost = self._cost(way[-1])
        for after, place in pairwise(reversed(way)):
            cost += 1
            self._next[place] = after
            self._costs[place] = cost


def _leading_to(ends: list[int], before: dict[int, list[int]]) -> set[int]:
    """Return the ends and all their predecessors."""
    found = set(ends)
    pending = list(ends)
    while pending:
        for place in before[pending.pop()]:
            if place not in found:
                found.add(place)
                pending.append(place)
    return found


class FreeCompletion:
    """A path from every state of a free text, without search: towards the goal that needs the fewest bytes.

    The path's bytes are spelt with as few tokens as possible. Progress in other goals may be lost, but no settled
    goal, so the path ends. For one goal it is the shortest in bytes.
    """

    def __init__(self, joint: Joint, tables: VocabularyTables) -> None:
        self._joint = joint
        self._tables = tables
        self._costs: dict[int, int] = {}
        self._distances: dict[int, int] = {}

    def is_alive(self, state: int) -> bool:
        """Return True: anything may follow."""
        return True

    def bound(self, state: int) -> int:
        """Return the bytes of the path."""
        known = self._costs.get(state)
        if known is None:
            known = self._costs[state] = len(self._way(state))
        return known

    def distance(self, state: int) -> int:
        """Return the tokens of the path."""
        known = self._distances.get(state)
        if known is None:
            known = self._distances[state] = self._tables.fewest_tokens(bytes(self._way(state))).item(0)
        return known

    def _way(self, state: int) -> list[int]:
        goals = self._joint.goals
        _, *places = self._joint.members[state]
        way: list[int] = []
        while not all(goal.automaton.met[place] for goal, place in zip(goals, places, strict=True)):
            open_ones = [
                (int(goal.bytes_to_settle[place]), number)
                for number, (goal, place) in enumerate(zip(goals, places, strict=True))
                if not goal.automaton.settled[place]
            ]
            goal = goals[min(open_ones)[1]]
            byte = goal.next_byte(places[min(open_ones)[1]], goal.bytes_to_settle)
            places = [each.automaton.after.item(at, byte) for each, at in zip(goals, places, strict=True)]
            way.append(byte)
        return way
