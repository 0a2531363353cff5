"""What a text must be, in the fields of OpenAI, vLLM, SGLang, llama.cpp, and in our own: at most one in a request."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from ..constraints.constraint import Constraint
from ..errors import ApiError
from .base import Asked, Beams, Texts, by_type, tag_of
from .goals import Include, goals_in

Schema = dict[str, Any] | bool
SchemaText = dict[str, Any] | bool | str
Choices = Annotated[list[str], Field(min_length=1, max_length=65536, fail_fast=True)]
Place = tuple[str | int, ...]
_GBNF_RULE = re.compile(r"^[^\S\n]*+[\w-]++\s*+::=", re.M)  # reads each character once


class SchemaField(Asked):
    """OpenAI's schema of an answer. name, description: for people; strict: outputs satisfy the schema either way."""

    name: str
    schema_: Annotated[Schema, Field(alias="schema")] = True
    description: str | None = None
    strict: bool | None = None


class TextFormat(Asked):
    """Anything."""

    type: Literal["text"]


class ObjectFormat(Asked):
    """A JSON object."""

    type: Literal["json_object"]


class SchemaFormat(Asked):
    """JSON of a schema."""

    type: Literal["json_schema"]
    json_schema: SchemaField


class TagsFormat(Asked):
    """vLLM's and SGLang's structural tags: free text in which markers begin constrained parts."""

    type: Literal["structural_tag"]
    format: dict[str, Any] | None = None
    structures: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = None
    triggers: Annotated[list[str], Field(fail_fast=True)] | None = None


ResponseFormat = Annotated[
    Annotated[TextFormat, Tag(tag_of("text"))]
    | Annotated[ObjectFormat, Tag(tag_of("json_object"))]
    | Annotated[SchemaFormat, Tag(tag_of("json_schema"))]
    | Annotated[TagsFormat, Tag(tag_of("structural_tag"))],
    by_type("text", "json_object", "json_schema", "structural_tag"),
]


class StructuredOutputs(Asked):
    """vLLM's field: one of these."""

    json_: Annotated[SchemaText | None, Field(alias="json")] = None
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | dict[str, Any] | None = None
    disable_any_whitespace: bool | None = None


class JsonField(Asked):
    """How JSON is written; unenforced: "allow" keywords that cannot be enforced, which are looked at in the end."""

    order: Literal["schema", "any"] = "schema"
    whitespace: Literal["flexible", "compact", "pretty", "any"] = "flexible"
    escapes: Literal["canonical", "any"] = "canonical"
    spelling: Literal["plain", "any"] = "plain"
    unenforced: Literal["refuse", "allow"] = "refuse"
    contexts: Annotated[dict[str, str | Choices], Field(max_length=64)] | None = None


class ExtractField(Asked):
    """A piece of a document, letter for letter; the answer has its place."""

    context: str | Choices
    boundary: Literal["word", "character", "sentence", "line"] = "word"
    min_chars: Annotated[int, Field(ge=1)] = 1
    max_chars: Annotated[int, Field(ge=1)] | None = None
    whitespace: Literal["exact", "collapsed"] = "exact"
    none_text: str | None = None


class Ours(Asked):
    """The field `trellm`: what only this server does.

    include: what the text must contain; heal: generate the end of a prompt again where it may be within a token;
    trace: tell what the constraint did to each token; json: how JSON is written
    thinking, thinking_budget: of chats, whether the model thinks before it answers, and in how many tokens
    special_tokens: of chats, whether special tokens that messages name are those, and not text
    """

    extract: ExtractField | None = None
    include: Include | None = None
    beams: Annotated[int, Field(ge=1, le=64)] | Beams | None = None
    heal: bool | None = None
    trace: bool = False
    thinking: Literal["auto", "on", "off"] = "auto"
    thinking_budget: Annotated[int, Field(ge=0, le=1 << 20)] | None = None
    special_tokens: bool | None = None
    json_: Annotated[JsonField | None, Field(alias="json")] = None

    @property
    def beam_search(self) -> Beams | None:
        """The beams asked for."""
        return Beams(width=self.beams) if isinstance(self.beams, int) else self.beams


