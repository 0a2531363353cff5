"""Small objects for the cases of a normal form, and the sets of names that its rules distinguish."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from ....errors import LimitError
from ...limits import spend
from ..algebra import objects, strings
from ..algebra.cases import Object, Rule, String
from ..algebra.formula import EVERYTHING, NOTHING, Formula
from ..algebra.normalise import Normaliser
from ..algebra.translate import UNREACHED
from .arrays import ReplayedItems, changes
from .instances import NO_INSTANCE, Ask, Several

FEW = 16
MANY_RULES = 8

ANY_NAME = String()


class ObjectInProgress(NamedTuple):
    """An object in progress: the names of its required members, and those found so far."""

    case: Object
    names: list[str]
    found: dict[str, Any]


class ObjectWitnesses:
    """Builds objects out of witnesses of their members."""

    def __init__(self, normaliser: Normaliser, several: Several) -> None:
        self._normaliser = normaliser
        self._several = several
        self._formulas = normaliser.formulas
        self._language = normaliser.language
        self._max_cases = normaliser.max_cases
        self._listed: dict[String, list[str] | None] = {}
        self._in_progress: ObjectInProgress | None = None

    def spread(self, case: Object) -> Iterator[Object]:
        """Yield the case as alternatives whose remaining `some` rules concern unlimited unnamed members."""
        spend(200)
        for position, rule in enumerate(case.some):
            spend(10 * len(case.properties))
            names = self._finite(rule.names)
            named = [name for name in case.properties if self._language.contains(rule.names, name)]
            if names is None and not named:
                continue
            left = case.some[:position] + case.some[position + 1 :]
            for name in dict.fromkeys([*named, *(names or ())]):
                known = case.properties.get(name, EVERYTHING)
                properties = {**case.properties, name: self._formulas.all_of((known, rule.formula))}
                required = case.required | {name}
                yield from self.spread(replace(case, properties=properties, required=required, some=left))
            if names is None:
                free = strings.exclude(rule.names, case.properties, self._language)
                if free is not None:
                    some = (*left[:position], Rule(free, rule.formula), *left[position:])
                    yield from self.spread(replace(case, some=some))
            return
        yield case

    def _finite(self, names: String) -> list[str] | None:
        """Return all names of a small set, or None if there are many."""
        if names.values is not None:
            return sorted(names.values)
        if not names.patterns and not names.formats and names.quote is None and (names.max_length or FEW) > 1:
            return None
        if names not in self._listed:
            found = self._language.examples(names, FEW + 1)
            self._listed[names] = found if len(found) <= FEW else None
        return self._listed[names]

    def _member(self, case: Object, name: str) -> Formula:
        return objects.member(case, name, self._formulas, self._language)

    def build(self, case: Object, ask: Ask) -> Any:
        """Return an object of the case, or NO_INSTANCE."""
        if case.either:
            return self._chosen(case, ask)
        if case.max_properties is not None and len(case.required) > case.max_properties:
            return NO_INSTANCE
        result = self._required(case, ask)
        if result is None:
            return NO_INSTANCE
        if case.some and not self._add_some(case, result, ask):
            return NO_INSTANCE
        if len(result) < case.min_properties and not self._add_more(case, result, ask):
            return NO_INSTANCE
        if case.max_properties is not None and len(result) > case.max_properties:
            return NO_INSTANCE
        return result

    def _required(self, case: Object, ask: Ask) -> dict[str, Any] | None:
        """Return the required members; None if one has no witness so far.

        When that witness is found, the object is requested again; one with many members then resumes here.
        """
        progress = self._in_progress
        if progress is None or progress.case is not case:
            spend(20 * len(case.properties))
            progress = ObjectInProgress(case, [name for name in case.properties if name in case.required], {})
            if len(progress.names) > FEW:
                self._in_progress = progress
        for at in range(len(progress.found), len(progress.names)):
            spend(100 + 50 * len(case.rules))
            name = progress.names[at]
            witness = ask(self._member(case, name))
            if witness is NO_INSTANCE:
                return None
            progress.found[name] = witness
        spend(len(progress.found))
        return dict(progress.found)

    def _chosen(self, case: Object, ask: Ask) -> Any:
        """Return `build` of a case with groups: the first combination of alternatives that has an object."""
        spend(500)
        if self.build(replace(case, either=()), ask) is NO_INSTANCE:
            return NO_INSTANCE
        for one in self.split(case):
            for part in self.spread(one):
                found = self.build(part, ask)
                if found is not NO_INSTANCE:
                    return found
        return NO_INSTANCE

    def split(self, case: Object) -> Iterator[Object]:
        """Yield the case with each alternative of its smallest group, which narrows the other groups."""
        smallest = min(case.either, key=len)
        others = replace(case, either=tuple(group for group in case.either if group is not smallest))
        for one in smallest:
            both = self._normaliser.both_objects(others, one)
            if both is not None:
                yield both

    def multiplied(self, cases: list[Object]) -> Iterator[Object]:
        """Yield the cases as alternatives without groups. Raises LimitError for too many, dead ends included."""
        waiting = cases[::-1]
        count = 0
        while waiting:
            spend(500)
            one = waiting.pop()
            if one.either:
                waiting.extend(reversed(list(self.split(one))))
            else:
                yield from self.spread(one)
            count += 1
            if count > self._max_cases:
                raise LimitError(
                    f"an object with bounds on how many members it has falls into more than {self._max_cases} "
                    "alternatives; the option max_cases raises the limit"
                )

    def _add_some(self, case: Object, result: dict[str, Any], ask: Ask) -> bool:
        """Add an unnamed member for every `some`; a member serves several rules only if the maximum requires it."""
        room = len(case.some) if case.max_properties is None else case.max_properties - len(result)
        for groups in _partitions(list(case.some), room):
            added = dict(result)
            if all(self._add_member(case, group, added, ask) for group in groups):
                result.update(added)
                return True
        return False

    def _add_member(self, case: Object, group: list[Rule], added: dict[str, Any], ask: Ask) -> bool:
        names: String | None = group[0].names
        for rule in group[1:]:
            names = None if names is None else strings.intersect(names, rule.names, self._language)
        if names is None:
            return False
        wanted = [rule.formula for rule in group]
        for part, formula in self.regions(case, names):
            found = ask(self._formulas.all_of([formula, *wanted]))
            if found is NO_INSTANCE:
                continue
            fresh = self._names(strings.exclude(part, added, self._language), 1)
            if fresh:
                added[fresh[0]] = found
                return True
        return False

    def _add_more(self, case: Object, result: dict[str, Any], ask: Ask) -> bool:
        """Add optional members until there are enough."""
        for name in case.properties:
            if len(result) >= case.min_properties:
                return True
            if name not in result:
                found = ask(self._member(case, name))
                if found is not NO_INSTANCE:
                    result[name] = found
        for part, formula in self.regions(case, ANY_NAME):
            missing = case.min_properties - len(result)
            if missing <= 0:
                return True
            spend(100 * min(missing, UNREACHED))
            found = ask(formula)
            if found is not NO_INSTANCE:
                fresh = self._names(strings.exclude(part, result, self._language), missing)
                result.update(dict.fromkeys(fresh, found))
        return len(result) >= case.min_properties

    def _names(self, names: String | None, count: int) -> list[str]:
        """Return up to `count` names of a set."""
        if names is None:
            return []
        if names != String(excluded=names.excluded):
            return self._language.examples(names, count)
        numbered = (f"a{index}" for index in range(count + len(names.excluded)))
        return [name for name in numbered if name not in names.excluded][:count]

    def regions(self, case: Object, names: String) -> list[tuple[String, Formula]]:
        """Return disjoint sets of the unnamed members in `names`, with the formula of each."""
        free = strings.exclude(names, case.properties, self._language)
        parts: list[tuple[String, Formula]] = [] if free is None else [(free, EVERYTHING)]
        for rule in case.rules:
            split: list[tuple[String, Formula]] = []
            for part, formula in parts:
                spend(1000)
                inside = strings.intersect(part, rule.names, self._language)
                if inside is None or self._is_empty(inside.patterns):
                    split.append((part, formula))
                    continue
                split.append((self._tidied(inside), self._formulas.all_of((formula, rule.formula))))
                if inside != part:
                    outside = strings.difference(part, rule.names, self._language)
                    split.extend((other, formula) for other in outside)
            parts = [(part, formula) for part, formula in split if formula is not NOTHING]
            if len(parts) > self._max_cases:
                raise LimitError(
                    f"the patterns of an object tell more than {self._max_cases} sets of names apart; "
                    "the option max_cases raises the limit"
                )
        return parts

    def _is_empty(self, patterns: frozenset[str]) -> bool:
        """Test whether no name matches several patterns; otherwise each pattern would double the regions."""
        if len(patterns) < 2:
            return False
        try:
            return self._language.is_empty(String(patterns=patterns))
        except LimitError:
            return False

    def _tidied(self, names: String) -> String:
        """Return the same names without conditions that the patterns imply."""
        if not names.patterns or not (names.not_patterns or names.excluded):
            return names
        matching = String(patterns=names.patterns)
        return replace(
            names,
            not_patterns=frozenset(one for one in names.not_patterns if not self._is_empty(names.patterns | {one})),
            excluded=frozenset(name for name in names.excluded if self._language.contains(matching, name)),
        )

    def more(self, case: Object, count: int, ask: Ask) -> Iterator[Any]:
        """Yield further objects of the case: with other values, and with further members."""
        base = self.build(case, ask)
        if base is NO_INSTANCE:
            return
        members = ReplayedItems(self._others(case, base, count, ask))

        def changed(base: dict[str, Any]) -> Iterator[dict[str, Any]]:
            for name, value in members:
                yield {**base, name: value}

        for found in changes([base], changed, count):
            if self._normaliser.membership.in_object(case, found):
                yield found

    def _others(self, case: Object, base: dict[str, Any], count: int, ask: Ask) -> Iterator[tuple[str, Any]]:
        """Yield members that an object may have in place of its own, or in addition."""
        for name in (*base, *(name for name in case.properties if name not in base)):
            for value in self._several(self._member(case, name), count, ask):
                yield name, value
        for part, formula in self.regions(case, ANY_NAME):
            value = ask(formula)
            if value is not NO_INSTANCE:
                for name in self._names(part, count):
                    yield name, value


def _partitions(rules: list[Rule], room: int) -> Iterator[list[list[Rule]]]:
    """Yield the partitions of rules into at most `room` groups, most groups first."""
    if room >= len(rules) > MANY_RULES:
        yield [[rule] for rule in rules]
        return
    yield from _grown(rules, [], room)


def _grown(rules: list[Rule], groups: list[list[Rule]], room: int) -> Iterator[list[list[Rule]]]:
    spend(300)
    if not rules:
        yield groups
        return
    first, rest = rules[0], rules[1:]
    if len(groups) < room:
        yield from _grown(rest, [*groups, [first]], room)
    for position, group in enumerate(groups):
        joined = [*groups[:position], [*group, first], *groups[position + 1 :]]
        yield from _grown(rest, joined, room)
