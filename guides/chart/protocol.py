"""Protocols of automata over bytes, whatever these are made of."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray


class ByteAutomaton(Protocol):
    """A deterministic automaton over bytes with integer states; the same future has the same number."""

    @property
    def start(self) -> int:
        """The state before the first byte."""
        ...

    def step(self, state: int, byte: int) -> int:
        """The state after `byte`, or DEAD."""
        ...

    def is_accepting(self, state: int) -> bool:
        """Tell whether the bytes read so far are a complete text."""
        ...


class TableAutomaton(ByteAutomaton, Protocol):
    """A byte automaton that can also list a state's transitions."""

    def read(self, state: int, data: bytes) -> int:
        """The state after `data`, or DEAD."""
        ...

    def transitions(self, state: int) -> NDArray[Any]:
        """The state after each byte: integers [256], DEAD where there is none."""
        ...
