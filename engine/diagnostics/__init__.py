"""Diagnostics: what a constraint did to the model's choice of each token."""

from .diagnostics import Diagnostics, Summary
from .hints import Hint
from .step import Bias, Step

__all__ = ["Bias", "Diagnostics", "Hint", "Step", "Summary"]
