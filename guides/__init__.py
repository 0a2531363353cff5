"""Constraints: automata over bytes, lifted to the tokens of a vocabulary. Names are imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import getter

if TYPE_CHECKING:
    from .cfg_guide import CFGGuide
    from .free_guide import FreeGuide
    from .healing import AlignedGuide
    from .json_guide import JSONGuide
    from .protocol import DEAD, ByteGuide, Guide, RowGuide, mask_of, mask_within, tokens_of
    from .regular_guide import ChoiceGuide, FSMGuide, RegexGuide
    from .required_content import GoalGuide
    from .substring_guide import SubstringGuide
    from .tagged import TaggedGuide

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
    "TaggedGuide",
    "mask_of",
    "mask_within",
    "tokens_of",
]

_HOMES = {
    "DEAD": "protocol",
    "AlignedGuide": "healing",
    "ByteGuide": "protocol",
    "FreeGuide": "free_guide",
    "GoalGuide": "required_content",
    "Guide": "protocol",
    "RowGuide": "protocol",
    "mask_of": "protocol",
    "mask_within": "protocol",
    "tokens_of": "protocol",
    "CFGGuide": "cfg_guide",
    "ChoiceGuide": "regular_guide",
    "FSMGuide": "regular_guide",
    "JSONGuide": "json_guide",
    "RegexGuide": "regular_guide",
    "SubstringGuide": "substring_guide",
    "TaggedGuide": "tagged",
}

__getattr__ = getter(__name__, _HOMES)
