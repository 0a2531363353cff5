"""Keywords that cannot hold together: a smallest set of those of a schema that no value satisfies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ...errors import LimitError, SchemaError
from .read.dialects import is_array, is_object
from .read.subschema import step_of, without

MOST_KEYWORDS = 120
"""Schemas with more are not looked at: every keyword is left out once, and what remains compiled."""


def clashing(schema: Any, is_impossible: Callable[[Any], bool]) -> list[str]:
    """JSON pointers of keywords that no value satisfies together, and without each of which one does; none where the
    schema is large or cannot be told.

    is_impossible: whether a schema has no value; it may raise SchemaError and LimitError
    One keyword after the other is left out, the outer ones first, and stays so where there still is no value.
    """
    if _size(schema) > MOST_KEYWORDS:
        return []
    left, kept = deque(_members("#", schema)), list[str]()
    while left:
        pointer, value = left.popleft()
        smaller = without(schema, pointer)
        try:
            is_needless = is_impossible(smaller)
        except SchemaError:  # something refers to it
            is_needless = False
        except LimitError:
            return []
        if is_needless:
            schema = smaller
            continue
        inner = list(_members(pointer, value))
        left += inner
        if not inner:
            kept.append(pointer)
    return kept


def _members(pointer: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The members of a value that may be left out, those of objects in arrays among them, and where they stand."""
    if is_object(value):
        yield from ((f"{pointer}/{step_of(key)}", each) for key, each in value.items())
    elif is_array(value):
        for number, each in enumerate(value):
            yield from _members(f"{pointer}/{number}", each)


def _size(schema: Any) -> int:
    """The number of members of all objects in a schema."""
    size, left = 0, [schema]
    while left:
        each = left.pop()
        if is_object(each):
            size += len(each)
            left += each.values()
        elif is_array(each):
            left += each
    return size
