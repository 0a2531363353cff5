"""Validation and conversion of the arguments of guides, for kernels and tables."""

from __future__ import annotations

import operator
from typing import Any, cast

import numpy as np

from ..checks import brief, check_any_text, check_int, shown
from ..errors import OptionError, StateError
from ..kernels.answers import DEAD
from ..tokenizers_adapter import Vocabulary

MAX_LEFT = 2**31 - 1
"""Upper bound of `left`: kernels can add to it without an overflow of int32."""


def check_state(state: object, count: int) -> int:
    """Return a state as a plain int: DEAD, or a number below `count`. Raises StateError for anything else."""
    if type(state) is not int:
        if not isinstance(state, (int, np.integer)) or isinstance(state, bool):
            raise state_error(state)
        state = int(cast("int", state))
    if not DEAD <= state < count:
        raise state_error(state)
    return state


def state_error(state: object) -> StateError:
    """Return the error for a value that is no state."""
    return StateError(
        f"{brief(state)} is no state of this guide; states are the guide's `start` and results of its `advance`"
    )


def check_token(token: object, size: int) -> int:
    """Return a token id as a plain int, -1 if it is out of the vocabulary. Raises OptionError for other types."""
    if type(token) is not int:
        if not isinstance(token, (int, np.integer)):
            raise OptionError(f"a token must be a whole number, not {brief(token)}")
        token = int(cast("int", token))
    return token if 0 <= token < size else -1


def check_left(left: Any) -> int:
    """Return the number of tokens left, clamped to [-1, MAX_LEFT]. Raises OptionError for anything but an integer."""
    try:
        return max(-1, min(operator.index(left), MAX_LEFT))
    except TypeError:
        raise OptionError(f"the number of tokens left must be a whole number, not {brief(left)}") from None


def check_bytes(data: Any) -> bytes:
    """Return bytes-like data as bytes. Raises OptionError for anything else."""
    if type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return memoryview(cast("bytes", data)).tobytes()  # copies the buffer; a subclass may override other methods
    hint = "; encode it" if isinstance(data, str) else ""
    raise OptionError(f"a guide reads bytes, not {brief(data)}{hint}")


def text_of(value: Any, what: str, example: str) -> str:
    """Return a str, which may hold lone surrogates. Raises OptionError for anything else.

    what: the argument's name at the start of the message; example: a valid call for the message
    """
    if isinstance(value, Vocabulary):
        raise OptionError(f"{what} is a Vocabulary: the two arguments are swapped; {example}")
    return check_any_text(value, what, example)


def vocabulary_of(value: Any, what: str) -> Vocabulary:
    """Return a Vocabulary. Raises OptionError for anything else."""
    if isinstance(value, Vocabulary):
        return value
    hint = "the two arguments are swapped" if isinstance(value, str) else "make one with Vocabulary.from_tokenizer(...)"
    raise OptionError(f"{what} needs a Vocabulary, not {shown(value)}; {hint}")


def states_of(value: Any) -> int:
    """Return a bound of the number of states. Raises OptionError for anything but an integer above 0."""
    return check_int(value, "max_states")
