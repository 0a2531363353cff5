"""Errors in OpenAI's format, with the place in the request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import (
    AudioError,
    BudgetError,
    Cancelled,
    GrammarError,
    ImageError,
    LanguageError,
    LimitError,
    MediaError,
    ModelError,
    OptionError,
    PatternError,
    SchemaError,
    TextSyntaxError,
    TrellmError,
)
from ..guides.json_schema.read.subschema import key_of, step_of
from ..sampling import BEAM_OPTIONS, SAMPLE_OPTIONS
from .constraints.structural_tags import FormatError
from .tool_calls import ToolError

INVALID = "invalid_request_error"
SERVER = "server_error"
OVERLOADED = "overloaded_error"
LONGEST = 4096
"""Greatest number of characters of a message or place in an answer."""
Place = Sequence[str | int]
"""The names and indices that lead to a value in a request."""
Names = Sequence[tuple[str, str]]
"""Field names of our requests and of the API that was called, as JSON pointers with * for any index. If ours ends with
/, parts of the field have no counterpart, and errors name the whole field."""


class ApiError(Exception):
    """An error answered to a client.

    place: place in the request, for `param` and `pointer`; more: further members of the error
    """

    def __init__(
        self,
        message: str,
        place: Place = (),
        *,
        status: int = 400,
        kind: str = INVALID,
        code: str = "invalid_value",
        pointer: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        fields = {"message": message, "type": kind, "param": param_of(place), "code": code}
        if place or pointer:
            fields["pointer"] = pointer_of(place) + (pointer or "")
        self.error: dict[str, Any] = {name: _short(value) for name, value in (fields | more).items()}

    def as_anthropic(self) -> dict[str, Any]:
        """Return the body in the format of Anthropic's API."""
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
        kind = kinds.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
        return {"type": "error", "error": self.error | {"type": kind}}

    def as_ollama(self) -> dict[str, Any]:
        """Return the body in the format of Ollama's API, which only has a message. It includes the place."""
        message, place = self.error["message"], self.error["param"] or ""
        return {"error": message if place.rpartition(".")[2] in message else f"{place}: {message}"}

    def rename_field(self, names: Names) -> ApiError:
        """Rename the field to that of the called API, by the first matching pair. Return the same error."""
        pointer = self.error.get("pointer", "")
        for ours, theirs in names:
            pattern = re.escape(ours.removesuffix("/")).replace(r"\*", r"(\d+)") + "(?=/|$)"
            if (found := re.match(pattern, pointer)) is None:
                continue
            begin = theirs
            for number in found.groups():
                begin = begin.replace("*", number, 1)
            new = begin if ours.endswith("/") else begin + pointer[found.end() :]
            message = str(self.error["message"])
            old = (found[0], pointer, _param(found[0]), _param(pointer))
            for old_name, new_name in zip(old, (begin, new, _param(begin), _param(new)), strict=True):
                old_name, new_name = old_name.removeprefix("/"), new_name.removeprefix("/")
                message = re.sub(rf"(?<![\w/.]){re.escape(old_name)}(?=[ :=,;]|$)", lambda _, to=new_name: to, message)
            self.error |= {"message": message, "param": _param(new), "pointer": new}
            break
        return self

    @property
    def body(self) -> dict[str, Any]:
        """The body of the answer."""
        return {"error": self.error}


def _short(value: Any) -> Any:
    """Shorten long texts, which the client sent itself, to their beginning and end."""
    if not isinstance(value, str) or len(value) <= LONGEST:
        return value
    return f"{value[: LONGEST // 2]} ... ({len(value):,} characters) ... {value[-LONGEST // 2 :]}"


def param_of(place: Place) -> str | None:
    """Return a place in OpenAI's notation: `messages[0].role`."""
    param = ""
    for each in place:
        param += f"[{each}]" if isinstance(each, int) else f".{each}" if param else each
    return param or None


