"""Grammars as data, and parsers of their notations."""

from ..syntax import Alternation, Chars, Literal, Reference, Repeat, Sequence
from .gbnf import is_gbnf, parse_gbnf
from .grammar import Grammar, check
from .lark.reading import parse_lark

__all__ = [
    "Alternation",
    "Chars",
    "Grammar",
    "Literal",
    "Reference",
    "Repeat",
    "Sequence",
    "check",
    "is_gbnf",
    "parse_gbnf",
    "parse_lark",
]
