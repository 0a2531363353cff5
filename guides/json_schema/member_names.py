"""The members that an object may have by name, and the regions of all other names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .cases import Object, Rule, String
from .formula import EVERYTHING, NOTHING, Formula

if TYPE_CHECKING:
    from .lowering import SchemaLowering


class MemberNames:
    """What an object case says of its members.

    names, formulas: the members that may be named, those of the schema first and in its order
    schema_names: how many of them come in a fixed order
    regions: the sets of other names, each with the formula of its members' values
    required: as bits, which names must be there
    """

    def __init__(self, owner: SchemaLowering, case: Object) -> None:
        schema = owner.schema
        self.names: list[str] = []
        self.formulas: list[Formula] = []
        self.regions: list[tuple[String, Formula]] = []
        for name in case.properties:
            formula = schema.member(case, name)
            if name in case.required or (formula is not NOTHING and schema.has_instance(formula)):
                self.names.append(name)
                self.formulas.append(formula)
        self.schema_names = len(self.names) if owner.form.order == "schema" else 0
        # A region must lie in the names of each rule of `some`, or outside, for a member to meet it or not.
        apart = tuple(Rule(rule.names, EVERYTHING) for rule in case.some)
        for names, formula in schema.regions(replace(case, rules=(*case.rules, *apart)) if apart else case):
            if names.values is None:
                self.regions.append((names, formula))
            else:
                self.names += sorted(names.values)
                self.formulas += [formula] * len(names.values)
        self.required = sum(1 << index for index, name in enumerate(self.names) if name in case.required)
