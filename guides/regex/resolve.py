"""Elimination of lookarounds from a tree: by its neighbours where possible, else by an automaton.

First, conditions are replaced that their neighbours decide, or that narrow a neighbouring set. Each remaining condition
is lowered to an automaton together with the smallest window of items that decides it: a condition that looks at
most n characters ahead needs only following items with a total minimum length of n.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import NamedTuple

from ..automata.charsets import intersect, negate, union
from ..limits import spend
from ..syntax import EMPTY, NOTHING, Alternation, Chars, Literal, Node, Ranges, Repeat, Sequence
from .lookaround import lower_lookarounds
from .tree import (
    ENDLESS,
    NO_GROUPS,
    STEPS_PER_NODE,
    AtomicGroup,
    Concat,
    Lookaround,
    LookaroundAlternation,
    LookaroundLoop,
    Looking,
    NamedGroup,
    Tree,
    concat,
    either,
    lengths,
    repeat,
)


class NeighbourTest(NamedTuple):
    """The neighbour on one side of a position: one of these characters, or the edge of the text."""

    chars: Ranges
    edge: bool


EDGE = NeighbourTest((), True)


def resolve(tree: Tree, max_states: int) -> Node:
    """Return a plain node with the language of the tree. Raises LimitError if that takes more than `max_states`."""
    return _Lowering(max_states).lower(simplify(tree, EDGE, EDGE))


# Conditions that their neighbours decide


def simplify(tree: Tree, left: NeighbourTest, right: NeighbourTest) -> Tree:
    """Drop the conditions that their neighbours, inside the tree or on its sides, decide."""
    if isinstance(tree, Lookaround):
        holds = _decide(tree, left, right)
        return tree if holds is None else EMPTY if holds else NOTHING
    if isinstance(tree, LookaroundAlternation):
        return either([simplify(item, left, right) for item in tree.items])
    if isinstance(tree, LookaroundLoop):
        if tree.max != 1:
            left = _join(tree.item, left, ahead=False, optional=True)
            right = _join(tree.item, right, ahead=True, optional=True)
        return repeat(simplify(tree.item, left, right), tree.min, tree.max)
    if isinstance(tree, Concat):
        return concat(_absorb(_simplify_items(tree.items, left, right)))
    return tree


def _simplify_items(items: tuple[Tree, ...], left: NeighbourTest, right: NeighbourTest) -> list[Tree]:
    rights = [right]
    for item in reversed(items[1:]):
        rights.append(_join(item, rights[-1], ahead=True))
    done: list[Tree] = []
    for item, following in zip(items, reversed(rights), strict=True):
        done.append(simplify(item, left, following))
        left = _join(done[-1], left, ahead=False)
    return done


def _join(item: Tree, outer: NeighbourTest, ahead: bool, optional: bool = False) -> NeighbourTest:
    """Return the side seen at `item` with `outer` behind it."""
    ranges, nullable = edge_of(item, ahead)
    if nullable or optional:
        return NeighbourTest(union(ranges, outer.chars), outer.edge)
    return NeighbourTest(ranges, False)


def edge_of(tree: Tree, ahead: bool) -> tuple[Ranges, bool]:
    """Return (first, or last, characters of its texts; whether a text may be empty). Both are overapproximations."""
    spend(STEPS_PER_NODE)
    if isinstance(tree, Chars):
        return tree.ranges, False
    if isinstance(tree, Literal):
        if not tree.data:
            return (), True
        text = tree.data[:4].decode(errors="ignore") if ahead else tree.data[-4:].decode(errors="ignore")
        code = ord(text[0 if ahead else -1])
        return ((code, code),), False
    if isinstance(tree, (Sequence, Concat)):
        found: Ranges = ()
        for item in tree.items if ahead else reversed(tree.items):
            ranges, nullable = edge_of(item, ahead)
            found = union(found, ranges)
            if not nullable:
                return found, False
        return found, True
    if isinstance(tree, (Alternation, LookaroundAlternation)):
        found, empty = (), False
        for item in tree.items:
            ranges, nullable = edge_of(item, ahead)
            found, empty = union(found, ranges), empty or nullable
        return found, empty
    if isinstance(tree, (Repeat, LookaroundLoop)):
        ranges, nullable = edge_of(tree.item, ahead)
        return ranges, nullable or tree.min == 0
    return (), True


def _decide(look: Lookaround, left: NeighbourTest, right: NeighbourTest) -> bool | None:
    """Test whether the condition holds between these sides; None if the text decides."""
    side = right if look.ahead else left
    found = _matches_empty(look.body, left, right)
    if not found:
        edge = edge_of(look.body, look.ahead)[0]
        spend(len(edge) + len(side.chars))
        seen = intersect(edge, side.chars)
        if seen:
            found = True if seen == side.chars and isinstance(look.body, Chars) and not side.edge else None
    return None if found is None else found != look.negative


def _matches_empty(tree: Tree, left: NeighbourTest, right: NeighbourTest) -> bool | None:
    """Test whether the tree matches the empty text between these sides; None if the text decides."""
    spend(STEPS_PER_NODE)
    if isinstance(tree, Lookaround):
        return _decide(tree, left, right)
    if isinstance(tree, (Sequence, Concat)):
        parts = {_matches_empty(item, left, right) for item in tree.items}
        return False if False in parts else None if None in parts else True
    if isinstance(tree, (Alternation, LookaroundAlternation)):
        parts = {_matches_empty(item, left, right) for item in tree.items}
        return True if True in parts else None if None in parts else False
    if isinstance(tree, (Repeat, LookaroundLoop)):
        return True if tree.min == 0 else _matches_empty(tree.item, left, right)
    return isinstance(tree, Literal) and not tree.data


def _absorb(items: list[Tree]) -> list[Tree]:
    """Narrow sets by adjacent conditions on one character."""
    items = _narrow(items, ahead=True)
    items.reverse()
    items = _narrow(items, ahead=False)
    items.reverse()
    return items


def _narrow(items: list[Tree], ahead: bool) -> list[Tree]:
    """Narrow the set after each condition in one direction; the items come in that direction's order."""
    done: list[Tree] = []  # backwards
    for item in reversed(items):
        if not (isinstance(item, Lookaround) and item.ahead == ahead and isinstance(item.body, Chars)):
            done.append(item)
            continue
        allowed = negate(item.body.ranges) if item.negative else item.body.ranges
        following = done[-1] if done else EMPTY
        if isinstance(following, Chars):
            done[-1] = _chars(intersect(following.ranges, allowed))
        elif isinstance(following, Repeat) and following.min and isinstance(following.item, Chars):
            most = None if following.max is None else following.max - 1
            done[-1:] = [
                repeat(following.item, following.min - 1, most),
                _chars(intersect(following.item.ranges, allowed)),
            ]
        else:
            done.append(item)
    done.reverse()
    return done


