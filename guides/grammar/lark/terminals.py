"""Terminals of Lark's grammar language as nodes, without recursion: strings, ranges, regular expressions.

In a grammar a regular expression is the set of texts that it matches as a whole. Constructs without meaning for
a set of texts are refused: a lazy repeat, which prefers the shortest match, and what depends on the surrounding text:
an anchor, a boundary, a lookbehind at the beginning or a lookahead at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ....checks import lone_surrogate
from ....errors import GrammarError, PatternError, SchemaError
from ...automata.charsets import normalise
from ...limits import spend
from ...quoting.quotation import Quote
from ...regex import parse
from ...syntax import EMPTY, Alternation, Chars, Literal, Node, Reference
from ..combine import is_character, series
from ..grammar import Part, references
from ..inlining import substitute
from ..languages import common, shortest
from ..special_tokens import SpecialTokens
from .names import Names
from .syntax import (
    STEPS_PER_PART,
    Ending,
    Expression,
    Ignore,
    Inline,
    LiteralText,
    Name,
    NegatedTerminal,
    Pattern,
    Quotation,
    Range,
    Regex,
    SpecialToken,
    TemplateCall,
    TerminalIntersection,
    Value,
    fold,
    leaves,
)


class Terminals:
    """All defined terminals by name, in `nodes`; recursive ones are refused.

    contexts: quotable contexts by name; parts: quotations, JSON values and tokens, by the names of their rules
    """

    def __init__(self, text: str, names: Names, contexts: Mapping[str, Quote]) -> None:
        self.text = text
        self.names = names
        self.contexts = contexts
        self.parts: dict[str, Part] = {}
        self._embedded: dict[str, str] = {}
        self.nodes: dict[str, Node] = {}
        self._expanded_nodes: dict[str, Node] = {}
        for name in self._innermost_first():
            self.nodes[name] = self.node(names.definitions[name].body)

    def node(self, body: Expression) -> Node:
        """Convert an expression inside a terminal to a node."""
        return fold(body, self._leaf)

    def pattern(self, pattern: Pattern) -> Node:
        """Convert a string, range, regular expression, quotation, special token or JSON directive to a node."""
        match pattern:
            case LiteralText():
                return text_node(pattern, self.text)
            case Regex():
                return regex_node(pattern, self.text)
            case Range():
                return range_node(pattern, self.text)
            case Quotation():
                return self._quotation(pattern)
            case SpecialToken():
                self.parts.setdefault(pattern.source, SpecialTokens(pattern.source, pattern.offset))
                return Reference(pattern.source)
            case Inline():
                return self._schema(pattern) if pattern.directive == "%json" else self._substring(pattern)

    def _quotation(self, pattern: Quotation) -> Node:
        name = pattern.name
        if name.name not in self.contexts:
            known = ", ".join(map(repr, self.contexts)) or "none"
            raise GrammarError(f"there is no context {name.name!r}; contexts= has {known}", self.text, name.offset)
        self.parts[pattern.source] = self.contexts[name.name]
        return Reference(pattern.source)

    def _schema(self, pattern: Inline) -> Node:
        from ...json_schema.lower.formulas import EmbeddedSchema  # most grammars have no schema

        try:
            return self._part(pattern, lambda: EmbeddedSchema.of(pattern.text))
        except SchemaError as error:
            raise GrammarError(f"%json: {error}", self.text, pattern.offset) from None

    def _substring(self, pattern: Inline) -> Node:
        pieces = pieces_of(pattern, self.text)
        if not pieces:
            return EMPTY
        quote = self._part(pattern, lambda: Quote("".join(pieces), tuple(map(len, pieces))))
        return Alternation((EMPTY, quote))

    def _part(self, pattern: Inline, make: Callable[[], Part]) -> Node:
        """Return the rule of a JSON directive, shared by equal directives."""
        name = self._embedded.get(pattern.source)
        if name is None:
            # Names in a grammar have no spaces
            name = self._embedded[pattern.source] = f"{pattern.directive} {len(self._embedded) + 1}"
            self.parts[name] = make()
        return Reference(name)

    def reference(self, terminal: Name | Pattern) -> Node:
        """Return the node of a terminal used in a rule. Raises GrammarError if it is undefined."""
        if not isinstance(terminal, Name):
            return self.pattern(terminal)
        self.names.lookup(terminal)
        return Reference(terminal.name)

    def ignored_node(self, statement: Ignore) -> Node:
        """Return the node of an `%ignore` statement."""
        return self.node(statement.body)

    def node_with_ending(self, body: Expression, ending: Ending) -> Node:
        """Return the node of a rule of terminals with the shortest match."""
        node = self.node(body)
        if ending.mark is None:
            return shortest(self._regular(node, ending.offset))
        mark = self.node(ending.mark)
        stop = ""
        if mark == EMPTY:
            reason = f"{ending.how} has no text; give the one that ends the rule, or leave {ending.how} out"
            raise GrammarError(reason, self.text, ending.offset)
        if ending.how == "stop":
            if not isinstance(mark, Literal):
                reason = "stop= needs a text in quotes without ignored case; for a pattern use suffix="
                raise GrammarError(reason, self.text, ending.offset)
            stop = mark.data.decode()
        return shortest(self._regular(series([node, mark]), ending.offset), stop)

    def _leaf(self, leaf: Value) -> Node:
        match leaf:
            case Inline("%json"):
                reason = "a schema is not regular, as terminals are; write %json {...} in a rule"
                raise GrammarError(reason, self.text, leaf.offset)
            case SpecialToken():
                reason = "a special token cannot be part of a terminal, which is text; write it in a rule"
                raise GrammarError(reason, self.text, leaf.offset)
            case Name() | TemplateCall():
                return Reference(self._terminal(leaf).name)
            case NegatedTerminal(item, offset):
                return common([], [self._regular(self.node(item), offset)])
            case TerminalIntersection():
                return self._intersect(leaf)
            case _:
                return self.pattern(leaf)

    def _intersect(self, intersection: TerminalIntersection) -> Node:
        wanted: list[Node] = []
        unwanted: list[Node] = []
        for item in intersection.items:
            inner, found = (item.item, unwanted) if isinstance(item, NegatedTerminal) else (item, wanted)
            found.append(self._regular(self.node(inner), intersection.offset))
        return common(wanted, unwanted)

    def _regular(self, node: Node, offset: int) -> Node:
        """Inline all terminals that a node refers to. Raises GrammarError for quotations and other parts."""
        return substitute(node, {name: self._expand(name, offset) for name in references(node)})

    def _expand(self, name: str, offset: int) -> Node:
        if name in self.parts:
            reason = f"{name} cannot be used in a rule that ends by an attribute, nor with & or ~"
            raise GrammarError(f"{reason}; use a regular expression instead", self.text, offset)
        if name not in self._expanded_nodes:
            self._expanded_nodes[name] = self._regular(self.nodes[name], offset)
        return self._expanded_nodes[name]

    def _terminal(self, leaf: Name | TemplateCall) -> Name:
        """Return the name of a terminal used in another one. Raises GrammarError if it is a rule or undefined."""
        name = leaf.name if isinstance(leaf, TemplateCall) else leaf
        if not name.is_terminal or isinstance(leaf, TemplateCall):
            reason = f"the rule {name.name!r} cannot be used inside a terminal, nor in a rule that ends by an attribute"
            raise GrammarError(f"{reason}, nor be ignored; make it a terminal, in upper case", self.text, name.offset)
        self.names.lookup(name)
        return name

    def _innermost_first(self) -> list[str]:
        """Return the terminals in depth-first postorder, so that those referred to come first."""
        finished: dict[str, None] = {}
        for root, definition in self.names.definitions.items():
            path = {root: self._terminals_in(root)} if definition.name.is_terminal else {}
            while path:
                name, pending = next(reversed(path.items()))
                if name in finished or not pending:
                    finished[name] = None
                    path.popitem()
                    continue
                inner = pending.pop()
                if inner.name in path:
                    reason = f"the terminal {inner.name!r} contains itself; only rules may be recursive"
                    raise GrammarError(reason, self.text, inner.offset)
                if inner.name not in finished:
                    path[inner.name] = self._terminals_in(inner.name)
        return list(finished)

    def _terminals_in(self, terminal: str) -> list[Name]:
        spend(STEPS_PER_PART)
        found: list[Name] = []
        for leaf in leaves(self.names.definitions[terminal].body):
            if isinstance(leaf, Name | TemplateCall):
                found.append(self._terminal(leaf))
        return found


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[^xuU])")
STEPS_PER_CHARACTER = 30
_NO_SUBSTRING = "%regex takes substring_words or substring_chars with a text, or substring_chunks with a list of texts"
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", '"': '"', "\\": "\\"}


def text_node(literal: LiteralText, grammar: str) -> Node:
    """Return the node of a string literal; with the suffix `i` in any mixture of cases (`re.IGNORECASE`)."""
    text = _unescape(literal, grammar)
    if literal.source.endswith("i"):
        return parse(re.escape(text), flags=re.IGNORECASE)
    return Literal(text.encode())


def range_node(span: Range, grammar: str) -> Chars:
    """Return the node of `"a".."z"`, without surrogates."""
    low, high = _one_character(span.low, grammar), _one_character(span.high, grammar)
    if high < low:
        raise GrammarError(f"the range {span.low.source}..{span.high.source} is empty", grammar, span.low.offset)
    return Chars(normalise([(low, high)]))


def pieces_of(pattern: Inline, grammar: str) -> list[str]:
    """Return the nonempty pieces of the text whose substrings `%regex {...}` accepts."""
    value: Any = json.loads(pattern.text, parse_int=float)
    match value:
        case {"substring_words": str(text), **rest} if not rest:
            pieces = _words(text)
        case {"substring_chars": str(text), **rest} if not rest:
            pieces = list(text)
        case {"substring_chunks": [*chunks], **rest} if not rest and all(isinstance(each, str) for each in chunks):
            pieces = [str(each) for each in chunks]
        case _:
            raise GrammarError(_NO_SUBSTRING, grammar, pattern.offset)
    if lone_surrogate("".join(pieces)) >= 0:
        raise GrammarError("a lone surrogate is not a character of UTF-8", grammar, pattern.offset)
    return [piece for piece in pieces if piece]


def _words(text: str) -> list[str]:
    """Split a text into llguidance's words: runs of letters, digits and _, of white space, and of others."""
    import regex

    return regex.findall(r"[\p{Alphabetic}\p{N}_]+|\s+|[^\p{Alphabetic}\p{N}_\s]+", text)


