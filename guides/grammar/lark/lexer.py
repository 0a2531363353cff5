"""The lexer of Lark's grammar notation."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from ....errors import GrammarError, LimitError
from ...limits import spend
from ..special_tokens import WRITTEN


class Token(NamedTuple):
    """A word of the grammar: its kind, its text and the offset of its first character.

    kind: a group name of the pattern below, `or_line` for a line that begins with `|`, or `end`; JSON has the kind
    of its directive
    """

    kind: str
    text: str
    offset: int


_PATTERN = re.compile(
    rf"""
    (?P<comment> \s*+ (?: // | \# ) [^\n]* )
  | (?P<blank> [ \t\f]+ | \\ [ ]* \r?\n )
  | (?P<or_line> \r?\n \s*+ \| )
  | (?P<line> \r?\n \s* )
  | (?P<regex> / (?: \\. | [^/\\] )++ / [imslux]* )
  | (?P<string> " (?: \\[^\n] | [^"\\\n] )*+ " i? )
  | (?P<modifiers> (?: !\?? | \?!? ) (?= [_a-z] ) )
  | (?P<rule> _?[a-z][_a-z0-9]* (?: -++ [_a-z0-9]+ )* )
  | (?P<terminal> _?[A-Z][_A-Z0-9]* (?: -++ [_A-Z0-9]+ )* )
  | (?P<number> [+-]?[0-9]+ )
  | (?P<special> {WRITTEN} )
  | (?P<json> % (?: json | regex | llguidance ) (?![A-Za-z_]) \s*+ )
  | (?P<directive> % [A-Za-z_]* )
  | (?P<mark> -> | \.\. | :(?!:) | [()\[\]{{}}|.,~*+?=&] )
    """,
    re.VERBOSE | re.DOTALL,
)
# Work per word, and the number of words counted at once
STEPS_PER_WORD, BATCH = 90, 64
_DROPPED = frozenset({"comment", "blank"})
_JSON = json.JSONDecoder(parse_int=str, parse_float=str)


def tokenize(text: str) -> list[Token]:
    """Split a grammar into words, followed by a `line` and an `end`. Raises GrammarError for an invalid character."""
    tokens: list[Token] = []
    offset = words = 0
    while offset < len(text):
        match = _PATTERN.match(text, offset)
        if match is None:
            raise GrammarError(_complaint(text, offset), text, offset)
        words += 1
        if words % BATCH == 0:
            spend(STEPS_PER_WORD * BATCH)
        kind, end = str(match.lastgroup), match.end()
        if kind == "json":
            end = _end_of_json(text, match.end())
            tokens.append(Token(match.group().rstrip(), text[match.end() : end], offset))
        elif kind not in _DROPPED:
            tokens.append(Token(kind, match.group(), offset))
        offset = end
    spend(STEPS_PER_WORD * (words % BATCH))
    tokens.append(Token("line", "", len(text)))
    tokens.append(Token("end", "", len(text)))
    return tokens


def _end_of_json(text: str, begin: int) -> int:
    """Return the end of the JSON value that begins at an offset."""
    try:
        end = _JSON.raw_decode(text, begin)[1]
    except json.JSONDecodeError as error:
        raise GrammarError(f"this is no JSON: {error.msg}", text, min(error.pos, len(text))) from None
    except RecursionError:
        raise LimitError("JSON in the grammar is nested too deep for Python to read it; bound its depth") from None
    spend(end - begin)
    return end


def _complaint(text: str, offset: int) -> str:
    found = text[offset]
    if found == '"':
        return 'a string that does not end on its line; expected a closing "'
    if found == "/":
        return "a regular expression that does not end; expected a closing /"
    if found == "'":
        return "strings are written in double quotes here"
    if found == "<":
        return "a special token is written without blanks, <|im_end|>, or by its id, <[128010]>"
    if found == "@":
        return "a grammar cannot refer to others; write their rules here, and schemas as %json {...}"
    if text.startswith("::=", offset):
        return "'::=' is GBNF's; Lark has ':' behind the name of a rule. Read GBNF with syntax='gbnf'"
    if found == ":":
        return "rules have no numbers as parameters; write a rule for each, or a template such as list{item}"
    return f"unexpected character {found!r}; expected a rule, a terminal, a literal or an operator"
