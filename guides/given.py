"""What callers gave a guide where something else belongs."""

from __future__ import annotations

from typing import Any

from ..checks import any_text_of, shown, whole
from ..errors import OptionError
from ..tokenizers_adapter import Vocabulary


def text_of(value: Any, what: str, example: str) -> str:
    """A text that may not be UTF-8. Raises OptionError that says what was given instead.

    what: what it is, to begin the message with; example: what may be given
    """
    if isinstance(value, Vocabulary):
        raise OptionError(f"{what} is a Vocabulary: the two arguments are swapped; {example}")
    return any_text_of(value, what, example)


def vocabulary_of(value: Any, what: str) -> Vocabulary:
    """A vocabulary. Raises OptionError for anything else."""
    if isinstance(value, Vocabulary):
        return value
    hint = "the two arguments are swapped" if isinstance(value, str) else "make one with Vocabulary.from_tokenizer(...)"
    raise OptionError(f"{what} needs a Vocabulary, not {shown(value)}; {hint}")


def states_of(value: Any) -> int:
    """How many states there may be. Raises OptionError for what is no whole number above 0."""
    return whole(value, "max_states")
