"""Subschemas as formulas: their own bounds as one normal form, and their combinators over subformulas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from ....errors import LimitError
from ...limits import spend
from ..read.dialects import TYPES, exact, is_array, is_number, only_strings, type_of
from ..read.documents import Documents
from ..read.formats import ENFORCED, MAX_LENGTH, OLD_HOSTNAME
from ..read.patterns import Conditions, conditions, few_texts
from ..read.subschema import Subschema
from . import numbers
from .arrays import containing, tidy
from .cases import (
    ANY,
    ANY_ARRAY,
    ANY_NUMBER,
    ANY_OBJECT,
    ANY_STRING,
    BOOLEANS,
    NO_NAMES,
    Array,
    Contains,
    Normal,
    Number,
    Object,
    Rational,
    Rule,
    String,
)
from .formula import EVERYTHING, NOTHING, Formula, Formulas, Scope, json_key
from .objects import lacking, requiring
from .strings import of_values

NUMBER, STRING, ARRAY, OBJECT, JOIN, TYPE, VALUES = 1, 2, 4, 8, 16, 32, 64
GROUPS = {
    "type": TYPE,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format", "x-quote"), STRING),
    **dict.fromkeys(("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"), ARRAY),
    **dict.fromkeys(("properties", "patternProperties", "additionalProperties", "required"), OBJECT),
    **dict.fromkeys(("minProperties", "maxProperties"), OBJECT),
    **dict.fromkeys(("enum", "const"), VALUES),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "not", "if", "dependencies"), JOIN),
    **dict.fromkeys(("$ref", "$dynamicRef", "$recursiveRef", "contains", "propertyNames"), JOIN),
    **dict.fromkeys(("dependentRequired", "dependentSchemas"), JOIN),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), JOIN),
}
UNREACHED = 2**31 - 1
BOUNDS = NUMBER | STRING | ARRAY | OBJECT | TYPE


class ScopedSchema(NamedTuple):
    """A subschema in a dynamic scope, with what is needed to translate its keywords."""

    schema: Subschema
    scope: Scope
    formulas: Formulas
    documents: Documents

    def keyword(self, name: str, default: Any = None) -> Any:
        """Return the value of a keyword, if the dialect knows it."""
        value = self.schema.value.get(name, default)
        return value if name in self.schema.resource.dialect.keywords else default

    @property
    def types(self) -> Collection[str]:
        """The types that the subschema allows."""
        named: Any = self.keyword("type", TYPES)
        return (named,) if isinstance(named, str) else named

    @property
    def notation(self) -> Literal["integer"] | None:
        """The notation of integers, if the draft prescribes one."""
        return "integer" if self.schema.resource.dialect.integer_is_notation else None

    def has(self, name: str) -> bool:
        """Test whether a keyword is present and known to the dialect."""
        return name in self.schema.value and name in self.schema.resource.dialect.keywords

    def inner(self, schema: Any) -> Formula:
        """Return the formula of a schema inside this one."""
        if isinstance(schema, bool):
            return EVERYTHING if schema else NOTHING
        return self.enter(self.documents.at(schema)) if schema else EVERYTHING

    def enter(self, place: Subschema | bool) -> Formula:
        """Return the formula of a schema that is entered from here. Adds the place to a LimitError."""
        if isinstance(place, bool):
            return EVERYTHING if place else NOTHING
        scope = self._scope_in(place)
        found = self.formulas.entered(place, scope)
        if found is None:
            try:
                found = _read(self._at(place, scope))
            except LimitError as error:
                error.locate(place.pointer)
                raise
            self.formulas.enter(place, scope, found)
        return found

    def _at(self, place: Subschema, scope: Scope) -> ScopedSchema:
        """Return another subschema of these documents."""
        return ScopedSchema(place, scope, self.formulas, self.documents)

    def _scope_in(self, place: Subschema) -> Scope:
        """Return the dynamic scope within a schema that is entered from here."""
        if self.documents.has_dynamic_scope and place.resource not in self.scope:
            return (*self.scope, place.resource)
        return self.scope

    def only_refers(self) -> bool:
        """Test whether `$ref` is the only effective keyword."""
        if not self.has("$ref"):
            return False
        dialect = self.schema.resource.dialect
        return dialect.ref_alone or sum(key in GROUPS and key in dialect.keywords for key in self.schema.value) == 1

    def after_reference(self) -> ScopedSchema | bool:
        """Return the target of the subschema's `$ref`."""
        target = self.documents.resolve(self.schema, "$ref")
        return target if isinstance(target, bool) else self._at(target, self._scope_in(target))


