"""Formats of which not all strings are told: nothing that may be of one is taken for certain, and `not` refuses it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .test_guide_suite import guide_of, reads

A_LABEL = "xn--9n2bp8q"
FORMAT = {"type": "string", "format": "hostname"}
NAMES: dict[str, Any] = {"type": "object", "propertyNames": {"format": "hostname"}, "minProperties": 1}
OTHER_NAMES: dict[str, Any] = {**NAMES, "propertyNames": {"not": {"format": "hostname"}}}


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        (FORMAT, {"abc": True, "a b": False}),
        ({"type": "string", "not": FORMAT}, {"abc": False, "a b": True}),
        ({"type": "string", "not": {"not": FORMAT}}, {"abc": True, "a b": False}),
        ({"if": FORMAT, "then": {"maxLength": 5}, "else": {"maxLength": 3}}, {"a b": True, "abcdef": False}),
        ({"oneOf": [FORMAT, {"type": "string", "maxLength": 3}]}, {"abc": False, "abcd": True, "a b": True}),
    ],
    ids=str,
)
def test_strings_that_may_be_of_a_format(schema: dict[str, Any], wanted: dict[str, bool]) -> None:
    guide = guide_of(schema)
    assert not isinstance(guide, str)
    for text, valid in {**wanted, A_LABEL: False}.items():
        assert reads(guide, json.dumps(text)) is valid, text


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        (NAMES, {"abc": True, "a b": False}),
        (OTHER_NAMES, {"abc": False, "a b": True}),
        ({"type": "object", "not": NAMES}, {"abc": False, "a b": True}),
        ({"type": "object", "not": OTHER_NAMES}, {"abc": True, "a b": False}),
    ],
    ids=str,
)
def test_names_that_may_be_of_a_format(schema: dict[str, Any], wanted: dict[str, bool]) -> None:
    guide = guide_of(schema)
    assert not isinstance(guide, str)
    for name, valid in {**wanted, A_LABEL: False}.items():
        assert reads(guide, json.dumps({name: 1})) is valid, name


def test_only_names_of_the_standard_are_formats() -> None:
    for name in ("perhaps hostname", "hostname of RFC 1123"):
        guide = guide_of({"type": "string", "format": name})
        assert not isinstance(guide, str)
        assert reads(guide, json.dumps("a b"))
