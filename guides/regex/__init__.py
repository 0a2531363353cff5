"""Regular expressions, parsed into the common syntax."""

from .pattern import named_groups, parse

__all__ = ["named_groups", "parse"]
