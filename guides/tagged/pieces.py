"""Pieces that a text is composed of: fixed texts, texts of guides, and free text that ends where a marker begins.

Pieces are immutable values. A marker is a text, whatever tokens spell it, or the id of a token, which nothing else
spells; `marker_data` says what it is in bytes.
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
    """A guide that can be a part of another one's graph."""

    def lower_into(self, graph: Graph) -> int:
        """Add what the guide is made of to a graph; the start node of its rule. Raises OptionError where it cannot."""
        ...

    def bytes_needed(self, states: Any) -> Any:
        """As `LiftedGuide.bytes_needed`."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """These markers and texts, one after the other; none of them is the empty text."""

    parts: tuple[Marker, ...] = ()

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return marker_data(*self.parts)


@dataclass(frozen=True, slots=True)
class Inner:
    """A text of a guide, which must be one that can be a part of another, see `TaggedGuide`."""

    guide: Lowerable


@dataclass(frozen=True, slots=True)
class InOrder:
    """All pieces, one after the other."""

    items: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    """Any one of the pieces."""

    items: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """One of several fixed texts, and the piece that goes with it; however many there are."""

    branches: tuple[tuple[Fixed, Piece], ...]


@dataclass(frozen=True, slots=True)
class Several:
    """A piece once or more often, with a text between each and the next.

    least: how often, 1 or more; most: None for any number
    """

    item: Piece
    between: Fixed
    least: int = 1
    most: int | None = None


@dataclass(frozen=True, slots=True)
class AnyOrder:
    """Pieces in any order, each at most once; those with True at their place in `required` are there."""

    items: tuple[Piece, ...]
    required: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Free:
    """Free text, UTF-8, up to the first of some markers, and the piece that goes with that one.

    exits: the markers, and what follows each; refused: markers that it does not contain
    may_end: whether it may also end without a marker
    unlike: texts of ASCII that it does not begin with
    """

    exits: tuple[tuple[Marker, Piece], ...] = ()
    refused: tuple[Marker, ...] = ()
    may_end: bool = False
    unlike: tuple[str, ...] = ()


Piece = Fixed | Inner | InOrder | AnyOrder | OneOf | Named | Several | Free
NOTHING = Fixed()


def perhaps(piece: Piece) -> Piece:
    """The piece, or nothing."""
    return OneOf((piece, NOTHING))


def marker_data(*markers: Marker) -> bytes:
    """The bytes of markers: texts in UTF-8, tokens as `marker_bytes` says."""
    return b"".join(each.encode() if isinstance(each, str) else marker_bytes(each) for each in markers)


def pieces_within(piece: Piece) -> Iterator[Piece]:
    """The piece, and all that it is made of."""
    open_ones = [piece]
    while open_ones:
        top = open_ones.pop()
        yield top
        match top:
            case InOrder(items) | AnyOrder(items) | OneOf(items):
                open_ones += items
            case Named(branches):
                open_ones += [each for branch in branches for each in branch]
            case Several(item, between):
                open_ones += [item, between]
            case Free(exits):
                open_ones += [after for _, after in exits]
            case Fixed() | Inner():
                pass


def marker_label(marker: Marker) -> str:
    """A marker for people; "" for none."""
    return f"token {marker}" if isinstance(marker, int) else shortened(quoted(marker)) if marker else ""


def marker_ids(piece: Piece) -> set[int]:
    """The tokens among all markers, those of inner guides too."""
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
