"""/v1/chat/completions: chats with tool calls and thinking, in the model's format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.decode.sequence import SequenceState
from ...engine.generator import Generator
from ...engine.handle import Piece
from ...engine.models.protocol import BEGIN
from ...engine.options import Options
from ...engine.results import Generation
from ...errors import OptionError, TrellmError
from ..constraints.compiler import weight
from ..constraints.constraint import ConstraintSpec
from ..errors import ApiError, of_request, param_of
from ..generation import REASONS, Beginning, GenerationRequest, Prepared, begin
from ..requests.chat import ChatRequest
from ..service import Service
from ..tool_calls import (
    TAIL,
    AnswerPlan,
    ArgumentsDelta,
    CallDelta,
    CallEndDelta,
    ContentDelta,
    Delta,
    ParsedMessage,
    ReasoningDelta,
    ThinkingError,
    Tool,
    ToolChoice,
    choice_of,
    is_apart,
    tools_of,
)
from .answers import Stream, answered, choice_stream, extension_of, head_of, written
from .scores import of_chat, of_prompt, scores_in, scores_of


@dataclass(frozen=True)
class ToolUse:
    """Validated tool and thinking options of a chat. given: the tools as in the request"""

    given: Sequence[Any] | None
    tools: tuple[Tool, ...]
    choice: ToolChoice
    parallel: bool
    thinking: Any
    budget: int | None


async def prepared(begun: GenerationRequest, chat: ChatRequest) -> Prepared:
    """Return task, prompts and plan of a chat. The plan is None if the answer is only content. Raises ApiError."""
    service, constraint = begun.service, begun.constraint
    asked = _asked(service, chat)
    messages = await begun.media.read(chat.chat())
    generator = await service.generator(constraint)
    if chat.trellm.describe:
        (messages,) = await service.described(constraint, [messages], ("messages",))
    is_usual = asked.thinking == "auto" and asked.budget is None
    if not asked.tools and is_usual and not service.form.thinks:
        return generator, [messages], None
    is_verbatim = not chat.trellm.special_tokens
    ids = await service.chat_ids(messages, chat.listed_tools(), chat.template_options, is_verbatim=is_verbatim)
    if service.form.name == "harmony" and (constraint.goals or is_apart(generator.guide)):
        if asked.tools or asked.thinking == "on" or asked.budget is not None:
            raise _together(_place(constraint), _other(asked, "in the tool-call format 'harmony'"))
        return generator, [(*ids, *service.form.final(_tail(ids)))], None
    if constraint.framed is not None:
        raise _together(("trellm", "frame"), _other(asked))
    _check_stops(service, chat, asked, constraint)
    plan, planned = await _planned(service, chat, asked, constraint, generator, ids)
    if not asked.tools and constraint.is_free and is_usual and not chat.stop:
        planned = generator  # without any constraint, the plan only parses the answer
    tells = constraint.kind == "extract" or constraint.options != "{}"  # results have quotations, unenforced keywords
    task = _Telling(planned, plan, generator) if tells else planned
    return task, [(*ids, *plan.opening)], plan


def _tail(ids: tuple[int, ...]) -> tuple[int, ...]:
    """Return the last tokens of a prompt without media rows, which show if the template has begun thinking."""
    return tuple(token for token in ids[-TAIL:] if token > BEGIN)


class _Telling:
    """A `Task` of a plan's generator whose results also have the constraint's findings, such as quotations."""

    def __init__(self, planned: Generator[Any], plan: AnswerPlan, answer: Generator[Any]) -> None:
        self.model, self.text_prefix, self.job = planned.model, planned.text_prefix, planned.job
        self._planned, self._plan, self._answer = planned, plan, answer

    def result(self, sequence: SequenceState, options: Options) -> Generation[Any]:
        """Return the result of a finished sequence."""
        result = self._planned.result(sequence, options)
        message = self._plan.read(result.token_ids).message
        if message.calls or message.content is None:
            return result
        return self._answer.said(result, message.content, sequence)


def _check_stops(service: Service, chat: ChatRequest, asked: ToolUse, constraint: ConstraintSpec) -> None:
    """Raise ApiError for stop conditions that conflict with tools, thinking or goals."""
    if constraint.kind:
        return
    other = _other(asked)
    if chat.stop_token_ids:
        raise _together(("stop_token_ids",), other)
    if chat.stop and service.form.name == "harmony":
        raise _together(("stop",), "the tool-call format 'harmony', whose messages have their own end")
    if chat.stop and constraint.goals:
        raise _together(("stop",), f"trellm.include and {other}")


def _place(constraint: ConstraintSpec) -> Sequence[str | int]:
    return constraint.place if constraint.kind else ("trellm", "include")


def _other(asked: ToolUse, more: str = "") -> str:
    """Return the reason, for messages, that an answer has parts besides its content."""
    what = "tools" if asked.tools else "a model that thinks"
    return f"{what} {more}".rstrip()


def _together(place: Sequence[str | int], other: str) -> ApiError:
    """Return the error of a field that conflicts with something else."""
    what = param_of(place)
    return ApiError(f"{what} together with {other} is not supported; leave one of them out", place)


def _asked(service: Service, chat: ChatRequest) -> ToolUse:
    given, chosen, parallel = chat.chosen_tools
    try:
        tools = tools_of(given, service.settings.tools)
        choice = choice_of(chosen, tools)
    except TrellmError as error:
        raise of_request(error, ("functions",) if chat.is_legacy else ("tools",)) from None
    if not tools and chat.parallel_tool_calls is not None:
        raise ApiError("parallel_tool_calls needs tools, and the request has none", ("parallel_tool_calls",))
    thinking, budget = chat.thought
    if not service.form.thinks and chat.trellm.thinking == "auto" and chat.trellm.thinking_budget is None:
        thinking, budget = "auto", None  # thinking options are meaningless for a model without thinking
    return ToolUse(given, tools, choice, parallel is not False, thinking, budget)


async def _planned(
    service: Service,
    chat: ChatRequest,
    asked: ToolUse,
    constraint: ConstraintSpec,
    generator: Generator[Any],
    ids: tuple[int, ...],
) -> tuple[AnswerPlan, Generator[Any]]:
    """Return the plan of a chat and its generator, from the compiler's cache or new. Raises ApiError."""
    form, limits = service.form, service.settings.limits
    tail = _tail(ids) if form.thinks else ()
    answer: Any = None
    if constraint.kind:  # its guide includes goals
        guide_cache = generator.guide_cache(constraint.goals)
        answer = None if guide_cache is None else guide_cache.guide
    stop = () if constraint.kind else chat.stops  # a constraint defines the ends of its texts
    choice = json.dumps([asked.choice.mode, sorted(asked.choice.names), asked.parallel, asked.thinking, asked.budget])
    key = ("plan", constraint, json.dumps(asked.given), choice, tail, stop)

    def make() -> tuple[AnswerPlan, Generator[Any]]:
        plan = form.plan(
            asked.tools,
            asked.choice,
            parallel=asked.parallel,
            thinking=asked.thinking,
            budget=asked.budget,
            answer=answer,
            goals=() if constraint.kind else constraint.goals,
            prompt=tail,
            stop=stop,
            limits=limits,
        )
        planned: Generator[Any] = Generator(service.model, plan.guide, limits=limits)
        guide_cache = planned.guide_cache()
        if guide_cache is not None:
            guide_cache.warm()
        return plan, planned

    try:
        return await service.compiler.made(key, make, lambda made: weight(made[1]))
    except ThinkingError as error:
        field = "thinking" if asked.thinking == "on" else "thinking_budget"
        raise ApiError(str(error), ("trellm", field)) from None
    except TrellmError as error:
        if stop and type(error) is OptionError:  # a stop string conflicts with the beginning of a call
            raise ApiError(f"stop together with tools: {error}", ("stop",), code="invalid_value") from None
        raise of_request(error, ("tools",) if asked.tools else ("trellm", "thinking")) from None