class Constraining(Asked):
    """The fields of constraints."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: SchemaText | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    json_schema: SchemaText | None = None
    grammar: str | None = None
    trellm: Ours = Ours()

    def constraint(self) -> Constraint:
        """The one constraint of the request, with its goals. Raises ApiError for several, and OptionError."""
        found = [
            *self._format(),
            *self._structured(),
            *_all("guided_", self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar),
            *_all("", None, self.regex, None, self.grammar),
            *_gbnf(self.ebnf, ("ebnf",)),
            *_schema(self.json_schema, ("json_schema",)),
            *_quoted(self.trellm.extract),
        ]
        if len(found) > 1:
            names = " and ".join(str(each.place[0]) for each in found)
            raise ApiError(f"{names} exclude each other: a text has one constraint", found[1].place)
        asked = found[0] if found else Constraint()
        if asked.kind == "json":
            asked = self._written(asked)
        elif self.trellm.json_ is not None:
            raise ApiError("trellm.json says how JSON is written, and none was asked for", ("trellm", "json"))
        goals = goals_in(self.trellm.include)
        return replace(asked, goals=goals) if goals else asked

    def _written(self, asked: Constraint) -> Constraint:
        """JSON as the request wants it written."""
        said = {} if self.trellm.json_ is None else self.trellm.json_.model_dump(exclude_none=True)
        if self.structured_outputs is not None and self.structured_outputs.disable_any_whitespace:
            said.setdefault("whitespace", "compact")
        made = Constraint.of("json", None, asked.place, **said)
        return replace(made, content=asked.content)

    def _format(self) -> list[Constraint]:
        asked, place = self.response_format, ("response_format",)
        if isinstance(asked, ObjectFormat):
            return [Constraint.of("json", {"type": "object"}, place)]
        if isinstance(asked, SchemaFormat):
            return [Constraint.of("json", asked.json_schema.schema_, (*place, "json_schema", "schema"))]
        if isinstance(asked, TagsFormat):
            return [Constraint.of("structural_tag", asked.model_dump(exclude_none=True), place)]
        return []

    def _structured(self) -> list[Constraint]:
        asked = self.structured_outputs
        if asked is None:
            return []
        found = _all("structured_outputs.", asked.json_, asked.regex, asked.choice, asked.grammar)
        if asked.json_object:
            found.append(Constraint.of("json", {"type": "object"}, ("structured_outputs", "json_object")))
        if asked.structural_tag is not None:
            place = ("structured_outputs", "structural_tag")
            found.append(Constraint.of("structural_tag", _loaded(asked.structural_tag, place), place))
        if not found:
            raise ApiError("structured_outputs asks for nothing; leave it out", ("structured_outputs",))
        return found


class Constrained(Texts, Constraining):
    """A request for texts that may have a constraint."""


def _all(
    prefix: str, schema: Any, regex: str | None, choice: list[str] | None, grammar: str | None
) -> list[Constraint]:
    """Those of four fields that have something."""

    def place(name: str) -> Place:
        return tuple(f"{prefix}{name}".split("."))

    found = _schema(schema, place("json"))
    if regex is not None:
        found.append(Constraint.of("regex", regex, place("regex")))
    if choice is not None:
        found.append(Constraint.of("choice", choice, place("choice")))
    if grammar is not None:
        found.append(Constraint.of("gbnf" if _GBNF_RULE.search(grammar) else "lark", grammar, place("grammar")))
    return found


def _schema(schema: Any, place: Place) -> list[Constraint]:
    if schema is None:
        return []
    return [Constraint.of("json", _loaded(schema, place), place)]


def _gbnf(grammar: str | None, place: Place) -> list[Constraint]:
    return [] if grammar is None else [Constraint.of("gbnf", grammar, place)]


def _quoted(asked: ExtractField | None) -> list[Constraint]:
    if asked is None:
        return []
    options = asked.model_dump(exclude={"context"}, exclude_none=True)
    return [Constraint.of("extract", asked.context, ("trellm", "extract"), **options)]


def _loaded(value: Any, place: Place) -> Any:
    """What a JSON text stands for. Raises ApiError."""
    from ..bodies import loaded_text

    return loaded_text(value, place) if isinstance(value, str) else value
