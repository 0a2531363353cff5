"""The body of a formula's rule made as a stencil, with holes in place of the rules that it calls."""

from __future__ import annotations

from collections import Counter

from ....kernels.chart.layout import CALL, EPSILON
from ...syntax import Node
from ..algebra.cases import ANY_ARRAY, ANY_NUMBER, Number, String
from ..algebra.formula import EVERYTHING, Formula
from ..compiled import CompiledSchema
from .arrays import Items
from .form import Form
from .formulas import FormulaLowering
from .stencil_graph import ITEMS, NUMBER, SPACE, STRING, StencilGraph
from .stencils import Stencil


class StencilLowering(FormulaLowering):
    """As its base, with holes in place of the rules that are called."""

    def __init__(self, schema: CompiledSchema, form: Form) -> None:
        self._outline = StencilGraph()
        super().__init__(schema, form, graph=self._outline)
        self._made: Counter[str] = Counter()
        self._kinds: list[Node] = []
        self._whole: int | None = None

    def stencil(self, formula: Formula, depth: int, *, is_member: bool) -> Stencil:
        """The body of a formula's rule, or of that of its members; `depth` is the value's."""
        start = self._outline.begin_rule()
        self.define_body(start, formula, depth, is_member=is_member)
        final, after = self._outline.final_node(), self._outline.guarded_node()
        fragment, holes = self._outline.fragment(), tuple(self._outline.holes)
        return Stencil(fragment, holes, tuple(self._kinds), final, self._outline.promising, after)

    def anything(self) -> Stencil:
        """The rule of any value, which calls itself."""
        start = self._outline.begin_rule()
        self._whole = start
        final = self._outline.final()
        words = [(EPSILON, self._outline.literal(word, final), 0) for word in (b"null", b"true", b"false")]
        rules = [(CALL, rule, final) for rule in (self.number_rule(ANY_NUMBER), self._next(STRING))]
        array = Items(self, ANY_ARRAY, EVERYTHING, 0, final).entry()
        assert array is not None
        containers = [(EPSILON, entry, 0) for entry in (array, self._any_object(start, final))]
        self._outline.define(start, links=[*words, *rules, *containers])
        return Stencil(self._outline.fragment(), tuple(self._outline.holes), tuple(self._kinds), final, 0, 0)

    def _any_object(self, value: int, target: int) -> int:
        """The entry of an object whose members are of this rule."""
        graph, spacing = self._outline, self.form.spacing
        end = self.text(b"}", target)
        name = graph.reserve()
        comma = self.text(b",", self.gap(spacing.after_comma(0), name))
        more, close = self.gap(spacing.before_comma(), comma), self.gap(spacing.at_end(0), end)
        after = graph.node(links=((EPSILON, close, 0), (EPSILON, more, 0)))
        graph.define(name, links=((CALL, self._next(STRING), self.colon(value, after)),))
        empty, inside = self.gap(spacing.when_empty(), end), self.gap(spacing.inside(0), name)
        return graph.node(((0x7B, 0x7B, graph.node(links=((EPSILON, empty, 0), (EPSILON, inside, 0)))),))

    def value(self, formula: Formula, depth: int) -> int:
        """A hole, since items are all alike; the rule itself where that is any value."""
        return self._outline.hole(ITEMS) if self._whole is None else self._whole

    def number_rule(self, case: Number) -> int:
        """A hole."""
        return self._next(NUMBER)

    def string_rule(self, case: String) -> int | None:
        """A hole."""
        return self._next(STRING)

    def space_rule(self, space: Node) -> int:
        """A hole, of which a kind of white space has the same each time."""
        self._kinds.append(space)
        return self._next(SPACE)

    def _next(self, kind: str) -> int:
        self._made[kind] += 1
        return self._outline.hole(kind, self._made[kind] - 1)
