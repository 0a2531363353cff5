"""Numbers of the contents of subschemas: those that say the same have the same one, wherever they stand.

Schemas that programs write repeat small subschemas in full, hundreds of times. Annotations say nothing; the order of
properties says something, as texts may be written in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...limits import spend
from .dialects import Written, is_array, is_object, only_strings
from .loops import HOLDING
from .subschema import Subschema

MOST_PARTS = 32
"""Of how many subschemas one may be made up to be numbered: larger ones are hardly written twice."""
MOST_WORDS = 64
"""How many names or constants one list may have for it."""
UNNUMBERED = -1

_WHERE_IT_STANDS = frozenset(("unevaluatedItems", "unevaluatedProperties"))


class Wordings:
    """Numbers the subschemas of some documents, each when it is asked for.

    places: where the schema objects stand, by `id`; targets: where references lead, by the resource's `id` and the text
    """

    def __init__(self, places: Mapping[int, Subschema], targets: Mapping[tuple[int, str], Subschema | bool]) -> None:
        self._places = places
        self._targets = targets
        self._known: dict[int, int] = {}
        self._numbers: dict[Any, int] = {}
        self._left = 0

    def of(self, place: Subschema) -> int | None:
        """The number of what a subschema says; None if it is large, or says what depends on where it stands."""
        self._left = MOST_PARTS
        number = self._number(place)
        spend(100 * (MOST_PARTS - self._left))
        self._known.setdefault(id(place.value), number)
        return None if number == UNNUMBERED else number

    def _number(self, place: Subschema) -> int:
        """The number of a part of the subschema at hand; of none where that is found to be large."""
        self._left -= 1
        known = self._known.get(id(place.value))
        if known is None and self._left >= 0:
            said = self._said(place)
            if self._left >= 0:
                known = UNNUMBERED if said is None else self._numbers.setdefault(said, len(self._numbers))
                self._known[id(place.value)] = known
        return UNNUMBERED if known is None or self._left < 0 else known

    def _said(self, place: Subschema) -> tuple[Any, ...] | None:
        """The keywords of a subschema, each with what it says; None if some are not numbered."""
        value, dialect = place.value, place.resource.dialect
        said: list[Any] = [dialect]
        for key in ("$ref",) if "$ref" in value and dialect.ref_alone else value:
            rule = dialect.keywords.get(key)
            if rule is None or key in HOLDING:
                continue
            content, found = value[key], None
            if rule.kind == "plain":
                found = content if type(content) is str else _plain(content)
            elif rule.kind == "reference":
                target = self._targets.get((id(place.resource), content))
                found = id(target) if isinstance(target, Subschema) else target
            elif key not in _WHERE_IT_STANDS:
                found = self._inner(content, is_map=rule.kind in ("map", "dependencies"))
            if found is None:
                return None
            said += key, found
        return tuple(said)

    def _inner(self, content: Any, *, is_map: bool) -> tuple[Any, ...] | None:
        """The contents of the schemas in a keyword, behind their names; or lists of names in their place."""
        schemas: Iterable[Any] = content.values() if is_map else content if is_array(content) else (content,)
        found: list[Any] = [*content] if is_map else [is_array(content)]
        for schema in schemas:
            if is_object(schema):
                said: Any = self._number(self._places[id(schema)])
            else:
                said = _plain(schema)
            if said is None or said == UNNUMBERED:
                return None
            found.append(said)
        return tuple(found)


def _plain(content: Any) -> Any:
    """A constant, or a list of constants, so that equal ones are written alike; None for containers in it."""
    listed: list[Any] = content if is_array(content) else [content]
    if len(listed) > MOST_WORDS:
        return None
    if only_strings(listed):
        return is_array(content), *listed
    if any(isinstance(one, (dict, list)) for one in listed):
        return None
    return is_array(content), *((type(one), one.text if isinstance(one, Written) else one) for one in listed)
