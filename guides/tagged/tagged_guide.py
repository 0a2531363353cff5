"""The guide of free text with markers that begin constrained parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...checks import MOST, brief, items_of, shown, text_of, whole
from ...errors import OptionError
from ...kernels.chart.layout import CALL, EPSILON
from ...tokenizers_adapter import Vocabulary
from ...tokenizers_adapter.marked import MarkedVocabulary, unmarked_text, with_markers, without_markers
from ..chart.automaton import ChartAutomaton
from ..given import states_of, vocabulary_of
from ..graph.graph import Graph
from ..graph.lowering import Lowering
from ..lift.lifted_guide import LiftedGuide
from ..lift.tables import horizon_of
from ..limits import Limits, Meter
from ..pictures import MAX_PICTURED, Drawable, Joined, Picture, refuse_tokens
from ..syntax import Reference, Repeat
from ..syntax import Sequence as SyntaxSequence
from .composed_guide import check_guide
from .free_text import FreeText
from .markers import Markers
from .pieces import Lowerable, Marker, marker_data, marker_label

Tag = tuple[Marker, Lowerable, Marker]


class Part(NamedTuple):
    """A piece of a text: free if `tag` is None, else the part of that tag without its markers."""

    tag: int | None
    text: str


class TaggedGuide(LiftedGuide, Drawable):
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
        self.least = whole(least, "least", 0)
        self.most = None if most is None else whole(most, "most", max(1, self.least), MOST)
        given = vocabulary_of(vocabulary, "TaggedGuide")
        self._needs: dict[int, int] = {}
        with Meter(limits):
            marked = with_markers(given, self._marker_ids(given))
            self._markers = Markers([marker_data(begin) for begin, _, _ in self.tags])
            self._ends = [marker_data(end) for _, _, end in self.tags]
            super().__init__(ChartAutomaton(self._graph, horizon=horizon_of(marked)), marked)
            # Once per vocabulary, before the first text
            self._tables.loop_slice(self._markers.loop(), at_once=True)
        self._made_of = {
            "tags": self.tags,
            "vocabulary": without_markers(given),
            "least": self.least,
            "most": self.most,
            "limits": limits,
        }

    def __repr__(self) -> str:
        return f"TaggedGuide({brief([begin for begin, _, _ in self.tags[:5]])}, {len(self.tags):,} tags)"

    def picture(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> Picture:
        """Draw the free text, with arrows for markers to the pictures of the parts and back."""
        refuse_tokens(tokens, "tags")
        drawn = Joined(states_of(max_states))
        bounds = [f"at least {self.least:,}"] if self.least or self.most is None else []
        bounds += [f"at most {self.most:,}"] if self.most is not None else []
        free = drawn.box("free text", f"parts: {', '.join(bounds)}")
        for begin, guide, end in self.tags:
            start, ends = drawn.guide(guide, ends_text=False)
            drawn.arrow(free, start, marker_label(begin))
            for place in ends:
                drawn.arrow(place, free, marker_label(end))
        return drawn.picture()

    def lower_into(self, graph: Graph) -> int:
        """Add the texts to another guide's graph and return the start node of their rule."""
        rules = {"part": self._part(graph), "rest": self._rest(graph)}
        lowering = Lowering(graph, rules.__getitem__, lambda name: name == "rest")
        parts = Repeat(Reference("part"), self.least, self.most)
        return lowering.rule(SyntaxSequence((parts, Reference("rest"))))

    def parts(self, tokens: Iterable[int], overlap: int = 0) -> list[Part]:
        """Split a text of this guide, given by its tokens; each part ends as early as possible.

        overlap: bytes of the first token that belong to the prompt, see `Generation`. An unfinished part at the end
        of a truncated text becomes free text.
        """
        data = self.vocabulary.decode(tokens)[overlap:]
        found: list[Part] = []
        begin = at = 0
        begun = b""
        while at < len(data):
            begun = self._markers.targets(begun).get(data[at], b"")
            at += 1
            if begun not in self._markers.numbers:
                continue
            read = self._read_part(data, at, self._markers.numbers[begun])
            if read is not None:
                tag, end, behind = read
                found += [self._read(None, data[begin : at - len(begun)]), self._read(tag, data[at:end])]
                begin = at = behind
            begun = b""
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

    def _graph(self) -> tuple[Graph, int]:
        graph = Graph()
        return graph, self.lower_into(graph)

    def _part(self, graph: Graph) -> int:
        """Make the rule of free text, a marker, and its part."""
        children: dict[int, int] = {}

        def child(tag: int) -> int:
            if tag not in children:
                children[tag] = graph.lazy(lambda start: expand(tag, start), lambda: self._needed(tag))
            return children[tag]

        def expand(tag: int, start: int) -> None:
            rule = self.tags[tag][1].lower_into(graph)
            graph.define(start, links=((CALL, rule, graph.final()),))

        def matched(text: bytes) -> int:
            numbers = self._markers.numbers[text]
            return graph.node(links=[(CALL, child(tag), graph.literal(self._ends[tag], final)) for tag in numbers])

        def needed(text: bytes) -> int:
            return min(self._needed(tag) + len(self._ends[tag]) for tag in self._markers.numbers[text])

        with graph.new_rule() as start:
            final = graph.final()
            text = FreeText(graph, self._markers, final, matched, needed)
            graph.define(start, links=((EPSILON, text.start(), 0),))
        return start

    def _rest(self, graph: Graph) -> int:
        """Make the rule of free text without a marker."""
        with graph.new_rule() as start:
            markers = self._markers
            final = graph.final()
            text = FreeText(graph, markers, final, lambda _: final, lambda _: 0, refused=markers.numbers, may_end=True)
            graph.define(start, links=((EPSILON, text.start(), 0),))
        return start

    def _needed(self, tag: int) -> int:
        """Return the fewest bytes of a text of a tag's guide."""
        if tag not in self._needs:
            guide = self.tags[tag][1]
            self._needs[tag] = int(guide.bytes_needed(np.array([guide.start], np.int32))[0])
        return self._needs[tag]

    def _marker_ids(self, vocabulary: Vocabulary) -> set[int]:
        """Return all tokens among markers, also of inner guides. Raises OptionError for different vocabularies."""
        found: set[int] = set()
        base = without_markers(vocabulary)
        for number, (begin, guide, end) in enumerate(self.tags):
            found.update(marker for marker in (begin, end) if not isinstance(marker, str))
            inner = guide.vocabulary
            if isinstance(inner, MarkedVocabulary):
                found |= inner.markers
            if without_markers(inner) is not base and without_markers(inner).fingerprint != base.fingerprint:
                raise OptionError(f"tag {number}: the guide was made for another vocabulary; make it with this one")
        return found


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
    return text_of(marker, what) if isinstance(marker, str) else whole(marker, f"{what} a token", 0)
