"""Quotations inside other texts, as parts of graphs for JSON strings and grammars.

The states of their byte automaton are places in the suffix tree of the documents.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import LanguageError, OptionError
from ...kernels.jit.compiling import call
from ...kernels.suffix.quoting import Quotable, accepts, follow, read, unfold, unfolded_size
from ...kernels.suffix.tree import END
from ..arguments import check_state, state_error
from ..cached import cached, cached_growing
from ..graph.utf8 import ByteFragment, first_bytes
from ..limits import Meter, current
from ..locks import new_lock
from ..protocol import DEAD
from .source import Boundary, Occurrence, QuotedContext, QuotingRules, Span, WhiteSpace, documents_of

DEPTH_BITS = 31
STATE_BYTES = 200
"""Estimated bytes of a state."""


class SubstringAutomaton:
    """The byte automaton of the quotations of a source.

    States are numbered in order of occurrence; each is a place in the suffix tree (see kernels/suffix/quoting.py).
    """

    start = 0

    def __init__(self, quotable: Quotable, meter: Meter | None = None) -> None:
        self.quotable = quotable
        self._meter = meter or current() or Meter()
        # (node, depth) of each state, and the state of each pair; a pair packed in one int takes half the memory.
        self._places = array("q", [0])
        self._numbers = {0: 0}
        self._lock = new_lock()

    @property
    def held_bytes(self) -> int:
        """Estimated bytes of the states so far."""
        return 120 * len(self._places)

    def place(self, state: int) -> tuple[int, int]:
        """Return the node and the depth of a state. Raises StateError for DEAD and for unknown states."""
        state = self.check(state)
        if state == DEAD:
            raise state_error(state)
        packed = self._places[state]
        return packed >> DEPTH_BITS, packed & (1 << DEPTH_BITS) - 1

    def check(self, state: int) -> int:
        """Return a state, possibly DEAD, as an int. Raises StateError for anything else."""
        return check_state(state, len(self._places))

    def _number_of(self, node: int, depth: int) -> int:
        packed = node << DEPTH_BITS | depth
        state = self._numbers.get(packed)
        if state is None:
            with self._lock:
                self._meter.check_memory(STATE_BYTES * len(self._places))
                state = self._numbers.get(packed, len(self._places))
                if state == len(self._places):
                    self._places.append(packed)
                    self._numbers[packed] = state
        return state

    def step(self, state: int, byte: int) -> int:
        """Return the state after `byte`, or DEAD."""
        return self.read(state, bytes([byte]))

    def read(self, state: int, data: bytes) -> int:
        """Return the state after `data`, or DEAD."""
        return self.read_part(state, np.frombuffer(data, np.uint8), 0, len(data))

    def read_part(self, state: int, data: NDArray[np.uint8], first: int, last: int) -> int:
        """Return the state after data[first:last], or DEAD."""
        if self.check(state) == DEAD:
            return DEAD
        place = np.array(self.place(state), np.int64)
        return self._number_of(*place.tolist()) if call(read, self.quotable, place, data, first, last) else DEAD

    def transitions(self, state: int) -> NDArray[np.int32]:
        """Return the state after each byte: int32 [256], DEAD where there is none."""
        return np.array([self.step(state, byte) for byte in range(256)], np.int32)

    def is_accepting(self, state: int) -> bool:
        """Test whether the bytes read so far are a quotation."""
        return self.check(state) != DEAD and bool(call(accepts, self.quotable, *self.place(state)))

    def occurrences(self, data: bytes) -> list[int]:
        """Return the offsets in the text where the data occurs as a quotation, ascending."""
        quotable = self.quotable
        place = np.array(self.place(self.start), np.int64)
        if not data or not call(follow, quotable, place, np.frombuffer(data, np.uint8), 0, len(data)):
            return []
        node, depth = place.tolist()
        first, last = self._suffixes_below(node)
        starts = quotable.starts[first:last]
        allowed = quotable.ends[starts + depth] == 1
        if len(quotable.reach):
            allowed &= (quotable.least[first:last] <= depth) & (depth <= quotable.reach[first:last])
        return sorted(starts[allowed].tolist())

    def positions(self, state: int) -> list[int]:
        """Return the ascending offsets in the text where quotations in this state continue, at least one per future."""
        node, depth = self.place(state)
        if node == len(self.quotable.lo) + len(self.quotable.starts):
            return [depth]
        first, last = self._suffixes_below(node)
        return sorted((self.quotable.starts[first:last] + depth).tolist())

    def ahead(self, state: int, most: int) -> bytes:
        """Return up to `most` bytes that follow in the document, if the state has a single place; else no bytes."""
        if self.check(state) == DEAD:
            return b""
        node, depth = self.place(state)
        inner = len(self.quotable.lo)
        if node == inner + len(self.quotable.starts):
            begin = depth
        else:
            first, last = self._suffixes_below(node)
            if last - first != 1:
                return b""
            begin = int(self.quotable.starts[first]) + depth
        text = self.quotable.text[begin : begin + most]
        ends = np.flatnonzero(text == END)
        return text[: ends[0] if len(ends) else most].tobytes()

    def _suffixes_below(self, node: int) -> tuple[int, int]:
        """Return the range of suffixes below a node of the tree: starts[first:last]."""
        inner = len(self.quotable.lo)
        return (
            (int(self.quotable.lo[node]), int(self.quotable.hi[node]))
            if node < inner
            else (node - inner, node - inner + 1)
        )


@dataclass(frozen=True)
class Quote:
    """An exact quotation from a context as a string: `Annotated[str, Quote(report)]` in a pydantic model.

    context: a text, or several of which one is quoted
    boundary, min_chars, max_chars, whitespace: as for `SubstringGuide`; boundary may also be the lengths of consecutive
        pieces of the context

    Raises OptionError for an invalid argument, LanguageError if there is nothing to quote.
    """

    context: str | Sequence[str]
    boundary: Boundary | tuple[int, ...] = "word"
    min_chars: int = 1
    max_chars: int | None = None
    whitespace: WhiteSpace = "exact"

    def __post_init__(self) -> None:
        documents = documents_of(self.context)
        if not isinstance(self.context, str):
            object.__setattr__(self, "context", documents)
        if isinstance(self.boundary, list):  # from JSON
            object.__setattr__(self, "boundary", tuple(self.boundary))
        QuotingRules(self.boundary, self.min_chars, self.max_chars, self.whitespace)
        quotable(self, False)

    @classmethod
    def of(cls, value: Any) -> Quote:
        """Convert a context, a Quote, or a mapping as from `as_json` to a Quote."""
        if isinstance(value, Quote):
            return value
        if not isinstance(value, Mapping):
            return cls(value)
        options: dict[str, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
        unknown = sorted(options.keys() - set(cls.__dataclass_fields__))
        if unknown or "context" not in options:
            raise OptionError(
                f"{unknown[0]!r} is not an option of a quotation" if unknown else "a quotation needs its context"
            )
        return cls(**options)

    def as_json(self) -> dict[str, Any]:
        """Convert to the value of the keyword `x-quote`."""
        context = self.context if isinstance(self.context, str) else list(self.context)
        options = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "context"}
        return {"context": context, **{name: value for name, value in options.items() if value is not None}}

    def within(self, least: int, most: int | None) -> Quote | None:
        """Narrow the bounds of the length; None if no quotation is left."""
        bounds = [bound for bound in (self.max_chars, most) if bound is not None]
        narrow = max(self.min_chars, least), min(bounds, default=None)
        if narrow == (self.min_chars, self.max_chars):
            return self
        if narrow[1] is not None and narrow[0] > narrow[1]:
            return None
        return _narrow(self, *narrow)

    def places(self, text: str) -> list[Occurrence]:
        """Return the places in the documents where a text occurs as such a quotation."""
        source, automaton = quotable(self, False)
        data = text.encode(errors="replace")
        found = (source.place(begin, begin + len(data)) for begin in automaton.occurrences(data))
        return [place for place in found if place is not None]

    def span(self, text: str) -> Span | None:
        """Return the first span of a text; None if it is no quotation."""
        places = self.places(text)
        return quotable(self, False)[0].span(places) if places else None

    def examples(self, count: int) -> list[str]:
        """Return `count` quotations, short ones first, or all if there are fewer."""
        return list(_examples(self, count))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Return the schema of the annotated type with the keyword `x-quote`."""
        return {**handler(schema), "x-quote": self.as_json()}


