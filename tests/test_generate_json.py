"""Structured outputs: every way to say what is asked for, and values of that type."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import subprocess
import sys
from typing import Annotated, Any, Literal, TypedDict

import jsonschema
import pydantic
import pytest
import typing_extensions
from trellm import BudgetError, LimitError, OptionError, Sample, SchemaError, Vocabulary, generate, models

TEXT = '{"name": "Ada Lovelace", "age": 36, "mood": "happy", "born": "1815-12-10", "tags": ["math", "poetry"]}\n'


class Mood(enum.Enum):
    HAPPY = "happy"
    SAD = "sad"


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=120)
    mood: Mood
    tags: list[Literal["math", "poetry"]] = pydantic.Field(max_length=3)


class Team(pydantic.BaseModel):
    lead: Person
    size: Literal[1, 2] = 1


@dataclasses.dataclass
class Point:
    x: Annotated[int, pydantic.Field(ge=0, le=9)]
    label: Literal["a", "b"] = "a"


class Plain(TypedDict):
    born: datetime.date
    mood: typing_extensions.NotRequired[Mood]


class Extended(typing_extensions.TypedDict, total=False):
    flag: typing_extensions.Required[bool]
    other: None


def call(
    city: Literal["Rome", "Oslo"], _days: Annotated[int, pydantic.Field(ge=1, le=9)], unit: Mood = Mood.SAD
) -> None:
    """Something a model may call."""


@pytest.fixture(scope="module")
def model() -> Any:
    return models.ziplm(TEXT * 3)


def samples(generator: Any, budget: int = 30) -> list[Any]:
    """Values near the least budget and beyond it."""
    shortest = generator.guide.distance(generator.guide.start)
    found: list[Any] = []
    for most in {max(shortest, 1), shortest + budget}:
        found += generator("Person: ", max_tokens=most, search=Sample(temperature=9.0, n=3), seed=most)
    return found


SCHEMA = {
    "type": "object",
    "properties": {"b": {"type": "integer", "maximum": 30}, "a": {"enum": ["x", "y"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("schema", [SCHEMA, json.dumps(SCHEMA)], ids=["dict", "text"])
def test_a_schema_gives_its_instances_in_its_order(model: Any, schema: Any) -> None:
    for value in samples(generate.json(model, schema)):
        jsonschema.validate(value, SCHEMA)
        assert list(value) == ["b", "a"]


def test_any_order_is_an_option(model: Any) -> None:
    guide = generate.json(model, SCHEMA, order="any", whitespace="compact").guide
    assert guide is not None
    text = b'{"a":"x","b":7}'
    assert guide.automaton.is_accepting(guide.automaton.read(guide.start, text))  # pyright: ignore
    ordered: Any = generate.json(model, SCHEMA, whitespace="compact").guide
    assert ordered.automaton.read(ordered.start, text) < 0


def test_true_is_any_json(model: Any) -> None:
    generator = generate.json(model, True)
    for result in generator.run("Person: ", max_tokens=12, search=Sample(temperature=9.0, n=4), seed=3):
        assert json.loads(result.text) == result.value


@pytest.mark.parametrize("kind", [Person, Team, Point, list[Point], Mood, datetime.date, bool | None])
def test_python_types_give_their_values(model: Any, kind: Any) -> None:
    adapter = pydantic.TypeAdapter[Any](kind)
    for value in samples(generate.json(model, kind)):
        assert adapter.validate_python(value, strict=True) == value


@pytest.mark.parametrize(("kind", "required"), [(Plain, {"born"}), (Extended, {"flag"})])
def test_typed_dicts_give_dicts_with_their_members(model: Any, kind: Any, required: set[str]) -> None:
    for value in samples(generate.json(model, kind)):
        assert required <= value.keys() <= kind.__annotations__.keys()
        assert isinstance(value.get("born", datetime.date.min), datetime.date)
        assert value.get("mood", Mood.SAD) in Mood


def test_a_function_gives_its_arguments(model: Any) -> None:
    seen: set[int] = set()
    for value in samples(generate.json(model, call)):
        assert value["city"] in ("Rome", "Oslo") and 1 <= value["_days"] <= 9
        assert value.get("unit", Mood.SAD) in Mood
        seen.add(len(value))
        call(**value)
    assert seen <= {2, 3}


def test_members_that_a_type_does_not_have_are_not_written(model: Any) -> None:
    guide: Any = generate.json(model, Point, whitespace="compact").guide
    assert guide.automaton.read(guide.start, b'{"x":1,"y') < 0

    class Open(Team):
        model_config = pydantic.ConfigDict(extra="allow")

    wide: Any = generate.json(model, Open, order="any", whitespace="compact").guide
    assert wide.automaton.read(wide.start, b'{"y') >= 0


def test_integers_of_any_length() -> None:
    tokens = [b"[", *[b"9" * 1000] * 5, b", -7", b"]", None]
    vocabulary = Vocabulary(tokens, (len(tokens) - 1,))
    nines = models.from_function(lambda ids: [float(token == len(ids) - 1) for token in range(len(tokens))], vocabulary)
    integers = generate.json(nines, {"type": "array", "items": {"type": "integer"}}, spelling="any")
    assert integers([0], heal=False) == [10**5000 - 1, -7]


def test_what_cannot_fit_is_known_beforehand(model: Any) -> None:
    with pytest.raises(BudgetError):
        generate.json(model, SCHEMA)("x", max_tokens=5)


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ("{", SchemaError, "no JSON"),
        ({"type": "strin"}, SchemaError, "#/type"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, SchemaError, "no value"),
        (5, OptionError, "5"),
        (lambda *words: words, OptionError, "any number of arguments"),
        (object(), OptionError, "cannot write"),
        (type(sys), OptionError, "cannot write"),
    ],
)
def test_mistakes(model: Any, asked: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        generate.json(model, asked)


def test_a_limit_names_its_option(model: Any) -> None:
    schema = {"allOf": [{"anyOf": [{"required": [f"{row}{n}"]} for n in range(9)]} for row in range(3)]}
    with pytest.raises(LimitError, match="max_cases"):
        generate.json(model, schema, max_cases=20)


def test_pydantic_is_asked_for_only_where_it_is_needed() -> None:
    code = """
import sys
sys.modules["pydantic"] = None
from trellm import Vocabulary, generate, models
model = models.from_function(lambda ids: [0.0] * 257, Vocabulary.from_bytes())
assert generate.json(model, {"const": 1})("x") == 1
generate.json(model, dict[str, int])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "OptionError" in done.stderr and "pip install pydantic" in done.stderr
