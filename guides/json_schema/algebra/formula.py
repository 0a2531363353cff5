"""Formulas over schemas: conditions on values, as interned objects.

    EVERYTHING, NOTHING    any value; no value
    schema                 a subschema at its place, in a dynamic scope
    values                 one of finitely many constants
    plain                  a given normal form
    names                  not an object, or an object whose members' names satisfy a formula
    not, all, any, one     negation, conjunction, disjunction, exactly one

Formulas are hash-consed: equal formulas are the same object, so results about a formula are computed once, and
recursive schemas form loops.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from ....errors import LimitError
from ...limits import spend
from ..read.dialects import as_written, exact, is_array, is_number, only_strings
from ..read.subschema import Resource, Subschema, show

Kind = Literal["everything", "nothing", "schema", "values", "plain", "names", "not", "all", "any", "one"]
Scope = tuple[Resource, ...]


class Formula:
    """A condition on a JSON value; compared by identity. `number` orders formulas by their creation."""

    __slots__ = ("kind", "number", "parts", "subject")

    def __init__(self, kind: Kind, number: int, parts: tuple[Formula, ...] = (), subject: Any = None) -> None:
        self.kind: Kind = kind
        self.number = number
        self.parts = parts
        self.subject = subject

    def __repr__(self) -> str:
        if self.kind == "schema":
            return self.subject[0].pointer
        if self.kind == "values":
            return f"one of {show(list(self.subject.values()))}"
        if not self.parts:
            return self.kind
        return f"{self.kind}({', '.join(map(repr, self.parts))})"


class BusyError(Exception):
    """A formula is requested while its normal form is being computed."""


class DeepError(Exception):
    """A formula (its argument) is too deep within others and must be computed first, or the stack overflows."""


# Keywords without conditions.
SILENT = frozenset(
    (
        *("$comment", "$schema", "$id", "$anchor", "$dynamicAnchor", "$vocabulary", "$defs", "definitions"),
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
    )
)
MAX_PLACES = 3

EVERYTHING = Formula("everything", 0)
NOTHING = Formula("nothing", 1)


class Formulas:
    """The formulas of one compiled schema; each constructor simplifies and interns."""

    def __init__(self) -> None:
        # By kind, and by place for subschemas, which avoids a tuple for each
        self._interned: dict[Kind, dict[Any, Formula]] = {}
        self._entered: dict[Any, Formula] = {}
        self._places: dict[Formula, list[Subschema]] = {}
        self._count = 2

    def schema(self, place: Subschema, scope: Scope = (), key: Any = None) -> Formula:
        """Return the formula of a subschema, entered from the resources in `scope` (outermost first).

        Subschemas with the same `key` are equivalent; by default every place is distinct.
        """
        subject = (place, scope)
        return self._intern("schema", subject if key is None else key, (), subject)

    def entered(self, place: Subschema, scope: Scope) -> Formula | None:
        """Return the formula of a subschema, if `enter` was called."""
        return self._entered.get((place, scope) if scope else place)

    def enter(self, place: Subschema, scope: Scope, formula: Formula) -> None:
        """Store the formula of a subschema at its first entry."""
        self._entered[(place, scope) if scope else place] = formula
        self._places.setdefault(formula, []).append(place)

    def is_placed(self, formula: Formula) -> bool:
        """Test whether a formula itself, and not only its parts, has a place in the schema."""
        return formula.kind == "schema" or formula in self._places

    def pointer_of(self, formula: Formula) -> str:
        """Return the JSON pointer of the first place of a formula or of one of its parts."""
        return next((place.pointer for place in self._places_within(formula)), "#")

    def keyword_of(self, formula: Formula, keyword: str) -> str:
        """Return the JSON pointer of a keyword at the first place that has it, else of the first place."""
        having = (place for place in self._places_within(formula) if keyword in place.value)
        return next((place.pointer_to(keyword) for place in having), self.pointer_of(formula))

    def _places_within(self, formula: Formula) -> Iterator[Subschema]:
        """Yield the places of a formula and of its parts."""
        waiting = [formula]
        seen: set[Formula] = set()
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen.add(one)
                yield from [one.subject[0]] if one.kind == "schema" else self._places.get(one, ())
                waiting += reversed(one.parts)

    def place_of(self, formula: Formula) -> str:
        """Describe the place of a formula in the schema with its keywords: "#/items (type, minimum)".

        Equivalent subschemas are one formula with several places.
        """
        found = list(dict.fromkeys(self._places.get(formula, ())))
        if not found:
            inner = dict.fromkeys(self.place_of(part) for part in formula.parts)
            return " and ".join(inner) or repr(formula)
        pointers = [place.pointer for place in found[:MAX_PLACES]]
        more = f" or {len(found) - MAX_PLACES} more" if len(found) > MAX_PLACES else ""
        keywords = dict.fromkeys(key for place in found for key in place.value if key not in SILENT)
        return f"{' or '.join(pointers)}{more} ({', '.join(keywords)})"

    def values(self, values: Iterable[Any]) -> Formula:
        """Return the formula of these JSON values, compared as JSON does: 1 is 1.0, false is not 0."""
        listed = list(values)
        spend(10 * len(listed))
        try:
            keys: Iterable[Any] = listed if only_strings(listed) else map(json_key, listed)
            by_key: Mapping[Any, Any] = dict(zip(keys, listed, strict=True))
        except RecursionError:
            raise LimitError("a constant is nested too deep to be compared") from None
        return self._values(by_key)

    def _values(self, by_key: Mapping[Any, Any]) -> Formula:
        """Return the formula of the values of a mapping, whose keys are their `json_key`."""
        if not by_key:
            return NOTHING
        written = None  # equal numbers with different spellings are distinct
        if not only_strings(by_key.values()):
            written = frozenset(json.dumps(value, default=as_written) for value in by_key.values())
        return self._intern("values", (frozenset(by_key), written), (), by_key)

    def plain(self, normal: Any) -> Formula:
        """Return a normal form as a formula; never interned, so build it once."""
        return self._new("plain", (), normal)

    def names(self, formula: Formula) -> Formula:
        """Return the formula of values that are no object, or an object whose members' names satisfy `formula`."""
        return self._intern("names", formula, (), formula)

    def negation(self, formula: Formula) -> Formula:
        """Return the complement of `formula`."""
        if formula.kind == "not":
            return formula.parts[0]
        if formula is EVERYTHING:
            return NOTHING
        if formula is NOTHING:
            return EVERYTHING
        return self._intern("not", formula, (formula,), None)

    def all_of(self, formulas: Iterable[Formula]) -> Formula:
        """Return the conjunction of formulas."""
        return self._joined("all", formulas, EVERYTHING, NOTHING)

    def before_last(self, formula: Formula) -> Formula:
        """Return the conjunction of all parts but the last, if it exists already; else the conjunction itself."""
        parts = formula.parts
        return formula if len(parts) < 3 else self._interned["all"].get(frozenset(parts[:-1]), formula)

    def any_of(self, formulas: Iterable[Formula]) -> Formula:
        """Return the disjunction of formulas."""
        return self._joined("any", formulas, NOTHING, EVERYTHING)

    def one_of(self, formulas: Iterable[Formula]) -> Formula:
        """Return the exclusive choice of formulas: exactly one holds."""
        parts = tuple(formula for formula in formulas if formula is not NOTHING)
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return NOTHING
        return self._intern("one", parts, parts, None)

    def _joined(self, kind: Kind, formulas: Iterable[Formula], neutral: Formula, absorbing: Formula) -> Formula:
        listed = list(formulas)
        spend(20 * len(listed))
        parts: dict[Formula, None] = {}
        for formula in listed:
            if formula is absorbing:
                return absorbing
            if formula.kind == kind:
                spend(10 * len(formula.parts))
                parts.update(dict.fromkeys(formula.parts))
            elif formula is not neutral:
                parts[formula] = None
        if not parts:
            return neutral
        if len(parts) == 1:
            return next(iter(parts))
        for formula in parts:
            if formula.kind == "not" and formula.parts[0] in parts:
                return absorbing
        if kind == "all" and any(formula.kind == "values" for formula in parts):
            return self._fewer(parts)
        return self._intern(kind, frozenset(parts), tuple(parts), None)

    def _fewer(self, parts: dict[Formula, None]) -> Formula:
        """Return a conjunction that contains constants, with constants that others exclude removed."""
        values: Mapping[Any, Any] | None = None
        others: list[Formula] = []
        for formula in parts:
            if formula.kind == "values":
                keys: Mapping[Any, Any] = formula.subject
                spend(10 * len(keys if values is None else values))
                values = keys if values is None else {key: values[key] for key in values if key in keys}
            elif formula.kind != "not" or formula.parts[0].kind != "values":
                others.append(formula)
        assert values is not None
        for formula in parts:
            if formula.kind == "not" and formula.parts[0].kind == "values":
                values = {key: value for key, value in values.items() if key not in formula.parts[0].subject}
        few = self._values(values)
        if few is NOTHING or not others:
            return few
        joined = (few, *others)
        return self._intern("all", frozenset(joined), joined, None)

    def _intern(self, kind: Kind, key: Any, parts: tuple[Formula, ...], subject: Any) -> Formula:
        known = self._interned.get(kind)
        if known is None:
            known = self._interned[kind] = {}
        found = known.get(key)
        if found is None:
            found = known[key] = self._new(kind, parts, subject)
        return found

    def _new(self, kind: Kind, parts: tuple[Formula, ...], subject: Any) -> Formula:
        self._count += 1
        return Formula(kind, self._count, parts, subject)


def conjuncts(
    formula: Formula, holding: frozenset[Formula], meaning: Callable[[Formula], Formula]
) -> dict[Formula, bool]:
    """Return all conjuncts of a formula, except below `holding` ones; True for those without conjuncts of their own.

    meaning: returns the formula of a subschema
    """
    found: dict[Formula, bool] = {}
    waiting = [formula]
    while waiting:
        part = waiting.pop()
        if part in found or part in holding:
            continue
        spend(100)
        inner = part.parts if part.kind == "all" else ()
        if part.kind == "schema":
            inner = (meaning(part),)
        found[part] = not inner
        waiting.extend(reversed(inner))
    return found


def json_key(value: Any) -> Any:
    """Return a hashable key, the same for equal JSON values: numbers by value, objects without order."""
    if isinstance(value, str):
        return value
    spend(150)
    if value is None or isinstance(value, bool):
        return ("literal", str(value))
    if is_number(value):
        return exact(value)
    if is_array(value):
        return ("array", *map(json_key, value))
    return ("object", frozenset((name, json_key(item)) for name, item in value.items()))
