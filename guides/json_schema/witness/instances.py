"""Definitions that the builders of witnesses share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from ..algebra.cases import Array, Object
from ..algebra.formula import Formula
from ..algebra.normalise import Normaliser


class _NoInstance:
    """Stands for the witness of a formula that has none."""

    def __bool__(self) -> bool:
        raise TypeError("compare with NO_INSTANCE by identity: witnesses may be false themselves")


NO_INSTANCE: Final = _NoInstance()
Ask = Callable[[Formula], Any]
"""Gives the witness of a formula, or NO_INSTANCE if none is known (yet)."""


class Witnessing(Protocol):
    """The part of the whole that a builder of arrays or objects asks."""

    @property
    def normaliser(self) -> Normaliser:
        """Gives the normal forms."""
        ...

    def several(self, formula: Formula, count: int, ask: Ask) -> list[Any]:
        """Up to `count` different instances of a formula."""
        ...

    def in_array(self, case: Array, value: list[Any]) -> bool:
        """Tell whether an array is in a case."""
        ...

    def in_object(self, case: Object, value: dict[str, Any]) -> bool:
        """Tell whether an object is in a case."""
        ...
