"""The macros of XGrammar's EBNF: `TagDispatch`, `Substring`, `Regex`, `Token`, `TokenTagDispatch`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ...errors import PatternError
from ..quoting.quotation import Quote
from ..regex import parse
from ..syntax import EMPTY, Alternation, Node, Repeat
from ..syntax import Sequence as InOrder
from .languages import ANY_TEXT, free_of, up_to
from .options import NO_TEXT


@dataclass(frozen=True, slots=True)
class Word:
    """A name, a number, true or false in the arguments of a macro."""

    text: str
    offset: int


Value = str | Word | tuple["Value", ...]
"""An argument: a text, a word, or several in brackets."""


@dataclass(frozen=True, slots=True)
class MacroCall:
    """A macro call.

    refer: returns the node of a named rule; quote: that of a quotation; special: that of one of some tokens
    fail: raises GrammarError
    """

    values: Sequence[Value]
    named: Mapping[str, Value]
    refer: Callable[[Word], Node]
    quote: Callable[[Quote], Node]
    special: Callable[[list[str]], Node]
    fail: Callable[[str], NoReturn]

    def texts(self, values: Sequence[Value], what: str) -> list[str]:
        """Return the values as nonempty texts. Raises GrammarError for other values."""
        found = [value for value in values if isinstance(value, str) and value]
        if len(found) < len(values):
            self.fail(f"{what} are texts in double quotes, none of them empty")
        return found

    def tokens(self, values: Sequence[Value], what: str) -> list[str]:
        """Return the values as token ids. Raises GrammarError for other values."""
        found = [value.text for value in values if isinstance(value, Word) and value.text.isdecimal()]
        if len(found) < len(values) or not found:
            self.fail(f"{what} are ids of tokens, such as 128010")
        return found

    def only(self, *names: str) -> None:
        """Raise GrammarError for arguments with other names."""
        for name in self.named:
            if name not in names:
                known = f"its arguments with names are {', '.join(names)}" if names else "none here has a name"
                self.fail(f"the argument {name!r} is not supported; {known}")


def _tag_dispatch(call: MacroCall) -> Node:
    """Return free text with triggers that begin rules; it contains no other trigger and no excluded text."""
    call.only("loop_after_dispatch", "excludes")
    rules: dict[str, list[Node]] = {}
    for pair in call.values:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Word)):
            call.fail('each argument of TagDispatch is a trigger with its rule, as in ("<tool>", tool)')
        (trigger,) = call.texts(pair[:1], "triggers")
        rules.setdefault(trigger, []).append(call.refer(pair[1]))
    for trigger in rules:
        for other in rules:
            if trigger != other and trigger in other:
                call.fail(f"the trigger {trigger!r} is a part of the trigger {other!r}; give them no common text")
    given = call.named.get("excludes", ())
    excluded = call.texts(given if isinstance(given, tuple) else (given,), "what TagDispatch excludes")
    free = free_of([*rules, *excluded])
    parts = [InOrder((up_to(each, list(rules), excluded), Alternation(tuple(after)))) for each, after in rules.items()]
    return _dispatched(call, free, parts)


def _dispatched(call: MacroCall, free: Node, parts: Sequence[Node]) -> Node:
    """Return parts, each beginning with free text, and free text at the end; any number of parts, or at most one."""
    loops = call.named.get("loop_after_dispatch", Word("true", 0))
    if not isinstance(loops, Word) or loops.text not in ("true", "false"):
        call.fail("loop_after_dispatch is true or false")
    if loops.text == "false":
        return Alternation((free, *parts))
    return InOrder((Repeat(Alternation(tuple(parts)), 0, None), free)) if parts else free


def _token_tag_dispatch(call: MacroCall) -> Node:
    """Return text with tokens that begin rules. Excluded tokens become special tokens, which free text lacks."""
    call.only("loop_after_dispatch", "excludes")
    parts: list[Node] = []
    for pair in call.values:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Word)):
            call.fail("each argument of TokenTagDispatch is a token with its rule, as in (128010, tool)")
        parts.append(InOrder((ANY_TEXT, call.special(call.tokens(pair[:1], "triggers")), call.refer(pair[1]))))
    given = call.named.get("excludes", ())
    if given != ():
        excluded = call.tokens(given if isinstance(given, tuple) else (given,), "what TokenTagDispatch excludes")
        call.special(excluded)  # makes them special tokens
    return _dispatched(call, ANY_TEXT, parts)


def _substring(call: MacroCall) -> Node:
    """Return consecutive texts of the list, or none."""
    call.only()
    pieces = call.texts([text for text in call.values if text != ""], "the arguments of Substring")
    quote = Quote("".join(pieces), tuple(map(len, pieces))) if pieces else None
    return EMPTY if quote is None else Alternation((EMPTY, call.quote(quote)))


def _regex(call: MacroCall) -> Node:
    """Return the language of a pattern as a whole; classes are ASCII, and the dot matches line ends."""
    call.only()
    if len(call.values) != 1 or not isinstance(call.values[0], str):
        call.fail("Regex takes one pattern, a text in double quotes")
    try:
        return parse(call.values[0], flags=re.ASCII | re.DOTALL)
    except PatternError as error:
        call.fail(f"in the pattern of Regex: {error.reason}")


def _token(call: MacroCall) -> Node:
    """Return one of the tokens."""
    call.only()
    return call.special(call.tokens(call.values, "the arguments of Token"))


def _exclude_token(call: MacroCall) -> Node:
    call.fail(f"any token but some is {NO_TEXT}")


MACROS: dict[str, Callable[[MacroCall], Node]] = {
    "TagDispatch": _tag_dispatch,
    "Substring": _substring,
    "Regex": _regex,
    "Token": _token,
    "ExcludeToken": _exclude_token,
    "TokenTagDispatch": _token_tag_dispatch,
}
