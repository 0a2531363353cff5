"""Bodies of the native APIs of llama.cpp and SGLang, and their translation to requests for texts."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from ..errors import Names
from .chat import CompletionRequest, translate
from .fields import ConstraintFields, HintedBase, Ids, PenaltyFields, RepetitionPenalty, RequestBase, StopStrings

Several = Annotated[list[str], Field(min_length=1, fail_fast=True)]


def _not_zero(count: int) -> int:
    if count == 0:
        raise ValueError("should be at least 1, or -1 for all that the context has room for")
    return count


_DEFAULTS = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
"""Defaults of llama.cpp."""


Bias = Annotated[list[int | float | Literal[False]], Field(min_length=2, max_length=2)]
"""A token with its bias."""


class LlamaRequest(HintedBase, PenaltyFields, ConstraintFields, title="LlamaCompletion"):
    """The body of llama.cpp's /completion."""

    HINTS = frozenset(
        [
            *("cache_prompt", "id_slot", "n_keep", "n_discard", "n_indent", "t_max_predict_ms", "samplers", "min_keep"),
            *("timings_per_token", "repeat_last_n", "penalize_nl", "n_cache_reuse", "return_tokens"),
            "post_sampling_probs",
        ]
    )

    SAME: ClassVar = {
        **{name: name for name in ("prompt", "stop", "stream", "ignore_eos", *PenaltyFields.model_fields)},
        "repetition_penalty": "repeat_penalty",
    }

    prompt: str | Several | Ids | Annotated[list[Ids], Field(min_length=1, fail_fast=True)]
    model: str | None = None
    n_predict: Annotated[int, Field(ge=-2, le=1 << 20), AfterValidator(_not_zero)] | None = None
    seed: Annotated[int, Field(ge=-1, lt=2**64)] | None = None
    stop: StopStrings | None = None
    stream: bool = False
    repeat_penalty: RepetitionPenalty | None = None
    ignore_eos: bool | None = None
    logit_bias: Annotated[list[Bias], Field(max_length=1024)] | dict[str, float | Literal[False]] | None = None
    n_probs: Annotated[int, Field(ge=0, le=20)] | None = None

    def text(self, name: str) -> CompletionRequest:
        """Translate the body to a request for texts. name: model name if it has none. Raises ApiError."""
        fields: dict[str, Any] = self.constraint_fields() | self.same() | {"model": self.model or name}
        fields |= _DEFAULTS | self.sample_options
        fields["max_tokens"] = self.n_predict if self.n_predict is not None and self.n_predict > 0 else None
        fields["seed"] = None if self.seed == -1 else self.seed
        fields["logprobs"] = self.n_probs or None
        if self.logit_bias is not None:
            pairs = self.logit_bias.items() if isinstance(self.logit_bias, dict) else self.logit_bias
            biases = {str(token): bias for token, bias in pairs}
            # False bans a token unless no other is allowed
            fields["logit_bias"] = {token: -100.0 if bias is False else float(bias) for token, bias in biases.items()}
        return translate(fields, CompletionRequest)

    @property
    def names(self) -> Names:
        """Field names of llama.cpp, for errors."""
        return (*super().names, ("/max_tokens", "/n_predict"), ("/logprobs", "/n_probs"))


class SglangSampling(PenaltyFields):
    """SGLang's `sampling_params`."""

    max_new_tokens: Annotated[int, Field(ge=1, le=1 << 20)] = 128
    min_new_tokens: Annotated[int, Field(ge=0, le=1 << 20)] | None = None
    n: Annotated[int, Field(ge=1, le=1 << 16)] | None = None
    stop: StopStrings | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=1024, fail_fast=True)] | None = None
    repetition_penalty: RepetitionPenalty | None = None
    ignore_eos: bool | None = None
    sampling_seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    json_schema: str | dict[str, Any] | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: str | dict[str, Any] | None = None
    # accepted and ignored
    skip_special_tokens: Literal[True] | None = None
    spaces_between_special_tokens: bool | None = None
    no_stop_trim: Literal[False] | None = None


_SAMPLING = (
    *("n", "stop", "stop_token_ids", "repetition_penalty", "ignore_eos", "json_schema", "regex", "ebnf"),
    *PenaltyFields.model_fields,
)


class SglangRequest(RequestBase, title="SglangGenerate"):
    """The body of SGLang's /generate."""

    SAME: ClassVar = {
        **{name: f"sampling_params/{name}" for name in _SAMPLING},
        "max_tokens": "sampling_params/max_new_tokens",
        "min_tokens": "sampling_params/min_new_tokens",
        "seed": "sampling_params/sampling_seed",
        "stream": "stream",
    }

    text: str | Several | None = None
    input_ids: Ids | Annotated[list[Ids], Field(min_length=1, fail_fast=True)] | None = None
    sampling_params: SglangSampling = SglangSampling()
    stream: bool = False
    return_logprob: Literal[False] | None = None
    rid: str | Several | None = None
    model: str | None = None

    @model_validator(mode="after")
    def _check_prompt(self) -> SglangRequest:
        """Check that it has exactly one of text and input_ids."""
        if (self.text is None) == (self.input_ids is None):
            raise ValueError("give text or input_ids, one of the two")
        return self

    @property
    def is_single(self) -> bool:
        """True for one text of one prompt, which is answered without a list."""
        several: Any = self.text if self.text is not None else self.input_ids
        is_list = isinstance(several, list) and not isinstance(several[0], int)
        return not is_list and (self.sampling_params.n or 1) == 1

    def texts(self, name: str) -> CompletionRequest:
        """Translate the body to a request for texts. name: model name if it has none. Raises ApiError."""
        fields = self.same() | {"model": self.model or name}
        fields["prompt"] = self.input_ids if self.text is None else self.text
        if self.sampling_params.structural_tag is not None:
            fields["structured_outputs"] = {"structural_tag": self.sampling_params.structural_tag}
        return translate(fields, CompletionRequest)

    @property
    def names(self) -> Names:
        """Field names for errors. Most are inside `sampling_params`."""
        return (
            *super().names,
            ("/structured_outputs/structural_tag", "/sampling_params/structural_tag"),
            ("/prompt", "/input_ids" if self.text is None else "/text"),
        )
