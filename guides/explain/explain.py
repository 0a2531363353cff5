"""Explanations why a text does or does not meet a constraint: how far it gets, and what was expected there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..chart.automaton import DEAD, ChartAutomaton
from ..chart.protocol import TableAutomaton
from .describe import describe_character
from .expectation import expectation, visible

_SHOWN = 40


class Automatic(Protocol):
    """Anything with a byte automaton, as all guides of this package have one."""

    @property
    def automaton(self) -> TableAutomaton:
        """The automaton."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A guide that remembers more of a text than its automaton does, so that it is the guide that must read."""

    @property
    def start(self) -> int:
        """The state before the first byte."""
        ...

    def read(self, state: int, data: bytes) -> int:
        """The state after `data`, or DEAD."""
        ...

    def is_accepting(self, state: int) -> bool:
        """Tell whether the text so far is complete."""
        ...

    def chart_state(self, state: int) -> int:
        """The automaton's part of a state."""
        ...


@dataclass(frozen=True)
class Verdict:
    """The verdict of a constraint on a text.

    text: the text; matches: whether it meets the constraint as a whole
    viable_chars: length in characters of its longest prefix that some text of the constraint begins with
    complete_chars: length of its longest prefix that meets the constraint, None if there is none
    expected: what may follow the viable prefix, in words
    """

    text: str
    matches: bool
    viable_chars: int
    complete_chars: int | None
    expected: str

    def __str__(self) -> str:
        """One line, and unless the text matches, two with the place and a caret under it."""
        if self.matches:
            return f"matches; then expected: {self.expected}"
        at = self.viable_chars
        found = describe_character(ord(self.text[at])) if at < len(self.text) else "the end of the text"
        lines = [f"no match: at offset {at} expected {self.expected}, found {found}", *self._excerpt()]
        if self.complete_chars is not None:
            lines.append(f"(up to offset {self.complete_chars} it is a match)")
        return "\n".join(lines)

    def _excerpt(self) -> list[str]:
        first = max(0, self.viable_chars - _SHOWN)
        before = visible(self.text[first : self.viable_chars])
        after = visible(self.text[self.viable_chars : self.viable_chars + _SHOWN])
        return [f"  {before}{after}", f"  {' ' * len(before)}^"]


def explain(constraint: Automatic | ChartAutomaton, text: str) -> Verdict:
    """Reads a text character by character. Raises LimitError if that leads through too many states."""
    automaton: TableAutomaton = constraint if isinstance(constraint, ChartAutomaton) else constraint.automaton
    reader = constraint if isinstance(constraint, Remembering) else automaton
    state, count = reader.start, 0
    complete = 0 if reader.is_accepting(state) else None
    for character in text:
        # A lone surrogate becomes bytes that no automaton accepts.
        after = reader.read(state, character.encode("utf-8", "surrogatepass"))
        if after == DEAD:
            break
        state, count = after, count + 1
        if reader.is_accepting(state):
            complete = count
    if isinstance(constraint, Remembering):
        state = constraint.chart_state(state)
    return Verdict(text, complete == len(text), count, complete, expectation(automaton, state, with_places=False))
