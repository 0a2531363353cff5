"""Strings and ranges of Lark's grammar language as nodes."""

from __future__ import annotations

import re

from ....errors import GrammarError
from ...limits import spend
from ...regex import parse
from ...syntax import Chars, Literal, Node
from ..combine import characters, is_character
from .syntax import LiteralText, Range

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[^xuU])")
STEPS_PER_CHARACTER = 30
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", '"': '"', "\\": "\\"}


def text_node(literal: LiteralText, grammar: str) -> Node:
    """The node of a string literal; with the suffix `i` in any mixture of cases (`re.IGNORECASE`)."""
    text = _unescape(literal, grammar)
    if not text:
        raise GrammarError("an empty string is no terminal; write an empty alternative", grammar, literal.offset)
    if literal.source.endswith("i"):
        return parse(re.escape(text), flags=re.IGNORECASE)
    return Literal(text.encode())


def range_node(span: Range, grammar: str) -> Chars:
    """The node of `"a".."z"`; without surrogates, which no text contains."""
    low, high = _one_character(span.low, grammar), _one_character(span.high, grammar)
    if high < low:
        raise GrammarError(f"the range {span.low.source}..{span.high.source} is empty", grammar, span.low.offset)
    return characters([(low, high)])


def _one_character(literal: LiteralText, grammar: str) -> int:
    text = _unescape(literal, grammar)
    if len(text) != 1 or literal.source.endswith("i"):
        raise GrammarError("a range goes from one character to another, without suffix", grammar, literal.offset)
    return ord(text)


def _unescape(literal: LiteralText, grammar: str) -> str:
    """The characters that a literal stands for; a backslash before an ordinary one stays, as in Lark."""
    body = literal.source[1 : literal.source.rindex('"')]
    if "\\" not in body:
        return body
    spend(STEPS_PER_CHARACTER * len(body))
    out: list[str] = []
    at = 0
    while at < len(body):
        if body[at] != "\\":
            out.append(body[at])
            at += 1
            continue
        match = _ESCAPE.match(body, at)
        if match is None:
            raise GrammarError(r"expected \xHH, \uHHHH or \UHHHHHHHH", grammar, literal.offset + 1 + at)
        out.append(_escaped(match[1], literal, grammar, at))
        at = match.end()
    return "".join(out)


def _escaped(escape: str, literal: LiteralText, grammar: str, at: int) -> str:
    if escape[0] not in "xuU" or len(escape) == 1:
        return _CONTROLS.get(escape, "\\" + escape)
    code = int(escape[1:], 16)
    if not is_character(code):
        raise GrammarError(f"\\{escape} is no character", grammar, literal.offset + 1 + at)
    return chr(code)
