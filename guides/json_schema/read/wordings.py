"""What subschemas say, as numbers: those that say the same have the same one, wherever they stand.

Schemas that programs write repeat small subschemas in full, hundreds of times. Annotations say nothing, and neither
does the order of keywords; that of properties does, as texts may be written in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...limits import spend
from .dialects import Keyword, Written, is_array, is_object, only_strings
from .loops import HOLDING
from .subschema import Subschema

MOST_PARTS = 32
"""Of how many subschemas one may be made up to be numbered: larger ones are hardly written twice."""
MOST_WORDS = 64
"""How many names or constants one list may have for it."""
UNNUMBERED = -1

_WHERE_IT_STANDS = frozenset(("unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"))


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
        self._known.setdefault(id(place.value), number)
        return None if number == UNNUMBERED else number

    def _number(self, place: Subschema) -> int:
        """The number of a part of the subschema at hand; of none where that is found to be large."""
        self._left -= 1
        known = self._known.get(id(place.value))
        if known is None and self._left >= 0:
            spend(100)
            said = self._said(place)
            if self._left >= 0:
                known = UNNUMBERED if said is None else self._numbers.setdefault(said, len(self._numbers))
                self._known[id(place.value)] = known
        return UNNUMBERED if known is None or self._left < 0 else known

    def _said(self, place: Subschema) -> Any:
        """All that the keywords of a subschema say; None if they are not numbered."""
        dialect = place.resource.dialect
        alone = dialect.ref_alone and "$ref" in place.value
        said: list[Any] = [dialect]
        for key in ("$ref",) if alone else place.value:
            rule = dialect.keywords.get(key)
            if rule is None or key in HOLDING:
                continue
            found = None if key in _WHERE_IT_STANDS else self._content(place, key, rule)
            if found is None:
                return None
            said.append((key, found))
        return said[0], frozenset(said[1:])

    def _content(self, place: Subschema, key: str, rule: Keyword) -> Any:
        """What a keyword says; None if it is not numbered."""
        content = place.value[key]
        if rule.kind == "plain":
            return _plain(content)
        if rule.kind == "reference":
            target = self._targets[id(place.resource), content]
            return target if isinstance(target, bool) else id(target)
        if is_object(content) and rule.kind in ("map", "dependencies"):
            inner = self._all(content.values())
            return None if inner is None else (*content, *inner)
        return self._all(content if is_array(content) else (content,))

    def _all(self, schemas: Iterable[Any]) -> tuple[Any, ...] | None:
        """What some schemas say, or lists of names in their place."""
        found: list[Any] = []
        for schema in schemas:
            said: Any = schema
            if is_object(schema):
                number = self._number(self._places[id(schema)])
                said = None if number == UNNUMBERED else number
            elif not isinstance(schema, bool):
                said = _plain(schema)
            if said is None:
                return None
            found.append((type(said), said))
        return tuple(found)


def _plain(content: Any) -> Any:
    """A constant, or a list of constants, so that equal ones are written alike; None for containers in it."""
    listed: list[Any] = content if is_array(content) else [content]
    if len(listed) > MOST_WORDS:
        return None
    spend(5 * len(listed))
    if only_strings(listed):
        return is_array(content), *listed
    if any(isinstance(one, (dict, list)) for one in listed):
        return None
    return is_array(content), *((type(one), one.text if isinstance(one, Written) else one) for one in listed)
