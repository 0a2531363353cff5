"""The guide of a text that is composed of pieces: fixed texts, texts of guides, and free text up to markers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...checks import brief
from ...errors import OptionError
from ...kernels.chart.layout import CALL, EPSILON, INCREMENT, LEAVE, UNBOUNDED
from ...tokenizers_adapter import Vocabulary
from ...tokenizers_adapter.marked import with_markers, without_markers
from ..arguments import vocabulary_of
from ..chart.automaton import ChartAutomaton
from ..graph.graph import Graph
from ..graph.lowering import Lowering
from ..lift.lifted_guide import LiftedGuide
from ..lift.tables import horizon_of
from ..limits import Limits, Meter, spend
from ..protocol import NEVER
from .free_text import FreeText
from .markers import Markers, markers_of
from .pieces import (
    AnyOrder,
    Fixed,
    Free,
    Inner,
    InOrder,
    Lowerable,
    Named,
    OneOf,
    Piece,
    Several,
    marker_data,
    marker_ids,
    pieces_within,
)

STEPS_PER_PIECE = 100


class ComposedGuide(LiftedGuide):
    """Texts composed as a piece defines, see `pieces`.

    Inner guides are lowered when a text first reaches them. Where an inner text may continue with what may also follow
    it, both readings are followed.
    limits: bounds of each call, see `Limits`
    Raises OptionError for guides that cannot be nested and for markers that contain each other, LanguageError,
    LimitError.
    """

    def __init__(self, piece: Piece, vocabulary: Vocabulary, *, limits: Limits | None = None) -> None:
        checked = vocabulary_of(vocabulary, type(self).__name__)
        self.piece = piece
        with Meter(limits):
            _check(piece, checked)
            marked = with_markers(checked, marker_ids(piece))
            super().__init__(ChartAutomaton(self._graph, horizon=horizon_of(marked)), marked)
            for free in pieces_within(piece):
                if isinstance(free, Free):  # once per vocabulary, before the first text
                    self._tables.loop_slice(_markers_of(free).loop(), at_once=True)
        self._made_of = {"piece": piece, "vocabulary": without_markers(checked), "limits": limits}

    def __repr__(self) -> str:
        return f"ComposedGuide({brief(self.piece)})"

    def lower_into(self, graph: Graph) -> int:
        """Add the texts to a graph and return the start node of their rule."""
        return Composition(graph).rule(self.piece)

    def _graph(self) -> tuple[Graph, int]:
        graph = Graph()
        return graph, self.lower_into(graph)


class Composition:
    """Lowering of pieces into a graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._lowering = Lowering(graph)
        self._children: dict[int, int] = {}
        self._cache: dict[int, tuple[Piece, int]] = {}

    def rule(self, piece: Piece) -> int:
        """Make a rule with this body; return its start node."""
        with self._graph.new_rule() as start:
            self._graph.define(start, links=((EPSILON, self._lower(piece, self._graph.final()), 0),))
        return start

    def _lower(self, piece: Piece, target: int) -> int:
        """Lower a piece that goes on at a node of the current rule; return its entry."""
        spend(STEPS_PER_PIECE)
        graph = self._graph
        match piece:
            case Fixed():
                return graph.literal(piece.data, target)
            case Inner(guide):
                return graph.node(links=((CALL, self._child_rule(guide), target),))
            case InOrder(items):
                for item in reversed(items):
                    target = self._lower(item, target)
                return target
            case OneOf(items):
                return graph.node(links=[(EPSILON, self._lower(item, target), 0) for item in items])
            case Named(branches):
                return self._lowering.tree([(text.data, self._lower(after, target)) for text, after in branches])
            case AnyOrder():
                return graph.node(links=((CALL, self._any_order_rule(piece), target),))
            case Several():
                return self._lower_several(piece, target)
            case Free():
                return self._lower_free(piece, target)

    def _lower_several(self, several: Several, target: int) -> int:
        graph, item, between = self._graph, several.item, several.between
        least, most = several.least, several.most
        if (least, most) != (1, None) and not between.data and self._may_be_empty(item):  # `least` has no effect
            if most is not None:
                return self._lower(InOrder((item,) * most), target)
            least = 1
        if (least, most) == (1, None):
            behind = graph.reserve()
            entry = self._lower(item, behind)
            loop = graph.literal(between.data, entry)
            graph.define(behind, links=((EPSILON, target, 0), (EPSILON, loop, 0)))
            return entry
        rule = self.rule(item)
        more = self._repeat_rule(rule, between, least - 1, UNBOUNDED if most is None else most - 1)
        return graph.node(links=((CALL, rule, graph.node(links=((CALL, more, target),))),))

    def _may_be_empty(self, piece: Piece) -> bool:
        # Markers are not empty, and the guides behind them need not be asked.
        return piece.may_end if isinstance(piece, Free) else not self._fewest(piece)

    def _repeat_rule(self, rule: int, between: Fixed, least: int, most: int) -> int:
        """Make a rule of `least` to `most` texts of a rule, each behind `between`."""
        graph = self._graph
        with graph.new_rule() as start:
            end, head = graph.final(), graph.reserve()
            graph.counter = counter = graph.counter_for(least, most)
            turn = graph.node(links=((INCREMENT, head, counter),))
            body = graph.literal(between.data, graph.node(links=((CALL, rule, turn),)))
            graph.counter = 0
            graph.define(head, links=((EPSILON, body, counter), (LEAVE, end, counter)))
            graph.define(start, links=((EPSILON, head, 0),))
        return start

    def _any_order_rule(self, order: AnyOrder) -> int:
        """Make a rule of pieces in any order. A set holds the pieces seen; required ones have the first bits."""
        graph, needed = self._graph, sum(order.required)
        items = [each for each, is_required in zip(order.items, order.required, strict=True) if is_required]
        items += [each for each, is_required in zip(order.items, order.required, strict=True) if not is_required]
        rules = list(map(self.rule, items))

        def expand(start: int) -> None:
            end = graph.final()

            def define(node: int) -> None:
                links = [graph.guard(end, needed=needed, kept=0)]
                for bit, rule in enumerate(rules, 1):
                    entry = graph.node(links=((CALL, rule, node),))
                    links.append(graph.guard(entry, refused=bit, added=bit))
                graph.define(node, links=links)

            graph.counter = graph.new_large_set(needed, lambda: list(map(self._fewest, items[:needed])))
            # `loop` promises 0 bytes with all required bits set; before that, the missing bits' weights are added.
            loop = graph.lazy_node(define, lambda: 0, end, 0)
            graph.counter = 0
            graph.define(start, links=((EPSILON, loop, 0),))

        return graph.lazy(expand, lambda: self._fewest(order))

    def _lower_free(self, free: Free, target: int) -> int:
        after = {marker_data(marker): piece for marker, piece in free.exits}
        text = FreeText(
            self._graph,
            _markers_of(free),
            target,
            lambda marker: self._lower(after[marker], target),
            lambda marker: self._fewest(after[marker]),
            refused=[marker_data(marker) for marker in free.refused],
            may_end=free.may_end,
            unlike=[each.encode() for each in free.unlike],
        )
        return text.start()

    def _child_rule(self, guide: Lowerable) -> int:
        """Return the lazy rule of a guide."""

        def expand(start: int) -> None:
            self._graph.define(start, links=((CALL, guide.lower_into(self._graph), self._graph.final()),))

        if id(guide) not in self._children:
            self._children[id(guide)] = self._graph.lazy(expand, lambda: self._fewest(Inner(guide)))
        return self._children[id(guide)]

    def _fewest(self, piece: Piece) -> int:
        """Return the fewest bytes of a text of a piece."""
        key = id(piece.guide) if isinstance(piece, Inner) else id(piece)
        if key not in self._cache:
            spend(STEPS_PER_PIECE)
            self._cache[key] = piece, min(NEVER, self._compute_fewest(piece))
        return self._cache[key][1]

    def _compute_fewest(self, piece: Piece) -> int:
        match piece:
            case Fixed():
                return len(piece.data)
            case Inner(guide):
                return int(guide.bytes_needed(np.array([guide.start], np.int32))[0])
            case InOrder(items):
                return sum(map(self._fewest, items))
            case OneOf(items):
                return min(map(self._fewest, items))
            case Named(branches):
                return min(len(text.data) + self._fewest(after) for text, after in branches)
            case AnyOrder(items, required):
                return sum(self._fewest(item) for item, is_required in zip(items, required, strict=True) if is_required)
            case Several(item, between, least):
                return least * self._fewest(item) + (least - 1) * len(between.data)
            case Free(exits):
                least = min((len(marker_data(each)) + self._fewest(after) for each, after in exits), default=NEVER)
                return 0 if piece.may_end else least


