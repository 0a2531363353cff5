"""Terminals of Lark's grammar language as nodes: no recursion, no empty text."""

from __future__ import annotations

from collections.abc import Mapping

from ....errors import GrammarError
from ...graph.lowering import is_nullable
from ...limits import spend
from ...quoting.quotation import Quote
from ...syntax import Node, Reference
from ..grammar import nullable
from .literals import range_node, text_node
from .names import Names
from .regexes import regex_node
from .syntax import (
    STEPS_PER_PART,
    Expression,
    Ignore,
    LiteralText,
    Name,
    Pattern,
    Quotation,
    Range,
    Regex,
    TemplateCall,
    Value,
    fold,
    leaves,
)


class Terminals:
    """All defined terminals by name, in `nodes`; one that contains itself is refused.

    contexts: what may be quoted, by name; quotes: what is, by the names of the rules that stand for it
    """

    def __init__(self, text: str, names: Names, contexts: Mapping[str, Quote]) -> None:
        self.text = text
        self.names = names
        self.contexts = contexts
        self.quotes: dict[str, Quote] = {}
        self.nodes = {
            name: self.node(definition.body)
            for name, definition in names.definitions.items()
            if definition.name.is_terminal
        }
        self._refuse_recursion()
        self._empty = nullable(self.nodes)

    def node(self, body: Expression) -> Node:
        """The node of an expression inside a terminal."""
        return fold(body, self._leaf)

    def pattern(self, pattern: Pattern) -> Node:
        """The node of a string, a range, a regular expression or a quotation."""
        match pattern:
            case LiteralText():
                return text_node(pattern, self.text)
            case Regex():
                return regex_node(pattern, self.text)
            case Range():
                return range_node(pattern, self.text)
            case Quotation():
                return self._quotation(pattern)

    def _quotation(self, pattern: Quotation) -> Node:
        name = pattern.name
        if name.name not in self.contexts:
            known = ", ".join(map(repr, self.contexts)) or "none"
            raise GrammarError(f"there is no context {name.name!r}; contexts= has {known}", self.text, name.offset)
        self.quotes[pattern.source] = self.contexts[name.name]
        return Reference(pattern.source)

    def used(self, terminal: Name | Pattern) -> Node:
        """The node of a terminal in a rule. GrammarError: it is not defined, or matches the empty text."""
        if not isinstance(terminal, Name):
            node = self.pattern(terminal)
            if isinstance(terminal, Regex) and "" in nullable({"": node}):
                raise self._empty_text("this regular expression", terminal.offset)
            return node
        offset = self.names.lookup(terminal).name.offset
        if terminal.name in self._empty:
            raise self._empty_text(f"the terminal {terminal.name!r}", offset)
        return Reference(terminal.name)

    def ignored(self, statement: Ignore) -> Node:
        """The node of what `%ignore` names."""
        body = statement.body
        node = self.node(body)
        if isinstance(body, Name):
            return self.used(body)
        if is_nullable(node, self._empty.__contains__):
            raise self._empty_text("what is ignored", statement.offset)
        return node

    def _leaf(self, leaf: Value) -> Node:
        if isinstance(leaf, LiteralText | Regex | Range | Quotation):
            return self.pattern(leaf)
        name = leaf.name if isinstance(leaf, TemplateCall) else leaf
        if not name.is_terminal or isinstance(leaf, TemplateCall):
            raise GrammarError(f"the rule {name.name!r} cannot be used inside a terminal", self.text, name.offset)
        self.names.lookup(name)
        return Reference(name.name)

    def _empty_text(self, what: str, offset: int) -> GrammarError:
        reason = f"{what} can match the empty text; let it match at least one character, and make its use optional"
        return GrammarError(reason, self.text, offset)

    def _refuse_recursion(self) -> None:
        """Depth first along the references, with the path in a dict of our own, in order."""
        finished: set[str] = set()
        for root in self.nodes:
            path = {root: self._inner(root)}
            while path:
                name, rest = next(reversed(path.items()))
                if name in finished or not rest:
                    finished.add(name)
                    path.popitem()
                    continue
                inner = rest.pop()
                if inner.name in path:
                    reason = f"the terminal {inner.name!r} contains itself; only rules may be recursive"
                    raise GrammarError(reason, self.text, inner.offset)
                if inner.name not in finished:
                    path[inner.name] = self._inner(inner.name)

    def _inner(self, terminal: str) -> list[Name]:
        spend(STEPS_PER_PART)
        return [leaf for leaf in leaves(self.names.definitions[terminal].body) if isinstance(leaf, Name)]
