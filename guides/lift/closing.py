"""Completion within a budget: distances in tokens, and the tokens after which the budget suffices."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitError
from ...kernels.answers import DEAD, NEVER
from ...kernels.chart.cost import BYTE, NEXT, TOKENS, Costs, nearest, settle_nodes, spell, state_costs
from ...kernels.chart.interning import WORDS
from ...kernels.jit.aliases import Ints
from ...kernels.jit.compiling import call
from ...kernels.trie.walk import successors
from ..chart.automaton import ChartAutomaton
from ..limits import spend
from .tables import VocabularyTables

# Bounds of a search: states, and new words of the chart
MAX_SEARCH = 5_000
MAX_SEARCH_WORDS = 4_000_000
# Distance in bytes above which bytes are not merged into tokens, and bytes of a shortest text processed at once
FAR = 1 << 15
WAY = 1024
# Distance in bytes up to which tokens off the shortest texts are tried. In states with very many tokens, such a text
# may exceed a shortest one by DETOUR bytes.
NEAR = 32
DETOUR = 2
# Bound of the ratio of promised bytes to needed bytes; front ends promise the length of some short text
OVERSTATED = 8
# Steps of a searched state outside kernels
STEPS_EACH = 500

_NO_STATES = np.zeros((0, 4), np.int32)
_EMPTY = np.zeros(0, np.int32)
# The initial costs; with capacity 0, they are never written to
_NO_COSTS = Costs(
    _EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY, np.zeros((0, 32), np.int32), _EMPTY, _NO_STATES
)
# Initial costs of a new node, by fields of `Costs`
_NODE_COSTS = {"nodes": NEVER, "unmet": NEVER, "promised": -1, "lacking": -1, "after": -1}


class Closing:
    """Distances of an automaton's states in tokens of a vocabulary.

    A distance is the minimum of two numbers of tokens: those that spell a shortest text in bytes, and those of a greedy
    path on which each token comes nearest to the end. Each depends on the state alone, not on earlier calls, and drops
    by one along its own path, so that distances are consistent. The greedy path is computed near the end only, and in a
    state with hundreds of successors only over tokens of texts not much longer than a shortest one. If even a shortest
    text has more than `FAR` bytes, the distance is that number: each byte of such a text decreases it by one,
    and the path need not be followed.

    If the vocabulary lacks single bytes, and neither path can be spelt, token sequences are searched. A state for which
    the bounded search finds no path counts as dead (`gave_up`), so that no text enters it.

    Callers hold the automaton's lock.
    """

    def __init__(self, automaton: ChartAutomaton, tables: VocabularyTables) -> None:
        self._automaton = automaton
        self._tables = tables
        self._distances: dict[int, int] = {}
        self._by_nearest: dict[int, int] = {}
        self._nodes_settled = 0
        self.gave_up = False
        # Consider shortest texts only, for callers whose texts are restricted to these
        self.only_shortest = False
        self._costs = _NO_COSTS
        self._settled_for: tuple[Any, Any] | None = None  # graph and chart for which the costs were settled last

    def forget(self, valid: NDArray[np.bool_]) -> None:
        """Drop all states but the kept ones, and the offsets into the chart's words."""
        for cache in (self._distances, self._by_nearest):
            for state in [state for state in cache if not valid[state]]:
                del cache[state]
        self._settled_for = None
        self._costs = replace(self._costs, entries=np.zeros(0, np.int32), shortest=_NO_STATES)

    def distance(self, state: int) -> int:
        """Return the fewest known tokens to an accepting state; NEVER if there is no path."""
        known = self._distances.get(state)
        if known is None:
            if self._automaton.ends(state):
                known = self._distances[state] = 0
            elif self._tables.spells_all_bytes:
                known = self._distances[state] = self._found_distance(state)
            else:
                known = self._distances[state] = self._searched_distance(state)
        return known

    def fits(self, state: int, left: int) -> bool:
        """Test whether `left` tokens complete the text from `state`."""
        return self.known_bound(state, left) is not None

    def known_bound(self, state: int, left: int) -> int | None:
        """Return a number of tokens, at most `left`, that completes the text; None if `left` do not suffice.

        The lowest bound known without search: with a large `left`, the number of bytes suffices for most states.
        """
        known = self._distances.get(state)
        if known is None:
            needed = self._needed(state)
            if self._tables.spells_all_bytes and needed <= left:
                return needed
            if not self._may_fit(needed, left):
                return None
            spend(STEPS_EACH)
            known = self._by_shortest(state)
            if known > left:
                known = self.distance(state)
        return known if known <= left else None

    def fitting(self, state: int, left: int, root: int = 0) -> NDArray[np.bool_]:
        """Test each token below a node of the trie: allowed, and `left - 1` tokens complete the text after it."""
        after = self.after_tokens(state, root)
        fit = np.zeros(self._automaton.state_count + 1, np.bool_)  # the last entry serves DEAD
        fit[after] = True
        states = np.flatnonzero(fit[:-1]).astype(np.int32)
        fit[states] = self._which_fit(states, left - 1)
        fit[DEAD] = False
        return fit[after]

    def _which_fit(self, states: Ints, left: int) -> NDArray[np.bool_]:
        """Test for each of the states whether `left` tokens suffice; the number of bytes decides most."""
        needed = self.bytes_needed(states)
        fit = needed <= left if self._tables.spells_all_bytes else np.zeros(len(states), np.bool_)
        open_ones = np.flatnonzero(~fit & self._may_fit(needed, left))
        spend(STEPS_EACH * len(open_ones))
        for i in open_ones.tolist():
            fit[i] = self._is_near(int(states[i]), left)
        return fit

    def _may_fit(self, needed: Any, left: int) -> Any:
        """Test whether `left` tokens may complete texts of at least `needed` bytes; scalar or array."""
        if self._tables.spells_all_bytes:
            return needed <= min(FAR, OVERSTATED * left * self._tables.trie.deepest)
        return needed < NEVER

    def _is_near(self, state: int, left: int) -> bool:
        """Test whether the distance is at most `left`; the cheaper bound by a shortest text decides most cases."""
        if state not in self._distances and self._by_shortest(state) <= left:
            return True
        return self.distance(state) <= left

    def distance_below(self, state: int, root: int) -> int:
        """Return the fewest tokens to an accepting state, the first of them below a node of the trie, else NEVER."""
        after = np.unique(self.after_tokens(state, root))
        after = after[after >= 0]
        needed = self.bytes_needed(after)
        fewest = NEVER
        for place in np.argsort(needed, kind="stable").tolist():
            if -(-int(needed[place]) // self._tables.trie.deepest) >= fewest - 1:
                break
            fewest = min(fewest, 1 + self.distance(int(after[place])))
        return fewest

    def after_tokens(self, state: int, root: int = 0) -> Ints:
        """Return the state after the rest of each token below a node, in trie order; DEAD if it is not allowed."""
        below = self._tables.below(root)
        after = np.empty(below.stop - below.start, np.int32)
        self._automaton.run(successors, self._tables.trie, state, root, after)
        return after

    def bytes_needed(self, states: Ints) -> Ints:
        """Return the fewest bytes to an accepting state, for each of the states; NEVER for as many or more."""
        out = np.empty(len(states), np.int32)
        self._run_costed(state_costs, states, out)
        return out

    def _settled(self) -> Costs:
        """Return the costs, updated to the current graph and chart."""
        automaton = self._automaton
        graph, chart = automaton.graph_arrays, automaton.chart
        count = automaton.graph.node_count
        costs, seen = self._costs, self._settled_for
        if seen is not None and seen[0] is graph and seen[1] is chart and count == self._nodes_settled:
            return costs
        more: dict[str, Ints] = {}
        if len(costs.nodes) < len(graph.nodes):
            for name, value in _NODE_COSTS.items():
                more[name] = _extended(getattr(costs, name), len(graph.nodes), value)
        if len(costs.turns) < len(graph.counters):
            for name in ("turns", "exits"):
                more[name] = _extended(getattr(costs, name), len(graph.counters), NEVER)
        if len(costs.entries) < len(chart.words):
            more["entries"] = _extended(costs.entries, len(chart.words), -1)
        if len(costs.shortest) < len(chart.states):
            more["shortest"] = _extended(costs.shortest, len(chart.states), -1)
        weights = automaton.weights(len(costs.weights))
        if weights:
            padded = np.zeros((len(weights), costs.weights.shape[1]), np.int32)
            for row, of_set in zip(padded, weights, strict=True):
                row[: len(of_set)] = np.minimum(of_set, NEVER)
            more["weights"] = np.concatenate([costs.weights, padded])
        if more:
            self._costs = costs = replace(costs, **more)
        if count > self._nodes_settled:
            for node, promise, lacking, target in automaton.promises(self._nodes_settled, count):
                costs.promised[node], costs.lacking[node] = min(promise, NEVER), min(lacking, NEVER)
                costs.after[node] = target
            code = call(settle_nodes, graph, chart, costs, self._nodes_settled, count)
            if code < DEAD:
                automaton.resolve(code)
            self._nodes_settled = count
        self._settled_for = graph, chart
        return self._costs

    def _found_distance(self, state: int) -> int:
        needed = self._needed(state)
        if needed >= NEVER:
            raise LimitError(
                f"the shortest text of the constraint has {NEVER:,} bytes or more; ask for fewer or shorter repetitions"
            )
        if needed > FAR:
            return needed
        fewest = self._by_shortest(state)
        if self.only_shortest or needed > NEAR or (fewest - 1) * self._tables.trie.deepest < needed:
            return fewest
        return min(fewest, self._tokens_by_nearest(state, needed))

    def _needed(self, state: int) -> int:
        """Return `bytes_needed` of one state."""
        return int(self.bytes_needed(np.array([state], np.int32))[0])

    def _by_shortest(self, state: int) -> int:
        """Return the fewest tokens that spell a shortest text, which must have at most FAR bytes."""
        known = self._costs.shortest.item(state, TOKENS)
        return known if known >= 0 else self._spelt(state)

    def shortest_step(self, state: int) -> tuple[int, int]:
        """Return the first byte of a shortest text from a state that is not accepting, and the state after it."""
        self._by_shortest(self._automaton.ready(state))
        byte, after = self._costs.shortest[state, BYTE : NEXT + 1].tolist()
        return byte, after

    def _spelt(self, state: int) -> int:
        """Compute `_by_shortest` in pieces of the text, so that not all of its states need rows at once.

        States on the path enter Costs.shortest with their successor before their number of tokens. After an interrupt
        they are reset, since the path must not return to states that are on it already.
        """
        way = np.empty(WAY, np.int32)
        begins = [state]
        try:
            while (fewest := self._run_costed(spell, self._tables.trie, begins[-1], way)) == DEAD:
                begins.append(self._costs.shortest.item(int(way[-1]), NEXT))
            for begin in reversed(begins[:-1]):
                fewest = self._run_costed(spell, self._tables.trie, begin, way)
            return fewest
        except BaseException:
            shortest = self._costs.shortest
            shortest[shortest[:, TOKENS] < 0, NEXT] = -1
            raise

    def _run_costed(self, function: Any, *arguments: Any) -> int:
        return self._automaton.run(function, *arguments, beside=self._settled)

    def _tokens_by_nearest(self, state: int, limit: int) -> int:
        """Return the number of tokens of the greedy path, NEVER if above `limit`."""
        path: list[int] = []
        while state not in self._by_nearest and not self._automaton.ends(state):
            if len(path) == limit:
                return NEVER
            path.append(state)
            state = self._run_costed(nearest, self._tables.trie, state, DETOUR)
            if state == DEAD:
                return NEVER
        count = self._by_nearest.get(state, 0)
        for place in reversed(path):
            count += 1
            self._by_nearest[place] = count
        return count

    def _searched_distance(self, state: int) -> int:
        """Combine the two paths; search token sequences where neither can be spelt."""
        needed = self._needed(state)
        if needed >= NEVER:
            self.gave_up = True
            return NEVER
        fewest = self._by_shortest(state)
        if needed <= NEAR and not (self.only_shortest and fewest < NEVER):
            fewest = min(fewest, self._tokens_by_nearest(state, needed))
        return fewest if fewest < NEVER else self._search(state)

    def _search(self, state: int) -> int:
        """Search the fewest tokens by A*, with known distances or bytes per longest token as heuristic.

        Returns NEVER if it gives up.
        """
        origin: dict[int, int] = {state: state}
        fewest = {state: 0}
        queue = [(0, 0, state, 0)]
        expanded, words = 0, int(self._automaton.chart.sizes[WORDS])
        while queue:
            total, _, place, tokens = heapq.heappop(queue)
            if self._distances.get(place, 0) or self._automaton.ends(place):
                self._remember_search(state, place, total, origin)
                return total
            if tokens > fewest[place]:
                continue
            expanded += 1
            if expanded > MAX_SEARCH or int(self._automaton.chart.sizes[WORDS]) - words > MAX_SEARCH_WORDS:
                self.gave_up = True
                return NEVER
            after = np.unique(self.after_tokens(place))
            after = after[after >= 0]
            spend(STEPS_EACH * (1 + len(after)))
            for target, needed in zip(after.tolist(), self.bytes_needed(after).tolist(), strict=True):
                ahead = self._distances.get(target) or -(-needed // self._tables.trie.deepest)
                if tokens + 1 < fewest.get(target, NEVER) and ahead < NEVER:
                    fewest[target], origin[target] = tokens + 1, place
                    heapq.heappush(queue, (tokens + 1 + ahead, needed, target, tokens + 1))
        for place in origin:
            self._distances[place] = NEVER
        return NEVER

    def _remember_search(self, state: int, place: int, total: int, origin: dict[int, int]) -> None:
        """Record the distances on the path from `state` to `place`, whose distance is known."""
        way = [place]
        while way[-1] != state:
            way.append(origin[way[-1]])
        for at, passed in enumerate(reversed(way)):
            self._distances[passed] = min(total - at, self._distances.get(passed, NEVER))


def _extended(array: Ints, length: int, value: int) -> Ints:
    grown = np.full((length, *array.shape[1:]), value, np.int32)
    grown[: len(array)] = array
    return grown
