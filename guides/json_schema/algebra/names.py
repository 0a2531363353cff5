"""The strings that satisfy a formula, worked out without its other types.

The schema of `propertyNames` may refer to the schema that it stands in: it speaks of the names, not of the
object. So its strings are found without asking what the objects are. They are found to be refused: those that
may be of a format are among them.
"""

from __future__ import annotations

from collections.abc import Callable

from ...limits import spend
from . import strings
from .cases import ANY_STRING, String
from .constants import constants
from .formula import Formula, Formulas
from .strings import StringLanguage

Strings = tuple[String, ...]


class NameSets:
    """Works out sets of strings; `meaning` turns a subschema into the formula that it stands for."""

    def __init__(self, formulas: Formulas, language: StringLanguage, meaning: Callable[[Formula], Formula]) -> None:
        self._formulas = formulas
        self._language = language
        self._meaning = meaning

    def refused(self, formula: Formula) -> Strings:
        """The strings that do not, or perhaps do not, satisfy a formula, as alternatives."""
        return tuple(map(strings.perhaps, self.of(self._formulas.negation(formula))))

    def of(self, formula: Formula) -> Strings:
        """The strings that satisfy a formula, as alternatives."""
        refuse = self._formulas.negation
        parts = formula.parts
        match formula.kind:
            case "nothing":
                return ()
            case "everything" | "names":
                return (ANY_STRING,)
            case "schema":
                return self.of(self._meaning(formula))
            case "plain":
                return formula.subject.strings
            case "values":
                return constants(formula.subject).strings
            case "all":
                return self._all(parts)
            case "any":
                return self._any(parts)
            case "one":
                alone = (
                    self._formulas.all_of([part, *map(refuse, parts[:index]), *map(refuse, parts[index + 1 :])])
                    for index, part in enumerate(parts)
                )
                return self._any(tuple(alone))
            case _:
                return self._outside(parts[0])

    def _outside(self, formula: Formula) -> Strings:
        """The strings that do not satisfy a formula."""
        refuse = self._formulas.negation
        parts = formula.parts
        match formula.kind:
            case "schema":
                return self.of(refuse(self._meaning(formula)))
            case "all":
                return self._any(tuple(map(refuse, parts)))
            case "any":
                return self._all(tuple(map(refuse, parts)))
            case "one":
                pairs = (self._formulas.all_of((parts[i], parts[j])) for i in range(len(parts)) for j in range(i))
                return self._any((self._formulas.all_of(map(refuse, parts)), *pairs))
            case _:
                result: Strings = (ANY_STRING,)
                for case in self.of(formula):
                    result = self._both(result, tuple(strings.complement(case)))
                return result

    def _all(self, parts: tuple[Formula, ...]) -> Strings:
        result: Strings = (ANY_STRING,)
        for part in parts:
            result = self._both(result, self.of(part))
        return result

    def _any(self, parts: tuple[Formula, ...]) -> Strings:
        found = dict.fromkeys(case for part in parts for case in self.of(part))
        return (ANY_STRING,) if ANY_STRING in found else tuple(found)

    def _both(self, a: Strings, b: Strings) -> Strings:
        spend(500 * len(a) * len(b))
        both = (strings.intersect(ours, theirs, self._language) for ours in a for theirs in b)
        return tuple(dict.fromkeys(case for case in both if case is not None))
