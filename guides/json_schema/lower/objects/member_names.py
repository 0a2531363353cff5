"""The members that an object may have by name, and the regions of all other names."""

from __future__ import annotations

from .....kernels.answers import NEVER
from ...algebra.cases import Object, Rule, String
from ...algebra.formula import EVERYTHING, NOTHING, Formula
from ...algebra.objects import only_names
from ..protocol import MemberLowering
from .free_names import free_names, is_counted
from .name_choice import NameChoice, suits

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

    def __init__(self, owner: MemberLowering, case: Object, depth: int, apart: tuple[Rule, ...] = ()) -> None:
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
        if not apart and self.are_few and uncounted(case, self.required) and suits(case):
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
        for (names, formula), few in zip(free.told, free.listed, strict=True):
            if few is None:
                self.regions.append((names, formula))
            else:
                self.names += few
                self.formulas += [formula] * len(few)
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
