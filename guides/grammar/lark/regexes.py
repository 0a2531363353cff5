r"""Regular expressions of Lark's grammar notation as nodes.

In a grammar a regular expression is the set of texts that it matches as a whole. Constructs without meaning for
a set of texts are refused: a lazy repeat, which prefers the shortest match, and what depends on the surrounding text:
an anchor, a boundary, a lookbehind at the beginning or a lookahead at the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ....errors import GrammarError, PatternError
from ...limits import spend
from ...regex import parse
from ...syntax import Node
from .syntax import STEPS_PER_PART, Regex

_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "u": re.UNICODE}

_PARTS = r"""
    (?P<anchor> \^ | \$ | \\[AZbB] )
  | (?P<behind> \(\?<[=!] )
  | (?P<ahead> \(\?[=!] )
  | (?P<open> \( (?: \? (?: P?<\w+> | > | [a-zA-Z-]*: ) )? )
  | (?P<close> \) )
  | (?P<bar> \| )
  | (?P<lazy> (?: [*+?] | \{ (?: [0-9]+ (?: ,[0-9]* )? | ,[0-9]* ) \} ) \? )
  | (?P<repeat> [*+?] | \{ (?: [0-9]+ (?: ,[0-9]* )? | ,[0-9]* ) \} )
  | (?P<one> \\. | \[\^?\]?(?:\\.|[^\]\\])*+\] | [^\[] )
  | (?P<unclosed> \[ )
"""
_PLAIN = re.compile(_PARTS, re.VERBOSE | re.DOTALL)
_SPACED = re.compile(rf"(?P<space> \s+ | \#[^\n]* ) | {_PARTS}", re.VERBOSE | re.DOTALL)


def regex_node(regex: Regex, grammar: str) -> Node:
    """Parse `/pattern/flags` to a node. Raises GrammarError if it is malformed or denotes no set of texts."""
    body, _, letters = regex.source[1:].rpartition("/")
    begin = regex.offset + 1
    flags = 0
    for letter in letters:
        if letter not in _FLAGS:
            reason = f"the flag {letter!r} is not supported: text is Unicode here and has no locale"
            raise GrammarError(reason, grammar, begin + len(body) + 1)
        flags |= int(_FLAGS[letter])
    if "\n" in body and "x" not in letters:
        reason = "a regular expression ends on its line, unless it has the flag x; expected a closing /"
        raise GrammarError(reason, grammar, regex.offset)
    fault = _Scan(body, verbose="x" in letters).fault()
    if fault is not None:
        raise GrammarError(fault[0], grammar, begin + fault[1])
    try:
        return parse(body, flags=flags)
    except PatternError as error:
        raise GrammarError(error.reason, grammar, min(begin + error.offset, len(grammar))) from None


@dataclass(slots=True)
class _Group:
    """An open bracket of a pattern.

    at_begin: nothing comes before it
    ahead: the offset of a lookahead that ends one of its alternatives
    """

    looks: bool
    at_begin: bool
    ahead: int | None = None


class _Scan:
    """A single pass over a pattern that tracks brackets, repeats and lookarounds.

    ahead: the offset of a lookahead after which nothing has been matched so far
    """

    def __init__(self, body: str, verbose: bool) -> None:
        self.parts = (_SPACED if verbose else _PLAIN).finditer(body)
        self.groups: list[_Group] = []
        self.at_begin = True
        self.looking = 0
        self.ahead: int | None = None

    def fault(self) -> tuple[str, int] | None:
        """Return the first unsupported construct as (reason, offset), None if there is none."""
        for part in self.parts:
            spend(STEPS_PER_PART)
            kind = str(part.lastgroup)
            if kind == "unclosed":
                return None  # the regex parser has a better message
            if kind == "lazy":
                return _lazy(part.group()), part.start()
            if kind == "anchor" and not self.looking:
                return _beyond(part.group()), part.start()
            if kind == "behind" and self.at_begin and not self.looking:
                return _beyond("a lookbehind at the beginning"), part.start()
            if kind == "bar" and self.ahead is not None and not self.groups:
                break
            self.step(kind, part.start())
        return None if self.ahead is None else (_beyond("a lookahead at the end"), self.ahead)

    def step(self, kind: str, offset: int) -> None:
        if kind in ("ahead", "behind", "open"):
            self.groups.append(_Group(kind != "open", self.at_begin))
            self.looking += kind != "open"
            if kind == "ahead" and self.looking == 1:
                self.ahead = offset
        elif kind == "close" and self.groups:
            group = self.groups.pop()
            self.looking -= group.looks
            self.at_begin = group.at_begin and group.looks
            self.ahead = group.ahead if self.ahead is None else self.ahead
        elif kind == "bar" and self.groups and not self.looking:
            self.at_begin = self.groups[-1].at_begin
            if self.ahead is not None:
                self.groups[-1].ahead, self.ahead = self.ahead, None
        elif kind == "bar" and not self.groups:
            self.at_begin = True
        elif kind == "one" and not self.looking:
            self.at_begin = False
            self.ahead = None


def _lazy(repeat: str) -> str:
    return (
        f"the lazy repeat {repeat!r} asks for the shortest match, but in a grammar every match counts; "
        'say what may be repeated instead, as in /"[^"]*"/, or write a rule of its own with [lazy] or [suffix=...]'
    )


def _beyond(what: str) -> str:
    return (
        f"{what} looks beyond the text of the terminal, where a grammar has no say; "
        "leave it out: a regular expression matches from end to end"
    )
