"""What callers gave where something else belongs, said in a few words."""

from __future__ import annotations

import re
from typing import Any

from ..errors import OptionError
from ..tokenizers_adapter import Vocabulary

_MOST_SHOWN = 100


def shown(value: Any) -> str:
    """A value as it is written, cut if it is long."""
    if isinstance(value, (str, bytes)) and len(value) > _MOST_SHOWN:
        return f"{value[: _MOST_SHOWN // 2]!r}... ({len(value):,} long)"
    try:
        written = repr(value)
    except Exception:  # whatever an object of somebody else's does
        return f"an object of type {type(value).__name__}"
    return written if len(written) <= 2 * _MOST_SHOWN else f"{written[:_MOST_SHOWN]}..."


def text_of(value: Any, what: str, example: str) -> str:
    """A text that is UTF-8, as far as its type goes. Raises OptionError that says what was given instead.

    what: what it is, to begin the message with; example: what may be given
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Vocabulary):
        raise OptionError(f"{what} is a Vocabulary: the two arguments are swapped; {example}")
    if isinstance(value, re.Pattern):
        raise OptionError(f"{what} is a compiled pattern of `re`; pass its .pattern and .flags, as in {example}")
    if isinstance(value, (bytes, bytearray)):
        raise OptionError(f"{what} is bytes, {shown(bytes(value))}; decode them, for what is read is text: {example}")
    hint = "; read the file and pass what is in it" if hasattr(value, "__fspath__") else ""
    raise OptionError(f"{what} is {shown(value)} ({type(value).__name__}), which is no text{hint}: {example}")


def vocabulary_of(value: Any, what: str) -> Vocabulary:
    """A vocabulary. Raises OptionError for anything else."""
    if isinstance(value, Vocabulary):
        return value
    hint = "the two arguments are swapped" if isinstance(value, str) else "make one with Vocabulary.from_tokenizer(...)"
    raise OptionError(f"{what} needs a Vocabulary, not {shown(value)} ({type(value).__name__}); {hint}")


def states_of(value: Any) -> int:
    """How many states there may be. Raises OptionError for what is no whole number above 0."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise OptionError(f"max_states must be a whole number above 0, not {shown(value)}")


def lone_surrogate(text: str) -> int:
    """Where the first lone surrogate of a text is, which no UTF-8 can have; -1 if there is none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return -1
