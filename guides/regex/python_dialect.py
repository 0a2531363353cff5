"""The dialect of Python's `re`, with the semantics of `re.fullmatch`."""

from __future__ import annotations

import re
import unicodedata

from ..automata.charsets import ascii_class, unicode_class
from ..syntax import Ranges
from .reader import ASCII, DOTALL, IGNORECASE, LOOKS, MAX_CACHED, MULTILINE, VERBOSE, PatternReader
from .tree import (
    LINE_END,
    TEXT_END,
    TEXT_END_OR_LAST_NEWLINE,
    TEXT_START,
    Tree,
    boundary,
    chars,
    lengths,
    no_boundary,
)

_FLAGS = {"i": IGNORECASE, "m": MULTILINE, "s": DOTALL, "x": VERBOSE, "a": ASCII, "u": 0}
# Compiled on first use; `re` caches them.
_BLANK_OR_COMMENT = " \t\n\r\v\f#"
# In `re`, a backslash escapes the next character even in a comment, so that `\)` does not end it.
_COMMENT = r"\(\?#(?:[^)\\]|\\[\s\S])*+\)"
_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92}
_DIGITS_OF = {"x": 2, "u": 4, "U": 8}
_OCTAL = r"0[0-7]{0,2}|[0-3][0-7]{2}"
_OCTAL_IN_SET = r"[0-7]{1,3}"
_HEX = "0123456789abcdefABCDEF"
_FLAG_GROUP = r"([a-zA-Z]*)(?:-([a-zA-Z]*))?"
# `\B` matches in an empty text since Python 3.14.
_NO_BOUNDARY_IN_EMPTY_TEXT = re.search(r"\B", "") is not None


