"""Atomic groups by lookahead: keep only the first way to match in the search order.

`re` tries the ways through a group in an order, and never backtracks into an atomic group after its first match. The
text ahead decides that match: an alternative is taken if no earlier one matches there; a repeat continues while another
iteration can be completed. A group becomes a tree of the same texts in which lookaheads leave at most one way. A way
must match together with the rest of the group, but the text behind the group has no influence.

An iteration of a repeat that reads nothing is the last one, as in `re`.
"""

from __future__ import annotations

from collections.abc import Sequence as ListOf
from typing import NamedTuple

from ...errors import LimitError
from ..automata.charsets import intersect
from ..limits import spend
from ..syntax import EMPTY, NOTHING, Alternation, Literal, Repeat, Sequence
from .resolve import edge_of
from .tree import (
    STEPS_PER_NODE,
    Concat,
    LookaroundAlternation,
    LookaroundLoop,
    Tree,
    concat,
    either,
    lengths,
    look,
    repeat,
    single_character,
)

MAX_TURNS = 64
"""The most optional or required iterations of a bounded repeat that are written out."""

Lazy = dict[int, Tree]
"""The lazy repeats, by id. Holding the nodes keeps their ids unique."""


class MatchPath(NamedTuple):
    """One of the ways through a tree, in search order; all its texts are nonempty, or all are empty."""

    tree: Tree
    is_empty: bool


class Atomic:
    """Conversion of trees to atomic ones.

    lazy: the repeats in them that try fewer iterations first; new ones are added
    """

    def __init__(self, lazy: Lazy) -> None:
        self._lazy = lazy

    def group(self, tree: Tree) -> Tree:
        """Return the language of `(?>tree)`."""
        return self._first_way(tree, EMPTY)

    def possessive(self, item: Tree, low: int, high: int | None) -> Tree:
        """Return the language of a possessive repeat; each iteration is atomic too."""
        return self._first_way(repeat(self.group(item), low, high), EMPTY)

    def _first_way(self, tree: Tree, after: Tree) -> Tree:
        """Restrict a tree to the first of the ways after which `after` can match.

        The caller appends `after` to the result, so that other ways need not be excluded.
        """
        spend(STEPS_PER_NODE)
        if not _has_choice(tree):
            return tree
        if isinstance(tree, (Sequence, Concat)):
            items = tree.items
            return concat([self._first_way(item, concat([*items[at + 1 :], after])) for at, item in enumerate(items)])
        if isinstance(tree, (Alternation, LookaroundAlternation)):
            return self._first_alternative(tree.items, after)
        if isinstance(tree, (Repeat, LookaroundLoop)):
            return self._restrict_repeat(tree, after)
        return tree

    def _first_alternative(self, items: ListOf[Tree], after: Tree) -> Tree:
        """Return the first of the items that matches. Lookaheads exclude earlier items that may match the same text."""
        begins = [_common_prefix(item) for item in items]
        found: list[Tree] = []
        for at, item in enumerate(items):
            spend(at)
            begin = begins[at]
            earlier = [items[n] for n in range(at) if begin.startswith(begins[n]) or begins[n].startswith(begin)]
            if not (
                _is_nullable(after)
                and any(isinstance(other, Literal) and begin.startswith(other.data) for other in earlier)
            ):
                guard = _negative_lookahead([concat([either(earlier), after])])
                found.append(concat([guard, self._first_way(item, after)]))
        return either(found)

    def _restrict_repeat(self, tree: Repeat | LookaroundLoop, after: Tree) -> Tree:
        item, low, high = tree.item, tree.min, tree.max
        if lengths(item)[1] == 0:
            return item if low else EMPTY
        is_lazy = id(tree) in self._lazy
        if single_character(item) is not None and _is_nullable(after):
            return repeat(item, low, low) if is_lazy else _maximal_repeat(item, low, high)
        if not _has_choice(item) and _are_disjoint(item, after):
            return tree
        if max(low, (high or 0) - low) > MAX_TURNS:
            raise LimitError(
                f"a repeat in an atomic group, or a possessive one, has up to {high or low:,} iterations; of more than "
                f"one character the fixed limit is {MAX_TURNS}: leave the count open, or write an ordinary repeat"
            )
        turns = [self._first_way(item, concat([self._remaining(tree, done), after])) for done in range(1, low + 1)]
        optional = repeat(item, 0, None if high is None else high - low)
        if optional is EMPTY:
            return concat(turns)
        make_turns = self._lazy_turns if is_lazy else self._greedy_turns
        return concat([*turns, make_turns(item, None if high is None else high - low, after)])

    def _remaining(self, tree: Repeat | LookaroundLoop, done: int) -> Tree:
        """Return the rest of a repeat after `done` of its required iterations."""
        return self._repeat_like(tree, tree.min - done, None if tree.max is None else tree.max - done)

    def _repeat_like(self, tree: Repeat | LookaroundLoop, low: int, high: int | None) -> Tree:
        """Return a repeat of the same item, lazy if the given one is."""
        result = repeat(tree.item, low, high)
        if id(tree) in self._lazy and isinstance(result, (Repeat, LookaroundLoop)) and result is not tree.item:
            self._lazy[id(result)] = result
        return result

    def _greedy_turns(self, item: Tree, most: int | None, after: Tree) -> Tree:
        """Return as many iterations as can be completed; one that reads nothing is the last."""
        if most is None:
            body, leave = self._split_iteration(item, repeat(item, 0, None), after)
            return concat([repeat(body, 0, None), leave])
        found: Tree = EMPTY
        for left in range(most):
            body, leave = self._split_iteration(item, repeat(item, 0, left), after)
            found = either([concat([body, found]), leave])
        return found

    def _split_iteration(self, item: Tree, remaining: Tree, after: Tree) -> tuple[Tree, Tree]:
        """Return an iteration that reads something and is followed by others, and the ways to leave the repeat."""
        turns: list[Tree] = []
        exits: list[Tree] = []
        before: list[Tree] = []
        for way in self._ways(item):
            if way.is_empty:
                exits.append(concat([_negative_lookahead(before), way.tree]))
                before.append(concat([way.tree, after]))
            else:
                further = concat([remaining, after])
                turns.append(concat([_negative_lookahead(before), self._first_way(way.tree, further)]))
                before.append(concat([way.tree, further]))
        return either(turns), either([*exits, _negative_lookahead(before)])

    def _lazy_turns(self, item: Tree, most: int | None, after: Tree) -> Tree:
        """Return as many iterations as needed until `after` can match; iterations that read nothing are dropped."""
        found: Tree = EMPTY
        for left in range(1 if most is None else most):
            remaining = repeat(item, 0, None if most is None else left)
            reading = either([way.tree for way in self._ways(item) if not way.is_empty])
            turn = concat([_negative_lookahead([after]), self._first_way(reading, concat([remaining, after]))])
            found = repeat(turn, 0, None) if most is None else repeat(concat([turn, found]), 0, 1)
        return found

    def _ways(self, tree: Tree) -> list[MatchPath]:
        """Return the ways through a tree in search order; empty matches are separate ways."""
        spend(STEPS_PER_NODE)
        fewest, most = lengths(tree)
        if fewest or most == 0:
            return [MatchPath(tree, most == 0)]
        if isinstance(tree, (Sequence, Concat)):
            rest = concat(tree.items[1:])
            found: list[MatchPath] = []
            for way in self._ways(tree.items[0]):
                after = self._ways(rest) if way.is_empty and rest is not EMPTY else [MatchPath(rest, way.is_empty)]
                found += [MatchPath(concat([way.tree, each.tree]), each.is_empty) for each in after]
        elif isinstance(tree, (Alternation, LookaroundAlternation)):
            found = [way for item in tree.items for way in self._ways(item)]
        else:
            assert isinstance(tree, (Repeat, LookaroundLoop)), "other trees read one number of characters"
            found = self._ways_of_turns(tree)
        return list(dict.fromkeys(found))

    def _ways_of_turns(self, tree: Repeat | LookaroundLoop) -> list[MatchPath]:
        if tree.min:
            return self._ways(Concat((tree.item, self._remaining(tree, 1))))
        remaining = self._repeat_like(tree, 0, None if tree.max is None else tree.max - 1)
        turns = self._ways(tree.item)
        reading = [way if way.is_empty else MatchPath(concat([way.tree, remaining]), False) for way in turns]
        if id(tree) in self._lazy:
            return [MatchPath(EMPTY, True), *(way for way in reading if not way.is_empty)]
        return [*reading, MatchPath(EMPTY, True)]


