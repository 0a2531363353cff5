"""Which keyword a value breaks: there is one exactly where jsonschema says that the value is no instance."""

import json
from pathlib import Path
from typing import Any

import pytest
from trellm import TrellmError
from trellm.cli import main
from trellm.cli.violation import violation

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "age": {"type": "integer", "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        "size": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"mm": {"minimum": 1}}}]},
    },
    "patternProperties": {"^x-": {"type": "string"}},
    "additionalProperties": False,
    "required": ["age"],
}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"age": 130}, "maximum 120 at /age, where the value is 130"),
        ({"age": "1"}, 'type "integer" at /age, where the value is "1"'),
        ({}, 'required ["age"] at the top, where the value is {}'),
        ({"age": 1, "tags": ["a", "c"]}, 'enum ["a", "b"] at /tags/1, where the value is "c"'),
        ({"age": 1, "tags": ["a", "a", "a"]}, 'maxItems 2 at /tags, where the value is ["a", "a", "a"]'),
        ({"age": 1, "size": {"mm": 0}}, "minimum 1 at /size/mm, where the value is 0"),
        ({"age": 1, "x-a": 1}, 'type "string" at /x-a, where the value is 1'),
        ({"age": 1, "a/b": 1}, "additionalProperties false at /a~1b, where the value is 1"),
    ],
)
def test_the_keyword_the_limit_and_the_place(value: Any, said: str) -> None:
    assert str(violation(SCHEMA, value, {})) == said


def test_the_command_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    assert main(["check", "--schema", str(schema), "--text", '{"age": 130}']) == 1
    assert capsys.readouterr().out.endswith("the value breaks maximum 120 at /age, where the value is 130\n")
    assert main(["check", "--schema", str(schema), "--text", '{"age":   13}']) == 1
    assert "the value satisfies the schema, but not the layout" in capsys.readouterr().out
    assert main(["check", "--schema", str(schema), "--text", '{"age": ']) == 1
    assert "the value" not in capsys.readouterr().out


@pytest.mark.parametrize("draft", ["draft2020-12", "draft4"])
def test_the_suite_agrees(shared_data: Path, draft: str) -> None:
    declared = {"draft4": "http://json-schema.org/draft-04/schema#"}.get(draft)
    judged = named = 0
    for file in sorted((shared_data / "json-schema-test-suite" / "tests" / draft).glob("*.json")):
        for group in json.loads(file.read_text(encoding="utf-8")):
            schema = group["schema"]
            if declared and isinstance(schema, dict):
                schema.setdefault("$schema", declared)
            if file.stem == "format":  # annotations there, enforced here
                continue
            for test in group["tests"]:
                try:
                    found = violation(schema, test["data"], {})
                except TrellmError:  # a schema that needs others, or is refused
                    continue
                judged += 1
                assert (found is None) == test["valid"], f"{file.stem}: {group['description']}: {test['description']}"
                named += found is not None and not found.keyword.startswith("the schema")
    assert judged > 400 and named > 150
