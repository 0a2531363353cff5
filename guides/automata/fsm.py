"""Machines of the interegular library as byte automata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import LimitError, OptionError
from ...kernels.answers import DEAD
from ..limits import Meter, current, spend, spend_growth
from ..syntax import NOTHING, Node, Ranges
from .atoms import segments_of
from .byte_table import byte_table
from .charsets import negate, normalise
from .minimise import minimise
from .numbers import Numbers

if TYPE_CHECKING:
    from interegular.fsm import FSM

# Of a table over bytes and of what it is made from, for each state; and of one over classes of characters, for each
# state and class
STATE_BYTES, CELL_BYTES = 2048, 16
STEPS_PER_MOVE = 50


Described = tuple[list[tuple[str | None, int]], int, list[int], list[list[tuple[int, int]]]]
"""A machine in plain values: its symbols (None for all others) with their keys, the initial and the final states, and
of each state the moves, by key."""


def described(fsm: FSM) -> Described:
    """A machine of symbols that are texts, in plain values; equal for equal machines with the same states."""
    from interegular.fsm import anything_else

    number = {state: place for place, state in enumerate(sorted(fsm.states, key=repr))}
    symbols = [(None if symbol is anything_else else str(symbol), int(key)) for symbol, key in fsm.alphabet.items()]
    moves = [sorted((int(key), number[to]) for key, to in fsm.map.get(state, {}).items()) for state in number]
    finals = sorted(number[state] for state in fsm.finals)
    return sorted(symbols, key=repr), number[fsm.initial], finals, moves


def machine_of(plain: Described) -> FSM:
    """The machine that was described."""
    from interegular.fsm import FSM as Machine  # noqa: N811
    from interegular.fsm import Alphabet, anything_else

    symbols, initial, finals, moves = plain
    alphabet: Any = Alphabet({anything_else if symbol is None else symbol: key for symbol, key in symbols})  # type: ignore[misc]
    states: Any = set(range(len(moves)))
    return Machine(alphabet, states, initial, set(finals), {state: dict(row) for state, row in enumerate(moves)})


def table_of(fsm: FSM) -> Node:
    """The byte automaton of an `interegular` machine whose symbols are single characters.

    Symbols the machine does not name (`anything_else`) are all other characters. States from which nothing
    is accepted are left out. Raises OptionError for what is not such a machine.
    """
    from interegular.fsm import FSM as Machine  # noqa: N811

    if not isinstance(fsm, Machine):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(
            f"expected an interegular FSM (interegular.parse_pattern(...).to_fsm()), not {type(fsm).__name__}"
        )
    classes = _classes(fsm)
    column = {symbol: place for place, symbol in enumerate(classes)}
    numbers: Numbers[Any] = Numbers()
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
    """The characters of each symbol class of the machine."""
    from interegular.fsm import anything_else

    named: dict[int, list[int]] = {}
    rest: int | None = None
    for symbol, number in fsm.alphabet.items():
        if symbol is anything_else:
            rest = number
            named.setdefault(number, [])
        elif isinstance(symbol, str) and len(symbol) == 1:
            if not 0xD800 <= ord(symbol) <= 0xDFFF:
                named.setdefault(number, []).append(ord(symbol))
        else:
            raise OptionError(f"the machine's symbols must be single characters, but one is {symbol!r}")
    classes = {number: _set_of(points) for number, points in named.items()}
    if rest is not None:
        classes[rest] = negate(_set_of([point for each, points in named.items() if each != rest for point in points]))
    return classes


def _set_of(points: list[int]) -> Ranges:
    return normalise((point, point) for point in points)
