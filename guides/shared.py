"""The part that all guides share beside what they answer: what they were made of, which sends and compares them."""

from __future__ import annotations

import hashlib
import marshal
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any, Self, cast

from ..errors import OptionError
from ..tokenizers_adapter import Vocabulary


class Shared:
    """Something that never changes as far as its users see: a copy of it is itself.

    It can be pickled, as a description: what it was made of, the vocabulary with it. In another process it is made
    anew, with none of what it has found out. Guides of one class that were made of the same are equal.
    """

    _made_of: Mapping[str, Any] | None = None
    """The arguments that make another one, which nobody changes; None where it was made in another way."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._made_of is None:
            raise OptionError(
                f"this {type(self).__name__} cannot be pickled or sent to another process; send what it was made of, "
                "and make it there"
            )
        return _make, (self._made_as(), dict(self._made_of))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Shared) or self._made_as() is not other._made_as() or self._digest is None:
            return NotImplemented
        return self._digest == other._digest

    def __hash__(self) -> int:
        return object.__hash__(self) if self._digest is None else hash(self._digest)

    def _made_as(self) -> type:
        """The class that makes another one."""
        return type(self)

    def _content(self) -> Mapping[str, Any] | None:
        """The content that makes guides equal where it is: as `_made_of`, and the same for what means the same."""
        return self._made_of

    @cached_property
    def _digest(self) -> bytes | None:
        """The key that tells contents apart; None where they cannot be compared: not known, or nested too deep."""
        content = self._content()
        return None if content is None else digest_of(content)


def digest_of(content: Any) -> bytes | None:
    """The key of contents, the same in all processes; None where they cannot be compared, as in `Shared`."""
    try:
        return hashlib.blake2b(marshal.dumps(_plain(content), 2)).digest()
    except (ValueError, RecursionError):
        return None


def _make(kind: type, made_of: dict[str, Any]) -> Any:
    return kind(**made_of)


def _plain(value: Any) -> Any:
    """A value as nested lists of texts, bytes and numbers, the same for equal ones."""
    if value is None or isinstance(value, (str, bytes, bool, int, float)):
        return value
    if isinstance(value, Vocabulary):
        return value.fingerprint
    if isinstance(value, Shared):
        if value._digest is None:  # pyright: ignore[reportPrivateUsage]
            raise ValueError("a guide that cannot be compared")
        return value._made_as().__name__, value._digest  # pyright: ignore[reportPrivateUsage]
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, [(field.name, _plain(getattr(value, field.name))) for field in fields(value)]
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value).items()
        return "members", [(_plain(name), _plain(member)) for name, member in members]
    if isinstance(value, Sequence):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    try:
        return type(value).__name__, pickle.dumps(value, 5)
    except Exception as error:  # whatever an object of somebody else's does
        raise ValueError("something that cannot be compared") from error
