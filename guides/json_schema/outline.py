"""The normal form of a schema in words: its values, formula by formula, and what makes it costly.

The same cases locate an instance's quoted strings (`quoted_spans`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any, NamedTuple

from ..quoting.source import Span
from .algebra.cases import NO_NAMES, Array, Normal, Number, Object, String
from .algebra.formula import EVERYTHING, NOTHING, Formula
from .compiled import CompiledSchema
from .read.dialects import is_array, is_object
from .read.subschema import step_of

SHOWN = 8
MAX_INLINE = 100


class OutlinePart(NamedTuple):
    """A formula: its title, its values in lines, lines about their cost, and the titles mentioned."""

    title: str
    values: list[str]
    costs: list[str]
    uses: list[str]


class Outline:
    """Describes the formulas of a schema that are reachable from its root, at most `limit` of them."""

    def __init__(self, schema: CompiledSchema, limit: int = 100) -> None:
        self._schema = schema
        self._limit = limit
        self._titles: dict[Formula, str] = {}
        self._queue: list[Formula] = []
        self._costs: list[str] = []
        self._uses: list[str] = []

    def __str__(self) -> str:
        """Return a paragraph for each formula: its values, and lines that begin with "cost:"."""
        parts = self.parts()
        sections = ["\n  ".join([f"{part.title} is", *part.values, *part.costs]) for part in parts]
        if len(self._queue) > len(parts):
            sections.append(f"and {len(self._queue) - len(parts)} more of their parts")
        return "\n\n".join(sections)

    def parts(self) -> list[OutlinePart]:
        """Return the formulas, the root first, and each after one that uses it."""
        self._title(self._schema.root)
        found: list[OutlinePart] = []
        while len(found) < min(len(self._queue), self._limit):
            formula = self._queue[len(found)]
            self._costs, self._uses = _costs(self._schema.cases(formula)), []
            values = self._values(formula)
            costs, uses = (list(dict.fromkeys(each)) for each in (self._costs, self._uses))
            found.append(OutlinePart(self._titles[formula], values, costs, uses))
        return found

    def _title(self, formula: Formula) -> str:
        """Return the title of a formula; the first call adds it to the queue."""
        title = self._titles.get(formula)
        if title is None:
            title = _shortened(repr(formula))
            if title in self._titles.values():
                title += f" ({len(self._titles)})"
            self._titles[formula] = title
            self._queue.append(formula)
        self._uses.append(title)
        return title

    def _reference(self, formula: Formula) -> str:
        """Return a formula for use in another's line: in words if they are few, else its title."""
        if formula is EVERYTHING:
            return "anything"
        if formula is NOTHING:
            return "nothing"
        normal = self._schema.cases(formula)
        if normal.is_empty:
            return "nothing"
        if not normal.arrays and not normal.objects and not normal.constants:
            words = " or ".join(_scalars(normal))
            if len(words) <= MAX_INLINE:
                self._costs += _costs(normal)
                return words
        return self._title(formula)

    def _values(self, formula: Formula) -> list[str]:
        normal = self._schema.cases(formula)
        lines = _scalars(normal)
        for array in normal.arrays:
            lines += self._array(array)
        for object_ in normal.objects:
            lines += self._object(object_)
        lines += [_json(value) for value in normal.constants]
        for index in range(1, len(lines)):
            if not lines[index].startswith(" "):
                lines[index] = f"or {lines[index]}"
        return lines or ["nothing"]

    def _array(self, case: Array) -> list[str]:
        lines = [f"an array{_counts(case.min_items, case.max_items, 'item')}"]
        lines += [f"  item {number}: {self._reference(item)}" for number, item in enumerate(case.prefix, 1)]
        lines.append(f"  {'further items' if case.prefix else 'items'}: {self._reference(case.rest)}")
        for part in case.contains:
            count = _counts(part.min, part.max, "item").removeprefix(" of ")
            behind = f" behind the first {part.start}" if part.start else ""
            lines.append(f"  among them{behind}, {count or 'any number'}: {self._reference(part.formula)}")
        if case.unique is not None:
            lines.append("  no two of them equal" if case.unique else "  some two of them equal")
        return lines

    def _object(self, case: Object) -> list[str]:
        lines = [f"an object{_counts(case.min_properties, case.max_properties, 'member')}"]
        for name in case.properties:
            required = " (required)" if name in case.required else ""
            lines.append(f"  {_json(name)}{required}: {self._reference(self._schema.member(case, name))}")
        regions = [(names, formula) for names, formula in self._schema.regions(case) if formula is not NOTHING]
        for names, formula in regions:
            which = "other members" if names.excluded or names == String() else "members"
            named = _string(replace(names, excluded=NO_NAMES)).removeprefix("a string")
            lines.append(f"  {which}{f' named by a string{named}' if named else ''}: {self._reference(formula)}")
        if not regions:
            lines.append("  other members: none")
        for group in case.either:
            lines.append("  and one of these at least:")
            lines += ["    " + line for one in group for line in self._object(one)]
        for rule in case.some:
            lines.append(f"  some member named by {_string(rule.names)}: {self._reference(rule.formula)}")
        return lines


def _scalars(normal: Normal) -> list[str]:
    """Return the alternatives without structure."""
    lines = ["null"] if normal.null else []
    lines += ["true" if value else "false" for value in sorted(normal.booleans, reverse=True)]
    lines += [_number(case) for case in normal.numbers]
    return lines + [_string(case) for case in normal.strings]


