"""Objects in which a name that the schema does not mention must come once only: which those are, and their names.

Whoever reads a text keeps the last value of a name that is there twice. All values of a name satisfy what is asked of
that name, so that this matters only where members are counted, or where some member must satisfy something: what did
may be one that is not kept. There names are remembered (`guides/distinct`), as the graph has only their shapes; and a
short text that needs names promises the bytes of longer ones, since the shortest may be there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

from .....errors import SchemaError
from ....limits import spend
from ...algebra.cases import Object, Rule, String
from ...algebra.formula import EVERYTHING
from ...algebra.strings import is_plain
from ...automata.spelling import spelt
from ...compiled import CompiledSchema
from ...witness.strings import few

FEW_NAMES = 16
"""Up to how many names of a set are listed where some member must be of it."""
SPARE, SPARE_FOR_SOME = 4, 8
"""How many bytes longer than a shortest name one is that must be there, at least: out of a few, and out of many."""
MOST_BYTES = 1000
_LETTERS = "aebcdfghijklmnopqrstuvwxyz0123456789-_"


class FreeNames:
    """The members that an object does not name, as disjoint sets of names, each with what their values satisfy.

    told: the sets, told apart by whether they meet each of the object's `some`
    may_matter: whether names must be there once only, for what is asked of the object to hold
    """

    def __init__(self, schema: CompiledSchema, case: Object, apart: tuple[Rule, ...] = ()) -> None:
        self._schema = schema
        self._case = case
        may_matter = not apart and suits(case)
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
        most = self._enough
        if names.quote is None:
            return few(names, most)
        found = self._schema.language.examples(names, most + 1)
        return found if len(found) <= most else None

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
                longest = max(len(spelt(name)) for name in _different(self._schema, names, self._enough))
                if longest > MOST_BYTES:
                    raise SchemaError("names that must be there, and differ, take more than a thousand bytes", pointer)
                more.append(longest - shortest(names))
        return max(more)


def free_names(schema: CompiledSchema, case: Object, apart: tuple[Rule, ...] = ()) -> FreeNames:
    """The members that an object does not name; apart: rules in whose names a set must lie, or outside."""
    if apart or not suits(case):
        return FreeNames(schema, case, apart)
    known = schema.free_names.get(case)
    if known is None:
        known = schema.free_names[case] = FreeNames(schema, case)
    return known


def suits(case: Object) -> bool:
    """Tell whether it may matter for an object that names are there once only, as far as its counts and rules say."""
    return not case.either and (bool(case.some) or is_counted(case))


def is_counted(case: Object) -> bool:
    """Tell whether two members must be there, or more, that are not required by name."""
    return case.min_properties - len(case.required) >= 2


def is_endless(names: String) -> bool:
    """Tell whether a set plainly has more short names than anybody writes."""
    return is_plain(names) and names.max_length is None


def _different(schema: CompiledSchema, names: String, count: int) -> list[str]:
    """Up to `count` different names of a set, few of them long; fewer only if there are no more."""
    first = schema.language.examples(names, 1)
    found = dict.fromkeys(first)
    for text in _like(first[0]):
        if len(found) == count:
            break
        spend(500)
        if text not in found and schema.language.contains(names, text):
            found[text] = None
    return list(found) if len(found) == count else schema.language.examples(names, count)


def _like(text: str) -> Iterator[str]:
    """Texts that have another character, or one or two more."""
    places = sorted({0, len(text) // 2, len(text)}, reverse=True)
    for letter in _LETTERS:
        for at in places:
            yield f"{text[:at]}{letter}{text[at:]}"
            if at < len(text):
                yield f"{text[:at]}{letter}{text[at + 1 :]}"
    for first in _LETTERS[:10]:
        yield from (f"{text}{first}{second}" for second in _LETTERS[:10])
