"""Descriptions of what may follow in a state, and explanations why a text meets a constraint or not.

Both need only a byte automaton (`ByteAutomaton`), for any kind of constraint. `places` uses the names given to parts of
a graph to locate a state in a grammar or schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from ..checks import brief, implements
from ..errors import OptionError
from ..kernels.chart.interning import HI, LO
from ..kernels.chart.layout import (
    CALL,
    ENTRY,
    ENTRY_ORIGIN,
    ENTRY_RULE,
    ENTRY_TARGET,
    HEADER,
    ITEM,
    ITEM_NODE,
    ITEM_ORIGIN,
    LINK_ARGUMENT,
    LINK_KIND,
    LINK_TARGET,
    OWN_RETURN_SET,
    ROOT,
    RULE,
    SELF,
)
from ..tokenizers_adapter import Vocabulary
from ..tokenizers_adapter.marked import MARK, marker_names, pieces_of
from .automata.charsets import CharacterRows, intersect, negate, normalise
from .chart.automaton import DEAD, ChartAutomaton
from .graph.utf8 import CONTINUATION
from .protocol import Describing, Guide, tokens_of
from .regex import parse
from .syntax import Chars, Ranges

Site = tuple[int, int]


def places(automaton: ChartAutomaton, state: int) -> list[str]:
    """Return the innermost open named rules of a state, each with the named terminals in or before which it is."""
    return _Reader(automaton).places(state) if automaton.graph.names else []


class _Reader:
    """A search along the open calls of a chart's items up to the rules that have names.

    A chart skips a rule that ends in a call while the callee is read (a tail call): the return set holds only the
    rule's caller. The skipped rule is found again among the callees of that caller.
    """

    def __init__(self, automaton: ChartAutomaton) -> None:
        self._graph = automaton.graph
        self._chart = automaton.chart
        arrays = automaton.graph_arrays
        self._nodes, self._links = arrays.nodes, arrays.links

    def places(self, state: int) -> list[str]:
        terminals: dict[str, dict[str, None]] = {}
        for node, return_set in self._open_nodes(state):
            terminal = self._graph.terminal_at(node)
            for name in self._named(int(self._nodes[node, RULE]), return_set):
                terminals.setdefault(name, {}).update({terminal: None} if terminal not in (None, name) else {})
        return [f"{name} ({', '.join(found)})" if found else name for name, found in terminals.items()]

    def _named(self, rule: int, origin: int) -> list[str]:
        """Return the names of the innermost named rules around an item: its own rule, or else its callers."""
        found: dict[str, None] = {}
        todo: list[Site] = [(rule, origin)]
        for rule, origin in todo:
            if rule in self._graph.names:
                found[self._graph.names[rule].name()] = None
            elif origin != ROOT:
                for target, outer in self._returns(origin, rule):
                    named = [callee for callee in self._called_before(target) if callee in self._graph.names]
                    for callee in named:
                        found[self._graph.names[callee].name()] = None
                    site = (int(self._nodes[target, RULE]), outer)
                    if not named and site not in todo:
                        todo.append(site)
        return list(found)

    def _open_nodes(self, state: int) -> Iterator[Site]:
        """Yield the nodes of a state's items, each with the return set of its rule."""
        words, lo, hi = self._chart.words, self._chart.states.item(state, LO), self._chart.states.item(state, HI)
        return_set = words.item(lo + OWN_RETURN_SET)
        for at in range(lo + HEADER, hi, ITEM):
            origin = words.item(at + ITEM_ORIGIN)
            yield words.item(at + ITEM_NODE), return_set if origin == SELF else origin

    def _returns(self, return_set: int, rule: int) -> Iterator[Site]:
        """Yield the nodes that a rule returns to, each with the return set of that node's own rule."""
        words, sets = self._chart.words, self._chart.return_sets
        for at in range(sets.item(return_set, LO), sets.item(return_set, HI), ENTRY):
            if words.item(at + ENTRY_RULE) == rule:
                origin = words.item(at + ENTRY_ORIGIN)
                yield words.item(at + ENTRY_TARGET), return_set if origin == SELF else origin

    def _called_before(self, target: int) -> list[int]:
        """Return the rules whose calls return to this node."""
        links = self._links
        return [
            int(rule)
            for rule in links[(links[:, LINK_KIND] == CALL) & (links[:, LINK_ARGUMENT] == target), LINK_TARGET]
        ]


class ByteAutomaton(Protocol):
    """A deterministic automaton over bytes with integer states; equal states have equal futures."""

    @property
    def start(self) -> int:
        """The state before the first byte."""
        ...

    def step(self, state: int, byte: int) -> int:
        """Return the state after `byte`, or DEAD."""
        ...

    def is_accepting(self, state: int) -> bool:
        """Test whether the bytes read so far are a complete text."""
        ...


