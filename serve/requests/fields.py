"""Common fields of requests for texts: sampling, budgets and constraints, in the dialects of several servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ...engine.decode.frames import FrameOption
from ...engine.options import MAX_PRIORITY
from ...engine.search import Beam, Greedy, Sample, Search
from ...guides.grammar import is_gbnf
from ...guides.required_content.specs import MAX_PARTS, AllOf, AnyOf, Gap, Goal, Ordered, Phrase, Template, goals_of
from ...sampling import BEAM_OPTIONS, SAMPLE_OPTIONS
from ..bodies import parse_json_text
from ..constraints.constraint import ConstraintSpec, Kind
from ..errors import ApiError, Names, param_of

MAX_TOKENS = 1 << 20
_TEMPERATURE, _TOP_P, _MIN_P = (SAMPLE_OPTIONS[name] for name in ("temperature", "top_p", "min_p"))
_LENGTH, _SIBLING = (BEAM_OPTIONS[name] for name in ("length_penalty", "sibling_penalty"))


class RequestBase(BaseModel):
    """A part of a request, without conversions or unknown fields.

    Lists have `fail_fast`, so that validation stops at the first error among millions.
    SAME: for a request of another API, fields that differ by name or place only: their names, such as "options/min_p",
        by our names
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)
    SAME: ClassVar[Mapping[str, str]] = {}

    @property
    def names(self) -> Names:
        """Pairs of our and the API's field names, for errors."""
        return tuple((f"/{ours}", f"/{theirs}") for ours, theirs in self.SAME.items() if ours != theirs)

    @property
    def named_model(self) -> str | None:
        """The requested model; None for the default."""
        return getattr(self, "model", None)

    def same(self) -> dict[str, Any]:
        """Return the values of the fields in `SAME`, None for missing ones."""
        return {
            ours: reduce(lambda value, name: getattr(value, name, None), theirs.split("/"), cast("Any", self))
            for ours, theirs in self.SAME.items()
        }


def by_type(*types: str, usual: str | None = None) -> Discriminator:
    """Return a discriminator of shapes by a value's `type`. Their tags are `tag_of` the type.

    Tags differ from member names, so that the places of errors are unambiguous. usual: type of values without one
    """

    def tag(value: Any) -> str | None:
        if isinstance(value, dict):
            kind = cast("dict[str, Any]", value).get("type", usual)
        else:  # a model that is serialized again
            kind = getattr(value, "type", None)
        return tag_of(kind) if isinstance(kind, str) else None

    named = ", ".join(repr(each) for each in types[:-1])
    message = f"it should be an object whose type is {named} or {types[-1]!r}"
    return Discriminator(tag, custom_error_type="unknown_type", custom_error_message=message)


def tag_of(kind: str) -> str:
    """Return the tag of a type."""
    return f"type={kind}"


class EchoBase(RequestBase):
    """A part of an answer that is sent back. Clients add null for fields of other servers, which are dropped."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        members = cast("dict[str, Any]", value)
        if members.keys() <= cls.model_fields.keys():
            return members
        return {name: each for name, each in members.items() if each is not None or name in cls.model_fields}


class HintedBase(RequestBase):
    """A part of a request without the fields in `HINTS`, which only concern the other server's execution."""

    HINTS: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _without_hints(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        members = cast("dict[str, Any]", value)
        return {name: each for name, each in members.items() if name not in cls.HINTS}


class StreamOptionsField(RequestBase, title="StreamOptions"):
    """include_usage: send token counts in a last event"""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
StopStrings = str | Annotated[list[str], Field(max_length=16, fail_fast=True)]


def _token_id(name: str) -> str:
    """Check a token id as a name in JSON. Leading zeros are refused, since names must be unique."""
    if not (name.isascii() and name.isdecimal() and len(name) < 10 and str(int(name)) == name):
        raise ValueError("its names are token ids, such as 50")
    return name


TokenName = Annotated[str, AfterValidator(_token_id)]
Bias = Annotated[float, Field(ge=-100, le=100)]


Salt = Annotated[str, Field(min_length=1, max_length=1024)]


Priority = Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]