def _one_character(literal: LiteralText, grammar: str) -> int:
    text = _unescape(literal, grammar)
    if len(text) != 1 or literal.source.endswith("i"):
        raise GrammarError("a range must go from one character to another, without suffix", grammar, literal.offset)
    return ord(text)


def _unescape(literal: LiteralText, grammar: str) -> str:
    """Unescape a literal; a backslash before an ordinary character stays, as in Lark."""
    body = literal.source[1 : literal.source.rindex('"')]
    if "\\" not in body:
        return body
    spend(STEPS_PER_CHARACTER * len(body))
    out: list[str] = []
    at = 0
    while at < len(body):
        if body[at] != "\\":
            out.append(body[at])
            at += 1
            continue
        match = _ESCAPE.match(body, at)
        if match is None:
            raise GrammarError(r"expected \xHH, \uHHHH or \UHHHHHHHH", grammar, literal.offset + 1 + at)
        out.append(_decode_escape(match[1], literal, grammar, at))
        at = match.end()
    return "".join(out)


def _decode_escape(escape: str, literal: LiteralText, grammar: str, at: int) -> str:
    if escape[0] not in "xuU" or len(escape) == 1:
        return _CONTROLS.get(escape, "\\" + escape)
    code = int(escape[1:], 16)
    if not is_character(code):
        raise GrammarError(f"\\{escape} is no character", grammar, literal.offset + 1 + at)
    return chr(code)


