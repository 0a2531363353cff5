"""GBNF, the grammar notation of llama.cpp, with the compatible parts of ISO EBNF and XGrammar's EBNF.

White space, line ends included, only separates words: a rule continues until the next `name ::=`. From ISO
14977 come `=` for `::=`, an optional `;` after a rule, optional commas in a sequence, strings in single
quotes and `(* comments *)`. Brackets have their GBNF meaning: `[...]` is a set of characters, `{m,n}`
repeats. From XGrammar's EBNF come its macros, its escapes, names with dots, captures, and a lookahead
`(= ...)` at the end of a rule, which does not change the language.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ...errors import GrammarError, LimitError, PatternError
from ..automata.charsets import negate, normalise
from ..limits import spend
from ..quoting.quotation import Quote
from ..regex import parse
from ..regex.tree import ANY, ANY_TEXT
from ..syntax import EMPTY, Alternation, Chars, Literal, Node, Reference, Repeat
from ..syntax import Sequence as InOrder
from .combine import COUNT_DIGITS, REPEATS, choice, is_character, series
from .grammar import Grammar, Part, check
from .languages import free_of, up_to
from .options import NO_CAPTURE_NAME, NO_TEXT, REFUSED_ATTRIBUTES, check_options, grammar_text, refused_attribute
from .special_tokens import WRITTEN, SpecialTokens

_PATTERN = re.compile(
    rf"""
    (?P<blank> \s+ | \#[^\n]* )
  | (?P<name> [A-Za-z0-9_-]+ )
  | (?P<define> ::= | = )
  | (?P<string> " (?: \\. | [^"\\\n] )*+ " | ' (?: \\. | [^'\\\n] )*+ ' )
  | (?P<set> \[ (?: \\. | [^\]\\\n] )*+ \] )
  | (?P<bounds> \{{ \s*+ [0-9]++ \s*+ (?: , \s*+ (?: -1 | [0-9]*+ ) \s*+ )? \}} )
  | (?P<special> {WRITTEN} )
  | (?P<mark> [()|.*+?;,] )
    """,
    re.VERBOSE | re.DOTALL,
)
_CODES = r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|"
_ESCAPE = re.compile(_CODES + r"([ntrbfave0/?\\\"'\[\]-]))")
_ESCAPE_IN_SET = re.compile(_CODES + r"([ntrbfave0/?\\\"'\[\]^$.*+(){}|-]))")
_CONTROLS = {"n": 10, "t": 9, "r": 13, "b": 8, "f": 12, "a": 7, "v": 11, "e": 27, "0": 0}
_CAPTURE = re.compile(r'\[\s*+capture\s*+(?:=\s*+"([^"\\]++)"\s*+)?\]')
_DOTTED_NAME = re.compile(r"[\w.-]+")
# Work to read a word and to parse it, and per character of a literal
STEPS_PER_WORD, STEPS_PER_CHARACTER = 150, 30


_RULE = re.compile(r"^[^\S\n]*+([\w.-]++)(?:\[[^\]\n]*+\])?+\s*+::=", re.M)  # linear in the text


def is_gbnf(text: str) -> bool:
    """Test whether a grammar is in GBNF: a line begins a rule with `::=`, which Lark does not have."""
    return _RULE.search(text) is not None


def parse_gbnf(text: str, start: str = "root", *, max_rules: int = 100_000, max_depth: int = 100) -> Grammar:
    """Parse and check a grammar in GBNF.

    max_rules: most rules
    max_depth: most brackets open at once, and most operators on one item
    Raises GrammarError if the text is malformed or uses undefined rules, LanguageError if some rule can never finish,
    LimitError if a limit is exceeded.
    """
    text = grammar_text(text)
    check_options(start, max_rules=max_rules, max_depth=max_depth)
    parser = _Parser(text, max_rules, max_depth)
    while parser.token.kind != "end":
        parser.rule()
    for name in parser.references:
        if name.text not in parser.rules:
            raise GrammarError(f"the rule {name.text!r} is not defined", text, name.offset)
    grammar = Grammar(parser.rules, start, parser.lines, text, parts=parser.parts, captures=parser.captures)
    check(grammar)
    return grammar


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int


class _Group:
    """An open bracket: its finished alternatives, and the items of the current one."""

    def __init__(self, opening: _Token | None) -> None:
        self.opening = opening
        self.alternatives: list[Node] = []
        self.items: list[Node] = []

    def close_alternative(self) -> None:
        self.alternatives.append(series(self.items))
        self.items = []

    def close(self) -> Node:
        self.close_alternative()
        return choice(self.alternatives)


class _Parser:
    def __init__(self, text: str, max_rules: int, max_depth: int) -> None:
        self.text = text
        self.max_rules = max_rules
        self.max_depth = max_depth
        self.tokens = _tokenize(text)
        self.at = 0
        self.defined = {token.text for at, token in enumerate(self.tokens) if self.begins_rule(at)}
        self.parts: dict[str, Part] = {}
        self.newlines = [i for i, character in enumerate(text) if character == "\n"]
        self.rules: dict[str, Node] = {}
        self.lines: dict[str, int] = {}
        self.captures: dict[str, str] = {}
        self.references: list[_Token] = []

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def fail(self, expected: str) -> NoReturn:
        found = repr(self.token.text) if self.token.text else "the end of the grammar"
        raise GrammarError(f"expected {expected}, found {found}", self.text, self.token.offset)

    def mark(self, *marks: str) -> bool:
        """Test whether the next word is one of these marks."""
        return self.token.kind == "mark" and self.token.text in marks

    def line(self, token: _Token) -> int:
        return bisect_left(self.newlines, token.offset) + 1

    def rule(self) -> None:
        name = self.token
        if name.kind != "name":
            self.fail("a rule such as 'name ::= ...'")
        self.at += 1
        if self.token.kind == "set":
            self.captures[name.text] = self.capture(name.text)
        if self.token.kind != "define":
            self.fail(f"'::=' after {name.text!r}")
        self.at += 1
        if name.text in self.rules:
            raise GrammarError(f"the rule {name.text!r} is defined more than once", self.text, name.offset)
        if len(self.rules) >= self.max_rules:
            raise LimitError(
                f"the grammar has more than max_rules={self.max_rules} rules; raise max_rules= of parse_gbnf, "
                "whose grammar CFGGuide takes"
            )
        self.rules[name.text] = self.alternatives(name.text)
        self.lines[name.text] = self.line(name)

    def alternatives(self, owner: str) -> Node:
        """Parse the right side of a rule, with an explicit stack of brackets."""
        groups = [_Group(None)]
        while True:
            group = groups[-1]
            if self.mark("(") and self.tokens[self.at + 1].text == "=":
                self.skip_lookahead(group)
            elif self.mark("("):
                if len(groups) > self.max_depth:
                    self.too_deep()
                groups.append(_Group(self.token))
                self.at += 1
            elif self.mark("|"):
                self.at += 1
                group.close_alternative()
            elif group.opening is not None and self.mark(")"):
                self.at += 1
                groups.pop()
                groups[-1].items.append(self.repetition(group.close()))
            elif group.opening is None and self.ends_rule():
                return group.close()
            elif self.mark(",") and group.items:
                self.at += 1
            else:
                group.items.append(self.repetition(self.atom(owner, group)))

    def capture(self, rule: str) -> str:
        """Return the name of a capture: `[capture="name"]`, or the rule's for `[capture]`. Refuses other attributes."""
        token = self.token
        self.at += 1
        match = _CAPTURE.fullmatch(token.text)
        if match is not None:
            return match[1] or rule
        for name in REFUSED_ATTRIBUTES:
            if name in token.text:
                raise GrammarError(refused_attribute(name), self.text, token.offset)
        reason = NO_CAPTURE_NAME if "capture" in token.text else f"{token.text} is no attribute; rules have [capture]"
        raise GrammarError(reason, self.text, token.offset)

    def skip_lookahead(self, group: _Group) -> None:
        """Skip a lookahead `(= ...)` at the end of a rule: it does not change the language."""
        opening = self.token
        self.at += 2
        depth = 1
        while depth and self.token.kind != "end":
            depth += self.mark("(") - self.mark(")")
            self.at += 1
        if depth or group.opening is not None or not self.ends_rule():
            reason = "a lookahead (= ...) must be at the end of a rule; leave it out, it has no effect"
            raise GrammarError(reason, self.text, opening.offset)

    def call(self, name: _Token) -> Node:
        """Parse a macro after its name."""
        values: list[Value] = []
        named: dict[str, Value] = {}
        self.at += 1
        while not self.mark(")"):
            word = self.token
            if word.kind == "name" and self.tokens[self.at + 1].text == "=":
                self.at += 2
                named[word.text] = self.argument(1)
            else:
                values.append(self.argument(1))
            self.skip_comma()
        self.at += 1
        return MACROS[name.text](MacroCall(self, name, values, named))

    def argument(self, depth: int) -> Value:
        if depth > self.max_depth:
            self.too_deep()
        token = self.token
        self.at += 1
        if token.kind == "string":
            return "".join(chr(code) for code, _ in self.codes(token, 1))
        if token.kind == "name":
            return Word(token.text, token.offset)
        if token.text != "(":
            self.at -= 1
            self.fail("a text, a name or '(' among the arguments")
        values: list[Value] = []
        while not self.mark(")"):
            values.append(self.argument(depth + 1))
            self.skip_comma()
        self.at += 1
        return tuple(values)

    def skip_comma(self) -> None:
        if self.mark(","):
            self.at += 1
        elif not self.mark(")"):
            self.fail("',' or ')' behind an argument")

    def ends_rule(self) -> bool:
        """Test whether the rule ends here: at the end, at `;`, which is skipped, or before the next `name ::=`."""
        if self.mark(";"):
            self.at += 1
            return True
        return self.token.kind == "end" or self.begins_rule(self.at)

    def begins_rule(self, at: int) -> bool:
        """Test whether a definition, `name ::=` or `name[...] ::=`, begins at a word."""
        if self.tokens[at].kind != "name":
            return False
        return self.tokens[at + 1 + (self.tokens[at + 1].kind == "set")].kind == "define"

    def atom(self, owner: str, group: _Group) -> Node:
        token = self.token
        self.at += 1
        if token.kind == "name" and token.text in MACROS and token.text not in self.defined and self.mark("("):
            return self.call(token)
        if token.kind == "name" and not self.begins_rule(self.at - 1):
            self.references.append(token)
            return Reference(token.text)
        if token.kind == "string":
            return self.string(token)
        if token.kind == "set":
            return self.set(token)
        if token.kind == "special":
            return self.special(token.text, token.offset)
        if token.kind == "mark" and token.text == ".":
            return ANY
        self.at -= 1
        if self.mark("?", "*", "+") or self.token.kind == "bounds":
            self.fail("something to repeat before the operator")
        if group.opening is not None:
            self.fail(f"')' to close the '(' of line {self.line(group.opening)}")
        self.fail(f"a string, a set of characters, a name, a bracket or '|' in {owner!r}")

    def repetition(self, item: Node) -> Node:
        """Apply the operators that follow an item."""
        for _ in range(self.max_depth):
            if self.mark("?", "*", "+"):
                low, high = REPEATS[self.token.text]
            elif self.token.kind == "bounds":
                low, high = self.bounds(self.token)
            else:
                return item
            self.at += 1
            item = Repeat(item, low, high)
        self.too_deep()

    def bounds(self, token: _Token) -> tuple[int, int | None]:
        low, comma, high = token.text[1:-1].partition(",")
        if max(len(low.strip()), len(high.strip())) > COUNT_DIGITS:
            raise GrammarError(f"a number of repeats has at most {COUNT_DIGITS} digits", self.text, token.offset)
        if not comma:
            return int(low), int(low)
        if high.strip() in ("", "-1"):
            return int(low), None
        if int(high) < int(low):
            raise GrammarError(f"{token.text} is no range of repeats", self.text, token.offset)
        return int(low), int(high)

    def special(self, written: str, offset: int) -> Node:
        self.parts.setdefault(written, SpecialTokens(written, offset))
        return Reference(written)

    def string(self, token: _Token) -> Node:
        codes = self.codes(token, 1)
        return Literal("".join(chr(code) for code, _ in codes).encode())

    def set(self, token: _Token) -> Chars:
        negated = token.text.startswith("[^")
        codes = self.codes(token, 1 + negated)
        spans: list[tuple[int, int]] = []
        at = 0
        while at < len(codes):
            low, offset = codes[at]
            is_span = at + 2 < len(codes) and self.text[codes[at + 1][1]] == "-"
            high = codes[at + 2][0] if is_span else low
            if high < low:
                raise GrammarError("the range is empty: its end comes before its beginning", self.text, offset)
            spans.append((low, high))
            at += 3 if is_span else 1
        if not spans and not negated:
            raise GrammarError("a set without characters matches nothing", self.text, token.offset)
        ranges = normalise(spans)
        return Chars(negate(ranges) if negated else ranges)

    def codes(self, token: _Token, begin: int) -> list[tuple[int, int]]:
        """Return the code points between the delimiters of a word, each with its offset in the text."""
        spend(STEPS_PER_CHARACTER * len(token.text))
        out: list[tuple[int, int]] = []
        at, end = token.offset + begin, token.offset + len(token.text) - 1
        while at < end:
            if self.text[at] != "\\":
                out.append((ord(self.text[at]), at))
                at += 1
                continue
            match = (_ESCAPE_IN_SET if token.kind == "set" else _ESCAPE).match(self.text, at, end)
            if match is None:
                reason = r"unknown escape; expected \n, \t, \r, \\, \", \', \[, \], \-, \?, \xHH, \uHHHH or \UHHHHHHHH"
                raise GrammarError(reason, self.text, at)
            digits = match[1] or match[2] or match[3]
            code = int(digits, 16) if digits else _CONTROLS.get(match[4], ord(match[4]))
            out.append((code, at))
            at = match.end()
        for code, offset in out:
            if not is_character(code):
                raise GrammarError(f"U+{code:04X} is no character", self.text, offset)
        return out

    def too_deep(self) -> NoReturn:
        raise LimitError(
            f"brackets or repeats nested more than max_depth={self.max_depth} deep in line "
            f"{self.line(self.token)}; name the inner parts as rules of their own, or raise max_depth= of parse_gbnf"
        )


