"""Free text in which markers begin constrained parts, the form in which models call tools."""

from .after_guide import AfterGuide, Thought
from .either_guide import EitherGuide
from .tagged_guide import Part, TaggedGuide

__all__ = ["AfterGuide", "EitherGuide", "Part", "TaggedGuide", "Thought"]
