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
from ..errors import ApiError, param_of, request_error
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
    is_unembeddable,
    tools_of,
)
from .answers import Stream, answer_with_choices, choice_stream, extension_of, head_of, serialize
from .scores import chat_scores, prompt_scores, scores_in, scores_of


@dataclass(frozen=True)
class ToolUse:
    """Validated tool and thinking options of a chat. raw_tools: the tools as in the request"""

    raw_tools: Sequence[Any] | None
    tools: tuple[Tool, ...]
    choice: ToolChoice
    parallel: bool
    thinking: Any
    budget: int | None


async def prepare_chat(generation: GenerationRequest, chat: ChatRequest) -> Prepared:
    """Return task, prompts and plan of a chat. The plan is None if the answer is only content. Raises ApiError."""
    service, constraint = generation.service, generation.constraint
    use = _tool_use(service, chat)
    messages = await generation.media.read(chat.chat())
    generator = await service.generator(constraint)
    if chat.trellm.describe:
        (messages,) = await service.describe(constraint, [messages], ("messages",))
    is_default = use.thinking == "auto" and use.budget is None
    if not use.tools and is_default and not service.tool_format.thinks:
        return generator, [messages], None
    is_verbatim = not chat.trellm.special_tokens
    ids = await service.chat_ids(messages, chat.listed_tools(), chat.template_options, is_verbatim=is_verbatim)
    if service.tool_format.name == "harmony" and (constraint.goals or is_unembeddable(generator.guide)):
        if use.tools or use.thinking == "on" or use.budget is not None:
            raise _conflict_error(_place(constraint), _other_parts(use, "in the tool-call format 'harmony'"))
        return generator, [(*ids, *service.tool_format.final(_tail(ids)))], None
    if constraint.framed is not None:
        raise _conflict_error(("trellm", "frame"), _other_parts(use))
    _check_stops(service, chat, use, constraint)
    plan, planned = await _plan_answers(service, chat, use, constraint, generator, ids)
    if not use.tools and constraint.is_free and is_default and not chat.stop:
        planned = generator  # without any constraint, the plan only parses the answer
    # results have quotations, unenforced keywords
    has_findings = constraint.kind == "extract" or constraint.options != "{}"
    task = _ConstraintTask(planned, plan, generator) if has_findings else planned
    return task, [(*ids, *plan.opening)], plan


def _tail(ids: tuple[int, ...]) -> tuple[int, ...]:
    """Return the last tokens of a prompt without media rows, which show if the template has begun thinking."""
    return tuple(token for token in ids[-TAIL:] if token > BEGIN)


class _ConstraintTask:
    """A `Task` of a plan's generator whose results also have the constraint's findings, such as quotations."""

    def __init__(self, planned: Generator[Any], plan: AnswerPlan, answer: Generator[Any]) -> None:
        self.model, self.text_prefix, self.job = planned.model, planned.text_prefix, planned.job
        self._plan_generator, self._plan, self._answer = planned, plan, answer

    def result(self, sequence: SequenceState, options: Options) -> Generation[Any]:
        """Return the result of a finished sequence."""
        result = self._plan_generator.result(sequence, options)
        message = self._plan.read(result.token_ids).message
        if message.calls or message.content is None:
            return result
        return self._answer.said(result, message.content, sequence)


def _check_stops(service: Service, chat: ChatRequest, use: ToolUse, constraint: ConstraintSpec) -> None:
    """Raise ApiError for stop conditions that conflict with tools, thinking or goals."""
    if constraint.kind:
        return
    other = _other_parts(use)
    if chat.stop_token_ids:
        raise _conflict_error(("stop_token_ids",), other)
    if chat.stop and service.tool_format.name == "harmony":
        raise _conflict_error(("stop",), "the tool-call format 'harmony', whose messages have their own end")
    if chat.stop and constraint.goals:
        raise _conflict_error(("stop",), f"trellm.include and {other}")


def _place(constraint: ConstraintSpec) -> Sequence[str | int]:
    return constraint.place if constraint.kind else ("trellm", "include")


def _other_parts(use: ToolUse, more: str = "") -> str:
    """Return the reason, for messages, that an answer has parts besides its content."""
    what = "tools" if use.tools else "a model that thinks"
    return f"{what} {more}".rstrip()


def _conflict_error(place: Sequence[str | int], other: str) -> ApiError:
    """Return the error of a field that conflicts with something else."""
    what = param_of(place)
    return ApiError(f"{what} together with {other} is not supported; leave one of them out", place)


def _tool_use(service: Service, chat: ChatRequest) -> ToolUse:
    raw_tools, chosen, parallel = chat.chosen_tools
    try:
        tools = tools_of(raw_tools, service.settings.tools)
        choice = choice_of(chosen, tools)
    except TrellmError as error:
        raise request_error(error, ("functions",) if chat.is_legacy else ("tools",)) from None
    if not tools and chat.parallel_tool_calls is not None:
        raise ApiError("parallel_tool_calls needs tools, and the request has none", ("parallel_tool_calls",))
    thinking, budget = chat.thinking_options
    if not service.tool_format.thinks and chat.trellm.thinking == "auto" and chat.trellm.thinking_budget is None:
        thinking, budget = "auto", None  # thinking options are meaningless for a model without thinking
    return ToolUse(raw_tools, tools, choice, parallel is not False, thinking, budget)


