"""Atomic groups by looking ahead: of the ways to match that a search would try, the first one that there is.

`re` tries the ways through a group in an order, and leaves an atomic group by the first that matches, for good. What
decides which one that is stands in the text ahead: an alternative is taken if none before it matches there, a repeat
goes on as long as another turn can be completed. So a group becomes a tree of the same texts in which conditions on
what follows leave one way at most. Inside the group, a way matches only together with what comes after it in the group;
what stands behind the group has no say.

A turn of a repeat that reads nothing is its last one, as in `re`.
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
    Either,
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
"""Up to how many turns are written out that a bounded repeat may have, but need not."""

Lazy = dict[int, Tree]
"""The repeats that are lazy, by their identity; they are held, so that nothing else can have it."""


class MatchWay(NamedTuple):
    """One of the ways through a tree, in the order of the search: texts that are not empty, or the empty one."""

    tree: Tree
    is_empty: bool


class Atomic:
    """Makes trees atomic. lazy: the repeats in them that try fewer turns first; more are added."""

    def __init__(self, lazy: Lazy) -> None:
        self._lazy = lazy

    def group(self, tree: Tree) -> Tree:
        """The language of `(?>tree)`."""
        return self._first(tree, EMPTY)

    def possessive(self, item: Tree, low: int, high: int | None) -> Tree:
        """The language of a possessive repeat: each turn is left for good, too."""
        return self._first(repeat(self.group(item), low, high), EMPTY)

    def _first(self, tree: Tree, after: Tree) -> Tree:
        """The tree without the ways after which `after` can match, but for the first of these.

        What follows the result asks for `after`, so that other ways need not be taken out.
        """
        spend(STEPS_PER_NODE)
        if not _has_choice(tree):
            return tree
        if isinstance(tree, (Sequence, Concat)):
            items = tree.items
            return concat([self._first(item, concat([*items[at + 1 :], after])) for at, item in enumerate(items)])
        if isinstance(tree, (Alternation, Either)):
            return self._one_of(tree.items, after)
        if isinstance(tree, (Repeat, LookaroundLoop)):
            return self._repeat(tree, after)
        return tree

    def _one_of(self, items: ListOf[Tree], after: Tree) -> Tree:
        """The first of the items that matches; one is asked about those before it that may match the same text."""
        begins = [_beginning(item) for item in items]
        found: list[Tree] = []
        for at, item in enumerate(items):
            spend(at)
            begin = begins[at]
            rivals = [items[n] for n in range(at) if begin.startswith(begins[n]) or begins[n].startswith(begin)]
            if not (_always(after) and any(isinstance(one, Literal) and begin.startswith(one.data) for one in rivals)):
                guard = _unless([concat([either(rivals), after])])
                found.append(concat([guard, self._first(item, after)]))
        return either(found)

    def _repeat(self, tree: Repeat | LookaroundLoop, after: Tree) -> Tree:
        item, low, high = tree.item, tree.min, tree.max
        if lengths(item)[1] == 0:
            return item if low else EMPTY
        is_lazy = id(tree) in self._lazy
        if single_character(item) is not None and _always(after):
            return repeat(item, low, low) if is_lazy else _all_of(item, low, high)
        if not _has_choice(item) and _are_apart(item, after):
            return tree
        if max(low, (high or 0) - low) > MAX_TURNS:
            raise LimitError(
                f"a repeat in an atomic group, or a possessive one, goes up to {high or low:,} turns; of more than one "
                f"character these may be {MAX_TURNS}, which is fixed: leave the count open, or write an ordinary one"
            )
        turns = [self._first(item, concat([self._again(tree, done), after])) for done in range(1, low + 1)]
        optional = repeat(item, 0, None if high is None else high - low)
        if optional is EMPTY:
            return concat(turns)
        rest = self._lazy_turns if is_lazy else self._greedy_turns
        return concat([*turns, rest(item, None if high is None else high - low, after)])

    def _again(self, tree: Repeat | LookaroundLoop, done: int) -> Tree:
        """The rest of a repeat after some of the turns that it must have."""
        return self._like(tree, tree.min - done, None if tree.max is None else tree.max - done)

    def _like(self, tree: Repeat | LookaroundLoop, low: int, high: int | None) -> Tree:
        """A repeat of the same item, lazy if that is."""
        made = repeat(tree.item, low, high)
        if id(tree) in self._lazy and isinstance(made, (Repeat, LookaroundLoop)) and made is not tree.item:
            self._lazy[id(made)] = made
        return made

    def _greedy_turns(self, item: Tree, most: int | None, after: Tree) -> Tree:
        """Turns as long as one can be completed; one that reads nothing is the last."""
        if most is None:
            body, leave = self._turn(item, repeat(item, 0, None), after)
            return concat([repeat(body, 0, None), leave])
        found: Tree = EMPTY
        for left in range(most):
            body, leave = self._turn(item, repeat(item, 0, left), after)
            found = either([concat([body, found]), leave])
        return found

    def _turn(self, item: Tree, again: Tree, after: Tree) -> tuple[Tree, Tree]:
        """A turn that reads something and is followed by another, and the ways to leave the repeat here."""
        turns: list[Tree] = []
        exits: list[Tree] = []
        before: list[Tree] = []
        for way in self._ways(item):
            if way.is_empty:
                exits.append(concat([_unless(before), way.tree]))
                before.append(concat([way.tree, after]))
            else:
                further = concat([again, after])
                turns.append(concat([_unless(before), self._first(way.tree, further)]))
                before.append(concat([way.tree, further]))
        return either(turns), either([*exits, _unless(before)])

    def _lazy_turns(self, item: Tree, most: int | None, after: Tree) -> Tree:
        """Turns as long as what comes after cannot match; those that read nothing change nothing."""
        found: Tree = EMPTY
        for left in range(1 if most is None else most):
            again = repeat(item, 0, None if most is None else left)
            reading = either([way.tree for way in self._ways(item) if not way.is_empty])
            turn = concat([_unless([after]), self._first(reading, concat([again, after]))])
            found = repeat(turn, 0, None) if most is None else repeat(concat([turn, found]), 0, 1)
        return found

    def _ways(self, tree: Tree) -> list[MatchWay]:
        """The ways through a tree in the order of the search, those that read nothing apart from the others."""
        spend(STEPS_PER_NODE)
        fewest, most = lengths(tree)
        if fewest or most == 0:
            return [MatchWay(tree, most == 0)]
        if isinstance(tree, (Sequence, Concat)):
            rest = concat(tree.items[1:])
            found: list[MatchWay] = []
            for way in self._ways(tree.items[0]):
                after = self._ways(rest) if way.is_empty and rest is not EMPTY else [MatchWay(rest, way.is_empty)]
                found += [MatchWay(concat([way.tree, each.tree]), each.is_empty) for each in after]
        elif isinstance(tree, (Alternation, Either)):
            found = [way for item in tree.items for way in self._ways(item)]
        else:
            assert isinstance(tree, (Repeat, LookaroundLoop)), "other trees read one number of characters"
            found = self._ways_of_turns(tree)
        return list(dict.fromkeys(found))

    def _ways_of_turns(self, tree: Repeat | LookaroundLoop) -> list[MatchWay]:
        if tree.min:
            return self._ways(Concat((tree.item, self._again(tree, 1))))
        again = self._like(tree, 0, None if tree.max is None else tree.max - 1)
        turns = self._ways(tree.item)
        reading = [way if way.is_empty else MatchWay(concat([way.tree, again]), False) for way in turns]
        if id(tree) in self._lazy:
            return [MatchWay(EMPTY, True), *(way for way in reading if not way.is_empty)]
        return [*reading, MatchWay(EMPTY, True)]


def _all_of(item: Tree, low: int, high: int | None) -> Tree:
    """As many of a character as there are."""
    if high is None:
        return concat([repeat(item, low, None), _unless([item])])
    if high == low:
        return repeat(item, low, low)
    return either([concat([repeat(item, low, high - 1), _unless([item])]), repeat(item, high, high)])


def _unless(bodies: ListOf[Tree]) -> Tree:
    """The condition that none of these matches ahead."""
    kept = [_needed(body) for body in bodies if body is not NOTHING]
    if any(body is EMPTY for body in kept):
        return NOTHING
    return look(either(kept), ahead=True, negative=True) if kept else EMPTY


def _needed(body: Tree) -> Tree:
    """The condition for a tree to match a beginning of the text ahead."""
    if _always(body):
        return EMPTY
    if isinstance(body, (Sequence, Concat)):
        items = list(body.items)
        while _always(items[-1]):
            items.pop()
        return concat([*items[:-1], _needed(items[-1])])
    return repeat(body.item, body.min, body.min) if isinstance(body, (Repeat, LookaroundLoop)) else body


def _always(tree: Tree) -> bool:
    """Tell whether a tree matches the empty text wherever it stands."""
    if isinstance(tree, (Sequence, Concat)):
        return all(map(_always, tree.items))
    if isinstance(tree, (Alternation, Either)):
        return any(map(_always, tree.items))
    if isinstance(tree, (Repeat, LookaroundLoop)):
        return tree.min == 0 or _always(tree.item)
    return isinstance(tree, Literal) and not tree.data


def _are_apart(left: Tree, right: Tree) -> bool:
    """Tell whether the next character tells the texts of one tree from those of the other, neither empty."""
    (of_left, left_empty), (of_right, right_empty) = edge_of(left, ahead=True), edge_of(right, ahead=True)
    return not (left_empty or right_empty or intersect(of_left, of_right))


def _beginning(tree: Tree) -> bytes:
    """The characters that all texts of a tree begin with, as far as that is plain to see."""
    if isinstance(tree, (Sequence, Concat)) and tree.items:
        tree = tree.items[0]
    return tree.data if isinstance(tree, Literal) else b""


def _has_choice(tree: Tree) -> bool:
    """Tell whether there may be several ways through a tree."""
    if isinstance(tree, (Sequence, Concat)):
        return any(map(_has_choice, tree.items))
    if isinstance(tree, (Repeat, LookaroundLoop)):
        return tree.min != tree.max or _has_choice(tree.item)
    return isinstance(tree, (Alternation, Either))
