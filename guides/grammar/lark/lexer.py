"""The words of Lark's grammar language."""

from __future__ import annotations

import re
from typing import NamedTuple

from ....errors import GrammarError
from ...limits import spend


class Token(NamedTuple):
    """A word of the grammar text: its kind, its text and the offset of its first character.

    kind: a group name of the pattern below, `or_line` for a line that begins with `|`, or `end`
    """

    kind: str
    text: str
    offset: int


_PATTERN = re.compile(
    r"""
    (?P<comment> \s*+ (?: // | \# ) [^\n]* )
  | (?P<blank> [ \t\f]+ | \\ [ ]* \r?\n )
  | (?P<or_line> \r?\n \s*+ \| )
  | (?P<line> \r?\n \s* )
  | (?P<regex> / (?: \\. | [^/\\] )++ / [imslux]* )
  | (?P<string> " (?: \\[^\n] | [^"\\\n] )*+ " i? )
  | (?P<modifiers> (?: !\?? | \?!? ) (?= [_a-z] ) )
  | (?P<rule> _?[a-z][_a-z0-9]* )
  | (?P<terminal> _?[A-Z][_A-Z0-9]* )
  | (?P<number> [+-]?[0-9]+ )
  | (?P<directive> % [A-Za-z_]* )
  | (?P<mark> -> | \.\. | [()\[\]{}|:.,~*+?] )
    """,
    re.VERBOSE | re.DOTALL,
)
# Of work; and of how many words it is counted at a time
STEPS_PER_WORD, BATCH = 90, 64
_DROPPED = frozenset({"comment", "blank"})


def tokenize(text: str) -> list[Token]:
    """All words of a grammar text, closed by a `line` and an `end`; GrammarError for what is no word."""
    tokens: list[Token] = []
    offset = words = 0
    while offset < len(text):
        match = _PATTERN.match(text, offset)
        if match is None:
            raise GrammarError(_complaint(text, offset), text, offset)
        words += 1
        if words % BATCH == 0:
            spend(STEPS_PER_WORD * BATCH)
        kind = str(match.lastgroup)
        if kind not in _DROPPED:
            tokens.append(Token(kind, match.group(), offset))
        offset = match.end()
    spend(STEPS_PER_WORD * (words % BATCH))
    tokens.append(Token("line", "", len(text)))
    tokens.append(Token("end", "", len(text)))
    return tokens


def _complaint(text: str, offset: int) -> str:
    found = text[offset]
    if found == '"':
        return 'a string that does not end on its line; expected a closing "'
    if found == "/":
        return "a regular expression that does not end; expected a closing /"
    if found == "'":
        return "strings are written in double quotes here"
    return f"unexpected character {found!r}; expected a rule, a terminal, a literal or an operator"
