"""How short the texts of rules can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from ..syntax import Alternation, Chars, Literal, Node, Reference, Repeat, Sequence, Table

INFINITE = 2**30


def shortest_texts(rules: Mapping[str, Node], known: Mapping[str, int]) -> Callable[[], Mapping[str, int]]:
    """A function that gives the fewest bytes of a text of each rule; computed at its first call.

    known: of rules without a body. Quickest where rules come after those that they refer to.
    """

    @cache
    def compute() -> Mapping[str, int]:
        lengths = {**known, **dict.fromkeys(rules, INFINITE)}
        changed = True
        while changed:
            changed = False
            for name, body in rules.items():
                length = _shortest(body, lengths)
                if length < lengths[name]:
                    lengths[name] = length
                    changed = True
        return lengths

    return compute


def _shortest(node: Node, lengths: Mapping[str, int]) -> int:
    match node:
        case Literal(data):
            return len(data)
        case Chars(ranges):
            return len(chr(ranges[0][0]).encode()) if ranges else INFINITE
        case Sequence(items):
            return min(INFINITE, sum(_shortest(item, lengths) for item in items))
        case Alternation(items):
            return min((_shortest(item, lengths) for item in items), default=INFINITE)
        case Repeat(item, least, _):
            return min(INFINITE, least * _shortest(item, lengths)) if least else 0
        case Reference(name):
            return lengths[name]
        case Table():
            return _shortest_in_table(node)


def _shortest_in_table(table: Table) -> int:
    """Breadth first from the start to an accepting state."""
    level = np.array([table.start])
    seen = np.zeros(len(table.accepting), np.bool_)
    length = 0
    while len(level):
        if table.accepting[level].any():
            return length
        seen[level] = True
        after = np.unique(table.transitions[level])
        level = after[(after >= 0) & ~seen[after]]
        length += 1
    return INFINITE
