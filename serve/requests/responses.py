"""The body of /v1/responses, and its translation to a chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, Tag, TypeAdapter

from ..bodies import check_finite
from ..errors import ApiError, Names
from .chat import AudioPart, ChatRequest, CompletionRequest, Detail, Reasoning, content_of, image_part, translate
from .fields import (
    CommonFields,
    EchoBase,
    ExtensionFields,
    RequestBase,
    Schema,
    StructuredOutputs,
    Tokens,
    by_type,
    tag_of,
)


class InputPart(EchoBase, title="TextInput"):
    """A text in a message. annotations, logprobs: of an answer that is sent back; parsed: added by clients"""

    type: Literal["input_text", "output_text"]
    text: str
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    logprobs: Annotated[list[Any], Field(max_length=0)] | None = None
    parsed: Any = None


class InputImage(EchoBase):
    """An image: a data URL, or its address on the web, if the server fetches some."""

    type: Literal["input_image"]
    image_url: str
    detail: Detail | None = None
    file_id: None = None


Content = Annotated[
    Annotated[InputPart, Tag(tag_of("input_text"))]
    | Annotated[InputPart, Tag(tag_of("output_text"))]
    | Annotated[InputImage, Tag(tag_of("input_image"))]
    | Annotated[AudioPart, Tag(tag_of("input_audio"))],
    by_type("input_text", "output_text", "input_image", "input_audio"),
]


class MessageItem(EchoBase):
    """One turn."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[Content], Field(max_length=4096, fail_fast=True)]
    id: str | None = None
    status: str | None = None
    phase: None = None


class CallItem(EchoBase):
    """An earlier call by the model. parsed_arguments: added by openai-python, ignored"""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    parsed_arguments: Any = None
    id: str | None = None
    status: str | None = None


class OutputItem(RequestBase):
    """The result of a call."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | Annotated[list[Content], Field(max_length=4096, fail_fast=True)]
    id: str | None = None
    status: str | None = None


class ReasoningPart(EchoBase, title="Thought"):
    """A piece of thinking."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(EchoBase):
    """Earlier thinking of the model. The server itself writes no summaries."""

    type: Literal["reasoning"]
    summary: Annotated[list[ReasoningPart], Field(max_length=4096, fail_fast=True)] | None = None
    content: Annotated[list[ReasoningPart], Field(max_length=4096, fail_fast=True)] | None = None
    encrypted_content: None = None
    id: str | None = None
    status: str | None = None


Item = Annotated[
    Annotated[MessageItem, Tag(tag_of("message"))]
    | Annotated[CallItem, Tag(tag_of("function_call"))]
    | Annotated[OutputItem, Tag(tag_of("function_call_output"))]
    | Annotated[ReasoningItem, Tag(tag_of("reasoning"))],
    by_type("message", "function_call", "function_call_output", "reasoning", usual="message"),
]


_ITEMS: TypeAdapter[list[Item]] = TypeAdapter(list[Item])
_UNREAD_FIELDS = {"id", "status", "parsed_arguments", "phase"}
_READ_FIELDS = {"type", "text", "image_url", "input_audio"}


def _input_item(item: Item) -> dict[str, Any]:
    """Return an item without the fields that a model does not read."""
    fields = item.model_dump(exclude_none=True, exclude=_UNREAD_FIELDS)
    for name in ("content", "output"):
        if isinstance(fields.get(name), list):
            fields[name] = [{key: part[key] for key in part.keys() & _READ_FIELDS} for part in fields[name]]
    return fields


