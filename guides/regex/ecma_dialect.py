r"""ECMA-262 patterns in `u` mode, as JSON Schema uses them, with tolerance for patterns found in practice.

Accepted beyond the `u` mode, where only one meaning is possible: an escaped character that is neither a letter
nor a digit (`\-`, `\_`, `\"`), a lone `{`, `}` or `]`, a class at the end of a range (`[\w-.]` is `\w`, `-`
and `.`), a repeated lookahead. Everything else is refused as in the `u` mode, above all unknown escaped letters:
a lenient engine would read `\Z` and `\A` as letters, where their authors meant anchors.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ..automata.charsets import ALL, ASCII_DIGIT, ASCII_WORD, negate
from ..syntax import Chars, Ranges
from .reader import DOTALL, IGNORECASE, LOOKS, MULTILINE, PatternReader
from .tree import TEXT_END, Lookaround, Tree, boundary, no_boundary
from .unicode import Folding, ignoring_case

_LINE_ENDS: Ranges = ((10, 10), (13, 13), (0x2028, 0x2029))
_SPACE: Ranges = (
    *((9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
_NOT_LINE_END = Chars(negate(_LINE_ENDS))
_DOT_ALL = Chars(ALL)
_LINE_START = Lookaround(_NOT_LINE_END, ahead=False, negative=True)
_LINE_END = Lookaround(_NOT_LINE_END, ahead=True, negative=True)

_FLAGS = {"i": IGNORECASE, "m": MULTILINE, "s": DOTALL}
_DIGITS = tuple("0123456789")
_CONTROLS = {"f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
# Compiled on first use; `re` caches them.
_HEX = r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]+)\}"
_LOW_SURROGATE = r"\\u([dD][c-fC-F][0-9a-fA-F]{2})"
_CONTROL = r"c([a-zA-Z])"
_GROUP = r"\(\?(<=|<!|=|!|:|<(?P<name>[^>]*)>|(?P<on>[a-z]*)(?:-(?P<off>[a-z]*))?:)"
_END_HINT = "; the end of the text is $"
_HINTS = {"A": "; the start of the text is ^", "Z": _END_HINT, "z": _END_HINT}


class EcmaReader(PatternReader):
    """A reader of ECMA-262 patterns with the flag `u`."""

    counts_form = r"\{(?:([0-9]+)|([0-9]+),([0-9]*))\}"
    property_form = r"\{(?P<name>[A-Za-z0-9_]+(?:=[A-Za-z0-9_]+)?)\}"

    def folding(self) -> Folding:
        return "ecma"

    def dot(self) -> None:
        self.at += 1
        self.push(_DOT_ALL if self.flags & DOTALL else _NOT_LINE_END)

    def caret(self) -> None:
        if not self.flags & MULTILINE:
            super().caret()
            return
        self.at += 1
        self.push_condition(_LINE_START)

    def dollar(self) -> None:
        self.at += 1
        self.push_condition(_LINE_END if self.flags & MULTILINE else TEXT_END)

    # Escapes

    def escape(self) -> None:
        """Read an escape outside a set."""
        offset = self.at
        letter = self.text[offset + 1 : offset + 2]
        if letter and letter in "bB":
            self.at += 2
            word = self.word()
            self.push_condition(boundary(word) if letter == "b" else no_boundary(word, in_empty_text=True))
            return
        if letter and (letter in "123456789" or letter == "k"):
            self.fail("backreferences are not supported: what they match is not a regular language", offset)
        ranges = self.class_escape(letter, offset)
        if ranges is None:
            self.push(self.one(self.code_point(letter, offset)))
        else:
            self.push(self.set_of(list(ranges), [], negated=False))

    def word(self) -> Ranges:
        r"""Return `\w`; ignoring case adds two characters that fold to ASCII letters."""
        return ignoring_case(ASCII_WORD, "ecma") if self.flags & IGNORECASE else ASCII_WORD

    def class_escape(self, letter: str, offset: int) -> Ranges | None:
        """Return the characters of the class escape at `offset`; None, without moving, for any other escape."""
        if not letter or letter not in "dDsSwWpP":
            return None
        self.at = offset + 2
        if letter in "pP":
            return self.property_class(letter == "P", offset)
        ranges = {"d": ASCII_DIGIT, "s": _SPACE, "w": self.word()}[letter.lower()]
        return negate(ranges) if letter.isupper() else ranges

    def code_point(self, letter: str, offset: int) -> int:
        """Return the single character of the escape at `offset`, in a set or outside, and move past it."""
        if not letter:
            self.fail("expected a character after the backslash", offset)
        self.at = offset + 2
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter in "xu":
            return self.hexadecimal(letter, offset)
        if letter == "c":
            control = re.compile(_CONTROL).match(self.text, offset + 1)
            if control is None:
                self.fail(r"expected a letter after \c", offset)
            self.at = control.end()
            return ord(control.group(1)) % 32
        if letter == "0" and self.text[self.at : self.at + 1] not in _DIGITS:
            return 0
        if letter.isascii() and letter.isalnum():
            self.fail(f"unknown escape \\{letter} in the ECMA dialect{_HINTS.get(letter, '')}", offset)
        return ord(letter)

    def hexadecimal(self, letter: str, offset: int) -> int:
        match = re.compile(_HEX).match(self.text, offset + 1)
        if match is None:
            form = r"\xHH" if letter == "x" else r"\uHHHH or \u{H...}"
            self.fail(f"expected hexadecimal digits, as in {form}", offset)
        self.at = match.end()
        code = int(match.group(1) or match.group(2) or match.group(3), 16)
        if code > 0x10FFFF:
            self.fail("there is no character above U+10FFFF", offset)
        if match.group(2) and 0xD800 <= code <= 0xDBFF:
            low = re.compile(_LOW_SURROGATE).match(self.text, self.at)
            if low:
                self.at = low.end()
                return 0x10000 + ((code & 0x3FF) << 10) + (int(low.group(1), 16) & 0x3FF)
        return code

    # Sets

    def bracket(self) -> None:
        """Read `[...]`; `[]` has no characters, and `[^]` has all."""
        opening = self.at
        self.at += 1
        negated = self.text.startswith("^", self.at)
        self.at += negated
        pairs: list[tuple[int, int]] = []
        while not self.text.startswith("]", self.at):
            offset = self.at
            low = _ranges_of(self.set_item(opening))
            if not self.text.startswith("-", self.at) or self.text.startswith("-]", self.at):
                pairs += low
                continue
            self.at += 1
            high = _ranges_of(self.set_item(opening))
            if len(low) == 1 == len(high) and low[0][0] == low[0][1] and high[0][0] == high[0][1]:
                if high < low:
                    self.fail(f"this range ends before it begins: {self.text[offset : self.at]}", offset)
                pairs.append((low[0][0], high[0][0]))
            else:
                pairs += [*low, (45, 45), *high]
        self.at += 1
        self.push(self.set_of(pairs, [], negated))

    # Groups

    def group(self) -> None:
        """Read an opening parenthesis with its `?` construct."""
        offset = self.at
        if not self.text.startswith("?", offset + 1):
            self.at += 1
            self.open_group(None, offset, self.flags)
            return
        match = re.compile(_GROUP).match(self.text, offset)
        if match is None:
            self.refuse(offset)
        self.at = match.end()
        name, on, off = match.group("name", "on", "off")
        if name is not None and not name.replace("$", "_").isidentifier():
            self.fail(f"a group name must be an identifier, not {name!r}", offset + 3)
        flags = self.flags
        if on or off is not None:
            flags = self.modifiers(on, off or "", offset)
        self.open_group(LOOKS.get(match.group(1)), offset, flags, name=name)
        if name is not None:
            self.names.setdefault(name, offset)

    def modifiers(self, on: str, off: str, offset: int) -> int:
        """Return the flags in effect inside `(?on-off:...)`."""
        if len(set(on + off)) < len(on + off) or not on + off:
            self.fail("these flags contradict or repeat each other, or there are none", offset)
        flags = self.flags
        for letter in on + off:
            if letter not in _FLAGS:
                self.fail(f"unknown flag {letter!r}; the flags of a group are i, m and s", offset)
            flags = flags | _FLAGS[letter] if letter in on else flags & ~_FLAGS[letter]
        return flags

    def refuse(self, offset: int) -> NoReturn:
        """Fail with a message that names the construct after `(?`."""
        rest = self.text[offset + 2 : offset + 4]
        if rest.startswith(">"):
            self.fail("atomic groups are not supported: ECMA-262 has none", offset)
        if rest.startswith("("):
            self.fail("conditionals are not supported: what they match is not a regular language", offset)
        if rest == "P<":
            self.fail("a named group is written (?<name>...) in the ECMA dialect", offset)
        self.fail("expected (?:, (?=, (?!, (?<=, (?<!, (?<name> or flags as in (?i:...)", offset)

    def check_look(self, body: Tree, ahead: bool, offset: int) -> bool:
        """Accept a lookaround of any length; only a lookahead may be repeated."""
        return ahead


def _ranges_of(item: int | Ranges) -> Ranges:
    return ((item, item),) if isinstance(item, int) else item