def _number(case: Number) -> str:
    if case.values is not None:
        return _listed(_decimal(value) for value in sorted(case.values))
    words = ["an integer" if case.multiple_of == 1 else "a number"]
    if case.minimum is not None:
        words.append(f"{'above' if case.exclusive_minimum else 'at least'} {_decimal(case.minimum)}")
    if case.maximum is not None:
        words.append(f"{'below' if case.exclusive_maximum else 'at most'} {_decimal(case.maximum)}")
    if case.multiple_of not in (None, 1):
        words.append(f"a multiple of {_decimal(case.multiple_of)}")
    words += [f"no multiple of {_decimal(value)}" for value in sorted(case.not_multiple_of)]
    if case.notation is not None:
        words.append(f"written {'without' if case.notation == 'integer' else 'with'} a fraction or exponent")
    if case.excluded:
        words.append(f"not {_listed(_decimal(value) for value in sorted(case.excluded))}")
    return ", ".join(words)


def _string(case: String) -> str:
    if case.values is not None:
        return _listed(_json(value) for value in sorted(case.values))
    words = [f"a string{_counts(case.min_length, case.max_length, 'character')}"]
    words += [f"in which {_json(pattern)} is found" for pattern in sorted(case.patterns)]
    words += [f"in which {_json(pattern)} is not found" for pattern in sorted(case.not_patterns)]
    words += [f"of format {name}" for name in sorted(case.formats)]
    words += [f"not of format {name}" for name in sorted(case.not_formats)]
    if case.quote is not None:
        words.append(f"quoted from a context by {case.quote.boundary}s")
    if case.excluded:
        words.append(f"not {_listed(_json(value) for value in sorted(case.excluded))}")
    words += [f"and either {' or '.join(map(_string, group))}" for group in case.either]
    return ", ".join(words)


def _costs(normal: Normal) -> list[str]:
    """Return the costs in time or memory when the formula is used."""
    lines: list[str] = []
    most = max(map(len, (normal.numbers, normal.strings, normal.arrays, normal.objects)))
    if most > 1:
        lines.append(f"cost: {most} alternatives of one type are followed side by side until the text tells them apart")
    for case in normal.strings:
        lines += _string_cost(case)
    for array in normal.arrays:
        if array.contains:
            lines.append("cost: contains keeps its counts apart: a place for each combination of them")
        if array.unique:
            lines.append("cost: uniqueItems remembers the items so far: a place for each set of them")
    for object_ in normal.objects:
        if object_.some:
            lines.append("cost: a member that must exist, whatever its name, is tried at every member")
        if object_.max_properties is not None:
            lines.append("cost: maxProperties counts members: a place for each number of them")
    return lines


def _string_cost(case: String) -> list[str]:
    conditions = [*case.patterns, *case.formats, *case.not_patterns, *case.not_formats]
    bounded = case.min_length > 0 or case.max_length is not None
    if case.either:
        return [f"cost: {_shortened(_string(case))}: automata for all conditions are read side by side"]
    if not case.not_patterns | case.not_formats and len(conditions) + bounded < 2:
        return []
    return [f"cost: {_shortened(_string(case))}: one automaton for all conditions is worked out"]


def _counts(least: int, most: int | None, unit: str) -> str:
    """Format bounds on a count, after " of "."""
    if most is None:
        return f" of at least {least} {unit}{'s' * (least != 1)}" if least else ""
    if least == most:
        return f" of {most} {unit}{'s' * (most != 1)}"
    return f" of {f'{least} to' if least else 'at most'} {most} {unit}{'s' * (most != 1)}"


def _listed(texts: Iterable[str]) -> str:
    found: Sequence[str] = list(texts)
    shown = ", ".join(found[:SHOWN])
    if len(found) > SHOWN:
        return f"one of {shown} and {len(found) - SHOWN} more"
    return shown if len(found) == 1 else f"one of {shown}"


def _decimal(value: Any) -> str:
    return str(float(value)) if isinstance(value, Fraction) and value.denominator != 1 else str(int(value))


def _json(value: Any) -> str:
    return _shortened(json.dumps(value, ensure_ascii=False, default=float))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_INLINE else f"{text[:MAX_INLINE]}..."


QUOTING = frozenset(("x-quote",))


def quoted_spans(schema: CompiledSchema, instance: Any) -> dict[str, Span]:
    """Return the span of every string that some alternative of the schema quotes, by its JSON pointer."""
    return dict(reversed(list(_spans(schema, schema.root, instance, ""))))


def _spans(schema: CompiledSchema, formula: Formula, value: Any, pointer: str) -> Iterator[tuple[str, Span]]:
    if not (isinstance(value, str) or is_object(value) or is_array(value)) or not schema.accepts(formula, value):
        return
    normal = schema.cases(formula)
    if isinstance(value, str):
        for case in normal.strings:
            span = None if case.quote is None else case.quote.span(value)
            if span is not None:
                yield pointer, span
    elif is_object(value):
        parts = (one for case in normal.objects for one in (case, *chain.from_iterable(case.either)))
        for case in parts:
            for name, member in value.items():
                yield from _spans(schema, schema.member(case, name), member, f"{pointer}/{step_of(name)}")
    else:
        for case in normal.arrays:
            for number, item in enumerate(value):
                part = case.prefix[number] if number < len(case.prefix) else case.rest
                yield from _spans(schema, part, item, f"{pointer}/{number}")
