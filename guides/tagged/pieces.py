"""Pieces of a composed text: fixed texts, texts of guides, and free text up to a marker.

Pieces are immutable values. A marker is a text, in any tokens, or a token id, which no other token spells;
`marker_data` converts it to bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from ...tokenizers_adapter.marked import MarkedVocabulary, marker_bytes
from ..explain import quoted
from ..graph.graph import Graph
from ..pictures import shortened
from ..protocol import ByteGuide

Marker = str | int


class Lowerable(ByteGuide, Protocol):
    """A guide that can be nested in another one's graph."""

    def lower_into(self, graph: Graph) -> int:
        """Add the language to a graph and return its rule's start node. Raises OptionError where that is impossible."""
        ...

    def bytes_needed(self, states: Any) -> Any:
        """See `LiftedGuide.bytes_needed`."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """These markers and texts in order; none of them is the empty text."""

    parts: tuple[Marker, ...] = ()

    @property
    def data(self) -> bytes:
        """The bytes of all parts."""
        return marker_data(*self.parts)


@dataclass(frozen=True, slots=True)
class Inner:
    """A text of a guide that can be nested, see `TaggedGuide`."""

    guide: Lowerable


@dataclass(frozen=True, slots=True)
class InOrder:
    """All pieces in order."""

    items: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the pieces."""

    items: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """One of several fixed texts, followed by its piece; there may be many."""

    branches: tuple[tuple[Fixed, Piece], ...]


@dataclass(frozen=True, slots=True)
class Several:
    """A piece one or more times, with a text between each two.

    least: 1 or more; most: None for no bound
    """

    item: Piece
    between: Fixed
    least: int = 1
    most: int | None = None


@dataclass(frozen=True, slots=True)
class AnyOrder:
    """Pieces in any order, each at most once; those with True in `required` must occur."""

    items: tuple[Piece, ...]
    required: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Free:
    """Free text, in UTF-8, up to the first of some markers, and the piece of that marker.

    exits: the markers, and what follows each; refused: markers that must not occur
    may_end: whether it may also end without a marker
    unlike: ASCII texts that it must not begin with
    """

    exits: tuple[tuple[Marker, Piece], ...] = ()
    refused: tuple[Marker, ...] = ()
    may_end: bool = False
    unlike: tuple[str, ...] = ()


Piece = Fixed | Inner | InOrder | AnyOrder | OneOf | Named | Several | Free
EMPTY = Fixed()


def optional(piece: Piece) -> Piece:
    """Return the piece, or nothing."""
    return OneOf((piece, EMPTY))


def marker_data(*markers: Marker) -> bytes:
    """Return the bytes of markers: UTF-8 of texts, `marker_bytes` of token ids."""
    return b"".join(each.encode() if isinstance(each, str) else marker_bytes(each) for each in markers)


def pieces_within(piece: Piece) -> Iterator[Piece]:
    """Yield the piece and all pieces inside it."""
    stack = [piece]
    while stack:
        top = stack.pop()
        yield top
        match top:
            case InOrder(items) | AnyOrder(items) | OneOf(items):
                stack += items
            case Named(branches):
                stack += [each for branch in branches for each in branch]
            case Several(item, between):
                stack += [item, between]
            case Free(exits):
                stack += [after for _, after in exits]
            case Fixed() | Inner():
                pass


def marker_label(marker: Marker) -> str:
    """Format a marker for people; "" for none."""
    return f"token {marker}" if isinstance(marker, int) else shortened(quoted(marker)) if marker else ""


def marker_ids(piece: Piece) -> set[int]:
    """Return the token ids among all markers, including those of inner guides."""
    found: set[int] = set()
    for each in pieces_within(piece):
        if isinstance(each, Fixed):
            found |= _ids(each.parts)
        elif isinstance(each, Free):
            found |= _ids([*(marker for marker, _ in each.exits), *each.refused])
        elif isinstance(each, Inner) and isinstance(each.guide.vocabulary, MarkedVocabulary):
            found |= each.guide.vocabulary.markers
    return found


def _ids(markers: Iterable[Marker]) -> set[int]:
    return {marker for marker in markers if not isinstance(marker, str)}
