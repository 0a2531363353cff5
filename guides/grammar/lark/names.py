r"""Lark's grammar language: definitions by name, after imports, overrides and extensions.

Each terminal of `%import common.NAME` is one regular expression. Where Lark's own definition picks the shortest match
(`ESCAPED_STRING`, `C_COMMENT`), the expression here matches exactly those texts, by excluding an earlier end. Digits
and letters are those of ASCII.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ....errors import GrammarError
from .syntax import Alternatives, Definition, Expression, Ignore, Import, Name, Regex, Statement


class Names:
    """The definitions of a grammar by name, and the ignored terminals."""

    def __init__(self, text: str, statements: Iterable[Statement]) -> None:
        """Imports are processed first, wherever they stand. Raises GrammarError for conflicting or missing names."""
        self.text = text
        self.definitions: dict[str, Definition] = {}
        self.ignored: list[Ignore] = []
        self._extensions: dict[str, list[Expression]] = {}
        for statement in sorted(statements, key=lambda statement: not isinstance(statement, Import)):
            self.add(statement)
        for name, bodies in self._extensions.items():
            definition = self.definitions[name]
            self.definitions[name] = replace(definition, body=Alternatives((definition.body, *bodies)))

    def add(self, statement: Statement) -> None:
        if isinstance(statement, Ignore):
            self.ignored.append(statement)
        elif isinstance(statement, Import):
            self.add_definition(self.import_definition(statement))
        else:
            self.add_definition(statement)

    def import_definition(self, statement: Import) -> Definition:
        path = ".".join(part.name for part in statement.path)
        if path != "common":
            where = f"{path}." if path else ""
            reason = f"cannot import {where}{statement.name.name}: only terminals of 'common' can be imported"
            raise GrammarError(reason, self.text, (*statement.path, statement.name)[0].offset)
        pattern = COMMON_TERMINALS.get(statement.name.name)
        if pattern is None:
            names = ", ".join(COMMON_TERMINALS)
            reason = f"there is no terminal common.{statement.name.name}; there are {names}"
            raise GrammarError(reason, self.text, statement.name.offset)
        if not statement.alias.is_terminal:
            raise GrammarError("a terminal's name is in upper case", self.text, statement.alias.offset)
        return Definition(statement.alias, (), Regex(f"/{pattern}/", statement.name.offset), "import")

    def add_definition(self, definition: Definition) -> None:
        name = definition.name
        previous = self.definitions.get(name.name)
        if definition.how == "import" and previous is not None and previous.body == definition.body:
            return
        if definition.how in ("define", "import"):
            if previous is not None:
                raise GrammarError(f"{name.name!r} is defined more than once", self.text, name.offset)
        elif previous is None:
            reason = f"cannot {definition.how} {name.name!r}: it is not defined before"
            raise GrammarError(reason, self.text, name.offset)
        elif definition.how == "extend":
            self.extend(previous, definition)
            return
        self._extensions.pop(name.name, None)
        self.definitions[name.name] = definition

    def extend(self, previous: Definition, more: Definition) -> None:
        if [p.name for p in previous.parameters] != [p.name for p in more.parameters]:
            reason = f"cannot extend {previous.name.name!r} with other parameters than it has"
            raise GrammarError(reason, self.text, more.name.offset)
        self._extensions.setdefault(previous.name.name, []).append(more.body)

    def lookup(self, name: Name) -> Definition:
        """Return the definition of a name. Raises GrammarError if there is none."""
        definition = self.definitions.get(name.name)
        if definition is None:
            kind = "terminal" if name.is_terminal else "rule"
            raise GrammarError(f"the {kind} {name.name!r} is not defined", self.text, name.offset)
        return definition


_INT = "[0-9]+"
_SIGN = r"[+\-]?"
_DECIMAL = r"(?:[0-9]+\.[0-9]*|\.[0-9]+)"
_EXPONENT = rf"[eE]{_SIGN}{_INT}"
_FLOAT = rf"(?:{_INT}{_EXPONENT}|{_DECIMAL}(?:{_EXPONENT})?)"
_NUMBER = rf"(?:{_FLOAT}|{_INT})"

COMMON_TERMINALS: dict[str, str] = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9a-fA-F]",
    "INT": _INT,
    "SIGNED_INT": _SIGN + _INT,
    "DECIMAL": _DECIMAL,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": _SIGN + _FLOAT,
    "NUMBER": _NUMBER,
    "SIGNED_NUMBER": _SIGN + _NUMBER,
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[a-zA-Z]",
    "WORD": "[a-zA-Z]+",
    "CNAME": "[a-zA-Z_][a-zA-Z_0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"\#[^\n]*",
    "CPP_COMMENT": r"\/\/[^\n]*",
    "C_COMMENT": r"\/\*[^*]*\*+(?:[^*\/][^*]*\*+)*\/",
    "SQL_COMMENT": r"--[^\n]*",
}
