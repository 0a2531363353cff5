"""Chats: what a model is to write in its own form, with tools and thinking, and what it wrote as messages have it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...engine.decode.row import Row
from ...engine.generator import Generator
from ...engine.options import Options
from ...engine.results import Generation
from ...errors import OptionError, TrellmError
from ..constraints.compiler import weight
from ..constraints.constraint import Constraint
from ..errors import ApiError, of_request, param_of
from ..forms import (
    ArgumentsDelta,
    CallDelta,
    CallEndDelta,
    Choice,
    ContentDelta,
    Delta,
    Message,
    Plan,
    Reader,
    ReasoningDelta,
    ThinkingError,
    Tool,
    choice_of,
    is_apart,
    tools_of,
)
from ..generation import REASONS, Prepared
from ..requests.chat import Chat
from ..service import Service

TAIL = 64
"""So many tokens at a prompt's end say whether its template has begun thinking."""


@dataclass(frozen=True)
class Asked:
    """The tools of a chat, which may be called, and whether the model thinks first."""

    tools: tuple[Tool, ...]
    choice: Choice
    parallel: bool
    thinking: Any
    budget: int | None


async def prepared(service: Service, chat: Chat, constraint: Constraint) -> Prepared:
    """What is to be run for a chat. Raises ApiError."""
    asked = _asked(service, chat)
    messages = chat.chat()
    generator = await service.generator(constraint)
    is_usual = asked.thinking == "auto" and asked.budget is None
    if not asked.tools and is_usual and not service.form.thinks:
        return generator, [messages], None
    ids = await service.chat_ids(messages, chat.listed_tools(), is_verbatim=not chat.trellm.special_tokens)
    if service.form.name == "harmony" and (constraint.goals or is_apart(generator.guide)):
        if asked.tools or asked.thinking == "on" or asked.budget is not None:
            raise _together(_place(constraint), _other(asked, "in the form 'harmony'"))
        return generator, [(*ids, *service.form.final(ids[-TAIL:]))], None
    _check_stops(service, chat, asked, constraint)
    plan, planned = await _planned(service, chat, asked, constraint, generator, ids)
    if not asked.tools and constraint.is_free and is_usual and not chat.stop:
        planned = generator  # what is read apart, and nothing is constrained
    tells = constraint.kind == "extract" or constraint.options != "{}"  # where quotations stand, what was not enforced
    task = _Telling(planned, plan, generator) if tells else planned
    return task, [(*ids, *plan.opening)], plan


class _Telling:
    """Generates answers of a plan, with what the constraint says of their content: a `Task`."""

    def __init__(self, planned: Generator[Any], plan: Plan, answer: Generator[Any]) -> None:
        self.model, self.text_prefix, self.job = planned.model, planned.text_prefix, planned.job
        self._planned, self._plan, self._answer = planned, plan, answer

    def result(self, row: Row, options: Options) -> Generation[Any]:
        """The result of a finished row."""
        result = self._planned.result(row, options)
        message = self._plan.read(result.token_ids).message
        if message.calls or message.content is None:
            return result
        return self._answer.said(result, message.content, row)


def _check_stops(service: Service, chat: Chat, asked: Asked, constraint: Constraint) -> None:
    """Raise ApiError for what ends texts together with what says itself where they end."""
    other = _other(asked)
    if chat.stop_token_ids:
        raise _together(("stop_token_ids",), other)
    if chat.stop and service.form.name == "harmony":
        raise _together(("stop",), "the form 'harmony', which marks where messages end")
    if chat.stop and constraint.goals:
        raise _together(("stop",), f"trellm.include and {other}")


def _place(constraint: Constraint) -> Sequence[str | int]:
    return constraint.place if constraint.kind else ("trellm", "include")


def _other(asked: Asked, more: str = "") -> str:
    """What makes an answer one of several parts."""
    what = "tools" if asked.tools else "a model that thinks"
    return f"{what} {more}".rstrip()