def _read(place: ScopedSchema) -> Formula:
    """Return the formula of a subschema, following chains of references iteratively."""
    passed: list[ScopedSchema] = []
    end: ScopedSchema | bool = place
    while not isinstance(end, bool) and end.only_refers():
        spend(500)
        passed.append(end)
        end = end.after_reference()
    if not passed:
        return _entered(place)
    found = (EVERYTHING if end else NOTHING) if isinstance(end, bool) else end.enter(end.schema)
    for before in passed[1:]:
        if place.formulas.entered(before.schema, before.scope) is None:
            place.formulas.enter(before.schema, before.scope, found)
    return found


def _entered(place: ScopedSchema) -> Formula:
    """Return the formula of a subschema. Simple ones are interned by their content rather than their place."""
    found = groups(place)
    value = place.schema.value
    formulas = place.formulas
    if not found:
        return EVERYTHING
    if found & TYPE == found:
        return formulas.schema(place.schema, place.scope, ("type", repr(value["type"]), place.notation))
    if found & (TYPE | VALUES) == found and found & VALUES and (place.notation is None or not found & TYPE):
        return _constants(place)
    if not found & (JOIN | ARRAY | OBJECT | VALUES):
        keywords = tuple((key, json_key(value[key])) for key in sorted(value) if key in GROUPS and place.has(key))
        return formulas.schema(place.schema, place.scope, (keywords, place.notation))
    return formulas.schema(place.schema, place.scope, place.documents.wording_of(place.schema))


def _constants(place: ScopedSchema) -> Formula:
    """Return the formula of a subschema with `enum`, `const` and `type` only."""
    types = place.types
    return place.formulas.all_of(place.formulas.values(_of_types(values, types)) for values in _listed(place))


def _of_types(values: list[Any], types: Collection[str]) -> list[Any]:
    if only_strings(values):
        return values if "string" in types else []
    return [value for value in values if _is_of(value, types)]


def _is_of(value: Any, types: Iterable[str]) -> bool:
    if is_number(value):
        return "number" in types or ("integer" in types and isinstance(exact(value), int))
    return type_of(value) in types


def _listed(place: ScopedSchema) -> list[list[Any]]:
    listed: list[list[Any]] = [place.keyword("enum")] if place.has("enum") else []
    return [*listed, [place.keyword("const")]] if place.has("const") else listed


def groups(place: ScopedSchema) -> int:
    """Return the groups of keywords that a subschema has, as bits."""
    found = 0
    keywords = place.schema.resource.dialect.keywords
    for key in place.schema.value:
        group = GROUPS.get(key)
        if group is not None and key in keywords:
            found |= group
    return found


def plain(place: ScopedSchema, found: int, assert_formats: bool) -> Normal:
    """Return the bounds that a subschema itself sets, without its combinators."""
    types = place.types
    number: Number | None = None
    if "number" in types or "integer" in types:
        number = _number(place) if found & NUMBER else ANY_NUMBER
        if number is not None and "number" not in types:
            number = numbers.intersect(number, Number(multiple_of=1, notation=place.notation))
    string = array = object_ = None
    if "string" in types:
        string = _string(place, assert_formats) if found & STRING else ANY_STRING
    if "array" in types:
        array = _array(place) if found & ARRAY else ANY_ARRAY
    if "object" in types:
        object_ = _object(place) if found & OBJECT else ANY_OBJECT
    return Normal(
        "null" in types,
        BOOLEANS if "boolean" in types else frozenset(),
        () if number is None else (number,),
        () if string is None else (string,),
        () if array is None else (array,),
        () if object_ is None else (object_,),
    )


