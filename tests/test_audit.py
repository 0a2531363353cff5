"""The audit of masks: what it claims of texts is so, faults of engines are found, and its witnesses are witnesses."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from jsonschema.validators import validator_for
from trellm import Vocabulary
from trellm.guides import JSONGuide

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
sys.path.append(str(Path(__file__).resolve().parent / "guides" / "json_schema"))

from audit import Audit
from auditing.engines import Driver, Engine, bytes_of
from auditing.judge import Judge, UnusableError
from auditing.partial_json import NotJSONError, read
from auditing.spellings import is_common, spelled, undeclared
from auditing.witnesses import DEAD, ENDED, NAMES, REFUSED, kept
from random_schemas import DRAFTS, random_document, random_value

WITNESSES = kept(Path(__file__).resolve().parents[1] / "benchmarks" / "auditing" / "witnesses.jsonl")
VOCABULARY = Vocabulary.from_bytes()
RECORD = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "maxLength": 3},
        "b": {"enum": ["x", "yy", [1, 2]]},
        "c": {"type": "array", "items": {"type": "integer", "maximum": 5}, "maxItems": 2, "uniqueItems": True},
        "d": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[a-z]+$"}]},
    },
    "additionalProperties": False,
}


@pytest.mark.parametrize("engine", sorted({each.engine for each in WITNESSES}))
def test_each_witness_shows_an_error(engine: str) -> None:
    assert [each.id for each in WITNESSES if each.engine == engine and not each.holds()] == []


@pytest.mark.parametrize("draft", list(DRAFTS))
def test_beginnings_of_valid_texts_are_never_dead(draft: str) -> None:
    random, seen = Random(draft), 0
    while seen < 150:
        schema = random_document(random, DRAFTS[draft])
        if schema is None or '"$ref"' in json.dumps(schema[DRAFTS[draft].definitions]):
            continue  # jsonschema follows a definition that is itself for ever
        schema = {"$schema": DRAFTS[draft].uri, **schema}
        try:
            judge, oracle = Judge(schema), validator_for(schema)(schema)
        except UnusableError:
            continue
        for value in [random_value(random) for _ in range(12)]:
            if oracle.is_valid(value):
                seen += 1
                text = random.choice(spelled(judge, value))
                assert [text[:at] for at in range(len(text) + 1) if judge.dead(text[:at].encode())] == []
            else:
                assert judge.finished(json.dumps(value).encode())[0] is not True


@pytest.mark.parametrize(
    ("alive", "dead"),
    [
        ('{"a":"xxx', "x"),
        ('{"b":"y', "x"),
        ('{"b":[1,', '"'),
        ('{"b":[1,2', ",3"),
        ('{"c":[6', ","),
        ('{"c":[1,2', ","),
        ('{"c":[1,1', "]"),
        ('{"d":', "7"),
        ('{"d":"', "A"),
        ('{"', "e"),
        ('{"c":[6.5', "]"),
        ("{", "]"),
        ('{"a":"', "\n"),
        ('{"a":"\\u00', "x"),
        ('{"a":"x"', ":"),
        ('{"c":[0', "1"),
        ("{}", "{"),
    ],
)
def test_a_text_is_dead_from_the_token_on_that_it_cannot_have(alive: str, dead: str) -> None:
    judge = Judge(RECORD)
    assert judge.dead(alive.encode()) is None
    assert judge.dead((alive + dead).encode()) is not None


def test_texts_are_read_as_json_reads_them() -> None:
    random = Random(1)
    pieces = ['"', "\\", "u", "00e9", "[", "]", "{", "}", ":", ",", "1", "-", ".", "e", "true", "null", " ", "é", "\n"]
    whole = 0
    for _ in range(20_000):
        text = "".join(random.choices(pieces, k=random.randrange(1, 7)))
        try:
            value = json.loads(text)
        except ValueError:
            with suppress(NotJSONError):
                assert read(text.encode() + b" ").is_open, text
            continue
        whole += 1
        assert read(text.encode() + b" ").value == value
    assert whole > 300


def test_spellings_have_the_order_of_the_alternative_that_fits() -> None:
    cases = [
        {"properties": {"kind": {"const": "a"}, "x": {}}, "required": ["kind"]},
        {"properties": {"x": {}, "kind": {"const": "b"}}, "required": ["kind"]},
    ]
    judge = Judge({"patternProperties": {"^p": {"oneOf": cases}}})
    texts = spelled(judge, {"p": {"kind": "b", "more": "é", "x": 1}})
    assert '{"p":{"kind":"b","more":"é","x":1}}' in texts
    assert '{"p": {"x": 1, "kind": "b", "more": "\\u00e9"}}' in texts
    assert undeclared(judge.schema, {"p": 1})
    assert not undeclared(judge.schema, [{"kind": 1}])
    assert [is_common(each) for each in (1.5, 1e-9, [0] * 21, "\x7f", "\n")] == [True, False, False, False, True]


class OfAnotherSchema(Engine):
    """An engine that reads a schema wrongly: this is the one that it reads."""

    def __init__(self, read_as: dict[str, Any]) -> None:
        self.size, self.eos, self._read_as = len(VOCABULARY.tokens), VOCABULARY.eos_ids[0], read_as

    def compile(self, schema: dict[str, Any]) -> JSONGuide:
        return JSONGuide(self._read_as, VOCABULARY)

    def start(self, compiled: JSONGuide) -> tuple[JSONGuide, int]:
        return compiled, compiled.start

    def mask(self, state: tuple[JSONGuide, int]) -> Any:
        guide, at = state
        return self._unpacked(np.asarray(guide.mask(at)))

    def advance(self, state: tuple[JSONGuide, int], token: int) -> tuple[JSONGuide, int]:
        guide, at = state
        return guide, guide.advance(at, token)


class InThisProcess:
    def __init__(self, engine: Engine, tokens: list[bytes]) -> None:
        self._driver = Driver(engine, tokens)

    def call(self, method: Any, *arguments: Any) -> Any:
        return getattr(self._driver, method.__name__)(*arguments)


def found(read_as: dict[str, Any], schema: dict[str, Any]) -> set[str]:
    """The kinds of errors of an engine that reads a schema as another one, beside one that is right."""
    tokens = bytes_of(VOCABULARY)
    readings = {"trellm": schema, "jsonschema": read_as}
    audit = Audit(
        {name: InThisProcess(OfAnotherSchema(each), tokens) for name, each in readings.items()}, tokens, list_of
    )
    audit.look_at(
        {"id": "one", "schema": schema, "tests": [{"data": {"a": 3, "b": "no"}}, {"data": {"a": 1, "b": "yes"}}]}
    )
    assert audit.tallies["trellm"].errors == {}
    assert audit.tallies["jsonschema"].taken == 1
    for (name, kind), witnesses in audit.witnesses.items():
        for witness in witnesses:
            assert witness.holds(), witness
            assert witness.repeats(audit.engines[name].call, list_of), (kind, witness)
    return set(audit.tallies["jsonschema"].errors)


def list_of(text: str) -> list[int]:
    return list(text.encode())


def test_faults_of_an_engine_are_found() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 2}, "b": {"enum": ["yes", "yeah", "never"]}},
        "required": ["a", "b"],
    }
    wider = {**schema, "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    narrower = {**schema, "properties": {"a": {"type": "integer", "maximum": 0}, "b": {"const": "yes"}}}
    assert found(schema, schema) == set()
    assert found(wider, schema) == {ENDED, DEAD}
    assert REFUSED in found(narrower, schema)
    assert found({**schema, "additionalProperties": False}, schema) == {NAMES}
