"""The groups of alternatives of an object, with what each takes: bits of names and sets of names that must be there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from .....errors import LimitError
from ....automata.atoms import bits as bits_of
from ....limits import spend
from ...algebra.cases import Object, Rule
from ...algebra.formula import EVERYTHING
from ...compiled import CompiledSchema
from ..protocol import MemberLowering
from .member_names import MemberNames

MAX_SPREAD = 4096
"""In how many ways the members of an alternative may have the names that it asks for."""


class Alternative(NamedTuple):
    """One of a group. needed: the members that must be there, bits of names and behind these of regions"""

    case: Object
    needed: int


def in_groups(case: Object) -> Object:
    """The case with the names that some member must have in groups of their own."""
    alone = tuple((Object(some=(rule,)),) for rule in case.some)
    return replace(case, some=(), either=case.either + alone) if alone else case


def names_of(owner: MemberLowering, case: Object, depth: int) -> MemberNames:
    """The names that an object or any of its alternatives tells apart."""
    alternatives = [one for group in case.either for one in group]
    properties = dict(case.properties)
    for one in alternatives:
        for name in (*one.properties, *(name for rule in one.some for name in rule.names.excluded)):
            properties.setdefault(name, EVERYTHING)
    rules = dict.fromkeys(rule.names for one in alternatives for rule in (*one.rules, *one.some))
    apart = tuple(Rule(names, EVERYTHING) for names in rules)
    return MemberNames(owner, Object(properties, case.rules, case.required), depth, apart)


def numbered(group: Iterable[Object], names: MemberNames, schema: CompiledSchema) -> list[Alternative]:
    """The alternatives of a group that no required name rules out, each for every way to have what it asks for."""
    number = {name: index for index, name in enumerate(names.names)}
    found: list[Alternative] = []
    for one in group:
        spend(200 + 50 * len(one.required))
        if not all(name in number for name in one.required):
            continue
        ways = {sum(1 << number[name] for name in one.required): None}
        for rule in one.some:
            may = _members(rule, names, schema)
            spend(100 * len(ways) * may.bit_count())
            ways = {
                way | bit: None
                for way in ways
                for bit in ((0,) if way & may else (1 << index for index in bits_of(may)))
            }
            if len(ways) > MAX_SPREAD:
                raise LimitError(f"an object can have the names that must be there in more than {MAX_SPREAD} ways")
        found += (Alternative(one, way) for way in ways)
    return found


def _members(rule: Rule, names: MemberNames, schema: CompiledSchema) -> int:
    """The names that a rule's set has, and the regions that lie in it, as bits."""
    found = sum(1 << at for at, name in enumerate(names.names) if schema.language.contains(rule.names, name))
    within = (at for at, (region, _) in enumerate(names.regions) if schema.overlaps(rule.names, region))
    return found | sum(1 << len(names.names) + at for at in within)
