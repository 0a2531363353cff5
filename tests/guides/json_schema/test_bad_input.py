"""What is no JSON, or cannot be written, is refused with its place; annotations may say what they like."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from trellm.errors import SchemaError, TrellmError
from trellm.guides import JSONGuide

from ..support import CompiledSchema
from .test_guide_suite import BYTES

LONE = "\ud800"


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {LONE: True}}, "#/properties/\\ud800"),
        ({"patternProperties": {LONE: True}}, "#/patternProperties/\\ud800"),
        ({"dependentSchemas": {LONE: True}}, "#/dependentSchemas/\\ud800"),
        ({"dependencies": {"a": [LONE]}}, "#/dependencies/a"),
        ({"dependentRequired": {"a": [LONE]}}, "#/dependentRequired"),
        ({"dependentRequired": {LONE: ["a"]}}, "#/dependentRequired"),
        ({"required": [LONE]}, "#/required"),
        ({"enum": ["a", LONE]}, "#/enum"),
        ({"enum": [1, [{"a": LONE}]]}, "#/enum"),
        ({"const": {LONE: 1}}, "#/const"),
        ({"pattern": LONE}, "#/pattern"),
        ({"format": LONE}, "#/format"),
        ({"$ref": f"#/{LONE}"}, "#/$ref"),
        ({"x-quote": LONE}, "#/x-quote"),
        ({"not": {"items": {"const": LONE}}}, "#/not/items/const"),
    ],
)
def test_lone_surrogates_are_refused(schema: Any, pointer: str) -> None:
    with pytest.raises(SchemaError) as caught:
        JSONGuide(schema, BYTES)
    assert caught.value.pointer == pointer
    assert str(caught.value).encode()


@pytest.mark.parametrize("annotation", [{"description": LONE}, {"$defs": {LONE: {"type": "null"}}}, {LONE: 1}])
def test_lone_surrogates_in_annotations_do_no_harm(annotation: Any) -> None:
    JSONGuide({"type": "integer", **annotation}, BYTES)


@pytest.mark.parametrize("value", [{1}, b"a", float("nan"), float("inf"), Decimal(1), np.int64(1), (1,), object(), 1j])
@pytest.mark.parametrize(
    "keyword",
    ["const", "minimum", "multipleOf", "minLength", "type", "required", "properties", "items", "allOf", "$ref"],
)
def test_what_is_no_json_is_refused(keyword: str, value: Any) -> None:
    with pytest.raises(SchemaError) as caught:
        CompiledSchema({"not": {keyword: value}})
    assert caught.value.pointer == f"#/not/{keyword}"


@pytest.mark.parametrize("keyword", ["enum", "required", "allOf", "prefixItems"])
def test_tuples_are_no_arrays(keyword: str) -> None:
    with pytest.raises(SchemaError):
        CompiledSchema({keyword: ({"type": "null"},)})


@pytest.mark.parametrize("schema", [{1: 2}, {"properties": {1: True}}, {"const": {1: 2}}, {"$defs": {None: True}}])
def test_names_are_strings(schema: Any) -> None:
    with pytest.raises(SchemaError, match="strings"):
        CompiledSchema(schema)


def test_numbers_of_numpy_that_are_floats_are_numbers() -> None:
    compiled = CompiledSchema({"multipleOf": np.float64(0.1)})
    assert compiled.accepts(compiled.root, 0.3)


@pytest.mark.parametrize("schema", [None, [], 3, "3", '"a"', "nul", '{"a": 1', "", f'{{"const": {"9" * 5000}}}'])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError):
        CompiledSchema(schema)


@pytest.mark.parametrize(
    "number", ["1e99999999999999999999", "1e" + "9" * 5000, "0." + "1" * 5000, "-" + "9" * 5000, "Infinity"]
)
def test_numbers_beyond_measure_are_refused(number: str) -> None:
    with pytest.raises(SchemaError, match="no JSON"):
        CompiledSchema(f'{{"minimum": {number}}}')


def test_a_member_that_occurs_twice_is_refused() -> None:
    with pytest.raises(SchemaError, match="two members called 'type'"):
        CompiledSchema('{"items": {"type": "null", "type": "string"}}')


@pytest.mark.parametrize("index", ["1", "0" * 5_000 + "1", "9" * 5_000, "١", "²", "-1", ""])
def test_pointers_into_arrays(index: str) -> None:
    schema = {"prefixItems": [True, {"type": "integer"}], "items": {"$ref": f"#/prefixItems/{index}"}}
    try:
        compiled = CompiledSchema(schema)
    except SchemaError as error:
        assert "leads nowhere" in str(error) and index.lstrip("0") != "1"
    else:
        assert not compiled.accepts(compiled.root, [1, 2, "a"])


@pytest.mark.parametrize("keyword", ["$ref", "$id", "$dynamicRef"])
@pytest.mark.parametrize("uri", ["http://[", "//[::1", "http://a:b\u2100/"])
def test_what_is_no_uri_is_refused(keyword: str, uri: str) -> None:
    with pytest.raises(TrellmError):
        CompiledSchema({"$id": "http://example.com/", "items": {keyword: uri, "$ref": uri}}).check_has_instance()


@pytest.mark.parametrize("named", [10**5000, [10**5000], {"a": 10**5000}, 5, None, ["x" * 10**6]], ids=range(6))
def test_a_dialect_may_be_any_value(named: Any) -> None:
    """Numbers of more digits than Python writes among them, in a resource too."""
    if named is not None:
        with pytest.raises(SchemaError, match=r"unknown \$schema") as caught:
            JSONGuide({"$schema": named}, BYTES)
        assert len(str(caught.value)) < 1000
    with pytest.raises(SchemaError, match=r"unknown \$schema"):
        JSONGuide({"$schema": "http://m/x"}, BYTES, resources={"http://m/x": {"$schema": named}})
    resources = {
        "http://m/x": {"$schema": "https://json-schema.org/draft/2020-12/schema", "$vocabulary": {10**5000: True}}
    }
    JSONGuide({"$schema": "http://m/x"}, BYTES, resources=resources)