class RandomFields(RequestBase):
    """The options of `Sample`, as in all APIs: temperature 0 for greedy search, top_k 0 or -1 for all tokens."""

    temperature: Annotated[float, Field(ge=0, le=_TEMPERATURE.most)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=MAX_TOKENS)] | None = None
    top_p: Annotated[float, Field(gt=_TOP_P.least, le=_TOP_P.most)] | None = None
    min_p: Annotated[float, Field(ge=_MIN_P.least, le=_MIN_P.most)] | None = None

    @property
    def sample_options(self) -> dict[str, Any]:
        """The given options by name."""
        return {name: value for name in SAMPLE_OPTIONS if (value := getattr(self, name)) is not None}


class PenaltyFields(RandomFields):
    """The options of `Sample`, and penalties."""

    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None


RepetitionPenalty = Annotated[float, Field(gt=0, le=100)]


class CommonFields(RandomFields):
    """The fields that requests for texts and for responses share."""

    model: str
    stream: bool | None = None
    cache_salt: Salt | None = None
    priority: Priority | None = None
    # accepted and ignored: identities, billing, storage and internals of other servers
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    service_tier: Literal["auto", "default"] | None = None
    store: bool | None = None
    cache_prompt: bool | None = None
    keep_alive: str | int | None = None
    guided_decoding_backend: str | None = None
    skip_special_tokens: Literal[True] | None = None
    spaces_between_special_tokens: bool | None = None
    include_stop_str_in_output: Literal[False] | None = None


Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, fail_fast=True)]


