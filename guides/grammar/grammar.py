"""Grammars as data: named rules over the nodes of `guides/syntax.py`, and their analysis."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, Protocol

from ...errors import GrammarError, LanguageError
from ...kernels.answers import NEVER
from ..automata.positions import shortest_in_table
from ..graph.graph import Graph
from ..graph.lowering import is_nullable
from ..limits import spend
from ..quoting.quotation import Quote
from ..syntax import EMPTY, Alternation, Chars, Literal, Node, Reference, Repeat, Sequence, Table
from .notation import render_name, render_rules

_SHOWN = 8
STEPS_PER_NODE = 30
# Work per syntax node of the search for shortest texts
STEPS_PER_LENGTH = 300


class Embedded(Protocol):
    """A language in another notation, nested in a grammar."""

    @property
    def fewest(self) -> int:
        """The length in bytes of a short text: an upper bound of the minimum."""
        ...

    def lower_into(self, graph: Graph) -> int:
        """Add the texts to a graph and return the start node of their rule."""
        ...


Part = Quote | Embedded


class Stop(NamedTuple):
    """The end of a rule with a terminating mark: the texts before the mark, and the mark.

    is_inside: the mark is part of the rule; otherwise it follows the rule, and is fixed
    capture: the name of the mark's capture, or None
    """

    body: Node
    mark: Node
    is_inside: bool
    capture: str | None


@dataclass(frozen=True, eq=False, repr=False)
class Grammar:
    """Named rules, the start rule, which a whole text must match, and source positions.

    lines: the line in `source` of each rule's definition, counted from 1; generated rules have none
    source: the text that the grammar was parsed from; empty for grammars built by programs
    terminals: rules that refer, if at all, to other terminals only, without recursion (a regular language)
    parts: quotations and JSON values, by the names of further rules, which have no body here
    captures: capture names by rule
    stops: ends of rules, by rule, whose mark is captured or excluded from the rule's capture
    """

    rules: dict[str, Node]
    start: str
    lines: dict[str, int] = field(default_factory=dict[str, int])
    source: str = ""
    terminals: frozenset[str] = frozenset()
    parts: dict[str, Part] = field(default_factory=dict[str, Part])
    captures: dict[str, str] = field(default_factory=dict[str, str])
    stops: dict[str, Stop] = field(default_factory=dict[str, Stop])

    def __str__(self) -> str:
        return render_rules(self.rules)

    def __repr__(self) -> str:
        return f"Grammar({len(self.rules)} rules, start={self.start!r})"


def check(grammar: Grammar) -> list[str]:
    """Raise an error for an unusable grammar; return the names of the rules that `start` never reaches.

    GrammarError: the start rule or a referenced rule is undefined, a literal of a programmatically built grammar is not
    valid UTF-8, or a captured rule may begin with itself.
    LanguageError: a rule in use derives no text, because each of its alternatives needs that rule, or
    another such rule, again.
    """
    if grammar.start not in grammar.rules:
        known = ", ".join(islice(map(render_name, grammar.rules), _SHOWN)) or "none"
        reason = f"there is no rule named {grammar.start!r} to start from; there are {known}"
        raise GrammarError(reason, *_error_place(grammar, None))
    for rule, body in grammar.rules.items():
        for node in _nodes(body):
            if isinstance(node, Reference) and node.name not in grammar.rules and node.name not in grammar.parts:
                message = f"rule {rule!r} refers to {node.name!r}, which is not defined"
                raise GrammarError(message, *_error_place(grammar, rule, node.name))
            if isinstance(node, Literal) and not _is_text(node.data):
                message = f"rule {rule!r} has the literal {node.data!r}; literals are whole characters of UTF-8"
                raise GrammarError(message, *_error_place(grammar, rule))
    reached = reachable(grammar)
    lengths = shortest_texts(grammar.rules, dict.fromkeys(grammar.parts, 1))
    endless = [name for name in grammar.rules if name in reached and name not in lengths]
    if endless:
        raise LanguageError(_endless_message(grammar, endless))
    _check_captures(grammar, lengths)
    return [name for name in grammar.rules if name not in reached]


def _check_captures(grammar: Grammar, lengths: Mapping[str, int]) -> None:
    """Raise GrammarError for captures of undefined rules, and of left-recursive rules."""
    for rule in {**grammar.captures, **grammar.stops}:
        if rule not in grammar.rules:
            raise GrammarError(f"there is no rule {rule!r} to be captured", *_error_place(grammar, None))
        leftmost = set(_leftmost_rules(grammar.rules[rule], lengths))
        todo = list(leftmost)
        while todo:
            name = todo.pop()
            new = set(_leftmost_rules(grammar.rules.get(name, EMPTY), lengths)) - leftmost
            leftmost |= new
            todo += new
        if rule in leftmost:
            reason = f"the rule {rule!r} has a capture and is left-recursive; capture a rule around it"
            raise GrammarError(reason, *_error_place(grammar, rule))


def _leftmost_rules(node: Node, lengths: Mapping[str, int]) -> Iterator[str]:
    """Yield the rules that a text of the node may begin with. lengths: of the shortest texts of rules"""
    todo = [node]
    while todo:
        item = todo.pop()
        if isinstance(item, Reference):
            yield item.name
        elif isinstance(item, Sequence):
            for each in item.items:
                todo.append(each)
                if not is_nullable(each, lambda name: lengths.get(name) == 0):
                    break
        else:
            todo += children(item)


def references(node: Node) -> Iterator[str]:
    """Yield the names of the rules that a node refers to, with repetitions."""
    return (item.name for item in _nodes(node) if isinstance(item, Reference))


def _nodes(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes inside it, in source order."""
    todo = [node]
    passed = 0
    while todo:
        passed += 1
        item = todo.pop()
        yield item
        if parts := children(item):
            todo.extend(reversed(parts))
    spend(STEPS_PER_NODE * passed)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly inside a node."""
    if isinstance(node, (Sequence, Alternation)):
        return node.items
    return (node.item,) if isinstance(node, Repeat) else ()


def reachable(grammar: Grammar) -> set[str]:
    """Return the rules reachable from the start rule, which is included; without `parts`."""
    reached = {grammar.start}
    todo = [grammar.start]
    while todo:
        for name in references(grammar.rules[todo.pop()]):
            if name not in reached and name not in grammar.parts:
                reached.add(name)
                todo.append(name)
    return reached


def shortest_texts(rules: Mapping[str, Node], known_lengths: Mapping[str, int]) -> dict[str, int]:
    """Return the fewest bytes of each rule's texts, at most NEVER; rules without a text are left out.

    known_lengths: those of rules without a body
    """
    return _Lengths(rules, known_lengths).compute()


class _Lengths:
    """The lengths of the shortest texts of all nodes, in ascending order; each node is settled once.

    A node's length is at least those of the parts it depends on, so that D. Knuth's "A generalization of Dijkstra's
    algorithm" (1977) applies. A node shared by several rules is one node.
    """

    def __init__(self, rules: Mapping[str, Node], known_lengths: Mapping[str, int]) -> None:
        self._rules = rules
        self._number = {name: i for i, name in enumerate((*rules, *known_lengths))}
        # By number: rules first, then syntax nodes
        count = len(self._number)
        self._parents: list[list[int]] = [[] for _ in range(count)]
        self._waits = [1] * count  # parts that a node still waits for
        self._times = [1] * count  # minimum repetitions of its parts
        self._length = [0] * count  # sum of its settled parts
        self._settled = [False] * count
        self._queue: list[tuple[int, int]] = []
        for name, length in known_lengths.items():
            self._offer(self._number[name], length)

    def compute(self) -> dict[str, int]:
        """Return the fewest bytes of each rule."""
        self._read_rules()
        lengths: dict[str, int] = {}
        names = list(self._number)
        while self._queue:
            length, number = heapq.heappop(self._queue)
            if self._settled[number]:
                continue
            self._settled[number] = True
            if number < len(names):
                lengths[names[number]] = length
            for parent in self._parents[number]:
                if not self._settled[parent]:
                    self._offer(parent, length)
        return lengths

    def _offer(self, parent: int, length: int) -> None:
        """Report a settled part to a node: the last part of a sequence settles it, the first one any other node."""
        length += self._length[parent]
        if self._waits[parent] > 1:
            self._waits[parent] -= 1
            self._length[parent] = length
        else:
            heapq.heappush(self._queue, (min(NEVER, self._times[parent] * length), parent))

    def _read_rules(self) -> None:
        """Number the syntax nodes that have parts, and queue nodes settled by leaves."""
        seen: dict[int, int] = {}
        todo: list[tuple[Node, int]] = []
        for name, body in self._rules.items():
            self._add_part(body, self._number[name], todo)
        while todo:
            node, parent = todo.pop()
            number = seen.get(id(node))
            if number is not None:
                self._parents[number].append(parent)
                continue
            number = seen[id(node)] = len(self._parents)
            spend(STEPS_PER_LENGTH)
            parts = children(node)
            self._parents.append([parent])
            self._waits.append(len(parts) if isinstance(node, Sequence) else 1)
            self._times.append(node.min if isinstance(node, Repeat) else 1)
            self._length.append(0)
            self._settled.append(False)
            for part in parts:
                self._add_part(part, number, todo)

    def _add_part(self, part: Node, parent: int, todo: list[tuple[Node, int]]) -> None:
        """Process a part: a leaf at once, others later. Rules without a body and a length have no text."""
        if isinstance(part, Reference):
            if part.name in self._number:
                self._parents[self._number[part.name]].append(parent)
        elif children(part) and not (isinstance(part, Repeat) and part.min == 0):
            todo.append((part, parent))
        elif (length := _length_without_parts(part)) is not None:
            self._offer(parent, length)


def _length_without_parts(node: Node) -> int | None:
    match node:
        case Literal(data):
            return len(data)
        case Chars(ranges):
            return len(chr(ranges[0][0]).encode()) if ranges else None
        case Table(_, accepting):
            return shortest_in_table(node) if accepting.any() else None
        case Alternation():
            return None
        case _:
            return 0


def _endless_message(grammar: Grammar, endless: list[str]) -> str:
    """Build the message about rules without texts, with the names of written rules where there are any."""
    empty = "the grammar matches no text: " if grammar.start in endless else ""
    endless = [name for name in endless if name in grammar.lines] or endless
    shown = ", ".join(_with_line(grammar, name) for name in endless[:_SHOWN])
    more = f" and {len(endless) - _SHOWN} more" if len(endless) > _SHOWN else ""
    rules = "rule" if len(endless) == 1 else "rules"
    return f"{empty}{rules} {shown}{more} can never finish; add an alternative that ends without needing the rule again"


def _with_line(grammar: Grammar, name: str) -> str:
    line = grammar.lines.get(name)
    return f"{render_name(name)} (line {line})" if line else render_name(name)


def _error_place(grammar: Grammar, rule: str | None, name: str | None = None) -> tuple[str, int]:
    """Return the text to show in an error, and the offset of `name` in the definition of `rule`."""
    text = grammar.source or str(grammar)
    if rule is None:
        return text, 0
    if grammar.source:
        lines = text.split("\n")[: grammar.lines.get(rule, 1) - 1]
        begin = sum(len(line) + 1 for line in lines)
    else:
        begin = len(render_rules({n: grammar.rules[n] for n in _rules_before(grammar, rule)}))
    at = text.find(name, begin) if name else begin
    return text, at if at >= 0 else begin


def _rules_before(grammar: Grammar, rule: str) -> list[str]:
    names = list(grammar.rules)
    return names[: names.index(rule)]
