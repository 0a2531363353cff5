"""Strings and ranges of Lark's grammar notation as nodes, and the pieces of substring constraints."""

from __future__ import annotations

import json
import re
from typing import Any

from ....checks import lone_surrogate
from ....errors import GrammarError
from ...limits import spend
from ...regex import parse
from ...syntax import Chars, Literal, Node
from ..combine import characters, is_character
from .syntax import Inline, LiteralText, Range

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[^xuU])")
STEPS_PER_CHARACTER = 30
_NO_SUBSTRING = "%regex takes substring_words or substring_chars with a text, or substring_chunks with a list of texts"
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", '"': '"', "\\": "\\"}


def text_node(literal: LiteralText, grammar: str) -> Node:
    """Return the node of a string literal; with the suffix `i` in any mixture of cases (`re.IGNORECASE`)."""
    text = _unescape(literal, grammar)
    if literal.source.endswith("i"):
        return parse(re.escape(text), flags=re.IGNORECASE)
    return Literal(text.encode())


def range_node(span: Range, grammar: str) -> Chars:
    """Return the node of `"a".."z"`, without surrogates."""
    low, high = _one_character(span.low, grammar), _one_character(span.high, grammar)
    if high < low:
        raise GrammarError(f"the range {span.low.source}..{span.high.source} is empty", grammar, span.low.offset)
    return characters([(low, high)])


def pieces_of(pattern: Inline, grammar: str) -> list[str]:
    """Return the nonempty pieces of the text whose substrings `%regex {...}` accepts."""
    given: Any = json.loads(pattern.text, parse_int=float)
    match given:
        case {"substring_words": str(text), **rest} if not rest:
            pieces = _words(text)
        case {"substring_chars": str(text), **rest} if not rest:
            pieces = list(text)
        case {"substring_chunks": [*chunks], **rest} if not rest and all(isinstance(each, str) for each in chunks):
            pieces = [str(each) for each in chunks]
        case _:
            raise GrammarError(_NO_SUBSTRING, grammar, pattern.offset)
    if lone_surrogate("".join(pieces)) >= 0:
        raise GrammarError("a lone surrogate is no character of UTF-8", grammar, pattern.offset)
    return [piece for piece in pieces if piece]


def _words(text: str) -> list[str]:
    """Split a text into llguidance's words: runs of letters, digits and _, of white space, and of others."""
    import regex

    return regex.findall(r"[\p{Alphabetic}\p{N}_]+|\s+|[^\p{Alphabetic}\p{N}_\s]+", text)


def _one_character(literal: LiteralText, grammar: str) -> int:
    text = _unescape(literal, grammar)
    if len(text) != 1 or literal.source.endswith("i"):
        raise GrammarError("a range goes from one character to another, without suffix", grammar, literal.offset)
    return ord(text)


def _unescape(literal: LiteralText, grammar: str) -> str:
    """Unescape a literal; a backslash before an ordinary character stays, as in Lark."""
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
