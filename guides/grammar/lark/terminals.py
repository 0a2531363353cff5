"""Terminals of Lark's grammar notation as nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....errors import GrammarError, SchemaError
from ...limits import spend
from ...quoting.quotation import Quote
from ...syntax import EMPTY, Alternation, Literal, Node, Reference
from ..combine import series
from ..grammar import Part, references
from ..inlining import substituted
from ..languages import common, shortest
from ..special_tokens import SpecialTokens
from .literals import pieces_of, range_node, text_node
from .names import Names
from .regexes import regex_node
from .syntax import (
    STEPS_PER_PART,
    Both,
    Ending,
    Expression,
    Ignore,
    Inline,
    LiteralText,
    Name,
    Pattern,
    Quotation,
    Range,
    Regex,
    Special,
    TemplateCall,
    Value,
    Without,
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
        self._whole: dict[str, Node] = {}
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
            case Special():
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
        known = self._embedded.get(pattern.source)
        if known is None:
            # Names in a grammar have no spaces
            known = self._embedded[pattern.source] = f"{pattern.directive} {len(self._embedded) + 1}"
            self.parts[known] = make()
        return Reference(known)

    def used(self, terminal: Name | Pattern) -> Node:
        """Return the node of a terminal used in a rule. Raises GrammarError if it is undefined."""
        if not isinstance(terminal, Name):
            return self.pattern(terminal)
        self.names.lookup(terminal)
        return Reference(terminal.name)

    def ignored(self, statement: Ignore) -> Node:
        """Return the node of an `%ignore` statement."""
        return self.node(statement.body)

    def ended(self, body: Expression, ending: Ending) -> Node:
        """Return the node of a rule of terminals with the shortest match."""
        whole = self.node(body)
        if ending.mark is None:
            return shortest(self._regular(whole, ending.offset))
        mark = self.node(ending.mark)
        stop = ""
        if mark == EMPTY:
            reason = f"{ending.how} has no text; give the one that ends the rule, or leave {ending.how} out"
            raise GrammarError(reason, self.text, ending.offset)
        if ending.how == "stop":
            if not isinstance(mark, Literal):
                reason = "what a rule stops at is a text in quotes, in one case; a pattern may be its suffix="
                raise GrammarError(reason, self.text, ending.offset)
            stop = mark.data.decode()
        return shortest(self._regular(series([whole, mark]), ending.offset), stop)

    def _leaf(self, leaf: Value) -> Node:
        match leaf:
            case Inline("%json"):
                reason = "the values of a schema are no terminal, which is regular; write %json {...} in a rule"
                raise GrammarError(reason, self.text, leaf.offset)
            case Special():
                reason = "a special token is no part of a terminal, which is text; write it in a rule"
                raise GrammarError(reason, self.text, leaf.offset)
            case Name() | TemplateCall():
                return Reference(self._terminal(leaf).name)
            case Without(item, offset):
                return common([], [self._regular(self.node(item), offset)])
            case Both():
                return self._common(leaf)
            case _:
                return self.pattern(leaf)

    def _common(self, both: Both) -> Node:
        wanted: list[Node] = []
        unwanted: list[Node] = []
        for item in both.items:
            inner, found = (item.item, unwanted) if isinstance(item, Without) else (item, wanted)
            found.append(self._regular(self.node(inner), both.offset))
        return common(wanted, unwanted)

    def _regular(self, node: Node, offset: int) -> Node:
        """Inline all terminals that a node refers to. Raises GrammarError for quotations and other parts."""
        return substituted(node, {name: self._expanded(name, offset) for name in references(node)})

    def _expanded(self, name: str, offset: int) -> Node:
        if name in self.parts:
            reason = f"{name} cannot be a part of what ends as soon as it can, nor stand beside & or ~"
            raise GrammarError(f"{reason}; say what it may be by a regular expression", self.text, offset)
        if name not in self._whole:
            self._whole[name] = self._regular(self.nodes[name], offset)
        return self._whole[name]

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
            path = {root: self._inner(root)} if definition.name.is_terminal else {}
            while path:
                name, rest = next(reversed(path.items()))
                if name in finished or not rest:
                    finished[name] = None
                    path.popitem()
                    continue
                inner = rest.pop()
                if inner.name in path:
                    reason = f"the terminal {inner.name!r} contains itself; only rules may be recursive"
                    raise GrammarError(reason, self.text, inner.offset)
                if inner.name not in finished:
                    path[inner.name] = self._inner(inner.name)
        return list(finished)

    def _inner(self, terminal: str) -> list[Name]:
        spend(STEPS_PER_PART)
        found: list[Name] = []
        for leaf in leaves(self.names.definitions[terminal].body):
            if isinstance(leaf, Name | TemplateCall):
                found.append(self._terminal(leaf))
        return found
