"""The normal form against real schemas with valid and invalid instances."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for
from trellm.errors import LimitError, SchemaError

from ..support import CompiledSchema, Meter
from .test_random_schemas import decimal

WITHOUT_INSTANCE = {"Glaiveai2K---calculate_area_43c11cd0"}


@pytest.fixture(scope="module")
def records(shared_data: Path) -> list[dict[str, Any]]:
    with gzip.open(shared_data / "maskbench-dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_every_verdict_is_right_or_declared(records: list[dict[str, Any]]) -> None:
    wrong: list[str] = []
    too_many: list[str] = []
    empty: set[str] = set()
    for record in records:
        try:
            # Counted as in a guide, where each call may take as much
            with Meter():
                compiled = CompiledSchema(record["schema"])
                compiled.check_has_instance()
            with Meter():
                got = [compiled.accepts(compiled.root, test["data"]) for test in record["tests"]]
        except LimitError:
            too_many.append(record["id"])
            continue
        except SchemaError:
            empty.add(record["id"])
            continue
        if got != [test["valid"] for test in record["tests"]]:
            wrong.append(record["id"])
    assert wrong == []
    assert too_many == []
    assert empty == WITHOUT_INSTANCE


def test_witnesses_validate(records: list[dict[str, Any]]) -> None:
    for record in records[::8]:
        if record["id"] in WITHOUT_INSTANCE:
            continue
        schema = record["schema"]
        compiled = CompiledSchema(schema)
        witness = decimal(compiled.minimal_instance(compiled.root))
        kind = validator_for(schema, default=Draft202012Validator)
        assert kind(schema, format_checker=kind.FORMAT_CHECKER).is_valid(witness), record["id"]
        assert compiled.accepts(compiled.root, witness), record["id"]
