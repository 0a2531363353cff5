"""Grammars as data: named rules over the nodes of `guides/syntax.py`, and their analysis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, Protocol

from ...errors import GrammarError, LanguageError
from ..graph.graph import Graph
from ..limits import spend
from ..quoting.quotation import Quote
from ..syntax import EMPTY, Alternation, Chars, Literal, Node, Reference, Repeat, Sequence, Table
from .notation import render_name, render_rules

_SHOWN = 8
STEPS_PER_NODE = 30


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
        raise GrammarError(reason, *_place(grammar, None))
    for rule, body in grammar.rules.items():
        for node in _nodes(body):
            if isinstance(node, Reference) and node.name not in grammar.rules and node.name not in grammar.parts:
                message = f"rule {rule!r} refers to {node.name!r}, which is not defined"
                raise GrammarError(message, *_place(grammar, rule, node.name))
            if isinstance(node, Literal) and not _is_text(node.data):
                message = f"rule {rule!r} has the literal {node.data!r}; literals are whole characters of UTF-8"
                raise GrammarError(message, *_place(grammar, rule))
    reached = reachable(grammar)
    finishing = productive({**grammar.rules, **dict.fromkeys(grammar.parts, EMPTY)})
    endless = [name for name in grammar.rules if name in reached and name not in finishing]
    if endless:
        raise LanguageError(_endless_message(grammar, endless))
    _check_captures(grammar)
    return [name for name in grammar.rules if name not in reached]


def _check_captures(grammar: Grammar) -> None:
    """Raise GrammarError for captures of undefined rules, and of left-recursive rules."""
    captured = {**grammar.captures, **grammar.stops}
    empty = nullable(grammar.rules) if captured else set[str]()
    for rule in captured:
        if rule not in grammar.rules:
            raise GrammarError(f"there is no rule {rule!r} to be captured", *_place(grammar, None))
        begun = set(_beginnings(grammar.rules[rule], empty))
        todo = list(begun)
        while todo:
            name = todo.pop()
            new = set(_beginnings(grammar.rules.get(name, EMPTY), empty)) - begun
            begun |= new
            todo += new
        if rule in begun:
            reason = f"the rule {rule!r} has a capture and is left-recursive; capture a rule around it"
            raise GrammarError(reason, *_place(grammar, rule))


def _beginnings(node: Node, empty: set[str]) -> Iterator[str]:
    """Yield the rules that a text of the node may begin with. empty: the nullable rules"""
    todo = [node]
    while todo:
        item = todo.pop()
        if isinstance(item, Reference):
            yield item.name
        elif isinstance(item, Sequence):
            first = next((at for at, one in enumerate(item.items) if not _is_nullable(one, empty)), len(item.items))
            todo += item.items[: first + 1]
        else:
            todo += children(item)


def _is_nullable(node: Node, empty: set[str]) -> bool:
    match node:
        case Reference(name):
            return name in empty
        case Sequence(items):
            return all(_is_nullable(item, empty) for item in items)
        case Alternation(items):
            return any(_is_nullable(item, empty) for item in items)
        case Repeat(item, least):
            return least == 0 or _is_nullable(item, empty)
        case _:
            return _leaf_is_nullable(node)


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


def productive(rules: Mapping[str, Node]) -> set[str]:
    """Return the rules that derive some text."""
    return _least_fixpoint(rules, _leaf_has_text)


def nullable(rules: Mapping[str, Node]) -> set[str]:
    """Return the rules that derive the empty text."""
    return _least_fixpoint(rules, _leaf_is_nullable)


def _leaf_has_text(leaf: Chars | Literal | Table) -> bool:
    if isinstance(leaf, Chars):
        return bool(leaf.ranges)
    return isinstance(leaf, Literal) or bool(leaf.accepting.any())


def _leaf_is_nullable(leaf: Chars | Literal | Table) -> bool:
    if isinstance(leaf, Table):
        return bool(leaf.accepting[leaf.start])
    return isinstance(leaf, Literal) and not leaf.data


def _least_fixpoint(rules: Mapping[str, Node], leaf: Callable[[Chars | Literal | Table], bool]) -> set[str]:
    """Return the rules that hold, where a sequence holds if all its items do and an alternation if any does.

    Linear in the size of the rules: every node counts the items it still waits for (the counting algorithm
    for Horn formulas of Dowling and Gallier, 1984). A node shared by several rules is counted once.
    """
    number = {name: i for i, name in enumerate(rules)}
    bodies = list(rules.values())
    waits = [1] * len(bodies)
    parents: list[list[int]] = [[] for _ in bodies]
    seen: dict[int, int] = {}
    todo = [(body, i) for i, body in enumerate(bodies)]
    true: list[int] = []
    while todo:
        spend(STEPS_PER_NODE)
        node, parent = todo.pop()
        if isinstance(node, Reference):
            if node.name in number:
                parents[number[node.name]].append(parent)
            continue
        known = seen.get(id(node))
        if known is not None:
            parents[known].append(parent)
            continue
        this = seen[id(node)] = len(waits)
        parents.append([parent])
        waits.append(_waits_for(node, leaf))
        if waits[this] == 0:
            true.append(this)
        else:
            todo.extend((child, this) for child in children(node))
    while true:
        for parent in parents[true.pop()]:
            waits[parent] -= 1
            if waits[parent] == 0:
                true.append(parent)
    return {name for name, i in number.items() if waits[i] <= 0}


def _waits_for(node: Node, leaf: Callable[[Chars | Literal | Table], bool]) -> int:
    if isinstance(node, Sequence):
        return len(node.items)
    if isinstance(node, Repeat):
        return int(node.min > 0)
    if isinstance(node, (Chars, Literal, Table)):
        return 0 if leaf(node) else 1
    return 1


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


def _place(grammar: Grammar, rule: str | None, name: str | None = None) -> tuple[str, int]:
    """Return the text to show in an error, and the offset of `name` in the definition of `rule`."""
    text = grammar.source or str(grammar)
    if rule is None:
        return text, 0
    if grammar.source:
        lines = text.split("\n")[: grammar.lines.get(rule, 1) - 1]
        begin = sum(len(line) + 1 for line in lines)
    else:
        begin = len(render_rules({n: grammar.rules[n] for n in _before(grammar, rule)}))
    at = text.find(name, begin) if name else begin
    return text, at if at >= 0 else begin


def _before(grammar: Grammar, rule: str) -> list[str]:
    names = list(grammar.rules)
    return names[: names.index(rule)]