class TableAutomaton(ByteAutomaton, Protocol):
    """A byte automaton that can also read several bytes and list a state's transitions."""

    def read(self, state: int, data: bytes) -> int:
        """Return the state after `data`, or DEAD."""
        ...

    def transitions(self, state: int) -> NDArray[Any]:
        """Return the state after each byte: integers [256], DEAD where there is none."""
        ...


MAX_PARTS = 12

# From the largest set to the smallest: `_parts` takes out classes in this order.
_CLASSES = (
    (r"\w", r"a letter, digit or _ of any script (\w)"),
    (r"\p{L}", "a letter of any script"),
    (r"\d", r"a digit of any script (\d)"),
    ("[A-Za-z]", "a letter A-Z or a-z"),
    ("[a-z]", "a letter a-z"),
    ("[A-Z]", "a letter A-Z"),
    ("[0-9]", "a digit 0-9"),
    (r"\s", r"white space (\s)"),
)
_NAMES = {0x09: "a tab", 0x0A: "a newline", 0x0D: "a carriage return", 0x20: "a space", 0x22: "'\"'"}


def describe(ranges: Ranges) -> str:
    """Describe a set of characters (inclusive code point ranges, sorted, disjoint): "a digit 0-9 or '.'"."""
    return either(_parts(ranges))


def either(parts: list[str]) -> str:
    """Join phrases with commas and a final "or"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def describe_character(code: int) -> str:
    """Name one character if it is invisible, else quote it."""
    if code in _NAMES:
        return _NAMES[code]
    character = chr(code)
    if not character.isprintable():
        return f"U+{code:04X}"
    return f'"{character}"'


def _parts(ranges: Ranges) -> list[str]:
    left_out = negate(ranges)
    if not left_out:
        return ["any character"]
    if size(left_out) < size(ranges):
        return [f"any character but {describe(left_out)}"]
    parts: list[str] = []
    for pattern, name in _CLASSES:
        members = _class(pattern)
        if intersect(members, ranges) == members:
            parts.append(name)
            ranges = intersect(ranges, negate(members))
    for number, (low, high) in enumerate(ranges):
        if len(parts) >= MAX_PARTS and (others := size(ranges[number:])) > 1:
            parts.append(f"one of {others:,} other characters")
            break
        parts.append(_span(low, high))
    return parts


def _span(low: int, high: int) -> str:
    if low == high:
        return describe_character(low)
    return f"{describe_character(low)}{' or ' if low + 1 == high else ' to '}{describe_character(high)}"


@cache
def _class(pattern: str) -> Ranges:
    node = parse(pattern)
    assert isinstance(node, Chars)
    return node.ranges


def size(ranges: Ranges) -> int:
    """Return the number of characters in a set."""
    return sum(high - low + 1 for low, high in ranges)


MAX_FORCED = 60
MAX_TOKENS = 8
END = "the end of the text"
NOTHING = "nothing: the text so far cannot be continued"


def expected(guide: Guide, state: int) -> str:
    """Describe what may follow in a state of a guide: by the guide's own description, or else by the allowed tokens."""
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


def expectation(
    automaton: TableAutomaton, state: int, *, with_places: bool = True, vocabulary: Vocabulary | None = None
) -> str:
    """A description of what may follow in an automaton's state: characters, and where a constraint asks for them.

    vocabulary: has the names of special tokens, where these are to be told
    """
    phrase = _next_text(automaton, state, vocabulary)
    if phrase is None:
        return END
    if with_places and isinstance(automaton, ChartAutomaton):
        # A named special token is a rule of its own, which tells nothing beside the token's name.
        tokens = {} if vocabulary is None else vocabulary.added_tokens
        if found := [place for place in places(automaton, state) if place not in tokens]:
            phrase += f" in {' or '.join(found)}"
    return f"{phrase}, or {END}" if automaton.is_accepting(state) else phrase


def _next_text(automaton: TableAutomaton, state: int, vocabulary: Vocabulary | None) -> str | None:
    """Describe the next characters: several where they are forced, None if there are none."""
    if (automaton.transitions(state)[CONTINUATION.start : CONTINUATION.stop] != DEAD).any():
        return "the rest of a character"
    forced = _forced(automaton, state)
    if len(forced) > 1:
        return quoted(forced)
    ranges = next_characters(automaton, state)
    parts = [describe(ranges)] if ranges else []
    if _takes_marker(automaton, state):
        named = {} if vocabulary is None else marker_names(vocabulary)
        allowed = [name for name, data in named.items() if automaton.read(state, data) != DEAD]
        parts += allowed if 0 < len(allowed) <= MAX_TOKENS else ["a special token"]
    return " or ".join(parts) or None


