"""Whether normal forms have a value in common: the first pair of alternatives that meet tells, not all of them."""

from __future__ import annotations

from typing import Protocol

from ...limits import spend
from . import arrays, numbers, objects, strings
from .cases import ANY_ARRAY, ANY_NUMBER, ANY_OBJECT, ANY_STRING, Normal, Object
from .formula import Formula, Formulas
from .strings import StringLanguage

STEPS_PER_PAIR = 300


class Intersecting(Protocol):
    """What this needs of the normaliser."""

    formulas: Formulas
    language: StringLanguage

    def both_objects(self, a: Object, b: Object) -> Object | None:
        """What is in both cases."""
        ...

    def settled(self, case: Object) -> list[Object]:
        """The alternatives of a case that asks for members of some names."""
        ...

    def clashes(self, a: Formula, b: Formula) -> bool:
        """Whether no value satisfies both formulas."""
        ...


def meet(a: Normal, b: Normal, owner: Intersecting) -> bool:
    """Whether some alternatives of both meet, as far as it is seen at first sight; constants are not looked at."""
    if (a.null and b.null) or a.booleans & b.booleans:
        return True
    if _any(a.numbers, b.numbers, ANY_NUMBER) or _any(a.strings, b.strings, ANY_STRING):
        return True
    if _any(a.arrays, b.arrays, ANY_ARRAY) or _any(a.objects, b.objects, ANY_OBJECT):
        return True
    spend(STEPS_PER_PAIR * (len(a.numbers) * len(b.numbers) + len(a.strings) * len(b.strings)))
    if any(numbers.intersect(one, other) is not None for one in a.numbers for other in b.numbers):
        return True
    if any(strings.intersect(one, other, owner.language) is not None for one in a.strings for other in b.strings):
        return True
    spend(STEPS_PER_PAIR * len(a.arrays) * len(b.arrays))
    if any(arrays.intersect(one, other, owner.formulas) is not None for one in a.arrays for other in b.arrays):
        return True
    return any(_objects_meet(one, other, owner) for one in a.objects for other in b.objects)


def _any(a: tuple[object, ...], b: tuple[object, ...], any_case: object) -> bool:
    """Whether one side has all values of a type, and the other some."""
    return bool(a and b) and (a[0] is any_case or b[0] is any_case)


def _objects_meet(a: Object, b: Object, owner: Intersecting) -> bool:
    spend(STEPS_PER_PAIR)
    if a.either or b.either or a.some or b.some:
        case = owner.both_objects(a, b)
        return case is not None and bool(owner.settled(case))
    return objects.meet(a, b, owner.formulas, owner.language, owner.clashes)