class SamplingFields(CommonFields, PenaltyFields):
    """The fields of every request for texts; see docs/serve.md."""

    ignore_eos: bool | None = None
    allowed_token_ids: Ids | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=MAX_TOKENS)] | None = None

    prompt_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    max_tokens: Tokens | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    repetition_penalty: RepetitionPenalty | None = None
    logit_bias: Annotated[dict[TokenName, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=1024)] | None = (
        None
    )
    no_repeat_ngram_size: Annotated[int, Field(ge=0, le=1024)] | None = None
    n: Annotated[int, Field(ge=1, le=1 << 16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: StopStrings | None = None
    stop_token_ids: (
        Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=1024, fail_fast=True)] | None
    ) = None
    stream_options: StreamOptionsField | None = None

    @property
    def texts(self) -> int:
        """Number of texts for a prompt."""
        return self.n or 1

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @field_validator("stream_options")
    @classmethod
    def _of_streams(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and not info.data.get("stream"):
            raise ValueError("stream_options needs stream: true")
        return value

    @field_validator("prompt_logprobs")
    @classmethod
    def _of_whole_answers(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("stream"):
            raise ValueError("log-probabilities of a prompt cannot be streamed; leave out stream")
        return value

    @property
    def is_streamed(self) -> bool:
        """True where the answer comes piece by piece."""
        return bool(self.stream)

    @property
    def has_usage(self) -> bool:
        """True if a streamed answer ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def scores(self) -> int | bool | None:
        """Requested log-probabilities: True for those of tokens, a number for top log-probabilities too."""
        return None

    @property
    def prompt_scores(self) -> int | bool | None:
        """Requested log-probabilities of the prompt's tokens, likewise."""
        return None if self.prompt_logprobs is None else self.prompt_logprobs or True

    def options(self) -> dict[str, Any]:
        """Return the engine's options except for the search, by name."""
        named: dict[str, Any] = {
            "min_tokens": self.min_tokens,
            "repetition_penalty": self.repetition_penalty,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "logit_bias": self.logit_bias and {int(token): bias for token, bias in self.logit_bias.items()},
            "logprobs": self.scores,
            "prompt_logprobs": self.prompt_scores,
            "cache_salt": self.cache_salt,
            "priority": self.priority,
            "seed": self.seed,
            "stop": self.stop,
            "stop_ids": self.stop_token_ids,
        }
        return {name: value for name, value in named.items() if value is not None}

    def search(self, beams: Beams | None) -> Search | Beam:
        """Return the search: sampling at temperature 1 as in OpenAI's API, greedy at 0."""
        if beams is not None:
            for name, value in self.sample_options.items():
                if name != "temperature" or value > 0:
                    raise ApiError(
                        f"{name} has no effect with trellm.beams, which sample nothing; leave it out", (name,)
                    )
            return Beam(beams.width, beams.length_penalty, self.texts, beams.early_stopping, beams.sibling_penalty)
        if self.temperature == 0:
            return Greedy()
        options = {name: value for name, value in self.sample_options.items() if name != "top_k" or value > 0}
        options["temperature"] = max(options.get("temperature", 1.0), _TEMPERATURE.least)
        return Sample(**options, n=self.texts)


class Beams(RequestBase):
    """Beam search: the number of beams, the ranking of finished texts, and a penalty for beams that are alike."""

    width: Annotated[int, Field(ge=1, le=64)]
    length_penalty: Annotated[float, Field(ge=_LENGTH.least, le=_LENGTH.most)] = 1.0
    early_stopping: bool | Literal["never"] = False
    sibling_penalty: Annotated[float, Field(ge=_SIBLING.least, le=_SIBLING.most)] = 0.0


class PhraseField(RequestBase):
    """A phrase; word: as a whole word."""

    phrase: str
    word: bool = False

    def goal(self) -> Goal:
        """Return the engine's goal."""
        return Phrase(self.phrase, self.word)


class GapField(RequestBase):
    """Anything between two parts of a template; without bounds {"gap": {}}."""

    gap: GapBounds


class GapBounds(RequestBase):
    """Bounds of a gap."""

    min_words: Annotated[int, Field(ge=0)] = 0
    max_words: Annotated[int, Field(ge=0)] | None = None
    max_chars: Annotated[int, Field(ge=0)] | None = None


class AnyField(RequestBase):
    """At least one of several."""

    any_of: Goals

    def goal(self) -> Goal:
        """Return the engine's goal."""
        return AnyOf(*map(_goal, self.any_of))


class AllField(RequestBase):
    """Several in any order."""

    all_of: Goals

    def goal(self) -> Goal:
        """Return the engine's goal."""
        return AllOf(*map(_goal, self.all_of))


class OrderedField(RequestBase):
    """Several in order."""

    ordered: Goals

    def goal(self) -> Goal:
        """Return the engine's goal."""
        return Ordered(*map(_goal, self.ordered))


class TemplateField(RequestBase):
    """Parts that follow each other, with gaps."""

    template: Annotated[
        list[str | PhraseField | GapField | AnyField], Field(min_length=1, max_length=256, fail_fast=True)
    ]

    def goal(self) -> Goal:
        """Return the engine's goal."""
        parts: list[Any] = [
            Gap(**each.gap.model_dump()) if isinstance(each, GapField) else _goal(each) for each in self.template
        ]
        return Template(*parts)


GoalField = str | PhraseField | AnyField | AllField | OrderedField | TemplateField
Goals = Annotated[list[GoalField], Field(min_length=1, max_length=256, fail_fast=True)]


def _check_parts(value: Any) -> Any:
    """Check the number of parts of goals before validation, which takes much longer."""
    left, parts = [value], 0
    while left:
        several = left.pop()
        if not isinstance(several, list):
            continue
        within = cast("list[Any]", several)
        parts += len(within)
        if parts > MAX_PARTS:
            raise ValueError(f"the goals have more than {MAX_PARTS:,} parts, a fixed limit; ask for fewer")
        left += [inner for each in within if isinstance(each, dict) for inner in cast("dict[str, Any]", each).values()]
    return value


Include = Annotated[list[GoalField], Field(min_length=1, max_length=256, fail_fast=True), BeforeValidator(_check_parts)]


def _goal(field: GoalField) -> Goal:
    return Phrase(field) if isinstance(field, str) else field.goal()


def goals_in(fields: list[GoalField] | None) -> tuple[Goal, ...]:
    """Return the goals of a request. Raises OptionError."""
    return goals_of([_goal(field) for field in fields or ()])


Schema = dict[str, Any] | bool
SchemaText = dict[str, Any] | bool | str
Choices = Annotated[list[str], Field(min_length=1, max_length=65536, fail_fast=True)]
Words = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=65536, fail_fast=True)]
_OBJECT = {"type": "object"}


class SchemaField(RequestBase):
    """OpenAI's schema of an answer. name, description: for people; strict: outputs satisfy the schema either way"""

    name: str
    schema_: Annotated[Schema, Field(alias="schema")] = True
    description: str | None = None
    strict: bool | None = None