def _takes_marker(automaton: TableAutomaton, state: int) -> bool:
    """Test whether a special token may follow. No character shows its marker byte."""
    return bool(automaton.transitions(state)[MARK] != DEAD)


def next_characters(automaton: TableAutomaton, state: int) -> Ranges:
    """Return the characters that may follow in a state: inclusive code point ranges, sorted, disjoint."""
    rows = CharacterRows(lambda state: automaton.transitions(state).tolist())
    return normalise(pair for ranges in rows.of(state).values() for pair in ranges)


def _forced(automaton: TableAutomaton, state: int) -> str:
    """Return the characters that must follow, up to MAX_FORCED."""
    forced = ""
    while len(forced) < MAX_FORCED and not _takes_marker(automaton, state):
        ranges = next_characters(automaton, state)
        if len(ranges) != 1 or ranges[0][0] != ranges[0][1]:
            break
        forced += chr(ranges[0][0])
        state = automaton.read(state, forced[-1].encode())
        if automaton.is_accepting(state):
            break
    return forced


def quoted(text: str) -> str:
    """Return the text in quotation marks: single ones where it contains double ones."""
    return f"'{visible(text)}'" if '"' in text and "'" not in text else f'"{visible(text)}"'


def visible(text: str) -> str:
    """Return the text with escapes for characters that are not printable."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


_SHOWN = 40


@runtime_checkable
class Automatic(Protocol):
    """An object with a vocabulary and a byte automaton, like the guides of one constraint."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary, in which special tokens may be markers."""
        ...

    @property
    def automaton(self) -> TableAutomaton:
        """The automaton."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A guide whose states hold more than its automaton's, so that the guide itself must read texts."""

    @property
    def start(self) -> int:
        """The state before the first byte."""
        ...

    def read(self, state: int, data: bytes) -> int:
        """Return the state after `data`, or DEAD."""
        ...

    def is_accepting(self, state: int) -> bool:
        """Test whether the text so far is complete."""
        ...

    def chart_state(self, state: int) -> int:
        """Return the automaton's part of a guide's state."""
        ...


@dataclass(frozen=True)
class Verdict:
    """The verdict of a constraint on a text.

    text: the text; matches: whether it meets the constraint as a whole
    viable_chars: length in characters of its longest prefix that some text of the constraint begins with
    complete_chars: length of its longest prefix that meets the constraint, None if there is none
    expected: what may follow the viable prefix, in words; found: what does, likewise
    """

    text: str
    matches: bool
    viable_chars: int
    complete_chars: int | None
    expected: str
    found: str

    def __str__(self) -> str:
        """Format one line for a match; else also an excerpt with a caret under the offset, and the longest match."""
        if self.matches:
            return f"matches; then expected: {self.expected}"
        at = self.viable_chars
        lines = [f"no match: at offset {at} expected {self.expected}, found {self.found}", *self._excerpt()]
        if self.complete_chars is not None:
            lines.append(f"(up to offset {self.complete_chars} it is a match)")
        return "\n".join(lines)

    def _excerpt(self) -> list[str]:
        first = max(0, self.viable_chars - _SHOWN)
        before = visible(self.text[first : self.viable_chars])
        after = visible(self.text[self.viable_chars : self.viable_chars + _SHOWN])
        return [f"  {before}{after}", f"  {' ' * len(before)}^"]


def explain(constraint: Automatic, text: str) -> Verdict:
    """Reads a text character by character, in which the name of a special token of the constraint is that token.

    Raises OptionError for a guide without an automaton, and LimitError if the text leads through too many states.
    """
    if not implements(constraint, Automatic):
        raise OptionError(f"{brief(constraint)} has no automaton that could explain a text; ask its parts")
    automaton, vocabulary = constraint.automaton, constraint.vocabulary
    reader = constraint if isinstance(constraint, Remembering) else automaton
    state, count, found = reader.start, 0, END
    complete = 0 if reader.is_accepting(state) else None
    for piece, data in pieces_of(vocabulary, text):
        after = reader.read(state, data)
        if after == DEAD:
            found = describe_character(ord(piece)) if len(piece) == 1 else piece
            break
        state, count = after, count + len(piece)
        if reader.is_accepting(state):
            complete = count
    if isinstance(constraint, Remembering):
        state = constraint.chart_state(state)
    words = expectation(automaton, state, with_places=False, vocabulary=vocabulary)
    return Verdict(text, complete == len(text), count, complete, words, found)
