"""Why a text does or does not meet a constraint: how far it gets, and what was expected there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .automaton import DEAD, ChartAutomaton
from .describe import describe, describe_character
from .syntax import Ranges

MAX_FORCED = 60
_SHOWN = 40


class Automatic(Protocol):
    """Anything with a byte automaton, as all guides of this package have one."""

    @property
    def automaton(self) -> ChartAutomaton:
        """The automaton."""
        ...


@dataclass(frozen=True)
class Verdict:
    """What a constraint makes of a text.

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
        before = "".join(map(_visible, self.text[first : self.viable_chars]))
        after = "".join(map(_visible, self.text[self.viable_chars : self.viable_chars + _SHOWN]))
        return [f"  {before}{after}", f"  {' ' * len(before)}^"]


def explain(constraint: Automatic | ChartAutomaton, text: str) -> Verdict:
    """Reads a text character by character. Raises LimitError if that leads through too many states."""
    automaton = constraint if isinstance(constraint, ChartAutomaton) else constraint.automaton
    state, count = automaton.start, 0
    complete = 0 if automaton.is_accepting(state) else None
    for character in text:
        # A lone surrogate becomes bytes that no automaton accepts.
        after = automaton.read(state, character.encode("utf-8", "surrogatepass"))
        if after == DEAD:
            break
        state, count = after, count + 1
        if automaton.is_accepting(state):
            complete = count
    return Verdict(text, complete == len(text), count, complete, _expected(automaton, state))


def next_characters(automaton: ChartAutomaton, state: int) -> Ranges:
    """The characters that may follow in a state: inclusive code point ranges, sorted, disjoint."""
    ranges: list[tuple[int, int]] = []
    row = automaton.transitions(state)
    known: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for byte in np.flatnonzero(row != DEAD).tolist():
        if byte < 0x80:
            _add(ranges, byte, byte)
            continue
        more = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
        base = (byte & (0x3F >> more)) << 6 * more
        for low, high in _tails(automaton, int(row[byte]), more, known):
            _add(ranges, base + low, base + high)
    return tuple(ranges)


def _tails(
    automaton: ChartAutomaton, state: int, more: int, known: dict[tuple[int, int], list[tuple[int, int]]]
) -> list[tuple[int, int]]:
    """The values of the next `more` continuation bytes, six bits each, as ranges."""
    if more == 0:
        return [(0, 0)]
    ranges = known.get((state, more))
    if ranges is None:
        ranges = known[state, more] = []
        row = automaton.transitions(state)[0x80:0xC0]
        for bits in np.flatnonzero(row != DEAD).tolist():
            base = bits << 6 * (more - 1)
            for low, high in _tails(automaton, int(row[bits]), more - 1, known):
                _add(ranges, base + low, base + high)
    return ranges


def _add(ranges: list[tuple[int, int]], low: int, high: int) -> None:
    """Append a range, joined with the last one where they touch."""
    if ranges and ranges[-1][1] == low - 1:
        low = ranges.pop()[0]
    ranges.append((low, high))


def _expected(automaton: ChartAutomaton, state: int) -> str:
    ranges = next_characters(automaton, state)
    if not ranges:
        return "the end of the text"
    forced = _forced(automaton, state)
    phrase = f'"{"".join(map(_visible, forced))}"' if len(forced) > 1 else describe(ranges)
    return f"{phrase}, or the end of the text" if automaton.is_accepting(state) else phrase


def _forced(automaton: ChartAutomaton, state: int) -> str:
    """The characters that must follow because there is no other way on, up to MAX_FORCED."""
    forced = ""
    while len(forced) < MAX_FORCED:
        ranges = next_characters(automaton, state)
        if len(ranges) != 1 or ranges[0][0] != ranges[0][1]:
            break
        forced += chr(ranges[0][0])
        state = automaton.read(state, forced[-1].encode())
        if automaton.is_accepting(state):
            break
    return forced


def _visible(character: str) -> str:
    """The character, or an escape of it if it would break or blur the line."""
    return character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
