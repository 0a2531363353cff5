"""What all requests for texts have in common: how tokens are chosen, how many, and where a text ends."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, model_validator

from ...engine.search import Beam, Greedy, Sample, Search
from ..errors import ApiError

MOST_TOKENS = 1 << 20


class Asked(BaseModel):
    """A part of a request: nothing is converted, nothing unknown is passed over.

    Lists have `fail_fast`: of a million mistakes in one, which nobody is told of, the first is looked for.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


def by_type(*types: str, usual: str | None = None) -> Discriminator:
    """Which of several shapes a value has, by its `type`; their tags are `tag_of` that.

    Tags are no names of members, as types are: in the place of an error none is taken for another. usual: the type of
    values that have none
    """

    def found(value: Any) -> str | None:
        if not isinstance(value, dict):
            return None
        kind = cast("dict[str, Any]", value).get("type", usual)
        return tag_of(kind) if isinstance(kind, str) else None

    named = ", ".join(repr(each) for each in types[:-1])
    said = f"it should be an object whose type is {named} or {types[-1]!r}"
    return Discriminator(found, custom_error_type="unknown_type", custom_error_message=said)


def tag_of(kind: str) -> str:
    """The tag of a type."""
    return f"type={kind}"


class Answered(Asked):
    """A part of an answer that is sent back: clients have fields for what other servers say, which are null here."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        said = cast("dict[str, Any]", value)
        if said.keys() <= cls.model_fields.keys():
            return said
        return {name: each for name, each in said.items() if each is not None or name in cls.model_fields}


class StreamOptions(Asked):
    """include_usage: whether a last event says how many tokens there were."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
StopStrings = str | Annotated[list[str], Field(max_length=16, fail_fast=True)]


class Texts(Asked):
    """The fields of every request for texts; see docs/serve.md."""

    model: str
    max_tokens: Tokens | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=1e6)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=MOST_TOKENS)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=1024)] | None = None
    no_repeat_ngram_size: Annotated[int, Field(ge=0, le=1024)] | None = None
    n: Annotated[int, Field(ge=1, le=1 << 16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: StopStrings | None = None
    stop_token_ids: (
        Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=1024, fail_fast=True)] | None
    ) = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # Without meaning here: who asks, how it is billed, and where the answer would be kept.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    service_tier: Literal["auto", "default"] | None = None
    store: Literal[False] | None = None

    @property
    def texts(self) -> int:
        """How many texts there are for a prompt."""
        return self.n or 1

    @property
    def is_streamed(self) -> bool:
        """Whether the answer comes piece by piece."""
        if self.stream_options is not None and not self.stream:
            raise ApiError("stream_options are for stream: true", ("stream_options",), code="invalid_value")
        return bool(self.stream)

    @property
    def has_usage(self) -> bool:
        """Whether a streamed answer ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def scores(self) -> int | bool | None:
        """Which log-probabilities are asked for: True for those of tokens, a number for the likeliest ones too."""
        return None

    def _biases(self) -> dict[int, float] | None:
        """By token id, which are texts in JSON. Raises ApiError."""
        for token in self.logit_bias or ():
            # With zeros in front two names could be one token.
            if not (token.isascii() and token.isdecimal() and len(token) < 10 and str(int(token)) == token):
                raise ApiError(f"logit_bias has token ids for names, not {token[:80]!r}", ("logit_bias", token))
        return None if self.logit_bias is None else {int(token): bias for token, bias in self.logit_bias.items()}

    def options(self) -> dict[str, Any]:
        """Those of the engine but for the search, by name."""
        named: dict[str, Any] = {
            "min_tokens": self.min_tokens,
            "repetition_penalty": self.repetition_penalty,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "logit_bias": self._biases(),
            "logprobs": self.scores,
            "seed": self.seed,
            "stop": self.stop,
            "stop_ids": self.stop_token_ids,
        }
        return {name: value for name, value in named.items() if value is not None}

    def search(self, beams: Beams | None) -> Search | Beam:
        """How tokens are chosen: at temperature 1 as in OpenAI's API, the likeliest at 0."""
        if beams is not None:
            for name in ("temperature", "top_p", "top_k", "min_p"):
                if getattr(self, name) is not None and not (name == "temperature" and self.temperature == 0):
                    raise ApiError(f"{name} with trellm.beams, which draw nothing; leave it out", (name,))
            return Beam(beams.width, beams.length_penalty, self.texts, beams.early_stopping)
        if self.temperature == 0:
            return Greedy()
        return Sample(
            temperature=1.0 if self.temperature is None else max(self.temperature, 1e-6),
            top_k=self.top_k if self.top_k is not None and self.top_k > 0 else None,
            top_p=1.0 if self.top_p is None else self.top_p,
            min_p=self.min_p or 0.0,
            n=self.texts,
        )


class Beams(Asked):
    """Beam search: how many, and how finished texts are ranked."""

    width: Annotated[int, Field(ge=1, le=64)]
    length_penalty: Annotated[float, Field(ge=-10, le=10)] = 1.0
    early_stopping: bool | Literal["never"] = False
