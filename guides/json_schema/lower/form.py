"""The form of JSON text: white space, the order of members, spellings of strings and of numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal as OneOf
from typing import get_args

from ....checks import check_choice, check_int
from ....errors import OptionError
from ...syntax import Alternation, Chars, Literal, Node, Repeat, Sequence
from ..automata.spelling import Escapes

_Kind = OneOf["flexible", "compact", "pretty", "any"]
Whitespace = _Kind | int
_KINDS = get_args(_Kind)

MAX_BETWEEN = 1_000
"""Maximum bound on white space between two tokens."""
MAX_SPACES, MAX_TABS = 128, 32
"""Maximum indentation of a line: 32 levels of 4 spaces or a tab each."""

_BLANK = Chars(((0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20)))
_ANY = Repeat(_BLANK, 0, None)
_INDENTED = Alternation((Repeat(Literal(b" "), 0, MAX_SPACES), Repeat(Literal(b"\t"), 1, MAX_TABS)))
_LINE = Sequence((Repeat(Literal(b"\r"), 0, 1), Literal(b"\n"), _INDENTED))
_NONE = Literal(b"")
_ONE = Literal(b" ")
_PERHAPS = Repeat(_ONE, 0, 1)
_PERHAPS_LINE = Alternation((_NONE, _LINE))
_PERHAPS_EITHER = Alternation((_NONE, _ONE, _LINE, Sequence((_ONE, _LINE))))


@lru_cache(maxsize=1024)
def _line(blanks: int) -> Node:
    return Literal(b"\n" + b" " * blanks)


@lru_cache(maxsize=MAX_BETWEEN + 1)
def _up_to(most: int) -> Node:
    return Repeat(_BLANK, 0, most) if most else _NONE


@dataclass(frozen=True, slots=True)
class Spacing:
    """White space between tokens.

    whitespace: "flexible" allows what json.dumps writes with any indent and its usual separators: one space after a
    colon or comma, and one line break wherever a line may end, indented by spaces or by tabs, at most MAX_SPACES or
    MAX_TABS; "compact" allows none; "pretty" requires exactly what json.dumps(indent=indent) writes; "any" allows any
    JSON white space; a number: up to so many characters of it between two tokens, none around the value
    """

    whitespace: Whitespace = "flexible"
    indent: int = 2

    def __post_init__(self) -> None:
        if type(self.whitespace) is not int:
            check_choice(self.whitespace, "whitespace", _KINDS)
        elif not 0 <= self.whitespace <= MAX_BETWEEN:
            raise OptionError(f"whitespace={self.whitespace}: 0 to {MAX_BETWEEN:,} characters between two tokens")
        object.__setattr__(self, "indent", check_int(self.indent, "indent", 0, 16))

    @property
    def rules(self) -> tuple[Node, ...]:
        """The nodes below that deserve a rule: neither fixed nor one optional text."""
        match self.whitespace:
            case "any" | int():
                return (self.free(),)
            case "flexible":
                return (_PERHAPS_LINE, _PERHAPS_EITHER)
            case _:
                return ()

    @property
    def depends_on_depth(self) -> bool:
        """True if white space depends on the depth of nesting."""
        return self.whitespace == "pretty"

    def free(self) -> Node:
        """Return the space where json.dumps writes none: before colons and commas, and in empty containers."""
        return _up_to(self.whitespace) if isinstance(self.whitespace, int) else self.around()

    def after_colon(self) -> Node:
        """Return the space between the colon and the value."""
        match self.whitespace:
            case "pretty":
                return _ONE
            case "flexible":
                return _PERHAPS
            case _:
                return self.free()

    def after_comma(self, depth: int) -> Node:
        """Return the space between a comma and the next item, in a container at `depth`."""
        if self.whitespace == "flexible":
            return _PERHAPS_EITHER
        return self.inside(depth)

    def inside(self, depth: int) -> Node:
        """Return the space after an opening bracket, before the first item."""
        match self.whitespace:
            case "pretty":
                return _line(self.indent * (depth + 1))
            case "flexible":
                return _PERHAPS_LINE
            case _:
                return self.free()

    def at_end(self, depth: int) -> Node:
        """Return the space before the closing bracket of a container with items."""
        match self.whitespace:
            case "pretty":
                return _line(self.indent * depth)
            case _:
                return self.inside(depth)

    def around(self) -> Node:
        """Return the space before and after the whole value."""
        return _ANY if self.whitespace == "any" else _NONE


Order = OneOf["schema", "any"]
Spelling = OneOf["plain", "any"]
_ORDERS, _ESCAPES, _SPELLINGS = get_args(Order), get_args(Escapes), get_args(Spelling)


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which JSON may be written.

    order: "schema" writes members in the order of the schema, others after them; "any" in any order
    spacing: the white space; escapes: "canonical" as json.dumps(ensure_ascii=False) escapes, or "any"
    spelling: of numbers, "plain" as people write them, see numbers/texts.py, or "any"
    """

    order: Order = "schema"
    spacing: Spacing = field(default_factory=Spacing)
    escapes: Escapes = "canonical"
    spelling: Spelling = "any"

    def __post_init__(self) -> None:
        check_choice(self.order, "order", _ORDERS)
        check_choice(self.escapes, "escapes", _ESCAPES)
        check_choice(self.spelling, "spelling", _SPELLINGS)
