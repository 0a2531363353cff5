"""The documents that quotations come from: their bytes, where quotations may begin and end, and the way back."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import LanguageError, LimitError, OptionError
from ..kernels.suffix import Quotable, spread_reach
from ..kernels.suffix_tree import END, build
from .boundaries import Boundary, boundaries, code_points

WhiteSpace = Literal["exact", "collapsed"]
Ints = NDArray[np.int32]
Places = NDArray[np.int64]

MAX_BYTES = 1 << 30
_RUN = re.compile(r"\s+")
_NONE = np.zeros(0, np.int32)


class Place(NamedTuple):
    """Where a quotation stands: documents[document][start:end]."""

    document: int
    start: int
    end: int


@dataclass(frozen=True)
class Span:
    """A piece of a document: `documents[document][start:end] == text`.

    start, end: in characters; document: 0 where there is only one
    occurrences: every place (document, start, end) of what was generated, in order; the span's own is one of them
    """

    text: str
    start: int
    end: int
    document: int = 0
    occurrences: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Rules:
    """What may be quoted; see `SubstringGuide`. Raises OptionError."""

    boundary: Boundary = "word"
    min_chars: int = 1
    max_chars: int | None = None
    whitespace: WhiteSpace = "exact"

    def __post_init__(self) -> None:
        options: dict[str, Any] = {"min_chars": self.min_chars, "max_chars": self.max_chars}
        for name, value in options.items():
            if not (type(value) is int and value >= 1) and not (value is None and name == "max_chars"):
                raise OptionError(f"{name}={value!r}: a whole number of at least 1")
        if self.max_chars is not None and self.max_chars < self.min_chars:
            raise OptionError(f"max_chars={self.max_chars} is less than min_chars={self.min_chars}")
        for name, value, kind in (("boundary", self.boundary, Boundary), ("whitespace", self.whitespace, WhiteSpace)):
            if value not in get_args(kind):
                raise OptionError(f"{name}={value!r}: one of {', '.join(map(repr, get_args(kind)))}")


@dataclass(frozen=True, eq=False)
class Piece:
    """One document as bytes, and how its written characters correspond to its own.

    begins: where each written character begins in the document, and the document's length; None: they are the same
    bytes_at: where each begins in `data`, and the length of that; None: each is one byte
    first, last: the written characters at which quotations may begin, and before which they may end; int64, ascending
    """

    data: bytes
    begins: Ints | None
    bytes_at: Ints | None
    first: Places
    last: Places

    def offset(self, place: int) -> int:
        """The place in the document of a place in `data`."""
        written = place if self.bytes_at is None else int(np.searchsorted(self.bytes_at, place))
        return written if self.begins is None else int(self.begins[written])

    def byte_of(self, written: Places) -> Places:
        """Where written characters begin in `data`."""
        return written if self.bytes_at is None else self.bytes_at[written].astype(np.int64)


class Source:
    """Documents as one text of bytes with the quotations it allows.

    quotable: for the kernels; documents: as given
    escaped: write the text as the inside of a JSON string; refusal: a text that is allowed besides
    Raises OptionError for what is no text or no rule, LanguageError if there is nothing to quote.
    """

    def __init__(
        self, context: str | Sequence[str], rules: Rules, *, escaped: bool = False, refusal: str | None = None
    ) -> None:
        self.documents = _documents(context)
        self.rules = rules
        self.escaped = escaped
        self.refusal = refusal
        pieces = [_piece(document, rules, escaped) for document in self.documents]
        if refusal is not None:
            pieces.append(_whole(_written(refusal, escaped)))
        self._pieces = pieces
        lengths = [len(piece.data) + 1 for piece in pieces]
        self._bases = np.cumsum([0, *lengths])
        if self._bases[-1] > MAX_BYTES:
            raise LimitError(f"the context has {self._bases[-1]:,} bytes; up to {MAX_BYTES:,} can be quoted from")
        self.quotable = self._index()

    def _index(self) -> Quotable:
        text = np.empty(self._bases[-1], np.uint8)
        ends = np.zeros(len(text), np.uint8)
        chosen = np.zeros(len(text), np.bool_)
        limited = self.rules.min_chars > 1 or self.rules.max_chars is not None
        least = np.zeros(len(text) if limited else 0, np.int32)
        reach = np.zeros_like(least)
        for number, (piece, base) in enumerate(zip(self._pieces, self._bases[:-1].tolist(), strict=True)):
            text[base : base + len(piece.data)] = np.frombuffer(piece.data, np.uint8)
            text[base + len(piece.data)] = END
            rules = self.rules if number < len(self.documents) else Rules()
            begins, fewest, most = _limits(piece, rules)
            chosen[base + begins] = True
            if limited:
                least[base + begins] = fewest
                reach[base + begins] = most
            if len(piece.last):
                last = base + piece.byte_of(piece.last)
                ends[last] = 1
                text[last[-1]] = END
        if not chosen[: self._bases[len(self.documents)]].any():
            raise LanguageError(self._nothing())
        tree = build(text, chosen)
        if not limited:
            return Quotable(text, ends, *tree, _NONE, _NONE, _NONE)
        return _with_reach(Quotable(text, ends, *tree, least[tree.starts], reach[tree.starts], _NONE))

    def _nothing(self) -> str:
        rules = self.rules
        longest = max(len(document) for document in self.documents)
        if not any(document.strip() for document in self.documents):
            return "the context is empty: there is nothing to quote"
        if rules.min_chars > longest:
            return f"the context has {longest} characters, fewer than min_chars={rules.min_chars}"
        return (
            f"no piece of the context that begins and ends at the boundaries of boundary={rules.boundary!r} has "
            f"{rules.min_chars} to {rules.max_chars or longest} characters; change min_chars, max_chars or boundary"
        )

    def without(self, taken: Sequence[Place]) -> Quotable | None:
        """What is left to quote when nothing may overlap with the taken places; None if that is nothing."""
        quotable = self.quotable
        least, reach = quotable.least, quotable.reach
        ends = np.flatnonzero(quotable.ends)
        stops = np.flatnonzero(quotable.text == END)
        starts = quotable.starts.astype(np.int64)
        if not len(reach):
            least = np.ones(len(starts), np.int32)
            stop = stops[np.searchsorted(stops, starts)]
            reach = (stop - starts).astype(np.int32)
        spans = sorted(self._span_in_text(place) for place in taken)
        froms = np.array([begin for begin, _ in spans], np.int64)
        tos = np.maximum.accumulate(np.array([end for _, end in spans], np.int64))
        following = np.searchsorted(froms, starts, "right")
        inside = (following > 0) & (tos[np.maximum(following - 1, 0)] > starts)
        bound = np.where(following < len(froms), froms[np.minimum(following, len(froms) - 1)], len(quotable.text))
        bound = np.minimum(bound, starts + reach)
        nearest = ends[np.maximum(np.searchsorted(ends, bound, "right") - 1, 0)]
        reach = np.where(inside | (reach < 0) | (nearest < starts + least), -1, nearest - starts).astype(np.int32)
        own = quotable.starts < self._bases[len(self.documents)]
        if not (reach[own] >= 0).any():
            return None
        return _with_reach(replace(quotable, least=least, reach=reach))

    def _span_in_text(self, place: Place) -> tuple[int, int]:
        """From where to where a place reaches in the text of all documents."""
        piece, base = self._pieces[place.document], int(self._bases[place.document])
        written = [place.start, place.end] if piece.begins is None else np.searchsorted(piece.begins, place[1:])
        begin, end = piece.byte_of(np.asarray(written, np.int64)).tolist()
        return base + begin, base + end

    def place(self, begin: int, end: int) -> Place | None:
        """The place in its document of what stands there in the text; None for the refusal."""
        number = int(np.searchsorted(self._bases, begin, "right")) - 1
        if number >= len(self.documents):
            return None
        piece, base = self._pieces[number], int(self._bases[number])
        return Place(number, piece.offset(begin - base), piece.offset(end - base))

    def span(self, places: Sequence[Place], chosen: int = 0) -> Span:
        """The span of one of its places."""
        document, start, end = places[chosen]
        return Span(self.documents[document][start:end], start, end, document, tuple(places))


def _with_reach(quotable: Quotable) -> Quotable:
    furthest = np.empty(len(quotable.lo), np.int32)
    spread_reach(quotable.lo, quotable.hi, quotable.child_begin, quotable.child, quotable.reach, furthest)
    return replace(quotable, furthest=furthest)


def _documents(context: Any) -> tuple[str, ...]:
    documents: tuple[Any, ...] = (context,) if isinstance(context, str) else tuple(context)
    if not documents:
        raise OptionError("the context has no documents; give a text, or a list of texts")
    for number, document in enumerate(documents):
        which = "the context" if isinstance(context, str) else f"document {number} of the context"
        if not isinstance(document, str):
            raise OptionError(f"{which} is of type {type(document).__name__}; quotations come from texts")
        try:
            document.encode()
        except UnicodeEncodeError as error:
            raise OptionError(
                f"{which} has a lone surrogate at character {error.start}, which no text of UTF-8 can have"
            ) from None
    return documents


def _piece(document: str, rules: Rules, escaped: bool) -> Piece:
    first, last = boundaries(document, rules.boundary)
    text, begins = document, None
    if rules.whitespace == "collapsed":
        kept = np.ones(len(document) + 1, np.bool_)
        for run in _RUN.finditer(document):
            kept[run.start() + 1 : run.end()] = False
        text, begins = _RUN.sub(" ", document), np.flatnonzero(kept).astype(np.int32)
        first, last = (np.searchsorted(begins, places[kept[places]]) for places in (first, last))
    data = _written(text, escaped)
    return Piece(data, begins, _byte_places(text, data, escaped), first, last)


def _whole(data: bytes) -> Piece:
    """A text that is quoted as a whole or not at all."""
    return Piece(data, np.zeros(2, np.int32), np.array([0, len(data)], np.int32), np.zeros(1, np.int64),
                 np.ones(1, np.int64))  # fmt: skip


def _written(text: str, escaped: bool) -> bytes:
    return (json.dumps(text, ensure_ascii=False)[1:-1] if escaped else text).encode()


def _byte_places(text: str, data: bytes, escaped: bool) -> Ints | None:
    """Where each character begins in the data, and the length of that; None if each is one byte."""
    if len(data) == len(text):
        return None
    codes = code_points(text)
    lengths = 1 + (codes > 0x7F).astype(np.int32) + (codes > 0x7FF) + (codes > 0xFFFF)
    if escaped:
        of_ascii = np.array([len(_written(chr(code), True)) for code in range(128)], np.int32)
        lengths = np.where(codes < 128, of_ascii[np.minimum(codes, 127)], lengths)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _limits(piece: Piece, rules: Rules) -> tuple[Places, Places, Places]:
    """In bytes: where quotations begin, and the fewest and most bytes of each."""
    begins, ends = piece.first, piece.last
    if not len(ends):
        return ends, ends, ends
    shortest = begins + rules.min_chars
    nearest = np.searchsorted(ends, shortest)
    final = len(ends) - 1 if rules.max_chars is None else np.searchsorted(ends, begins + rules.max_chars, "right") - 1
    fits = nearest <= final
    begins, shortest, furthest = begins[fits], shortest[fits], ends[np.broadcast_to(final, fits.shape)[fits]]
    at = piece.byte_of(begins)
    return at, piece.byte_of(shortest) - at, piece.byte_of(furthest) - at
