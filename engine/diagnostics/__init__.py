"""Diagnostics: effects of a constraint on the choice of each token."""

from .diagnostics import Diagnostics, Summary
from .hints import Hint
from .step import Bias, Step

__all__ = ["Bias", "Diagnostics", "Hint", "Step", "Summary"]
