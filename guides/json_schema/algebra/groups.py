"""Conjunctions of disjunctions of objects, held as they are: their product may have a case for every combination.

An `Object` holds them as groups (`either`), of each of which one alternative holds. What all alternatives that are
left of a group leave open is decided when members are known: by a witness, a value, or a text as it is read.
"""

from __future__ import annotations

from collections.abc import Callable

from ...limits import spend
from . import objects
from .cases import ANY_OBJECT, Object

Group = tuple[Object, ...]
Intersect = Callable[[Object, Object], Object | None]


class ManyError(Exception):
    """Objects or strings fall into so many cases that their alternatives are to be held in groups."""


def both(a: tuple[Object, ...], b: tuple[Object, ...], intersect: Intersect) -> list[Object] | None:
    """What is in both unions, several alternatives held as a group; None where groups are in several of both."""
    if len(a) == 1 or len(b) == 1:
        (one,), others = (a, b) if len(a) == 1 else (b, a)
        if len(others) == 1 or any(case.either for case in others):
            pairs = (intersect(one, other) for other in others)
        else:
            pairs = iter((intersect(one, Object(either=(others,))),))
    elif any(case.either for case in a) and any(case.either for case in b):
        return None
    elif any(case.either for case in (*a, *b)):
        grouped, plain = (a, b) if any(case.either for case in a) else (b, a)
        pairs = (intersect(case, Object(either=(plain,))) for case in grouped)
    else:
        pairs = iter((intersect(ANY_OBJECT, Object(either=(a, b))),))
    return [case for case in pairs if case is not None]


def narrowed(case: Object, intersect: Intersect) -> Object | None:
    """The case without alternatives that its own bounds rule out; a group with one left is no group any more.

    intersect: gives what is in two cases, at least one of which has no groups; groups that are met are not looked at
    """
    groups, bare = case.either, _with_groups(case, ())
    changed = True
    while changed and groups:
        changed = False
        left: list[Group] = []
        for group in groups:
            spend(200 * len(group))
            if any(objects.covers(one, bare) for one in group):
                continue
            met = [(one, found) for one in group if (found := intersect(bare, one)) is not None]
            if not met:
                return None
            if len(met) == 1:
                bare, changed = met[0][1], True
            else:
                left.append(tuple(one for one, _ in met) if len(met) < len(group) else group)
        groups = tuple(left)
    return _with_groups(bare, tuple(dict.fromkeys(groups))) if groups else bare


def _with_groups(case: Object, either: tuple[Group, ...]) -> Object:
    """The case with other groups."""
    least, most = case.min_properties, case.max_properties
    return Object(case.properties, case.rules, case.required, case.some, least, most, either)


def outside(case: Object, complement: Callable[[Object], list[Object]]) -> list[Object]:
    """The objects that are in no alternative of some group, one case for each group."""
    found: list[Object] = []
    for group in case.either:
        refuted = tuple(tuple(complement(one)) for one in group)
        if all(refuted):
            found.append(Object(either=refuted))
    return found
