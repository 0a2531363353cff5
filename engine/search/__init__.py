"""Searches: frozen parameters, and the choice of the next token."""

from .beam import Beam
from .exact import Exact
from .greedy import Greedy
from .protocol import UNUSABLE, Search
from .sample import Sample
from .smc import SMC, Importance
from .target import Target

__all__ = ["SMC", "UNUSABLE", "Beam", "Exact", "Greedy", "Importance", "Sample", "Search", "Target"]
