"""Lark's grammar language: from text to words, and from these to statements."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, NoReturn, cast

from ....errors import GrammarError, LimitError
from ...limits import spend
from ..combine import COUNT_DIGITS, REPEATS
from ..options import NO_CAPTURE_NAME, REFUSED_ATTRIBUTES, refused_attribute
from ..special_tokens import WRITTEN
from .syntax import (
    Alternatives,
    Concatenation,
    Definition,
    Ending,
    Expression,
    Ignore,
    Import,
    Inline,
    LiteralText,
    Name,
    NegatedTerminal,
    Quotation,
    Range,
    Regex,
    Repetition,
    SpecialToken,
    Statement,
    TemplateCall,
    TerminalIntersection,
    Value,
)


class Token(NamedTuple):
    """A word of the grammar: its kind, its text and the offset of its first character.

    kind: a group name of the pattern below, `or_line` for a line that begins with `|`, or `end`; JSON has the kind
    of its directive
    """

    kind: str
    text: str
    offset: int


_PATTERN = re.compile(
    rf"""
    (?P<comment> \s*+ (?: // | \# ) [^\n]* )
  | (?P<blank> [ \t\f]+ | \\ [ ]* \r?\n )
  | (?P<or_line> \r?\n \s*+ \| )
  | (?P<line> \r?\n \s* )
  | (?P<regex> / (?: \\. | [^/\\] )++ / [imslux]* )
  | (?P<string> " (?: \\[^\n] | [^"\\\n] )*+ " i? )
  | (?P<modifiers> (?: !\?? | \?!? ) (?= [_a-z] ) )
  | (?P<rule> _?[a-z][_a-z0-9]* (?: -++ [_a-z0-9]+ )* )
  | (?P<terminal> _?[A-Z][_A-Z0-9]* (?: -++ [_A-Z0-9]+ )* )
  | (?P<number> [+-]?[0-9]+ )
  | (?P<special> {WRITTEN} )
  | (?P<json> % (?: json | regex | llguidance ) (?![A-Za-z_]) \s*+ )
  | (?P<directive> % [A-Za-z_]* )
  | (?P<mark> -> | \.\. | :(?!:) | [()\[\]{{}}|.,~*+?=&] )
    """,
    re.VERBOSE | re.DOTALL,
)
# Work per word, and the number of words counted at once
STEPS_PER_WORD, BATCH = 90, 64
_DROPPED = frozenset({"comment", "blank"})
_JSON = json.JSONDecoder(parse_int=str, parse_float=str)


def tokenize(text: str) -> list[Token]:
    """Split a grammar into words, followed by a `line` and an `end`. Raises GrammarError for an invalid character."""
    tokens: list[Token] = []
    offset = words = 0
    while offset < len(text):
        match = _PATTERN.match(text, offset)
        if match is None:
            raise GrammarError(_character_message(text, offset), text, offset)
        words += 1
        if words % BATCH == 0:
            spend(STEPS_PER_WORD * BATCH)
        kind, end = str(match.lastgroup), match.end()
        if kind == "json":
            end = _end_of_json(text, match.end())
            tokens.append(Token(match.group().rstrip(), text[match.end() : end], offset))
        elif kind not in _DROPPED:
            tokens.append(Token(kind, match.group(), offset))
        offset = end
    spend(STEPS_PER_WORD * (words % BATCH))
    tokens.append(Token("line", "", len(text)))
    tokens.append(Token("end", "", len(text)))
    return tokens


def _end_of_json(text: str, begin: int) -> int:
    """Return the end of the JSON value that begins at an offset."""
    try:
        end = _JSON.raw_decode(text, begin)[1]
    except json.JSONDecodeError as error:
        raise GrammarError(f"this is no JSON: {error.msg}", text, min(error.pos, len(text))) from None
    except RecursionError:
        raise LimitError("JSON in the grammar is nested too deep for Python's parser; bound its depth") from None
    spend(end - begin)
    return end


def _character_message(text: str, offset: int) -> str:
    character = text[offset]
    if character == '"':
        return 'a string that does not end on its line; expected a closing "'
    if character == "/":
        return "a regular expression that does not end; expected a closing /"
    if character == "'":
        return "strings are written in double quotes here"
    if character == "<":
        return "a special token is written without blanks, <|im_end|>, or by its id, <[128010]>"
    if character == "@":
        return "a grammar cannot refer to others; write their rules here, and schemas as %json {...}"
    if text.startswith("::=", offset):
        return "'::=' is GBNF's; Lark has ':' after the name of a rule. Read GBNF with syntax='gbnf'"
    if character == ":":
        return "rules have no numbers as parameters; write a rule for each, or a template such as list{item}"
    return f"unexpected character {character!r}; expected a rule, a terminal, a literal or an operator"


# Work per value with the words around it
STEPS_PER_VALUE = 120
_AFTER_DEFINITION = frozenset(":.{},")
_VALUES = frozenset({"rule", "terminal", "string", "regex", "special", "%json", "%regex"})
_CLOSING = {"(": ")", "[": "]"}
_DIRECTIVES = "%import, %ignore, %override, %extend"
_KINDS = {
    "line": "the end of the line",
    "or_line": "'|'",
    "end": "the end of the grammar",
    **{directive: repr(directive) for directive in ("%json", "%regex", "%llguidance")},
}
_ATTRIBUTES = ("lazy", "suffix", "stop", "capture", "stop_capture")
# Options of llguidance, with the value that does not change the language; None for any value
_OPTIONS: dict[str, Any] = {
    "no_forcing": None,
    "allow_initial_skip": True,
    "allow_invalid_utf8": False,
}


def parse_statements(text: str, max_depth: int) -> list[Statement]:
    """Parse the statements of a grammar. Raises GrammarError with the place and what was expected, LimitError."""
    parser = _Parser(text, max_depth)
    statements: list[Statement] = []
    while parser.skip_lines().kind != "end":
        statements += parser.statement()
    return statements


class _Group:
    """An open bracket of an expansion: its finished alternatives, and the items of the current one.

    operands: those before each `&` of that one; intersection: the last `&`; negation: a pending `~`
    """

    def __init__(self, opening: Token | None) -> None:
        self.opening = opening
        self.alternatives: list[Expression] = []
        self.operands: list[Expression] = []
        self.items: list[Expression] = []
        self.intersection: Token | None = None
        self.negation: Token | None = None

    def apply_negation(self, item: Expression) -> Expression:
        """Apply a pending `~` to the item."""
        item = item if self.negation is None else NegatedTerminal(item, self.negation.offset)
        self.negation = None
        return item

    def close_operand(self) -> None:
        self.operands.append(self.items[0] if len(self.items) == 1 else Concatenation(tuple(self.items)))
        self.items = []

    def close_alternative(self) -> None:
        self.close_operand()
        self.alternatives.append(
            self.operands[0]
            if self.intersection is None
            else TerminalIntersection(tuple(self.operands), self.intersection.offset)
        )
        self.operands, self.intersection = [], None

    def close(self) -> Expression:
        self.close_alternative()
        alternatives = self.alternatives
        return alternatives[0] if len(alternatives) == 1 else Alternatives(tuple(alternatives))


class _Parser:
    def __init__(self, text: str, max_depth: int) -> None:
        self.text = text
        self.max_depth = max_depth
        self.tokens = tokenize(text)
        self.at = 0
        # A grammar may define a rule or a parameter `quote`, followed by a group; quotations are then disabled.
        words = zip(self.tokens, self.tokens[1:], strict=False)
        self.quotes = not any(word.text == "quote" and after.text in _AFTER_DEFINITION for word, after in words)

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def next(self) -> Token:
        token = self.token
        self.at += 1
        return token

    def fail(self, expected: str) -> NoReturn:
        found = _KINDS.get(self.token.kind) or repr(self.token.text)
        raise GrammarError(f"expected {expected}, found {found}", self.text, self.token.offset)

    def take(self, kind: str, expected: str) -> Token:
        if self.token.kind != kind:
            self.fail(expected)
        return self.next()

    def mark(self, *marks: str) -> bool:
        """Test whether the next word is one of these marks."""
        token = self.tokens[self.at]
        return token.kind == "mark" and token.text in marks

    def skip(self, mark: str, expected: str) -> None:
        if not self.mark(mark):
            self.fail(expected)
        self.at += 1

    def skip_lines(self) -> Token:
        while self.token.kind == "line":
            self.at += 1
        return self.token

    def end_line(self) -> None:
        self.take("line", "the end of the line")

    # Statements

    def statement(self) -> list[Statement]:
        if self.token.kind == "%llguidance":
            self.options()
            return []
        if self.token.kind != "directive":
            return [self.definition("define")]
        word = self.token.text
        if word in ("%override", "%extend"):
            self.at += 1
            return [self.definition(word[1:])]
        if word == "%ignore":
            self.at += 1
            if self.tokens[self.at].kind == "line":
                self.fail("a terminal, a string or a regular expression after '%ignore'")
            return [Ignore(self.expansions("'%ignore'", terminal=True))]
        if word == "%import":
            self.at += 1
            return list(self.imports())
        if word == "%declare":
            reason = "%declare is not supported: a declared terminal has no text to generate; define it instead"
        else:
            reason = f"{word} is not supported; the directives are {_DIRECTIVES}"
        raise GrammarError(reason, self.text, self.token.offset)

    def options(self) -> None:
        """Raise GrammarError for options of llguidance that would change the language."""
        token = self.next()
        options: Any = json.loads(token.text, parse_int=float)
        if not isinstance(options, dict):
            raise GrammarError("the options of %llguidance must be a JSON object", self.text, token.offset)
        for name, value in cast("dict[str, Any]", options).items():
            if name not in _OPTIONS or _OPTIONS[name] not in (None, value):
                known = ", ".join(_OPTIONS)
                reason = (
                    f"%llguidance with {name!r} as {json.dumps(value)} is not supported: it would change the language"
                )
                raise GrammarError(f"{reason}; leave it out. The options are {known}", self.text, token.offset)

    def definition(self, how: str) -> Definition:
        if self.token.kind == "modifiers":
            self.at += 1
        if self.token.kind not in ("rule", "terminal"):
            self.fail("a definition such as 'name: ...', or a directive")
        name = self.name()
        parameters: list[Name] = []
        if self.mark("{") and not name.is_terminal:
            self.at += 1
            parameters = self.names("rule", "a parameter (a lower case name)", "}")
        if self.mark("."):
            self.at += 1
            self.take("number", "a priority (a whole number) after '.'")
        ending, captures = self.attributes(name) if self.mark("[") and not name.is_terminal else (None, {})
        if self.token.kind in ("rule", "terminal") and self.token.offset == name.offset + len(name.name):
            reason = f"names of rules are in lower case, of terminals in upper case; {name.name!r} mixes both"
            raise GrammarError(reason, self.text, name.offset)
        self.skip(":", f"':' after {name.name!r}")
        body = self.expansions(repr(name.name), terminal=name.is_terminal or ending is not None)
        return Definition(name, tuple(parameters), body, how, ending, **captures)

    def attributes(self, name: Name) -> tuple[Ending | None, dict[str, str]]:
        """Parse the attributes in brackets after a rule's name: its ending, and names of captures by attribute."""
        found: Ending | None = None
        captures: dict[str, str] = {}
        while not self.mark("]"):
            self.at += 1  # the bracket, or a comma
            token = self.take("rule", f"an attribute: {', '.join(_ATTRIBUTES)}")
            if token.text in REFUSED_ATTRIBUTES:
                raise GrammarError(refused_attribute(token.text), self.text, token.offset)
            is_capture, is_known = token.text.endswith("capture"), token.text in _ATTRIBUTES
            if not is_known or (token.text in captures if is_capture else found is not None):
                reason = (
                    "a rule has at most one attribute that ends it, and each capture once"
                    if is_known
                    else f"{token.text!r} is no attribute"
                )
                raise GrammarError(f"{reason}; give one of {', '.join(_ATTRIBUTES)}", self.text, token.offset)
            if is_capture:
                takes_rule_name = token.text == "capture" and not self.mark("=")
                captures[token.text] = name.name if takes_rule_name else self.capture_name()
            else:
                mark: Value | None = None
                if token.text != "lazy":
                    self.skip("=", f"'=' and a text or a terminal after {token.text!r}")
                    mark = self.value(1)
                found = Ending(token.text, mark, token.offset)
            if not self.mark(",", "]"):
                self.fail("',' or ']'")
        if "stop_capture" in captures and (found is None or found.mark is None):
            reason = "stop_capture needs suffix= or stop=, whose text it reports"
            raise GrammarError(reason, self.text, name.offset)
        self.at += 1
        return found, captures

    def capture_name(self) -> str:
        """Parse `=` and the name of a capture."""
        self.skip("=", "'=' and the name of the capture")
        text = self.take("string", "the name of the capture in double quotes").text
        if text.endswith("i") or "\\" in text or text == '""':
            raise GrammarError(NO_CAPTURE_NAME, self.text, self.tokens[self.at - 1].offset)
        return text[1:-1]

    def name(self) -> Name:
        token = self.next()
        return Name(token.text, token.offset)

    def names(self, kind: str, expected: str, closing: str) -> list[Name]:
        """Parse comma-separated names, up to a closing bracket."""
        found: list[Name] = []
        while True:
            if self.token.kind != kind:
                self.fail(expected)
            found.append(self.name())
            if self.mark(closing):
                self.at += 1
                return found
            self.skip(",", f"',' or {closing!r}")

    def imports(self) -> list[Import]:
        if self.mark("."):
            reason = "relative imports are not supported; only '%import common.NAME' is known"
            raise GrammarError(reason, self.text, self.token.offset)
        path = [self.import_name()]
        while self.mark("."):
            self.at += 1
            path.append(self.import_name())
        if self.mark("("):
            self.at += 1
            names = self.names("terminal", "a terminal (an upper case name)", ")")
            self.end_line()
            return [Import(tuple(path), name, name) for name in names]
        alias = path[-1]
        if self.mark("->"):
            self.at += 1
            alias = self.import_name()
        self.end_line()
        return [Import(tuple(path[:-1]), path[-1], alias)]

    def import_name(self) -> Name:
        if self.token.kind not in ("rule", "terminal"):
            self.fail("a name to import, such as common.WS")
        return self.name()

    # Expansions

    def expansions(self, owner: str, *, terminal: bool) -> Expression:
        """Parse the right side of a definition, to the end of its line, with an explicit stack of brackets."""
        groups = [_Group(None)]
        while True:
            token, group = self.token, groups[-1]
            if self.mark("(", "["):
                self.limit_depth(len(groups))
                groups.append(_Group(self.next()))
            elif self.mark("~", "&") and (terminal or token.text == "&"):
                self.operator(terminal, group)
            elif self.mark("|") or token.kind == "or_line":
                self.at += 1
                group.close_alternative()
            elif self.mark("->"):
                self.alias(terminal)
            elif token.kind == "line" and group.opening is None:
                self.at += 1
                return group.close()
            elif group.opening is not None and self.mark(_CLOSING[group.opening.text]):
                self.at += 1
                groups.pop()
                inner = group.close() if group.opening.text == "(" else Repetition(group.close(), 0, 1)
                groups[-1].items.append(self.repetition(groups[-1].apply_negation(inner), terminal))
            elif token.kind in _VALUES:
                group.items.append(self.repetition(group.apply_negation(self.value(len(groups))), terminal))
            else:
                self.fail(self.expectation(owner, group))

    def expectation(self, owner: str, group: _Group) -> str:
        if group.opening is not None:
            line = self.text.count("\n", 0, group.opening.offset) + 1
            return f"{_CLOSING[group.opening.text]!r} to close the {group.opening.text!r} of line {line}"
        if self.mark("?", "*", "+", "~"):
            return "something to repeat before the operator"
        return f"a literal, a name, a bracket, '|' or the end of the line in {owner}"

    def operator(self, terminal: bool, group: _Group) -> None:
        """Parse `&` (intersection) or `~` (complement)."""
        token = self.next()
        if not terminal:
            reason = "'&' needs terminals; define its operands as terminals, in upper case"
            raise GrammarError(reason, self.text, token.offset)
        if token.text == "&":
            group.close_operand()
            group.intersection = token
            return
        group.negation = token if group.negation is None else None
        if not (self.token.kind in _VALUES or self.mark("(", "[", "~")):
            self.fail("a literal, a name or a bracket after '~'")

    def alias(self, terminal: bool) -> None:
        if terminal:
            raise GrammarError("a terminal has no aliases; only rules have '->'", self.text, self.token.offset)
        self.at += 1
        self.take("rule", "an alias (a lower case name) after '->'")
        if not (self.token.kind in ("line", "or_line") or self.mark("|", ")", "]")):
            self.fail("'|' or the end of the line after an alias")

    def repetition(self, item: Expression, terminal: bool) -> Expression:
        """Apply the operator that follows an item, if any; in terminals `~` may begin another item instead."""
        if self.mark("?", "*", "+"):
            low, high = REPEATS[self.next().text]
            return Repetition(item, low, high)
        if self.counts_follow():
            return self.counted_repetition(item)
        if not self.mark("~") or (terminal and self.tokens[self.at + 1].kind != "number"):
            return item
        self.at += 1
        begin = self.token
        low = high = self.count("~")
        if self.mark(".."):
            self.at += 1
            high = self.count("..")
        if high < low:
            raise GrammarError(f"{low}..{high} is no range of repeats", self.text, begin.offset)
        return Repetition(item, low, high)

    def counts_follow(self) -> bool:
        """Test whether `{m}`, `{m,n}`, `{m,}` or `{,n}` comes next, rather than the arguments of a template."""
        after = self.tokens[self.at + 1] if self.mark("{") else self.token
        return after.kind == "number" or (after.text == "," and self.mark("{"))

    def counted_repetition(self, item: Expression) -> Expression:
        """Apply the counts in braces that follow an item."""
        begin = self.next()
        low = 0 if self.mark(",") else self.count("{")
        high: int | None = low
        if self.mark(","):
            self.at += 1
            high = None if self.mark("}") else self.count(",")
        self.skip("}", "'}' behind the counts")
        if high is not None and high < low:
            raise GrammarError(f"{{{low},{high}}} is no range of repeats", self.text, begin.offset)
        return Repetition(item, low, high)

    def count(self, before: str) -> int:
        token = self.take("number", f"a number of repeats after {before!r}")
        if token.text[0] == "-":
            raise GrammarError("a number of repeats cannot be negative", self.text, token.offset)
        if len(token.text) > COUNT_DIGITS:
            raise GrammarError(f"a number of repeats has at most {COUNT_DIGITS} digits", self.text, token.offset)
        return int(token.text)

    def value(self, depth: int) -> Value:
        spend(STEPS_PER_VALUE)
        token = self.token
        if token.kind in ("rule", "terminal"):
            name = self.name()
            if name.name == "quote" and self.quotes and self.mark("("):
                return self.quotation()
            calls = self.mark("{") and not self.counts_follow()
            return TemplateCall(name, self.arguments(depth)) if calls else name
        if token.kind in ("%json", "%regex"):
            self.at += 1
            return Inline(token.kind, token.text, token.offset)
        if token.kind in ("regex", "special"):
            self.at += 1
            return (Regex if token.kind == "regex" else SpecialToken)(token.text, token.offset)
        low = LiteralText(self.take("string", "a name, a string or a regular expression").text, token.offset)
        if not self.mark(".."):
            return low
        self.at += 1
        high = self.take("string", "a string of one character after '..'")
        return Range(low, LiteralText(high.text, high.offset))

    def quotation(self) -> Quotation:
        self.at += 1
        if self.token.kind not in ("rule", "terminal"):
            self.fail("the name of a context after 'quote('")
        name = self.name()
        self.skip(")", f"')' after {name.name!r}")
        return Quotation(name)

    def arguments(self, depth: int) -> tuple[Value, ...]:
        self.limit_depth(depth)
        self.at += 1
        found = [self.value(depth + 1)]
        while self.mark(","):
            self.at += 1
            found.append(self.value(depth + 1))
        self.skip("}", "',' or '}'")
        return tuple(found)

    def limit_depth(self, depth: int) -> None:
        if depth > self.max_depth:
            line = self.text.count("\n", 0, self.token.offset) + 1
            raise LimitError(
                f"brackets nested more than max_depth={self.max_depth} deep in line {line}; "
                "name the inner parts as rules of their own, or raise max_depth= of parse_lark"
            )