class PythonReader(PatternReader):
    """A reader of the dialect of `re`, and of `\\p{...}` as in the `regex` package."""

    has_atomic = True
    property_form = r"\{(?P<not>\^?)(?P<name>[A-Za-z0-9_ =:&.\-]+)\}|(?P<letter>[CLMNPSZ])"

    def literal(self, end: int) -> None:
        """Add characters as they are; verbose mode skips white space and comments."""
        if self.flags & VERBOSE and self.text[self.at] in _BLANK_OR_COMMENT:
            self.at = end
            return
        super().literal(end)

    def dollar(self) -> None:
        self.at += 1
        self.push_condition(LINE_END if self.flags & MULTILINE else TEXT_END_OR_LAST_NEWLINE)

    def named_class(self, letter: str) -> Ranges:
        return (ascii_class if self.flags & ASCII else unicode_class)(letter)

    # Escapes

    def escape(self) -> None:
        """Read an escape outside a set."""
        offset = self.at
        letter = self.text[offset + 1 : offset + 2]
        ranges = self.class_escape(letter, offset)
        if ranges is not None:
            self.push(chars(ranges))
        elif letter and letter in "AZbB":
            self.at += 2
            self.push_condition(self.anchor(letter))
        elif letter and letter in "0123456789":
            octal = re.compile(_OCTAL).match(self.text, offset + 1)
            if octal is None:
                self.fail("backreferences are not supported: what they match is not a regular language", offset)
            self.at = octal.end()
            self.push(self.one(int(octal.group(), 8)))
        else:
            self.push(self.one(self.code_point(letter, offset)))

    def class_escape(self, letter: str, offset: int) -> Ranges | None:
        """Return the characters of the class escape at `offset`; None, without moving, for any other escape."""
        if not letter or letter not in "dDsSwWpP":
            return None
        self.at = offset + 2
        return self.property_class(letter == "P", offset) if letter in "pP" else self.named_class(letter)

    def anchor(self, letter: str) -> Tree:
        if letter == "A":
            return TEXT_START
        if letter == "Z":
            return TEXT_END
        word = self.named_class("w")
        return boundary(word) if letter == "b" else no_boundary(word, _NO_BOUNDARY_IN_EMPTY_TEXT)

    def code_point(self, letter: str, offset: int) -> int:
        """Return the single character of the escape at `offset`, in a set or outside, and move past it."""
        if not letter:
            self.fail("expected a character after the backslash", offset)
        self.at = offset + 2
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter in _DIGITS_OF:
            return self.hexadecimal(_DIGITS_OF[letter], offset)
        if letter == "N":
            return self.named_character(offset)
        if letter.isascii() and letter.isalnum():
            self.fail(f"unknown escape \\{letter}", offset)
        return ord(letter)

    def hexadecimal(self, digits: int, offset: int) -> int:
        text = self.text[offset + 2 : offset + 2 + digits]
        if len(text) < digits or any(char not in _HEX for char in text):
            self.fail(f"expected {digits} hexadecimal digits after {self.text[offset : offset + 2]}", offset)
        code = int(text, 16)
        if code > 0x10FFFF:
            self.fail("there is no character above U+10FFFF", offset)
        self.at = offset + 2 + digits
        return code

    def named_character(self, offset: int) -> int:
        close = self.text.find("}", offset)
        if self.text[offset + 2 : offset + 3] != "{" or close < 0:
            self.fail(r"expected a character name in braces, as in \N{EM DASH}", offset)
        name = self.text[offset + 3 : close]
        self.at = close + 1
        try:
            return ord(unicodedata.lookup(name))
        except (KeyError, TypeError):
            self.fail(f"there is no character named {name!r}", offset)

    # Sets

    def bracket(self) -> None:
        """Read `[...]`, or reuse an equal set read before under the same flags."""
        for (source, flags), tree in self.cached_sets.items():
            if flags == self.flags and self.text.startswith(source, self.at):
                self.at += len(source)
                self.push(tree)
                return
        opening = self.at
        self.at += 1
        negated = self.text.startswith("^", self.at)
        self.at += negated
        first = self.at
        pairs: list[tuple[int, int]] = []
        classes: list[tuple[int, int]] = []
        text = self.text
        while not (text.startswith("]", self.at) and self.at > first):
            offset = self.at
            low = self.set_item(opening)
            if text.startswith("-", self.at) and not text.startswith("-]", self.at):
                self.at += 1
                high = self.set_item(opening)
                if not isinstance(low, int) or not isinstance(high, int):
                    self.fail("a range needs a character on both sides, not a class", offset)
                if high < low:
                    self.fail(f"this range ends before it begins: {text[offset : self.at]}", offset)
                pairs.append((low, high))
            elif isinstance(low, int):
                pairs.append((low, low))
            else:
                classes += low
        self.at += 1
        characters = self.set_of(pairs, classes, negated)
        if len(self.cached_sets) < MAX_CACHED:
            self.cached_sets[text[opening : self.at], self.flags] = characters
        self.push(characters)

    def code_in_set(self, letter: str, offset: int) -> int:
        """Return `code_point`, or the character of an octal escape."""
        octal = re.compile(_OCTAL_IN_SET).match(self.text, offset + 1)
        if octal is None:
            return self.code_point(letter, offset)
        self.at = octal.end()
        if int(octal.group(), 8) > 0o377:
            self.fail("an octal escape goes up to \\377", offset)
        return int(octal.group(), 8)

    # Groups

    def group(self) -> None:
        """Read an opening parenthesis with its `?` construct."""
        offset = self.at
        if not self.text.startswith("?", offset + 1):
            self.at += 1
            self.open_group(None, offset, self.flags)
            return
        rest = self.text[offset + 2 : offset + 4]
        for opening, look in LOOKS.items():
            if rest.startswith(opening):
                self.at += 2 + len(opening)
                self.open_group(look, offset, self.flags)
                return
        if rest.startswith((":", ">")):
            self.at += 3
            self.open_group(None, offset, self.flags, atomic=rest.startswith(">"))
        elif rest.startswith("#"):
            comment = re.compile(_COMMENT).match(self.text, offset)
            if comment is None:
                self.fail("this comment is never closed: expected )", offset)
            self.at = comment.end()
        elif rest.startswith("P"):
            self.named_group(offset)
        else:
            self.refuse_irregular(rest, offset)
            self.flag_group(offset)

    def named_group(self, offset: int) -> None:
        following = self.text[offset + 3 : offset + 4]
        if following == "=":
            self.fail("backreferences are not supported: what they match is not a regular language", offset)
        if following == ">":
            self.fail("recursion is not supported: what it matches is not a regular language", offset)
        close = self.text.find(">", offset)
        if following != "<" or close < 0:
            self.fail("expected a group name, as in (?P<name>...)", offset)
        name = self.text[offset + 4 : close]
        if not name.isidentifier():
            self.fail(f"a group name must be an identifier, not {name!r}", offset + 4)
        if name in self.names:
            self.fail(f"there is a group named {name!r} already", offset + 4)
        self.at = close + 1
        self.open_group(None, offset, self.flags, name=name)
        self.names[name] = offset

    def refuse_irregular(self, rest: str, offset: int) -> None:
        """Refuse constructs of `re` and its relatives after `(?` that are not regular."""
        if rest.startswith("("):
            self.fail("conditionals are not supported: what they match is not a regular language", offset)
        if rest[:1] in ("R", "&") or rest[:1].isdigit() or (rest[:1] in ("+", "-") and rest[1:].isdigit()):
            self.fail("recursion is not supported: what it matches is not a regular language", offset)
        if rest.startswith("<"):
            self.fail("expected (?<= or (?<!; a named group is written (?P<name>...)", offset)

    def flag_group(self, offset: int) -> None:
        """Read `(?flags)` for the whole pattern, or `(?flags-flags:...)` for a group."""
        on, off = self.flag_letters(offset)
        flags = self.flags
        for letter in on:
            flags |= _FLAGS[letter]
        if "u" in on:
            flags &= ~ASCII
        for letter in off:
            flags &= ~_FLAGS[letter]
        if self.text[self.at - 1] == ":":
            self.open_group(None, offset, flags)
            return
        if self.stack or self.items or self.branches:
            self.fail("flags for the whole pattern must stand at its start; use (?i:...) for a part", offset)
        if self.flags & ASCII and "u" in on:
            self.fail("flags a and u contradict each other", offset)
        self.flags = flags

    def flag_letters(self, offset: int) -> tuple[str, str]:
        """Return the flags that a group turns on and off; move past its `:` or `)`."""
        match = re.compile(_FLAG_GROUP).match(self.text, offset + 2)
        on, off = (match.group(1), match.group(2)) if match else ("", None)
        end = match.end() if match else offset + 2
        closing = self.text[end : end + 1]
        for index, letter in enumerate(on + (off or "")):
            where = offset + 2 + index + (index >= len(on))
            if letter == "L":
                self.fail("flag L is for bytes; a pattern over text has none", where)
            if letter not in _FLAGS:
                self.fail(f"unknown flag {letter!r}; the flags are i, m, s, x, a and u", where)
            if index >= len(on) and letter in "au":
                self.fail("flags a and u cannot be turned off; turn the other one on", where)
        complete = closing == ":" or (closing == ")" and off is None)
        if not complete or off == "" or not (on or off):
            self.fail("expected flags and then : or ), as in (?i:...) or (?i)", offset)
        if ("a" in on and "u" in on) or set(on) & set(off or ""):
            self.fail("these flags contradict each other", offset)
        self.at = end + 1
        return on, off or ""

    def check_look(self, body: Tree, ahead: bool, offset: int) -> bool:
        """Refuse a lookbehind of variable length, as `re` does."""
        if not ahead:
            fewest, most = lengths(body)
            if fewest != most:
                self.fail("a lookbehind needs contents of one length; this one has several", offset)
        return True
