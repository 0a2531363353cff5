"""What a reader knows of an answer."""

from __future__ import annotations

from dataclasses import dataclass

from ..answer import Thinks
from ..arguments import Arguments
from ..calls import Asked
from ..families import Family
from ..spelling import Spelling


@dataclass(frozen=True)
class Reading:
    """The form, what was asked, how the arguments of each tool are written, and whether there is thinking first.

    is_ambiguous: whether an answer that is no call may begin as one, so that only its end tells
    """

    family: Family
    spelling: Spelling
    asked: Asked
    arguments: dict[str, Arguments]
    thinks: Thinks
    is_ambiguous: bool = False
