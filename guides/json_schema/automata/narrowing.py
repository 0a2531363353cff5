"""Lengths of the texts of a syntax node, and nodes narrowed to the texts within given lengths."""

from __future__ import annotations

from collections.abc import Sequence as ListOf

from ...regex.measure import ENDLESS, Known, lengths
from ...syntax import EMPTY, NOTHING, Alternation, Node, Repeat, Sequence
from .spelling import has_table

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
    """How many nodes there are in a node."""
    match node:
        case Sequence(items) | Alternation(items):
            return 1 + sum(size(item) for item in items)
        case Repeat(item, _, _):
            return 1 + size(item)
        case _:
            return 1