Context = str | Sequence[str] | Quote
MANY = 64
_ESCAPED = re.compile(r'[\x00-\x1f"\\]')


def _narrow(quote: Quote, least: int, most: int | None) -> Quote | None:
    try:
        return replace(quote, min_chars=least, max_chars=most)
    except LanguageError:
        return None


@cached(64, 64 << 20)
def _examples(quote: Quote, count: int) -> tuple[str, ...]:
    index = quotable(quote, False)[0].quotable
    begins, ends = _short_quotations(index)
    characters = np.cumsum(first_bytes(index.text))
    # For equal lengths the order is that of the texts.
    order = np.argsort(characters[ends - 1] - characters[begins], kind="stable")
    found: dict[str, None] = {}
    for begin, end in zip(begins[order].tolist(), ends[order].tolist(), strict=True):
        found[index.text[begin:end].tobytes().decode()] = None
        if len(found) == count:
            break
    return tuple(found)


def _short_quotations(index: Quotable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the bounds of the shortest quotation from each offset; in a short context, of all quotations."""
    ends, stops = np.flatnonzero(index.ends), np.flatnonzero(index.text == END)
    starts = index.starts.astype(np.int64)
    furthest = stops[np.searchsorted(stops, starts)]
    if len(index.reach):
        furthest = np.minimum(furthest, starts + index.reach)
    first = np.searchsorted(ends, starts + (index.least if len(index.least) else 1))
    amount = np.maximum(np.searchsorted(ends, furthest, "right") - first, 0)
    if len(starts) > MANY:
        amount = np.minimum(amount, 1)
    number = np.arange(int(amount.sum())) - np.repeat(np.cumsum(amount) - amount, amount)
    return np.repeat(starts, amount), ends[np.repeat(first, amount) + number]


def _held_bytes(pair: tuple[QuotedContext, SubstringAutomaton]) -> int:
    return sum(each.held_bytes for each in pair)


@cached_growing(64, 256 << 20, _held_bytes)
def quotable(quote: Quote, escaped: bool) -> tuple[QuotedContext, SubstringAutomaton]:
    """Return the cached source and automaton of a quotation, JSON-escaped if `escaped`."""
    documents = (quote.context,) if isinstance(quote.context, str) else quote.context
    if escaped and not any(map(_ESCAPED.search, documents)):
        return quotable(quote, False)
    rules = QuotingRules(quote.boundary, quote.min_chars, quote.max_chars, quote.whitespace)
    source = QuotedContext(quote.context, rules, escaped=escaped)
    return source, SubstringAutomaton(source.quotable)


@cached(16, 64 << 20)
def fragment_of_quote(quote: Quote, escaped: bool) -> ByteFragment:
    """Return all quotations as a fragment: a node for each place in the suffix tree."""
    index = quotable(quote, escaped)[0].quotable
    inner = np.zeros((2, len(index.lo)), np.int64)
    later = np.full(len(index.starts) if len(index.reach) else len(index.text), -1, np.int64)
    count = int(unfolded_size(index, inner, later))
    ends = np.empty(count, np.int32)
    edges = np.empty((count + len(index.child), 3), np.int32)
    exits = np.zeros(count, np.uint8)
    used = int(unfold(index, inner, later, ends, edges, exits))
    return ByteFragment(ends, edges[:used].copy(), np.flatnonzero(exits).astype(np.int32))