def pointer_of(place: Place) -> str:
    """Return a place as a JSON pointer (RFC 6901)."""
    return "".join(f"/{step_of(each)}" for each in place)


def _param(pointer: str) -> str:
    """Return the place of a JSON pointer in OpenAI's notation."""
    steps = map(key_of, pointer.split("/")[1:])
    return param_of([int(step) if step.isdecimal() else step for step in steps]) or ""


def unsupported(place: Place, why: str) -> ApiError:
    """Return the error of a known but unsupported field."""
    return ApiError(f"{param_of(place)} is not supported: {why}", place, code="unsupported_parameter")


def busy(message: str, seconds: int = 1) -> ApiError:
    """Return the error of an overloaded server."""
    return ApiError(
        message, status=429, kind=OVERLOADED, code="too_many_requests", headers={"Retry-After": str(seconds)}
    )


def too_long(message: str, context: int, place: Place = ()) -> ApiError:
    """Return the error of a prompt that exceeds the context. Clients recognise OpenAI's wording, and shorten the
    prompt."""
    full_message = f"{message}. This model's maximum context length is {context} tokens"
    return ApiError(full_message, place, code="context_length_exceeded")


def _message(error: TrellmError) -> str:
    """Return an error's message with command-line flags in place of Python arguments."""
    message = str(error)
    for option, flag in _FLAGS.items():
        message = message.replace(option, flag)
    return message


def constraint_error(error: TrellmError, place: Place) -> ApiError:
    """Return the error of a constraint at a place of the request."""
    message = _message(error)
    if isinstance(error, SchemaError):
        return ApiError(message, place, code="invalid_json_schema", pointer=error.pointer.lstrip("#"))
    if isinstance(error, LimitError) and place and error.pointer is not None:
        return ApiError(message, place, code="constraint_too_large", pointer=error.pointer.lstrip("#"))
    if isinstance(error, TextSyntaxError):
        code = "invalid_regex" if isinstance(error, PatternError) else "invalid_grammar"
        code = code if isinstance(error, PatternError | GrammarError) else "invalid_constraint"
        return ApiError(
            message, place, code=code, offset=error.offset, line=error.line, column=error.column, reason=error.reason
        )
    if isinstance(error, FormatError):
        return ApiError(message, (*place, *error.steps), code="invalid_structural_tag")
    if isinstance(error, LanguageError):
        return ApiError(message, place, code="impossible_constraint")
    if type(error) is OptionError:  # it may quote the constraint, so its text is not searched
        return ApiError(message, place or _option_place(message))
    return request_error(error, place)


def media_error(error: TrellmError, place: Place) -> ApiError:
    """Return the error of an image or audio at a place of the request."""
    kind = error.kind if isinstance(error, MediaError) else None
    if kind == "audio" or isinstance(error, AudioError):
        return ApiError(_message(error), place, code="invalid_audio")
    is_image = kind == "image" or isinstance(error, ImageError)
    return ApiError(_message(error), place, code="invalid_image" if is_image else "invalid_value")


def request_error(error: TrellmError, place: Place = ()) -> ApiError:
    """Return the engine's error about a request."""
    message = _message(error)
    if isinstance(error, BudgetError):
        where = place or ("max_tokens",)
        return ApiError(_with_field_names(message, where), where, code="budget_too_small", needed=error.needed)
    if isinstance(error, LimitError):
        return ApiError(message, place, code="constraint_too_large")
    if isinstance(error, Cancelled):
        return ApiError(message, place, status=503, kind=SERVER, code="cancelled")
    if isinstance(error, ModelError):
        return ApiError(message, status=500, kind=SERVER, code="model_error")
    if isinstance(error, SchemaError | TextSyntaxError | LanguageError):
        return constraint_error(error, place)
    if isinstance(error, ToolError):
        where = [int(step) if step.isdecimal() else step for step in error.pointer.split("/")]
        return ApiError(message, where, code="invalid_tool")
    if isinstance(error, OptionError) and (found := re.search(r"context of (\d+)", message)):
        return too_long(message, int(found[1]), place or _option_place(message))
    where = place or _option_place(message)
    return ApiError(_with_field_names(message, where), where, code="invalid_value")