def _markers_of(free: Free) -> Markers:
    return markers_of(tuple(marker_data(each) for each in (*(marker for marker, _ in free.exits), *free.refused)))


def _check(piece: Piece, vocabulary: Vocabulary) -> None:
    """Raise OptionError for pieces that cannot be composed."""
    base = without_markers(vocabulary)
    for each in pieces_within(piece):
        spend(STEPS_PER_PIECE)
        if isinstance(each, Inner):
            check_guide(each.guide)
            inner = without_markers(each.guide.vocabulary)
            if inner is not base and inner.fingerprint != base.fingerprint:
                raise OptionError(f"{brief(each.guide)} was made for another vocabulary; make it with this one")
        elif isinstance(each, Free):
            _check_free(each)
        elif isinstance(each, Named) and not each.branches:
            raise OptionError("Named needs at least one branch")


def check_guide(guide: Any, what: str = "") -> None:
    """Raise OptionError for a guide that cannot be nested in other text. what: prefix of the message"""
    refusal: str = getattr(guide, "refuses_lowering", "")
    if isinstance(guide, type) or not callable(getattr(guide, "lower_into", None)):
        refusal = "guides of patterns, choices, machines, grammars and JSON can, and those of tags"
    if refusal:
        raise OptionError(f"{what}{brief(guide)} cannot be a part of other text: {refusal}")


def _check_free(free: Free) -> None:
    """Raise OptionError for free text that cannot end, and for conflicting markers."""
    if not free.exits and not free.may_end:
        raise OptionError("free text needs a marker that ends it, or may_end=True")
    exits = [marker_data(marker) for marker, _ in free.exits]
    refused = [marker_data(marker) for marker in free.refused]
    if not all([*exits, *refused]):
        raise OptionError("a marker of free text is empty; give a text, or the id of a token")
    for each in refused if exits else ():
        for end in range(1, len(each)):
            if any(marker.startswith(each[end:]) for marker in exits):
                raise OptionError(
                    f"the marker {each!r}, which is refused, ends with the beginning of a marker that is allowed"
                )
    if not all(each and each.isascii() for each in free.unlike):
        raise OptionError(f"free text unlike {brief(free.unlike)}: expected texts of ASCII characters")
