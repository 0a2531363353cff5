"""References that lead back to themselves without stepping into the instance, as far as anything is judged by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...limits import spend
from .dialects import Keyword, is_array, is_object
from .subschema import Subschema

HOLDING = ("$defs", "definitions")
"""Keywords whose value has schemas by names that no instance ever has."""

IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
"""Keywords whose subschemas speak of the same instance as the schema that holds them."""


class Loops:
    """Looks for loops among schema objects, by `id`; resolve: where a reference keyword of one leads."""

    def __init__(self, places: Mapping[int, Subschema], resolve: Callable[[Subschema, str], Subschema | bool]) -> None:
        self._places = places
        self._resolve = resolve

    def reached(self, root: Subschema) -> set[int]:
        """The subschemas that may judge an instance, by `id`: definitions only where something refers to them."""
        waiting = [root]
        reached: set[int] = set()
        while waiting:
            place = waiting.pop()
            if id(place) in reached:
                continue
            reached.add(id(place))
            spend(100 + 10 * len(place.value))
            keywords = place.resource.dialect.keywords
            alone = place.resource.dialect.ref_alone and "$ref" in place.value
            for key in ("$ref",) if alone else place.value:
                if key in keywords and key not in HOLDING:
                    waiting += self._below(place, key, keywords[key])
        return reached

    def _below(self, place: Subschema, key: str, rule: Keyword) -> list[Subschema]:
        """The subschemas that a keyword holds or refers to."""
        if rule.kind == "plain":
            return []
        if rule.kind == "reference":
            target = self._resolve(place, key)
            return [] if isinstance(target, bool) else [target]
        content: Any = place.value[key]
        schemas: list[Any] = [content]
        if rule.kind != "schema" and is_array(content):
            schemas = content
        elif rule.kind not in ("schema", "items"):
            schemas = list(content.values())
        return [self._places[id(schema)] for schema in schemas if is_object(schema)]

    def refuse(self, referring: list[Subschema]) -> None:
        """Refuse references that come back to where they started without stepping into the instance."""
        place = self.find(referring)
        if place is not None:
            name = place.value.get("$ref", place.pointer)
            raise place.error(f"the reference {name!r} leads back to itself without progress")

    def find(self, referring: list[Subschema]) -> Subschema | None:
        """A schema object that comes back to itself without a step into the instance, None if there is none."""
        done: set[int] = set()
        on_path: set[int] = set()
        for start in referring:
            trail: list[tuple[Subschema, bool]] = [(start, False)]
            while trail:
                place, leaving = trail.pop()
                if leaving:
                    on_path.discard(id(place))
                    done.add(id(place))
                    continue
                if id(place) in on_path:
                    return place
                if id(place) in done:
                    continue
                on_path.add(id(place))
                trail.append((place, True))
                trail.extend((inner, False) for inner in self._in_place(place) if id(inner) not in done)
        return None

    def _in_place(self, place: Subschema) -> list[Subschema]:
        value = place.value
        found: list[Subschema | bool] = []
        if "$ref" in value:
            found.append(self._resolve(place, "$ref"))
            if place.resource.dialect.ref_alone:
                return [inner for inner in found if not isinstance(inner, bool)]
        for keyword in IN_PLACE:
            if keyword in value and keyword in place.resource.dialect.keywords:
                content: Any = value[keyword]
                kind = place.resource.dialect.keywords[keyword].kind
                schemas = [content] if kind == "schema" else content if is_array(content) else content.values()
                found.extend(self._places[id(inner)] for inner in schemas if is_object(inner))
        return [inner for inner in found if not isinstance(inner, bool)]
