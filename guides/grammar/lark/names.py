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
        self._more: dict[str, list[Expression]] = {}
        for statement in sorted(statements, key=lambda statement: not isinstance(statement, Import)):
            self.add(statement)
        for name, bodies in self._more.items():
            known = self.definitions[name]
            self.definitions[name] = replace(known, body=Alternatives((known.body, *bodies)))

    def add(self, statement: Statement) -> None:
        if isinstance(statement, Ignore):
            self.ignored.append(statement)
        elif isinstance(statement, Import):
            self.add_definition(self.imported(statement))
        else:
            self.add_definition(statement)

    def imported(self, statement: Import) -> Definition:
        path = ".".join(part.name for part in statement.path)
        if path != "common":
            where = f"{path}." if path else ""
            reason = f"cannot import {where}{statement.name.name}: only terminals of 'common' can be imported"
            raise GrammarError(reason, self.text, (*statement.path, statement.name)[0].offset)
        pattern = COMMON_TERMINALS.get(statement.name.name)
        if pattern is None:
            known = ", ".join(COMMON_TERMINALS)
            reason = f"there is no terminal common.{statement.name.name}; there are {known}"
            raise GrammarError(reason, self.text, statement.name.offset)
        if not statement.alias.is_terminal:
            raise GrammarError("a terminal's name is in upper case", self.text, statement.alias.offset)
        return Definition(statement.alias, (), Regex(f"/{pattern}/", statement.name.offset), "import")

    def add_definition(self, definition: Definition) -> None:
        name = definition.name
        known = self.definitions.get(name.name)
        if definition.how == "import" and known is not None and known.body == definition.body:
            return
        if definition.how in ("define", "import"):
            if known is not None:
                raise GrammarError(f"{name.name!r} is defined more than once", self.text, name.offset)
        elif known is None:
            reason = f"cannot {definition.how} {name.name!r}: it is not defined before"
            raise GrammarError(reason, self.text, name.offset)
        elif definition.how == "extend":
            self.extend(known, definition)
            return
        self._more.pop(name.name, None)
        self.definitions[name.name] = definition

    def extend(self, known: Definition, more: Definition) -> None:
        if [p.name for p in known.parameters] != [p.name for p in more.parameters]:
            reason = f"cannot extend {known.name.name!r} with other parameters than it has"
            raise GrammarError(reason, self.text, more.name.offset)
        self._more.setdefault(known.name.name, []).append(more.body)

    def lookup(self, name: Name) -> Definition:
        """Return the definition of a name. Raises GrammarError if there is none."""
        known = self.definitions.get(name.name)
        if known is None:
            kind = "terminal" if name.is_terminal else "rule"
            raise GrammarError(f"the {kind} {name.name!r} is not defined", self.text, name.offset)
        return known


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
