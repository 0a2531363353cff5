"""Lengths of the texts that trees match."""

from __future__ import annotations

from ..limits import spend
from ..syntax import Alternation, Chars, Literal, Repeat, Sequence
from .tree import Concat, Either, FirstWay, LookaroundLoop, NamedGroup, Tree

ENDLESS = 2**60
STEPS_PER_NODE = 50


Span = tuple[int, int]
Known = dict[int, tuple[Tree, Span]]
"""What was found for trees, by their identity; the trees are held, so that nothing else can have it."""


def lengths(tree: Tree, known: Known | None = None) -> Span:
    """(Fewest, most) characters of the texts it matches; ENDLESS is without bound. Looks have none.

    known: what is found is looked up there and added, for who asks about parts of the same trees again
    """
    if known is None:
        return _lengths(tree, {})
    found = known.get(id(tree))
    if found is None:
        found = known[id(tree)] = tree, _lengths(tree, known)
    return found[1]


def _lengths(tree: Tree, known: Known) -> Span:
    spend(STEPS_PER_NODE)
    if isinstance(tree, Chars):
        return 1, 1
    if isinstance(tree, Literal):
        count = len(tree.data.decode())
        return count, count
    if isinstance(tree, (Sequence, Concat)):
        pairs = [lengths(item, known) for item in tree.items]
        return sum(pair[0] for pair in pairs), min(sum(pair[1] for pair in pairs), ENDLESS)
    if isinstance(tree, (Alternation, Either)):
        pairs = [lengths(item, known) for item in tree.items]
        if not pairs:
            return 0, 0
        return min(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    if isinstance(tree, (Repeat, LookaroundLoop)):
        low, high = lengths(tree.item, known)
        most = 0 if high == 0 else ENDLESS if tree.max is None else min(high * tree.max, ENDLESS)
        return min(low * tree.min, ENDLESS), most
    if isinstance(tree, (NamedGroup, FirstWay)):
        return lengths(tree.item, known)
    return 0, 0
