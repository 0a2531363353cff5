"""Diagnostics: what a constraint did to the model's choice of each token."""

from .bias import Bias
from .diagnostics import Diagnostics, Summary
from .hints import Hint
from .step import Step

__all__ = ["Bias", "Diagnostics", "Hint", "Step", "Summary"]
