"""Sizes of trees: nodes when written out, and lengths of the texts they match."""

from __future__ import annotations

from ..syntax import Alternation, Chars, Literal, Repeat, Sequence
from .tree import Concat, Either, Look, Loop, Tree, single_character

ENDLESS = 2**60


def unrolled_size(tree: Tree) -> int:
    """Nodes when nested repeats are written out; a counted repeat of one character counts 1."""
    return _sizes(tree)[0]


def _sizes(tree: Tree) -> tuple[int, int]:
    """(Size with counters outermost, size with every repeat written out)."""
    if isinstance(tree, Literal):
        return len(tree.data), len(tree.data)
    if isinstance(tree, Chars):
        return 1, 1
    if isinstance(tree, (Repeat, Loop)):
        copies = max(tree.min, 1) if tree.max is None else tree.max
        counted, full = _sizes(tree.item)
        if copies <= 1:
            return counted + 1, full + 1
        if single_character(tree.item) is not None:
            return 1, copies
        return copies * full, copies * full
    if isinstance(tree, (Sequence, Alternation, Concat, Either)):
        counted = full = 0
        for item in tree.items:
            item_counted, item_full = _sizes(item)
            counted += item_counted
            full += item_full
        return counted + 1, full + 1
    if isinstance(tree, Look):
        counted, full = _sizes(tree.body)
        return counted + 1, full + 1
    return 1, 1


def lengths(tree: Tree) -> tuple[int, int]:
    """(Fewest, most) characters of the texts it matches; ENDLESS is without bound. Looks have none."""
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
