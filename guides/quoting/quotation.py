"""Quotations inside other texts: a document as a part of a graph, for JSON strings and grammars."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import LanguageError, OptionError
from ...kernels.suffix.quoting import Quotable
from ...kernels.suffix.tree import END
from ...kernels.suffix.unfolding import unfold, unfolded_size
from ..graph.utf8 import ByteFragment, first_bytes
from ..kept import kept, kept_growing
from .boundaries import Boundary
from .source import Occurrence, QuotedContext, Rules, Span, WhiteSpace, documents_of
from .substring_automaton import SubstringAutomaton


@dataclass(frozen=True)
class Quote:
    """A string that is quoted from a context, letter for letter: `Annotated[str, Quote(report)]` in a pydantic model.

    context: a text, or several of which one is quoted; boundary, min_chars, max_chars, whitespace: what may be
    quoted, see `SubstringGuide`; boundary may also be the lengths of the pieces of which the context consists
    Raises OptionError for what is no text or no option, LanguageError if there is nothing to quote.
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
        if isinstance(self.boundary, list):  # as JSON has it
            object.__setattr__(self, "boundary", tuple(self.boundary))
        Rules(self.boundary, self.min_chars, self.max_chars, self.whitespace)
        quotable(self, False)

    @classmethod
    def of(cls, value: Any) -> Quote:
        """A context as it is, or with options as a Quote, or as the object that `as_json` gives."""
        if isinstance(value, Quote):
            return value
        if not isinstance(value, Mapping):
            return cls(value)
        given: dict[str, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
        unknown = sorted(given.keys() - set(cls.__dataclass_fields__))
        if unknown or "context" not in given:
            raise OptionError(
                f"{unknown[0]!r} says nothing of a quotation" if unknown else "a quotation needs its context"
            )
        return cls(**given)

    def as_json(self) -> dict[str, Any]:
        """The value of the keyword `x-quote` that stands for it."""
        context = self.context if isinstance(self.context, str) else list(self.context)
        options = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "context"}
        return {"context": context, **{name: value for name, value in options.items() if value is not None}}

    def within(self, least: int, most: int | None) -> Quote | None:
        """The same with bounds on its length besides; None if nothing is left."""
        bounds = [bound for bound in (self.max_chars, most) if bound is not None]
        narrow = max(self.min_chars, least), min(bounds, default=None)
        if narrow == (self.min_chars, self.max_chars):
            return self
        if narrow[1] is not None and narrow[0] > narrow[1]:
            return None
        return _narrowed(self, *narrow)

    def places(self, text: str) -> list[Occurrence]:
        """The place in the documents where a text stands as such a quotation."""
        source, automaton = quotable(self, False)
        data = text.encode(errors="replace")
        found = (source.place(begin, begin + len(data)) for begin in automaton.occurrences(data))
        return [place for place in found if place is not None]

    def span(self, text: str) -> Span | None:
        """The first span of a text; None if it is no quotation."""
        places = self.places(text)
        return quotable(self, False)[0].span(places) if places else None

    def examples(self, count: int) -> list[str]:
        """Up to `count` quotations, short ones first; fewer only if there are no more."""
        return list(_examples(self, count))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """The schema of the annotated type, with the keyword `x-quote`."""
        return {**handler(schema), "x-quote": self.as_json()}


Context = str | Sequence[str] | Quote
MANY = 64
_ESCAPED = re.compile(r'[\x00-\x1f"\\]')


def _narrowed(quote: Quote, least: int, most: int | None) -> Quote | None:
    try:
        return replace(quote, min_chars=least, max_chars=most)
    except LanguageError:
        return None


@kept(64, 64 << 20)
def _examples(quote: Quote, count: int) -> tuple[str, ...]:
    index = quotable(quote, False)[0].quotable
    begins, ends = _short_ones(index)
    characters = np.cumsum(first_bytes(index.text))
    # They come in the order of their texts, as far as these are of one length.
    order = np.argsort(characters[ends - 1] - characters[begins], kind="stable")
    found: dict[str, None] = {}
    for begin, end in zip(begins[order].tolist(), ends[order].tolist(), strict=True):
        found[index.text[begin:end].tobytes().decode()] = None
        if len(found) == count:
            break
    return tuple(found)


def _short_ones(index: Quotable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bounds of the shortest quotation from each place, or of all from the few places of a short context."""
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


def _held_bytes(made: tuple[QuotedContext, SubstringAutomaton]) -> int:
    return sum(each.held_bytes for each in made)


@kept_growing(64, 256 << 20, _held_bytes)
def quotable(quote: Quote, escaped: bool) -> tuple[QuotedContext, SubstringAutomaton]:
    """The quotations, as they are written in a JSON string if `escaped`."""
    documents = (quote.context,) if isinstance(quote.context, str) else quote.context
    if escaped and not any(map(_ESCAPED.search, documents)):
        return quotable(quote, False)
    rules = Rules(quote.boundary, quote.min_chars, quote.max_chars, quote.whitespace)
    source = QuotedContext(quote.context, rules, escaped=escaped)
    return source, SubstringAutomaton(source.quotable)


@kept(16, 64 << 20)
def fragment_of_quote(quote: Quote, escaped: bool) -> ByteFragment:
    """All quotations as a piece of graph: a node for each place in the suffix tree."""
    index = quotable(quote, escaped)[0].quotable
    inner = np.zeros((2, len(index.lo)), np.int64)
    later = np.full(len(index.starts) if len(index.reach) else len(index.text), -1, np.int64)
    count = int(unfolded_size(index, inner, later))
    ends = np.empty(count, np.int32)
    edges = np.empty((count + len(index.child), 3), np.int32)
    exits = np.zeros(count, np.uint8)
    used = int(unfold(index, inner, later, ends, edges, exits))
    return ByteFragment(ends, edges[:used].copy(), np.flatnonzero(exits).astype(np.int32))
