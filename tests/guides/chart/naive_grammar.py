"""A slow, obvious recogniser for grammars: the reference that the chart is tested against.

It follows every way to read the text at once (generalised LL: Scott and Johnstone, 2010). What is still to
be read is a linked list of nodes, interned, so that a list at a position is followed once; a rule called at
a position collects its ends and hands them to everybody who waits for them. That makes left recursion,
ambiguity and empty cycles end by themselves. It shares nothing with the library but the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from trellm.guides.grammar import Alternation, Chars, Grammar, Literal, Reference, Repeat, Sequence

from ..support import Node, Table


def accepts(grammar: Grammar, data: bytes) -> bool:
    """Whether the text belongs to the language."""
    return len(data) in _Reading(grammar, data).accepted


def accepted_lengths(grammar: Grammar, data: bytes) -> set[int]:
    """How long the beginnings of a text are that belong to the language: one reading for all of them."""
    return _Reading(grammar, data).accepted


def viable(grammar: Grammar, data: bytes) -> bool:
    """Whether some text of the language begins with these bytes (which may end inside a character)."""
    return _Reading(grammar, data).viable


@dataclass(frozen=True, slots=True)
class _Return:
    """The end of a rule that was called at `origin`."""

    rule: str
    origin: int


@dataclass(frozen=True, slots=True, eq=False)
class _List:
    """A node to read, and what comes after it."""

    head: Node | _Return
    tail: _List | None


class _Reading:
    def __init__(self, grammar: Grammar, data: bytes) -> None:
        self.rules = grammar.rules
        self.data = data
        self.accepted: set[int] = set()
        self.viable = False
        self.alive = _alive_rules(grammar)
        self.lists: dict[tuple[object, int], _List] = {}
        self.counted: dict[tuple[int, int, int | None], Repeat] = {}
        self.seen: set[tuple[int, int]] = set()
        self.ends: dict[tuple[str, int], set[int]] = {}
        self.callers: dict[tuple[str, int], list[_List | None]] = {}
        self.todo: list[tuple[_List | None, int]] = []
        if grammar.start in self.alive:
            self.call(grammar.start, 0, None)
        while self.todo:
            self.read(*self.todo.pop())

    def push(self, rest: _List | None, position: int) -> None:
        if (id(rest), position) not in self.seen:
            self.seen.add((id(rest), position))
            self.todo.append((rest, position))

    def cons(self, head: Node | _Return, tail: _List | None) -> _List:
        key = (head if isinstance(head, _Return) else id(head), id(tail))
        if key not in self.lists:
            self.lists[key] = _List(head, tail)
        return self.lists[key]

    def call(self, rule: str, position: int, rest: _List | None) -> None:
        key = (rule, position)
        if key not in self.callers:
            self.callers[key] = []
            self.ends[key] = set()
            self.push(self.cons(self.rules[rule], self.cons(_Return(rule, position), None)), position)
        self.callers[key].append(rest)
        for end in list(self.ends[key]):
            self.push(rest, end)

    def read(self, rest: _List | None, position: int) -> None:
        if position == len(self.data):
            self.viable = True
        if rest is None:
            self.accepted.add(position)
            return
        node, tail = rest.head, rest.tail
        match node:
            case _Return(rule, origin):
                if position not in self.ends[rule, origin]:
                    self.ends[rule, origin].add(position)
                    for waiting in self.callers[rule, origin]:
                        self.push(waiting, position)
            case Reference(name):
                self.call(name, position, tail)
            case Sequence(items):
                for item in reversed(items):
                    tail = self.cons(item, tail)
                self.push(tail, position)
            case Alternation(items):
                for item in items:
                    if _is_alive(item, self.alive):
                        self.push(self.cons(item, tail), position)
            case Repeat(item, low, high):
                if low == 0:
                    self.push(tail, position)
                if high != 0 and _is_alive(item, self.alive):
                    again = self.repeat(item, max(low - 1, 0), None if high is None else high - 1)
                    self.push(self.cons(item, self.cons(again, tail)), position)
            case _:
                self.read_leaf(node, tail, position)

    def repeat(self, item: Node, low: int, high: int | None) -> Repeat:
        key = (id(item), low, high)
        if key not in self.counted:
            self.counted[key] = Repeat(item, low, high)
        return self.counted[key]

    def read_leaf(self, leaf: Literal | Chars | Table, tail: _List | None, position: int) -> None:
        left = len(self.data) - position
        if isinstance(leaf, Literal):
            if self.data.startswith(leaf.data, position):
                self.push(tail, position + len(leaf.data))
            self.viable |= left < len(leaf.data) and leaf.data.startswith(self.data[position:])
        elif isinstance(leaf, Chars):
            for size in range(1, 5):
                if _has_character(leaf, self.data[position : position + size], complete=True):
                    self.push(tail, position + size)
                    break
            self.viable |= left < 4 and _has_character(leaf, self.data[position:], complete=False)
        else:
            state = leaf.start
            while state >= 0:
                if leaf.accepting[state]:
                    self.push(tail, position)
                if position == len(self.data):
                    self.viable = True
                    break
                state = int(leaf.transitions[state, self.data[position]])
                position += 1


def _has_character(chars: Chars, data: bytes, complete: bool) -> bool:
    """Whether a character of the set is encoded as these bytes, or, if not `complete`, begins with them."""
    if complete:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return False
        return len(text) == 1 and any(low <= ord(text) <= high for low, high in chars.ranges)
    spans = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, 0x10FFFF))
    pieces = [(max(a, low), min(b, high)) for low, high in chars.ranges for a, b in spans]
    return any(_may_begin(data, low, high) for low, high in pieces if low <= high)


def _may_begin(data: bytes, low: int, high: int) -> bool:
    """Whether a character from low to high, all of one encoded length, begins with these bytes."""
    first, last = chr(low).encode(), chr(high).encode()
    if len(data) > len(first) or not first[: len(data)] <= data <= last[: len(data)]:
        return False
    return all(0x80 <= byte <= 0xBF for byte in data[1:])


def _alive_rules(grammar: Grammar) -> set[str]:
    """The rules that some text matches, by going through all of them until nothing changes."""
    alive: set[str] = set()
    while True:
        found = {name for name, body in grammar.rules.items() if _is_alive(body, alive)}
        if found == alive:
            return alive
        alive = found


def _is_alive(node: Node, alive: set[str]) -> bool:
    match node:
        case Reference(name):
            return name in alive
        case Sequence(items):
            return all(_is_alive(item, alive) for item in items)
        case Alternation(items):
            return any(_is_alive(item, alive) for item in items)
        case Repeat(item, low, _):
            return low == 0 or _is_alive(item, alive)
        case Chars(ranges):
            return bool(ranges)
        case Literal():
            return True
        case Table():
            return bool(node.accepting.any())
