"""The body of Anthropic's /v1/messages, and its translation to a chat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, Tag, model_validator

from ..errors import ApiError, Names, param_of
from .chat import ChatRequest, check_alone, content_of, image_part, translate
from .fields import ConstraintFields, EchoBase, RandomFields, RequestBase, Schema, Tokens, by_type, tag_of

Cached = dict[str, Any] | None
"""A client's cache marker, ignored: prefix reuse is automatic."""
FAILED = "Error"
"""Prefix of a failed call's result."""


class TextBlock(EchoBase):
    """A piece of text."""

    type: Literal["text"] = "text"
    text: str
    cache_control: Cached = None
    citations: None = None


class DataSource(RequestBase, title="ImageData"):
    """An image as base64."""

    type: Literal["base64"]
    media_type: Annotated[str, Field(max_length=100)]
    data: str


class UrlSource(RequestBase, title="ImageAddress"):
    """The address of an image on the web, if the server fetches some."""

    type: Literal["url"]
    url: str


Source = Annotated[
    Annotated[DataSource, Tag(tag_of("base64"))] | Annotated[UrlSource, Tag(tag_of("url"))],
    by_type("base64", "url"),
]


class ImageBlock(EchoBase):
    """An image."""

    type: Literal["image"]
    source: Source
    cache_control: Cached = None

    @property
    def url(self) -> str:
        """The image as a data URL, or its address."""
        source = self.source
        return source.url if isinstance(source, UrlSource) else f"data:{source.media_type};base64,{source.data}"


class ThinkingBlock(EchoBase):
    """Earlier thinking of the model. signature: ignored"""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class ToolUseBlock(EchoBase):
    """An earlier call by the model."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    cache_control: Cached = None


ResultBlock = Annotated[
    Annotated[TextBlock, Tag(tag_of("text"))] | Annotated[ImageBlock, Tag(tag_of("image"))],
    by_type("text", "image"),
]


class ToolResultBlock(EchoBase):
    """The result of a call. is_error: whether the call failed, for which chat templates have no field"""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Annotated[list[ResultBlock], Field(max_length=4096, fail_fast=True)] | None = None
    is_error: bool | None = None
    cache_control: Cached = None

    @property
    def message_content(self) -> str | list[dict[str, Any]]:
        """The text for the model, or message parts if there are images."""
        content = _content(self.content)
        if not self.is_error or not content:
            return FAILED if self.is_error else content
        if isinstance(content, str):
            return f"{FAILED}: {content}"
        return [{"type": "text", "text": f"{FAILED}: "}, *content]


Block = Annotated[
    Annotated[TextBlock, Tag(tag_of("text"))]
    | Annotated[ImageBlock, Tag(tag_of("image"))]
    | Annotated[ThinkingBlock, Tag(tag_of("thinking"))]
    | Annotated[ToolUseBlock, Tag(tag_of("tool_use"))]
    | Annotated[ToolResultBlock, Tag(tag_of("tool_result"))],
    by_type("text", "image", "thinking", "tool_use", "tool_result"),
]


class MessageTurn(RequestBase, title="MessagesTurn"):
    """One turn."""

    role: Literal["user", "assistant"]
    content: str | Annotated[list[Block], Field(max_length=4096, fail_fast=True)]

    def messages(self, place: tuple[str | int, ...]) -> list[dict[str, Any]]:
        """Return the turn as messages of a chat. Results of calls become separate messages. Raises ApiError."""
        blocks = [TextBlock(text=self.content)] if isinstance(self.content, str) else self.content
        misplaced = (ThinkingBlock, ToolUseBlock) if self.role == "user" else (ToolResultBlock, ImageBlock)
        for number, block in enumerate(blocks):
            if isinstance(block, misplaced):
                where = (*place, "content", number)
                raise ApiError(
                    f"{param_of(where)}: a message of the role {self.role} cannot have blocks of type {block.type}",
                    where,
                )
        if self.role == "user":
            results = [
                {"role": "tool", "tool_call_id": each.tool_use_id, "content": each.message_content}
                for each in blocks
                if isinstance(each, ToolResultBlock)
            ]
            rest = [each for each in blocks if isinstance(each, TextBlock | ImageBlock)]
            return [*results, {"role": "user", "content": _content(rest)}] if rest or not results else results
        calls = [each for each in blocks if isinstance(each, ToolUseBlock)]
        texts = [each.text for each in blocks if isinstance(each, TextBlock)]
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
        if thought := "".join(each.thinking for each in blocks if isinstance(each, ThinkingBlock)):
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = [
                {"id": each.id, "function": {"name": each.name, "arguments": json.dumps(each.input)}} for each in calls
            ]
        return [message]


def _content(content: str | Sequence[TextBlock | ImageBlock] | None) -> str | list[dict[str, Any]]:
    """Return one text, or ordered message parts if there are images."""
    if content is None or isinstance(content, str):
        return content or ""
    return content_of([image_part(each.url) if isinstance(each, ImageBlock) else each.text for each in content])


class MessagesTool(RequestBase):
    """A function that the model may call."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: Cached = None


