"""Pieces of a text that are quotations, told by a grammar in which marks stand around them.

The marks hold bytes that no UTF-8 has. A text is read by the automaton of the marked grammar, depth first over where
marks are put in; a state that has failed at some place is not tried there again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ..chart.automaton import DEAD, ChartAutomaton
from ..graph.graph import Graph
from ..locks import new_lock
from .quotation import Quote
from .source import Span

_OPEN = b"\xfe"
_CLOSE = b"\xff"


def marks(number: int) -> tuple[bytes, bytes]:
    """The bytes before and after the quotations of one rule; of the same length for each."""
    return _OPEN + number.to_bytes(4, "big"), _CLOSE


class QuotedPieces:
    """Finds the quotations in a text. quotes: by the names of their rules; graph, start: of the marked grammar."""

    def __init__(self, quotes: Mapping[str, Quote], graph: Graph, start: int) -> None:
        self._quotes = list(quotes.items())
        self._marks = [(number, marks(number)[0]) for number in range(len(quotes))]
        self._graph = graph
        self._start = start
        self._lock = new_lock()

    def spans(self, text: str) -> dict[str, Span]:
        """The first place of each quotation, "/name/0" for the first from the context `name`."""
        counts: defaultdict[str, int] = defaultdict(int)
        found: dict[str, Span] = {}
        data = text.encode(errors="replace")
        for number, begin, end in self._pieces(data):
            rule, quote = self._quotes[number]
            name = rule.removeprefix("quote(").removesuffix(")")
            span = quote.span(data[begin:end].decode())
            assert span is not None
            found[f"/{name}/{counts[name]}"] = span
            counts[name] += 1
        return found

    def _pieces(self, data: bytes) -> list[tuple[int, int, int]]:
        """The rule's number, the begin and the end of each quotation, in bytes; empty if the text is none."""
        with self._lock:
            # A chart of its own for each text: it is never cleared, and would go on growing.
            automaton = ChartAutomaton(self._graph, self._start)
            todo: list[tuple[int, int, _Trail | None]] = [(0, automaton.start, None)]
            failed: set[tuple[int, int]] = set()
            while todo:
                place, state, trail = todo.pop()
                if place == len(data) and automaton.is_accepting(state):
                    return list(_closed(trail))
                if (place, state) not in failed:
                    failed.add((place, state))
                    todo += reversed(list(self._after(automaton, data, place, state, trail)))
        return []

    def _after(
        self, automaton: ChartAutomaton, data: bytes, place: int, state: int, trail: _Trail | None
    ) -> Iterator[tuple[int, int, _Trail | None]]:
        """The ways on from a place: a quotation begins, a byte is read, a quotation ends."""
        for number, mark in self._marks:
            after = automaton.read(state, mark)
            if after != DEAD:
                yield place, after, _Trail(number, place, None, trail)
        if place < len(data):
            after = automaton.read(state, data[place : place + 1])
            if after != DEAD:
                yield place + 1, after, trail
        after = automaton.read(state, _CLOSE)
        if after != DEAD and trail is not None:
            yield place, after, _Trail(trail.number, trail.begin, place, trail.before)


class _Trail:
    """The quotations so far, the last first; `end` is None while it is open."""

    __slots__ = ("before", "begin", "end", "number")

    def __init__(self, number: int, begin: int, end: int | None, before: _Trail | None) -> None:
        self.number = number
        self.begin = begin
        self.end = end
        self.before = before


def _closed(trail: _Trail | None) -> Iterator[tuple[int, int, int]]:
    """The finished quotations, in order."""
    found: list[tuple[int, int, int]] = []
    while trail is not None:
        if trail.end is not None:
            found.append((trail.number, trail.begin, trail.end))
        trail = trail.before
    yield from reversed(found)