class TextFormat(RequestBase):
    """Free text."""

    type: Literal["text"]


class ObjectFormat(RequestBase):
    """A JSON object, or in llama.cpp's API JSON of a schema."""

    type: Literal["json_object"]
    schema_: Annotated[Schema | None, Field(alias="schema")] = None


class SchemaFormat(RequestBase):
    """JSON of a schema."""

    type: Literal["json_schema"]
    json_schema: SchemaField


class TagsFormat(RequestBase):
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


class StructuredOutputs(RequestBase):
    """vLLM's field with one of these constraints."""

    json_: Annotated[SchemaText | None, Field(alias="json")] = None
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | dict[str, Any] | None = None
    disable_any_whitespace: bool | None = None

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        """Check that it has a constraint."""
        if not self.json_object and not any(getattr(self, name) is not None for name in _OUTPUTS):
            raise ValueError("it has no constraint; give one, or leave the field out")
        return self


def _of_object(form: Any) -> list[tuple[str, Any, str]]:
    """Return the constraint of an object format as a list of at most one entry."""
    if not isinstance(form, ObjectFormat):
        return []
    if form.schema_ is None:
        return [("json", _OBJECT, "response_format")]
    return [("json", form.schema_, "response_format.schema")]


_OUTPUTS = ("json_", "regex", "choice", "grammar", "structural_tag")
_NO_OUTPUTS = StructuredOutputs.model_construct()


class JsonField(RequestBase):
    """Spelling of JSON. unenforced: "allow" unenforceable keywords, which are checked at the end"""

    order: Literal["schema", "any"] = "schema"
    whitespace: Literal["flexible", "compact", "pretty", "any"] | Annotated[int, Field(strict=True, ge=0, le=1000)] = (
        "flexible"
    )
    escapes: Literal["canonical", "any"] = "canonical"
    spelling: Literal["plain", "any"] = "plain"
    unenforced: Literal["refuse", "allow"] = "refuse"
    contexts: Annotated[dict[str, str | Choices], Field(max_length=64)] | None = None


class ExtractField(RequestBase):
    """A literal substring of a document; the answer has its position."""

    context: str | Choices
    boundary: Literal["word", "character", "sentence", "line"] = "word"
    min_chars: Annotated[int, Field(ge=1)] = 1
    max_chars: Annotated[int, Field(ge=1)] | None = None
    whitespace: Literal["exact", "collapsed"] = "exact"
    none_text: str | None = None


class ExtensionFields(RequestBase, title="Ours"):
    """The field `trellm` with options that only this server has.

    include: required content; heal: token healing of the prompt; trace: report the constraint's effect on each token;
        json: spelling of JSON
    thinking, thinking_budget: for chats, whether the model thinks before it answers, and the most tokens of that
    special_tokens: for chats, whether names of special tokens in messages are tokens rather than text
    frame: text before and after the answer, which is not part of it; "sentence" for a sentence that names the answer;
        "reasoning" for free text whose last mention counts; "auto" puts quotations into quotation marks
    describe: append the JSON schema to prompts, or to the last message of a user
    fields: report the probability of each value of the answer
    """

    extract: ExtractField | None = None
    include: Include | None = None
    beams: Annotated[int, Field(ge=1, le=64)] | Beams | None = None
    heal: bool | None = None
    trace: bool = False
    thinking: Literal["auto", "on", "off"] = "auto"
    thinking_budget: Annotated[int, Field(ge=0, le=1 << 20)] | None = None
    special_tokens: bool | None = None
    frame: Annotated[list[str], Field(min_length=2, max_length=2)] | FrameOption | None = "auto"
    json_: Annotated[JsonField | None, Field(alias="json")] = None
    describe: bool = False
    fields: bool = False

    @property
    def beam_search(self) -> Beams | None:
        """The requested beam search."""
        return Beams(width=self.beams) if isinstance(self.beams, int) else self.beams