def _tokenize(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    dotted = {name for name in _RULE.findall(text) if "." in name}
    offset = 0
    closes = True
    while offset < len(text):
        spend(STEPS_PER_WORD)
        if closes and text.startswith("(*", offset):
            end = text.find("*)", offset + 2)
            closes = end >= 0
            if closes:
                offset = end + 2
                continue
        match = _PATTERN.match(text, offset)
        if match is None:
            raise GrammarError(_character_message(text[offset]), text, offset)
        kind, end = str(match.lastgroup), match.end()
        if kind == "name" and dotted:
            dotted_name = _DOTTED_NAME.match(text, offset)
            end = dotted_name.end() if dotted_name is not None and dotted_name.group() in dotted else end
        if kind != "blank":
            tokens.append(_Token(kind, text[offset:end], offset))
        offset = end
    tokens.append(_Token("end", "", len(text)))
    return tokens


def _character_message(character: str) -> str:
    if character in "\"'":
        return f"a string that does not end on its line; expected a closing {character}"
    if character == "[":
        return "a set of characters that does not end on its line; expected a closing ]"
    if character == "{":
        return "expected a number of repeats: {m}, {m,} or {m,n}"
    if character == "<":
        return "a special token is written without blanks, <think>, or by its id, <[1000]>"
    if character == "!":
        return f"any token but some is {NO_TEXT}"
    return f"unexpected character {character!r}; expected a name, a string, a set of characters or an operator"


@dataclass(frozen=True, slots=True)
class Word:
    """A name, a number, true or false in the arguments of a macro."""

    text: str
    offset: int


Value = str | Word | tuple["Value", ...]
"""An argument: a text, a word, or several in brackets."""


@dataclass(frozen=True, slots=True)
class MacroCall:
    """A macro call in a grammar that is being parsed."""

    parser: _Parser
    name: _Token
    values: Sequence[Value]
    named: Mapping[str, Value]

    def fail(self, reason: str) -> NoReturn:
        """Raise GrammarError at the macro's name."""
        raise GrammarError(reason, self.parser.text, self.name.offset)

    def refer(self, word: Word) -> Node:
        """Return the node of a named rule."""
        self.parser.references.append(_Token("name", word.text, word.offset))
        return Reference(word.text)

    def quote(self, pieces: Quote) -> Node:
        """Return the node of a quotation."""
        part = f"{self.name.text} {len(self.parser.parts) + 1}"  # names in a grammar have no spaces
        self.parser.parts[part] = pieces
        return Reference(part)

    def special(self, tokens: list[str]) -> Node:
        """Return the node of one of some tokens."""
        return self.parser.special(f"<[{','.join(tokens)}]>", self.name.offset)

    def texts(self, values: Sequence[Value], what: str) -> list[str]:
        """Return the values as nonempty texts. Raises GrammarError for other values."""
        found = [value for value in values if isinstance(value, str) and value]
        if len(found) < len(values):
            self.fail(f"{what} must be texts in double quotes that are not empty")
        return found

    def tokens(self, values: Sequence[Value], what: str) -> list[str]:
        """Return the values as token ids. Raises GrammarError for other values."""
        found = [value.text for value in values if isinstance(value, Word) and value.text.isdecimal()]
        if len(found) < len(values) or not found:
            self.fail(f"{what} must be ids of tokens, such as 128010")
        return found

    def check_names(self, *names: str) -> None:
        """Raise GrammarError for arguments with other names."""
        for name in self.named:
            if name not in names:
                hint = f"its named arguments are {', '.join(names)}" if names else "this macro has no named arguments"
                self.fail(f"the argument {name!r} is not supported; {hint}")


def _tag_dispatch(call: MacroCall) -> Node:
    """Return free text with triggers that begin rules; it contains no other trigger and no excluded text."""
    call.check_names("loop_after_dispatch", "excludes")
    rules: dict[str, list[Node]] = {}
    for pair in call.values:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Word)):
            call.fail('each argument of TagDispatch must be a trigger with its rule, as in ("<tool>", tool)')
        (trigger,) = call.texts(pair[:1], "triggers")
        rules.setdefault(trigger, []).append(call.refer(pair[1]))
    for trigger in rules:
        for other in rules:
            if trigger != other and trigger in other:
                call.fail(
                    f"the trigger {trigger!r} is a part of the trigger {other!r}; no trigger may contain another one"
                )
    excludes = call.named.get("excludes", ())
    excluded = call.texts(excludes if isinstance(excludes, tuple) else (excludes,), "the excluded texts of TagDispatch")
    free = free_of([*rules, *excluded])
    parts = [InOrder((up_to(each, list(rules), excluded), Alternation(tuple(after)))) for each, after in rules.items()]
    return _dispatch(call, free, parts)


