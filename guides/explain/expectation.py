"""Descriptions of what may follow in a state."""

from __future__ import annotations

from ..automata.character_rows import CharacterRows
from ..automata.charsets import normalise
from ..chart.automaton import DEAD, ChartAutomaton
from ..chart.protocol import TableAutomaton
from ..chart.provenance import places
from ..graph.utf8 import CONTINUATION
from ..protocol import Describing, Guide, tokens_of
from ..syntax import Ranges
from .describe import describe

MAX_FORCED = 60
MAX_TOKENS = 8
END = "the end of the text"
NOTHING = "nothing: the text so far cannot be continued"


def expected(guide: Guide, state: int) -> str:
    """A description of what may follow in a state of a guide: what the guide says of it, or else the allowed tokens."""
    if isinstance(guide, Describing):
        return guide.describe(state)
    texts = guide.vocabulary.tokens
    tokens = [text for token in tokens_of(guide.mask(state)) if (text := texts[token])]
    most = MAX_TOKENS if len(tokens) > MAX_TOKENS + 1 else MAX_TOKENS + 1
    shown = [quoted(text.decode("utf-8", "backslashreplace")) for text in tokens[:most]]
    if len(tokens) > most:
        shown.append(f"one of {len(tokens) - most:,} other tokens")
    if guide.is_accepting(state):
        shown.append(END)
    return " or ".join(shown)


def expectation(automaton: TableAutomaton, state: int, *, with_places: bool = True) -> str:
    """A description of what may follow in an automaton's state: characters, and where a constraint asks for them."""
    phrase = _next_text(automaton, state)
    if phrase is None:
        return END
    if with_places and isinstance(automaton, ChartAutomaton) and (found := places(automaton, state)):
        phrase += f" in {' or '.join(found)}"
    return f"{phrase}, or {END}" if automaton.is_accepting(state) else phrase


def _next_text(automaton: TableAutomaton, state: int) -> str | None:
    """The characters that may follow; several where there is no other way on, None if there are none."""
    if (automaton.transitions(state)[CONTINUATION.start : CONTINUATION.stop] != DEAD).any():
        return "the rest of a character"
    forced = _forced(automaton, state)
    if len(forced) > 1:
        return quoted(forced)
    ranges = next_characters(automaton, state)
    return describe(ranges) if ranges else None


def next_characters(automaton: TableAutomaton, state: int) -> Ranges:
    """The characters that may follow in a state: inclusive code point ranges, sorted, disjoint."""
    rows = CharacterRows(lambda state: automaton.transitions(state).tolist())
    return normalise(pair for ranges in rows.of(state).values() for pair in ranges)


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
