"""What a text must contain, as a request says it."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field

from ...guides.goals.specs import MAX_PARTS, AllOf, AnyOf, Gap, Goal, Ordered, Phrase, Template
from .base import Asked


class PhraseField(Asked):
    """A phrase; word: as a whole word."""

    phrase: str
    word: bool = False

    def goal(self) -> Goal:
        """What the engine takes."""
        return Phrase(self.phrase, self.word)


class GapField(Asked):
    """Anything between two parts of a template; without bounds {"gap": {}}."""

    gap: GapBounds


class GapBounds(Asked):
    """How much a gap may have."""

    min_words: Annotated[int, Field(ge=0)] = 0
    max_words: Annotated[int, Field(ge=0)] | None = None
    max_chars: Annotated[int, Field(ge=0)] | None = None


class AnyField(Asked):
    """At least one of several."""

    any_of: Goals

    def goal(self) -> Goal:
        """What the engine takes."""
        return AnyOf(*map(_goal, self.any_of))


class AllField(Asked):
    """Several in any order."""

    all_of: Goals

    def goal(self) -> Goal:
        """What the engine takes."""
        return AllOf(*map(_goal, self.all_of))


class OrderedField(Asked):
    """Several, each behind the one before."""

    ordered: Goals

    def goal(self) -> Goal:
        """What the engine takes."""
        return Ordered(*map(_goal, self.ordered))


class TemplateField(Asked):
    """Parts that follow each other, with gaps."""

    template: Annotated[
        list[str | PhraseField | GapField | AnyField], Field(min_length=1, max_length=256, fail_fast=True)
    ]

    def goal(self) -> Goal:
        """What the engine takes."""
        parts: list[Any] = [
            Gap(**each.gap.model_dump()) if isinstance(each, GapField) else _goal(each) for each in self.template
        ]
        return Template(*parts)


GoalField = str | PhraseField | AnyField | AllField | OrderedField | TemplateField
Goals = Annotated[list[GoalField], Field(min_length=1, max_length=256, fail_fast=True)]


def _bounded(value: Any) -> Any:
    """Goals of so many parts as there may be: counted before they are read, which takes much longer."""
    left, parts = [value], 0
    while left:
        several = left.pop()
        if not isinstance(several, list):
            continue
        within = cast("list[Any]", several)
        parts += len(within)
        if parts > MAX_PARTS:
            raise ValueError(f"the goals have more than {MAX_PARTS:,} parts, which is fixed; ask for less")
        left += [inner for each in within if isinstance(each, dict) for inner in cast("dict[str, Any]", each).values()]
    return value


Include = Annotated[list[GoalField], Field(min_length=1, max_length=256, fail_fast=True), BeforeValidator(_bounded)]


def _goal(field: GoalField) -> Goal:
    return Phrase(field) if isinstance(field, str) else field.goal()


def goals_in(fields: list[GoalField] | None) -> tuple[Goal, ...]:
    """The goals that a request names. Raises OptionError."""
    return tuple(map(_goal, fields or ()))
