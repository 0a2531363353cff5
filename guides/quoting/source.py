"""The documents of quotations: their bytes, the boundaries of quotations, and the mapping back to characters."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ...checks import brief, check_any_text, check_choice, items_of, lone_surrogate
from ...errors import LanguageError, LimitError, OptionError
from ...kernels.jit.aliases import Ints
from ...kernels.suffix.quoting import Quotable, spread_reach
from ...kernels.suffix.tree import END, build
from ..arguments import text_of
from ..limits import spend, spend_growth

Boundary = Literal["word", "character", "sentence", "line"]
Places = NDArray[np.int64]

_LINE = re.compile(r"\S(?:[^\n]*\S)?")
_BLANK_LINE = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")
_STOP = re.compile(r"([.!?…]++[\"'”’»)\]]*+)|[。！？]++[」』”’）]*+")
_GAP = re.compile(r"\s*")
# Classes of characters, as bits: letter, digit or _; digit; joined to the previous character; white space; ' or ’; dot
# or comma; joins the next character to the previous one.
LETTER, DIGIT, MARK, SPACE, APOSTROPHE, POINT, TIE = (1 << bit for bit in range(7))


def boundaries(documents: Sequence[str], rule: Boundary | tuple[int, ...]) -> tuple[Places, Places]:
    """Return the offsets where quotations may begin, and those where they may end: int64, ascending.

    Offsets are those in all documents, with one character between each two.

    "character": every offset. "word": both ends of a word, and of each mark that is neither a
    word nor white space; letters, digits and _ make words, and so do an apostrophe between letters and a dot or
    comma between digits; each Han and Hiragana character is a word. "sentence": a sentence ends after . ! ? or … and
    closing quotes if white space follows and then no lower-case letter, after 。！？, and at a blank line. "line":
    a line without the white space around it. A tuple has the lengths of the pieces of a single document; quotations
    are sequences of whole pieces.
    """
    if isinstance(rule, tuple):
        are_lengths = all(type(each) is int and each > 0 for each in rule)
        if not are_lengths or len(documents) != 1 or sum(rule) != len(documents[0]):
            raise OptionError(
                f"boundary={brief(rule)}: expected the lengths of the pieces of a single context, all of it"
            )
        places = np.cumsum([0, *rule])
        return places[:-1], places[1:]
    if rule == "character":
        return _characters(documents)
    if rule == "word":
        return _words(documents)
    if rule == "sentence":
        # Two newlines make a blank line, which ends a sentence at a document's end; offsets count only one of them.
        table = _table(_sentences("\n\n".join(documents)))
        begins = np.cumsum([0, *(len(document) + 2 for document in documents)])
        table -= np.searchsorted(begins, table[:, :1], "right") - 1
    elif rule == "line":
        table = _table([match.span() for match in _LINE.finditer("\n".join(documents))])
    else:
        raise OptionError(f"boundary={brief(rule)}: one of {', '.join(map(repr, get_args(Boundary)))}")
    return table[:, 0], table[:, 1]


def _table(spans: list[tuple[int, int]]) -> Places:
    return np.array(spans, np.int64).reshape(-1, 2)


def gaps(documents: Sequence[str]) -> Places:
    """Return the offsets of the separators, one character behind each document."""
    return np.cumsum([len(document) + 1 for document in documents]) - 1


def _characters(documents: Sequence[str]) -> tuple[Places, Places]:
    between = gaps(documents)
    inside = np.ones(int(between[-1]), np.bool_)
    inside[between[:-1]] = False
    first = np.flatnonzero(inside)
    return first, first + 1


def code_points(text: str) -> NDArray[np.uint32]:
    """Return the code points of the characters: uint32."""
    return np.frombuffer(text.encode("utf-32-le"), np.dtype("<u4"))


def _words(documents: Sequence[str]) -> tuple[Places, Places]:
    codes = code_points("\n".join(documents))
    occurs = np.zeros(0x110000, np.bool_)
    occurs[codes] = True
    kinds = np.zeros(0x110000, np.uint8)
    for code in np.flatnonzero(occurs).tolist():
        kinds[code] = _kind(chr(code))
    kind = np.concatenate([[SPACE], kinds[codes], [SPACE]]).astype(np.uint8)  # as between documents
    before, after = kind[:-2], kind[2:]
    joins = (kind[1:-1] & APOSTROPHE != 0) & (before & after & LETTER != 0)
    joins |= (kind[1:-1] & POINT != 0) & (before & after & DIGIT != 0)
    kind[1:-1][joins] |= LETTER
    space = kind & SPACE != 0
    tied = (kind[1:] & kind[:-1] & LETTER != 0) | (kind[1:] & MARK != 0) | (kind[:-1] & TIE != 0)
    border = ~tied | space[1:] | space[:-1]
    return np.flatnonzero(border[:-1] & ~space[1:-1]), np.flatnonzero(border[1:] & ~space[1:-1]) + 1


def _kind(character: str) -> int:
    """Return the class bits of a character."""
    if character.isspace():
        return SPACE
    if character in "'’":
        return APOSTROPHE
    if character in ".,":
        return POINT
    if character == "\u200d":
        return MARK | TIE
    if "\ufe00" <= character <= "\ufe0f" or "\U0001f3fb" <= character <= "\U0001f3ff":
        return MARK  # modifies the previous symbol
    if unicodedata.category(character)[0] == "M":
        return MARK | LETTER
    if character.isalnum() or character == "_":
        return (0 if _is_unspaced(character) else LETTER) | (DIGIT if character.isdecimal() else 0)
    return 0


def _is_unspaced(character: str) -> bool:
    """Test whether the character is Han or Hiragana, scripts without spaces between words."""
    return (
        "\u3040" <= character <= "\u309f"
        or "\u3400" <= character <= "\u9fff"
        or "\uf900" <= character <= "\ufaff"
        or character >= "\U00020000"
    )


def _sentences(text: str) -> list[tuple[int, int]]:
    """Return the spans of sentences, without the white space between them."""
    cuts = {match.start() for match in _BLANK_LINE.finditer(text)}
    for match in _STOP.finditer(text):
        gap = _GAP.match(text, match.end())
        assert gap is not None
        if match[1] is None or (gap.end() > gap.start() and not text[gap.end() : gap.end() + 1].islower()):
            cuts.add(match.end())
    spans: list[tuple[int, int]] = []
    begin = 0
    for end in [*sorted(cuts), len(text)]:
        piece = text[begin:end]
        if stripped := piece.strip():
            first = begin + len(piece) - len(piece.lstrip())
            spans.append((first, first + len(stripped)))
        begin = end
    return spans


WhiteSpace = Literal["exact", "collapsed"]

MAX_BYTES = 1 << 30
BYTES_PER_BYTE = 100
"""Memory of the index per byte of the text, including its construction."""
# Work besides the index
STEPS_PER_BYTE = 4
# The separator behind each document: no white space, and one byte in a JSON string too
_SEPARATOR = "\x7f"
_RUN = re.compile(r"\s+")
_EMPTY = np.zeros(0, np.int32)


class Occurrence(NamedTuple):
    """The place of a quotation: documents[document][start:end]."""

    document: int
    start: int
    end: int


@dataclass(frozen=True)
class Span:
    """A part of a document: `documents[document][start:end] == text`.

    start, end: in characters; document: 0 if there is only one
    occurrences: all places (document, start, end) of the text, in order, including the span's own
    """

    text: str
    start: int
    end: int
    document: int = 0
    occurrences: tuple[Occurrence, ...] = ()


@dataclass(frozen=True)
class QuotingRules:
    """The rules of quotable parts; see `SubstringGuide`. Raises OptionError."""

    boundary: Boundary | tuple[int, ...] = "word"
    min_chars: int = 1
    max_chars: int | None = None
    whitespace: WhiteSpace = "exact"

    def __post_init__(self) -> None:
        options: dict[str, Any] = {"min_chars": self.min_chars, "max_chars": self.max_chars}
        for name, value in options.items():
            if not (type(value) is int and value >= 1) and not (value is None and name == "max_chars"):
                raise OptionError(f"{name}={brief(value)}: expected a whole number of at least 1")
        if self.max_chars is not None and self.max_chars < self.min_chars:
            raise OptionError(f"max_chars={self.max_chars} is less than min_chars={self.min_chars}")
        if not isinstance(self.boundary, tuple):
            check_choice(self.boundary, "boundary", get_args(Boundary))
        check_choice(self.whitespace, "whitespace", get_args(WhiteSpace))


@dataclass(frozen=True, eq=False)
class SourceBytes:
    """All documents as bytes, one after the other, and the mapping between their characters and the written ones.

    One separator character follows each document.
    data: the bytes; starts: the first character of each document, and the end; int64 [documents + 1]
    begins: the document character of each written character; None if they are equal
    bytes_at: the offset of each written character in `data`; None if each is one byte
    first, last: written characters at which quotations may begin, and before which they may end; int64, ascending
    """

    data: bytes
    starts: Places
    begins: Ints | None
    bytes_at: Ints | None
    first: Places
    last: Places

    def offsets(self, places: Places) -> Places:
        """Convert offsets in `data` to characters of the documents."""
        written = places if self.bytes_at is None else np.searchsorted(self.bytes_at, places)
        return written if self.begins is None else self.begins[written].astype(np.int64)

    def byte_of(self, written: Places) -> Places:
        """Convert written characters to offsets in `data`."""
        return written if self.bytes_at is None else self.bytes_at[written].astype(np.int64)

    def written(self, characters: Places) -> Places:
        """Convert characters of the documents to written characters."""
        return characters if self.begins is None else np.searchsorted(self.begins, characters)


class QuotedContext:
    """Documents as one text of bytes, with the allowed quotations.

    quotable: arrays for kernels; documents: as given
    escaped: write the text as inside a JSON string; refusal: one more allowed text
    Raises OptionError for an invalid context or rule, LanguageError if there is nothing to quote.
    """

    def __init__(
        self, context: str | Sequence[str], rules: QuotingRules, *, escaped: bool = False, refusal: str | None = None
    ) -> None:
        self.documents = documents_of(context)
        self.rules = rules
        self.escaped = escaped
        self.refusal = refusal
        self._source = _source(self.documents, rules, escaped)
        # Offsets of the documents in the text, and of the refusal, which follows them
        self._bases = np.append(0, self._source.byte_of(self._source.written(self._source.starts[1:] - 1)) + 1)
        if refusal is not None and lone_surrogate(refusal) >= 0:
            raise OptionError(
                f"none_text has a lone surrogate at character {lone_surrogate(refusal)}, which no UTF-8 can have"
            )
        self._refusal = b"" if refusal is None else _encode(refusal, escaped)
        if self._bases[-1] > MAX_BYTES:
            raise LimitError(
                f"the context has {self._bases[-1]:,} bytes; up to {MAX_BYTES:,} are supported, a fixed limit: split it"
            )
        spend(STEPS_PER_BYTE * (int(self._bases[-1]) + len(self._refusal)))
        self.quotable = self._index()

    @property
    def held_bytes(self) -> int:
        """Estimated bytes of the text and its suffix tree."""
        return BYTES_PER_BYTE * int(self._bases[-1])

    def _index(self) -> Quotable:
        source, refusal = self._source, self._refusal
        base = int(self._bases[-1])
        spend_growth(0, BYTES_PER_BYTE * base)
        text = np.empty(base + len(refusal) + bool(refusal), np.uint8)
        text[:base] = np.frombuffer(source.data, np.uint8)
        text[self._bases[1:] - 1] = END
        ends = np.zeros(len(text), np.uint8)
        chosen = np.zeros(len(text), np.bool_)
        limited = self.rules.min_chars > 1 or self.rules.max_chars is not None
        least = np.zeros(len(text) if limited else 0, np.int32)
        reach = np.zeros_like(least)
        begins, fewest, most = _limits(source, self.rules)
        last = source.byte_of(source.last)
        ends[last] = 1
        text[_last_offsets(last, self._bases)] = END
        if refusal:
            text[base:-1] = np.frombuffer(refusal, np.uint8)
            text[-1], ends[-1] = END, 1
            begins, fewest, most = (
                np.append(begins, base),
                np.append(fewest, len(refusal)),
                np.append(most, len(refusal)),
            )
        chosen[begins] = True
        if limited:
            least[begins] = fewest
            reach[begins] = most
        if not chosen[:base].any():
            raise LanguageError(self._empty_message())
        tree = build(text, chosen, spend)
        if not limited:
            return Quotable(text, ends, *tree, _EMPTY, _EMPTY, _EMPTY)
        return _with_reach(Quotable(text, ends, *tree, least[tree.starts], reach[tree.starts], _EMPTY))

    def _empty_message(self) -> str:
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

    def without(self, taken: Sequence[Occurrence]) -> Quotable | None:
        """Return the quotations that overlap none of the taken places; None if there are none."""
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
        in_documents = quotable.starts < self._bases[len(self.documents)]
        if not (reach[in_documents] >= 0).any():
            return None
        return _with_reach(replace(quotable, least=least, reach=reach))

    def _span_in_text(self, place: Occurrence) -> tuple[int, int]:
        """Convert a place to offsets in the text of all documents."""
        source = self._source
        characters = source.starts[place.document] + np.array([place.start, place.end])
        begin, end = source.byte_of(source.written(characters)).tolist()
        return begin, end

    def place(self, begin: int, end: int) -> Occurrence | None:
        """Convert offsets in the text to a place in a document; None for the refusal."""
        number = int(np.searchsorted(self._bases, begin, "right")) - 1
        if number >= len(self.documents):
            return None
        source = self._source
        first, last = (source.offsets(np.array([begin, end])) - source.starts[number]).tolist()
        return Occurrence(number, first, last)

    def span(self, places: Sequence[Occurrence], chosen: int = 0) -> Span:
        """Return the span at one of its places."""
        document, start, end = places[chosen]
        return Span(self.documents[document][start:end], start, end, document, tuple(places))


def _with_reach(quotable: Quotable) -> Quotable:
    furthest = np.empty(len(quotable.lo), np.int32)
    spread_reach(quotable.lo, quotable.hi, quotable.child_begin, quotable.child, quotable.reach, furthest)
    return replace(quotable, furthest=furthest)


def documents_of(context: Any) -> tuple[str, ...]:
    """Return the texts of a context. Raises OptionError for anything else, and for lone surrogates."""
    if isinstance(context, str):
        documents: tuple[Any, ...] = (context,)
    elif (several := items_of(context)) is not None:
        documents = tuple(several)
    else:
        documents = (text_of(context, "the context", 'SubstringGuide("a text", vocabulary)'),)
    if not documents:
        raise OptionError("the context has no documents; give a text, or a list of texts")
    if set(map(type, documents)) != {str}:
        documents = tuple(
            check_any_text(one, f"document {number} of the context") for number, one in enumerate(documents)
        )
    if lone_surrogate("".join(documents)) >= 0:
        number = next(number for number, document in enumerate(documents) if lone_surrogate(document) >= 0)
        which = "the context" if isinstance(context, str) else f"document {number} of the context"
        raise OptionError(
            f"{which} has a lone surrogate at character {lone_surrogate(documents[number])}, which no text of UTF-8 "
            "can have"
        )
    return documents


def _source(documents: tuple[str, ...], rules: QuotingRules, escaped: bool) -> SourceBytes:
    first, last = boundaries(documents, rules.boundary)
    starts = np.append(0, gaps(documents) + 1)
    text, begins = _SEPARATOR.join(documents) + _SEPARATOR, None
    if rules.whitespace == "collapsed":
        is_kept = np.ones(len(text), np.bool_)
        for run in _RUN.finditer(text):
            is_kept[run.start() + 1 : run.end()] = False
        text, begins = _RUN.sub(" ", text), np.flatnonzero(is_kept).astype(np.int32)
        first, last = (np.searchsorted(begins, places[is_kept[places]]) for places in (first, last))
    data = _encode(text, escaped)
    return SourceBytes(data, starts, begins, _byte_places(text, data, escaped), first, last)


def _encode(text: str, escaped: bool) -> bytes:
    return (json.dumps(text, ensure_ascii=False)[1:-1] if escaped else text).encode()


def _byte_places(text: str, data: bytes, escaped: bool) -> Ints | None:
    """Return each character's offset in the data, and the end: int32 [characters + 1]; None if all are one byte."""
    if len(data) == len(text):
        return None
    codes = code_points(text)
    lengths = 1 + (codes > 0x7F).astype(np.int32) + (codes > 0x7FF) + (codes > 0xFFFF)
    if escaped:
        of_ascii = np.array([len(_encode(chr(code), True)) for code in range(128)], np.int32)
        lengths = np.where(codes < 128, of_ascii[np.minimum(codes, 127)], lengths)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _limits(source: SourceBytes, rules: QuotingRules) -> tuple[Places, Places, Places]:
    """Return the byte offsets where quotations begin, and the fewest and most bytes of each."""
    begins, ends = source.first, source.last
    if not len(ends):
        return ends, ends, ends
    behind = source.written(source.starts[1:] - 1)  # the end of each document
    furthest = behind[np.searchsorted(behind, begins)]
    if rules.max_chars is not None:
        furthest = np.minimum(furthest, begins + min(rules.max_chars, MAX_BYTES))
    shortest = begins + min(rules.min_chars, MAX_BYTES)
    nearest = np.searchsorted(ends, shortest)
    final = np.searchsorted(ends, furthest, "right") - 1
    fits = nearest <= final
    begins, shortest = begins[fits], shortest[fits]
    at = source.byte_of(begins)
    return at, source.byte_of(shortest) - at, source.byte_of(ends[final[fits]]) - at


def _last_offsets(ends: Places, bases: Places) -> Places:
    """Return the last of the offsets in each document that has any."""
    places = np.searchsorted(ends, bases[1:])
    some = places > np.searchsorted(ends, bases[:-1])
    return ends[places[some] - 1]