def message_fields(message: ParsedMessage, *, is_legacy: bool = False) -> dict[str, Any]:
    """Return the JSON of an answer's message. is_legacy: write a call as `function_call`"""
    said: dict[str, Any] = {"role": "assistant", "content": message.content, "refusal": None}
    if message.reasoning is not None:
        said["reasoning_content"] = message.reasoning
    if message.calls and is_legacy:
        said["function_call"] = {"name": message.calls[0].name, "arguments": message.calls[0].arguments}
    elif message.calls:
        said["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    return said


def finish_of(message: ParsedMessage, result: Generation[Any], cut_at: int | None) -> str:
    """Return the finish reason of an answer: "length" for an incomplete call. cut_at: token budget of the request"""
    if message.calls:
        return "tool_calls" if all(call.complete for call in message.calls) else "length"
    if message.stopped:
        return "stop"
    # A guide may be accepting where only the budget ended free text.
    is_cut = cut_at is not None and len(result.token_ids) >= cut_at
    return "length" if is_cut else REASONS[result.finish_reason]


def delta_fields(delta: Delta, *, is_legacy: bool = False) -> dict[str, Any] | None:
    """Return the JSON of a delta; None if it has none. is_legacy: write a call as `function_call`"""
    match delta:
        case ContentDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return {"reasoning_content": text}
        case CallDelta(_, _, name) if is_legacy:
            return {"function_call": {"name": name, "arguments": ""}}
        case ArgumentsDelta(_, text) if is_legacy:
            return {"function_call": {"arguments": text}}
        case CallDelta(index, key, name):
            call = {"index": index, "id": key, "type": "function", "function": {"name": name, "arguments": ""}}
            return {"tool_calls": [call]}
        case ArgumentsDelta(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
        case CallEndDelta():
            return None


def begin_chat(request: Request, asked: ChatRequest) -> Beginning:
    """Return a function that begins the answer of a chat. All APIs with chats use it."""

    async def prepare(begun: GenerationRequest) -> Prepared:
        return await prepared(begun, asked)

    return partial(begin, request, asked, 1, ("messages",), prepare)


async def chat(request: Request, service: Service, asked: ChatRequest) -> Response:
    """Answer a chat; with stream: true as server-sent events."""
    return await answered(request, begin_chat(request, asked), _head, _choice, _stream if asked.stream else None)


def _head(begun: GenerationRequest) -> dict[str, Any]:
    kind = "chat.completion.chunk" if begun.asked.is_streamed else "chat.completion"
    return head_of(begun, kind) | {"system_fingerprint": None}


def _choice(begun: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": result.text, "refusal": None}
    finish = REASONS[result.finish_reason]
    if begun.plan is not None:
        read = begun.read(result)
        message = message_fields(read, is_legacy=is_legacy(begun))
        finish = _ended(begun, finish_of(read, result, begun.cut_at))
    if index == 0 and result.prompt_logprobs is not None:
        begun.prompt_scores = b"".join(written(of_prompt(result.prompt_logprobs, begun.service.model.vocabulary)))
    scores = of_chat(scores_of(result), begun.service.model.vocabulary)
    choice = {"index": index, "message": message, "logprobs": scores, "finish_reason": finish}
    return choice | extension_of(result)


def is_legacy(begun: GenerationRequest) -> bool:
    """Test whether a chat uses `functions`, the deprecated form of tools."""
    return isinstance(begun.asked, ChatRequest) and begun.asked.is_legacy


def _ended(begun: GenerationRequest, finish: str) -> str:
    """Return the finish reason, with "function_call" for legacy chats."""
    return "function_call" if finish == "tool_calls" and is_legacy(begun) else finish


def _stream(begun: GenerationRequest) -> Stream:
    """Return the serializers of a chat's events: the role, the deltas, and the finish reason."""
    reading, legacy = [begun.reader() for _ in range(begun.choices)], is_legacy(begun)

    def fields(index: int, delta: dict[str, Any], scores: Any = None, finish: str | None = None) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": scores, "finish_reason": finish}

    def choices(piece: Piece) -> Iterator[dict[str, Any]]:
        index = begun.index_of(piece)
        reader = reading[index]
        several = begun.deltas(piece, reader)
        deltas = [said for delta in several if (said := delta_fields(delta, is_legacy=legacy)) is not None]
        scores = of_chat(scores_in(piece), begun.service.model.vocabulary)
        if scores is not None:  # the first delta gets the scores of all tokens of the piece
            yield fields(index, deltas.pop(0) if deltas else {}, scores)
        for delta in deltas:
            yield fields(index, delta)
        if piece.result is not None:
            finish = REASONS[piece.result.finish_reason]
            if reader is not None:
                finish = _ended(begun, finish_of(reader.message, piece.result, begun.cut_at))
            yield fields(index, {}, finish=finish) | extension_of(piece.result)

    first = [fields(index, {"role": "assistant", "content": ""}) for index in range(begun.choices)]
    return choice_stream(begun, _head(begun), first, choices)
