"""What may follow in a state, in words."""

from __future__ import annotations

import numpy as np

from ..chart.automaton import DEAD, ChartAutomaton
from ..chart.protocol import TableAutomaton
from ..chart.provenance import places
from ..protocol import Describing, Guide, tokens_of
from ..syntax import Ranges
from .describe import describe

MAX_FORCED = 60
MAX_TOKENS = 8
END = "the end of the text"
NOTHING = "nothing: the text so far cannot be continued"


def expected(guide: Guide, state: int) -> str:
    """What may follow in a state of a guide: what the guide says of it, or else the allowed tokens."""
    if isinstance(guide, Describing):
        return guide.describe(state)
    texts = guide.vocabulary.tokens
    tokens = [text for token in tokens_of(guide.mask(state)) if (text := texts[token])]
    shown = [quoted(text.decode("utf-8", "backslashreplace")) for text in tokens[:MAX_TOKENS]]
    if len(tokens) > MAX_TOKENS:
        shown.append(f"one of {len(tokens) - MAX_TOKENS:,} other tokens")
    if guide.is_accepting(state):
        shown.append(END)
    return " or ".join(shown)


def expectation(automaton: TableAutomaton, state: int, *, with_places: bool = True) -> str:
    """What may follow in a state of an automaton: characters, and where a grammar or schema asks for them."""
    phrase = _next_text(automaton, state)
    if phrase is None:
        return END
    if with_places and isinstance(automaton, ChartAutomaton) and (found := places(automaton, state)):
        phrase += f" in {' or '.join(found)}"
    return f"{phrase}, or {END}" if automaton.is_accepting(state) else phrase


def _next_text(automaton: TableAutomaton, state: int) -> str | None:
    """The characters that may follow; several where there is no other way on, None if there are none."""
    if (automaton.transitions(state)[0x80:0xC0] != DEAD).any():
        return "the rest of a character"
    forced = _forced(automaton, state)
    if len(forced) > 1:
        return quoted(forced)
    ranges = next_characters(automaton, state)
    return describe(ranges) if ranges else None


def next_characters(automaton: TableAutomaton, state: int) -> Ranges:
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
    automaton: TableAutomaton, state: int, more: int, known: dict[tuple[int, int], list[tuple[int, int]]]
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


def _forced(automaton: TableAutomaton, state: int) -> str:
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


def quoted(text: str) -> str:
    """The text in quotation marks: single ones where it has double ones."""
    return f"'{visible(text)}'" if '"' in text and "'" not in text else f'"{visible(text)}"'


def visible(text: str) -> str:
    """The text, with escapes of the characters that would break or blur a line."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )
