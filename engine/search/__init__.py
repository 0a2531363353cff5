"""Searches: frozen parameters, and the choice of the next token."""

from .beam import Beam
from .exact import SMC, Exact, Importance, Target
from .protocol import UNUSABLE, Search
from .sample import Greedy, Sample

__all__ = ["SMC", "UNUSABLE", "Beam", "Exact", "Greedy", "Importance", "Sample", "Search", "Target"]