def _number(place: ScopedSchema) -> Number | None:
    minimum, exclusive_minimum = _bound(place, "minimum", "exclusiveMinimum", max)
    maximum, exclusive_maximum = _bound(place, "maximum", "exclusiveMaximum", min)
    multiple_of = place.keyword("multipleOf")
    return numbers.tidy(
        Number(
            minimum,
            maximum,
            exclusive_minimum,
            exclusive_maximum,
            None if multiple_of is None else exact(multiple_of),
        )
    )


def _bound(
    place: ScopedSchema, inclusive: str, exclusive: str, tighter: Callable[..., Rational]
) -> tuple[Rational | None, bool]:
    closed, open_ = place.keyword(inclusive), place.keyword(exclusive)
    bound = None if closed is None else exact(closed)
    if open_ is None or open_ is False or (open_ is True and bound is None):
        return bound, False
    if open_ is True:
        return bound, True
    strict = exact(open_)
    if bound is None or strict == bound or tighter(strict, bound) == strict:
        return strict, True
    return bound, False


def _count(place: ScopedSchema, keyword: str) -> int | None:
    """Return a count; None for a maximum that no text reaches."""
    value = place.keyword(keyword)
    return None if value is None or (value >= UNREACHED and keyword.startswith("max")) else int(value)


def _string(place: ScopedSchema, assert_formats: bool) -> String | None:
    minimum, maximum = _count(place, "minLength") or 0, _count(place, "maxLength")
    pattern, name = place.keyword("pattern"), place.keyword("format")
    patterns, absent = Conditions(NO_NAMES, NO_NAMES) if pattern is None else conditions(pattern)
    formats = NO_NAMES
    if assert_formats and name in ENFORCED:
        if name == "hostname" and place.schema.resource.dialect.draft <= 6:
            name = OLD_HOSTNAME
        formats = frozenset((name,))
        if name in MAX_LENGTH:
            maximum = min(MAX_LENGTH[name], MAX_LENGTH[name] if maximum is None else maximum)
    if maximum is not None and minimum > maximum:
        return None
    if place.has("x-quote"):
        if patterns or formats:
            raise place.schema.error("x-quote can have no pattern or format beside it", "x-quote")
        quote = place.documents.quote(place.schema).within(minimum, maximum)
        return None if quote is None else String(quote=quote)
    texts = None if pattern is None or formats or absent or len(patterns) > 1 else few_texts(pattern)
    if texts is None:
        return String(minimum, maximum, patterns, absent, formats)
    # Constants often separate objects in shallow checks.
    within = [text for text in texts if minimum <= len(text) and (maximum is None or len(text) <= maximum)]
    return of_values(within) if within else None


def _array(place: ScopedSchema) -> Array | None:
    items = place.keyword("items", True)
    if is_array(items):
        first: list[Any] = items
        rest = place.keyword("additionalItems", True)
    else:
        first, rest = place.keyword("prefixItems", []), items
    unique = True if place.keyword("uniqueItems") else None
    return tidy(
        Array(
            tuple(place.inner(schema) for schema in first),
            place.inner(rest),
            _count(place, "minItems") or 0,
            _count(place, "maxItems"),
            (),
            unique,
        )
    )


def _object(place: ScopedSchema) -> Object | None:
    named = {name: place.inner(schema) for name, schema in place.keyword("properties", {}).items()}
    patterns: dict[str, Any] = place.keyword("patternProperties", {})
    rules = [
        Rule(String(patterns=frozenset((pattern,))), formula)
        for pattern, schema in patterns.items()
        if (formula := place.inner(schema)) is not EVERYTHING
    ]
    others = place.inner(place.keyword("additionalProperties", True))
    if others is not EVERYTHING:
        rules.append(Rule(String(not_patterns=frozenset(patterns), excluded=frozenset(named)), others))
    # Required names are always among the named ones, so that cases have all names in one place.
    required = frozenset(place.keyword("required", ()))
    named.update((name, EVERYTHING) for name in place.keyword("required", ()) if name not in named)
    minimum, maximum = _count(place, "minProperties") or 0, _count(place, "maxProperties")
    if maximum is not None and max(minimum, len(required)) > maximum:
        return None
    return Object(named, tuple(rules), required, (), minimum, maximum)


