"""Lengths of the texts that trees match."""

from __future__ import annotations

from ..limits import spend
from ..syntax import Alternation, Chars, Literal, Repeat, Sequence
from .tree import Concat, Either, Loop, Tree

ENDLESS = 2**60
STEPS_PER_NODE = 50


def lengths(tree: Tree) -> tuple[int, int]:
    """(Fewest, most) characters of the texts it matches; ENDLESS is without bound. Looks have none."""
    spend(STEPS_PER_NODE)
    if isinstance(tree, Chars):
        return 1, 1
    if isinstance(tree, Literal):
        count = len(tree.data.decode())
        return count, count
    if isinstance(tree, (Sequence, Concat)):
        pairs = [lengths(item) for item in tree.items]
        return sum(pair[0] for pair in pairs), min(sum(pair[1] for pair in pairs), ENDLESS)
    if isinstance(tree, (Alternation, Either)):
        pairs = [lengths(item) for item in tree.items]
        if not pairs:
            return 0, 0
        return min(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    if isinstance(tree, (Repeat, Loop)):
        low, high = lengths(tree.item)
        most = 0 if high == 0 else ENDLESS if tree.max is None else min(high * tree.max, ENDLESS)
        return min(low * tree.min, ENDLESS), most
    return 0, 0
