"""Grammars as data, and the languages they are written in."""

from .gbnf import is_gbnf, parse_gbnf
from .grammar import Grammar, check
from .lark.reading import parse_lark

__all__ = ["Grammar", "check", "is_gbnf", "parse_gbnf", "parse_lark"]
