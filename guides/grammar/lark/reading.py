"""Lark's grammar language: from text to a grammar.

A terminal becomes a rule like any other; what Lark's lexer would do between terminals is written into the
rules. With `%ignore`, every use of a terminal in a rule is followed by any number of ignored ones, and so
is the beginning of the text: the meaning of Lark's Earley parser with `lexer="dynamic_complete"`.
Templates, `name{parameter, ...}`, are written out once per list of arguments.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping

from ....checks import brief
from ....errors import GrammarError, LimitError, OptionError
from ...limits import spend
from ...quoting.quotation import Context, Quote
from ...syntax import Node, Reference, Repeat, Sequence
from ..combine import choice
from ..grammar import Grammar, Stop, check
from ..options import check_options, grammar_text
from .names import Names
from .parser import parse_statements
from .syntax import Both, Definition, Name, Pattern, Range, TemplateCall, Value, Without, fold
from .terminals import Terminals

IGNORED = "__IGNORED"
BEGIN = "__BEGIN"
# Of work, to look it up and check it
STEPS_PER_RULE = 500


def parse_lark(
    text: str,
    start: str = "start",
    *,
    max_rules: int = 100_000,
    max_depth: int = 100,
    contexts: Mapping[str, Context] | None = None,
) -> Grammar:
    """The grammar that `text` describes in Lark's language, checked.

    max_rules: most rules and terminals, those included that templates generate
    max_depth: most brackets open at once
    contexts: what `quote(name)` quotes from, by name: a text, several, or a `Quote`
    GrammarError: the text is malformed, uses names that are not defined, or directives that are not
    supported. LanguageError: some rule can never finish. LimitError: a limit is exceeded.
    """
    text = grammar_text(text)
    check_options(start, max_rules=max_rules, max_depth=max_depth)
    if contexts is not None and not isinstance(contexts, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"contexts={brief(contexts)}: texts by name, such as contexts={{'report': report}}")
    quotes = {name: Quote.of(context) for name, context in (contexts or {}).items()}
    grammar = _Builder(text, Names(text, parse_statements(text, max_depth)), max_rules, quotes).build(start)
    check(grammar)
    return grammar


class _Builder:
    """Turns definitions into rules."""

    def __init__(self, text: str, names: Names, max_rules: int, contexts: Mapping[str, Quote]) -> None:
        self.text = text
        self.names = names
        self.max_rules = max_rules
        self.terminals = Terminals(text, names, contexts)
        self.templates = Templates(text, names)
        self.newlines = [match.start() for match in re.finditer("\n", text)]
        self.rules: dict[str, Node] = {}
        self.lines: dict[str, int] = {}
        self.captures: dict[str, str] = {}
        self.stops: dict[str, Stop] = {}

    def build(self, start: str) -> Grammar:
        pending = self.templates.pending
        for name, definition in self.names.definitions.items():
            if definition.name.is_terminal:
                self.add(name, definition, self.terminals.nodes[name])
            elif not definition.parameters:
                pending.append((name, definition, {}))
        while pending:
            name, definition, arguments = pending.popleft()
            self.add(name, definition, self.body(definition, arguments))
        terminals = set(self.terminals.nodes)
        if self.names.ignored and start in self.rules:
            ignored = choice([self.terminals.ignored(statement) for statement in self.names.ignored])
            self.rules[IGNORED] = Repeat(ignored, 0, None)
            body = self.after(Reference(start)) if start in terminals else Reference(start)
            self.rules[BEGIN] = Sequence((Reference(IGNORED), body))
            terminals.add(IGNORED)
            start = BEGIN
        named = (frozenset(terminals), self.terminals.parts, self.captures, self.stops)
        return Grammar(self.rules, start, self.lines, self.text, *named)

    def add(self, name: str, definition: Definition, body: Node) -> None:
        if len(self.rules) >= self.max_rules:
            raise LimitError(
                f"the grammar has more than max_rules={self.max_rules} rules; raise max_rules= of parse_lark, "
                "whose grammar CFGGuide takes"
            )
        spend(STEPS_PER_RULE)
        self.rules[name] = body
        if definition.capture is not None:
            self.captures[name] = definition.capture
        ending, stopped = definition.ending, definition.stop_capture
        if ending is not None and ending.mark is not None:
            is_inside = ending.how == "suffix"
            if stopped is not None or (is_inside and definition.capture is not None):
                before, mark = self.terminals.node(definition.body), self.terminals.node(ending.mark)
                self.stops[name] = Stop(before, mark, is_inside, stopped)
        self.lines[name] = bisect_left(self.newlines, definition.name.offset) + 1

    def body(self, definition: Definition, arguments: Arguments) -> Node:
        def leaf(value: Value) -> Node:
            found = self.templates.resolve(value, arguments)
            if isinstance(found, Name) and not found.is_terminal:
                return Reference(found.name)
            return self.after(self.terminals.used(found))

        if definition.ending is not None:
            return self.after(self.terminals.ended(definition.body, definition.ending))
        return fold(definition.body, leaf)

    def after(self, terminal: Node) -> Node:
        """A terminal and what is ignored after it."""
        return Sequence((terminal, Reference(IGNORED))) if self.names.ignored else terminal


Argument = Name | Pattern
Arguments = Mapping[str, Argument]

_LONG_NAME = 100


class Templates:
    """Finds out which rule or terminal a value stands for, given the arguments of the template it is in.

    pending: the rules that have been asked for and are not yet written out
    """

    def __init__(self, text: str, names: Names) -> None:
        self.text = text
        self.names = names
        self.pending: deque[tuple[str, Definition, Arguments]] = deque()
        self._instances: dict[tuple[str, ...], Name] = {}
        self._generated: set[str] = set()
        for definition in names.definitions.values():
            self._check_parameters(definition)

    def resolve(self, value: Value, arguments: Arguments) -> Argument:
        """The pattern or the name of the rule or terminal that `value` is; GrammarError if it is none."""
        if isinstance(value, TemplateCall):
            return self._instance(value, arguments)
        if not isinstance(value, Name):
            assert not isinstance(value, Both | Without), "operators of terminals stand in terminals"
            return value
        found = arguments.get(value.name, value)
        if isinstance(found, Name) and found.name not in self._generated:
            definition = self.names.lookup(found)
            if definition.parameters:
                raise self._wrong_number(definition, 0, found)
        return found

    def _instance(self, call: TemplateCall, arguments: Arguments) -> Name:
        template = arguments.get(call.name.name, call.name)
        if not isinstance(template, Name) or template.name in self._generated:
            raise GrammarError(f"{call.name.name!r} does not stand for a template", self.text, call.name.offset)
        definition = self.names.lookup(template)
        if len(definition.parameters) != len(call.arguments):
            raise self._wrong_number(definition, len(call.arguments), call.name)
        values = [self._argument(argument, arguments) for argument in call.arguments]
        key = (definition.name.name, *(_written(value) for value in values))
        known = self._instances.get(key)
        if known is None:
            known = self._instances[key] = self._new_name(key, definition.name.offset)
            parameters = (parameter.name for parameter in definition.parameters)
            self.pending.append((known.name, definition, dict(zip(parameters, values, strict=True))))
        return known

    def _argument(self, value: Value, arguments: Arguments) -> Argument:
        """As `resolve`, but a template may be handed on by its bare name."""
        if isinstance(value, Name):
            found = arguments.get(value.name, value)
            if isinstance(found, Name) and found.name in self.names.definitions:
                return found
        return self.resolve(value, arguments)

    def _new_name(self, key: tuple[str, ...], offset: int) -> Name:
        if sum(map(len, key)) + len(key) + 1 > _LONG_NAME:
            name = f"{key[0]}{{#{len(self._instances)}}}"
        else:
            name = f"{key[0]}{{{','.join(key[1:])}}}"
        self._generated.add(name)
        return Name(name, offset)

    def _check_parameters(self, definition: Definition) -> None:
        seen: set[str] = set()
        for parameter in definition.parameters:
            if parameter.name in self.names.definitions:
                reason = f"the parameter {parameter.name!r} is also the name of a rule"
                raise GrammarError(reason, self.text, parameter.offset)
            if parameter.name in seen:
                raise GrammarError(f"the parameter {parameter.name!r} appears twice", self.text, parameter.offset)
            seen.add(parameter.name)

    def _wrong_number(self, template: Definition, given: int, name: Name) -> GrammarError:
        wanted = len(template.parameters)
        arguments = "argument" if wanted == 1 else "arguments"
        reason = f"{template.name.name!r} takes {wanted} {arguments} in braces, but is given {given}"
        return GrammarError(reason, self.text, name.offset)


def _written(value: Argument) -> str:
    if isinstance(value, Name):
        return value.name
    return f"{value.low.source}..{value.high.source}" if isinstance(value, Range) else value.source
