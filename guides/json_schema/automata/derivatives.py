"""Syntax trees as automata over characters, by Brzozowski's derivatives: a state is what is left to match.

A search for a short text comes to few states, and a count is a number in the syntax here: so this goes where automata
of positions, as in `guides/automata`, which write all turns of a repeat out, take too much before the first step.

Source: J. Brzozowski, "Derivatives of regular expressions" (1964).
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from typing import cast

from ....errors import LimitError
from ...automata.charsets import rows_of
from ...kept import kept
from ...limits import spend
from ...locks import new_lock
from ...regex.tree import ANY_TEXT, ENDLESS, Known, lengths
from ...syntax import EMPTY, NOTHING, Alternation, Chars, Literal, Node, Repeat, Sequence, Table
from .spelling import has_table

MAX_DERIVATIVES = 20_000
BYTES_PER_NODE = EFFORT_PER_NODE = 200
MAX_MATCHED = 1024
"""Of how many texts it is remembered whether they match."""

_ADDING = new_lock()
"""Held while an expression gets a state."""


@dataclass(frozen=True, slots=True)
class Rest:
    """The language that a table has left to match from one of its states."""

    table: Table
    state: int


Left = Node | Rest


class Rests:
    """The bytes that literals have left behind their first character: each once, however many states have it."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, int], Node] = {}
        self.held_bytes = 0

    def after(self, data: bytes, point: int) -> Node:
        """The rest of a literal's bytes after a character."""
        found = self._known.get((data, point))
        if found is None:
            spend(len(data) // 4)
            begin = _utf8(point)
            found = Literal(data[len(begin) :]) if data.startswith(begin) else NOTHING
            self._known[data, point] = found
            self.held_bytes += BYTES_PER_NODE + (0 if found == NOTHING else len(data))
        return found


class Expression:
    """The language of a syntax tree, as an automaton over characters whose states are made when reached.

    steps: for each state the states after characters, as far as known
    dead, universal: for each state whether no text leads on to an end, and whether every text does, as the syntax shows
    Several threads may use one at once, and any of them may be interrupted: a state is known when all of it is there.
    """

    def __init__(self, node: Node) -> None:
        self._efforts = [EFFORT_PER_NODE * size(node)]
        """The work that a derivative of each state takes: it is about as large as its node, and is compared as a whole.

        A state that has grown has most parts in common with those before.
        """
        self.work = 0
        """About how many steps of work the states met so far took."""
        self._rests = Rests()
        self._held = BYTES_PER_NODE * size(node)
        self._nodes: list[Left] = [node]
        self._numbers: dict[Left, int] = {node: 0}
        self.steps: list[dict[str, int]] = [{}]
        self._accepting: list[bool] = [nullable(node)]
        self.dead: list[bool] = [node == NOTHING]
        self.universal: list[bool] = [universal(node)]
        self._bounds: list[tuple[int, ...] | None] = [None]
        self._taken = 0
        self._matched: dict[str, bool] = {}

    @property
    def held_bytes(self) -> int:
        """About how much memory the states met so far take, and the texts that were matched."""
        return self._held + self._rests.held_bytes + 100 * self._taken + 200 * len(self._matched)

    def step(self, state: int, char: str) -> int:
        """The state after a character."""
        after = self.steps[state].get(char)
        if after is None:
            effort = self._efforts[state]
            spend(effort)
            node = derivative(self._nodes[state], ord(char), self._rests)
            after = self._numbers.get(node, -1)
            if after < 0:
                with _ADDING:
                    after = self._add(node)
            self.steps[state][char] = after
            self._taken += 1
            self.work += effort
        return after

    def _add(self, node: Left) -> int:
        """The number of a state, which another thread may have added by now."""
        number = self._numbers.get(node, len(self._numbers))
        if number < len(self._numbers):
            return number
        if number >= MAX_DERIVATIVES:
            raise LimitError(f"a pattern has more than {MAX_DERIVATIVES:,} states")
        # In place of what an interrupted call may have left.
        self._nodes[number:] = [node]
        self.steps[number:] = [{}]
        self._accepting[number:] = [nullable(node)]
        self.dead[number:] = [node == NOTHING]
        self.universal[number:] = [universal(node)]
        self._bounds[number:] = [None]
        nodes = size(cast("Node", node))
        self._efforts[number:] = [min(EFFORT_PER_NODE * nodes, self._efforts[0])]
        self._held += BYTES_PER_NODE * nodes
        self._numbers[node] = number
        return number

    def is_accepting(self, state: int) -> bool:
        """Tell whether the text so far is in the language."""
        return self._accepting[state]

    def bounds(self, state: int) -> tuple[int, ...]:
        """Code points at which characters begin to lead elsewhere."""
        known = self._bounds[state]
        if known is None:
            known = self._bounds[state] = tuple(sorted(first_bounds(self._nodes[state])))
        return known

    def matches(self, text: str) -> bool:
        """Tell whether the whole text is in the language; names of members are asked for many times."""
        known = self._matched.get(text)
        if known is None:
            state = 0
            spend(20 * len(text))
            for char in text:
                state = self.step(state, char)
            if len(self._matched) >= MAX_MATCHED:
                self._matched.clear()
            known = self._matched[text] = self._accepting[state]
        return known


def nullable(node: Left) -> bool:
    """Tell whether the empty text is in the language."""
    match node:
        case Literal():
            return not node.data
        case Sequence():
            return all(nullable(item) for item in node.items)
        case Alternation():
            return any(nullable(item) for item in node.items)
        case Repeat():
            return node.min == 0 or nullable(node.item)
        case Table():
            return bool(node.accepting[node.start])
        case Rest():
            return bool(node.table.accepting[node.state])
        case _:
            return False


def universal(node: Left) -> bool:
    """Tell whether every text is in the language, as far as the syntax shows."""
    match node:
        case Sequence():
            return any(map(universal, node.items)) and all(map(nullable, node.items))
        case Alternation():
            return any(map(universal, node.items))
        case Repeat():
            return node == ANY_TEXT
        case _:
            return False


def derivative(node: Left, point: int, rests: Rests) -> Left:
    """The derivative by the character `point`. Its steps are counted where a node has several items."""
    match node:
        case Chars():
            return EMPTY if any(low <= point <= high for low, high in node.ranges) else NOTHING
        case Literal():
            return rests.after(node.data, point)
        case Sequence():
            return _after_sequence(node.items, point, rests)
        case Alternation():
            spend(100 * len(node.items))
            return alternation(derivative(item, point, rests) for item in node.items)
        case Repeat():
            if node.max == 0:
                return NOTHING
            left = None if node.max is None else node.max - 1
            more: Node = Repeat(node.item, max(0, node.min - 1), left) if left != 0 else EMPTY
            return sequence(derivative(node.item, point, rests), more)
        case Table():
            return _after_table(node, node.start, point)
        case Rest():
            return _after_table(node.table, node.state, point)
        case _:
            raise TypeError(f"{type(node).__name__} does not occur in a pattern")


def _utf8(point: int) -> bytes:
    return chr(point).encode("utf-8", "surrogatepass")


def _after_table(table: Table, state: int, point: int) -> Left:
    for byte in _utf8(point):
        state = int(table.transitions[state, byte])
        if state < 0:
            return NOTHING
    return Rest(table, state)


def _after_sequence(items: tuple[Left, ...], point: int, rests: Rests) -> Left:
    parts: list[Left] = []
    for index, item in enumerate(items):
        spend(100 + 20 * (len(items) - index))
        parts.append(sequence(derivative(item, point, rests), *items[index + 1 :]))
        if not nullable(item):
            break
    return alternation(parts)


def sequence(*items: Left) -> Left:
    """A sequence, flattened, without empty items."""
    flat: list[Left] = []
    for item in items:
        if item == NOTHING:
            return NOTHING
        if isinstance(item, Sequence):
            flat.extend(item.items)
        elif item != EMPTY:
            flat.append(item)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat)) if flat else EMPTY  # type: ignore[arg-type]