def joined(place: ScopedSchema) -> list[Formula]:
    """Return the formulas of a subschema's combinators."""
    formulas = place.formulas
    parts: list[Formula] = references(place)
    parts.extend(map(formulas.values, _listed(place)))
    parts.extend(place.inner(schema) for schema in place.keyword("allOf", ()))
    if place.has("anyOf"):
        parts.append(formulas.any_of(place.inner(schema) for schema in place.keyword("anyOf")))
    if place.has("oneOf"):
        parts.append(formulas.one_of(place.inner(schema) for schema in place.keyword("oneOf")))
    if place.has("not"):
        parts.append(formulas.negation(place.inner(place.keyword("not"))))
    if place.has("if"):
        parts.append(_conditional(place))
    if place.has("contains"):
        parts.append(_contains(place))
    if place.has("propertyNames"):
        parts.append(formulas.names(place.inner(place.keyword("propertyNames"))))
    parts.extend(_dependencies(place))
    return parts


def references(place: ScopedSchema) -> list[Formula]:
    """Return the formulas of the schemas that a subschema refers to."""
    found: list[Formula] = []
    if place.has("$ref"):
        found.append(place.enter(place.documents.resolve(place.schema, "$ref")))
    if place.has("$dynamicRef"):
        found.append(place.enter(_dynamic(place)))
    if place.has("$recursiveRef"):
        found.append(place.enter(_recursive(place)))
    return found


def _dynamic(place: ScopedSchema) -> Subschema | bool:
    target = place.documents.resolve(place.schema, "$dynamicRef")
    name = place.keyword("$dynamicRef").rpartition("#")[2]
    if isinstance(target, bool) or place.documents.dynamic_anchor(target.resource, name) is not target:
        return target
    for resource in place.scope:
        found = place.documents.dynamic_anchor(resource, name)
        if found is not None:
            return found
    return target


def _recursive(place: ScopedSchema) -> Subschema | bool:
    target = place.documents.resolve(place.schema, "$recursiveRef")
    if isinstance(target, bool) or not target.resource.is_recursive:
        return target
    for resource in place.scope:
        if resource.is_recursive:
            return place.documents.root_of(resource)
    return target


def _conditional(place: ScopedSchema) -> Formula:
    formulas = place.formulas
    condition = place.inner(place.keyword("if"))
    then = place.inner(place.keyword("then", True))
    other = place.inner(place.keyword("else", True))
    return formulas.any_of((formulas.all_of((condition, then)), formulas.all_of((formulas.negation(condition), other))))


def _contains(place: ScopedSchema) -> Formula:
    minimum, maximum = _count(place, "minContains"), _count(place, "maxContains")
    part = Contains(place.inner(place.keyword("contains")), 0, 1 if minimum is None else minimum, maximum)
    case = containing(part, place.formulas)
    return place.formulas.plain(replace(ANY, arrays=() if case is None else (case,)))


def _dependencies(place: ScopedSchema) -> list[Formula]:
    """Return the implications of dependencies: no member is called `a`, or what depends on it holds."""
    parts: list[Formula] = []
    for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
        for name, needed in place.keyword(keyword, {}).items():
            if is_array(needed):
                names: list[str] = needed
                cases = (lacking(name), requiring(names)) if names else (ANY_OBJECT,)
                parts.append(place.formulas.plain(replace(ANY, objects=cases)))
            else:
                without = place.formulas.plain(replace(ANY, objects=(lacking(name),)))
                parts.append(place.formulas.any_of((without, place.inner(needed))))
    return parts
