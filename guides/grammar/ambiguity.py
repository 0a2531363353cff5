"""Removal of operator ambiguity: `e: e "+" e | "-" e | "n"` becomes `e: "-"* "n" ("+" "-"* "n")*`.

A text of n operators has exponentially many trees, and a chart has an item for each position where one of them may
begin. Constraints need no trees, so rules whose alternatives begin and end with the rule itself become loops of the
same language.

Let the alternatives of X be X M X (infix), X P (postfix), Q X (prefix) and A (others), where M, P, Q and A are
languages that may contain X. Then X is U (M U)* with U = Q* A P*: this is closed under all alternatives,
since Q U = Q Q* A P* is in U, so is U P, and U (M U)* M U (M U)* is in U (M U)*; and whatever is closed under them
contains it, by induction over the parts of a text. So for given M, P, Q and A it is the least solution. As these grow
with X equally on both sides, the least solutions agree when solved together (Bekic's lemma).

An alternative X X ... X, k times, is infix with M = X X ..., k - 2 times. For k = 2, M contains the empty text, and
subsumes greater k; so it does for any k if the empty text is in X. Otherwise let V be U (M U)* for the other M:
X is V followed by any number of times k - 1 times V. For a tree whose gaps between U are filled with M or with nothing
has a number of empty gaps that is a sum of such k - 1. Conversely, for such a sum a tree can be made: the first k - 1
empty gaps split the text into k texts, of which the last has the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from itertools import product
from typing import NamedTuple

from ..limits import spend
from ..syntax import EMPTY, Alternation, Node, Reference, Repeat, Sequence
from .grammar import shortest_texts
from .inlining import is_light

# Alternatives examined as parts of other rules, per rule
LOOKS = 8
# Work per alternative
STEPS_PER_ALTERNATIVE = 500

Times = tuple[int, int | None]


class Recursion(NamedTuple):
    """The alternatives of a rule, stripped of the rule at their ends.

    repeated: bounds of the repetition in alternatives that consist of the rule alone
    """

    infix: list[Node]
    prefix: list[Node]
    postfix: list[Node]
    others: list[Node]
    repeated: list[Times]

    @property
    def is_ambiguous(self) -> bool:
        """True if a text has several trees that differ only in the order of derivation."""
        return bool(self.infix or self.repeated or (self.prefix and self.postfix)) and bool(self.others)


def without_ambiguity(rules: dict[str, Node]) -> dict[str, Node]:
    """Rewrite rules of ambiguous operators as loops; auxiliary rules have no source lines.

    Rules that consist of one reference are resolved. A rule that is a whole alternative of another one, and leads back
    to it at its ends, is merged into it, as in `e: sum | "n"` with `sum: e "+" e`.
    """
    found = dict(rules)
    corners = _Corners(rules)
    lengths = cache(lambda: shortest_texts(rules, {}))
    merged: set[str] = set()
    for name in corners.recursive():
        inner, alternatives = corners.alternatives(name, merged)
        parts = _classify(name, alternatives, corners.target)
        if parts.is_ambiguous:
            merged |= inner
            found[name] = _loop(parts, bool(parts.repeated) and lengths().get(name) == 0, _make_sharing(name, found))
    return found


class _Corners:
    """The rules at the ends of alternatives, and the cycles among them."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = rules
        self._targets = _targets(rules)
        self._ends: dict[str, set[str]] = {}
        self._budget = LOOKS
        for name, body in rules.items():
            ends = _ends(body)
            spend(STEPS_PER_ALTERNATIVE * (1 + len(ends)))
            self._ends[name] = {end for end in map(self.target, ends) if end in rules}
            self._budget += LOOKS
        self._component = _components(self._ends)

    def target(self, name: str) -> str:
        """Return the end of a chain of rules that consist of one reference; any other rule itself."""
        return self._targets.get(name, name)

    def recursive(self) -> list[str]:
        """Return the rules that lead back to themselves."""
        sizes = Counter(self._component.values())
        return [name for name in self._rules if sizes[self._component[name]] > 1 or name in self._ends[name]]

    def alternatives(self, name: str, merged: set[str]) -> tuple[set[str], list[Node]]:
        """Return the alternatives of a rule, including those of rules merged into it unless merged elsewhere.

        Also returns the merged rules.
        """
        inner: set[str] = set()
        found: list[Node] = []
        todo = [self._rules[name]]
        while todo:
            node = todo.pop()
            if isinstance(node, Alternation) and _ends(node):
                spend(STEPS_PER_ALTERNATIVE * len(node.items))
                self._budget -= len(node.items) if inner else 0
                todo.extend(reversed(node.items))
                continue
            other = self.target(node.name) if isinstance(node, Reference) else name
            is_on_cycle = other != name and self._component.get(other) == self._component[name]
            if is_on_cycle and other not in merged and other not in inner and self._budget > 0:
                inner.add(other)
                todo.append(self._rules[other])
            else:
                found.append(node)
        return inner, found


def _targets(rules: Mapping[str, Node]) -> dict[str, str]:
    """Return the end of the chain of references for each rule that is a single reference."""
    targets: dict[str, str] = {}
    for name in rules:
        chain: dict[str, None] = {}
        while name not in targets and name not in chain and isinstance(body := rules.get(name), Reference):
            chain[name] = None
            name = body.name
        targets.update(dict.fromkeys(chain, targets.get(name, name)))
    return targets