def _together(place: Sequence[str | int], other: str) -> ApiError:
    """A field that does not go together with something else."""
    what = param_of(place)
    return ApiError(f"{what} together with {other} is not supported; leave one of them out", place)


def _asked(service: Service, chat: Chat) -> Asked:
    try:
        tools = tools_of(chat.tools, service.settings.tools)
        choice = choice_of(chat.tool_choice, tools)
    except TrellmError as error:
        raise of_request(error, ("tools",)) from None
    if not tools and chat.parallel_tool_calls is not None:
        raise ApiError("parallel_tool_calls are for tools, and there are none", ("parallel_tool_calls",))
    ours = chat.trellm
    return Asked(tools, choice, chat.parallel_tool_calls is not False, ours.thinking, ours.thinking_budget)


async def _planned(
    service: Service, chat: Chat, asked: Asked, constraint: Constraint, generator: Generator[Any], ids: tuple[int, ...]
) -> tuple[Plan, Generator[Any]]:
    """The plan of a chat and what generates such answers, made now or before. Raises ApiError."""
    form, limits = service.form, service.settings.limits
    tail = ids[-TAIL:] if form.thinks else ()
    answer: Any = None
    if constraint.kind:  # with its goals, if it has any
        guide_cache = generator.job((0,), constraint.goals).guide_cache
        answer = None if guide_cache is None else guide_cache.guide
    choice = json.dumps([asked.choice.mode, sorted(asked.choice.names), asked.parallel, asked.thinking, asked.budget])
    stop = (chat.stop,) if isinstance(chat.stop, str) else tuple(chat.stop or ())
    key = ("plan", constraint, json.dumps(chat.tools), choice, tail, stop)

    def make() -> tuple[Plan, Generator[Any]]:
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
        guide_cache = planned.job((0,)).guide_cache
        if guide_cache is not None:
            guide_cache.allowed(guide_cache.guide.start)
            _ = guide_cache.distance
        return plan, planned

    try:
        return await service.compiler.made(key, make, lambda made: weight(made[1]))
    except ThinkingError as error:
        field = "thinking" if asked.thinking == "on" else "thinking_budget"
        raise ApiError(str(error), ("trellm", field)) from None
    except TrellmError as error:
        if stop and type(error) is OptionError:  # of texts that end content and what begins a call
            raise ApiError(f"stop together with tools: {error}", ("stop",), code="invalid_value") from None
        raise of_request(error, ("tools",) if asked.tools else ("trellm", "thinking")) from None


def message_fields(message: Message) -> dict[str, Any]:
    """An answer's message."""
    said: dict[str, Any] = {"role": "assistant", "content": message.content, "refusal": None}
    if message.reasoning is not None:
        said["reasoning_content"] = message.reasoning
    if message.calls:
        said["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    return said


def finish_of(message: Message, result: Generation[Any], cut_at: int | None) -> str:
    """Why an answer ends. Calls are complete, or were cut and are no calls to be made. cut_at: that of the request"""
    if message.calls:
        return "tool_calls" if all(call.complete for call in message.calls) else "length"
    if message.stopped:
        return "stop"
    # Free text that a guide lets end anywhere is complete in its eyes where the budget ended it.
    is_cut = cut_at is not None and len(result.token_ids) >= cut_at
    return "length" if is_cut else REASONS[result.finish_reason]


def delta_fields(delta: Delta) -> dict[str, Any] | None:
    """What a chunk says of a delta; None where there is nothing to say."""
    match delta:
        case ContentDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return {"reasoning_content": text}
        case CallDelta(index, key, name):
            call = {"index": index, "id": key, "type": "function", "function": {"name": name, "arguments": ""}}
            return {"tool_calls": [call]}
        case ArgumentsDelta(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
        case CallEndDelta():
            return None


def readers(plan: Plan | None, choices: int) -> list[Reader]:
    """One for each text; none where all is content."""
    return [] if plan is None else [plan.reader() for _ in range(choices)]
