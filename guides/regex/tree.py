"""Syntax trees of patterns: the common syntax, extended by lookarounds.

A tree without a `Lookaround` is a plain `syntax.Node` and needs no further work; `Concat`, `LookaroundAlternation` and
`LookaroundLoop` replace `Sequence`, `Alternation` and `Repeat` only above a `Lookaround`. Every anchor and boundary is
a `Lookaround`: the start of the text is "no character before here".
"""

from __future__ import annotations

from collections.abc import Sequence as ListOf
from dataclasses import dataclass

from ..automata.charsets import ALL, NOT_NEWLINE, negate, normalise, single
from ..limits import spend
from ..syntax import EMPTY, NOTHING, Alternation, Chars, Literal, Node, Ranges, Repeat, Sequence


@dataclass(frozen=True, slots=True)
class Lookaround:
    """A condition on the text after (or before) a position: `body` matches there, or does not."""

    body: Tree
    ahead: bool
    negative: bool


@dataclass(frozen=True, slots=True)
class Concat:
    """All items in order; at least one contains a lookaround."""

    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class LookaroundAlternation:
    """One of the items; at least one contains a lookaround."""

    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class LookaroundLoop:
    """`min` to `max` repetitions of an item that contains a lookaround."""

    item: Tree
    min: int
    max: int | None


@dataclass(frozen=True, slots=True)
class NamedGroup:
    """The item of a named group; only in trees that are parsed for their groups."""

    name: str
    item: Tree


@dataclass(frozen=True, slots=True)
class AtomicGroup:
    """An atomic group, not lowered: the first way through the item; only in trees that are parsed for their groups."""

    item: Tree


Looking = Lookaround | Concat | LookaroundAlternation | LookaroundLoop | NamedGroup | AtomicGroup
Tree = Node | Looking

NO_GROUPS = "a tree that is read for its groups becomes no automaton"
ANY = Chars(ALL)
ANY_TEXT = Repeat(ANY, 0, None)
TEXT_START = Lookaround(ANY, ahead=False, negative=True)
TEXT_END = Lookaround(ANY, ahead=True, negative=True)
NEWLINE = Chars(((10, 10),))
LINE_START = Lookaround(Chars(NOT_NEWLINE), ahead=False, negative=True)
LINE_END = Lookaround(Chars(NOT_NEWLINE), ahead=True, negative=True)
TEXT_END_OR_LAST_NEWLINE = Lookaround(Concat((Repeat(NEWLINE, 0, 1), TEXT_END)), ahead=True, negative=False)


def boundary(word: Ranges) -> Tree:
    r"""Return `\b`: a character of `word` on exactly one side."""
    chars = Chars(word)
    return LookaroundAlternation(
        (
            Concat((Lookaround(chars, False, False), Lookaround(chars, True, True))),
            Concat((Lookaround(chars, False, True), Lookaround(chars, True, False))),
        )
    )


def no_boundary(word: Ranges, in_empty_text: bool) -> Tree:
    r"""Return `\B`: characters of `word` on both sides or neither; `re` before Python 3.14 requires a nonempty text."""
    chars = Chars(word)
    inside = Concat((Lookaround(chars, False, False), Lookaround(chars, True, False)))
    if in_empty_text:
        return LookaroundAlternation((inside, Concat((Lookaround(chars, False, True), Lookaround(chars, True, True)))))
    others = Chars(negate(word))
    before = Concat((Lookaround(others, False, False), Lookaround(chars, True, True)))
    after = Concat((Lookaround(chars, False, True), Lookaround(others, True, False)))
    return LookaroundAlternation((inside, before, after))


def look(body: Tree, ahead: bool, negative: bool) -> Tree:
    """Return a condition; the body of a condition on a single character is always a set."""
    ranges = single_character(body)
    return Lookaround(body if ranges is None else Chars(ranges), ahead, negative)


def chars(ranges: Ranges) -> Node:
    """Return a character set; an empty set is the empty language."""
    return Chars(ranges) if ranges else NOTHING


def character(code: int) -> Node:
    """Return one character; a surrogate, which occurs in no text, is the empty language."""
    return NOTHING if 0xD800 <= code <= 0xDFFF else Literal(chr(code).encode())


