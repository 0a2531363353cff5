"""Keywords that cannot hold together: a smallest set of those of a schema that no value satisfies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from ...errors import LimitError, SchemaError

Steps = tuple[str | int, ...]
MOST_KEYWORDS = 120
"""Schemas with more are not looked at: every keyword is left out once, and what remains compiled."""


def clashing(schema: Any, is_impossible: Callable[[Any], bool]) -> list[str]:
    """JSON pointers of keywords that no value satisfies together, and without each of which one does; none where the
    schema is large or cannot be told.

    is_impossible: whether a schema has no value; it may raise SchemaError and LimitError
    One keyword after the other is left out, the outer ones first, and stays so where there still is no value.
    """
    if sum(1 for _ in _keywords(schema)) > MOST_KEYWORDS:
        return []
    left: list[Steps] = list(_below(schema))
    kept: list[Steps] = []
    while left:
        steps = left.pop(0)
        smaller = _without(schema, steps)
        try:
            is_needless = is_impossible(smaller)
        except SchemaError:  # something refers to it
            is_needless = False
        except LimitError:
            return []
        if is_needless:
            schema = smaller
            continue
        inner = [steps + each for each in _below(_at(schema, steps))]
        left += inner
        if not inner:
            kept.append(steps)
    return ["#" + "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps) for steps in kept]


def _below(value: Any) -> Iterator[Steps]:
    """What may be left out of a value: the members of objects, those in arrays among them."""
    if isinstance(value, dict):
        yield from ((key,) for key in cast("dict[str, Any]", value))
    elif isinstance(value, list):
        several = cast("list[Any]", value)
        yield from ((number, *steps) for number, each in enumerate(several) for steps in _below(each))


def _keywords(value: Any) -> Iterator[Steps]:
    left: list[Any] = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            yield from ((key,) for key in cast("dict[str, Any]", each))
            left += cast("dict[str, Any]", each).values()
        elif isinstance(each, list):
            left += cast("list[Any]", each)


def _at(value: Any, steps: Steps) -> Any:
    for step in steps:
        value = value[step]
    return value


def _without(value: Any, steps: Steps) -> Any:
    """A copy of a value without the member that steps lead to."""
    first, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        given = cast("dict[Any, Any]", value)
        if not rest:
            return {key: each for key, each in given.items() if key != first}
        return {key: _without(each, rest) if key == first else each for key, each in given.items()}
    return [_without(each, rest) if number == first else each for number, each in enumerate(cast("list[Any]", value))]
