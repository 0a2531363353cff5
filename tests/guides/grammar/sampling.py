"""Random texts of a grammar, kept short by taking the cheapest way out once a budget is spent."""

from __future__ import annotations

import math
from functools import lru_cache
from random import Random

from trellm.guides.grammar import Alternation, Chars, Grammar, Literal, Reference, Repeat, Sequence

from ..support import Node, Table

PREFERRED = [(0x61, 0x7A), (0x30, 0x39), (0x41, 0x5A), (0x20, 0x7E)]


def sample(grammar: Grammar, random: Random, budget: int) -> bytes:
    """A text of the language; `budget` is the number of rules to expand freely."""
    costs = _rule_costs(grammar)
    out: list[bytes] = []
    todo: list[Node] = [Reference(grammar.start)]
    while todo:
        match todo.pop():
            case Reference(name):
                budget -= 1
                todo.append(grammar.rules[name])
            case Literal(data):
                out.append(data)
            case Chars(ranges):
                out.append(_character(ranges, random).encode())
            case Table() as table:
                out.append(_walk(table, random))
            case Sequence(items):
                todo.extend(reversed(items))
            case Alternation(items):
                cheap = min(_cost(item, costs) for item in items)
                limit = cheap if budget <= 0 else math.inf
                todo.append(random.choice([item for item in items if _cost(item, costs) <= limit]))
            case Repeat(item, low, high):
                most = low if budget <= 0 else min(low + 2, low + 2 if high is None else high)
                todo.extend([item] * random.randint(low, most))
    return b"".join(out)


def _character(ranges: tuple[tuple[int, int], ...], random: Random) -> str:
    """A character of a random kind, mostly a letter or a digit where those are possible."""
    spans = [(max(a, low), min(b, high)) for low, high in ranges for a, b in PREFERRED]
    likely = [span for span in spans if span[0] <= span[1]]
    low, high = random.choice(likely if likely and random.random() < 0.9 else list(ranges))
    return chr(random.randint(low, high))


def _walk(table: Table, random: Random) -> bytes:
    """A random text of an automaton, along the shortest way out after a few bytes."""
    steps, away = _steps(table)
    state, out, free = table.start, bytearray(), random.randint(0, 8)
    while not (table.accepting[state] and (len(out) >= free or not steps[state])):
        hurry = len(out) >= free
        options = [b for b, to in steps[state].items() if not hurry or away[to] < away[state]]
        byte = random.choice([b for b in options if b < 0x80] or options)
        out.append(byte)
        state = steps[state][byte]
    return bytes(out)


@lru_cache(maxsize=16)
def _steps(table: Table) -> tuple[list[dict[int, int]], list[float]]:
    """The transitions of each state by byte, and how many bytes it is away from an accepting one."""
    rows = table.transitions.tolist()
    steps = [{byte: to for byte, to in enumerate(row) if to >= 0} for row in rows]
    away = [0 if accepting else math.inf for accepting in table.accepting]
    changed = True
    while changed:
        found = [min([away[s], *(away[to] + 1 for to in set(steps[s].values()))]) for s in range(len(rows))]
        changed, away = found != away, found
    return steps, away


def _rule_costs(grammar: Grammar) -> dict[str, float]:
    """The least depth of a derivation from each rule."""
    costs = dict.fromkeys(grammar.rules, math.inf)
    while True:
        found = {name: 1 + _cost(body, costs) for name, body in grammar.rules.items()}
        if found == costs:
            return costs
        costs = found


def _cost(node: Node, costs: dict[str, float]) -> float:
    match node:
        case Reference(name):
            return costs[name]
        case Sequence(items):
            return max((_cost(item, costs) for item in items), default=0)
        case Alternation(items):
            return min((_cost(item, costs) for item in items), default=math.inf)
        case Repeat(item, low, _):
            return _cost(item, costs) if low else 0
        case _:
            return 0
