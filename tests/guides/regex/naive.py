"""Slow and obvious: which texts a plain syntax node matches, by sets of positions."""

from itertools import count

from trellm.guides.grammar import Alternation, Chars, Literal, Repeat, Sequence

from ..support import Node, Table


def matches(node: Node, text: str) -> bool:
    """Whether the node matches the whole text."""
    return len(text) in ends(node, text, 0)


def ends(node: Node, text: str, start: int) -> set[int]:
    """Where a match that begins at `start` can end."""
    match node:
        case Chars(ranges):
            inside = start < len(text) and any(low <= ord(text[start]) <= high for low, high in ranges)
            return {start + 1} if inside else set()
        case Literal(data):
            return {start + len(data.decode())} if text.startswith(data.decode(), start) else set()
        case Sequence(items):
            reached = {start}
            for item in items:
                reached = {end for begin in reached for end in ends(item, text, begin)}
            return reached
        case Alternation(items):
            return {end for item in items for end in ends(item, text, start)}
        case Repeat(item, least, most):
            return _repeat_ends(item, least, most, text, start)
        case Table():
            return _table_ends(node, text, start)
    raise AssertionError(f"a pattern has no {node}")


def _repeat_ends(item: Node, least: int, most: int | None, text: str, start: int) -> set[int]:
    current, reached = {start}, set()
    for times in count():
        if times >= least:
            if current <= reached:
                break
            reached |= current
        if times == most or not current:
            break
        current = {end for begin in current for end in ends(item, text, begin)}
    return reached


def _table_ends(table: Table, text: str, start: int) -> set[int]:
    reached, state = set(), table.start
    for position in range(start, len(text) + 1):
        if table.accepting[state]:
            reached.add(position)
        for byte in text[position : position + 1].encode():
            state = int(table.transitions[state, byte])
            if state < 0:
                return reached
    return reached
