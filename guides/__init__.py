"""Constraints: automata over bytes, lifted to the tokens of a vocabulary. Names are imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aligned import AlignedGuide
    from .context_free import CFGGuide
    from .free import FreeGuide
    from .goals import GoalGuide
    from .json_guide import JSONGuide
    from .protocol import DEAD, ByteGuide, Guide, RowGuide, mask_within
    from .regular import ChoiceGuide, FSMGuide, RegexGuide
    from .substring import SubstringGuide

__all__ = [
    "DEAD",
    "AlignedGuide",
    "ByteGuide",
    "CFGGuide",
    "ChoiceGuide",
    "FSMGuide",
    "FreeGuide",
    "GoalGuide",
    "Guide",
    "JSONGuide",
    "RegexGuide",
    "RowGuide",
    "SubstringGuide",
    "mask_within",
]

_HOMES = {
    "DEAD": "protocol",
    "AlignedGuide": "aligned",
    "ByteGuide": "protocol",
    "FreeGuide": "free",
    "GoalGuide": "goals",
    "Guide": "protocol",
    "RowGuide": "protocol",
    "mask_within": "protocol",
    "CFGGuide": "context_free",
    "ChoiceGuide": "regular",
    "FSMGuide": "regular",
    "JSONGuide": "json_guide",
    "RegexGuide": "regular",
    "SubstringGuide": "substring",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
