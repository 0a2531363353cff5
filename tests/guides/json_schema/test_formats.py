"""Formats of which not all strings are told: nothing that may be of one is certain, and `not` refuses it."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trellm

from .support import ENFORCED, String, counted
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


def test_the_page_has_every_format() -> None:
    page = (Path(trellm.__file__).parent / "docs" / "json.md").read_text(encoding="utf-8")
    row = page.split("| `format` | ", 1)[1].split(";", 1)[0]
    assert set(row.split(", ")) == ENFORCED, "the row of `format` in docs/json.md names the formats that are enforced"


def test_only_names_of_the_standard_are_formats() -> None:
    for name in ("perhaps hostname", "hostname of RFC 1123"):
        guide = guide_of({"type": "string", "format": name})
        assert not isinstance(guide, str)
        assert reads(guide, json.dumps("a b"))


def fault_of(name: str) -> str | None:
    """What is wrong with an internationalised name, as the library idna has RFC 5891 to 5893."""
    idna = pytest.importorskip("idna")
    is_mixed = any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in name)
    for label in re.split("[.\u3002\uff0e\uff61]", name):
        try:
            if not label.isascii():
                idna.alabel(label)
            elif not re.fullmatch(r"(?!..--)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?", label):
                return label
            if is_mixed:
                idna.check_bidi(label, check_ltr=True)
        except idna.IDNAError as error:
            return str(error)
    return None


def test_internationalised_names_are_what_idna_reads() -> None:
    """Random walks through the format's automaton, to the bounds of its sets of characters and between them."""
    random = Random(3)
    machine = counted(String(formats=frozenset(("idn-hostname",)))).automaton
    names: list[str] = []
    while len(names) < 3000:
        state, name, length = machine.start, "", random.randrange(1, 40)
        while not (machine.accepting[state] and len(name) >= length):
            atom, state = random.choice([(atom, to) for atom, to in enumerate(machine.rows[state]) if to >= 0])
            low, high = random.choice(machine.atoms[atom])
            name += chr(random.choice([low, high, random.randint(low, high)]))
        names.append(name)
    assert [(name, fault) for name in names if (fault := fault_of(name)) is not None] == []
    assert sum("\u0600" <= max(name) <= "\u06ff" for name in names) > 20
    assert sum(len(name) > 30 for name in names) > 300


def test_faults_are_found() -> None:
    for name in ("a\u00b7l", "0a.\u05d0", "\u0628\u0660\u06f0", "\u00fc" * 60, "a.-b"):
        assert fault_of(name) is not None