class ConstraintFields(RequestBase):
    """The fields of constraints."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: SchemaText | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None
    bad_words: Words | None = None
    regex: str | None = None
    ebnf: str | None = None
    json_schema: SchemaText | None = None
    grammar: str | None = None
    trellm: ExtensionFields = ExtensionFields()

    def constraint_fields(self) -> dict[str, Any]:
        """Return the given fields in their original form."""
        return self.model_dump(by_alias=True, include={*ConstraintFields.model_fields}, exclude_unset=True)

    def constraint(self) -> ConstraintSpec:
        """Return the only constraint of the request, with its goals. Raises ApiError for several, and OptionError."""
        specs = [_spec(*each) for each in self._constraint_values() if each[1] is not None]
        if (extract := self.trellm.extract) is not None:
            options = extract.model_dump(exclude={"context"}, exclude_none=True)
            specs.append(ConstraintSpec.of("extract", extract.context, ("trellm", "extract"), **options))
        if len(specs) > 1:
            names = " and ".join(str(param_of(each.place)) for each in specs)
            raise ApiError(f"{names} exclude each other: a text has one constraint", specs[1].place)
        spec = specs[0] if specs else ConstraintSpec()
        if spec.kind == "json":
            spec = self._with_spelling(spec)
        elif self.trellm.json_ is not None:
            raise ApiError("trellm.json needs a constraint of JSON, and the request has none", ("trellm", "json"))
        elif self.trellm.describe:
            raise ApiError(
                "trellm.describe needs a constraint of JSON, and the request has none", ("trellm", "describe")
            )
        frame = self.trellm.frame
        framed = (frame[0], frame[1]) if isinstance(frame, list) else frame
        return replace(spec, goals=goals_in(self.trellm.include), frame=framed)

    def _constraint_values(self) -> list[tuple[str, Any, str]]:
        """Return all constraint fields but `trellm.extract`: kind, value, None if not given, and place."""
        form, outputs = self.response_format, self.structured_outputs or _NO_OUTPUTS
        schema = form.json_schema.schema_ if isinstance(form, SchemaFormat) else None
        tags = form.model_dump(exclude_none=True) if isinstance(form, TagsFormat) else None
        return [
            *_of_object(form),
            ("json", schema, "response_format.json_schema.schema"),
            ("structural_tag", tags, "response_format"),
            ("json", outputs.json_, "structured_outputs.json"),
            ("regex", outputs.regex, "structured_outputs.regex"),
            ("choice", outputs.choice, "structured_outputs.choice"),
            ("grammar", outputs.grammar, "structured_outputs.grammar"),
            ("json", _OBJECT if outputs.json_object else None, "structured_outputs.json_object"),
            ("structural_tag", outputs.structural_tag, "structured_outputs.structural_tag"),
            ("json", self.guided_json, "guided_json"),
            ("regex", self.guided_regex, "guided_regex"),
            ("choice", self.guided_choice, "guided_choice"),
            ("grammar", self.guided_grammar, "guided_grammar"),
            ("regex", self.regex, "regex"),
            ("grammar", self.grammar, "grammar"),
            ("gbnf", self.ebnf, "ebnf"),
            ("json", self.json_schema, "json_schema"),
            ("structural_tag", self.bad_words and _excluding(self.bad_words), "bad_words"),
        ]

    def _with_spelling(self, spec: ConstraintSpec) -> ConstraintSpec:
        """Return a JSON constraint with the requested spelling."""
        options = {} if self.trellm.json_ is None else self.trellm.json_.model_dump(exclude_none=True)
        if self.structured_outputs is not None and self.structured_outputs.disable_any_whitespace:
            options.setdefault("whitespace", "compact")
        empty = ConstraintSpec.of("json", None, spec.place, **options)
        return replace(empty, content=spec.content)


def _excluding(words: list[str]) -> dict[str, Any]:
    """Return a constraint of free text without some words, vLLM's `bad_words`."""
    return {"type": "structural_tag", "format": {"type": "any_text", "excludes": words}}


def _spec(kind: str, value: Any, place: str) -> ConstraintSpec:
    """Return the constraint of a field. "grammar" is Lark or GBNF, and JSON may be given as text. Raises ApiError."""
    steps = tuple(place.split("."))
    if kind == "grammar":
        kind = "gbnf" if is_gbnf(value) else "lark"
    elif kind in ("json", "structural_tag") and isinstance(value, str):
        value = parse_json_text(value, steps)
    return ConstraintSpec.of(cast("Kind", kind), value, steps)


class TextRequest(SamplingFields, ConstraintFields):
    """A request for texts with an optional constraint."""
