"""Bodies of Ollama's API, and their translation to chats and requests for texts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ..errors import ApiError, Names
from .chat import ChatRequest, CompletionRequest, check_alone, image_part, translate
from .fields import ConstraintFields, EchoBase, HintedBase, PenaltyFields, RepetitionPenalty, RequestBase

LATEST = ":latest"
_MAX_SECONDS = 1e9
_UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(rf"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)({'|'.join(_UNITS)})")
Images = Annotated[list[str], Field(max_length=4096, fail_fast=True)] | None
"""Images as base64, placed before a message's text."""
DEFAULTS = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}
"""Defaults of Ollama."""


class OllamaOptions(HintedBase, EchoBase, PenaltyFields):
    """Sampling options, and the budget."""

    HINTS = frozenset(
        [
            *("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "use_mmap", "use_mlock", "numa"),
            *("low_vram", "f16_kv", "vocab_only", "repeat_last_n", "penalize_newline"),
        ]
    )

    num_predict: int | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], Field(max_length=16, fail_fast=True)] | None = None
    repeat_penalty: RepetitionPenalty | None = None


class OllamaFunction(RequestBase):
    """The function of a call, with its arguments. index: number of the call"""

    name: str
    arguments: dict[str, Any]
    index: int | None = None
    description: str | None = None


class OllamaCall(EchoBase):
    """An earlier call by the model."""

    function: OllamaFunction
    id: str | None = None
    type: Literal["function"] | None = None


class OllamaMessage(EchoBase):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str | None = None
    tool_calls: Annotated[list[OllamaCall], Field(max_length=1024, fail_fast=True)] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    images: Images = None


