"""Free text in which markers begin constrained parts, the form in which models call tools."""

from .tagged_guide import Part, TaggedGuide

__all__ = ["Part", "TaggedGuide"]
