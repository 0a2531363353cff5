"""Request bodies: size limits, strict JSON, validation and its errors.

Unsupported fields of other servers are rejected with a message that names an alternative.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from functools import partial
from typing import Any, NoReturn, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from ..checks import brief, lone_surrogate, repeated_name, shown
from .errors import LONGEST, ApiError, Place, param_of, unsupported

T = TypeVar("T", bound=BaseModel)
M = TypeVar("M")
LARGE = 1 << 16
"""Size in bytes from which a body is parsed in a thread."""
MAX_DEPTH = 256
MAX_MISTAKES = 4096
"""Most validation errors of a body that are examined one by one."""
_DATA = re.compile(r"data:|[A-Za-z0-9+/_-]{64}")
"""Pattern of the beginning of data URLs and base64 data."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


async def read(request: Request, shape: type[T], most: int) -> T:
    """Read and validate a body. shape: its pydantic model; most: size limit in bytes. Raises ApiError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            f"the body must be JSON, with the header Content-Type: application/json, not {kind or 'none'}",
            status=415,
            code="unsupported_media_type",
        )
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise ApiError(
            f"compressed bodies are not supported: send the body without Content-Encoding: {coding[:80]}",
            status=415,
            code="unsupported_media_type",
        )
    data = await read_whole(request, most)
    request.state.size, request.state.is_large = len(data), len(data) >= LARGE
    body = await derive(request, partial(parse, data, shape))
    request.state.names = getattr(body, "names", ())
    return body


async def derive(request: Request, make: Callable[[], M]) -> M:
    """Compute a value from the body. For a large body use a thread, which keeps the event loop free."""
    if not request.state.is_large:
        return make()
    pool: ThreadPoolExecutor = request.app.state.models.shared.reading
    return await asyncio.get_running_loop().run_in_executor(pool, make)


def parse(data: bytes, shape: type[T]) -> T:
    """Parse and validate a JSON body. Raises ApiError."""
    value = _parse_json(data)
    if not isinstance(value, dict):
        raise ApiError(f"the body must be a JSON object, not {shown(value)}", code="invalid_json")
    try:
        check_depth(value)
        if _SURROGATE.search(data):
            _check_texts(value)
        # Some clients send null for fields that they do not use.
        members = cast("dict[str, Any]", value).items()
        value = {name: each for name, each in members if each is not None or not _is_known(name, shape)}
        return shape.model_validate(value)
    except ValidationError as error:
        raise refusal(error, value, shape) from None
    except RecursionError:
        raise ApiError("the body is nested too deep", code="invalid_json") from None


async def read_whole(request: Request, most: int) -> bytes:
    """Read the whole body. Raises ApiError, with 413 as soon as the body is known to be too large."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most:  # a client with Expect: 100-continue has not sent it yet
        raise _too_large_error(most, more=True)
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ApiError("the client disconnected before the end of the body", code="client_closed_request")
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > most:
            raise _too_large_error(most, more=more)
    return b"".join(parts)


def check_size(request: Request, most: int) -> None:
    """Raise ApiError if a body that was read is too large for its model."""
    if request.state.size > most:
        raise _too_large_error(most, more=False)


def _too_large_error(most: int, *, more: bool) -> ApiError:
    """Return the error of a too large body. more: True if the client is still sending it"""
    message = f"the body has more than {most:,} bytes, the limit of this server"
    return ApiError(message, status=413, code="request_too_large", headers={"Connection": "close"} if more else None)


