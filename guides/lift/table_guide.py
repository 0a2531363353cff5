"""Guides whose masks are rows of their vocabulary's table, and what all guides share beside what they answer.

What they were made of sends them to other processes, and compares them (`Shared`).
"""

from __future__ import annotations

import hashlib
import marshal
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from ...errors import OptionError
from ...tokenizers_adapter import Vocabulary
from ..given import token_of
from ..protocol import DEAD
from .mask_table import Cache, Mask, MaskTable
from .tables import VocabularyTables


class Shared:
    """Something that never changes as far as its users see: a copy of it is itself.

    It can be pickled, as a description: what it was made of, the vocabulary with it. In another process it is made
    anew, with none of what it has found out. Guides of one class that were made of the same are equal.
    """

    _made_of: Mapping[str, Any] | None = None
    """The arguments that make another one, which nobody changes; None where it was made in another way."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._made_of is None:
            raise OptionError(
                f"this {type(self).__name__} cannot be pickled or sent to another process; send what it was made of, "
                "and make it there"
            )
        return _make, (self._made_as(), dict(self._made_of))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Shared) or self._made_as() is not other._made_as() or self._digest is None:
            return NotImplemented
        return self._digest == other._digest

    def __hash__(self) -> int:
        return object.__hash__(self) if self._digest is None else hash(self._digest)

    def _made_as(self) -> type:
        """The class that makes another one."""
        return type(self)

    def _content(self) -> Mapping[str, Any] | None:
        """The content that makes guides equal where it is: as `_made_of`, and the same for what means the same."""
        return self._made_of

    @cached_property
    def _digest(self) -> bytes | None:
        """The key that tells contents apart; None where they cannot be compared: not known, or nested too deep."""
        content = self._content()
        return None if content is None else digest_of(content)


def digest_of(content: Any) -> bytes | None:
    """The key of contents, the same in all processes; None where they cannot be compared, as in `Shared`."""
    try:
        return hashlib.blake2b(marshal.dumps(_plain(content), 2)).digest()
    except (ValueError, RecursionError):
        return None


def _make(kind: type, made_of: dict[str, Any]) -> Any:
    return kind(**made_of)


def _plain(value: Any) -> Any:
    """A value as nested lists of texts, bytes and numbers, the same for equal ones."""
    if value is None or isinstance(value, (str, bytes, bool, int, float)):
        return value
    if isinstance(value, Vocabulary):
        return value.fingerprint
    if isinstance(value, Shared):
        if value._digest is None:  # pyright: ignore[reportPrivateUsage]
            raise ValueError("a guide that cannot be compared")
        return value._made_as().__name__, value._digest  # pyright: ignore[reportPrivateUsage]
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, [(field.name, _plain(getattr(value, field.name))) for field in fields(value)]
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value).items()
        return "members", [(_plain(name), _plain(member)) for name, member in members]
    if isinstance(value, Sequence):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    try:
        return type(value).__name__, pickle.dumps(value, 5)
    except Exception as error:  # whatever an object of somebody else's does
        raise ValueError("something that cannot be compared") from error


class TableGuide(Shared):
    """A guide that has its masks from the table of its vocabulary; see `guides.protocol.RowGuide`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tables = VocabularyTables.of(vocabulary)
        self._masks = self._tables.masks
        self._eos = frozenset(vocabulary.eos_ids)
        self._rows: Cache = {}

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary whose token ids the masks speak of."""
        return self._vocabulary

    @property
    def table(self) -> MaskTable:
        """The table that holds the masks; one per vocabulary."""
        return self._masks

    def mask(self, state: int) -> Mask:
        """The tokens allowed in `state`: uint32 [ceil(V / 32)], which nobody can write to; none in DEAD."""
        return self._masks.masks[self.row(state)]

    def row(self, state: int) -> int:
        """The number of the row of `table` that holds `mask(state)`."""
        raise NotImplementedError

    def rows(self, states: list[int]) -> NDArray[np.int32]:
        """`row` of several states: int32 [n]; all are valid if `table.evictions` is the same before and after."""
        return np.array([self.row(state) for state in states], np.int32)


class StateTableGuide(TableGuide):
    """One that has a row for each state, made when the state is first asked for."""

    def row(self, state: int) -> int:
        """The number of the row of `table` that holds `mask(state)`."""
        state = self._check(state)
        return self._tables.row_of(self._rows, state, lambda: self._made(state))

    def rows(self, states: list[int]) -> NDArray[np.int32]:
        """`row` of several states, quicker where all have been asked for; see `TableGuide.rows`."""
        found = self._masks.find_all(self._rows, states)
        return super().rows(states) if found is None else found

    def advance(self, state: int, token: int) -> int:
        """The state after `token`, or DEAD; EOS leaves an accepting state as it is."""
        state, token = self._check(state), token_of(token, self._vocabulary.size)
        if state == DEAD or token < 0:
            return DEAD
        if token in self._eos:
            return state if self.is_accepting(state) else DEAD
        return self._advanced(state, token) if self._vocabulary.tokens[token] else DEAD

    def is_accepting(self, state: int) -> bool:
        """Tell whether the text so far is complete."""
        raise NotImplementedError

    def _advanced(self, state: int, token: int) -> int:
        """The state after a token that has bytes, from a state that is not DEAD; for `advance`."""
        raise NotImplementedError

    def _check(self, state: int) -> int:
        """The state, which may be DEAD, as an int. Raises StateError for what is neither."""
        raise NotImplementedError

    def _made(self, state: int) -> Mask:
        """The mask of a state that has no row, DEAD among them: uint32 [ceil(V / 32)]. Takes what locks it needs."""
        raise NotImplementedError
