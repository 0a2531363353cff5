"""What people bring from other libraries, and write by mistake: done where it is plain, else told what to do."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from trellm import AnyOf, Ordered, Phrase, Vocabulary, generate, models
from trellm.cli import main
from trellm.errors import OptionError, SchemaError, TrellmWarning
from trellm.guides import CFGGuide, JSONGuide

MODEL = models.ziplm("Is it 1, 2 or 3? It is 2.")
GBNF = 'root ::= "1" | "2"'


def test_numbers_and_booleans_are_choices() -> None:
    assert generate.choice(MODEL, [1, 2, 3])("Is it 1, 2 or 3? It is ") == 2
    assert type(generate.choice(MODEL, [1, 2.5])("It is ")) in (int, float)
    assert generate.choice(MODEL, {3})("It is ") == 3
    assert generate.choice(MODEL, [True, False])("It is ") in (True, False)
    assert generate.choice(MODEL, ["2", 3])("Is it 1, 2 or 3? It is ") == "2"
    with pytest.raises(OptionError, match="written '1'"):
        generate.choice(MODEL, [1, "1"])
    with pytest.raises(OptionError, match="choice 1 must be a text"):
        generate.choice(MODEL, ["a", None])


def test_goals_in_a_list() -> None:
    assert AnyOf(["x", "y"]) == AnyOf("x", "y") and Ordered(("x", "y")) == Ordered("x", "y")
    with pytest.raises(OptionError, match="token ids"):
        AnyOf([1, 2])  # type: ignore[arg-type]
    assert AnyOf([Phrase("x", word=True), "y"]).goals[0] == Phrase("x", word=True)


def test_grammars_tell_their_language(tmp_path: Path) -> None:
    assert generate.cfg(MODEL, GBNF)("Is it 1, 2 or 3? It is ") == "2"
    assert generate.cfg(MODEL, 'start: "1" | "2"')("Is it 1, 2 or 3? It is ") == "2"
    path = tmp_path / "digit.gbnf"
    path.write_text(GBNF)
    assert generate.cfg(MODEL, path)("Is it 1, 2 or 3? It is ") == "2"
    with pytest.raises(OptionError, match=r"cannot be read: .*absent"):
        generate.cfg(MODEL, tmp_path / "absent")
    vocabulary = Vocabulary.from_bytes()
    assert CFGGuide('start: "::="', vocabulary).distance(CFGGuide('start: "::="', vocabulary).start) == 3


def test_schemas_in_files(tmp_path: Path) -> None:
    path = tmp_path / "person.schema.json"
    path.write_text('{"const": 2}')
    assert generate.json(MODEL, path)("It is ") == 2
    with pytest.raises(SchemaError, match=r"pathlib.Path\('person.schema.json'\)"):
        generate.json(MODEL, "person.schema.json")
    path.write_bytes(b"\xff")
    with pytest.raises(OptionError, match="not UTF-8, at byte 0"):
        generate.json(MODEL, path)


@pytest.mark.parametrize(
    ("schema", "pointer", "said"),
    [
        ({"propertis": {"a": {}}}, "#/propertis", "did you mean 'properties'"),
        ({"type": "object", "properties": {"a": {"maxlength": 3}}}, "#/properties/a/maxlength", "'maxLength'"),
        ({"name": "Bob", "age": 3}, "#", "not a value"),
        ({"type": "object", "require": ["a"]}, "#/require", "'required'"),
    ],
)
def test_strange_schemas_are_named(schema: dict[str, Any], pointer: str, said: str) -> None:
    with pytest.warns(TrellmWarning, match=re.escape(said)) as found:
        generate.json(MODEL, schema)
    assert f"(at {pointer})" in str(found[0].message) and found[0].filename == __file__
    with pytest.raises(SchemaError, match=re.escape(said)) as refused:
        generate.json(MODEL, schema, strict=True)
    assert refused.value.pointer == pointer


def test_strange_keywords_of_a_schema_are_looked_for_once() -> None:
    guide = JSONGuide({"propertis": {}}, MODEL.vocabulary)
    assert guide.strange_keywords and guide.strange_keywords is guide.strange_keywords


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"title": "a", "description": "b", "x-order": 1},
        {"type": "object", "properties": {"propertis": {}, "minimun": {"type": "string"}}},
        {"type": "string", "enum": ["a"], "enumDescriptions": ["b"], "_format": "c", "readonly": True},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "array",
            "minContains": 2,
            "dependentRequired": 3,
        },
        {"$ref": "#/$defs/a", "$defs": {"a": {"const": 1}}},
    ],
)
def test_plain_schemas_are_not(schema: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generate.json(MODEL, schema, strict=True)


@pytest.mark.parametrize(
    ("schema", "pointers"),
    [
        ({"type": "integer", "minimum": 5, "maximum": 3, "title": "x"}, ["#/type", "#/minimum", "#/maximum"]),
        (
            {"type": "object", "properties": {"a": {}}, "required": ["b"], "additionalProperties": False},
            ["#/type", "#/required", "#/additionalProperties"],
        ),
        ({"allOf": [{"const": 1}, {"type": "string", "maxLength": 9}]}, ["#/allOf/0/const", "#/allOf/1/type"]),
        (
            {"$ref": "#/$defs/a~b", "const": 1, "$defs": {"a~b": {"const": 2}}},
            ["#/$ref", "#/const", "#/$defs/a~0b/const"],
        ),
    ],
)
def test_keywords_that_clash_are_named(schema: dict[str, Any], pointers: list[str]) -> None:
    with pytest.raises(SchemaError, match="exclude each other") as error:
        generate.json(MODEL, schema)
    assert sorted(re.findall(r"#[^\s,]+", str(error.value).partition("(at ")[0])) == sorted(pointers)
    for pointer in pointers:  # each is needed: an independent validator finds a value without it
        smaller = json.loads(json.dumps(schema))
        steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
        inner: Any = smaller
        for step in steps[:-1]:
            inner = inner[int(step) if isinstance(inner, list) else step]
        del inner[steps[-1]]
        validator = jsonschema.Draft202012Validator(smaller)
        assert any(validator.is_valid(value) for value in (None, 0, 1, 2, 5, "", "a", [], {}, {"b": 1}, {"a": 1}))


def test_large_schemas_that_have_no_value_are_refused_at_once() -> None:
    properties = {f"p{number}": {"type": "string"} for number in range(500)}
    with pytest.raises(SchemaError, match="no value satisfies this schema"):
        generate.json(MODEL, {"type": "object", "properties": properties, "minProperties": 3, "maxProperties": 2})


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        (generate, "select", r"generate\.choice"),
        (generate, "gen", r"generate\.text"),
        (generate, "regexx", "did you mean 'regex'"),
        (models, "openai", "trellm serve"),
        (models, "llamacpp", r"models\.gguf"),
        (models, "transformer", "did you mean 'transformers'"),
    ],
)
def test_names_of_other_libraries(module: Any, name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        getattr(module, name)
    assert not hasattr(module, name)


def test_loading(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config: Any = LlamaConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=257
    )
    loaded = LlamaForCausalLM(config)
    loaded.save_pretrained(tmp_path)
    capfd.readouterr()
    with pytest.raises(OptionError, match="has no tokenizer, such as"):
        models.transformers(tmp_path)
    with pytest.raises(OptionError, match=r'load_in_4bit= is no argument here: weights="q4"'):
        models.transformers(tmp_path, load_in_4bit=True)
    with pytest.raises(OptionError, match=r"did you mean device=\?"):
        models.transformers(tmp_path, devise="cpu")

    class Pipeline:
        model, tokenizer, task = loaded, "no tokenizer", "text-generation"

    with pytest.raises(OptionError, match="tokenizer='no tokenizer'"):
        models.transformers(Pipeline())
    assert "Loading weights" not in capfd.readouterr().err


def test_roles() -> None:
    model = models.small()
    for role, near in (("usr", "user"), ("User", "user"), ("assistent", "assistant"), ("sytem", "system")):
        with pytest.raises(OptionError, match=f"has the role '{role}'; did you mean '{near}'"):
            generate.text(model)([{"role": role, "content": "Hello"}])


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The status of `trellm generate`, and all that it says."""
    status = main(["generate", "--model", f"ziplm:{__file__}", *arguments])
    said = capsys.readouterr()
    return status, said.out + said.err


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    word = ("--regex", "[a-z]{4}", "--prompt", "def ")
    greedy = run(capsys, *word)
    assert greedy[0] == 0
    for flag in ("--temp", "--temperature"):
        assert run(capsys, *word, flag, "0") == greedy
    assert "takes the likeliest" in run(capsys, *word, "--temp", "0", "-n", "2")[1]
    out = tmp_path / "out.jsonl"
    common = (*word, "--out", str(out))
    assert run(capsys, *common)[0] == 0
    before = out.read_text()
    status, said = run(capsys, *common)
    assert status != 0 and "--overwrite" in said and out.read_text() == before
    assert run(capsys, *common, "--overwrite")[0] == 0 and out.read_text() == before
    assert run(capsys, *common, "--resume")[0] == 0 and out.read_text() == before
    assert "leave it out" in run(capsys, *word, "--overwrite")[1]


@pytest.mark.parametrize("text", ["def \nclass \n", "def \r\n\r\nclass \r\n", "def \nclass "])
def test_prompts_that_are_plain_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    path, out = tmp_path / "prompts.txt", tmp_path / "out.jsonl"
    path.write_bytes(text.encode())
    model = ("--model", f"ziplm:{__file__}", "--regex", "[a-z]{2}", "--prompts", str(path), "--out", str(out))
    assert main(["generate", *model]) == 0
    assert [json.loads(line)["prompt"] for line in out.read_text().splitlines()] == ["def ", "class "]
    path.write_text('"def "\nclass \n')
    assert main(["generate", *model, "--overwrite"]) != 0 and "line 2 is not JSON" in capsys.readouterr().err
    path.write_text("42\n")
    assert main(["generate", *model, "--overwrite"]) != 0 and "line 1 has no prompt" in capsys.readouterr().err
