"""A constraint as it was asked for: a value that is equal for equal requests, and the guide that is made of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from ...engine.decode.frames import FrameOption, frame_of
from ...engine.extraction import Extractor
from ...engine.generator import Generator
from ...engine.models.protocol import Model
from ...guides import CFGGuide, ChoiceGuide, JSONGuide, RegexGuide, SubstringGuide
from ...guides.goals.specs import Goal
from ...guides.limits import Limits
from ...guides.protocol import Guide
from .structural_tags import structural_guide

Kind = Literal["json", "regex", "choice", "lark", "gbnf", "extract", "structural_tag"]


@dataclass(frozen=True)
class ConstraintSpec:
    """kind: "" for free text; content: its JSON text; options: those of its kind, as JSON text

    goals: what a text must contain besides; frame: text before and behind it, or a sentence that names it, "auto" for
        the quotation marks of quotations: clients take other texts, and their tokens, for the answers alone
    place: where in the request it stands, for errors
    """

    kind: Kind | Literal[""] = ""
    content: str = ""
    options: str = "{}"
    goals: tuple[Goal, ...] = ()
    frame: tuple[str, str] | FrameOption | None = "auto"
    place: tuple[str | int, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, kind: Kind, content: Any, place: tuple[str | int, ...], **options: Any) -> ConstraintSpec:
        """One of a kind."""
        return cls(kind, json.dumps(content), json.dumps(options, sort_keys=True), place=place)

    @property
    def framed(self) -> tuple[str, str] | FrameOption | None:
        """The frame that was asked for."""
        return None if self.frame == "auto" else self.frame

    @property
    def is_free(self) -> bool:
        """True where anything may be said."""
        return not self.kind and not self.goals

    def guide(self, model: Model, limits: Limits) -> Guide | None:
        """The guide of the constraint; None for free text. Raises TrellmError."""
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
        """The generator of such texts, with the mask and distance of its first step worked out. Raises TrellmError."""
        guide = self.guide(model, limits)
        if isinstance(guide, SubstringGuide):
            generator = Extractor(model, guide, limits=limits, frame=frame_of(self.frame))
        else:
            frame = self.frame if isinstance(guide, JSONGuide) else self.framed
            generator = Generator(model, guide, limits=limits, frame=frame_of(frame))
        guide_cache = generator.job((0,), self.goals).guide_cache
        if guide_cache is not None:
            guide_cache.allowed(guide_cache.guide.start)
            _ = guide_cache.distance
        return generator