_FLAGS = {
    "AudioLimits(file_bytes=...)": "--max-audio of the server",
    "AudioLimits(seconds=...)": "--max-audio-seconds of the server",
    "ImageLimits(file_bytes=...)": "--max-image of the server",
    "ImageLimits(pixels=...)": "--max-image-pixels of the server",
    "ImageLimits(side=...)": "the side in the server's image_limits",
    "work= of its limits=Limits(...)": "--max-work of the server",
    "memory= of its limits=Limits(...)": "--max-constraint-memory of the server",
    "states= of its limits=Limits(...)": "--max-constraint-memory of the server",
    "seconds= of its limits=Limits(...)": "--compile-seconds of the server",
    "pass it in `resources={uri: schema}`": "put what it refers to under $defs",
    # logit_bias is finite in requests
    "logit_bias: at step": "allowed_token_ids: at step",
    "is banned by -inf; use a finite number such as -100, which leaves these tokens possible": (
        "is left out; add one of those, or leave the field out"
    ),
}
_FIELDS = {
    "stop_ids": "stop_token_ids",
    "width": "trellm.beams",
    **dict.fromkeys(BEAM_OPTIONS, "trellm.beams"),
    "fields": "trellm.fields",
    "describe": "trellm.describe",
    "frame": "trellm.frame",
}
"""Options whose fields have other names."""
_OPTIONS = (
    "chat_template_kwargs",
    "tools",
    "cache_salt",
    "priority",
    "no_repeat_ngram_size",
    "allowed_token_ids",
    "logit_bias",
    "logprobs",
    "prompt_logprobs",
    "frequency_penalty",
    "presence_penalty",
    "stop",
    "n",
    "seed",
    "max_tokens",
    "min_tokens",
    "repetition_penalty",
    *SAMPLE_OPTIONS,
)
"""Options whose fields have the same name."""
_VALUES = {
    re.compile(r"search=Beam\([^()]*\)"): "trellm.beams",
    re.compile(r"use Greedy\(\) or Sample\(\.\.\.\)"): "leave trellm.beams out",
    re.compile(r"(?:trellm\.)?\bframe="): "trellm.frame=",
    re.compile(r"frame=\('([^']*)', '([^']*)'\)"): "frame of '\\1' and '\\2'",
    re.compile(r"\binclude="): "trellm.include",
}
"""Python options and values in messages, and their replacements for requests."""


def _option_place(message: str) -> Place:
    """Return the field of the option that a message begins with."""
    name = re.match(r"[a-z_]*", message)
    option = "" if name is None else name[0]
    return tuple(_FIELDS[option].split(".")) if option in _FIELDS else (option,) if option in _OPTIONS else ()


def _with_field_names(message: str, place: Place) -> str:
    """Replace an option at a message's beginning, and other Python terms, by fields of requests."""
    name = re.match(r"([a-z_]+)(=True)?(?=\W)", message)
    if name is None or not _option_place(message):
        return message
    field = param_of(place) if name[1] == "max_tokens" else _FIELDS.get(name[1], name[1])
    words = f"{field}{message[name.end() :]}"
    for pattern, value in _VALUES.items():
        words = pattern.sub(value, words)
    return words


def api_error(error: BaseException, place: Place = ()) -> ApiError:
    """Return the error of a failed request, whatever the cause."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, TrellmError):
        return request_error(error, place)
    if isinstance(error, MemoryError):
        return ApiError("the server is out of memory", status=503, kind=SERVER, code="out_of_memory")
    return ApiError(f"the server failed: {type(error).__name__}", status=500, kind=SERVER, code="internal_error")
