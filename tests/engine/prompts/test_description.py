"""Schemas in prompts: how they are written, where they stand, and that the model reads them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel, Field
from trellm import OptionError, SchemaError, Vocabulary, generate, models, prompts

from ..support import MAX_CHARS

LEAD = "Answer with JSON like this:\n"
NAMED = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Place:
    city: str
    zip: int | None = None


class Person(BaseModel):
    name: str = Field(description="in full,\nas on papers")
    kind: Literal["a", "b"]
    colour: Colour
    places: list[Place]
    friends: list[Person] = []
    ages: dict[str, int] = {}


def called(count: int, word: str = "so") -> None: ...


def skeleton(schema: Any) -> str:
    written = prompts.describe(schema)
    assert written.startswith(LEAD)
    return written.removeprefix(LEAD)


def test_types() -> None:
    assert skeleton(Person) == (
        '{"name": string /* in full, as on papers */, "kind": "a" | "b", "colour": "red" | "blue", "places": '
        '[{"city": string, "zip"?: integer | null}], "friends"?: [...], "ages"?: {string: integer}}'
    )


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, "any"),
        ({}, "any"),
        ({"type": "object"}, "object"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"enum": ["x", 1, None, True]}, '"x" | 1 | null | true'),
        ({"enum": [*range(30)]}, " | ".join([*map(str, range(24)), "..."])),
        ({"const": {"a": [1]}}, '{"a": [1]}'),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "regex"}, "string"),
        (list[int], "[integer]"),
        (tuple[int, str], "[integer, string]"),
        ({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, "[integer, ...string]"),
        ({"items": [{"type": "integer"}]}, "[integer]"),
        (called, '{"count": integer, "word"?: string}'),
        (json.dumps(NAMED), '{"a": integer}'),
        ({"anyOf": [NAMED, {"type": "null"}]}, '{"a": integer} | null'),
        ({"oneOf": [{"$ref": "#/$defs/N"}, {"$ref": "#/$defs/M"}], "$defs": {"N": NAMED}}, '{"a": integer} | any'),
        ({"allOf": [NAMED, {"properties": {"b~/": {"type": "null"}}}]}, '{"a": integer, "b~/"?: null}'),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}}, "null"),
        ({"$ref": "elsewhere"}, "any"),
        ({"$ref": "#named"}, "any"),
    ],
)
def test_schemas(schema: Any, expected: str) -> None:
    assert skeleton(schema) == expected


@pytest.mark.parametrize("name", ["anyOf", "oneOf", "allOf"])
def test_schemas_that_hold_themselves_end(name: str) -> None:
    node = {"type": "object", "properties": {"next": {name: [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}
    assert "..." in skeleton({"$ref": "#/$defs/node", "$defs": {"node": node}})
    looped = {name: [{"$ref": "#/$defs/b"}]}
    assert skeleton({"$ref": "#/$defs/a", "$defs": {"a": looped, "b": {name: [{"$ref": "#/$defs/a"}]}}}) == "..."
    assert skeleton({"$ref": "#"}) == "..."


def test_large_schemas_are_cut_where_they_are_deepest() -> None:
    inner = {"type": "object", "properties": {f"inner{n}": {"type": "string"} for n in range(40)}}
    written = skeleton({"type": "object", "properties": {f"member{n}": inner for n in range(60)}})
    assert len(written) <= MAX_CHARS
    assert all(f'"member{n}"?: {{...}}' in written for n in range(60))
    many = skeleton({"type": "object", "properties": {f"member{n}": inner for n in range(600)}})
    assert len(many) <= MAX_CHARS + 10
    assert many.endswith(", ...}")
    doubled: dict[str, Any] = {f"t{n}": {"prefixItems": [{"$ref": f"#/$defs/t{n + 1}"}] * 4} for n in range(30)}
    assert len(skeleton({"$ref": "#/$defs/t0", "$defs": {**doubled, "t30": {"type": "null"}}})) <= MAX_CHARS


class Chats:
    """Bytes, and chats as the messages between bars."""

    chat_template = "there is one"

    def encode(self, text: str) -> list[int]:
        return [*text.encode()]

    def apply_chat_template(self, messages: Any, **options: Any) -> Any:
        said = [each["content"] for each in messages]
        parts = [each if isinstance(each, str) else "".join(part["text"] for part in each) for each in said]
        text = "|".join(parts) + ">"
        return [*text.encode()] if options.get("tokenize") else text


def logits(ids: Sequence[int]) -> Any:
    return np.cos(np.arange(257.0) * (1 + len(ids)))


@pytest.fixture(scope="module")
def model() -> Any:
    vocabulary = Vocabulary([*(bytes([byte]) for byte in range(256)), None], [256])
    return models.from_function(logits, vocabulary, Chats())


BEHIND = f'{LEAD}{{"a": integer}}'


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        ("Hello", f"Hello\n{BEHIND}\n"),
        ([{"role": "user", "content": "Hello"}], f"Hello\n{BEHIND}>```json\n"),
        ([{"role": "user", "content": [{"type": "text", "text": "Hello"}]}], f"Hello\n{BEHIND}>```json\n"),
        (
            [*({"role": name, "content": name} for name in ("user", "assistant", "user", "assistant"))],
            f"user|assistant|user\n{BEHIND}|assistant>```json\n",
        ),
    ],
)
def test_what_the_model_reads(model: Any, prompt: Any, read: str) -> None:
    kept = json.dumps(prompt)
    described: Any = generate.json(model, NAMED, describe=True)
    result = described.run(prompt)
    assert result.prompt == read
    assert json.dumps(prompt) == kept, "what the caller gave is as it was"
    assert isinstance(result.value["a"], int)
    assert pickle.loads(pickle.dumps(result)).prompt == read
    plain = read.replace(f"\n{BEHIND}", "", 1).removesuffix("\n" * isinstance(prompt, str))
    assert generate.json(model, NAMED).run(prompt).prompt == plain
    assert generate.batch([(described, prompt)]) == [result.value]


def test_healed_prompts_and_frames_are_shown_whole() -> None:
    vocabulary = Vocabulary([*(bytes([byte]) for byte in range(256)), None, b"t a"], [256])
    model = models.from_function(lambda ids: [*[0.0] * 257, 9.0], vocabulary, Chats())
    result = generate.regex(model, " ab").run("that")
    assert result.overlap == 1
    assert result.prompt == "that"
    assert result.text == " ab"
    framed = generate.regex(model, "[a-c]{2}", frame=("It is ", ".")).run([{"role": "user", "content": "What?"}])
    assert framed.prompt == "What?>It is "


def test_mistakes(model: Any) -> None:
    described = generate.json(model, NAMED, describe=True)
    with pytest.raises(OptionError, match="the prompt is token ids"):
        described([72, 105])
    with pytest.raises(OptionError, match="the chat has none"):
        described([{"role": "system", "content": "Hello"}])
    with pytest.raises(OptionError, match="describe"):
        generate.json(model, NAMED, describe="yes")  # type: ignore[call-overload]
    with pytest.raises(SchemaError, match="no JSON"):
        prompts.describe("{")
    with pytest.raises(OptionError):
        prompts.describe(3)