class MessagesToolChoice(RequestBase):
    """The choice of the tools to call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _names_a_tool(self) -> MessagesToolChoice:
        """Check that a named tool has a name."""
        if self.type == "tool" and not self.name:
            raise ValueError("the type tool needs name, the name of the tool")
        return self


class MessagesThinking(RequestBase):
    """The mode and budget of thinking."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Field(ge=0, le=1 << 20)] | None = None
    display: str | None = None


class MessagesFormat(RequestBase):
    """A schema of the answer."""

    type: Literal["json_schema"]
    schema_: Annotated[Schema, Field(alias="schema")]


class OutputConfig(RequestBase):
    """The effort for the answer, and its format."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: MessagesFormat | None = None


class MessagesRequest(RandomFields, ConstraintFields, title="Messages"):
    """The body of /v1/messages; its fields of constraints are those of chats."""

    model: str
    max_tokens: Tokens
    messages: Annotated[list[MessageTurn], Field(min_length=1, max_length=65536, fail_fast=True)]
    system: str | Annotated[list[TextBlock], Field(max_length=4096, fail_fast=True)] | None = None
    stop_sequences: Annotated[list[str], Field(max_length=16, fail_fast=True)] | None = None
    stream: bool | None = None
    tools: Annotated[list[MessagesTool], Field(fail_fast=True)] | None = None
    tool_choice: MessagesToolChoice | None = None
    thinking: MessagesThinking | None = None
    output_config: OutputConfig | None = None
    output_format: MessagesFormat | None = None
    # accepted and ignored
    metadata: dict[str, Any] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    cache_control: Cached = None

    def chat(self) -> ChatRequest:
        """Translate the body to a chat. Raises ApiError."""
        system = [{"role": "system", "content": _content(self.system)}] if self.system else []
        turns = [
            message for number, turn in enumerate(self.messages) for message in turn.messages(("messages", number))
        ]
        fields = self.constraint_fields() | self.sample_options
        fields |= {
            "model": self.model,
            "stream": self.stream,
            "max_tokens": self.max_tokens,
            "messages": [*system, *turns],
            "stop": self.stop_sequences or None,
            "tools": [_chat_tool(each) for each in self.tools or ()] or None,
            "tool_choice": None if self.tool_choice is None else _chat_choice(self.tool_choice),
            "reasoning": self._reasoning(),
        }
        if turns[-1]["role"] == "assistant" and "tool_calls" not in turns[-1]:
            fields["continue_final_message"] = True
        if self.tools and self.tool_choice is not None and self.tool_choice.disable_parallel_tool_use:
            fields["parallel_tool_calls"] = False
        inner = None if self.output_config is None else self.output_config.format
        form = self.output_format or inner
        if form is not None:
            name = "output_config" if self.output_format is None else "output_format"
            if self.output_format is not None:
                check_alone(name, "output_config.format", inner)
            check_alone(name, "response_format", fields.get("response_format"))
            schema = {"name": "answer", "schema": form.schema_}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        return translate(fields, ChatRequest)

    @property
    def names(self) -> Names:
        """Field names for errors. Message numbers may differ from turn numbers, and are dropped."""
        form = "/output_config/format" if self.output_format is None else "/output_format"
        is_ours = self.output_format is None and (self.output_config is None or self.output_config.format is None)
        formats = () if is_ours else (("/response_format/json_schema", form), ("/response_format", form))
        return (
            *formats,
            ("/stop", "/stop_sequences"),
            ("/tools/*/function/parameters", "/tools/*/input_schema"),
            ("/tools/*/function", "/tools/*"),
            ("/tool_choice/function", "/tool_choice"),
            ("/messages/*/", "/messages") if self.system else ("/messages/*/tool_calls/", "/messages"),
            ("/max_completion_tokens", "/max_tokens"),
        )

    def _reasoning(self) -> dict[str, Any] | None:
        effort = None if self.output_config is None else self.output_config.effort
        fields: dict[str, Any] = {} if effort is None else {"effort": effort}
        if self.thinking is not None and self.thinking.type == "disabled":
            fields["enabled"] = False
        elif self.thinking is not None and self.thinking.budget_tokens is not None:
            fields["max_tokens"] = self.thinking.budget_tokens
        return fields or None


def _chat_tool(tool: MessagesTool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    return {"type": "function", "function": function | ({"description": tool.description} if tool.description else {})}


def _chat_choice(choice: MessagesToolChoice) -> Any:
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name or ""}}
    return "required" if choice.type == "any" else choice.type


class CountRequest(MessagesRequest, title="Count"):
    """The body of /v1/messages/count_tokens."""

    max_tokens: Tokens = 1
