"""The normal form against jsonschema, on random schemas and values."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest
from jsonschema import FormatChecker
from jsonschema.validators import validator_for
from trellm.errors import LimitError, SchemaError

from ..support import CompiledSchema
from .random_schemas import DRAFTS, random_document, random_value

SEEDS = 1200
VALUES = 30


def decimal(value: Any) -> Any:
    """The value with floats for fractions, as jsonschema wants them."""
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, list):
        return [decimal(item) for item in value]
    return {name: decimal(item) for name, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("part", range(4))
def test_verdicts_witnesses_and_emptiness_agree_with_jsonschema(part: int) -> None:
    tried = empty = valid = 0
    for seed in range(part, SEEDS, 4):
        random = Random(seed)
        schema = random_document(random, [*DRAFTS.values()][seed // 4 % len(DRAFTS)])
        if schema is None:
            continue
        values = [random_value(random) for _ in range(VALUES)]
        try:
            compiled = CompiledSchema(schema)
            has_instance = compiled.has_instance(compiled.root)
        except LimitError:
            continue
        except SchemaError as error:
            assert "without progress" in error.reason, (seed, schema)
            continue
        oracle = validator_for(schema)(schema, format_checker=FormatChecker())
        verdicts = [oracle.is_valid(value) for value in values]
        assert [compiled.accepts(compiled.root, value) for value in values] == verdicts, (seed, schema)
        if has_instance:
            witness = decimal(compiled.minimal_instance(compiled.root))
            assert oracle.is_valid(witness), (seed, schema, witness)
        else:
            assert not any(verdicts), (seed, schema)
            empty += 1
        tried += 1
        valid += sum(verdicts)
    # The sample must say something: most schemas are tried, some have no instance, many values are valid.
    assert tried > SEEDS // 4 * 0.8
    assert empty > 5
    assert valid > tried
