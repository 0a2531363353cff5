"""Options of grammar notations, and their validation."""

from __future__ import annotations

from typing import Any

from ...checks import brief, lone_surrogate
from ...errors import GrammarError, OptionError
from ..arguments import text_of

NO_TEXT = (
    "not supported, because grammars describe text; name the tokens, <|im_end|> or <[5,7-9]>, or write the text that "
    "may be there"
)
NO_CAPTURE_NAME = "the name of a capture must be a text in double quotes, not empty, without backslashes or a suffix"
REFUSED_ATTRIBUTES = {
    "max_tokens": "rules bound text, not tokens; bound its characters, as in [^\\n]{1,200}",
    "temperature": "grammars do not control sampling; give Sample(temperature=...) for the whole text",
}
"""Attributes of rules in other engines, and what to do instead."""


def grammar_text(text: Any) -> str:
    """Return a grammar's text. Raises OptionError for anything but a str, GrammarError for lone surrogates."""
    text = text_of(text, "the grammar", """CFGGuide('start: "yes" | "no"', vocabulary)""")
    lone = lone_surrogate(text)
    if lone >= 0:
        reason = "this is a lone surrogate, which no text of UTF-8 can have"
        raise GrammarError(reason, text.encode(errors="replace").decode(), lone)
    return text


def refused_attribute(name: str) -> str:
    """Return the message for a refused attribute."""
    return f"the attribute {name!r} is not supported: {REFUSED_ATTRIBUTES[name]}"


def check_options(start: Any, **limits: Any) -> None:
    """Raise OptionError if `start` is no rule's name, or a limit is no integer above 0."""
    if not isinstance(start, str) or lone_surrogate(start) >= 0:
        raise OptionError(f"start={brief(start)}: expected the name of the rule that a whole text must match")
    for name, value in limits.items():
        if type(value) is not int or value < 1:
            raise OptionError(f"{name}={brief(value)}: expected a whole number of at least 1")
