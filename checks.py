"""What callers pass, looked at before it is used: texts, numbers, switches. Each check raises OptionError."""

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
MOST = 2**31 - 1
"""The largest whole number that an option may be: what kernels count with has 32 bits."""
_SHOWN = 80


def brief(value: Any) -> str:
    """A value as a message shows it: not too long."""
    if isinstance(value, (str, bytes)) and len(value) > _SHOWN:
        return f"{value[: _SHOWN // 2]!r}... ({len(value):,} long)"
    try:
        text = repr(value)
    except Exception:  # whatever an object of somebody else's does
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def shown(value: Any) -> str:
    """A value with its type, where that is not plain to see."""
    text, name = brief(value), type(value).__name__
    plain = value is None or isinstance(value, (str, int, float, bytes, list, tuple, dict)) or name in text
    return text if plain else f"{text} ({name})"


def text_of(value: Any, what: str) -> str:
    """A text that UTF-8 can encode. what: names it, as the beginning of a sentence."""
    text = any_text_of(value, what)
    at = lone_surrogate(text)
    if at >= 0:
        raise OptionError(
            f"{what} has a lone surrogate at character {at} ({text[at]!r}), which no text of UTF-8 "
            "can have; replace it, for example by text.encode(errors='replace').decode()"
        )
    return text


def any_text_of(value: Any, what: str, example: str = "") -> str:
    """A text, as far as its type goes. what: as for `text_of`; example: what may be given"""
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)  # whatever a class of the caller's says of itself
    raise OptionError(f"{what} must be a text, not {shown(value)}{_instead(value)}{example and f': {example}'}")


def twice_named(members: Sequence[tuple[str, Any]]) -> str | None:
    """The first name that stands twice among the members of a JSON object; None where there is none."""
    seen: set[str] = set()
    return next((name for name, _ in members if name in seen or seen.add(name)), None)


def lone_surrogate(text: str) -> int:
    """Where the first lone surrogate of a text is, which no UTF-8 can have; -1 if there is none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return -1


def texts_of(values: Any, what: str, each: str) -> list[str]:
    """Several texts, in order: of a list or anything else that is iterated over in one order.

    what: names them, and each: one of them, whose number follows
    """
    several = None if isinstance(values, (str, os.PathLike)) else items_of(values)
    if several is None:
        raise OptionError(f"{what} must be a text or a list of texts, not {shown(values)}{_instead(values)}")
    return [text_of(value, f"{each} {number}") for number, value in enumerate(several)]


def text_in_file(path: Path, what: str) -> str:
    """The text of a file in UTF-8. what: names it. Raises OptionError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{what} cannot be read: {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise OptionError(f"{what} in {path} is not UTF-8, at byte {error.start}") from None


def items_of(values: Any) -> list[Any] | None:
    """What is iterated over in one order; None for texts, mappings and sets, and for what is not iterated over.

    The keys of a dict, which are a set besides, have the dict's order.
    """
    has_order = isinstance(values, KeysView) or not isinstance(values, (str, bytes, bytearray, Mapping, AbstractSet))
    if not has_order or not isinstance(values, Iterable):
        return None
    try:
        return list(cast("Iterable[Any]", values))
    except TypeError:  # arrays and tensors without dimensions
        return None


def one_of(value: Any, what: str, possible: Sequence[str]) -> None:
    """Raise OptionError unless the value is one of some words."""
    if not isinstance(value, str) or value not in possible:
        raise OptionError(f"{what}={brief(value)}: one of {', '.join(map(repr, possible))}")


def mapping_of(value: Any, what: str, meaning: str) -> Mapping[str, Any] | None:
    """A mapping from texts, or None. meaning: what it maps to what, for the message."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise OptionError(f"{what}={brief(value)}: a dict of {meaning}, or None")
    found = cast("Mapping[str, Any]", value)
    for key in found:
        text_of(key, f"{what}: a key")
    return found


def whole(value: Any, what: str, least: int = 1, most: int = MOST) -> int:
    """A whole number within bounds, as an int; NumPy's whole numbers are some too."""
    try:
        found = None if isinstance(value, bool) else index(value)
    except TypeError:
        found = None
    if found is None or not least <= found <= most:
        bound = f"of at least {least}" if most == MOST and (found or 0) < least else f"from {least} to {most:,}"
        raise OptionError(f"{what}={brief(value)}: a whole number {bound}")
    return found


def number(value: Any, what: str, meaning: str) -> float:
    """A finite number. meaning: what would be one that fits, for the message."""
    try:
        found = float(value) if not isinstance(value, bool) and isinstance(value, Real) else math.nan
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise OptionError(f"{what}={brief(value)}: {meaning}")
    return found


def positive(value: Any, what: str, unit: str) -> float:
    """A finite number above 0. unit: of what it is so many, for the message."""
    meaning = f"a number of {unit} above 0"
    found = number(value, what, meaning)
    if found <= 0:
        raise OptionError(f"{what}={brief(value)}: {meaning}")
    return found


def switch(value: Any, what: str, meaning: str = "True or False") -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise OptionError(f"{what}={brief(value)}: {meaning}")
    return value


def _instead(value: Any) -> str:
    """What to do about a value that should have been a text."""
    if isinstance(value, (bytes, bytearray)):
        return "; decode it first, for example by .decode('utf-8')"
    if isinstance(value, os.PathLike):
        return "; pass what is in the file, Path(...).read_text(encoding='utf-8')"
    if isinstance(value, re.Pattern):
        return "; pass its .pattern, and its flags apart"
    return ""


def conforms(value: object, protocol: type[T]) -> TypeGuard[T]:
    """As `isinstance(value, protocol)`, for a protocol that can be asked so.

    Python looks up every member of the value, each time; what classes have is remembered, and one that is absent is
    enough.
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
