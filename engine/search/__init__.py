"""Searches: frozen parameters, and the choice of the next token."""

from .beam import Beam
from .greedy import Greedy
from .protocol import UNUSABLE, Search
from .sample import Sample

__all__ = ["UNUSABLE", "Beam", "Greedy", "Sample", "Search"]
