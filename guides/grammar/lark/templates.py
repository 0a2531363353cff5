"""Templates of Lark's grammar notation, `name{parameter, ...}`, instantiated once per list of arguments."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ....errors import GrammarError
from .names import Names
from .syntax import Both, Definition, Name, Pattern, Range, TemplateCall, Value, Without

Argument = Name | Pattern
Arguments = Mapping[str, Argument]

_LONG_NAME = 100


class Templates:
    """Resolution of values to rules, terminals or patterns, and instantiation of templates.

    pending: instances that are requested and not yet converted
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
        """Resolve a value to a pattern, or a rule's or terminal's name. Raises GrammarError."""
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
        """Resolve an argument, which may also be the bare name of a template."""
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