def _dispatch(call: MacroCall, free: Node, parts: Sequence[Node]) -> Node:
    """Return parts, each beginning with free text, and free text at the end; any number of parts, or at most one."""
    loops = call.named.get("loop_after_dispatch", Word("true", 0))
    if not isinstance(loops, Word) or loops.text not in ("true", "false"):
        call.fail("loop_after_dispatch must be true or false")
    if loops.text == "false":
        return Alternation((free, *parts))
    return InOrder((Repeat(Alternation(tuple(parts)), 0, None), free)) if parts else free


def _token_tag_dispatch(call: MacroCall) -> Node:
    """Return text with tokens that begin rules. Excluded tokens become special tokens, which free text lacks."""
    call.check_names("loop_after_dispatch", "excludes")
    parts: list[Node] = []
    for pair in call.values:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Word)):
            call.fail("each argument of TokenTagDispatch must be a token with its rule, as in (128010, tool)")
        parts.append(InOrder((ANY_TEXT, call.special(call.tokens(pair[:1], "triggers")), call.refer(pair[1]))))
    excludes = call.named.get("excludes", ())
    if excludes != ():
        excluded = call.tokens(
            excludes if isinstance(excludes, tuple) else (excludes,), "the excluded tokens of TokenTagDispatch"
        )
        call.special(excluded)  # makes them special tokens
    return _dispatch(call, ANY_TEXT, parts)


