"""Regular expressions, read into the syntax that all constraints share."""

from .pattern import parse

__all__ = ["parse"]
