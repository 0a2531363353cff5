"""The members that an object may have by name, and the names of all others.

With n patterns up to 2^n sets of names may have different formulas. With many patterns these are not listed
(`NameChoice`): one automaton reads names under all patterns, with states made on demand. The state at the end of a name
determines the formula of the value.

Some objects must not repeat a name that the schema does not list (`FreeNames`). JSON readers keep the last value of a
repeated name. Since all values of a name satisfy its formula, this matters only if members are counted, or if `some`
member must satisfy a formula: that one may be overwritten. Such names are remembered (`guides/distinct`), as the graph
knows only their shapes. The promised lengths allow for longer names, since the shortest may be used already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

from .....errors import SchemaError
from .....kernels.answers import NEVER
from ....automata.charsets import ALL
from ....syntax import Chars, Node, Repeat
from ...algebra.cases import Object, Rule, String
from ...algebra.formula import EVERYTHING, NOTHING, Formula
from ...algebra.objects import only_names
from ...algebra.strings import is_plain
from ...automata.conjunction import Conjunction, any_of, conditions_of
from ...automata.demand import MetConditions
from ...automata.spelling import spelt
from ...compiled import CompiledSchema
from ..rules import RuleLowering
from ..strings.places import AutomatonPlaces

MANY_RULES = 6
"""Minimum number of rules on names whose regions are not listed."""


def has_many_rules(case: Object) -> bool:
    """Test whether an object has many rules with patterns, and they decide about values only."""
    return sum(bool(rule.names.patterns) for rule in case.rules) >= MANY_RULES and not case.some


class NameChoice:
    """The names that an object does not list, and the formulas of their values."""

    def __init__(self, owner: RuleLowering, case: Object, depth: int) -> None:
        self._owner = owner
        self._rules = case.rules
        self._depth = depth
        self._formulas: dict[MetConditions, Formula] = {}
        conditions: dict[object, tuple[int, Node]] = {}
        self._conditions = [_numbered(rule.names, conditions) for rule in case.rules]
        self._named = len(conditions)
        nodes = [node for _, node in conditions.values()]
        if case.properties:
            nodes.append(any_of(case.properties))
        self.names = Conjunction(nodes, verdict=self._cost)

    def formula(self, met_conditions: MetConditions) -> Formula:
        """Return the formula of a member whose name meets exactly these conditions."""
        known = self._formulas.get(met_conditions)
        if known is None:
            formulas = self._owner.schema.formulas
            known = self._formulas[met_conditions] = formulas.all_of(
                rule.formula
                for rule, conditions in zip(self._rules, self._conditions, strict=True)
                if all(met_conditions[number] == wanted for number, wanted in conditions)
            )
        return known

    def _cost(self, met_conditions: MetConditions) -> int:
        """Return the bytes of colon and value; NEVER if there is no value or the object lists the name."""
        if any(met_conditions[self._named :]):
            return NEVER
        formula = self.formula(met_conditions)
        if not self._owner.schema.has_instance(formula):
            return NEVER
        return self._owner.length_after_name(formula, self._depth)

    @property
    def shortest(self) -> int:
        """The bytes of a short member, NEVER if there is none."""
        needed = self.names.needed(self.names.start)
        return needed if needed >= NEVER else 2 + needed

    def entry(self, tail: Callable[[Formula], int], end: int, after: int) -> int:
        """Return the node before a name; each name continues at the tail of its formula.

        after: bytes from there to the node `end`
        """
        names, owner = self.names, self._owner
        places = AutomatonPlaces(
            owner.lowering,
            owner.form.escapes,
            names,
            lambda state: tail(self.formula(names.met_conditions(state))),
            end,
            after,
        )
        return places.entry()


def _numbered(names: String, conditions: dict[object, tuple[int, Node]]) -> Sequence[tuple[int, bool]]:
    """Return the conditions on names as (number, must it be met); new ones are added to `conditions`."""
    wanted: list[tuple[object, Node, bool]] = [(("syntax", node), node, holds) for node, holds in conditions_of(names)]
    if names.values is not None:
        wanted.append((("texts", names.values), any_of(names.values), True))
    if names.excluded:
        wanted.append((("texts", names.excluded), any_of(names.excluded), False))
    if names.min_length or names.max_length is not None:
        node = Repeat(Chars(ALL), names.min_length, names.max_length)
        wanted.append((("syntax", node), node, True))
    return [(conditions.setdefault(key, (len(conditions), node))[0], holds) for key, node, holds in wanted]


FEW_NAMES = 16
"""Maximum size of a set of names that is listed if `some` member must be in it."""
EXTRA_BYTES, EXTRA_BYTES_FOR_SOME = 4, 8
"""Minimum bytes by which a required name may exceed a shortest one; the second where many candidates may be used up."""
MAX_BYTES = 1000


class FreeNames:
    """The members that an object does not list, as disjoint sets of names with the formulas of their values.

    sets: the sets; each is inside or outside the names of every rule in the object's `some`
    may_matter: whether the object's conditions depend on names being unique
    """

    def __init__(self, schema: CompiledSchema, case: Object, apart: tuple[Rule, ...] = ()) -> None:
        self._schema = schema
        self._case = case
        may_matter = not apart and repeats_matter(case)
        apart += tuple(Rule(rule.names, EVERYTHING) for rule in case.some)
        self.sets = schema.regions(replace(case, rules=(*case.rules, *apart)) if apart else case)
        self.may_matter = may_matter and (is_counted(case) or self._some_are_free())

    def _some_are_free(self) -> bool:
        """Test whether a `some` rule overlaps one of the sets."""
        overlaps = self._schema.overlaps
        return any(overlaps(rule.names, names) for rule in self._case.some for names, _ in self.sets)

    @cached_property
    def listed(self) -> list[list[str] | None]:
        """For each set its names, if they are given or so few that required members may use them up; else None."""
        return [sorted(names.values) if names.values is not None else self._few(names) for names, _ in self.sets]

    def _few(self, names: String) -> list[str] | None:
        if not self.may_matter or is_endless(names):
            return None
        found = self._schema.language.examples(names, self._enough + 1)
        return found if len(found) <= self._enough else None

    @property
    def _enough(self) -> int:
        """The size from which a set cannot run out of names for required members."""
        return max(self._case.min_properties, FEW_NAMES if self._case.some else 0)

    @property
    def must_differ(self) -> bool:
        """Test whether names of the sets that are not listed must be unique."""
        return self.may_matter and None in self.listed

    def extra_name_bytes(self, shortest: Callable[[String], int], pointer: str) -> int:
        """Return the bytes by which an unused name may exceed the shortest name of its set; 0 if there are no sets.

        shortest: bytes of a shortest name. Raises SchemaError if names grow without limit.
        """
        if not self.may_matter:
            return 0
        if not is_counted(self._case):
            return EXTRA_BYTES_FOR_SOME
        open_sets = [names for (names, _), few in zip(self.sets, self.listed, strict=True) if few is None]
        more = [EXTRA_BYTES_FOR_SOME if self._case.some else EXTRA_BYTES] if open_sets else [0]
        for names in open_sets:
            if not is_endless(names):
                longest = max(len(spelt(name)) for name in self._schema.language.examples(names, self._enough))
                if longest > MAX_BYTES:
                    raise SchemaError("names that must be there, and differ, take more than a thousand bytes", pointer)
                more.append(longest - shortest(names))
        return max(more)


def free_names(schema: CompiledSchema, case: Object, apart: tuple[Rule, ...] = ()) -> FreeNames:
    """Return the members that an object does not list; apart: further rules that each set is inside or outside of."""
    if apart or not repeats_matter(case):
        return FreeNames(schema, case, apart)
    known = schema.free_names.get(case)
    if known is None:
        known = schema.free_names[case] = FreeNames(schema, case)
    return known


def repeats_matter(case: Object) -> bool:
    """Test whether the counts or `some` rules of an object may depend on unique names."""
    return not case.either and (bool(case.some) or is_counted(case))


def is_counted(case: Object) -> bool:
    """Test whether at least two members are required that are not required by name."""
    return case.min_properties - len(case.required) >= 2


def is_endless(names: String) -> bool:
    """Test whether a set has no conditions but a minimum length, so that it has endless short names."""
    return is_plain(names) and names.max_length is None


MAX_NAMES = 100_000
"""Maximum number of names, in any order, with a bit each."""
MAX_BITS = 30
"""Maximum number of names in a fixed order: their bits are in one int."""


class MemberNames:
    """The names of an object case's members.

    names, formulas: members that may be named, those of the schema first, in its order
    schema_names: number of those in fixed order
    regions: sets of other names, each with the formula of the values
    choice: all other names in one automaton, where regions would be too many
    required: required names, as bits
    must_differ: whether the object's conditions require that other names are unique

    apart: further rules that each region is inside or outside of
    """

    def __init__(self, owner: RuleLowering, case: Object, depth: int, apart: tuple[Rule, ...] = ()) -> None:
        schema = owner.schema
        self.names: list[str] = []
        self.formulas: list[Formula] = []
        self.regions: list[tuple[String, Formula]] = []
        for name, listed_formula in case.properties.items():
            formula = schema.member(case, name) if case.rules else listed_formula
            if name in case.required or (formula is not NOTHING and schema.has_instance(formula)):
                self.names.append(name)
                self.formulas.append(formula)
        self.must_differ = False
        self.required = sum(1 << index for index, name in enumerate(self.names) if name in case.required)
        self.schema_names = len(self.names) if owner.form.order == "schema" else 0
        self.choice: NameChoice | None = None
        if not apart and self.are_few and uncounted(case) and has_many_rules(case):
            choice = NameChoice(owner, case, depth)
            self.choice = choice if choice.shortest < NEVER else None
            return
        if not (case.rules or case.some or apart or is_counted(case)):
            self.regions.append((String(excluded=frozenset(case.properties)), EVERYTHING))
            return
        allowed = only_names(case)
        if allowed is not None and allowed <= case.properties.keys():
            return
        free = free_names(schema, case, apart)
        for (names, formula), listed in zip(free.sets, free.listed, strict=True):
            if listed is None:
                self.regions.append((names, formula))
            else:
                self.names += listed
                self.formulas += [formula] * len(listed)
        self.must_differ = free.must_differ

    @property
    def are_few(self) -> bool:
        """True if there can be a bit for each name."""
        return len(self.names) <= (MAX_NAMES if self.schema_names == 0 else MAX_BITS)

    @property
    def others(self) -> bool:
        """True if members may have other names."""
        return bool(self.regions) or self.choice is not None


def uncounted(case: Object) -> bool:
    """Test whether the number of members does not matter."""
    return case.max_properties is None and case.min_properties <= len(case.required)
