"""Inlining of small rules that do not recur.

The language stays the same. A call costs the automaton an entry in every state inside the rule; copying a
few nodes does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import is_

from ..limits import spend
from ..syntax import Alternation, Chars, Literal, Node, Reference, Repeat, Sequence
from .grammar import STEPS_PER_NODE, Grammar, children, references

MAX_WEIGHT = 48
"""Graph nodes that may be duplicated. Beyond that a rule is called, and every call costs the automaton an entry."""


def inlined(grammar: Grammar) -> dict[str, Node]:
    """Return the reachable rules with small rules inlined, callees before callers as far as possible.

    References to small rules without references are replaced by their bodies. Rules on a cycle are never inlined.
    """
    rules: dict[str, Node] = {}
    small: dict[str, Node] = {}
    for name in _innermost_first(grammar):
        body = rules[name] = substitute(grammar.rules[name], small)
        if is_light(body) and next(references(body), None) is None:
            small[name] = body
    return rules


def is_light(node: Node) -> bool:
    """Test whether a node becomes at most about MAX_WEIGHT graph nodes; a reference counts as one."""
    weight, todo = 0, [node]
    while todo and weight <= MAX_WEIGHT:
        item = todo.pop()
        if isinstance(item, Literal):
            weight += max(1, len(item.data))
        elif isinstance(item, Chars) and item.ranges and item.ranges[-1][1] >= 0x80:
            weight += 4 + len(item.ranges)
        else:
            weight += 1
            todo.extend(children(item))
    return weight <= MAX_WEIGHT


def _innermost_first(grammar: Grammar) -> Iterator[str]:
    """Yield the reachable rules in depth-first postorder."""
    entered = {grammar.start, *grammar.parts}
    path = [(grammar.start, references(grammar.rules[grammar.start]))]
    while path:
        name, callees = path[-1]
        inner = next((inner for inner in callees if inner not in entered), None)
        if inner is None:
            path.pop()
            yield name
        else:
            entered.add(inner)
            path.append((inner, references(grammar.rules[inner])))


def substitute(node: Node, small: Mapping[str, Node]) -> Node:
    """Return the node with references to these rules replaced by their bodies; unchanged parts are shared."""
    spend(STEPS_PER_NODE)
    match node:
        case Reference(name):
            return small.get(name, node)
        case Sequence(items) | Alternation(items):
            changed = [substitute(item, small) for item in items]
            if all(map(is_, items, changed)):
                return node
            return type(node)(tuple(changed))
        case Repeat(item, least, most):
            replaced = substitute(item, small)
            return node if replaced is item else Repeat(replaced, least, most)
        case _:
            return node