def alternation(items: Iterable[Left]) -> Left:
    """An alternation, flattened, each item once."""
    flat: dict[Left, None] = {}
    for item in items:
        flat.update(dict.fromkeys(item.items if isinstance(item, Alternation) else (item,)))
    return next(iter(flat)) if len(flat) == 1 else Alternation(tuple(flat))  # type: ignore[arg-type]


def first_bounds(node: Left) -> set[int]:
    """Code points at which the derivative may change; always with 0."""
    match node:
        case Chars():
            return {0}.union(*((low, high + 1) for low, high in node.ranges))
        case Literal():
            if not node.data:
                return {0}
            point = ord(node.data.decode("utf-8", "surrogatepass")[0])
            return {0, point, point + 1}
        case Sequence():
            found = {0}
            for item in node.items:
                found |= first_bounds(item)
                if not nullable(item):
                    break
            return found
        case Alternation():
            return {0}.union(*(first_bounds(item) for item in node.items))
        case Repeat():
            return first_bounds(node.item)
        case Table():
            return set(_table_bounds(node, node.start))
        case Rest():
            return set(_table_bounds(node.table, node.state))
        case _:
            raise TypeError(f"{type(node).__name__} does not occur in a pattern")


@kept(4096, 32 << 20)
def _table_bounds(table: Table, state: int) -> tuple[int, ...]:
    found = {0}
    for ranges in rows_of(table).of(state).values():
        for low, high in ranges:
            found |= {low, high + 1}
    return tuple(sorted(found))


