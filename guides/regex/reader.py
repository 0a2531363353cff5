"""A non-recursive parser for both dialects: sequences, alternatives, groups, quantifiers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, NoReturn

from ...errors import LimitError, PatternError
from ..automata.charsets import ALL, NOT_NEWLINE, negate, normalise, single
from ..limits import spend
from ..syntax import Chars, Literal, Ranges, Repeat
from .atomic import Atomic, Lazy
from .tree import (
    LINE_START,
    TEXT_START,
    AtomicGroup,
    LookaroundLoop,
    NamedGroup,
    Tree,
    character,
    chars,
    concat,
    either,
    look,
    repeat,
)
from .unicode import Folding, cases_of, ignoring_case, property_ranges

IGNORECASE, MULTILINE, DOTALL, VERBOSE, ASCII = (int(flag) for flag in (re.I, re.M, re.S, re.X, re.A))
MAX_DEPTH = 100
MAX_COUNT = 2**30
MAX_CACHED = 16
# Work per piece that is read at once, and per character that is looked up
STEPS_PER_WORD = 100

# Escapes that both dialects share and that are frequent; other escapes of one character are read one by one.
_WITH_ESCAPES = re.compile(r"(?:[^\\.^$*+?{\[|()]+|\\[fnrtv\x21-\x2f:-@\[-`{-~])+")
# White space, a comment, or neither, in verbose mode. In `re`, a backslash escapes the next character even in a
# comment, so that an escaped newline does not end it.
_SPACED = re.compile(r"[ \t\n\r\v\f]+|#(?:[^\n\\]|\\[\s\S])*+\n?|[^\\.^$*+?{\[|()# \t\n\r\v\f]+")
_ESCAPE = re.compile(r"\\(.)")
_CONTROLS = {"f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_DOT = Chars(NOT_NEWLINE)
_DOT_ALL = Chars(ALL)

NO_ITEM, ATOM, LITERAL, QUANTIFIED = range(4)
LOOKS = {"=": (True, False), "!": (True, True), "<=": (False, False), "<!": (False, True)}
"""Lookarounds by what follows `(?`: whether they look ahead, and whether they are negative."""


class OpenGroup(NamedTuple):
    """An open group: the items and branches read before it, and its own properties."""

    items: list[Tree]
    branches: list[Tree]
    flags: int
    look: tuple[bool, bool] | None  # ahead, negative
    atomic: bool
    offset: int
    names: int
    name: str | None


class PatternReader(ABC):
    """A reader of one pattern; dialects add escapes, sets, and the constructs after `(?`."""

    has_atomic: ClassVar[bool] = False
    """The dialect has atomic groups and possessive repeats."""
    property_form: ClassVar[str]
    """Pattern of a property behind `\\p`, with the group `name`, and perhaps `letter` and `not`."""
    counts_form: ClassVar[str] = r"\{(?:([0-9]+)|([0-9]*),([0-9]*))\}"

    def __init__(self, text: str, flags: int, keeps_groups: bool = False) -> None:
        """keeps_groups: keep named and atomic groups as nodes of the tree, see `groups`"""
        self.text = text
        self.keeps_groups = keeps_groups
        self.at: int = 0
        self.flags = flags
        self.counts_pattern = re.compile(self.counts_form)
        self.items: list[Tree] = []
        self.branches: list[Tree] = []
        self.stack: list[OpenGroup] = []
        self.names: dict[str, int] = {}
        self.previous = NO_ITEM
        self.cached_sets: dict[tuple[str, int], Tree] = {}
        self.cached_groups: dict[tuple[str, int], Tree] = {}
        self.lazy: Lazy = {}

    @abstractmethod
    def escape(self) -> None:
        """Read a backslash and its escape, outside a set."""

    @abstractmethod
    def bracket(self) -> None:
        """Read `[...]`."""

    @abstractmethod
    def group(self) -> None:
        """Read an opening parenthesis with its `?` construct."""

    @abstractmethod
    def dollar(self) -> None:
        """Read `$`."""

    @abstractmethod
    def class_escape(self, letter: str, offset: int) -> Ranges | None:
        """Return the characters of the class escape at `offset`; None, without moving, for any other escape."""

    @abstractmethod
    def code_point(self, letter: str, offset: int) -> int:
        """Return the character of the escape at `offset`, and move past it."""

    def code_in_set(self, letter: str, offset: int) -> int:
        """Return the character of the escape at `offset` inside a set, and move past it."""
        return self.code_point(letter, offset)

    def read(self) -> Tree:
        """Parse the whole pattern into a tree. Raises PatternError and LimitError."""
        text, end = self.text, len(self.text)
        handlers = {
            "\\": self.escape,
            ".": self.dot,
            "^": self.caret,
            "$": self.dollar,
            "*": self.quantifier,
            "+": self.quantifier,
            "?": self.quantifier,
            "{": self.counts,
            "[": self.bracket,
            "|": self.bar,
            "(": self.cached_or_new_group,
            ")": self.close_group,
        }
        while self.at < end:
            spend(STEPS_PER_WORD)
            run = (_SPACED if self.flags & VERBOSE else _WITH_ESCAPES).match(text, self.at)
            if run:
                self.literal(run.end())
            else:
                handlers[text[self.at]]()
        if self.stack:
            self.fail("this group is never closed: expected )", self.stack[-1].offset)
        return self.finish_alternatives()

    def fail(self, reason: str, offset: int) -> NoReturn:
        raise PatternError(reason, self.text, offset)

    # Items

    def push(self, item: Tree) -> None:
        """Add an item that a quantifier may follow."""
        self.items.append(item)
        self.previous = ATOM

    def push_condition(self, item: Tree) -> None:
        """Add an anchor, which no quantifier may follow."""
        self.items.append(item)
        self.previous = NO_ITEM

    def literal(self, end: int) -> None:
        """Add the characters up to `end`, some of them escaped; a quantifier may follow the last one."""
        run = self.text[self.at : end]
        self.at = end
        if "\\" in run:
            run = _ESCAPE.sub(_unescape, run)
        if self.flags & IGNORECASE:
            spend(STEPS_PER_WORD * len(run))
            for char in run:
                self.push(self.one(ord(char)))
            return
        spend(len(run))
        self.items.append(Literal(run.encode()))
        self.previous = LITERAL

    def one(self, code: int) -> Tree:
        """Return one character under the current flags."""
        if not self.flags & IGNORECASE:
            return character(code)
        same = cases_of(code, self.folding())
        return character(code) if same == single(code) else chars(same)

    def folding(self) -> Folding:
        """Return the kind of case folding under the current flags."""
        return "ascii" if self.flags & ASCII else "unicode"

    def set_of(self, pairs: list[tuple[int, int]], classes: list[tuple[int, int]], negated: bool) -> Tree:
        """Return a set under the current flags. pairs: characters, subject to case folding; classes: whole classes"""
        ranges: Ranges = normalise(pairs)
        if self.flags & IGNORECASE:
            ranges = ignoring_case(ranges, self.folding())
        if classes:
            ranges = normalise([*ranges, *classes])
        return chars(negate(ranges) if negated else ranges)

    def set_item(self, opening: int) -> int | Ranges:
        """Read one character or class inside a set."""
        offset = self.at
        char = self.text[offset : offset + 1]
        if char and char != "\\":
            self.at = offset + 1
            return ord(char)
        if not char or offset + 1 == len(self.text):
            self.fail("this set is never closed: expected ]", opening)
        letter = self.text[offset + 1]
        ranges = self.class_escape(letter, offset)
        if ranges is not None:
            return ranges
        if letter == "b":
            self.at = offset + 2
            return 8
        return self.code_in_set(letter, offset)

    def property_class(self, negated: bool, offset: int) -> Ranges:
        r"""Return the characters of a `\p{...}`, without case folding in ECMA-262; the reader stands after the `p`."""
        match = re.compile(self.property_form).match(self.text, self.at)
        if match is None:
            self.fail(r"expected a property name in braces, as in \p{Lu} or \p{Script=Greek}", offset)
        self.at = match.end()
        found = match.groupdict()
        name, negated = found["name"] or found["letter"], negated != bool(found.get("not"))
        ignores_case = self.folding() != "ecma" and bool(self.flags & IGNORECASE)
        ranges = property_ranges(name, negated, ignores_case, bool(self.flags & ASCII))
        if ranges is None:
            self.fail(f"unknown character property {name!r}", offset)
        return ranges

    def dot(self) -> None:
        self.at += 1
        self.push(_DOT_ALL if self.flags & DOTALL else _DOT)

    def caret(self) -> None:
        self.at += 1
        self.push_condition(LINE_START if self.flags & MULTILINE else TEXT_START)

    # Groups and alternatives

    def open_group(
        self,
        look: tuple[bool, bool] | None,
        offset: int,
        flags: int,
        *,
        atomic: bool = False,
        name: str | None = None,
    ) -> None:
        """Open a group or a lookaround whose contents start here."""
        if len(self.stack) == MAX_DEPTH:
            raise LimitError(
                f"the pattern nests groups deeper than {MAX_DEPTH} levels (at offset {offset}); this limit "
                "is fixed, so write the pattern with fewer levels"
            )
        names = len(self.names)
        self.stack.append(OpenGroup(self.items, self.branches, self.flags, look, atomic, offset, names, name))
        self.items, self.branches, self.flags = [], [], flags
        self.previous = NO_ITEM

    def cached_or_new_group(self) -> None:
        """Read a group, or reuse an equal group read before under the same flags."""
        for (source, flags), tree in self.cached_groups.items():
            if flags == self.flags and self.text.startswith(source, self.at):
                self.at += len(source)
                self.push(tree)
                return
        self.group()

    def close_group(self) -> None:
        if not self.stack:
            self.fail("this ) closes no group", self.at)
        self.at += 1
        tree = self.finish_alternatives()
        frame = self.stack.pop()
        self.items, self.branches, self.flags = frame.items, frame.branches, frame.flags
        if frame.look is None:
            if frame.atomic:
                tree = AtomicGroup(tree) if self.keeps_groups else Atomic(self.lazy).group(tree)
            self.push(NamedGroup(frame.name, tree) if self.keeps_groups and frame.name is not None else tree)
            if len(self.cached_groups) < MAX_CACHED and len(self.names) == frame.names:
                self.cached_groups[self.text[frame.offset : self.at], self.flags] = self.items[-1]
            return
        ahead, negative = frame.look
        if self.check_look(tree, ahead, frame.offset):
            self.push(look(tree, ahead, negative))
        else:
            self.push_condition(look(tree, ahead, negative))

    @abstractmethod
    def check_look(self, body: Tree, ahead: bool, offset: int) -> bool:
        """Refuse lookaround contents that the dialect lacks; return whether a quantifier may follow."""

    def bar(self) -> None:
        self.at += 1
        self.branches.append(concat(self.items))
        self.items = []
        self.previous = NO_ITEM

    def finish_alternatives(self) -> Tree:
        if not self.branches:
            return concat(self.items)
        self.branches.append(concat(self.items))
        return either(self.branches)

    # Quantifiers

    def quantifier(self) -> None:
        """Read `*`, `+` or `?`, with a `?` (lazy) or `+` (possessive) suffix."""
        char = self.text[self.at]
        low, high = (0, 1) if char == "?" else (0, None) if char == "*" else (1, None)
        self.apply(low, high, self.at + 1)

    def counts(self) -> None:
        """Read `{m}`, `{m,}`, `{,n}` or `{m,n}`; any other `{` is a character."""
        match = self.counts_pattern.match(self.text, self.at)
        if match is None:
            self.at += 1
            self.push(self.one(ord("{")))
            return
        exact, least, most = match.groups()
        low = self.count(exact or least or "0")
        high = low if exact else self.count(most) if most else None
        if high is not None and high < low:
            self.fail(f"the least count {low} is greater than the greatest count {high}", self.at)
        self.apply(low, high, match.end())

    def count(self, digits: str) -> int:
        value = int(digits) if len(digits) <= 12 else MAX_COUNT + 1
        if value > MAX_COUNT:
            raise LimitError(
                f"the pattern repeats more than {MAX_COUNT} times (at offset {self.at}); this limit is "
                "fixed, so leave the count open, as in {2,}"
            )
        return value

    def apply(self, low: int, high: int | None, end: int) -> None:
        """Repeat the last item."""
        if self.previous == NO_ITEM:
            self.fail("nothing to repeat: expected a character, set or group before the quantifier", self.at)
        last = self.items[-1]
        if self.previous == LITERAL and isinstance(last, Literal):
            self.items[-1:] = _split_last(last)
        item = repeat(self.items[-1], low, high)
        if self.previous == QUANTIFIED:
            self.fail("two quantifiers in a row: put the first repeat in a group (?:...) to repeat it", self.at)
        following = self.text[end : end + 1]
        if following == "+":
            if not self.has_atomic:
                self.fail("possessive quantifiers are not supported: ECMA-262 has none", self.at)
            if self.keeps_groups:
                item = AtomicGroup(repeat(AtomicGroup(self.items[-1]), low, high))
            else:
                item = Atomic(self.lazy).possessive(self.items[-1], low, high)
        elif following == "?" and isinstance(item, (Repeat, LookaroundLoop)) and item is not self.items[-1]:
            self.lazy[id(item)] = item
        self.at = end + (following in ("?", "+"))
        self.items[-1] = item
        self.previous = QUANTIFIED


def _split_last(literal: Literal) -> list[Tree]:
    """Split a literal before its last character."""
    text = literal.data.decode()
    return [Literal(text[:-1].encode()), Literal(text[-1].encode())] if len(text) > 1 else [literal]


def _unescape(escape: re.Match[str]) -> str:
    return _CONTROLS.get(escape[1], escape[1])
