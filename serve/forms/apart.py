"""An answer that no graph can hold beside calls and thinking: a quotation, items that differ, a text with goals.

What the pieces of `answer` say of a text is said here by guides that are asked about tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...guides.goals import GoalGuide
from ...guides.goals.specs import Goal
from ...guides.limits import Limits
from ...guides.protocol import Guide
from ...guides.tagged.after_guide import MOST_FREE, AfterGuide
from ...guides.tagged.composed_guide import ComposedGuide
from ...guides.tagged.either_guide import EitherGuide
from ...guides.tagged.pieces import Free, Marker, Piece
from .answer import LINES, Thinks, answer_piece
from .calls import Asked, Calls
from .families import Family
from .spelling import Spelling
from .tools import Choice


def is_apart(answer: Guide | None) -> bool:
    """Whether an answer cannot be a part of a graph."""
    return answer is not None and (not hasattr(answer, "lower_into") or bool(getattr(answer, "refuses_lowering", "")))


@dataclass(frozen=True)
class Apart:
    """Makes the guides of one request. has_thinking: whether the markers of thinking are markers here"""

    family: Family
    spelling: Spelling
    calls: Calls
    has_thinking: bool
    limits: Limits | None

    def with_goals(self, asked: Asked, goals: tuple[Goal, ...]) -> GoalGuide:
        """The guide of an answer that is free but for goals, and no call. Raises LanguageError, LimitError."""
        none = replace(asked, choice=Choice("none", asked.choice.names))
        piece = answer_piece(self.family, self.spelling, none, self.calls, self.has_thinking)
        return GoalGuide(self._composed(Free(may_end=True) if piece is None else piece), goals, limits=self.limits)

    def guide(self, asked: Asked, thinks: Thinks, budget: int | None) -> Guide:
        """The guide of calls or the answer, with thinking before them. Raises LimitError."""
        said = self._said(asked)
        if thinks == "no" or self.family.thinking is None:
            return said
        begin, end = map(self.spelling.marker, self.family.thinking)
        behind = EitherGuide([said, *(self._behind("\n" * number, said) for number in range(1, LINES + 1))])
        thought = AfterGuide(behind, end, most=MOST_FREE if budget is None else budget, limits=self.limits)
        if thinks == "open":
            return thought
        begun = self._behind(begin, thought)
        return begun if thinks == "must" else EitherGuide([said, begun])

    def _said(self, asked: Asked) -> Guide:
        """What comes behind thinking."""
        assert asked.answer is not None
        if not asked.callable:
            return asked.answer
        must = replace(asked, choice=replace(asked.choice, mode="required"))
        piece = answer_piece(self.family, self.spelling, must, self.calls, self.has_thinking)
        assert piece is not None
        called = self._composed(piece)
        return called if asked.choice.mode == "required" else EitherGuide([called, asked.answer])

    def _composed(self, piece: Piece) -> ComposedGuide:
        return ComposedGuide(piece, self.spelling.vocabulary, limits=self.limits)

    def _behind(self, marker: Marker, child: Guide) -> AfterGuide:
        """The marker, and then the child."""
        return AfterGuide(child, marker, most=0, limits=self.limits)