def _substring(call: MacroCall) -> Node:
    """Return consecutive texts of the list, or none."""
    call.check_names()
    pieces = call.texts([text for text in call.values if text != ""], "the arguments of Substring")
    quote = Quote("".join(pieces), tuple(map(len, pieces))) if pieces else None
    return EMPTY if quote is None else Alternation((EMPTY, call.quote(quote)))


def _regex(call: MacroCall) -> Node:
    """Return the language of a pattern as a whole; classes are ASCII, and the dot matches line ends."""
    call.check_names()
    if len(call.values) != 1 or not isinstance(call.values[0], str):
        call.fail("Regex takes one pattern, a text in double quotes")
    try:
        return parse(call.values[0], flags=re.ASCII | re.DOTALL)
    except PatternError as error:
        call.fail(f"in the pattern of Regex: {error.reason}")


def _token(call: MacroCall) -> Node:
    """Return one of the tokens."""
    call.check_names()
    return call.special(call.tokens(call.values, "the arguments of Token"))


def _exclude_token(call: MacroCall) -> Node:
    call.fail(f"any token but some is {NO_TEXT}")


MACROS: dict[str, Callable[[MacroCall], Node]] = {
    "TagDispatch": _tag_dispatch,
    "Substring": _substring,
    "Regex": _regex,
    "Token": _token,
    "ExcludeToken": _exclude_token,
    "TokenTagDispatch": _token_tag_dispatch,
}
