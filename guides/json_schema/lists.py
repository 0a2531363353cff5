"""Arrays of a schema as pieces of graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import LimitError, SchemaError
from ...kernels.chart import CALL, EPSILON, INCREMENT, LEAVE, UNBOUNDED
from ..graph import Link
from . import arrays
from .cases import Array, Contains
from .formula import NOTHING, Formula, json_key

if TYPE_CHECKING:
    from .lowering import SchemaLowering

MAX_DEPTH = 250


class Place(NamedTuple):
    """How far an array has come: items so far; for each `contains` how many count, for unique items the keys used."""

    length: int
    counts: tuple[int, ...]
    used: frozenset[Any]


class Items:
    """One array case at one depth, in the current rule, before the node `target`."""

    def __init__(self, owner: SchemaLowering, case: Array, depth: int, target: int) -> None:
        self._owner = owner
        self._graph = owner.graph
        self._case = case
        self._depth = depth
        self._afters: dict[Any, int] = {}
        self._alive: dict[Place, bool] = {}
        spacing = owner.form.spacing
        bracket = owner.text(b"]", target)
        self._close = owner.gap(spacing.at_end(depth), bracket)
        self._close_empty = owner.gap(spacing.when_empty(), bracket)
        self._target = target
        self._rest_exists = case.rest is not NOTHING and owner.schema.has_instance(case.rest)

    def entry(self) -> int | None:
        """The node before the opening bracket; None if there is no such array."""
        links = self._tracked() if self._case.contains or self._case.unique is not None else self._plain()
        if not links:
            return None
        return self._graph.node(((0x5B, 0x5B, self._graph.node(links=links)),))

    def _item(self, formula: Formula, after: int) -> int:
        """The node before an item of a formula that leads to the node `after`."""
        return self._graph.node(links=((CALL, self._owner.value(formula, self._depth + 1), after),))

    def _first(self, item: int) -> Link:
        """From the opening bracket to the first item."""
        return (EPSILON, self._owner.gap(self._owner.form.spacing.inside(self._depth), item), 0)

    def _comma(self, item: int) -> Link:
        """From behind an item to the next."""
        owner, spacing = self._owner, self._owner.form.spacing
        comma = owner.text(b",", owner.gap(spacing.after_comma(self._depth), item))
        return (EPSILON, owner.gap(spacing.before_comma(), comma), 0)

    # Arrays whose items depend on nothing but their index

    def _plain(self) -> list[Link]:
        case, has_instance = self._case, self._owner.schema.has_instance
        prefix: list[Formula] = []
        most = UNBOUNDED if case.max_items is None else case.max_items
        for formula in case.prefix[:most]:
            if formula is NOTHING or not has_instance(formula):
                most = len(prefix)
                break
            prefix.append(formula)
        if len(prefix) == len(case.prefix) and not self._rest_exists:
            most = min(most, len(prefix))
        if most < case.min_items:
            return []
        links: list[Link] = [(EPSILON, self._close_empty, 0)] if case.min_items == 0 else []
        if most == 0:
            return links
        if prefix:
            after = self._after_prefix(prefix, most)
            return [*links, self._first(self._item(prefix[0], after))]
        least = max(0, case.min_items - 1)
        after = self._loop(least, most if most == UNBOUNDED else most - 1)
        return [*links, self._first(self._item(case.rest, after))]

    def _after_prefix(self, prefix: list[Formula], most: int) -> int:
        """The node after the first item of the prefix."""
        case, count = self._case, len(prefix)
        if most > count:
            after = self._loop(max(0, case.min_items - count), most if most == UNBOUNDED else most - count)
        else:
            after = self._close
        for index in range(count - 1, 0, -1):
            links = [self._comma(self._item(prefix[index], after))]
            if index >= case.min_items:
                links.append((EPSILON, self._close, 0))
            after = self._graph.node(links=links)
        return after

    def _loop(self, least: int, most: int) -> int:
        """The node after an item from which `least` to `most` further items follow, then the end."""
        if most == 0:
            return self._close
        graph, rest = self._graph, self._case.rest
        if least == 0 and most == UNBOUNDED:
            head = graph.reserve()
            return graph.define(head, links=(self._comma(self._item(rest, head)), (EPSILON, self._close, 0)))
        counter = graph.counter_for(least, most)
        head = graph.reserve()  # outside the counter: the first item returns to it with nothing counted
        graph.counter = counter
        turn = graph.node(links=((INCREMENT, head, counter),))
        comma = self._comma(self._item(rest, turn))
        graph.counter = 0
        return graph.define(head, links=((EPSILON, comma[1], counter), (LEAVE, self._close, counter)))

    # Arrays whose items depend on the items before

    def _tracked(self) -> list[Link]:
        case = self._case
        if case.unique is False:
            raise SchemaError("arrays in which some two items are equal cannot be enforced", "#/uniqueItems")
        start = Place(0, (0,) * len(case.contains), frozenset())
        if not self._is_alive(start, 0):
            return []
        links: list[Link] = [(EPSILON, self._close_empty, 0)] if self._may_end(start) else []
        steps = [step for step in self._steps(start) if self._is_alive(step[1], 0)]
        if steps:
            links.append(self._first(self._alternatives(steps)))
        return links

    def _alternatives(self, steps: list[tuple[Formula, Place]]) -> int:
        """The node before an item that may be of any of the formulas, each with the place after it."""
        return self._graph.node(
            links=[(EPSILON, self._item(formula, self._after(place)), 0) for formula, place in steps]
        )

    def _after(self, place: Place) -> int:
        node = self._afters.get(place)
        if node is None:
            node = self._afters[place] = self._graph.lazy_node(
                lambda node: self._define_after(node, place), lambda: self._shortest(place), self._target
            )
        return node

    def _define_after(self, node: int, place: Place) -> None:
        links: list[Link] = [(EPSILON, self._close, 0)] if self._may_end(place) else []
        steps = [step for step in self._steps(place) if self._is_alive(step[1], 0)]
        if steps:
            links.append(self._comma(self._alternatives(steps)))
        self._graph.define(node, links=links)

    def _may_end(self, place: Place) -> bool:
        case = self._case
        enough = all(count >= part.min for count, part in zip(place.counts, case.contains, strict=True))
        return enough and place.length >= case.min_items

    def _steps(self, place: Place) -> list[tuple[Formula, Place]]:
        """The items that may come next: the formula of each kind, and the place after it."""
        case, schema = self._case, self._owner.schema
        if case.max_items is not None and place.length >= case.max_items:
            return []
        kinds = [(arrays.item(case, place.length), place._replace(length=self._following(place.length)))]
        for number, part in enumerate(case.contains):
            if place.length >= part.start:
                kinds = [split for kind in kinds for split in self._split(kind, number, part)]
        steps = [(formula, after) for formula, after in kinds if schema.has_instance(formula)]
        return self._unique(steps) if case.unique else steps

    def _following(self, index: int) -> int:
        """The index of the next item, as far as it matters."""
        case = self._case
        matters = [len(case.prefix), case.min_items, *(part.start for part in case.contains)]
        if case.max_items is not None:
            matters.append(case.max_items)
        return min(index + 1, max(matters))

    def _split(self, kind: tuple[Formula, Place], number: int, part: Contains) -> list[tuple[Formula, Place]]:
        """An item with and without counting for one `contains`."""
        formula, place = kind
        formulas = self._owner.schema.formulas
        count = place.counts[number]
        found: list[tuple[Formula, Place]] = []
        if part.max is None:
            found.append(kind)
        else:
            found.append((formulas.all_of((formula, formulas.negation(part.formula))), place))
        if part.max is None or count < part.max:
            more = count + 1 if part.max is not None else min(count + 1, part.min)
            if part.max is not None or count < part.min:
                counts = (*place.counts[:number], more, *place.counts[number + 1 :])
                found.append((formulas.all_of((formula, part.formula)), place._replace(counts=counts)))
        return found

    def _unique(self, steps: list[tuple[Formula, Place]]) -> list[tuple[Formula, Place]]:
        """The single values of the steps that are not used yet."""
        formulas = self._owner.schema.formulas
        found: list[tuple[Formula, Place]] = []
        for formula, after in steps:
            values = self._owner.constants(formula)
            if values is None:
                if self._case.max_items is not None and self._case.max_items <= 1:
                    return steps
                raise SchemaError(
                    "uniqueItems can be enforced only for items out of finitely many values (enum, const, boolean)",
                    "#/uniqueItems",
                )
            for value in values:
                key = json_key(value)
                if key not in after.used:
                    found.append((formulas.values((value,)), after._replace(used=after.used | {key})))
        return found

    def _is_alive(self, place: Place, depth: int) -> bool:
        """Whether the array can still be completed."""
        known = self._alive.get(place)
        if known is None:
            if depth > MAX_DEPTH:
                raise LimitError(f"contains and uniqueItems are limited to {MAX_DEPTH} items that must be there")
            self._alive[place] = False
            known = self._may_end(place) or any(self._is_alive(after, depth + 1) for _, after in self._steps(place))
            self._alive[place] = known
        return known

    def _shortest(self, place: Place) -> int:
        """Bytes after an item to after the closing bracket, along the shortest items."""
        line = self._owner.line(self._depth)
        total = 0
        while not self._may_end(place):
            steps = [step for step in self._steps(place) if self._is_alive(step[1], 0)]
            formula, after = min(
                steps, key=lambda step: (self._missing(step[1]), self._owner.shortest(step[0], self._depth + 1))
            )
            total += 1 + line + self._owner.shortest(formula, self._depth + 1)
            place = after
        return total + self._owner.last_line(self._depth) + 1

    def _missing(self, place: Place) -> int:
        parts = zip(place.counts, self._case.contains, strict=True)
        return max(self._case.min_items - place.length, 0) + sum(max(part.min - count, 0) for count, part in parts)
