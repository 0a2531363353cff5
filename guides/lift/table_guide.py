"""Guides whose masks are rows of their vocabulary's table, and what all guides share.

`Immutable` implements copies, pickling and comparison by constructor arguments.
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
from ..arguments import check_token
from ..protocol import DEAD
from .mask_table import Cache, Mask, MaskTable
from .tables import VocabularyTables


class Immutable:
    """An object that is immutable to its users: a copy is the object itself.

    Pickling stores the constructor arguments with the vocabulary; the object is constructed anew in the other process,
    with empty caches. Objects of one class with equal arguments are equal.
    """

    _made_of: Mapping[str, Any] | None = None
    """The constructor arguments, immutable; None if the object was constructed otherwise."""

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
        if not isinstance(other, Immutable) or self._made_as() is not other._made_as() or self._digest is None:
            return NotImplemented
        return self._digest == other._digest

    def __hash__(self) -> int:
        return object.__hash__(self) if self._digest is None else hash(self._digest)

    def _made_as(self) -> type:
        """Return the class whose constructor makes an equal object."""
        return type(self)

    def _with_arguments(self, **changed: Any) -> Any:
        """Construct an object of the same arguments but for those that changed."""
        return self._made_as()(**{**(self._made_of or {}), **changed})

    def _content(self) -> Mapping[str, Any] | None:
        """Return the arguments that decide equality: `_made_of`, with equivalent values normalised."""
        return self._made_of

    @cached_property
    def _digest(self) -> bytes | None:
        """A digest of the content; None if it cannot be compared: unknown, or nested too deep."""
        content = self._content()
        return None if content is None else digest_of(content)


def digest_of(content: Any) -> bytes | None:
    """Return a digest of contents, equal in all processes; None where they cannot be compared, as in `Immutable`."""
    try:
        return hashlib.blake2b(marshal.dumps(_plain(content), 2)).digest()
    except (ValueError, RecursionError):
        return None


def _make(kind: type, made_of: dict[str, Any]) -> Any:
    return kind(**made_of)


def _plain(value: Any) -> Any:
    """Convert a value to nested lists of texts, bytes and numbers; equal values give equal results."""
    if value is None or isinstance(value, (str, bytes, bool, int, float)):
        return value
    if isinstance(value, Vocabulary):
        return value.fingerprint
    if isinstance(value, Immutable):
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
    except Exception as error:  # foreign objects may raise anything
        raise ValueError("something that cannot be compared") from error


MAX_STEPS = 1 << 16
"""Capacities of the cache of (state, token) transitions, and of the cache of states' signatures."""


class TransitionCache:
    """The transitions of a guide, and the rows of its states' masks: the only cache of either in Python.

    The engine, searches and adapters ask the guide and store no transitions. A device has a mirror of what they were
    told. Fields are read without a lock, which CPython allows for dictionaries. Signatures and rows are written with
    the guide's lock held; a step that two threads write at once is the same.

    steps: state << 32 | token -> the state after the token, or DEAD. Cleared at MAX_STEPS entries. A compaction of the
        automaton keeps them: both states were given out, and such numbers remain valid
    signatures: state -> the key of its mask; states with equal keys have equal masks. Cleared at MAX_STEPS entries. A
        compaction drops those of states that are no longer valid
    rows: key of a mask -> its row of the vocabulary's `MaskTable`, which drops the key when it evicts the row
    generation: the automaton's `last_compaction` that was taken into account; if the automaton has another one,
        signatures and rows may be stale
    """

    def __init__(self) -> None:
        self.steps: dict[int, int] = {}
        self.signatures: dict[int, int] = {}
        self.rows: Cache = {}
        self.generation: object = None

    def note_step(self, state: int, token: int, after: int) -> int:
        """Cache a transition, and return the state after the token."""
        if len(self.steps) >= MAX_STEPS:
            self.steps.clear()
        self.steps[state << 32 | token] = after
        return after

    def note_row(self, state: int, signature: int, row: int) -> int:
        """Cache the signature of a state, and return its row."""
        if len(self.signatures) >= MAX_STEPS:
            self.signatures.clear()
        self.signatures[state] = signature
        return row

    def forget(self, states: NDArray[np.bool_], signatures: NDArray[np.bool_]) -> None:
        """Drop signatures and rows of numbers for which the arrays have False or no entry; DEAD stays."""
        for cache, valid in (self.signatures, states), (self.rows, signatures):
            numbers = np.array(list(cache), np.int64)
            is_gone = (numbers < 0) | (numbers >= len(valid))
            is_gone[~is_gone] = ~valid[numbers[~is_gone]]
            for number in numbers[is_gone & (numbers != DEAD)].tolist():
                cache.pop(number, None)


class TableGuide(Immutable):
    """A guide with masks in the table of its vocabulary; see `guides.protocol.RowGuide`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tables = VocabularyTables.of(vocabulary)
        self._masks = self._tables.masks
        self._eos = frozenset(vocabulary.eos_ids)
        self._cache = TransitionCache()

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the masks' token ids."""
        return self._vocabulary

    @property
    def table(self) -> MaskTable:
        """The table that holds the masks; one per vocabulary."""
        return self._masks

    def mask(self, state: int) -> Mask:
        """Return the tokens allowed in `state`: uint32 [ceil(V / 32)], read-only; none in DEAD."""
        return self._masks.masks[self.row(state)]

    def row(self, state: int) -> int:
        """Return the number of the row of `table` that holds `mask(state)`."""
        raise NotImplementedError

    def rows(self, states: list[int]) -> NDArray[np.int32]:
        """Return `row` of several states: int32 [n]; all are valid if `table.evictions` is unchanged afterwards."""
        return np.array([self.row(state) for state in states], np.int32)


class StateTableGuide(TableGuide):
    """A TableGuide with a row for each state, made on demand."""

    def row(self, state: int) -> int:
        """Return the number of the row of `table` that holds `mask(state)`."""
        state = self._check(state)
        return self._tables.row_of(self._cache.rows, state, lambda: self._compute_mask(state))

    def rows(self, states: list[int]) -> NDArray[np.int32]:
        """Return `row` of several states; faster if all are cached. See `TableGuide.rows`."""
        found = self._masks.find_all(self._cache.rows, states)
        return super().rows(states) if found is None else found

    def advance(self, state: int, token: int) -> int:
        """Return the state after `token`, or DEAD; EOS leaves an accepting state as it is."""
        state, token = self._check(state), check_token(token, self._vocabulary.size)
        if state == DEAD or token < 0:
            return DEAD
        if token in self._eos:
            return state if self.is_accepting(state) else DEAD
        known = self._cache.steps.get(state << 32 | token)
        if known is not None:
            return known
        after = self._advanced(state, token) if self._vocabulary.tokens[token] else DEAD
        return self._cache.note_step(state, token, after)

    def is_accepting(self, state: int) -> bool:
        """Test whether the text so far is complete."""
        raise NotImplementedError

    def _advanced(self, state: int, token: int) -> int:
        """Return the state after a token that has bytes, from a state other than DEAD; for `advance`."""
        raise NotImplementedError

    def _check(self, state: int) -> int:
        """Return a state, possibly DEAD, as an int. Raises StateError for anything else."""
        raise NotImplementedError

    def _compute_mask(self, state: int) -> Mask:
        """Compute the mask of a state without a row, possibly DEAD: uint32 [ceil(V / 32)]. Takes the locks it needs."""
        raise NotImplementedError