def _ends(body: Node) -> list[str]:
    """Return the rules that alternatives begin or end with."""
    found: list[str] = []
    todo = [body]
    while todo:
        node = todo.pop()
        if isinstance(node, Reference):
            found.append(node.name)
        elif isinstance(node, Alternation):
            todo.extend(node.items)
        elif isinstance(node, Sequence):
            todo.extend(node.items[:1] + node.items[1:][-1:])
        elif isinstance(node, Repeat):
            todo.append(node.item)
    return found


def _components(after: Mapping[str, Collection[str]]) -> dict[str, int]:
    """Return the strongly connected component of each node, as a number (R. Tarjan, 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    component: dict[str, int] = {}
    stack: list[str] = []
    for root in after:
        path = [(root, iter(after[root]))] if root not in order else []
        while path:
            name, successors = path[-1]
            if name not in order:
                order[name] = low[name] = len(order)
                stack.append(name)
            inner = next(successors, None)
            if inner is None:
                path.pop()
                if low[name] == order[name]:
                    while name not in component:
                        component[stack.pop()] = order[name]
                elif path:
                    outer = path[-1][0]
                    low[outer] = min(low[outer], low[name])
            elif inner not in order:
                path.append((inner, iter(after[inner])))
            elif inner not in component:
                low[name] = min(low[name], order[inner])
    return component


def _classify(name: str, alternatives: Iterable[Node], target: Callable[[str], str]) -> Recursion:
    """Classify the alternatives of a rule by where the rule itself is at their ends."""
    parts = Recursion([], [], [], [], [])
    kinds = {(True, True): parts.infix, (False, True): parts.prefix, (True, False): parts.postfix}
    for node in alternatives:
        items = node.items if isinstance(node, Sequence) else (node,)
        times = [_repeat_bounds(item, name, target) for item in items]
        if items and None not in times:
            _add_repeated(parts, [each for each in times if each is not None])
            continue
        befores, afters = _presence(times[0] if times else None), _presence(times[-1] if times else None)
        middle = items[befores != (False,) : len(items) - (afters != (False,))]
        stripped = node if len(middle) == len(items) else _sequence(middle)
        for kind in product(befores, afters):
            kinds.get(kind, parts.others).append(stripped)
    return parts


def _repeat_bounds(item: Node, name: str, target: Callable[[str], str]) -> Times | None:
    """Return the bounds of an item that is a repetition of the rule; None for any other item."""
    least, most = 1, 1
    if isinstance(item, Repeat):
        item, least, most = item.item, item.min, item.max
    return (least, most) if isinstance(item, Reference) and target(item.name) == name else None


def _presence(times: Times | None) -> tuple[bool, ...]:
    """Return all possibilities of whether the rule stands at an end, for an end item with these bounds."""
    if times == (1, 1):
        return (True,)
    return (False, True) if times == (0, 1) else (False,)


def _add_repeated(parts: Recursion, times: list[Times]) -> None:
    """Add an alternative that is only the rule: a single one is redundant, and an optional one adds the empty text."""
    least = sum(low for low, _ in times)
    most = None if any(high is None for _, high in times) else sum(high or 0 for _, high in times)
    if least == 0:
        parts.others.append(EMPTY)
    if most is None or most > 1:
        parts.repeated.append((max(2, least), most))


def _loop(parts: Recursion, nullable: bool, shared: Callable[[str, Node], Node]) -> Node:
    """Build the loop of a rule; `shared` makes nodes that may be duplicated."""
    before = [Repeat(_alternation(parts.prefix), 0, None)] if parts.prefix else []
    after = [Repeat(_alternation(parts.postfix), 0, None)] if parts.postfix else []
    unit = shared("operand", _sequence([*before, _alternation(parts.others), *after]))
    if parts.repeated and (nullable or min(least for least, _ in parts.repeated) == 2):
        return _separated_list(unit, [*parts.infix, EMPTY]) if parts.infix else Repeat(unit, 1, None)
    row = _separated_list(unit, parts.infix) if parts.infix else unit
    if not parts.repeated:
        return row
    row = shared("operands", row)
    more = [Repeat(row, least - 1, None if most is None else most - 1) for least, most in parts.repeated]
    return _sequence([row, Repeat(_alternation(more), 0, None)])


def _separated_list(unit: Node, between: list[Node]) -> Node:
    return _sequence([unit, Repeat(_sequence([_alternation(between), unit]), 0, None)])


# Nodes are not flattened into their parents: some stand for named terminals.


def _sequence(items: Collection[Node]) -> Node:
    return next(iter(items)) if len(items) == 1 else Sequence(tuple(items))


def _alternation(items: Collection[Node]) -> Node:
    return next(iter(items)) if len(items) == 1 else Alternation(tuple(items))


def _make_sharing(name: str, rules: dict[str, Node]) -> Callable[[str, Node], Node]:
    """Return a function that makes a node duplicable: the node itself if small, else a reference to a new rule."""

    def shared(what: str, node: Node) -> Node:
        if is_light(node):
            return node
        inner = f"{name} {what}"  # names in a grammar have no spaces
        rules[inner] = node
        return Reference(inner)

    return shared
