"""What the languages of grammars are given, checked before anything is read."""

from __future__ import annotations

from typing import Any

from ...checks import brief, lone_surrogate
from ...errors import GrammarError, OptionError
from ..given import text_of


def grammar_text(text: Any) -> str:
    """The text of a grammar. Raises OptionError for what is no text, GrammarError for what no UTF-8 can have."""
    text = text_of(text, "the grammar", """CFGGuide('start: "yes" | "no"', vocabulary)""")
    lone = lone_surrogate(text)
    if lone >= 0:
        reason = "this is a lone surrogate, which no text of UTF-8 can have"
        raise GrammarError(reason, text.encode(errors="replace").decode(), lone)
    return text


def check_options(start: Any, **limits: Any) -> None:
    """Raise OptionError for a start that is no name of a rule, or limits that are no whole numbers above 0."""
    if not isinstance(start, str) or lone_surrogate(start) >= 0:
        raise OptionError(f"start={brief(start)}: the name of the rule that a whole text must match")
    for name, value in limits.items():
        if type(value) is not int or value < 1:
            raise OptionError(f"{name}={brief(value)}: a whole number of at least 1")
