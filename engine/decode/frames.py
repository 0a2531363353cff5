"""Frames: text that stands before and behind an answer, and is no part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...checks import brief, conforms, items_of, text_of
from ...errors import LimitError, OptionError
from ...guides.healing.aligned_guide import AlignedGuide
from ...guides.limits import Limits
from ...guides.protocol import DEAD, ByteGuide, Guide
from ...guides.regular_guide import RegularGuide
from ...guides.tagged.closed_guide import ClosedGuide

_EXAMPLE = """frame=('The answer is "', '"')"""

MOST_LOOKED_AT = 2000


@dataclass(frozen=True, slots=True)
class Frame:
    """before: what the model reads as the beginning of its answer; behind: the closing mark that it writes in place of
    EOS; either may be empty, not both.

    Raises OptionError.
    """

    before: str
    behind: str

    def __post_init__(self) -> None:
        text_of(self.before, "frame, the text before the answer")
        text_of(self.behind, "frame, the closing mark")
        if not self.before and not self.behind:
            raise OptionError(f"frame=('', ''): a text before the answer, one behind it, or both: {_EXAMPLE}")

    @classmethod
    def of(cls, value: Any) -> Frame | None:
        """That of the option of `generate.X`. Raises OptionError."""
        if value is None:
            return None
        both = None if isinstance(value, str) else items_of(value)
        if both is None or len(both) != 2:
            raise OptionError(f"frame={brief(value)}: two texts, before and behind the answer: {_EXAMPLE}")
        return cls(*both)

    def closed(self, guide: Guide, limits: Limits | None) -> Guide:
        """The guide with the closing mark behind it. Raises OptionError, LanguageError."""
        if not self.behind:
            return guide
        if isinstance(guide, RegularGuide):
            _check_that_it_ends(guide, self.behind)
        return ClosedGuide(_read_by_bytes(guide), self.behind, limits=limits)

    def around(self, guide: Guide, limits: Limits | None) -> Guide:
        """The guide with the closing mark behind it and the text before it, both of which the model writes.

        Raises OptionError, LanguageError.
        """
        closed = self.closed(guide, limits)
        return AlignedGuide(_read_by_bytes(closed), self.before.encode(), limits=limits) if self.before else closed

    def within(self, text: str) -> str:
        """The answer in a text that has all."""
        return text.removeprefix(self.before).removesuffix(self.behind)


def _check_that_it_ends(guide: RegularGuide, mark: str) -> None:
    """Raise OptionError where a text may go on with the mark behind another one: the mark would not end that.

    Only automata of up to `MOST_LOOKED_AT` states are looked at.
    """
    try:
        dfa = guide.dfa(MOST_LOOKED_AT)
    except LimitError:
        return
    states = np.flatnonzero(dfa.accepting)
    for byte in mark.encode():
        states = dfa.transitions[states, byte]
        states = states[states != DEAD]
    if len(states):
        raise OptionError(
            f"frame: an answer can itself go on with the closing mark {mark!r}, which would not end it; leave the mark "
            "out of the constraint, as [^...]* does, or give another mark"
        )


def _read_by_bytes(guide: Guide) -> ByteGuide:
    if not conforms(guide, ByteGuide):
        raise OptionError(f"frame= cannot stand around {brief(guide)}, which does not read bytes; leave it out")
    return guide
