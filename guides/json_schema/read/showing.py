"""Values in messages: short, whatever they are."""

from __future__ import annotations

from reprlib import Repr
from typing import Any

MAX_SHOWN = 60

_shown = Repr()
_shown.maxstring = _shown.maxother = _shown.maxlong = MAX_SHOWN
_shown.maxlevel = 4


def show(value: Any) -> str:
    """A value as Python writes it, in at most MAX_SHOWN characters."""
    try:
        text = _shown.repr(value)
    except (ValueError, RecursionError):
        return "something too large to be shown"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
