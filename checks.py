"""Checks of arguments: texts, numbers, switches. Each check raises OptionError."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, KeysView, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from numbers import Real
from operator import index
from pathlib import Path
from typing import Any, TypeGuard, TypeVar, cast

from .errors import OptionError

T = TypeVar("T")
MAX_INT = 2**31 - 1
"""The largest value of integer options: counters of kernels have 32 bits."""
_SHOWN = 80


def brief(value: Any) -> str:
    """Return a short representation of a value, for messages."""
    if isinstance(value, (str, bytes)) and len(value) > _SHOWN:
        return f"{value[: _SHOWN // 2]!r}... ({len(value):,} long)"
    try:
        text = repr(value)
    except Exception:  # `repr` of foreign objects may raise anything
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def shown(value: Any) -> str:
    """Return a representation of a value, with its type if this is not obvious."""
    text, name = brief(value), type(value).__name__
    plain = value is None or isinstance(value, (str, int, float, bytes, list, tuple, dict)) or name in text
    return text if plain else f"{text} ({name})"


def check_text(value: Any, what: str) -> str:
    """Return a text that UTF-8 can encode. what: its name, as the beginning of a sentence."""
    text = check_any_text(value, what)
    at = lone_surrogate(text)
    if at >= 0:
        raise OptionError(
            f"{what} has a lone surrogate at character {at} ({text[at]!r}), which no text of UTF-8 "
            "can have; replace it, for example by text.encode(errors='replace').decode()"
        )
    return text


def check_any_text(value: Any, what: str, example: str = "") -> str:
    """Return a text, with lone surrogates allowed. what: see `check_text`; example: of a valid text"""
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)  # regardless of `__str__` of a subclass
    raise OptionError(f"{what} must be a text, not {shown(value)}{_instead(value)}{example and f': {example}'}")


def repeated_name(members: Sequence[tuple[str, Any]]) -> str | None:
    """Return the first repeated name among the members of a JSON object; None if there is none."""
    seen: set[str] = set()
    return next((name for name, _ in members if name in seen or seen.add(name)), None)


def lone_surrogate(text: str) -> int:
    """Return the index of the first lone surrogate, which UTF-8 cannot encode; -1 if there is none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return -1


def check_texts(values: Any, what: str, each: str) -> list[str]:
    """Return several texts as a list, from a list or another ordered iterable.

    what: their name; each: the name of one, followed by its number
    """
    several = None if isinstance(values, (str, os.PathLike)) else items_of(values)
    if several is None:
        raise OptionError(f"{what} must be a text or a list of texts, not {shown(values)}{_instead(values)}")
    return [check_text(value, f"{each} {number}") for number, value in enumerate(several)]


def text_in_file(path: Path, what: str) -> str:
    """Return the text of a UTF-8 file. what: its name. Raises OptionError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{what} cannot be read: {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise OptionError(f"{what} in {path} is not UTF-8, at byte {error.start}") from None


def items_of(values: Any) -> list[Any] | None:
    """Return the items of an ordered iterable; None for texts, mappings, sets and other objects.

    Dict keys are a set, but have the dict's order.
    """
    has_order = isinstance(values, KeysView) or not isinstance(values, (str, bytes, bytearray, Mapping, AbstractSet))
    if not has_order or not isinstance(values, Iterable):
        return None
    try:
        return list(cast("Iterable[Any]", values))
    except TypeError:  # arrays and tensors without dimensions
        return None


def check_choice(value: Any, what: str, possible: Sequence[str]) -> None:
    """Raise OptionError unless the value is one of some words."""
    if not isinstance(value, str) or value not in possible:
        raise OptionError(f"{what}={brief(value)}: one of {', '.join(map(repr, possible))}")


def check_mapping(value: Any, what: str, meaning: str) -> Mapping[str, Any] | None:
    """Return a mapping from texts, or None. meaning: of keys and values, for the message."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise OptionError(f"{what}={brief(value)}: a dict of {meaning}, or None")
    found = cast("Mapping[str, Any]", value)
    for key in found:
        check_text(key, f"{what}: a key")
    return found


def check_int(value: Any, what: str, least: int = 1, most: int = MAX_INT) -> int:
    """Return a whole number within bounds, as an int; also one of NumPy's."""
    try:
        found = None if isinstance(value, bool) else index(value)
    except TypeError:
        found = None
    if found is None or not least <= found <= most:
        bound = f"of at least {least}" if most == MAX_INT and (found or 0) < least else f"from {least} to {most:,}"
        raise OptionError(f"{what}={brief(value)}: a whole number {bound}")
    return found


def check_number(value: Any, what: str, meaning: str) -> float:
    """Return a finite number. meaning: description of valid numbers, for the message."""
    try:
        found = float(value) if not isinstance(value, bool) and isinstance(value, Real) else math.nan
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise OptionError(f"{what}={brief(value)}: {meaning}")
    return found


def check_positive(value: Any, what: str, unit: str) -> float:
    """Return a finite number above 0. unit: of the number, for the message."""
    meaning = f"a number of {unit} above 0"
    found = check_number(value, what, meaning)
    if found <= 0:
        raise OptionError(f"{what}={brief(value)}: {meaning}")
    return found


def check_bool(value: Any, what: str, meaning: str = "True or False") -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise OptionError(f"{what}={brief(value)}: {meaning}")
    return value


def _instead(value: Any) -> str:
    """Return a hint about a value that should have been a text."""
    if isinstance(value, (bytes, bytearray)):
        return "; decode it first, for example by .decode('utf-8')"
    if isinstance(value, os.PathLike):
        return "; pass what is in the file, Path(...).read_text(encoding='utf-8')"
    if isinstance(value, re.Pattern):
        return "; pass its .pattern, and its flags apart"
    return ""


def implements(value: object, protocol: type[T]) -> TypeGuard[T]:
    """Test `isinstance(value, protocol)`, faster, for a runtime-checkable protocol.

    Python looks up every member at every test. Here the members of classes are cached, and the first missing member
    decides.
    """
    if _has_members(type(value), protocol):
        return True
    return all(hasattr(value, name) for name in _members(protocol)) and isinstance(value, protocol)


@lru_cache(maxsize=256)
def _has_members(kind: type, protocol: type) -> bool:
    return all(hasattr(kind, name) for name in _members(protocol))


@lru_cache(maxsize=64)
def _members(protocol: type) -> tuple[str, ...]:
    return tuple(name for name in dir(protocol) if not name.startswith("_"))
