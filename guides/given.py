"""Values that callers give guides, checked: as what kernels and tables take, or an error that says why."""

from __future__ import annotations

import operator
from typing import Any, cast

import numpy as np

from ..checks import any_text_of, brief, shown, whole
from ..errors import OptionError, StateError
from ..kernels.answers import DEAD
from ..tokenizers_adapter import Vocabulary

MOST_LEFT = 2**31 - 1
"""The most tokens that may be left, for kernels that add to them."""


def state_of(state: object, count: int) -> int:
    """A state as a plain int: DEAD, or a number below `count`. Raises StateError for anything else."""
    if type(state) is not int:
        if not isinstance(state, (int, np.integer)) or isinstance(state, bool):
            raise no_state(state)
        state = int(cast("int", state))
    if not DEAD <= state < count:
        raise no_state(state)
    return state


def no_state(state: object) -> StateError:
    """The error for something that is no state."""
    return StateError(
        f"{brief(state)} is no state of this guide; states are the guide's `start` and what its `advance` gave out"
    )


def token_of(token: object, size: int) -> int:
    """A token id as a plain int, -1 if the vocabulary has none of this number. Raises OptionError for no number."""
    if type(token) is not int:
        if not isinstance(token, (int, np.integer)):
            raise OptionError(f"a token is a whole number, not {brief(token)}")
        token = int(cast("int", token))
    return token if 0 <= token < size else -1


def left_of(left: Any) -> int:
    """The number of tokens left, as an int that kernels can hold. Raises OptionError for what is no whole number."""
    try:
        return max(-1, min(operator.index(left), MOST_LEFT))
    except TypeError:
        raise OptionError(f"how many tokens are left is a whole number, not {brief(left)}") from None


def bytes_of(data: Any) -> bytes:
    """The bytes that a guide is to read. Raises OptionError for anything else."""
    if type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return memoryview(cast("bytes", data)).tobytes()  # what is there, whatever a class of the caller's says of it
    hint = "; encode it" if isinstance(data, str) else ""
    raise OptionError(f"a guide reads bytes, not {brief(data)}{hint}")


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
    """The number of states that there may be. Raises OptionError for what is no whole number above 0."""
    return whole(value, "max_states")
