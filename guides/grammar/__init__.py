"""Grammars as data, and the languages they are written in."""

from .gbnf import parse_gbnf
from .grammar import Grammar, check
from .lark.reading import parse_lark

__all__ = ["Grammar", "check", "parse_gbnf", "parse_lark"]
