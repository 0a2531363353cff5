"""Conversion of an automaton over character classes into one over UTF-8 bytes.

Machines of the interegular library are converted too. `last_character` reads any bytes, and tracks whether
the last character belongs to a set, such as that of word characters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitError, OptionError
from ...kernels.answers import DEAD
from ..graph.utf8 import CONTINUATION, FIRST_OF_LENGTH, LEADS, byte_fragment
from ..limits import Meter, current, spend, spend_growth
from ..syntax import NOTHING, Node, Ranges, Table
from .charsets import Segments, negate, normalise, segments_of
from .dfa import StateNumbering, minimise

if TYPE_CHECKING:
    from interegular.fsm import FSM


OUTSIDE, WORD = 0, 1
"""The states after whole characters: those outside the set, and those in it."""


@lru_cache(maxsize=4)
def last_character(words: Ranges) -> NDArray[np.int32]:
    """Build the automaton of a set, int32 [states, 256]; OUTSIDE is its only state if the set is empty.

    It starts in OUTSIDE, and is in OUTSIDE or WORD after each whole character. Invalid UTF-8 bytes count as characters
    outside the set. After a truncated character, no character of the set begins at once.
    """
    if not words:
        return np.zeros((1, 256), np.int32)
    shape = byte_fragment(words)
    # The template's entry becomes both OUTSIDE and WORD; its other nodes, inside a character, follow.
    after = np.full((len(shape.ends) + 1, 256), -1, np.int32)
    begin = 0
    for node, end in enumerate(shape.ends.tolist()):
        for low, high, target in shape.edges[begin:end].tolist():
            after[node + 1 if node else OUTSIDE, low : high + 1] = WORD if target < 0 else target + 1
        begin = end
    first = np.where(after[OUTSIDE] < 0, OUTSIDE, after[OUTSIDE])
    after[OUTSIDE] = after[WORD] = first
    for state in range(2, len(after)):
        after[state] = np.where(after[state] < 0, first, after[state])
    return after


Refusal = Callable[[int], LimitError]

_ASCII = slice(0, CONTINUATION.start)
_TWO, _THREE, _FOUR = (slice(lead.first, lead.last + 1) for lead in LEADS)
# The number of the first block of two-byte and of three-byte characters, and of the first page of four-byte ones
_BLOCK_OF_TWO, _BLOCK_OF_THREE = FIRST_OF_LENGTH[1] >> 6, FIRST_OF_LENGTH[2] >> 6
_PAGE_OF_FOUR = FIRST_OF_LENGTH[3] >> 12
STEPS_PER_ROW = 10_000


def byte_table(
    segments: Segments, transitions: NDArray[np.int32], accepting: NDArray[np.bool_], most: int, refusal: Refusal
) -> Table:
    """Build a table over bytes with the same language.

    segments: inclusive code point ranges and their class; other characters lead nowhere
    transitions: int32 [states, classes], -1 where there is none; every state reaches an accepting one
    accepting: bool [states]
    Raises `refusal(most)` if the table has more than `most` states.
    """
    return _ByteTable(segments, transitions, most, refusal).build(transitions, accepting)


class _ByteTable:
    """Construction of the table; states with equal continuations share the states inside a character.

    Blocks are runs of 64 code points, which share all bytes but the last; pages are runs of 64 blocks.
    """

    def __init__(self, segments: Segments, transitions: NDArray[np.int32], most: int, refusal: Refusal) -> None:
        states, classes = transitions.shape
        self.most = most
        self.refusal = refusal
        self.states = states
        self.inner: dict[bytes, int] = {}
        class_of = np.full(5 << 18, classes, np.int32)
        for low, high, number in segments:
            class_of[low : high + 1] = number
        self.ascii = class_of[_ASCII]
        self.blocks, block_of, dead = _distinct_blocks(class_of.reshape(-1, 64), classes)
        pages = block_of.reshape(-1, 64)
        short = pages.copy()
        short[0, :_BLOCK_OF_THREE] = dead  # the first three-byte lead, E0, begins no code point below U+0800
        self.pages, page_of = _distinct_rows(np.concatenate([short, np.full((1, 64), dead, np.int32)]))
        self.planes = page_of[:-1].reshape(-1, 64).copy()
        self.planes[0, :_PAGE_OF_FOUR] = page_of[-1]  # the first four-byte lead, F0, begins no code point below U+10000
        self.two_bytes = block_of[_BLOCK_OF_TWO:_BLOCK_OF_THREE]
        self.three_bytes = page_of[:_PAGE_OF_FOUR]

    def build(self, transitions: NDArray[np.int32], accepting: NDArray[np.bool_]) -> Table:
        """Build the whole table; character states keep their numbers, states inside a character follow."""
        known: dict[bytes, NDArray[np.int32]] = {}
        rows: list[NDArray[np.int32]] = []
        for row in transitions:
            key = row.tobytes()
            if key not in known:
                spend(STEPS_PER_ROW + 20 * (len(self.blocks) + len(self.pages)))
                known[key] = self._row(np.append(row, np.int32(-1)))
            rows.append(known[key])
        table = np.full((self.states + len(self.inner), 256), -1, np.int32)
        table[: self.states] = rows
        for key, state in self.inner.items():
            table[state, CONTINUATION.start : CONTINUATION.stop] = np.frombuffer(key, np.int32)
        accepts = np.zeros(len(table), np.bool_)
        accepts[: self.states] = accepting
        return Table(table, accepts)

    def _row(self, target: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the state after each first byte; `target` is the next state for each class."""
        row = np.full(256, -1, np.int32)
        row[_ASCII] = target[self.ascii]
        blocks = self._intern(target[self.blocks])
        row[_TWO] = blocks[self.two_bytes]
        pages = self._intern(blocks[self.pages])
        row[_THREE] = pages[self.three_bytes]
        row[_FOUR] = self._intern(pages[self.planes])
        return row

    def _intern(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Number the states with these continuations (int32 [n, 64]); -1 for a row without transitions."""
        numbers = np.full(len(rows), -1, np.int32)
        inner = self.inner
        for index in np.flatnonzero((rows >= 0).any(axis=1)).tolist():
            numbers[index] = inner.setdefault(rows[index].tobytes(), self.states + len(inner))
        if self.states + len(inner) > self.most:
            raise self.refusal(self.most)
        return numbers


def _distinct_rows(rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return (the distinct rows, for each row the index of its distinct row)."""
    numbers: dict[bytes, int] = {}
    which = np.fromiter((numbers.setdefault(row.tobytes(), len(numbers)) for row in rows), np.int32, len(rows))
    return np.stack([np.frombuffer(key, np.int32) for key in numbers]), which


def _distinct_blocks(blocks: NDArray[np.int32], no_class: int) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """Return (the distinct blocks, for each block the index of its distinct block, the index of the empty block).

    The ASCII blocks count as empty, since no continuation byte leads to them.
    """
    like = blocks[:, 0].copy()
    like[:_BLOCK_OF_TWO] = no_class
    longer = blocks[_BLOCK_OF_TWO:]
    mixed = np.flatnonzero((longer != longer[:, :1]).any(axis=1)) + _BLOCK_OF_TWO
    rows = np.repeat(np.arange(no_class + 1, dtype=np.int32), 64).reshape(-1, 64)
    if len(mixed):
        distinct, which = _distinct_rows(blocks[mixed])
        like[mixed] = which + no_class + 1
        rows = np.concatenate([rows, distinct])
    used, like = np.unique(like, return_inverse=True)
    return rows[used], like.astype(np.int32), int(np.searchsorted(used, no_class))


# Bytes per state of a table over bytes and its sources, and per state and class of a table over character classes
STATE_BYTES, CELL_BYTES = 2048, 16
STEPS_PER_MOVE = 50


Described = tuple[list[tuple[str | None, int]], int, list[int], list[list[tuple[int, int]]]]
"""A machine in plain values.

(symbol, key) pairs with None for all other symbols, the initial state, the final states, and for each state its
(key, target) moves
"""


def described(fsm: FSM) -> Described:
    """Convert a machine to plain values; equal machines with the same states give equal values."""
    from interegular.fsm import anything_else

    number = {state: place for place, state in enumerate(sorted(fsm.states, key=repr))}
    symbols = [(None if symbol is anything_else else str(symbol), int(key)) for symbol, key in fsm.alphabet.items()]
    moves = [sorted((int(key), number[to]) for key, to in fsm.map.get(state, {}).items()) for state in number]
    finals = sorted(number[state] for state in fsm.finals)
    return sorted(symbols, key=repr), number[fsm.initial], finals, moves


def machine_of(plain: Described) -> FSM:
    """Rebuild the machine from its plain values."""
    from interegular.fsm import FSM as Machine  # noqa: N811
    from interegular.fsm import Alphabet, anything_else

    symbols, initial, finals, moves = plain
    alphabet: Any = Alphabet({anything_else if symbol is None else symbol: key for symbol, key in symbols})  # type: ignore[misc]
    states: Any = set(range(len(moves)))
    return Machine(alphabet, states, initial, set(finals), {state: dict(row) for state, row in enumerate(moves)})


def table_of(fsm: FSM) -> Node:
    """Build the byte automaton of an `interegular` machine whose symbols are single characters.

    `anything_else` is every character that is not a symbol. States that reach no final state are left out.
    Raises OptionError for anything but such a machine.
    """
    from interegular.fsm import FSM as Machine  # noqa: N811

    if not isinstance(fsm, Machine):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(
            f"expected an interegular FSM (interegular.parse_pattern(...).to_fsm()), not {type(fsm).__name__}"
        )
    classes = _classes(fsm)
    column = {symbol: place for place, symbol in enumerate(classes)}
    numbers: StateNumbering[Any] = StateNumbering()
    _ = numbers[fsm.initial]
    moves: list[tuple[int, int, int]] = []
    for source, state in enumerate(numbers.states):
        row = fsm.map.get(state, {})
        spend(STEPS_PER_MOVE * (1 + len(row)))
        moves += [(source, column[symbol], numbers[target]) for symbol, target in row.items()]
    spend_growth(0, CELL_BYTES * len(numbers) * len(classes))
    transitions = np.full((len(numbers), len(classes)), DEAD, np.int32)
    sources, columns, targets = np.array(moves, np.int32).reshape(-1, 3).T
    transitions[sources, columns] = targets
    transitions, accepting = minimise(transitions, np.array([state in fsm.finals for state in numbers.states]))
    if not accepting.any():
        return NOTHING
    meter = current() or Meter()
    segments = segments_of(list(classes.values()))
    return byte_table(segments, transitions, accepting, meter.limits.memory // STATE_BYTES, _too_large)


def _too_large(most: int) -> LimitError:
    return LimitError(
        f"the machine takes more than {most:,} states over bytes; raise memory= of its limits=Limits(...)"
    )


def _classes(fsm: FSM) -> dict[int, Ranges]:
    """Return the characters of each symbol class of the machine."""
    from interegular.fsm import anything_else

    named: dict[int, list[int]] = {}
    other: int | None = None
    for symbol, number in fsm.alphabet.items():
        if symbol is anything_else:
            other = number
            named.setdefault(number, [])
        elif isinstance(symbol, str) and len(symbol) == 1:
            if not 0xD800 <= ord(symbol) <= 0xDFFF:
                named.setdefault(number, []).append(ord(symbol))
        else:
            raise OptionError(f"the machine's symbols must be single characters, but one is {symbol!r}")
    classes = {number: _set_of(points) for number, points in named.items()}
    if other is not None:
        classes[other] = negate(_set_of([point for each, points in named.items() if each != other for point in points]))
    return classes


def _set_of(points: list[int]) -> Ranges:
    return normalise((point, point) for point in points)
