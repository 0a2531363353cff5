"""Free text with markers that begin constrained parts, as models write tool calls."""

from .after_guide import AfterGuide, Thought
from .either_guide import EitherGuide
from .tagged_guide import Part, TaggedGuide

__all__ = ["AfterGuide", "EitherGuide", "Part", "TaggedGuide", "Thought"]