def _chars(ranges: Ranges) -> Node:
    return Chars(ranges) if ranges else NOTHING


# Conditions that take an automaton


class _Lowering:
    """Lowering of trees; equal subtrees share one automaton."""

    def __init__(self, max_states: int) -> None:
        self._max_states = max_states
        self._cache: dict[Tree, Node] = {}

    def lower(self, tree: Tree) -> Node:
        """Lower a tree whose conditions look at nothing beyond it."""
        if isinstance(tree, LookaroundAlternation):
            return _as_node(either([self.lower(item) for item in tree.items]))
        if isinstance(tree, LookaroundLoop) and _reach(tree.item) == (0, 0):
            return _as_node(repeat(self.lower(tree.item), tree.min, tree.max))
        if isinstance(tree, Concat):
            parts: list[Tree] = []
            for begin, end in _windows(tree.items):
                if end - begin == 1:
                    parts.append(self.lower(tree.items[begin]))
                else:
                    parts.append(self._automaton(concat(tree.items[begin:end])))
            return _as_node(concat(parts))
        if isinstance(tree, (Lookaround, LookaroundLoop)):
            return self._automaton(tree)
        assert not isinstance(tree, (NamedGroup, AtomicGroup)), NO_GROUPS
        return tree

    def _automaton(self, tree: Tree) -> Node:
        known = self._cache.get(tree)
        if known is None:
            known = self._cache[tree] = lower_lookarounds(tree, self._max_states)
        return known


def _windows(items: tuple[Tree, ...]) -> list[tuple[int, int]]:
    """Split a sequence into spans whose conditions look at nothing beyond their span."""
    before = [0, *accumulate(lengths(item)[0] for item in items)]
    spans: list[tuple[int, int]] = []
    for index, item in enumerate(items):
        behind, ahead = _reach(item)
        begin, end = index, index + 1
        if behind > 0:
            begin = max(bisect_right(before, before[index] - behind) - 1, 0)
        if ahead > 0:
            end = min(bisect_left(before, before[end] + ahead), len(items))
        while spans and spans[-1][1] > begin:
            last = spans.pop()
            begin, end = min(begin, last[0]), max(end, last[1])
        spans.append((begin, end))
    return spans


def _reach(tree: Tree) -> tuple[int, int]:
    """Return the most characters beyond its left and its right end that its conditions look at."""
    spend(STEPS_PER_NODE)
    if isinstance(tree, Lookaround):
        behind, ahead = _reach(tree.body)
        most = lengths(tree.body)[1]
        return (behind, min(most + ahead, ENDLESS)) if tree.ahead else (min(most + behind, ENDLESS), ahead)
    if isinstance(tree, LookaroundAlternation):
        reaches = [_reach(item) for item in tree.items]
        return max(reach[0] for reach in reaches), max(reach[1] for reach in reaches)
    if isinstance(tree, LookaroundLoop):
        return _reach(tree.item)
    if isinstance(tree, Concat):
        behind = ahead = before = 0
        for item in tree.items:
            reach = _reach(item)
            fewest = lengths(item)[0]
            behind = max(behind, reach[0] - before)
            ahead = max(ahead - fewest, reach[1])
            before += fewest
        return behind, max(ahead, 0)
    return 0, 0


def _as_node(tree: Tree) -> Node:
    assert not isinstance(tree, Looking), "lowered parts hold no conditions"
    return tree