def concat(items: ListOf[Tree]) -> Tree:
    """Return a concatenation: nested sequences are flattened, adjacent literals joined."""
    if len(items) == 1:
        return items[0]
    opened: list[Tree] = []
    for item in items:
        if isinstance(item, (Sequence, Concat)):
            opened += item.items
        elif item is NOTHING:
            return NOTHING
        else:
            opened.append(item)
    joined: list[Tree] = []
    literal: list[bytes] = []
    for item in opened:
        if isinstance(item, Literal):
            literal.append(item.data)
            continue
        if any(literal):
            joined.append(Literal(b"".join(literal)))
        literal.clear()
        joined.append(item)
    if any(literal):
        joined.append(Literal(b"".join(literal)))
    return sequence(joined) if joined else EMPTY


def sequence(flat: list[Tree]) -> Tree:
    """Return the concatenation of items that need no flattening."""
    if len(flat) == 1:
        return flat[0]
    plain = [item for item in flat if not isinstance(item, Looking)]
    return Sequence(tuple(plain)) if len(plain) == len(flat) else Concat(tuple(flat))


def either(items: ListOf[Tree]) -> Tree:
    """Return an alternation: empty languages are dropped, and single characters become one set."""
    nonempty = [item for item in items if item is not NOTHING]
    if len(nonempty) == 1:
        return nonempty[0]
    if not nonempty:
        return NOTHING
    pairs: list[tuple[int, int]] = []
    for item in nonempty:
        found = single_character(item)
        if found is None:
            break
        pairs += found
    else:
        return Chars(normalise(pairs))
    plain = [item for item in nonempty if not isinstance(item, Looking)]
    return Alternation(tuple(plain)) if len(plain) == len(nonempty) else LookaroundAlternation(tuple(nonempty))


def repeat(item: Tree, low: int, high: int | None) -> Tree:
    """Return `low` to `high` repetitions of the item."""
    if high == 0 or item is EMPTY:
        return EMPTY
    if item is NOTHING:
        return NOTHING if low else EMPTY
    if low == 1 and high == 1:
        return item
    if isinstance(item, Looking):
        return LookaroundLoop(item, low, high)
    return Repeat(item, low, high)


def single_character(item: Tree) -> Ranges | None:
    """Return the characters that `item` matches if it always matches exactly one character, else None."""
    if isinstance(item, Chars):
        return item.ranges
    if isinstance(item, Literal) and (len(item.data) == 1 or len(item.data.decode()) == 1):
        return single(ord(item.data.decode()))
    return None


ENDLESS = 2**60
STEPS_PER_NODE = 50


Span = tuple[int, int]
Known = dict[int, tuple[Tree, Span]]
"""A cache of lengths by id of the tree. Holding the trees keeps their ids unique."""


def lengths(tree: Tree, cache: Known | None = None) -> Span:
    """Return (fewest, most) characters of the texts of a tree; ENDLESS for no bound. Lookarounds match 0 characters.

    cache: a cache for repeated calls on parts of the same trees
    """
    if cache is None:
        return _lengths(tree, {})
    found = cache.get(id(tree))
    if found is None:
        found = cache[id(tree)] = tree, _lengths(tree, cache)
    return found[1]


def _lengths(tree: Tree, cache: Known) -> Span:
    spend(STEPS_PER_NODE)
    if isinstance(tree, Chars):
        return 1, 1
    if isinstance(tree, Literal):
        count = len(tree.data.decode())
        return count, count
    if isinstance(tree, (Sequence, Concat)):
        pairs = [lengths(item, cache) for item in tree.items]
        return sum(pair[0] for pair in pairs), min(sum(pair[1] for pair in pairs), ENDLESS)
    if isinstance(tree, (Alternation, LookaroundAlternation)):
        pairs = [lengths(item, cache) for item in tree.items]
        if not pairs:
            return 0, 0
        return min(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    if isinstance(tree, (Repeat, LookaroundLoop)):
        low, high = lengths(tree.item, cache)
        most = 0 if high == 0 else ENDLESS if tree.max is None else min(high * tree.max, ENDLESS)
        return min(low * tree.min, ENDLESS), most
    if isinstance(tree, (NamedGroup, AtomicGroup)):
        return lengths(tree.item, cache)
    return 0, 0
