"""The members that an object may have by name, and the names of all others.

Where many rules tell names apart, n patterns may tell 2^n sets of them apart, each with another formula. They are not
listed (`NameChoice`): one automaton reads the names under all patterns at once, and its states are made when they are
reached. What a member's value satisfies is known when its name ends.

A name that the schema does not mention must come once only in some objects (`FreeNames`). Whoever reads a text keeps
the last value of a name that is there twice. All values of a name satisfy what is asked of that name, so that this
matters only where members are counted, or where some member must satisfy something: what did may be one that is not
kept. There names are remembered (`guides/distinct`), as the graph has only their shapes; and a short text that needs
names promises the bytes of longer ones, since the shortest may be there already.
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
from ...automata.demand import Met
from ...automata.spelling import spelt
from ...compiled import CompiledSchema
from ..rules import RuleLowering
from ..strings.places import AutomatonPlaces

MANY_RULES = 6
"""From how many rules on names their regions are not listed."""


def has_many_rules(case: Object) -> bool:
    """Tell whether an object has many rules on names, and only values depend on which of them a member meets."""
    return sum(bool(rule.names.patterns) for rule in case.rules) >= MANY_RULES and not case.some


class NameChoice:
    """The names that an object does not name itself, and what the values of their members satisfy."""

    def __init__(self, owner: RuleLowering, case: Object, depth: int) -> None:
        self._owner = owner
        self._rules = case.rules
        self._depth = depth
        self._formulas: dict[Met, Formula] = {}
        conditions: dict[object, tuple[int, Node]] = {}
        self._asked = [_numbered(rule.names, conditions) for rule in case.rules]
        self._named = len(conditions)
        nodes = [node for _, node in conditions.values()]
        if case.properties:
            nodes.append(any_of(case.properties))
        self.names = Conjunction(nodes, verdict=self._cost)

    def formula(self, met: Met) -> Formula:
        """The formula of a member whose name meets these conditions."""
        known = self._formulas.get(met)
        if known is None:
            formulas = self._owner.schema.formulas
            known = self._formulas[met] = formulas.all_of(
                rule.formula
                for rule, asked in zip(self._rules, self._asked, strict=True)
                if all(met[number] == wanted for number, wanted in asked)
            )
        return known

    def _cost(self, met: Met) -> int:
        """The bytes of colon and value, NEVER if there is no value or the object names the member itself."""
        if any(met[self._named :]):
            return NEVER
        formula = self.formula(met)
        if not self._owner.schema.has_instance(formula):
            return NEVER
        return self._owner.length_after_name(formula, self._depth)

    @property
    def shortest(self) -> int:
        """The bytes of a short member, NEVER if there is none."""
        needed = self.names.needed(self.names.start)
        return needed if needed >= NEVER else 2 + needed

    def entry(self, tail: Callable[[Formula], int], end: int, after: int) -> int:
        """The node before a name, each of which leads on to the tail of its formula.

        after: the bytes from there to the node `end`
        """
        names, owner = self.names, self._owner
        places = AutomatonPlaces(
            owner.lowering, owner.form.escapes, names, lambda state: tail(self.formula(names.met(state))), end, after
        )
        return places.entry()


def _numbered(names: String, conditions: dict[object, tuple[int, Node]]) -> Sequence[tuple[int, bool]]:
    """The conditions on names, each as its number and whether it must be met; new ones are added."""
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
"""Up to how many names of a set are listed where some member must be of it."""
SPARE, SPARE_FOR_SOME = 4, 8
"""How many bytes longer than a shortest name one is that must be there, at least: out of a few, and out of many."""
MOST_BYTES = 1000


class FreeNames:
    """The members that an object does not name, as disjoint sets of names, each with what their values satisfy.

    told: the sets, told apart by whether they meet each of the object's `some`
    may_matter: whether names must be there once only, for what is asked of the object to hold
    """

    def __init__(self, schema: CompiledSchema, case: Object, apart: tuple[Rule, ...] = ()) -> None:
        self._schema = schema
        self._case = case
        may_matter = not apart and repeats_matter(case)
        apart += tuple(Rule(rule.names, EVERYTHING) for rule in case.some)
        self.told = schema.regions(replace(case, rules=(*case.rules, *apart)) if apart else case)
        self.may_matter = may_matter and (is_counted(case) or self._some_are_free())

    def _some_are_free(self) -> bool:
        """Tell whether a member that must satisfy something may be of one of the sets."""
        overlaps = self._schema.overlaps
        return any(overlaps(rule.names, names) for rule in self._case.some for names, _ in self.told)

    @cached_property
    def listed(self) -> list[list[str] | None]:
        """The names of each set of which they are known, or so few that members that must be there may use them up."""
        return [sorted(names.values) if names.values is not None else self._few(names) for names, _ in self.told]

    def _few(self, names: String) -> list[str] | None:
        if not self.may_matter or is_endless(names):
            return None
        found = self._schema.language.examples(names, self._enough + 1)
        return found if len(found) <= self._enough else None

    @property
    def _enough(self) -> int:
        """The number of names a set must have so that it does not run out of them while members must come."""
        return max(self._case.min_properties, FEW_NAMES if self._case.some else 0)

    @property
    def must_differ(self) -> bool:
        """Tell whether names of the sets that are not listed must be there once only."""
        return self.may_matter and None in self.listed

    def spare(self, shortest: Callable[[String], int], pointer: str) -> int:
        """The bytes more than the shortest name of any set that are enough for one that is not there; 0 for no set.

        shortest: the bytes of that. Raises SchemaError where names get longer and longer.
        """
        if not self.may_matter:
            return 0
        if not is_counted(self._case):
            return SPARE_FOR_SOME
        open_sets = [names for (names, _), few in zip(self.told, self.listed, strict=True) if few is None]
        more = [SPARE_FOR_SOME if self._case.some else SPARE] if open_sets else [0]
        for names in open_sets:
            if not is_endless(names):
                longest = max(len(spelt(name)) for name in self._schema.language.examples(names, self._enough))
                if longest > MOST_BYTES:
                    raise SchemaError("names that must be there, and differ, take more than a thousand bytes", pointer)
                more.append(longest - shortest(names))
        return max(more)


def free_names(schema: CompiledSchema, case: Object, apart: tuple[Rule, ...] = ()) -> FreeNames:
    """The members that an object does not name; apart: rules in whose names a set must lie, or outside."""
    if apart or not repeats_matter(case):
        return FreeNames(schema, case, apart)
    known = schema.free_names.get(case)
    if known is None:
        known = schema.free_names[case] = FreeNames(schema, case)
    return known


def repeats_matter(case: Object) -> bool:
    """Tell whether it may matter for an object that names are there once only, as far as its counts and rules say."""
    return not case.either and (bool(case.some) or is_counted(case))


def is_counted(case: Object) -> bool:
    """Tell whether two members must be there, or more, that are not required by name."""
    return case.min_properties - len(case.required) >= 2


def is_endless(names: String) -> bool:
    """Tell whether a set plainly has more short names than anybody writes."""
    return is_plain(names) and names.max_length is None


MAX_NAMES = 100_000
"""Up to how many names in any order a set has a bit for each."""
MAX_BITS = 30
"""Up to how many names in a fixed order: their bits are in one number."""


class MemberNames:
    """The names of an object case's members.

    names, formulas: the members that may be named, those of the schema first and in its order
    schema_names: how many of them come in a fixed order
    regions: the sets of other names, each with the formula of its members' values
    choice: all other names at once, where there would be too many regions
    required: as bits, which names must be there
    must_differ: whether the other names must be there once only, for what is asked of the object to hold

    apart: rules besides, in whose names a region must lie, or outside
    """

    def __init__(self, owner: RuleLowering, case: Object, depth: int, apart: tuple[Rule, ...] = ()) -> None:
        schema = owner.schema
        self.names: list[str] = []
        self.formulas: list[Formula] = []
        self.regions: list[tuple[String, Formula]] = []
        for name, asked in case.properties.items():
            formula = schema.member(case, name) if case.rules else asked
            if name in case.required or (formula is not NOTHING and schema.has_instance(formula)):
                self.names.append(name)
                self.formulas.append(formula)
        self.must_differ = False
        self.required = sum(1 << index for index, name in enumerate(self.names) if name in case.required)
        self.schema_names = len(self.names) if owner.form.order == "schema" else 0
        self.choice: NameChoice | None = None
        if not apart and self.are_few and uncounted(case, self.required) and has_many_rules(case):
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
        for (names, formula), listed in zip(free.told, free.listed, strict=True):
            if listed is None:
                self.regions.append((names, formula))
            else:
                self.names += listed
                self.formulas += [formula] * len(listed)
        self.must_differ = free.must_differ

    @property
    def are_few(self) -> bool:
        """Tell whether a set can have a bit for each name."""
        return len(self.names) <= (MAX_NAMES if self.schema_names == 0 else MAX_BITS)

    @property
    def others(self) -> bool:
        """Tell whether there may be members that are not named."""
        return bool(self.regions) or self.choice is not None


def uncounted(case: Object, required: int) -> bool:
    """Tell whether it does not matter how many members an object has."""
    return case.max_properties is None and case.min_properties <= required.bit_count()