def _parse_json(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"), **_STRICT)
    except UnicodeDecodeError as error:
        raise ApiError(f"the body is not UTF-8, at byte {error.start}", code="invalid_json") from None
    except json.JSONDecodeError as error:
        raise ApiError(
            f"the body is not valid JSON: {error.msg}, line {error.lineno}, column {error.colno}",
            code="invalid_json",
            offset=error.pos,
            line=error.lineno,
            column=error.colno,
        ) from None
    except _NoJsonError as error:
        raise ApiError(f"the body is not valid JSON: {error}", code="invalid_json") from None
    except RecursionError:
        raise ApiError("the body is nested too deep", code="invalid_json") from None


def parse_json_text(text: str, place: Place) -> Any:
    """Parse a field that contains JSON text. Raises ApiError."""
    what = param_of(place)
    try:
        value: Any = json.loads(text, **_STRICT)
        check_depth(value, place)
        if _SURROGATE.search(text.encode()):
            _check_texts(value, place)
        return value
    except json.JSONDecodeError as error:
        message = f"{what} is not valid JSON: {error.msg}, line {error.lineno}, column {error.colno}"
        raise ApiError(message, place, code="invalid_json", offset=error.pos) from None
    except _NoJsonError as error:
        raise ApiError(f"{what} is not valid JSON: {error}", place, code="invalid_json") from None
    except RecursionError:
        raise ApiError(f"{what} is nested too deep", place, code="invalid_json") from None


class _NoJsonError(Exception):
    """Raised for text that Python's parser accepts, but that is not strict JSON."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NoJsonError(f"{name} is not a JSON number")


def _parse_int(digits: str) -> int | float:
    """Parse an integer. Integers of 1,000 digits and more become infinity, since Python parses them slowly."""
    return int(digits) if len(digits) < 1000 else float("inf")


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises _NoJsonError for duplicate names."""
    found = dict(members)
    if len(found) < len(members):
        twice = repeated_name(members)
        raise _NoJsonError(f"duplicate name {brief(twice)} in an object; leave one out")
    return found


_STRICT: dict[str, Any] = {"parse_constant": _refuse_constant, "parse_int": _parse_int, "object_pairs_hook": _object}


def check_depth(value: Any, place: Place = ()) -> None:
    """Raise ApiError for nesting deeper than DEEPEST, since Python copies values recursively."""
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            what = param_of(place) or "the body"
            raise ApiError(f"{what} is nested deeper than {MAX_DEPTH} levels", place, code="invalid_json")
        inside: list[Any] = [
            cast("dict[str, Any]", each).values() if isinstance(each, dict) else each for each in level
        ]
        level = [inner for several in inside for inner in several if isinstance(inner, dict | list)]


def check_finite(value: Any, place: Place) -> None:
    """Raise ApiError for numbers that overflow a float, since answers repeat them and JSON has no infinity."""
    for each, where in _all_within(value, place):
        if isinstance(each, float) and math.isinf(each):
            raise ApiError(f"{param_of(where)} is a number that is too large", where, code="invalid_value")


def _all_within(value: Any, place: Place) -> Iterator[tuple[Any, tuple[str | int, ...]]]:
    """Yield a value and all nested values, each with its place. place: of the outer value"""
    left: list[tuple[Any, tuple[str | int, ...]]] = [(value, tuple(place))]
    while left:
        each, where = left.pop()
        yield each, where
        left += [(inner, (*where, name)) for name, inner in _members(each)]


def _members(value: Any) -> list[tuple[str | int, Any]]:
    """Return (name or index, member) of an object or an array; [] for other values."""
    if isinstance(value, dict):
        return list(cast("dict[str | int, Any]", value).items())
    return list(enumerate(cast("list[Any]", value))) if isinstance(value, list) else []


def _check_texts(value: Any, place: Place = ()) -> None:
    """Raise ApiError for texts with lone surrogates, which UTF-8 cannot encode. place: of the value"""
    for each, where in _all_within(value, place):
        what = param_of(where) or "the body"
        if isinstance(each, str) and (at := lone_surrogate(each)) >= 0:
            raise ApiError(
                f"{what} has a lone surrogate at character {at}, which is not valid Unicode", where, code="not_text"
            )
        for name, _ in _members(each):
            if isinstance(name, str) and lone_surrogate(name) >= 0:
                raise ApiError(f"a name in {what} has a lone surrogate", where, code="not_text")


def refusal(error: ValidationError, value: Any, shape: type[BaseModel]) -> ApiError:
    """Return the error of an invalid body: of several mistakes the most deeply nested one, unknown fields first."""
    if error.error_count() > MAX_MISTAKES:
        message = f"the body has {error.error_count():,} mistakes, such as unknown fields or values of wrong types"
        return ApiError(f"{message}; docs/serve.md lists the fields", code="invalid_value")
    mistakes = _mistakes(error, value)
    unknown = [each for each in mistakes if each[1]["type"] == "extra_forbidden"]
    place, first = max(unknown or mistakes, key=lambda each: len(each[0]))
    kind, message = first["type"], str(first["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind == "extra_forbidden":
        return _unknown_field_error(place, shape)
    if kind == "missing":
        missing = (*place, str(first["loc"][-1]))
        return ApiError(f"{param_of(missing)} is missing", missing, code="missing_required_parameter")
    member = value_at(value, place)
    if kind == "unknown_type" and (reason := _unsupported_part_reason(member, message)) is not None:
        return unsupported(place, reason)
    what = param_of(place) or "the body"
    options = {str(each["msg"]) for where, each in mistakes if where == place and each["type"] != "missing"}
    message = message if len(options) == 1 else "; or: ".join(sorted(options))
    if first["type"] == "value_error" and not place:  # it names its fields
        return ApiError(message, code="invalid_value")
    member_text = shown(_without_data(member))
    return ApiError(f"{what}={member_text}: {message[:1].lower()}{message[1:]}", place, code="invalid_value")


def _mistakes(error: ValidationError, value: Any) -> list[tuple[tuple[str | int, ...], ErrorDetails]]:
    """Return the mistakes with their places, without those of union alternatives that were not meant."""
    mistakes = [(place_in(value, each["loc"]), each) for each in error.errors(include_url=False, include_context=False)]
    # For an object of an unknown type, only the type is reported.
    untyped = {place[:-1] for place, each in mistakes if place[-1:] == ("type",) and each["type"] == "literal_error"}
    mistakes = [each for each in mistakes if each[0][-1:] == ("type",) or each[0][:-1] not in untyped]
    unlikely = _unlikely(value, [(each["loc"], each["type"]) for _, each in mistakes])
    return [each for each in mistakes if each[1]["loc"][:-1] not in unlikely]


def _unsupported_part_reason(part: Any, message: str) -> str | None:
    """Return the reason why a message part's type is unsupported; None if it is unknown.

    message: pydantic's message, which lists the supported types
    """
    kind = cast("dict[str, Any]", part).get("type") if isinstance(part, dict) else None
    audio_types = [each for each in AUDIO if repr(each) in message]
    if kind in AUDIO and audio_types:
        return f"here audio has the part type {' or '.join(audio_types)}"
    return PARTS.get(kind) if isinstance(kind, str) else None


def _without_data(value: Any) -> Any:
    """Replace texts that are data, such as base64 images, by their length in a value and its nested values."""
    if isinstance(value, str):
        return f"({len(value):,} characters)" if _DATA.match(value) else value
    if isinstance(value, dict):
        return {name: _without_data(each) for name, each in cast("dict[str, Any]", value).items()}
    return [_without_data(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _reason(name: str, shape: type[BaseModel]) -> str | None:
    """Return the reason why a field of other servers or of chats is unsupported; None for unknown names."""
    return KNOWN.get(name) or getattr(shape, "ELSEWHERE", {}).get(name)


def _is_known(name: str, shape: type[BaseModel]) -> bool:
    """Test whether a field is `trellm`, or known from other servers or chats."""
    return name == "trellm" or _reason(name, shape) is not None


def _unknown_field_error(place: Place, shape: type[BaseModel]) -> ApiError:
    """Return the error of an unknown or misplaced field."""
    name = str(place[-1])
    suggestions: list[str] = []
    if len(place) == 1:
        if (reason := _reason(name, shape)) is not None:
            return unsupported(place, reason)
        counterpart = getattr(shape, "SAME", {}).get(name, "").replace("/", ".")
        suggestions = [counterpart] if counterpart else get_close_matches(name[:LONGEST], shape.model_fields, 1)
    hint = f"; did you mean {suggestions[0]}?" if suggestions else ""
    return ApiError(f"unknown field {param_of(place) or shown(name)}{hint}", place, code="unknown_parameter")


def place_in(value: Any, steps: Place) -> tuple[str | int, ...]:
    """Return the place of a pydantic error's location, without the names of union alternatives."""
    found: list[str | int] = []
    for step in steps:
        if _has_member(value, step):
            value = value[step]
            found.append(step)
    return tuple(found)


def _unlikely(value: Any, mistakes: list[tuple[Place, str]]) -> set[Place]:
    """Return locations of union alternatives with missing fields, if another alternative has none missing."""
    lacking = {loc[:-1] for loc, kind in mistakes if kind == "missing" and len(loc) > 1}
    lacking = {loc for loc in lacking if place_in(value, loc) == place_in(value, loc[:-1])}
    likely = {loc[:end] for loc, _ in mistakes for end in range(len(loc) - 1) if loc[: end + 1] not in lacking}
    return {loc for loc in lacking if loc[:-1] in likely}


def value_at(value: Any, place: Place) -> Any:
    """Return the value at a place."""
    for step in place:
        value = value[step]
    return value


def _has_member(value: Any, step: str | int) -> bool:
    """Test whether an object has a name, or an array an index, in constant time."""
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and 0 <= step < len(cast("list[Any]", value))


_NO_SOUND = "the model generates no audio"
AUDIO = ("input_audio", "audio_url", "audio")
"""Types of audio parts of this server and others."""
PARTS: dict[str, str] = {
    **dict.fromkeys(AUDIO, "/v1/chat/completions takes audio as input_audio and as audio_url"),
    **dict.fromkeys(("video_url", "input_video", "video"), "video is not supported; send images or audio"),
    **dict.fromkeys(("file", "input_file", "document"), "files are not supported; send texts, images and audio"),
}
"""Unsupported message part types of other servers, with reasons."""
KNOWN: dict[str, str] = {
    "audio": _NO_SOUND,
    "prediction": "predicted outputs are not supported; leave it out",
    "web_search_options": "the server does not search the web",
    "verbosity": "ask in a message for a short or a long answer",
    "top_logprobs": "/v1/completions has logprobs=K for the K likeliest tokens; /v1/responses has no log-probabilities",
    "use_beam_search": 'for beam search use trellm: {"beams": 4}',
    "length_penalty": 'for beam search use trellm: {"beams": {"width": 4, "length_penalty": 1.0}}',
    "early_stopping": 'for beam search use trellm: {"beams": {"width": 4, "early_stopping": true}}',
    "suffix": "the server only continues prompts, and fills no gap before a suffix",
    "chat_template": "the server always uses the model's own chat template",
    "mm_processor_kwargs": "the model's own configuration decides how images and audio are preprocessed",
    "guided_whitespace_pattern": 'for white space use trellm: {"json": {"whitespace": "compact"}}',
    "no_stop_trim": "the output never includes stop strings",
    "lora_path": "request an adapter of the server by its name in model",
    "session_params": "sessions are not supported; send the whole chat",
    "n_predict": "use max_tokens",
    "mirostat": "use temperature, top_p or min_p",
    "typical_p": "use temperature, top_p or min_p",
    "repeat_penalty": "use repetition_penalty",
    "echo": "an answer of a chat never repeats the messages",
    "best_of": "chats have n, the number of answers; choose among them",
    "continue_final_message": "a prompt is always continued; /v1/chat/completions has the field for the last message",
    "add_generation_prompt": "a prompt has no template",
    "chat_template_kwargs": "a prompt has no template",
    "reasoning_effort": "only chats have it, because it controls the chat template",
    "reasoning": "only chats have it, because it controls the chat template",
    "functions": "send them as tools",
    "function_call": "send it as tool_choice",
    "conversation": "stored conversations are not supported; continue a response by previous_response_id",
    "max_tool_calls": "the server does not run tools itself",
}
