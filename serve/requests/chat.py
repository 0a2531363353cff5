"""Bodies of /v1/chat/completions and /v1/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ...engine.prompts.given import Prompt
from ..bodies import loaded_text
from ..errors import ApiError
from .fields import EchoBase, RequestBase, TextRequest, Tokens

Role = Literal["system", "developer", "user", "assistant", "tool"]


class TextPart(RequestBase):
    """A piece of a message; models read texts here."""

    type: Literal["text"]
    text: str


class CalledFunction(EchoBase):
    """The function of a call, with its arguments as JSON text. parsed_arguments: what openai-python made of that"""

    name: str
    arguments: str
    parsed_arguments: Any = None


class ToolCall(EchoBase):
    """A call that the model made before."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class ProviderFields(RequestBase):
    """LiteLLM's copy of an answer's fields that it has no name for, sent back with the answer."""

    refusal: None = None


class ChatMessage(EchoBase, title="Message"):
    """One turn of a chat."""

    role: Role
    content: str | Annotated[list[TextPart], Field(max_length=4096, fail_fast=True)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=1024, fail_fast=True)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    # What openai-python's answers have besides, without content, and what it read in the content.
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None
    parsed: Any = None
    provider_specific_fields: ProviderFields | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Check the fields that only some roles have."""
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("a message with the role tool has tool_call_id, that of the call that it answers")
        if self.role != "assistant" and self.tool_calls:
            raise ValueError("only messages with the role assistant have tool_calls")
        if self.role != "tool" and self.tool_call_id is not None:
            raise ValueError("only messages with the role tool have tool_call_id")
        if self.content is None and self.role != "assistant":  # whose answer may have been empty, or thinking alone
            raise ValueError("a message has content")
        return self

    def plain(self, place: tuple[str | int, ...]) -> dict[str, Any]:
        """As templates take it: one text, `developer` as `system`, arguments of calls as values. Raises ApiError."""
        role = "system" if self.role == "developer" else self.role
        content = self.content if self.content is not None else self.refusal or ""
        text = content if isinstance(content, str) else "\n".join(part.text for part in content)
        found: dict[str, Any] = {"role": role, "content": text}
        for name in ("name", "tool_call_id", "reasoning_content"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        if self.tool_calls:
            found["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.function.name,
                        "arguments": _arguments(call, (*place, "tool_calls", number, "function", "arguments")),
                    },
                }
                for number, call in enumerate(self.tool_calls)
            ]
        return found


def _arguments(call: ToolCall, place: tuple[str | int, ...]) -> Any:
    """Templates write arguments as JSON themselves. Raises ApiError for what is none."""
    return loaded_text(call.function.arguments or "{}", place)


def _with_parameters(tool: dict[str, Any]) -> dict[str, Any]:
    """Without parameters a function has none: templates look at them, and no field is null for them."""
    inner = tool.get("function", tool)
    said = {name: value for name, value in inner.items() if value is not None}
    said.setdefault("parameters", {"type": "object", "properties": {}})
    return {**tool, "function": said} if "function" in tool else said


class ChatRequest(TextRequest, title="Chat"):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=65536, fail_fast=True)]
    max_completion_tokens: Tokens | None = None
    modalities: Annotated[list[Literal["text"]], Field(min_length=1, max_length=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None

    @field_validator("top_logprobs")
    @classmethod
    def _of_logprobs(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and not info.data.get("logprobs"):
            raise ValueError("top_logprobs are for logprobs: true")
        return value

    def chat(self) -> list[dict[str, Any]]:
        """The messages as a template takes them. Raises ApiError."""
        return [message.plain(("messages", number)) for number, message in enumerate(self.messages)]

    def listed_tools(self) -> list[dict[str, Any]] | None:
        """The tools as a template lists them, of which each has the parameters that it is called with."""
        return None if self.tools is None else [_with_parameters(tool) for tool in self.tools]

    @property
    def budget(self) -> int | None:
        """The most tokens of an answer. Raises ApiError where two fields say different things."""
        given = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(given) > 1:
            raise ApiError("max_tokens and max_completion_tokens differ; give one of them", ("max_tokens",))
        return next(iter(given), None)

    @property
    def budget_field(self) -> str:
        """Which field says that."""
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    @property
    def scores(self) -> int | bool | None:
        """True for the log-probabilities of tokens, a number for the likeliest ones too."""
        return self.top_logprobs or True if self.logprobs else None


Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, fail_fast=True)]


class CompletionRequest(TextRequest, title="Completion"):
    """The body of /v1/completions."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, fail_fast=True)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, fail_fast=True)]
    )
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @property
    def prompts(self) -> list[Prompt]:
        """One or several."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [tuple(self.prompt)]  # type: ignore[arg-type]
        return [each if isinstance(each, str) else tuple(each) for each in self.prompt]  # type: ignore[union-attr]

    @property
    def budget(self) -> int | None:
        """The most tokens of a text; 16 in OpenAI's API where it is not said, here as for chats."""
        return self.max_tokens

    @property
    def budget_field(self) -> str:
        """Which field says that."""
        return "max_tokens"

    @property
    def scores(self) -> int | bool | None:
        """True for the log-probabilities of tokens, a number for the likeliest ones too."""
        return True if self.logprobs == 0 else self.logprobs
