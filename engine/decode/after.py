"""Free text before a constraint: what a model thinks, up to a marker, within a budget of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...checks import text_of, whole
from ...errors import OptionError
from ...guides.limits import Limits
from ...guides.protocol import Guide
from ...guides.tagged.after_guide import MOST_FREE, AfterGuide
from ...tokenizers_adapter.marked import token_of
from ..models.protocol import Model

THINKING = 1024


@dataclass(frozen=True, slots=True)
class After:
    """marker: a text such as "</think>", or a token id; thinking: how many tokens may come before it.

    Raises OptionError.
    """

    marker: str | int
    thinking: int = THINKING

    def __post_init__(self) -> None:
        marker: Any = self.marker
        if isinstance(marker, str):
            if not text_of(marker, "after"):
                raise OptionError('after="": the marker behind which the constraint begins, such as "</think>"')
        else:
            whole(marker, "after", 0)
        object.__setattr__(self, "thinking", whole(self.thinking, "thinking", 0, MOST_FREE))

    @classmethod
    def of(cls, marker: str | int | None, thinking: int | None) -> After | None:
        """The options of `generate.X` as one. Raises OptionError."""
        if marker is None:
            if thinking is not None:
                raise OptionError(f"thinking={thinking!r} without after=, the marker up to which there is free text")
            return None
        return cls(marker, THINKING if thinking is None else thinking)

    def before(self, guide: Guide | None, model: Model, limits: Limits | None) -> AfterGuide:
        """The guide behind the marker, which is a token where it is written as a special one."""
        if guide is None:
            raise OptionError("after= is for constraints, which come behind it; free text has none: use stop=")
        token = self.marker if not isinstance(self.marker, str) else special_token(model, self.marker)
        return AfterGuide(guide, self.marker if token is None else token, most=self.thinking, limits=limits)


def special_token(model: Model, text: str) -> int | None:
    """The token without bytes that a tokenizer writes as a text; None where it has none."""
    token, vocabulary = token_of(model.tokenizer, text), model.vocabulary
    return token if token in vocabulary.special_ids and token not in vocabulary.eos_ids else None
