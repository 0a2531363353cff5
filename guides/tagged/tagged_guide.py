"""The guide of free text with markers that begin constrained parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...checks import MAX_INT, brief, check_int, check_text, items_of, shown
from ...errors import OptionError
from ...tokenizers_adapter import Vocabulary
from ...tokenizers_adapter.marked import unmarked_text, without_markers
from ..arguments import states_of
from ..limits import Limits, Meter
from ..pictures import MAX_PICTURED, Drawable, Picture, PictureBuilder, refuse_tokens
from .composed_guide import ComposedGuide, check_guide
from .markers import markers_of
from .pieces import (
    EMPTY,
    Fixed,
    Free,
    Inner,
    InOrder,
    Lowerable,
    Marker,
    OneOf,
    Piece,
    Several,
    marker_data,
    marker_label,
    optional,
)

Tag = tuple[Marker, Lowerable, Marker]


class Part(NamedTuple):
    """A piece of a text: free if `tag` is None, else the part of that tag without its markers."""

    tag: int | None
    text: str


class TaggedGuide(ComposedGuide, Drawable):
    """Free text with markers that begin constrained parts, in any order: `("<tool_call>", guide, "</tool_call>")`.

    tags: tuples of first marker, guide, and last marker, "" for none. A marker is a text, in any tokens, or a token
        id, special or not, which no other token spells. Several tags may begin alike. Free text contains no
        first marker, except where a tag begins.
    least, most: bounds of the number of parts; after the last possible one, markers are refused
    limits: bounds of each call, see `Limits`

    Guides of patterns, choices, machines, grammars, JSON and tags can be nested. Where a part may continue with its
    last marker, both readings are followed. Parts are lowered when a text first reaches them. In `vocabulary`, the
    tokens among the markers have bytes that occur in no text.
    Raises OptionError for malformed tags, and for markers that contain each other; LanguageError, LimitError.
    """

    def __init__(
        self,
        tags: Iterable[Tag],
        vocabulary: Vocabulary,
        *,
        least: int = 0,
        most: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.tags = _tags(tags)
        self.least = check_int(least, "least", 0)
        self.most = None if most is None else check_int(most, "most", max(1, self.least), MAX_INT)
        with Meter(limits):
            self._markers = markers_of(tuple(marker_data(begin) for begin, _, _ in self.tags))
            super().__init__(_piece(self.tags, self.least, self.most), vocabulary, limits=limits)
        self._ends = [marker_data(end) for _, _, end in self.tags]
        self._made_of = {
            "tags": self.tags,
            "vocabulary": without_markers(self.vocabulary),
            "least": self.least,
            "most": self.most,
            "limits": limits,
        }

    def __repr__(self) -> str:
        return f"TaggedGuide({brief([begin for begin, _, _ in self.tags[:5]])}, {len(self.tags):,} tags)"

    def picture(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> Picture:
        """Draw the free text, with arrows for markers to the pictures of the parts and back."""
        refuse_tokens(tokens, "tags")
        drawn = PictureBuilder(states_of(max_states))
        bounds = [f"at least {self.least:,}"] if self.least or self.most is None else []
        bounds += [f"at most {self.most:,}"] if self.most is not None else []
        free = drawn.box("free text", f"parts: {', '.join(bounds)}")
        for begin, guide, end in self.tags:
            start, ends = drawn.guide(guide, ends_text=False)
            drawn.arrow(free, start, marker_label(begin))
            for place in ends:
                drawn.arrow(place, free, marker_label(end))
        return drawn.picture()

    def parts(self, tokens: Iterable[int], overlap: int = 0) -> list[Part]:
        """Split a text of this guide, given by its tokens; each part ends as early as possible.

        overlap: bytes of the first token that belong to the prompt, see `Generation`. An unfinished part at the end
        of a truncated text becomes free text.
        """
        data = self.vocabulary.decode(tokens)[overlap:]
        found: list[Part] = []
        begin = at = 0
        prefix = b""
        while at < len(data):
            prefix = self._markers.targets(prefix).get(data[at], b"")
            at += 1
            if prefix not in self._markers.numbers:
                continue
            read = self._read_part(data, at, self._markers.numbers[prefix])
            if read is not None:
                tag, end, behind = read
                found += [self._read(None, data[begin : at - len(prefix)]), self._read(tag, data[at:end])]
                begin = at = behind
            prefix = b""
        return [part for part in [*found, self._read(None, data[begin:])] if part.text or part.tag is not None]

    def _read(self, tag: int | None, data: bytes) -> Part:
        return Part(tag, unmarked_text(self.vocabulary, data).decode(errors="replace"))

    def _read_part(self, data: bytes, begin: int, tags: Sequence[int]) -> tuple[int, int, int] | None:
        """Return the tag whose part begins at an offset and ends first, with the ends of the part and of its marker."""
        readings = {tag: self.tags[tag][1].start for tag in tags}
        for at in range(begin, len(data) + 1):
            for tag, state in readings.items():
                if self.tags[tag][1].is_accepting(state) and data.startswith(self._ends[tag], at):
                    return tag, at, at + len(self._ends[tag])
            byte = data[at : at + 1]
            readings = {tag: self.tags[tag][1].read(state, byte) for tag, state in readings.items()}
            readings = {tag: state for tag, state in readings.items() if state >= 0}
            if not readings:
                return None
        return None


def _piece(tags: Sequence[Tag], least: int, most: int | None) -> Piece:
    """Return the parts, each behind free text and its first marker, and the free text behind them."""
    exits: dict[Marker, list[Piece]] = {}
    for begin, guide, end in tags:
        exits.setdefault(begin, []).append(InOrder((Inner(guide), Fixed((end,) if end != "" else ()))))
    part = Free(tuple((begin, OneOf(tuple(after))) for begin, after in exits.items()))
    parts = Several(part, EMPTY, max(1, least), most)
    return InOrder((parts if least else optional(parts), Free(refused=tuple(exits), may_end=True)))


def _tags(tags: Any) -> tuple[Tag, ...]:
    """Return the tags as tuples. Raises OptionError for anything else."""
    several = items_of(tags)
    if several is None or not several:
        raise OptionError(f'tags={brief(tags)}: expected a list of tags such as ("<tool_call>", guide, "</tool_call>")')
    return tuple(_tag(each, f"tag {number}") for number, each in enumerate(several))


def _tag(tag: Any, what: str) -> Tag:
    items = items_of(tag)
    if items is None or len(items) != 3:
        raise OptionError(f'{what} is {shown(tag)}; a tag is a marker, a guide and a marker: ("<a>", guide, "</a>")')
    begin, guide, end = items
    check_guide(guide, f"{what}: ")
    if begin == "":
        raise OptionError(f"{what}: the first marker is empty; give a text, or the id of a token")
    first, last = _marker(begin, f"{what}, the first marker,"), _marker(end, f"{what}, the last marker,")
    return first, guide, last


def _marker(marker: Any, what: str) -> Marker:
    return check_text(marker, what) if isinstance(marker, str) else check_int(marker, f"{what} a token", 0)