class OllamaBase(ConstraintFields):
    """The fields that chats and texts share; those of constraints are those of /v1/chat/completions."""

    SAME: ClassVar = {
        **{name: f"options/{name}" for name in ("stop", *PenaltyFields.model_fields)},
        "repetition_penalty": "options/repeat_penalty",
    }

    model: str
    stream: bool = True
    format: Literal["", "json"] | dict[str, Any] | None = None
    options: OllamaOptions | None = None
    think: bool | Literal["low", "medium", "high"] | None = None
    keep_alive: str | float | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @property
    def named_model(self) -> str:
        """The model's name without the tag that Ollama's clients append."""
        return self.model.removesuffix(LATEST)

    @property
    def keep_alive_seconds(self) -> float | None:
        """Seconds without a request after which the model is unloaded; None for never. Raises ApiError."""
        return None if self.keep_alive is None else _seconds(self.keep_alive)

    @property
    def names(self) -> Names:
        """Field names for errors, of options and of a prompt, which becomes a message."""
        form = (("/response_format/schema", "/format"), ("/response_format", "/format")) if self.format else ()
        budget = (("/max_tokens", "/options/num_predict"), ("/max_completion_tokens", "/options/num_predict"))
        return (*form, *super().names, *budget, ("/seed", "/options/seed"))

    def _common_fields(self) -> dict[str, Any]:
        """Return the shared fields, translated."""
        options = self.options or OllamaOptions()
        present = {name: value for name, value in self.same().items() if value is not None}
        fields = self.constraint_fields() | DEFAULTS | present
        fields |= {"model": self.named_model, "stream": self.stream}
        for name, number in (("max_tokens", options.num_predict), ("seed", options.seed)):
            fields[name] = number if number is not None and number >= 0 else None
        if self.format:
            check_alone("format", "response_format", fields.get("response_format"))
        if self.format == "json":
            fields["response_format"] = {"type": "json_object"}
        elif isinstance(self.format, dict):
            fields["response_format"] = {"type": "json_object", "schema": self.format}
        return fields

    def _chat(self, messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        fields = self._common_fields() | {
            "messages": list(messages),
            "logprobs": self.logprobs,
            "top_logprobs": self.top_logprobs,
        }
        if self.think is False:
            fields["reasoning"] = {"enabled": False}
        elif isinstance(self.think, str):
            fields["reasoning"] = {"effort": self.think}
        return fields


class OllamaChat(OllamaBase):
    """The body of /api/chat."""

    messages: Annotated[list[OllamaMessage], Field(max_length=65536, fail_fast=True)] | None = None
    tools: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = None

    @property
    def has_prompt(self) -> bool:
        """True if there is something to answer."""
        return bool(self.messages)

    def chat(self) -> ChatRequest:
        """Translate the body to a chat. Raises ApiError."""
        return translate(self._chat(self._messages()) | {"tools": self.tools or None}, ChatRequest)

    def _messages(self) -> list[dict[str, Any]]:
        """Return messages whose calls have ids. A result without an id belongs to the first open call of its name."""
        messages: list[dict[str, Any]] = []
        open_calls: list[tuple[str, str]] = []
        for number, message in enumerate(self.messages or ()):
            fields: dict[str, Any] = {"role": message.role, "content": _content(message.content, message.images)}
            if message.thinking:
                fields["reasoning_content"] = message.thinking
            if message.tool_calls:
                calls = [(each.id or f"call_{number}_{at}", each) for at, each in enumerate(message.tool_calls)]
                open_calls = [(key, each.function.name) for key, each in calls]
                fields["tool_calls"] = [
                    {
                        "id": key,
                        "function": {"name": each.function.name, "arguments": json.dumps(each.function.arguments)},
                    }
                    for key, each in calls
                ]
            if message.role == "tool":
                likely = [each for each in open_calls if message.tool_name in (None, each[1])] or open_calls
                fields["tool_call_id"] = message.tool_call_id or (likely[0][0] if likely else f"call_{number}")
                open_calls = [each for each in open_calls if each[0] != fields["tool_call_id"]]
            messages.append(fields)
        return messages


class OllamaGenerate(OllamaBase):
    """The body of /api/generate. raw: continue the prompt; otherwise it is a user's message"""

    @property
    def names(self) -> Names:
        """Field names for errors: the prompt is a message of a chat."""
        return (*super().names, ("/messages/", "/prompt"))

    prompt: str = ""
    system: str | None = None
    raw: bool | None = None
    images: Images = None
    context: Annotated[list[int], Field(max_length=0)] | None = None
    suffix: Literal[""] | None = None
    template: Literal[""] | None = None

    @property
    def has_prompt(self) -> bool:
        """True if there is something to answer."""
        return bool(self.prompt or self.images)

    def chat(self) -> ChatRequest:
        """Translate the body to a chat. Raises ApiError."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        message = {"role": "user", "content": _content(self.prompt, self.images)}
        return translate(self._chat([*system, message]), ChatRequest)

    def text(self) -> CompletionRequest:
        """Translate the body to a request for texts. Raises ApiError."""
        for name in ("system", "images", "think", "logprobs", "top_logprobs"):
            if getattr(self, name):
                raise ApiError(f"{name} needs a prompt in the chat template; leave raw out", (name,))
        return translate(self._common_fields() | {"prompt": self.prompt}, CompletionRequest)


def _seconds(duration: str | float) -> float | None:
    """Return the seconds of a number, or of a duration in Go's notation; None if negative or longer than decades."""
    if isinstance(duration, str):
        if not re.fullmatch(rf"[+-]?(?:0|(?:{_PART.pattern})+)", duration):
            message = f'keep_alive={duration[:80]!r}: expected seconds, or a duration such as "5m" or "1h30m"'
            raise ApiError(message, ("keep_alive",))
        sign = -1 if duration.startswith("-") else 1
        duration = sign * sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(duration))
    return float(duration) if 0 <= duration < _MAX_SECONDS else None


def _content(text: str, images: list[str] | None) -> str | list[dict[str, Any]]:
    if not images:
        return text
    parts = [image_part(f"data:;base64,{each}") for each in images]
    return [*parts, {"type": "text", "text": text}] if text else parts


class OllamaName(RequestBase):
    """The body of /api/show."""

    model: str | None = None
    name: str | None = None
    verbose: bool | None = None

    @property
    def named_model(self) -> str:
        """The model's name, from either field."""
        return (self.model or self.name or "").removesuffix(LATEST)