MAX_BRANCHES = 16
MAX_VARYING = 3


def narrow(node: Node, least: int, most: int) -> Node | None:
    """The texts of `node` with `least` to `most` characters; None if plain syntax does not say so briefly.

    That works where at most one part of a sequence varies in length, and that by turns of fixed length.
    """
    return None if has_table(node) else _narrow(node, least, most, {})


def _narrow(node: Node, least: int, most: int, known: Known) -> Node | None:
    """As `narrow`, of a node without tables; known: the lengths of nodes that were looked at before."""
    low, high = lengths(node, known)
    if least <= low and high <= most:
        return node
    if high < least or most < low:
        return NOTHING
    match node:
        case Alternation(items):
            return _any_of([_narrow(item, least, most, known) for item in items])
        case Sequence(items):
            return _narrow_sequence(items, least, most, known)
        case Repeat(item, 0, 1):
            return _any_of([EMPTY if least <= 0 else NOTHING, _narrow(item, least, most, known)])
        case Repeat(item, fewest, greatest):
            size, longest = lengths(item, known)
            if size == 0 or size != longest:
                return None
            fewest = max(fewest, -(-least // size))
            turns = most // size
            greatest = turns if greatest is None else min(greatest, turns)
            if most >= ENDLESS:
                greatest = node.max
            return NOTHING if greatest is not None and fewest > greatest else Repeat(item, fewest, greatest)
        case _:
            return None


def _narrow_sequence(items: tuple[Node, ...], least: int, most: int, known: Known) -> Node | None:
    spans = [lengths(item, known) for item in items]
    varying = [index for index, (low, high) in enumerate(spans) if low != high]
    if len(varying) == 1:
        at = varying[0]
        fixed = sum(low for index, (low, _) in enumerate(spans) if index != at)
        part = _narrow(items[at], least - fixed, most if most >= ENDLESS else most - fixed, known)
        if part is None or part == NOTHING:
            return part
        return Sequence((*items[:at], part, *items[at + 1 :]))
    for at in varying if len(varying) <= MAX_VARYING else ():
        branches = _branches(items[at])
        if branches is not None:
            whole = [Sequence((*items[:at], one, *items[at + 1 :])) for one in branches]
            choices = [_narrow(each, least, most, known) for each in whole]
            return _any_of(choices)
    return None


def _branches(item: Node) -> ListOf[Node] | None:
    """A part that varies in length, as a few alternatives."""
    match item:
        case Alternation(items) if len(items) <= MAX_BRANCHES:
            return items
        case Repeat(inner, 0, 1):
            return (EMPTY, inner)
        case _:
            return None


def _any_of(items: ListOf[Node | None]) -> Node | None:
    kept: list[Node] = []
    for item in items:
        if item is None:
            return None
        if item != NOTHING:
            kept.append(item)
    if sum(size(item) for item in kept) > 8 * MAX_BRANCHES:
        return None
    return kept[0] if len(kept) == 1 else Alternation(tuple(kept))


def size(node: Node) -> int:
    """The number of nodes in a node."""
    match node:
        case Sequence(items) | Alternation(items):
            return 1 + sum(size(item) for item in items)
        case Repeat(item, _, _):
            return 1 + size(item)
        case _:
            return 1
