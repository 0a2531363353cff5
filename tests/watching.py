"""Functions that are watched while they do what they do: tests see what the package asks of its parts, and when."""

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest


def watched(
    patch: pytest.MonkeyPatch, owner: Any, name: str, note: Callable[..., Any] = lambda *_, **__: None
) -> list[Any]:
    """Notes of a function: what `note` makes of the arguments of each call to come, for as long as the patch lasts.

    Where `note` raises, the function fails; where it waits, the function takes as long.
    """
    function, notes = getattr(owner, name), list[Any]()

    def noted(*given: Any, **named: Any) -> Any:
        notes.append(note(*given, **named))
        return function(*given, **named)

    patch.setattr(owner, name, noted)
    return notes


def failing_at(number: int, error: BaseException) -> Callable[..., None]:
    """A note that raises at the call of this number, from 1."""
    calls = count(1)

    def note(*_: Any, **__: Any) -> None:
        if next(calls) == number:
            raise error

    return note


def in_thread(*_: Any, **__: Any) -> str:
    """The name of the thread that calls, as a note."""
    return threading.current_thread().name
