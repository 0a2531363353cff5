"""Syntax tree of a grammar in Lark's notation, before name resolution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...limits import spend
from ...syntax import Node, Repeat
from ..combine import choice, series


@dataclass(frozen=True, slots=True)
class Name:
    """A rule, a terminal or a template's parameter."""

    name: str
    offset: int

    @property
    def is_terminal(self) -> bool:
        """True for names in upper case, which are terminals."""
        return self.name.isupper()


@dataclass(frozen=True, slots=True)
class LiteralText:
    """A string literal as written, with quotes and suffix."""

    source: str
    offset: int


@dataclass(frozen=True, slots=True)
class Regex:
    """A regular expression as written, with slashes and flags."""

    source: str
    offset: int


@dataclass(frozen=True, slots=True)
class Range:
    """A character between two others, inclusive."""

    low: LiteralText
    high: LiteralText


@dataclass(frozen=True, slots=True)
class Quotation:
    """`quote(name)`: a quotation from the context of that name."""

    name: Name

    @property
    def source(self) -> str:
        """The source text, which is also the name of the quotation's rule."""
        return f"quote({self.name.name})"

    @property
    def offset(self) -> int:
        """The offset of the context's name."""
        return self.name.offset


@dataclass(frozen=True, slots=True)
class Inline:
    """`%json {...}` or `%regex {...}`."""

    directive: str
    text: str
    offset: int

    @property
    def source(self) -> str:
        """The source text without white space before the JSON."""
        return f"{self.directive} {self.text}"


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """`<|im_end|>` or `<[5,7-9]>`; in rules only."""

    source: str
    offset: int


@dataclass(frozen=True, slots=True)
class TerminalIntersection:
    """Intersection of all items: `A & B`; in terminals only."""

    items: tuple[Expression, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class NegatedTerminal:
    """Complement of the item: `~A`; in terminals only."""

    item: Expression
    offset: int


@dataclass(frozen=True, slots=True)
class TemplateCall:
    """A template with its arguments."""

    name: Name
    arguments: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Concatenation:
    """Items in sequence."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of the items."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """`min` to `max` repetitions of an item; `max=None` is unbounded."""

    item: Expression
    min: int
    max: int | None


# Work per node
STEPS_PER_PART = 60

Pattern = LiteralText | Regex | Range | Quotation | Inline | SpecialToken
Value = Name | Pattern | TemplateCall | TerminalIntersection | NegatedTerminal
Expression = Value | Concatenation | Alternatives | Repetition


@dataclass(frozen=True, slots=True)
class Ending:
    """The ending of a rule of terminals with the shortest match: `[lazy]`, `[suffix=mark]`, `[stop=mark]`.

    how: one of these; the mark of a suffix is the rule's last part, that of a stop follows the rule
    """

    how: str
    mark: Expression | None
    offset: int


@dataclass(frozen=True, slots=True)
class Definition:
    """`name{parameters}[ending, capture]: body`; how: whether it defines, overrides or extends.

    stop_capture: the name under which the ending's mark is captured
    """

    name: Name
    parameters: tuple[Name, ...]
    body: Expression
    how: str
    ending: Ending | None = None
    capture: str | None = None
    stop_capture: str | None = None


@dataclass(frozen=True, slots=True)
class Import:
    """`%import path.name -> alias`."""

    path: tuple[Name, ...]
    name: Name
    alias: Name


@dataclass(frozen=True, slots=True)
class Ignore:
    """`%ignore body`."""

    body: Expression


Statement = Definition | Import | Ignore


def leaves(expression: Expression) -> Iterator[Value]:
    """Yield the names, patterns and calls inside an expression, from left to right."""
    todo = [expression]
    while todo:
        item = todo.pop()
        if isinstance(item, Concatenation | Alternatives | TerminalIntersection):
            todo.extend(reversed(item.items))
        elif isinstance(item, Repetition | NegatedTerminal):
            todo.append(item.item)
        else:
            yield item


def fold(expression: Expression, leaf: Callable[[Value], Node]) -> Node:
    """Convert an expression to a node, with `leaf` for its values; not recursive."""
    done: list[Node] = []
    todo: list[tuple[Expression, bool]] = [(expression, False)]
    while todo:
        spend(STEPS_PER_PART)
        item, has_items = todo.pop()
        if isinstance(item, Concatenation | Alternatives):
            if not has_items:
                todo.append((item, True))
                todo.extend((inner, False) for inner in reversed(item.items))
                continue
            begin = len(done) - len(item.items)
            done[begin:] = [(series if isinstance(item, Concatenation) else choice)(done[begin:])]
        elif isinstance(item, Repetition):
            if not has_items:
                todo += [(item, True), (item.item, False)]
                continue
            done[-1] = Repeat(done[-1], item.min, item.max)
        else:
            done.append(leaf(item))
    return done[0]
