"""A format within a structural tag: its fields, each read by name, and errors with its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...checks import items_of, lone_surrogate, shown
from ...errors import OptionError


class FormatError(OptionError):
    """A format that cannot be used. `steps`: its place within the structural tag."""

    def __init__(self, reason: str, steps: Sequence[str | int]) -> None:
        super().__init__(f"{'.'.join(map(str, steps))}: {reason}")
        self.reason = reason
        self.steps = tuple(steps)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.steps)


class Place:
    """A format within a structural tag, whose fields are read by name: whatever is left over is refused."""

    def __init__(self, value: Any, steps: tuple[str | int, ...]) -> None:
        self.steps = steps
        if not isinstance(value, Mapping):
            raise FormatError(f'a format is an object such as {{"type": "any_text"}}, not {shown(value)}', steps)
        self._left = dict(cast("Mapping[str, Any]", value))
        self.kind: Any = self._left.pop("type", None)

    def error(self, reason: str, *names: str | int) -> FormatError:
        """An error in a field."""
        return FormatError(reason, (*self.steps, *names))

    def take(self, name: str, default: Any = None) -> Any:
        """A field, which need not be there."""
        found = self._left.pop(name, default)
        return default if found is None else found

    def text(self, name: str) -> str:
        """A field that is a text."""
        return self.as_text(self._left.pop(name, None), name)

    def as_text(self, value: Any, *names: str | int) -> str:
        """A value that is a text."""
        if not isinstance(value, str) or lone_surrogate(value) >= 0:
            raise self.error(f"a text, not {shown(value)}", *names)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """A field that is true or false."""
        found = self.take(name, default)
        if not isinstance(found, bool):
            raise self.error(f"true or false, not {shown(found)}", name)
        return found

    def several(self, name: str, *, may_be_empty: bool = False) -> list[Any]:
        """A field that is a list."""
        found = items_of(self.take(name, [] if may_be_empty else None))
        if found is None or (not found and not may_be_empty):
            raise self.error("a list" if may_be_empty else "a list that is not empty", name)
        return list(found)

    def texts(self, name: str, *, may_be_empty: bool = False) -> list[str]:
        """A field that is a list of texts, none of them empty."""
        found = self.several(name, may_be_empty=may_be_empty)
        for number, each in enumerate(found):
            if not self.as_text(each, name, number):
                raise self.error("a text that is not empty", name, number)
        return found

    def refuse(self, name: str, why: str) -> None:
        """Refuse a field that says something."""
        if self.take(name) not in (None, []):
            raise self.error(f"not supported: {why}", name)

    def end(self) -> None:
        """Refuse what nobody asked for."""
        for name in self._left:
            raise self.error(f"there is no such field in {self.kind!r}", name)