_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "u": re.UNICODE}

_PARTS = r"""
    (?P<anchor> \^ | \$ | \\[AZbB] )
  | (?P<behind> \(\?<[=!] )
  | (?P<ahead> \(\?[=!] )
  | (?P<open> \( (?: \? (?: P?<\w+> | > | [a-zA-Z-]*: ) )? )
  | (?P<close> \) )
  | (?P<bar> \| )
  | (?P<lazy> (?: [*+?] | \{ (?: [0-9]+ (?: ,[0-9]* )? | ,[0-9]* ) \} ) \? )
  | (?P<repeat> [*+?] | \{ (?: [0-9]+ (?: ,[0-9]* )? | ,[0-9]* ) \} )
  | (?P<one> \\. | \[\^?\]?(?:\\.|[^\]\\])*+\] | [^\[] )
  | (?P<unclosed> \[ )
"""
_PLAIN = re.compile(_PARTS, re.VERBOSE | re.DOTALL)
_SPACED = re.compile(rf"(?P<space> \s+ | \#[^\n]* ) | {_PARTS}", re.VERBOSE | re.DOTALL)


def regex_node(regex: Regex, grammar: str) -> Node:
    """Parse `/pattern/flags` to a node. Raises GrammarError if it is malformed or denotes no set of texts."""
    body, _, letters = regex.source[1:].rpartition("/")
    begin = regex.offset + 1
    flags = 0
    for letter in letters:
        if letter not in _FLAGS:
            reason = f"the flag {letter!r} is not supported: text is Unicode here and has no locale"
            raise GrammarError(reason, grammar, begin + len(body) + 1)
        flags |= int(_FLAGS[letter])
    if "\n" in body and "x" not in letters:
        reason = "a regular expression ends on its line, unless it has the flag x; expected a closing /"
        raise GrammarError(reason, grammar, regex.offset)
    fault = _Scan(body, verbose="x" in letters).fault()
    if fault is not None:
        raise GrammarError(fault[0], grammar, begin + fault[1])
    try:
        return parse(body, flags=flags)
    except PatternError as error:
        raise GrammarError(error.reason, grammar, min(begin + error.offset, len(grammar))) from None