class ResponseTextFormat(RequestBase, title="Format"):
    """The format of the text."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema_: Annotated[Schema | None, Field(alias="schema")] = None
    strict: bool | None = None
    description: str | None = None


class ResponseText(RequestBase, title="Text"):
    """Options of the text."""

    format: ResponseTextFormat | None = None


class FunctionTool(RequestBase):
    """A function that the model may call."""

    type: Literal["function"]
    name: str
    parameters: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class Obfuscation(RequestBase):
    """The option to pad events, which is not supported."""

    include_obfuscation: Literal[False] | None = None


class ResponsesRequest(CommonFields, title="Responses"):
    """The body of /v1/responses."""

    SAME: ClassVar = {
        **{name: name for name in (*CommonFields.model_fields, "tool_choice", "regex")},
        "max_completion_tokens": "max_output_tokens",
    }
    ELSEWHERE: ClassVar = {
        name: "only /v1/chat/completions and /v1/completions have it"
        if name in CompletionRequest.model_fields
        else "only /v1/chat/completions has it"
        for name in ChatRequest.model_fields
    }
    """Reasons why fields of chats are refused here."""

    input: str | Annotated[list[Item], Field(min_length=1, max_length=65536, fail_fast=True)]
    previous_response_id: Annotated[str, Field(max_length=256)] | None = None
    instructions: str | None = None
    max_output_tokens: Tokens | None = None
    stream_options: Obfuscation | None = None
    text: ResponseText | None = None
    tools: Annotated[list[FunctionTool], Field(fail_fast=True)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["disabled"] | None = None
    background: Literal[False] | None = None
    include: Annotated[list[Any], Field(max_length=0)] | None = None
    structured_outputs: StructuredOutputs | None = None
    regex: str | None = None
    trellm: ExtensionFields | None = None

    @property
    def names(self) -> Names:
        """Field names for errors. Message numbers may differ from item numbers, and are dropped."""
        return (
            *super().names,
            ("/tools/*/function", "/tools/*"),
            ("/response_format/json_schema", "/text/format"),
            ("/response_format", "/text/format"),
            ("/messages/", "/input"),
            ("/max_tokens", "/max_output_tokens"),
        )

    def chat(self, before: Sequence[Any] = ()) -> ChatRequest:
        """Translate the body to a chat. before: items of the continued conversation. Raises ApiError."""
        echoed = self.model_dump(by_alias=True, include={"tools", "text"}, exclude_none=True)
        check_finite(echoed, ())
        fields = self.same() | {
            "messages": self._messages(_ITEMS.validate_python(before)),
            "response_format": self._format(),
            "tools": None if self.tools is None else [_chat_tool(tool) for tool in self.tools],
        }
        if self.tools:  # chats refuse it without tools, but responses always send it
            fields["parallel_tool_calls"] = self.parallel_tool_calls
        for name in ("structured_outputs", "reasoning", "trellm"):
            field = getattr(self, name)
            fields[name] = None if field is None else field.model_dump(by_alias=True, exclude_none=True)
        return translate(fields, ChatRequest)

    def conversation(self, output: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return input and output as input items, without fields that a model does not read."""
        return [_input_item(item) for item in [*self._items(), *_ITEMS.validate_python(output)]]

    def _items(self) -> list[Item]:
        return [MessageItem(role="user", content=self.input)] if isinstance(self.input, str) else self.input

    def _messages(self, before: list[Item]) -> list[dict[str, Any]]:
        first = [] if self.instructions is None else [{"role": "system", "content": self.instructions}]
        messages: list[dict[str, Any]] = []
        for item in [*before, *self._items()]:
            if isinstance(item, OutputItem):
                messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _content(item.output)})
            elif isinstance(item, MessageItem) and item.role != "assistant":
                messages.append({"role": item.role, "content": _content(item.content)})
            else:
                _add_answer(messages, item)
        return [*first, *messages]

    def _format(self) -> dict[str, Any] | None:
        form = None if self.text is None else self.text.format
        if form is None:
            return None
        if form.type != "json_schema" and (form.schema_ is not None or form.name is not None):
            name = "schema" if form.schema_ is not None else "name"
            raise ApiError(f"text.format.{name} needs the type json_schema", ("text", "format", name))
        if form.type == "text":
            return None
        if form.type == "json_object":
            return {"type": "json_object"}
        if form.schema_ is None or form.name is None:
            raise ApiError(
                "a format of type json_schema needs name and schema", ("text", "format"), code="invalid_value"
            )
        return {"type": "json_schema", "json_schema": {"name": form.name, "schema": form.schema_}}


def _content(content: str | list[InputPart | InputImage | AudioPart]) -> str | list[dict[str, Any]]:
    """Return joined text, or ordered parts if there are images or audio."""
    if isinstance(content, str):
        return content
    parts: list[str | dict[str, Any]] = []
    for part in content:
        if isinstance(part, InputImage):
            parts.append(image_part(part.image_url))
        else:
            parts.append(part.model_dump(exclude_none=True) if isinstance(part, AudioPart) else part.text)
    return content_of(parts)


def _add_answer(messages: list[dict[str, Any]], item: MessageItem | CallItem | ReasoningItem) -> None:
    """Add an item of the model to the messages. Thinking, text and calls in this order form one turn."""
    last = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
    is_open = last is not None and not last["content"] and "tool_calls" not in last
    if isinstance(item, CallItem):
        call = {"id": item.call_id, "type": "function", "function": {"name": item.name, "arguments": item.arguments}}
        if last is None:
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        else:
            last.setdefault("tool_calls", []).append(call)
    elif isinstance(item, MessageItem):
        if last is not None and is_open:
            last["content"] = _content(item.content)
        else:
            messages.append({"role": "assistant", "content": _content(item.content)})
    elif item.content or item.summary:
        thought = "\n".join(part.text for part in item.content or item.summary or ())
        if last is not None and is_open and "reasoning_content" in last:
            last["reasoning_content"] = "\n".join((last["reasoning_content"], thought))
        else:
            messages.append({"role": "assistant", "content": "", "reasoning_content": thought})


def _chat_tool(tool: FunctionTool) -> dict[str, Any]:
    """Return a tool in the format of chats, which templates support."""
    return {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}
