"""The constraint of a request, as a hashable value, and its guide."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from ...engine.decode.frames import FrameOption, frame_of
from ...engine.extraction import Extractor
from ...engine.generator import Generator
from ...engine.models.protocol import Model
from ...guides import CFGGuide, ChoiceGuide, JSONGuide, RegexGuide, SubstringGuide
from ...guides.limits import Limits
from ...guides.protocol import Guide
from ...guides.required_content.specs import Goal
from .structural_tags import structural_guide

Kind = Literal["json", "regex", "choice", "lark", "gbnf", "extract", "structural_tag"]


@dataclass(frozen=True)
class ConstraintSpec:
    """A requested constraint.

    kind: "" for free text; content: its JSON text; options: options of the kind, as JSON text
    goals: required content; frame: text before and after the answer, or a sentence that names it. "auto" applies to
        quotations and JSON only, since clients would take other frames for a part of the answer
    place: its place in the request, for errors
    """

    kind: Kind | Literal[""] = ""
    content: str = ""
    options: str = "{}"
    goals: tuple[Goal, ...] = ()
    frame: tuple[str, str] | FrameOption | None = "auto"
    place: tuple[str | int, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, kind: Kind, content: Any, place: tuple[str | int, ...], **options: Any) -> ConstraintSpec:
        """Return a constraint of a kind."""
        return cls(kind, json.dumps(content), json.dumps(options, sort_keys=True), place=place)

    @property
    def framed(self) -> tuple[str, str] | FrameOption | None:
        """The explicitly requested frame."""
        return None if self.frame == "auto" else self.frame

    @property
    def is_free(self) -> bool:
        """True for free text without goals."""
        return not self.kind and not self.goals

    def guide(self, model: Model, limits: Limits) -> Guide | None:
        """Return the guide of the constraint; None for free text. Raises TrellmError."""
        vocabulary, options = model.vocabulary, json.loads(self.options)
        if self.kind == "json":
            return JSONGuide(
                self.content, vocabulary, limits=limits, **{"order": "schema", "spelling": "plain"} | options
            )
        content: Any = json.loads(self.content) if self.kind else None
        match self.kind:
            case "regex":
                return RegexGuide(content, vocabulary, limits=limits, **options)
            case "choice":
                return ChoiceGuide(content, vocabulary, limits=limits)
            case "lark" | "gbnf":
                return CFGGuide(content, vocabulary, None, self.kind, limits=limits)
            case "extract":
                return SubstringGuide(content, vocabulary, limits=limits, **options)
            case "structural_tag":
                return structural_guide(content, model, limits)
            case "":
                return None

    def generator(self, model: Model, limits: Limits) -> Generator[Any]:
        """Return the generator of the constraint, with mask and distance of the start state computed. Raises
        TrellmError."""
        guide = self.guide(model, limits)
        if isinstance(guide, SubstringGuide):
            generator = Extractor(model, guide, limits=limits, frame=frame_of(self.frame))
        else:
            frame = self.frame if isinstance(guide, JSONGuide) else self.framed
            generator = Generator(model, guide, limits=limits, frame=frame_of(frame))
        guide_cache = generator.guide_cache(self.goals)
        if guide_cache is not None:
            guide_cache.warm()
        return generator