@dataclass(slots=True)
class _Group:
    """An open bracket of a pattern.

    at_begin: nothing comes before it
    ahead: the offset of a lookahead that ends one of its alternatives
    """

    looks: bool
    at_begin: bool
    ahead: int | None = None


class _Scan:
    """A single pass over a pattern that tracks brackets, repeats and lookarounds.

    ahead: the offset of a lookahead after which nothing has been matched so far
    """

    def __init__(self, body: str, verbose: bool) -> None:
        self.parts = (_SPACED if verbose else _PLAIN).finditer(body)
        self.groups: list[_Group] = []
        self.at_begin = True
        self.looking = 0
        self.ahead: int | None = None

    def fault(self) -> tuple[str, int] | None:
        """Return the first unsupported construct as (reason, offset), None if there is none."""
        for part in self.parts:
            spend(STEPS_PER_PART)
            kind = str(part.lastgroup)
            if kind == "unclosed":
                return None  # the regex parser has a better message
            if kind == "lazy":
                return _lazy_message(part.group()), part.start()
            if kind == "anchor" and not self.looking:
                return _context_message(part.group()), part.start()
            if kind == "behind" and self.at_begin and not self.looking:
                return _context_message("a lookbehind at the beginning"), part.start()
            if kind == "bar" and self.ahead is not None and not self.groups:
                break
            self.step(kind, part.start())
        return None if self.ahead is None else (_context_message("a lookahead at the end"), self.ahead)

    def step(self, kind: str, offset: int) -> None:
        if kind in ("ahead", "behind", "open"):
            self.groups.append(_Group(kind != "open", self.at_begin))
            self.looking += kind != "open"
            if kind == "ahead" and self.looking == 1:
                self.ahead = offset
        elif kind == "close" and self.groups:
            group = self.groups.pop()
            self.looking -= group.looks
            self.at_begin = group.at_begin and group.looks
            self.ahead = group.ahead if self.ahead is None else self.ahead
        elif kind == "bar" and self.groups and not self.looking:
            self.at_begin = self.groups[-1].at_begin
            if self.ahead is not None:
                self.groups[-1].ahead, self.ahead = self.ahead, None
        elif kind == "bar" and not self.groups:
            self.at_begin = True
        elif kind == "one" and not self.looking:
            self.at_begin = False
            self.ahead = None


def _lazy_message(repeat: str) -> str:
    return (
        f"the lazy repeat {repeat!r} asks for the shortest match, but in a grammar every match counts; "
        'say what may be repeated instead, as in /"[^"]*"/, or write a rule of its own with [lazy] or [suffix=...]'
    )


def _context_message(what: str) -> str:
    return (
        f"{what} looks beyond the text of the terminal, which is not supported; leave it out: a regular expression "
        "matches the whole terminal"
    )
