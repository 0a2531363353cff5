"""Many constant arrays or objects, read together: what has been read determines the candidates left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from ....kernels.chart.layout import CALL, EPSILON
from ...graph.graph import Link
from ...limits import spend
from ..algebra.cases import Number
from ..algebra.formula import json_key
from ..automata.spelling import spelt
from ..read.dialects import as_written, exact, is_array, is_object
from .numbers.literals import places_of_points, spellings, tail, written_exponents
from .rules import MAX_LENGTH, RuleLowering

FEW = 16
"""Maximum number of constants that are read separately."""

ZERO = Number(values=frozenset((0,)))

Key = str | int


class ConstantPlace(NamedTuple):
    """The constants left, by number, and the members or items read so far."""

    candidates: tuple[int, ...]
    used: frozenset[Key]


class ConstantPlaces:
    """Distinct constants, all objects or all arrays, at one depth in the current rule.

    targets: node after each constant; bytes_after: bytes from there to the node `end`
    """

    def __init__(
        self,
        owner: RuleLowering,
        constants: Sequence[Any],
        depth: int,
        end: int,
        targets: Sequence[int],
        bytes_after: Callable[[int], int],
    ) -> None:
        self._owner = owner
        self._graph = owner.graph
        self._depth = depth
        self._target = end
        self._targets = targets
        self._bytes_after = bytes_after
        self._in_order = is_array(constants[0]) or owner.form.order == "schema"
        self._named = is_object(constants[0])
        self._brackets = b"{}" if self._named else b"[]"
        self._parts = [_members(one) for one in constants]
        self._afters: dict[ConstantPlace, int] = {}
        self._members: dict[ConstantPlace, int] = {}

    def entry(self) -> int:
        """Return the node before the opening bracket."""
        owner, graph = self._owner, self._graph
        start = ConstantPlace(tuple(range(len(self._parts))), frozenset())
        links: list[Link] = []
        for target in self._ends(start):
            close = graph.literal(self._brackets[1:], target)
            links.append((EPSILON, owner.gap(owner.form.spacing.free(), close), 0))
        if self._goes_on(start):
            links.append(owner.first(self._member(start), self._depth))
        return graph.node(((self._brackets[0], self._brackets[0], graph.node(links=links)),))

    def _ends(self, place: ConstantPlace) -> list[int]:
        """Return the nodes after the constants that are complete."""
        count = len(place.used)
        return [self._targets[number] for number in place.candidates if len(self._parts[number]) == count]

    def _goes_on(self, place: ConstantPlace) -> bool:
        return any(len(self._parts[number]) > len(place.used) for number in place.candidates)

    def _unused(self, number: int, used: frozenset[Key]) -> Iterable[Key]:
        """Return the members of a constant that may come next."""
        unused = (key for key in self._parts[number] if key not in used)
        return [next(unused)] if self._in_order and len(self._parts[number]) > len(used) else unused

    def _member(self, place: ConstantPlace) -> int:
        """Return the node before the next member or item."""
        node = self._members.get(place)
        if node is None:
            before = 1 + self._owner.line(self._depth)
            node = self._members[place] = self._graph.lazy_node(
                lambda node: self._define(node, place), lambda: self._shortest(place, True) - before, self._target
            )
        return node

    def _define(self, node: int, place: ConstantPlace) -> None:
        """Define a node by the possible names, each with the constants that have it, or by the next item's values."""
        having: dict[Key, list[int]] = {}
        spend(100 * len(place.candidates))
        for number in place.candidates:
            for key in self._unused(number, place.used):
                having.setdefault(key, []).append(number)
        if not self._named:
            links = [link for key, candidates in having.items() for link in self._values(key, candidates, place.used)]
            self._graph.define(node, links=links)
            return
        entries = [(str(key), self._tail(str(key), candidates, place.used)) for key, candidates in having.items()]
        self._graph.define(node, links=self._texts(entries))

    def _texts(self, entries: list[tuple[str, int]]) -> list[Link]:
        """Return links to strings, each leading to its node."""
        owner = self._owner
        if owner.form.escapes == "canonical":
            return [(EPSILON, owner.lowering.tree([(spelt(text), after) for text, after in entries]), 0)]
        nodes = [owner.lowering.lower(owner.strings.literal(text), after) for text, after in entries]
        return [(EPSILON, node, 0) for node in nodes if node is not None]

    def _tail(self, key: Key, candidates: list[int], used: frozenset[Key]) -> int:
        """Return the node after a name: colon, value, and what comes after the member."""
        name = len(spelt(str(key)))
        return self._graph.lazy_node(
            lambda node: self._define_tail(node, key, candidates, used),
            lambda: (
                min(self._remaining_bytes(number, used) for number in candidates)
                - name
                - 1
                - self._owner.line(self._depth)
            ),
            self._target,
        )

    def _define_tail(self, node: int, key: Key, candidates: list[int], used: frozenset[Key]) -> None:
        values = self._graph.node(links=self._values(key, candidates, used))
        self._graph.define(node, links=(self._owner.colon(values),))

    def _values(self, key: Key, candidates: list[int], used: frozenset[Key]) -> list[Link]:
        """Return links to the values of a member or item, each leading to the constants that have it."""
        owner = self._owner
        by_value: dict[Any, list[int]] = {}
        for number in candidates:
            by_value.setdefault(json_key(self._parts[number][key]), []).append(number)
        spend(500 * len(by_value))
        links: list[Link] = []
        texts: list[tuple[str, int]] = []
        words: list[tuple[bytes, int]] = []
        containers: list[tuple[Any, int, ConstantPlace]] = []
        for numbers in by_value.values():
            value = self._parts[numbers[0]][key]
            after = self._after(ConstantPlace(tuple(numbers), used | {key}))
            if isinstance(value, str):
                texts.append((value, after))
            elif value is None or isinstance(value, bool):
                words.append(({None: b"null", True: b"true", False: b"false"}[value], after))
            elif is_array(value) or is_object(value):
                containers.append((value, after, ConstantPlace(tuple(numbers), used | {key})))
            else:
                words += self._number(value, after)
        if texts:
            links += self._texts(texts)
        if words:
            links.append((EPSILON, owner.lowering.tree(words), 0))
        return links + self._inner(containers)

    def _number(self, value: Any, after: int) -> Iterator[tuple[bytes, int]]:
        """Yield the texts of a number, or its mantissas, each with the node after it."""
        text, number, lower = as_written(value), exact(value), self._owner.lowering.lower
        if self._owner.form.spelling == "plain":
            yield text.encode(), after
        elif not number:
            yield b"", self._owner.graph.node(links=[(CALL, self._owner.number_rule(ZERO), after)])
        else:
            places = partial(places_of_points, exponents=written_exponents((text,)))
            for mantissa, exponent in spellings(number, places):
                behind = lower(tail(exponent, "." in mantissa, None), after)
                assert behind is not None, "what may be left out can be read"
                yield mantissa.encode(), behind

    def _inner(self, containers: list[tuple[Any, int, ConstantPlace]]) -> list[Link]:
        """Return links to arrays and objects, given as (value, node after it, its place)."""
        links: list[Link] = []
        for named in (True, False):
            kind = [one for one in containers if is_object(one[0]) == named]
            if kind:
                values, targets, places = zip(*kind, strict=True)
                inner = ConstantPlaces(
                    self._owner,
                    values,
                    self._depth + 1,
                    self._target,
                    targets,
                    lambda number, places=places: self._shortest(places[number], False),
                )
                links.append((EPSILON, inner.entry(), 0))
        return links

    def _after(self, place: ConstantPlace) -> int:
        """Return the node after a member or item: a comma and the next one, or the end."""
        node = self._afters.get(place)
        if node is None:
            node = self._afters[place] = self._graph.lazy_node(
                lambda node: self._define_after(node, place), lambda: self._shortest(place, False), self._target
            )
        return node

    def _define_after(self, node: int, place: ConstantPlace) -> None:
        owner = self._owner
        links: list[Link] = []
        for target in self._ends(place):
            close = self._graph.literal(self._brackets[1:], target)
            links.append((EPSILON, owner.gap(owner.form.spacing.at_end(self._depth), close), 0))
        if self._goes_on(place):
            links.append(owner.comma(self._member(place), self._depth))
        self._graph.define(node, links=links)

    def _shortest(self, place: ConstantPlace, going_on: bool) -> int:
        """Return the bytes after a member up to the end; going_on: only of constants with further members."""
        count = len(place.used)
        spend(500 * len(place.candidates))
        return min(
            self._remaining_bytes(number, place.used)
            for number in place.candidates
            if not going_on or len(self._parts[number]) > count
        )

    def _remaining_bytes(self, number: int, used: frozenset[Key]) -> int:
        """Return the bytes of a constant's remaining members, with separators, and the closing bracket."""
        owner = self._owner
        total = 1 + owner.last_line(self._depth) + self._bytes_after(number)
        before = 1 + owner.line(self._depth)
        for key, value in self._parts[number].items():
            if key not in used:
                name = len(spelt(str(key))) + 1 + bool(owner.line(0)) if self._named else 0
                total += before + name + owner.length_of(value, self._depth + 1)
        return min(total, MAX_LENGTH)


def _members(constant: Any) -> dict[Key, Any]:
    """Return the members of an object by name, or the items of an array by index."""
    return {**constant} if is_object(constant) else {index: constant[index] for index in range(len(constant))}


def container_kinds(constants: Iterable[Any]) -> list[list[Any]]:
    """Return the objects and the arrays among constants, as nonempty lists."""
    listed = list(constants)
    kinds = [[one for one in listed if is_object(one)], [one for one in listed if not is_object(one)]]
    return [kind for kind in kinds if kind]
