"""Schema documents: one scan that checks them and finds their resources, and the references between them.

A document is scanned once, without recursion: every subschema becomes a `Subschema`, keyword values are checked, `$id`
and anchors are registered, references are collected. Nothing is ever fetched: a reference leads into the document, into
`resources`, or to one of the published metaschemas.

Reference loops without a step into the instance are refused if they are reachable from the root. Small subschemas have
structural keys that are equal wherever they stand (`wording_of`), since generators repeat them hundreds of times.
Annotations are no part of a key; the order of properties is, as texts may be written in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from ....checks import brief, check_bool, check_int
from ....errors import LanguageError, LimitError, OptionError, SchemaError
from ...limits import spend
from ...quoting.quotation import Quote
from .dialects import (
    DRAFT2020,
    WELL_FORMED,
    Dialect,
    Kind,
    WrittenNumber,
    dialect_of,
    expected_names,
    is_array,
    is_object,
    is_writable,
    only_strings,
)
from .subschema import Resource, Subschema, key_of, show


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """Options of reading a schema.

    formats: whether the standard formats are enforced (otherwise they are annotations)
    max_cases: maximum number of alternatives of a formula for one type
    """

    formats: bool = True
    max_cases: int = 512

    def __post_init__(self) -> None:
        check_bool(self.formats, "formats")
        object.__setattr__(self, "max_cases", check_int(self.max_cases, "max_cases"))


HOLDING = ("$defs", "definitions")
"""Keywords whose value maps arbitrary names to schemas that apply to nothing by themselves."""

IN_PLACE = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
"""Keywords whose subschemas apply to the same instance as the schema around."""


MAX_PARTS = 32
"""Maximum number of subschemas within one that has a structural key; larger ones are rarely repeated."""
MAX_WORDS = 64
"""Maximum length of a list of names or constants in a structural key."""
_WHERE_IT_STANDS = frozenset(("unevaluatedItems", "unevaluatedProperties"))


def _plain(content: Any) -> Any:
    """Return a hashable key of a constant or list of constants; None if it contains containers or is too long."""
    listed: list[Any] = content if is_array(content) else [content]
    if len(listed) > MAX_WORDS:
        return None
    if only_strings(listed):
        return is_array(content), *listed
    if any(isinstance(one, (dict, list)) for one in listed):
        return None
    return is_array(content), *((type(one), one.text if isinstance(one, WrittenNumber) else one) for one in listed)


class Documents:
    """All documents that a schema can reach, scanned on demand."""

    def __init__(
        self,
        resources: Mapping[str, Any],
        check_pattern: Callable[[str], str | None],
        contexts: Mapping[str, Quote] | None = None,
    ) -> None:
        self._waiting = dict(resources)
        self._contexts = contexts or {}
        self._check_pattern = check_pattern
        self._by_uri: dict[str, Resource] = {}
        # Kept here and not in the resources, to avoid reference cycles with their subschemas
        self._roots: dict[Resource, Subschema] = {}
        self._anchors: dict[tuple[Resource, str], Subschema] = {}
        self._dynamic_anchors: dict[tuple[Resource, str], Subschema] = {}
        self._places: dict[int, Subschema] = {}
        # Places of objects that stand at several places
        self._repeated: list[Subschema] = []
        self._references: list[tuple[Subschema, str]] = []
        self._targets: dict[tuple[int, str], Subschema | bool] = {}
        self.has_dynamic_scope = False

    @property
    def places(self) -> list[Subschema]:
        """The schema objects scanned so far."""
        return list(self._places.values())

    @property
    def count(self) -> int:
        """The number of schema objects."""
        return len(self._places)

    def mentions(self, keywords: Iterable[str]) -> bool:
        """Test whether any schema object has one of these keywords."""
        return any(not place.value.keys().isdisjoint(keywords) for place in self._places.values())

    def quote(self, place: Subschema) -> Quote:
        """Return the value of the keyword `x-quote`: the name of a context, or a context with options."""
        value: Any = place.value["x-quote"]
        if isinstance(value, str):
            if value not in self._contexts:
                known = ", ".join(map(repr, self._contexts)) or "none"
                raise place.error(f"x-quote: there is no context {brief(value)}; contexts= has {known}", "x-quote")
            return self._contexts[value]
        try:
            return Quote.of(value)
        except (OptionError, LanguageError, TypeError) as error:
            raise place.error(f"x-quote: {error}", "x-quote") from None

    def load(self, value: dict[str, Any], uri: str = "") -> Subschema:
        """Scan a document and everything it refers to. Return its root.

        Raises SchemaError for a malformed schema, an unknown `$schema`, and a reference that leads nowhere or in a
        circle.
        """
        root = self._add(value, uri)
        resolved = 0
        referring: list[Subschema] = []
        while resolved < len(self._references):
            place, keyword = self._references[resolved]
            resolved += 1
            self.resolve(place, keyword)
            if keyword == "$ref":
                referring.append(place)
        if referring:
            place = self._loop(referring)
            if place is not None and not self.has_dynamic_scope:
                # Loops that nothing refers to are allowed.
                reached = self._reached(root)
                place = self._loop([place for place in referring if place in reached])
            if place is not None:
                raise place.error(f"the reference {place.value['$ref']!r} leads back to itself without progress")
        return root

    def _reached(self, root: Subschema) -> set[Subschema]:
        """Return the subschemas that may apply to an instance; definitions only if they are referred to."""
        waiting = [root]
        reached = set[Subschema]()
        while waiting:
            place = waiting.pop()
            if place not in reached:
                reached.add(place)
                waiting += self._below(place, lambda key: key not in HOLDING)
        return reached

    def _below(self, place: Subschema, looks_at: Callable[[str], bool]) -> list[Subschema]:
        """Return the subschemas that some keywords hold or refer to."""
        spend(100 + 10 * len(place.value))
        dialect = place.resource.dialect
        found: list[Any] = []
        for key in ("$ref",) if dialect.ref_alone and "$ref" in place.value else place.value:
            kind = dialect.keywords[key].kind if key in dialect.keywords and looks_at(key) else "plain"
            content: Any = place.value[key]
            if kind == "reference":
                target = self.resolve(place, key)
                found += [] if isinstance(target, bool) else [target.value]
            elif kind != "plain":
                schemas: list[Any] = [content]
                if kind != "schema" and is_array(content):
                    schemas = content
                elif kind not in ("schema", "items"):
                    schemas = list(content.values())
                found += schemas
        return [self._places[id(schema)] for schema in found if is_object(schema)]

    def _loop(self, referring: list[Subschema]) -> Subschema | None:
        """Return a reference that leads back to itself without a step into the instance; None if there is none."""
        after: dict[Subschema, list[Subschema]] = {}
        waiting = list(referring)
        while waiting:
            place = waiting.pop()
            if place not in after:
                after[place] = self._below(place, lambda key: key in IN_PLACE)
                waiting += after[place]
        try:
            TopologicalSorter(after).prepare()
        except CycleError as error:
            circle: list[Subschema] = error.args[1]
            return next(place for place in circle if "$ref" in place.value)
        return None

    def above(self, keywords: frozenset[str]) -> set[int]:
        """Return the `id` of the schema objects with one of these keywords, and of all that contain or reach one."""
        waiting = [place for place in self._places.values() if not keywords.isdisjoint(place.value)]
        spend(10 * len(self._places))
        if not waiting:
            return set()
        if self.has_dynamic_scope:
            return set(self._places)
        holders: dict[int, list[Subschema]] = {}
        for place in self._repeated:
            if place.parent is not None:
                holders.setdefault(id(place.value), []).append(place.parent)
        for place, keyword in self._references:
            target = self.resolve(place, keyword)
            if not isinstance(target, bool):
                holders.setdefault(id(target.value), []).append(place)
        found: set[int] = set()
        while waiting:
            place = waiting.pop()
            number = id(place.value)
            if number not in found:
                spend(50)
                found.add(number)
                waiting += holders.get(number, ())
                if place.parent is not None:
                    waiting.append(place.parent)
        return found

    def root_of(self, resource: Resource) -> Subschema:
        """Return the root schema of a resource."""
        return self._roots[resource]

    def dynamic_anchor(self, resource: Resource, name: str) -> Subschema | None:
        """Return the subschema of a resource with a `$dynamicAnchor`, if there is one."""
        return self._dynamic_anchors.get((resource, name))

    def at(self, value: dict[str, Any]) -> Subschema:
        """Return the place of a scanned schema object."""
        return self._places[id(value)]

    def wording_of(self, place: Subschema) -> tuple[Any, ...] | None:
        """Return the structural key of a subschema; None if it is too large, or its meaning depends on the place."""
        return None if self.has_dynamic_scope else self._wording(place, iter(range(MAX_PARTS)))

    def _wording(self, place: Subschema, parts: Iterator[int]) -> tuple[Any, ...] | None:
        """Return `wording_of`; parts: one element for each subschema that may still be visited."""
        spend(100)
        value, dialect = place.value, place.resource.dialect
        if next(parts, None) is None:
            return None
        wording: list[Any] = [dialect]
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
                found = self._inner(content, rule.kind in ("map", "dependencies"), parts)
            if found is None:
                return None
            wording += key, found
        return tuple(wording)

    def _inner(self, content: Any, is_map: bool, parts: Iterator[int]) -> tuple[Any, ...] | None:
        """Return the keys of the schemas in a keyword, after their names; or of lists of names in their place."""
        schemas: Iterable[Any] = content.values() if is_map else content if is_array(content) else (content,)
        found: list[Any] = [*content] if is_map else [is_array(content)]
        for schema in schemas:
            wording = self._wording(self._places[id(schema)], parts) if is_object(schema) else _plain(schema)
            if wording is None:
                return None
            found.append(wording)
        return tuple(found)

    def _add(self, value: dict[str, Any], uri: str) -> Subschema:
        dialect = self._dialect(value)
        resource = Resource(urldefrag(uri)[0], dialect)
        root = Subschema(value, resource, None, ())
        self._roots[resource] = root
        self._by_uri[resource.uri] = resource
        self._scan(root)
        return root

    def _dialect(self, value: dict[str, Any]) -> Dialect:
        named = value.get("$schema")
        if named is None:
            return DRAFT2020
        known = dialect_of(named)
        if known is not None:
            return known
        metaschema = self._waiting.get(named) if isinstance(named, str) else None
        base = dialect_of(metaschema.get("$schema")) if is_object(metaschema) else None
        if not is_object(metaschema) or base is None:
            known_uris = "draft-04, draft-06, draft-07, 2019-09 or 2020-12, or a metaschema in `resources`"
            raise SchemaError(f"unknown $schema {brief(named)}; expected {known_uris}", "#/$schema")
        vocabulary: Any = metaschema.get("$vocabulary")
        if is_object(vocabulary):
            uris: list[Any] = list(vocabulary)  # keys of a Python dict may have any type
            if not any(isinstance(uri, str) and "/vocab/validation" in uri for uri in uris):
                return base.without_validation()
        return base

    # The scan

    def _scan(self, root: Subschema) -> None:
        waiting = [root]
        while waiting:
            place = waiting.pop()
            try:
                self._scan_one(place, waiting)
            except LimitError as error:
                error.locate(place.pointer)
                raise

    def _scan_one(self, place: Subschema, waiting: list[Subschema]) -> None:
        value = place.value
        if id(value) in self._places:
            self._repeated.append(place)
            return
        self._places[id(value)] = place
        if "$schema" in value or place.resource.dialect.id_keyword in value or "$id" in value:
            self._enter_resource(place)
        keywords = place.resource.dialect.keywords
        if "$ref" in value and place.resource.dialect.ref_alone:
            keywords = {key: keywords[key] for key in ("$ref", "definitions")}
        elif "$anchor" in value or "$dynamicAnchor" in value or "$recursiveAnchor" in value:
            self._enter_anchors(place)
        spend(100 + 30 * len(value))
        for key, content in value.items():
            if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise place.error(f"the names of keywords are strings, not {show(key)}")
            rule = keywords.get(key)
            if rule is None:
                continue
            expected = rule.check(content)
            if expected is not None:
                raise place.error(f"{key} is to be {expected}, not {show(content)}", key)
            if key == "pattern":
                self._check(place, content, key)
            elif rule.kind == "reference":
                self._references.append((place, key))
            elif rule.kind != "plain":
                self._enter(place, key, rule.kind, content, waiting)

    def _enter(self, place: Subschema, key: str, kind: Kind, content: Any, waiting: list[Subschema]) -> None:
        if kind == "map" or kind == "dependencies":
            spend(100 * len(content))
            for name, schema in content.items():
                if not isinstance(name, str):
                    raise place.error(f"the names in {key} are to be strings, not {show(name)}", key)
                if not is_writable(name) and key not in HOLDING:
                    raise place.error(f"the names in {key} are to be strings {WELL_FORMED}", key, name)
                if kind == "dependencies" and is_array(schema):
                    wrong = expected_names(schema)
                    if wrong is not None:
                        raise place.error(f"a dependency is to be a schema or an array of names ({wrong})", key, name)
                    continue
                if key == "patternProperties":
                    self._check(place, name, key, name)
                self._enter_schema(place, (key, name), schema, waiting)
        elif kind != "schema" and is_array(content):
            for index, schema in enumerate(content):
                self._enter_schema(place, (key, index), schema, waiting)
        else:
            self._enter_schema(place, (key,), content, waiting)

    def _check(self, place: Subschema, pattern: str, *keys: str) -> None:
        try:
            if (reason := self._check_pattern(pattern)) is None:
                return
        except LimitError as error:
            error.locate(place.pointer_to(*keys))
            raise
        raise place.error(f"the pattern {show(pattern)} cannot be used: {reason}", *keys)

    def _enter_schema(
        self, place: Subschema, keys: tuple[str | int, ...], schema: Any, waiting: list[Subschema]
    ) -> None:
        if is_object(schema):
            waiting.append(Subschema(schema, place.resource, place, keys))
        elif not isinstance(schema, bool):
            raise place.error(f"expected a schema, not {show(schema)}", *keys)

    def _enter_resource(self, place: Subschema) -> None:
        value, resource = place.value, place.resource
        named_here = place.parent is not None and isinstance(value.get("$schema"), str)
        dialect = resource.dialect
        if named_here:
            inside = dialect_of(value["$schema"])
            named = str(value.get(dialect.id_keyword) or (inside and value.get(inside.id_keyword)) or "")
            if inside is not None and (dialect.id_keyword in value or is_absolute(named)):
                dialect = inside
        identifier = value.get(dialect.id_keyword)
        if not isinstance(identifier, str) or ("$ref" in value and dialect.ref_alone):
            return
        uri, fragment = self._split(place, identifier, dialect.id_keyword)
        if fragment and dialect.draft <= 7:
            self._anchors.setdefault((resource, fragment), place)
        if not uri and identifier:
            return
        uri = self._joined(place, uri, dialect.id_keyword)
        if place.parent is None and self._roots[resource] is place:
            resource.uri = uri
        else:
            resource = Resource(uri, dialect)
            self._roots[resource] = place
            place.resource = resource
        self._by_uri[uri] = resource

    def _enter_anchors(self, place: Subschema) -> None:
        value, resource = place.value, place.resource
        if resource.dialect.draft < 2019:
            return
        anchor = value.get("$anchor")
        if isinstance(anchor, str):
            self._anchors[resource, anchor] = place
        dynamic = value.get("$dynamicAnchor")
        if isinstance(dynamic, str) and resource.dialect.draft >= 2020:
            self._anchors[resource, dynamic] = self._dynamic_anchors[resource, dynamic] = place
            self.has_dynamic_scope = True
        if value.get("$recursiveAnchor") is True and resource.dialect.draft == 2019:
            resource.is_recursive = True
            self.has_dynamic_scope = True

    def _joined(self, place: Subschema, reference: str, keyword: str) -> str:
        try:
            return join(place.resource.uri, reference)
        except ValueError as error:
            raise place.error(f"{keyword} {show(reference)} is no URI: {error}", keyword) from None

    def _split(self, place: Subschema, uri: str, keyword: str) -> tuple[str, str]:
        """Split a URI into the part before its fragment, and the fragment."""
        try:
            found = urldefrag(uri)
        except ValueError as error:
            raise place.error(f"{keyword} {show(uri)} is no URI: {error}", keyword) from None
        return found.url, found.fragment

    # References

    def resolve(self, place: Subschema, keyword: str) -> Subschema | bool:
        """Return the schema that a reference keyword of `place` leads to (for dynamic ones, the static target).

        Raises SchemaError if it leads nowhere.
        """
        reference: str = place.value[keyword]
        key = (id(place.resource), reference)
        target = self._targets.get(key)
        if target is None:
            target = self._targets[key] = self._find(place, keyword, reference)
        return target

    def _find(self, place: Subschema, keyword: str, reference: str) -> Subschema | bool:
        if reference.startswith("#"):
            resource, fragment = place.resource, reference[1:]
        else:
            uri, fragment = self._split(place, self._joined(place, reference, keyword), keyword)
            found = self._resource(uri)
            if found is None:
                hint = "references are never fetched: pass it in `resources={uri: schema}`"
                raise place.error(f"{keyword} {reference!r} leads to {uri!r}, which is unknown; {hint}", keyword)
            if isinstance(found, bool):
                return found
            resource = found
        target: Subschema | bool | None
        if not fragment:
            target = self._roots[resource]
        elif fragment.startswith("/"):
            target = self._follow(resource, unquote(fragment))
        else:
            target = self._anchors.get((resource, unquote(fragment)))
        if target is None:
            raise place.error(f"{keyword} {reference!r} leads nowhere", keyword)
        return target

    def _resource(self, uri: str) -> Resource | bool | None:
        for known in (uri, uri + "#"):
            if known not in self._by_uri and known in self._waiting:
                value = self._waiting.pop(known)
                if isinstance(value, bool):
                    self._waiting[known] = value
                    return value
                if not is_object(value):
                    raise SchemaError(f"the resource {known!r} is no schema", f"{uri}#")
                self._add(value, uri)
        if uri not in self._by_uri:
            self._load_rest(uri)
        return self._by_uri.get(uri)

    def _load_rest(self, uri: str) -> None:
        metaschema = load(uri)
        if metaschema is not None:
            self._add(metaschema, uri)
            return
        for name in list(self._waiting):
            value = self._waiting[name]
            if is_object(value):
                del self._waiting[name]
                self._add(value, name)
                if uri in self._by_uri:
                    return

    def _follow(self, resource: Resource, pointer: str) -> Subschema | bool | None:
        """Return the value at a JSON pointer; scan it now if it lies where no keyword expects a schema."""
        place = self._roots[resource]
        value: Any = place.value
        keys: list[str | int] = []
        for part in pointer[1:].split("/"):
            part = key_of(part)
            if is_object(value) and part in value:
                value = value[part]
                keys.append(part)
            elif is_array(value) and (index := _index(part)) < len(value):
                value = value[index]
                keys.append(index)
            else:
                return None
            known = self._places.get(id(value)) if is_object(value) else None
            if known is not None:
                place, keys = known, []
        if isinstance(value, bool):
            return value
        if not is_object(value):
            return None
        if keys:
            place = Subschema(value, place.resource, place, tuple(keys))
            self._scan(place)
        return place


def _index(part: str) -> int:
    """Return the array index in a JSON pointer; an index out of range if it is invalid."""
    digits = part.lstrip("0") or part[-1:]
    return int(digits) if digits.isdecimal() and len(digits) < 19 else 10**19


def is_absolute(uri: str) -> bool:
    """Test whether a URI has a scheme."""
    return "://" in uri or uri.startswith("urn:")


def join(base: str, reference: str) -> str:
    """Resolve a reference against a base URI. Raises ValueError if it is malformed."""
    if not base or is_absolute(reference):
        return reference
    if base.startswith("urn:"):
        return reference or base
    return urljoin(base, reference)


def load(uri: str) -> dict[str, Any] | None:
    """Return the metaschema (or metaschema of a vocabulary) with this URI, or None."""
    return _metaschemas().get(uri)


@lru_cache(maxsize=1)
def _metaschemas() -> dict[str, dict[str, Any]]:
    return json.loads(Path(__file__).with_name("metaschemas.json").read_text("utf-8"))