async def _plan_answers(
    service: Service,
    chat: ChatRequest,
    use: ToolUse,
    constraint: ConstraintSpec,
    generator: Generator[Any],
    ids: tuple[int, ...],
) -> tuple[AnswerPlan, Generator[Any]]:
    """Return the plan of a chat and its generator, from the compiler's cache or new. Raises ApiError."""
    form, limits = service.tool_format, service.settings.limits
    tail = _tail(ids) if form.thinks else ()
    answer: Any = None
    if constraint.kind:  # its guide includes goals
        guide_cache = generator.guide_cache(constraint.goals)
        answer = None if guide_cache is None else guide_cache.guide
    stop = () if constraint.kind else chat.stops  # a constraint defines the ends of its texts
    choice = json.dumps([use.choice.mode, sorted(use.choice.names), use.parallel, use.thinking, use.budget])
    key = ("plan", constraint, json.dumps(use.raw_tools), choice, tail, stop)

    def make() -> tuple[AnswerPlan, Generator[Any]]:
        plan = form.plan(
            use.tools,
            use.choice,
            parallel=use.parallel,
            thinking=use.thinking,
            budget=use.budget,
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
        return await service.compiler.compile(key, make, lambda compiled: weight(compiled[1]))
    except ThinkingError as error:
        field = "thinking" if use.thinking == "on" else "thinking_budget"
        raise ApiError(str(error), ("trellm", field)) from None
    except TrellmError as error:
        if stop and type(error) is OptionError:  # a stop string conflicts with the beginning of a call
            raise ApiError(f"stop together with tools: {error}", ("stop",), code="invalid_value") from None
        raise request_error(error, ("tools",) if use.tools else ("trellm", "thinking")) from None


def message_fields(message: ParsedMessage, *, is_legacy: bool = False) -> dict[str, Any]:
    """Return the JSON of an answer's message. is_legacy: write a call as `function_call`"""
    fields: dict[str, Any] = {"role": "assistant", "content": message.content, "refusal": None}
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.calls and is_legacy:
        fields["function_call"] = {"name": message.calls[0].name, "arguments": message.calls[0].arguments}
    elif message.calls:
        fields["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    return fields


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


def begin_chat(request: Request, body: ChatRequest) -> Beginning:
    """Return a function that begins the answer of a chat. All APIs with chats use it."""

    async def prepare(generation: GenerationRequest) -> Prepared:
        return await prepare_chat(generation, body)

    return partial(begin, request, body, 1, ("messages",), prepare)


async def chat(request: Request, service: Service, body: ChatRequest) -> Response:
    """Answer a chat; with stream: true as server-sent events."""
    return await answer_with_choices(
        request, begin_chat(request, body), _head, _choice, _stream if body.stream else None
    )


def _head(generation: GenerationRequest) -> dict[str, Any]:
    kind = "chat.completion.chunk" if generation.body.is_streamed else "chat.completion"
    return head_of(generation, kind) | {"system_fingerprint": None}


def _choice(generation: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": result.text, "refusal": None}
    finish = REASONS[result.finish_reason]
    if generation.plan is not None:
        read = generation.read(result)
        message = message_fields(read, is_legacy=is_legacy(generation))
        finish = _finish_reason(generation, finish_of(read, result, generation.cut_at))
    if index == 0 and result.prompt_logprobs is not None:
        generation.prompt_scores = b"".join(
            serialize(prompt_scores(result.prompt_logprobs, generation.service.model.vocabulary))
        )
    scores = chat_scores(scores_of(result), generation.service.model.vocabulary)
    choice = {"index": index, "message": message, "logprobs": scores, "finish_reason": finish}
    return choice | extension_of(result)


def is_legacy(generation: GenerationRequest) -> bool:
    """Test whether a chat uses `functions`, the deprecated form of tools."""
    return isinstance(generation.body, ChatRequest) and generation.body.is_legacy


def _finish_reason(generation: GenerationRequest, finish: str) -> str:
    """Return the finish reason, with "function_call" for legacy chats."""
    return "function_call" if finish == "tool_calls" and is_legacy(generation) else finish


def _stream(generation: GenerationRequest) -> Stream:
    """Return the serializers of a chat's events: the role, the deltas, and the finish reason."""
    readers, legacy = [generation.reader() for _ in range(generation.choices)], is_legacy(generation)

    def fields(index: int, delta: dict[str, Any], scores: Any = None, finish: str | None = None) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": scores, "finish_reason": finish}

    def choices(piece: Piece) -> Iterator[dict[str, Any]]:
        index = generation.index_of(piece)
        reader = readers[index]
        several = generation.deltas(piece, reader)
        deltas = [part for delta in several if (part := delta_fields(delta, is_legacy=legacy)) is not None]
        scores = chat_scores(scores_in(piece), generation.service.model.vocabulary)
        if scores is not None:  # the first delta gets the scores of all tokens of the piece
            yield fields(index, deltas.pop(0) if deltas else {}, scores)
        for delta in deltas:
            yield fields(index, delta)
        if piece.result is not None:
            finish = REASONS[piece.result.finish_reason]
            if reader is not None:
                finish = _finish_reason(generation, finish_of(reader.message, piece.result, generation.cut_at))
            yield fields(index, {}, finish=finish) | extension_of(piece.result)

    first = [fields(index, {"role": "assistant", "content": ""}) for index in range(generation.choices)]
    return choice_stream(generation, _head(generation), first, choices)
