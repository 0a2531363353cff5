"""Strings under many conditions at once: a lazy product automaton, whose states are made on demand.

The whole product may be too large, so nothing is computed ahead. A best-first search decides whether a state can be
completed; it prefers states nearer to acceptance and stops at states already decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import count, cycle

import numpy as np

from ....errors import LimitError
from ....kernels.answers import DEAD, NEVER
from ...automata.byte_table import byte_table
from ...automata.charsets import ALL, contains, segments_of
from ...automata.conditions import subsets_of
from ...automata.dfa import StateNumbering, minimise
from ...automata.positions import Joint, Product, Subsets, too_many_states
from ...limits import spend
from ...syntax import NOTHING, Alternation, Chars, Literal, Node, Ranges, Repeat
from ..algebra.cases import String
from ..read.dialects import is_writable
from ..read.formats import PATTERNS
from ..read.patterns import parse
from .demand import ANYTHING, Demand, MetConditions, Progress, SettledBits
from .spelling import bytes_of

MAX_WRITTEN_OUT = 10_000
"""Maximum number of states of a table over characters."""

LONG_SEARCH = 300
"""Number of searched states before a test for two contradictory conditions; most failing searches have them."""

Verdict = Callable[[MetConditions], int]
"""Returns the bytes after a string that meets exactly these conditions; NEVER if it is refused."""


class Conjunction:
    """The strings of `least` to `most` characters that satisfy a demand, or a verdict on conditions.

    demand: necessary; also sufficient if there is no verdict
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        demand: Demand = ANYTHING,
        verdict: Verdict | None = None,
        least: int = 0,
        most: int | None = None,
    ) -> None:
        self.atoms, self._machines = subsets_of(nodes)
        self._progress = Progress(demand, self._machines)
        self._product = Product(
            [*self._machines, SettledBits(len(self.atoms))], len(self.atoms), self._progress.settled
        )
        self._verdict = verdict
        self._least, self._most = least, most
        self._costs = [bytes_of(ranges) for ranges in self.atoms]
        self._order = sorted(range(len(self.atoms)), key=lambda atom: (self._costs[atom], atom))
        # A state is a product state with the length, as far as it matters.
        self._numbers: StateNumbering[tuple[int, int]] = StateNumbering()
        self._rows: dict[int, list[int]] = {}
        self._needed: dict[int, int] = {}
        # For product states the least length from which the end is known to be unreachable
        self._dead: dict[int, int] = {}
        self._fewest: dict[int, int] = {}
        self._guesses: dict[int, int] = {}
        self._turns: dict[int, int] = {}
        self.start = self._numbers[0, 0]

    def _at(self, state: int) -> tuple[Joint, int]:
        """Return the component states and the relevant length of a state."""
        place, length = self._numbers.states[state]
        return self._product.states[place], length

    def row(self, state: int) -> list[int]:
        """Return the state after each atom; DEAD if a required condition has become impossible."""
        row = self._rows.get(state)
        if row is None:
            place, length = self._numbers.states[state]
            longer = length + 1 if self._most is not None else min(length + 1, self._least)
            spend(50 * len(self.atoms))
            if self._most is not None and longer > self._most:
                row = [DEAD] * len(self.atoms)
            else:
                numbers = self._numbers
                row = [
                    DEAD if at == DEAD or self._is_late(at, longer) else numbers[at, longer]
                    for at in self._product.row(place)
                ]
            self._rows[state] = row
        return row

    def _is_late(self, place: int, length: int) -> bool:
        """Test whether the demand takes more characters than `most` leaves."""
        if self._most is None:
            return False
        steps = self._fewest.get(place)
        if steps is None:
            steps = self._fewest[place] = self._progress.fewest(self._product.states[place])
        return length + steps > self._most

    def cost_at_end(self, state: int) -> int:
        """Return the bytes after a string that ends in a state, NEVER if none may."""
        joint, length = self._at(state)
        if length < self._least:
            return NEVER
        met_conditions = self.met_conditions(state)
        if self._verdict is not None:
            return self._verdict(met_conditions)
        return 0 if self._progress.is_met(joint, met_conditions) else NEVER

    def met_conditions(self, state: int) -> MetConditions:
        """Return the conditions that a string ending in a state meets."""
        joint, _ = self._at(state)
        places = zip(self._machines, joint[:-1], strict=True)
        return tuple(at >= 0 and machine.accepting[at] for machine, at in places)

    def needed(self, state: int) -> int:
        """Return the bytes of a short way from a state to the end, NEVER if there is none."""
        if state not in self._needed:
            if self._is_dead(state):
                self._needed[state] = NEVER
            else:
                self._search(state)
        return self._needed[state]

    def _is_dead(self, state: int) -> bool:
        """Test whether a state is known to be dead: its product state was, with at least as many characters left."""
        place, length = self._numbers.states[state]
        return self._needed.get(state, 0) >= NEVER or self._dead.get(place, length + 1) <= length

    def _search(self, start: int) -> None:
        """Find a way to an end and store the bytes needed from every state on it, or store that there is none.

        Three orders take turns: nearest states; states with most groups met; and, with a maximum length, states with
        the shortest texts. A misleading distance of one alternative is thus bypassed by others of its group. A state is
        skipped if its product state was reached with fewer characters, once the minimum length is reached.
        """
        came_from: dict[int, tuple[int, int]] = {start: (-1, -1)}
        heaps: list[list[tuple[int, int, int, int]]] = [
            [(0, 0, 0, start)] for _ in range(1 + bool(self._progress.groups) + (self._most is not None))
        ]
        earliest: dict[int, int] = {}
        done: set[int] = set()
        for heap in cycle(heaps):
            if not heap:
                break
            state = heappop(heap)[-1]
            place, length = self._numbers.states[state]
            if state in done or earliest.get(place, length) < length:
                continue
            done.add(state)
            if len(done) == LONG_SEARCH and self._progress.clashes(self._at(start)[0]):
                break
            cost = self._needed.get(state)
            if cost is None:
                cost = self.cost_at_end(state)
            if cost < NEVER:
                self._retrace(state, cost, came_from)
                return
            row = self.row(state)
            spend(100 * len(row))
            for atom in self._order:
                after = row[atom]
                if after >= 0 and after not in came_from and not self._is_dead(after):
                    place, length = self._numbers.states[after]
                    if earliest.get(place, length + 1) <= length:
                        continue
                    if length >= self._least:
                        earliest[place] = length
                    came_from[after] = (state, atom)
                    for each, (first, second) in zip(heaps, self._orders(after), strict=True):
                        heappush(each, (first, second, len(came_from), after))
        self._needed.update(dict.fromkeys(came_from, NEVER))
        for place, length in earliest.items():
            self._dead[place] = min(length, self._dead.get(place, length))

    def _orders(self, state: int) -> list[tuple[int, int]]:
        """Return the sort keys of a state for each search order."""
        joint, length = self._at(state)
        distance = self._distance(state)
        orders = [(distance, 0)]
        if self._progress.groups:
            orders.append((self._progress.unmet(joint), distance))
        if self._most is not None:
            orders.append((length, distance))
        return orders

    def _retrace(self, state: int, cost: int, came_from: dict[int, tuple[int, int]]) -> None:
        self._needed.setdefault(state, cost)
        before, atom = came_from[state]
        while before >= 0:
            cost = self._needed[before] = min(cost + self._costs[atom], NEVER - 1)
            before, atom = came_from[before]

    def _distance(self, state: int) -> int:
        """Estimate the distance of a state from acceptance."""
        place, length = self._numbers.states[state]
        steps = self._guesses.get(place)
        if steps is None:
            steps = self._guesses[place] = self._progress.guess(self._product.states[place])
        return steps + max(self._least - length, 0)

    def texts(self, most: int, chars: Callable[[Ranges, int], Sequence[str]]) -> Iterator[str]:
        """Yield distinct strings, roughly shortest first: `most` of them, or all if there are fewer.

        chars: returns up to so many characters of an atom
        Each state is expanded at most `most` times, as each time leads to a string.
        """
        followed = Counter[int]()
        order = count(0, -1)
        waiting = [(self._distance(self.start), next(order), 0, "", self.start)]
        while waiting:
            least, _, spelt, text, state = heappop(waiting)
            if state == DEAD:
                yield text
                continue
            total = spelt + self.needed(state)
            if total > least:
                if total < NEVER:
                    heappush(waiting, (total, next(order), spelt, text, state))
                continue
            row = self.row(state)
            spend(100 * len(row) + len(text) // 256)
            # Among equally long ways continue the last one, which is known to reach an end.
            for atom in sorted(reversed(self._order), key=lambda atom: row[atom] in self._needed):
                after, longer = row[atom], spelt + self._costs[atom]
                if after == DEAD or self._is_dead(after):
                    continue
                left = self._needed.get(after, self._distance(after))
                found = chars(self.atoms[atom], most)[: most - followed[after]]
                followed[after] += len(found)
                for char in reversed(found):
                    heappush(waiting, (max(least, longer + left), next(order), longer, text + char, after))
            end = self.cost_at_end(state)
            if end < NEVER:
                heappush(waiting, (spelt + end, next(order), spelt, text, DEAD))

    def _on_the_way(self, text: str) -> Iterator[int]:
        """Yield the state before each character of a text and after it, until no string begins so."""
        atoms: dict[str, int] = {}
        state = self.start
        for char in text:
            yield state
            spend(20)
            if char not in atoms:
                atoms[char] = next((atom for atom, ranges in enumerate(self.atoms) if contains(ranges, char)), DEAD)
            state = DEAD if atoms[char] == DEAD else self.row(state)[atoms[char]]
            if state == DEAD:
                return
        yield state

    def reads(self, text: str) -> bool:
        """Test whether a text is one of the strings."""
        states = list(self._on_the_way(text))
        return len(states) > len(text) and self.cost_at_end(states[-1]) < NEVER

    def lengthened(self, text: str, more: int, chars: Callable[[Ranges, int], Sequence[str]]) -> str | None:
        """Return a string lengthened by `more` characters on a self-loop; None if there is no loop."""
        for place, state in enumerate(self._on_the_way(text)):
            row = self.row(state)
            for atom in self._order:
                if row[atom] == state:
                    return text[:place] + more * chars(self.atoms[atom], 1)[0] + text[place:]
        return None

    def promised(self, state: int) -> int:
        """Return the bytes of a way from a state to the end, if possible without a search.

        If every text can be continued, this is the sum of worst-case ways that meet one condition for good after the
        other; else `needed`.
        """
        if not self.is_endless:
            return self.needed(state)
        joint, length = self._at(state)
        missing = max(self._least - length, 0) * min(self._costs)
        return min(missing + self._enough.most(joint, self._turn) + self._cost_beyond, NEVER - 1)

    @cached_property
    def is_endless(self) -> bool:
        """True if every text can be continued to a string: enough conditions can always be met for good."""
        return self._most is None and self._cost_beyond < NEVER and self._enough.is_sure

    @cached_property
    def _enough(self) -> Progress:
        """The progress towards a sufficient set of conditions."""
        if self._verdict is None:
            return self._progress
        return Progress(Demand(tuple((number, True) for number in range(len(self._machines)))), self._machines)

    @cached_property
    def _cost_beyond(self) -> int:
        """The bytes after a string that meets all conditions, NEVER if none may follow."""
        return 0 if self._verdict is None else self._verdict((True,) * len(self._machines))

    def _turn(self, number: int) -> int:
        """Return the worst-case bytes that meet a condition for good; only if that is always possible."""
        known = self._turns.get(number)
        if known is None:
            machine = self._machines[number]
            known = self._turns[number] = max(_bytes_to(machine, machine.everything, self._costs))
        return known


def conditions_of(case: String) -> list[tuple[Node, bool]]:
    """Return the patterns and formats of a set, each with whether it must match."""
    return [
        *((parse(pattern), True) for pattern in sorted(case.patterns)),
        *((parse(PATTERNS[name]), True) for name in sorted(case.formats)),
        *((parse(pattern), False) for pattern in sorted(case.not_patterns)),
        *((parse(PATTERNS[name]), False) for name in sorted(case.not_formats)),
    ]


def conjunction(case: String) -> Conjunction:
    """Return the strings of a set with patterns, formats, lengths, exclusions and groups."""
    nodes: StateNumbering[Node] = StateNumbering()
    demand = _demand(replace(case, min_length=0, max_length=None), nodes)
    try:
        return Conjunction(nodes.states, demand, least=case.min_length, most=case.max_length)
    except LimitError as error:
        raise LimitError(f"{error}: {listed(case)}") from None


def table_of(case: String) -> Node:
    """Return the unescaped strings of a set as a table, without quotes. Raises LimitError for too many states."""
    strings = conjunction(case)
    numbers: StateNumbering[int] = StateNumbering()
    rows: list[list[int]] = []
    numbers[strings.start]
    for state in numbers.states:  # grows during the loop
        rows.append([DEAD if after == DEAD else numbers[after] for after in strings.row(state)])
        if len(numbers) > MAX_WRITTEN_OUT:
            raise too_many_states(MAX_WRITTEN_OUT)
    accepting = np.array([strings.cost_at_end(state) < NEVER for state in numbers.states])
    transitions, accepting = minimise(np.array(rows, np.int32), accepting)
    if not accepting.any():
        return NOTHING
    return byte_table(segments_of(strings.atoms), transitions, accepting, 5 * MAX_WRITTEN_OUT, too_many_states)


def _demand(case: String, nodes: StateNumbering[Node]) -> Demand:
    """Return the demand of a set; nodes: the conditions, extended by new ones."""
    conditions = conditions_of(case)
    if case.values is not None:
        conditions.append((any_of(case.values), True))
    if case.excluded:
        conditions.append((any_of(case.excluded), False))
    if case.min_length or case.max_length is not None:
        conditions.append((Repeat(Chars(ALL), case.min_length, case.max_length), True))
    either = tuple(tuple(_demand(one, nodes) for one in group) for group in case.either)
    return Demand(tuple((nodes[node], wanted) for node, wanted in conditions), either)


def listed(case: String) -> str:
    """Return the conditions of a set, for a message."""
    positive = sorted(case.patterns) + sorted(case.formats)
    negative = sorted(case.not_patterns) + sorted(case.not_formats)
    return ", ".join([*map(repr, positive), *(f"not {name!r}" for name in negative)])[:400]


def any_of(texts: Iterable[str]) -> Node:
    """Return the alternation of these texts, without those that UTF-8 cannot encode."""
    return Alternation(tuple(Literal(text.encode()) for text in sorted(texts) if is_writable(text)))


def _bytes_to(machine: Subsets, end: int, costs: Sequence[int]) -> list[int]:
    """Return, for each state of a complete machine, the bytes of a way with fewest characters to `end`."""
    steps = machine.steps_to([state == end for state in range(len(machine.accepting))], False)
    needed = [0] * len(steps)
    for state in sorted(range(len(steps)), key=steps.__getitem__):
        if steps[state]:
            spend(20 * len(costs))
            ways = zip(machine.row(state), costs, strict=True)
            needed[state] = min(needed[after] + cost for after, cost in ways if steps[after] == steps[state] - 1)
    return needed
