"""Quoted strings in an instance of a schema, and where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from ..quoting.source import Span
from .algebra.formula import Formula
from .compiled import CompiledSchema
from .read.dialects import is_array, is_object
from .read.subschema import step_of

QUOTING = frozenset(("x-quote",))


def quoted_spans(schema: CompiledSchema, instance: Any) -> dict[str, Span]:
    """The span of every string that some alternative of the schema quotes, by its JSON pointer."""
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
