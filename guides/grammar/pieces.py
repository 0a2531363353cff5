"""Quotations and captures in a text of a grammar, found by markers around them.

A marker begins with a byte that occurs in neither UTF-8 nor special tokens. The automaton of the marked grammar reads
the text in a depth-first search over the positions of markers; failed (position, state) pairs are not tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from ..chart.automaton import DEAD, ChartAutomaton
from ..graph.graph import Graph
from ..limits import Limits, Meter, spend
from ..locks import new_lock
from ..syntax import Literal, Node, Reference, Sequence
from .grammar import Grammar, Stop
from .lark.reading import IGNORED

# Work to try the continuations of a position
STEPS_PER_PLACE = 1_000
# Work to read a byte of a text, and one of a marker
STEPS_PER_READ, STEPS_PER_ROW = 300, 2_000
_OPEN = b"\xf5"
_CLOSE = b"\xf6"


class MarkedPiece(NamedTuple):
    """A text of a rule within another text, from byte `begin` to byte `end`.

    stop: begin and end of the mark that ended it, if the rule has one in `stops` and it is present
    """

    rule: str
    begin: int
    end: int
    stop: tuple[int, int] | None = None


class MarkedPieces:
    """A finder of the texts of some rules, or parts, in a text of a grammar.

    lower: lowers a grammar to a graph and its start node
    """

    def __init__(
        self,
        grammar: Grammar,
        names: list[str],
        lower: Callable[[Grammar], tuple[Graph, int]],
        limits: Limits | None,
    ) -> None:
        self._names = names
        self._width = (len(names).bit_length() + 7) // 8  # bytes of a number
        self._grammar = grammar
        self._lower = lower
        self._limits = limits
        self._graphs: dict[str | None, tuple[Graph, int]] = {}
        self._lock = new_lock()

    def read(self, data: bytes) -> list[MarkedPiece]:
        """Return the pieces of a text in the order of their begins; empty if the text is not in the grammar.

        In an ambiguous text, pieces begin as early and are as long as possible. A captured piece excludes
        ignored text behind its rule, and the mark that ended it. Raises LimitError.
        """
        with self._lock, Meter(self._limits):
            try:
                pieces = [MarkedPiece(self._names[number], begin, end) for number, begin, end in self._find(data)]
                return [piece if piece.rule in self._grammar.parts else self._trim(piece, data) for piece in pieces]
            except BaseException:
                self._graphs.clear()  # an interrupt may have left one inconsistent
                raise

    def _automaton(self, rule: str | None, body: Node | None = None) -> ChartAutomaton:
        """Make the automaton of a rule, or of the marked grammar, with a new chart, since charts only grow.

        body: the body of a rule that the grammar does not have
        """
        if rule not in self._graphs:
            grammar = self._grammar
            rules = grammar.rules if body is None else {**grammar.rules, str(rule): body}
            self._graphs[rule] = self._lower(
                self._marked_grammar() if rule is None else replace(grammar, rules=rules, start=rule)
            )
        return ChartAutomaton(*self._graphs[rule])

    def _marked_grammar(self) -> Grammar:
        """Return the grammar with markers around the texts of its rules and parts of these names."""
        rules, parts = dict(self._grammar.rules), dict(self._grammar.parts)
        for number, name in enumerate(self._names):
            inside: Node
            if name in parts:
                inside = Reference(f"{name} inside")  # names in a grammar have no spaces
                parts[inside.name] = parts.pop(name)
            else:
                inside = rules[name]
            marker = _OPEN + number.to_bytes(self._width, "big")
            rules[name] = Sequence((Literal(marker), inside, Literal(_CLOSE)))
        return replace(self._grammar, rules=rules, parts=parts)

    def _find(self, data: bytes) -> list[tuple[int, int, int]]:
        automaton = self._automaton(None)
        todo: list[tuple[int, int, _Markers | None]] = [(0, automaton.start, None)]
        failed: set[tuple[int, int]] = set()
        while todo:
            spend(STEPS_PER_PLACE)
            place, state, markers = todo.pop()
            if place == len(data) and automaton.is_accepting(state):
                return _pieces_between(markers)
            if (place, state) not in failed:
                failed.add((place, state))
                todo += reversed(list(self._continuations(automaton, data, place, state, markers)))
        return []

    def _continuations(
        self, automaton: ChartAutomaton, data: bytes, place: int, state: int, markers: _Markers | None
    ) -> Iterator[tuple[int, int, _Markers | None]]:
        """Yield the continuations of a position: a piece begins, a byte is read, a piece ends."""
        for number, after in self._beginning_rules(automaton, state):
            yield place, after, _Markers(number, place, markers)
        if place < len(data):
            after = automaton.read(state, data[place : place + 1])
            if after != DEAD:
                yield place + 1, after, markers
        after = automaton.read(state, _CLOSE)
        if after != DEAD:
            yield place, after, _Markers(None, place, markers)

    def _beginning_rules(self, automaton: ChartAutomaton, state: int) -> list[tuple[int, int]]:
        """Return the numbers of the rules whose pieces may begin, with the states after their markers."""
        found = [(0, automaton.read(state, _OPEN))]
        for _ in range(self._width):
            found = [(number, before) for number, before in found if before != DEAD]
            spend(len(found) * STEPS_PER_ROW)
            found = [
                (number << 8 | byte, after)
                for number, before in found
                for byte, after in enumerate(automaton.transitions(before).tolist())
            ]
        return [(number, after) for number, after in found if after != DEAD]

    def _trim(self, piece: MarkedPiece, data: bytes) -> MarkedPiece:
        """Return the piece of a captured rule without ignored text behind it, and without its mark."""
        behind = piece.end
        if IGNORED in self._grammar.rules:
            piece = self._strip_ignored(piece, data)
        stop = self._grammar.stops.get(piece.rule)
        if stop is None:
            return piece
        if stop.is_inside:
            end = self._end_before(stop, piece, data)
            return piece._replace(end=end, stop=(end, piece.end))
        assert isinstance(stop.mark, Literal), "what follows a rule is a fixed text"
        has_mark = data.startswith(stop.mark.data, behind)
        return piece._replace(stop=(behind, behind + len(stop.mark.data))) if has_mark else piece

    def _end_before(self, stop: Stop, piece: MarkedPiece, data: bytes) -> int:
        """Return the last position in a piece where its mark may begin."""
        # Names in a grammar have no spaces
        body, mark = self._automaton(f"{piece.rule} body", stop.body), self._automaton(f"{piece.rule} mark", stop.mark)
        places: list[int] = []
        state = body.start
        for at in range(piece.begin, piece.end + 1):
            spend(STEPS_PER_PLACE)
            if body.is_accepting(state):
                places.append(at)
            state = body.read(state, data[at : at + 1])
        for at in reversed(places):
            spend(STEPS_PER_PLACE + STEPS_PER_READ * (piece.end - at))
            if mark.is_accepting(mark.read(mark.start, data[at : piece.end])):
                return at
        raise AssertionError("a piece of the rule is a text and a mark")

    def _strip_ignored(self, piece: MarkedPiece, data: bytes) -> MarkedPiece:
        """Return the shortest prefix of a piece that is a text of its rule, and behind which the rest is ignored."""
        automaton, ignored = self._automaton(piece.rule), self._automaton(IGNORED)
        state = automaton.start
        for end in range(piece.begin, piece.end):
            spend(STEPS_PER_PLACE)
            if automaton.is_accepting(state) and ignored.is_accepting(
                ignored.read(ignored.start, data[end : piece.end])
            ):
                return piece._replace(end=end)
            state = automaton.read(state, data[end : end + 1])
        return piece


class _Markers(NamedTuple):
    """The markers so far, newest first. number: the rule that begins there, or None where the last open one ends"""

    number: int | None
    place: int
    before: _Markers | None


def _pieces_between(markers: _Markers | None) -> list[tuple[int, int, int]]:
    """Return the pieces between markers: number, begin, end."""
    found: list[tuple[int, int, int]] = []
    ends: list[int] = []
    while markers is not None:
        if markers.number is None:
            ends.append(markers.place)
        else:
            found.append((markers.number, markers.place, ends.pop()))
        markers = markers.before
    return found[::-1]
