"""Free text in which markers begin constrained parts, the form in which models call tools."""

from .after_guide import AfterGuide, Thought
from .tagged_guide import Part, TaggedGuide

__all__ = ["AfterGuide", "Part", "TaggedGuide", "Thought"]
