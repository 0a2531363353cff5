"""Regular expressions, read into the syntax that all constraints share."""

from .pattern import named_groups, parse

__all__ = ["named_groups", "parse"]
