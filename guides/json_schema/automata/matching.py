"""Matching of syntax trees without an automaton, and restriction of their texts to a length.

Counts remain numbers in the syntax. This works where position automata (`guides/automata`), which unroll repeats, would
be too large.
"""

from __future__ import annotations

from collections.abc import Sequence as ListOf
from itertools import count

from ...automata.charsets import contains
from ...limits import spend
from ...regex.tree import ENDLESS, Known, lengths
from ...syntax import EMPTY, NOTHING, Alternation, Chars, Literal, Node, Ranges, Repeat, Sequence, Table
from .spelling import has_table


def matches(node: Node, text: str) -> bool:
    """Test whether a whole text is in the language of a node.

    Source: R. Cameron et al., "Bitwise Data Parallelism in Regular Expression Matching" (2014): each part is matched at
    all positions at once.
    """
    return bool(_Places(text).behind(node, 1) >> len(text) & 1)


class _Places:
    """Positions in a text as bits; bit 0 is before its first character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._masks: dict[Ranges | bytes, int] = {}

    def behind(self, node: Node, places: int) -> int:
        """Return the positions after a match of a node that starts at any of `places`."""
        spend(20)
        match node:
            case Chars(ranges):
                return (places & self._of(ranges)) << 1
            case Literal(data):
                return (places & self._of_word(data)) << len(data.decode())
            case Sequence(items):
                for item in items:
                    places = self.behind(item, places) if places else 0
                return places
            case Alternation(items):
                found = 0
                for item in items:
                    found |= self.behind(item, places)
                return found
            case Repeat(item, least, most):
                return self._repeated(item, least, most, places)
            case Table():
                return self._read(node, places)
            case _:
                raise TypeError(f"{type(node).__name__} does not occur in a pattern")

    def _repeated(self, item: Node, least: int, most: int | None, places: int) -> int:
        for _ in range(least):
            before, places = places, self.behind(item, places)
            if places in (0, before):
                break
        if most is None and isinstance(item, Chars):
            chars = self._of(item.ranges)
            return (
                ((places & chars) + chars) ^ chars
            ) | places  # the carry runs to the end of each run of matching characters
        found = fresh = places
        for _ in count() if most is None else range(most - least):
            fresh = self.behind(item, fresh) & ~found
            if not fresh:
                break
            found |= fresh
        return found

    def _of(self, ranges: Ranges) -> int:
        """Return the positions before a character of a set."""
        known = self._masks.get(ranges)
        if known is None:
            spend(20 * len(self._text))
            places = (place for place, char in enumerate(self._text) if contains(ranges, char))
            known = self._masks[ranges] = sum(1 << place for place in places)
        return known

    def _of_word(self, data: bytes) -> int:
        """Return the positions before a word."""
        known = self._masks.get(data)
        if known is None:
            known, word = 0, data.decode()
            at = self._text.find(word)
            while at >= 0:
                spend(10)
                known |= 1 << at
                at = self._text.find(word, at + 1)
            self._masks[data] = known
        return known

    def _read(self, table: Table, places: int) -> int:
        """Return the positions after a match of a table."""
        found, states = 0, set[int]()
        for place in range(len(self._text) + 1):
            if places >> place & 1:
                states.add(table.start)
            if any(table.accepting.item(state) for state in states):
                found |= 1 << place
            spend(20 + 50 * len(states))
            for byte in self._text[place : place + 1].encode("utf-8", "surrogatepass"):
                states = {after for state in states if (after := table.transitions.item(state, byte)) >= 0}
        return found


MAX_BRANCHES = 16
MAX_VARYING = 3


def narrow(node: Node, least: int, most: int) -> Node | None:
    """Return the texts of `node` with `least` to `most` characters; None if plain syntax is too long for them.

    At most one part of each sequence may vary in length, by turns of fixed length.
    """
    return None if has_table(node) else _narrow(node, least, most, {})


def _narrow(node: Node, least: int, most: int, known: Known) -> Node | None:
    """Compute `narrow` of a node without tables; known: cached lengths of nodes."""
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
            sequences = [Sequence((*items[:at], one, *items[at + 1 :])) for one in branches]
            choices = [_narrow(each, least, most, known) for each in sequences]
            return _any_of(choices)
    return None


def _branches(item: Node) -> ListOf[Node] | None:
    """Return a part of variable length as a few alternatives."""
    match item:
        case Alternation(items) if len(items) <= MAX_BRANCHES:
            return items
        case Repeat(inner, 0, 1):
            return (EMPTY, inner)
        case _:
            return None


def _any_of(items: ListOf[Node | None]) -> Node | None:
    branches: list[Node] = []
    for item in items:
        if item is None:
            return None
        if item != NOTHING:
            branches.append(item)
    if sum(size(item) for item in branches) > 8 * MAX_BRANCHES:
        return None
    return branches[0] if len(branches) == 1 else Alternation(tuple(branches))


def size(node: Node) -> int:
    """Return the number of nodes in a tree."""
    match node:
        case Sequence(items) | Alternation(items):
            return 1 + sum(size(item) for item in items)
        case Repeat(item, _, _):
            return 1 + size(item)
        case _:
            return 1
