"""Searches: frozen parameters, and the choice of the next token."""

from .greedy import Greedy
from .protocol import UNUSABLE, Search
from .sample import Sample

__all__ = ["UNUSABLE", "Greedy", "Sample", "Search"]
