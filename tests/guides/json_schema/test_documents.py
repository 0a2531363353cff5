"""Loading: what is a schema, where its references lead, and what is said about those that are not or do not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from trellm.errors import LimitError, OptionError, SchemaError

from ..support import CompiledSchema, SchemaOptions


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = wrap(schema)
    return schema


@pytest.mark.parametrize(
    ("schema", "pointer", "reason"),
    [
        ({"type": "strin"}, "#/type", "type is to be one or several of"),
        ({"properties": []}, "#/properties", "properties is to be an object"),
        ({"properties": {"a/b~": 3}}, "#/properties/a~1b~0", "expected a schema"),
        ({"allOf": [{}, {"minLength": -1}]}, "#/allOf/1/minLength", "a non-negative integer"),
        ({"minItems": 1.5}, "#/minItems", "a non-negative integer"),
        ({"multipleOf": 0}, "#/multipleOf", "above 0"),
        ({"minimum": "1"}, "#/minimum", "a number"),
        ({"minimum": float("nan")}, "#/minimum", "a number"),
        ({"required": "a"}, "#/required", "an array of strings"),
        ({"anyOf": []}, "#/anyOf", "non-empty array"),
        ({"items": {"pattern": "(a"}}, "#/items/pattern", "cannot be used"),
        ({"patternProperties": {"[": {}}}, "#/patternProperties/[", "cannot be used"),
        ({"dependencies": {"a": [1]}}, "#/dependencies/a", "a schema or an array of names"),
        ({"$ref": 3}, "#/$ref", "a string"),
        ({"$ref": "#/$defs/gone"}, "#/$ref", "leads nowhere"),
        ({"$ref": "#gone"}, "#/$ref", "leads nowhere"),
        ({"not": {"$ref": "http://example.com/a.json"}}, "#/not/$ref", "never fetched"),
        ({"$schema": "http://example.com/mine"}, "#/$schema", "unknown $schema"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "#/$schema", "unknown $schema"),
        (
            {"$schema": "http://json-schema.org/draft-06/schema#", "exclusiveMinimum": True},
            "#/exclusiveMinimum",
            "a number",
        ),
        ("{", "#", "no JSON"),
        ('{"minimum": NaN}', "#", "NaN"),
        ('{"minimum": 1e99999}', "#", "beyond"),
        ([], "#", "an object, true or false"),
    ],
)
def test_what_is_no_schema_is_named_with_its_place(schema: Any, pointer: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(reason)) as caught:
        CompiledSchema(schema)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}},
        {"dependentSchemas": {"a": {"$ref": "#"}}},
        {"if": {"$ref": "#"}},
    ],
)
def test_references_without_progress_are_refused_by_name(schema: Any) -> None:
    with pytest.raises(SchemaError, match=r"'#.*without progress"):
        CompiledSchema(schema)


def test_loops_with_progress_are_fine() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}, "propertyNames": {"$ref": "#/$defs/name"}}
    compiled = CompiledSchema({**schema, "$defs": {"name": {"maxLength": 4}}})
    assert compiled.accepts(compiled.root, {"next": {"next": {}}})
    assert not compiled.accepts(compiled.root, {"next": {"previous": {}}})


def test_a_cyclic_dict_is_a_recursive_schema() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    schema["properties"]["next"] = schema
    compiled = CompiledSchema(schema)
    assert compiled.accepts(compiled.root, {"next": {"next": {}}})
    assert not compiled.accepts(compiled.root, {"next": {"next": 1}})


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_ten_thousand_combinators_deep_work(keyword: str) -> None:
    compiled = CompiledSchema(nested(10_000, lambda schema: {keyword: [schema]}))
    compiled.check_has_instance()
    assert compiled.accepts(compiled.root, "a")
    assert not compiled.accepts(compiled.root, 2)


@pytest.mark.parametrize("members", [{"properties": 1, "required": 1}, {"items": 1, "minItems": 1}])
def test_ten_thousand_containers_deep_works(members: dict[str, Any]) -> None:
    def wrap(schema: Any) -> Any:
        if "items" in members:
            return {"type": "array", "items": schema, "minItems": 1}
        return {"type": "object", "properties": {"a": schema}, "required": ["a"]}

    compiled = CompiledSchema(nested(10_000, wrap))
    compiled.check_has_instance()
    assert len(compiled.cases(compiled.root).arrays + compiled.cases(compiled.root).objects) == 1


def test_text_nested_too_deep_is_a_limit_error() -> None:
    with pytest.raises(LimitError, match="nested too deep"):
        CompiledSchema('{"not":' * 100_000 + "{}" + "}" * 100_000)


def test_fifty_thousand_properties() -> None:
    names = [f"p{index}" for index in range(50_000)]
    compiled = CompiledSchema({"type": "object", "properties": {name: {"type": "null"} for name in names}})
    compiled.check_has_instance()
    (case,) = compiled.cases(compiled.root).objects
    assert list(case.properties) == names


def test_resources_are_read_and_nothing_is_fetched() -> None:
    resources = {
        "http://example.com/name.json": {"type": "string", "$defs": {"short": {"$anchor": "s", "maxLength": 2}}},
        "http://example.com/yes": True,
    }
    schema = {
        "$id": "http://example.com/person.json",
        "properties": {
            "a": {"$ref": "name.json"},
            "b": {"$ref": "name.json#s"},
            "c": {"$ref": "http://example.com/yes"},
            "d": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        },
    }
    compiled = CompiledSchema(schema, resources)
    assert compiled.accepts(compiled.root, {"a": "abc", "b": "ab", "c": 1, "d": {"type": "string"}})
    assert not compiled.accepts(compiled.root, {"a": 1})
    assert not compiled.accepts(compiled.root, {"b": "abc"})
    assert not compiled.accepts(compiled.root, {"d": {"type": "strin"}})


def test_without_schema_keyword_older_forms_are_read() -> None:
    schema = {
        "definitions": {"low": {"minimum": 0, "exclusiveMinimum": True}},
        "properties": {
            "pair": {"items": [{"$ref": "#/definitions/low"}, {"type": "string"}], "additionalItems": False},
        },
        "dependencies": {"pair": ["name"], "age": {"required": ["birth"]}},
    }
    compiled = CompiledSchema(schema)
    for value, valid in (
        ({"pair": [1, "a"], "name": 1}, True),
        ({"pair": [0], "name": 1}, False),
        ({"pair": [1, "a", 2], "name": 1}, False),
        ({"pair": []}, False),
        ({"age": 1}, False),
        ({"age": 1, "birth": 2}, True),
    ):
        assert compiled.accepts(compiled.root, value) is valid, value


@pytest.mark.parametrize("schema", [True, {}, {"description": "anything"}, "true", "{}"])
def test_schemas_that_allow_everything(schema: Any) -> None:
    compiled = CompiledSchema(schema)
    assert all(compiled.accepts(compiled.root, value) for value in (None, True, 1, "a", [1], {"a": 1}))


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"not": {}},
        {"type": "string", "enum": [1, 2]},
        {"type": "integer", "minimum": 1.2, "maximum": 1.8},
        {"type": "number", "multipleOf": 0.01, "minimum": 0.001, "maximum": 0.009},
        {"type": "string", "pattern": "^a{3}$", "maxLength": 2},
        {"type": "string", "pattern": "^a", "not": {"pattern": "a"}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"enum": [1, 2]}, "minItems": 3, "uniqueItems": True},
        {"type": "object", "patternProperties": {"^[ab]$": {}}, "additionalProperties": False, "minProperties": 3},
        {"type": "array", "contains": {"const": 1}, "items": {"type": "string"}},
        {"allOf": [{"type": "string", "format": "date"}, {"const": "2021-02-29"}]},
        {"if": {"type": "string"}, "then": False, "else": False},
    ],
)
def test_schemas_without_an_instance_are_found_out(schema: Any) -> None:
    with pytest.raises(SchemaError, match="no value satisfies"):
        CompiledSchema(schema).check_has_instance()


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "string", "enum": [1]}, "#"),
        ({"allOf": [{}, {"type": "string", "minLength": 2, "maxLength": 1}]}, "#/allOf/1"),
        ({"type": "object", "required": ["a"], "properties": {"a": {"not": {}, "title": "none"}}}, "#/properties/a"),
        ({"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"not": {}}}}, "#/$defs/n"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "#"),
    ],
)
def test_the_conflict_is_traced_to_its_place(schema: Any, pointer: str) -> None:
    with pytest.raises(SchemaError, match="no value satisfies") as caught:
        CompiledSchema(schema).check_has_instance()
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("options", [{"max_cases": 0}, {"max_cases": -1}])
def test_options_are_checked(options: dict[str, int]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        SchemaOptions(**options)


def test_too_many_alternatives_are_a_limit_error() -> None:
    dependencies = {f"a{index}": [f"b{index}"] for index in range(13)}
    compiled = CompiledSchema({"type": "object", "dependencies": dependencies, "minProperties": 1})
    compiled.check_has_instance()
    with pytest.raises(LimitError, match="max_cases"):
        compiled.cases(compiled.root)


def test_formats_may_be_annotations() -> None:
    for formats in (True, False):
        compiled = CompiledSchema({"format": "date"}, options=SchemaOptions(formats=formats))
        assert compiled.accepts(compiled.root, "2021-02-29") is not formats
        assert compiled.accepts(compiled.root, "2020-02-29")


def test_dynamic_references_lead_somewhere() -> None:
    with pytest.raises(SchemaError, match=r"\$dynamicRef '#items' leads nowhere") as error:
        CompiledSchema({"properties": {"a": {"$dynamicRef": "#items"}}})
    assert error.value.pointer == "#/properties/a/$dynamicRef"


def test_what_leads_to_a_keyword_is_found_through_references_and_shared_objects() -> None:
    shared = {"items": {"not": True}}
    schema = {
        "properties": {
            "a": {"items": {"$ref": "#/$defs/b"}},
            "c": {"items": {"type": "null"}},
            "d": {"prefixItems": [shared]},
        },
        "additionalProperties": {"items": shared},
        "$defs": {"b": {"maxItems": 3, "items": {"$ref": "#/$defs/e"}}, "e": {"not": True}, "f": {"type": "null"}},
    }
    documents = CompiledSchema(schema).documents
    pointers = {place.pointer for place in documents.places if id(place.value) in documents.above(frozenset(("not",)))}
    assert not documents.above(frozenset(("anyOf",)))
    others = {place.pointer for place in documents.places} - pointers
    assert others == {"#/properties/c", "#/properties/c/items", "#/$defs/f"}