def _maximal_repeat(item: Tree, low: int, high: int | None) -> Tree:
    """Return as many of a single character as there are, within the bounds."""
    if high is None:
        return concat([repeat(item, low, None), _negative_lookahead([item])])
    if high == low:
        return repeat(item, low, low)
    return either([concat([repeat(item, low, high - 1), _negative_lookahead([item])]), repeat(item, high, high)])


def _negative_lookahead(bodies: ListOf[Tree]) -> Tree:
    """Return the condition that none of the bodies matches ahead."""
    minimal = [_minimal_body(body) for body in bodies if body is not NOTHING]
    if any(body is EMPTY for body in minimal):
        return NOTHING
    return look(either(minimal), ahead=True, negative=True) if minimal else EMPTY


def _minimal_body(body: Tree) -> Tree:
    """Return a smaller tree that matches a prefix of the text ahead exactly if `body` does."""
    if _is_nullable(body):
        return EMPTY
    if isinstance(body, (Sequence, Concat)):
        items = list(body.items)
        while _is_nullable(items[-1]):
            items.pop()
        return concat([*items[:-1], _minimal_body(items[-1])])
    return repeat(body.item, body.min, body.min) if isinstance(body, (Repeat, LookaroundLoop)) else body


def _is_nullable(tree: Tree) -> bool:
    """Test whether a tree matches the empty text everywhere."""
    if isinstance(tree, (Sequence, Concat)):
        return all(map(_is_nullable, tree.items))
    if isinstance(tree, (Alternation, LookaroundAlternation)):
        return any(map(_is_nullable, tree.items))
    if isinstance(tree, (Repeat, LookaroundLoop)):
        return tree.min == 0 or _is_nullable(tree.item)
    return isinstance(tree, Literal) and not tree.data


def _are_disjoint(left: Tree, right: Tree) -> bool:
    """Test whether the first character separates the texts of two trees, neither of which matches the empty text."""
    (of_left, left_empty), (of_right, right_empty) = edge_of(left, ahead=True), edge_of(right, ahead=True)
    return not (left_empty or right_empty or intersect(of_left, of_right))


def _common_prefix(tree: Tree) -> bytes:
    """Return a common prefix of all texts of a tree, as far as its first literal shows."""
    if isinstance(tree, (Sequence, Concat)) and tree.items:
        tree = tree.items[0]
    return tree.data if isinstance(tree, Literal) else b""


def _has_choice(tree: Tree) -> bool:
    """Test whether there may be several ways through a tree."""
    if isinstance(tree, (Sequence, Concat)):
        return any(map(_has_choice, tree.items))
    if isinstance(tree, (Repeat, LookaroundLoop)):
        return tree.min != tree.max or _has_choice(tree.item)
    return isinstance(tree, (Alternation, LookaroundAlternation))
