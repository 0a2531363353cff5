"""Bodies of /v1/chat/completions and /v1/completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, Tag, ValidationError, ValidationInfo, field_validator, model_validator

from ...engine.prompts.arguments import Prompt
from ..bodies import parse_json_text, refusal
from ..errors import ApiError, Names, Place
from .fields import MAX_TOKENS, EchoBase, Ids, RequestBase, TextRequest, Tokens, by_type, tag_of

R = TypeVar("R", bound=RequestBase)
Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class TextPart(RequestBase):
    """A text in a message."""

    type: Literal["text"]
    text: str


Detail = Literal["auto", "low", "high", "original"]
"""Image resolution of other servers, ignored: models read each image as trained."""


class ImageUrl(RequestBase):
    """A data URL of an image, or its address on the web, if the server fetches some."""

    url: str
    detail: Detail | None = None


class ImagePart(RequestBase):
    """An image in a message of a user or a tool."""

    type: Literal["image_url"]
    image_url: str | ImageUrl

    def plain(self, place: Place) -> dict[str, Any]:
        """Return the part for templates, with an unread image. place: of this part"""
        is_short = isinstance(self.image_url, str)
        url = self.image_url if isinstance(self.image_url, str) else self.image_url.url
        return MediaSource("image", url, (*place, "image_url", *([] if is_short else ["url"]))).part


class AudioUrl(RequestBase):
    """A data URL of audio, or its address on the web, if the server fetches some."""

    url: str


class AudioUrlPart(RequestBase, title="AudioUrlPart"):
    """Audio in a message of a user or a tool, in vLLM's format."""

    type: Literal["audio_url"]
    audio_url: AudioUrl

    def plain(self, place: Place) -> dict[str, Any]:
        """Return the part as `ImagePart.plain` does."""
        return MediaSource("audio", self.audio_url.url, (*place, "audio_url", "url")).part


class AudioData(RequestBase):
    """A file of audio as base64. Its first bytes, not `format`, determine the format."""

    data: str
    format: Annotated[str, Field(max_length=20)] | None = None


class AudioPart(EchoBase, title="InputAudio"):
    """Audio in a message of a user or a tool."""

    type: Literal["input_audio"]
    input_audio: AudioData

    def plain(self, place: Place) -> dict[str, Any]:
        """Return the part as `ImagePart.plain` does."""
        return MediaSource("audio", f"data:;base64,{self.input_audio.data}", (*place, "input_audio", "data")).part


@dataclass(frozen=True)
class MediaSource:
    """An image or audio named by a request: its URL, and the URL's place."""

    kind: Literal["image", "audio"]
    url: str = field(repr=False)
    place: Place

    @property
    def part(self) -> dict[str, Any]:
        """The message part with this unread source."""
        return {"type": self.kind, self.kind: self}


Part = Annotated[
    Annotated[TextPart, Tag(tag_of("text"))]
    | Annotated[ImagePart, Tag(tag_of("image_url"))]
    | Annotated[AudioPart, Tag(tag_of("input_audio"))]
    | Annotated[AudioUrlPart, Tag(tag_of("audio_url"))],
    by_type("text", "image_url", "input_audio", "audio_url"),
]


def content_of(parts: Sequence[str | dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return the content of a message: joined text, or ordered parts if there are images or audio."""
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) == len(parts):
        return "\n".join(texts)
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]


def image_part(url: str) -> dict[str, Any]:
    """Return an image as a message part."""
    return {"type": "image_url", "image_url": {"url": url}}


class CalledFunction(EchoBase):
    """The function of a call, with its arguments as JSON text. parsed_arguments: added by openai-python, ignored"""

    name: str
    arguments: str
    parsed_arguments: Any = None


class MessageToolCall(EchoBase, title="ToolCall"):
    """An earlier call by the model."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class LegacyCall(EchoBase, title="FunctionCall"):
    """A call in the form that tools replaced."""

    name: str
    arguments: str


class ProviderFields(RequestBase):
    """LiteLLM's copy of unknown answer fields, sent back with the answer."""

    refusal: None = None


class ChatMessage(EchoBase, title="Message"):
    """One turn of a chat."""

    role: Role
    content: str | Annotated[list[Part], Field(max_length=4096, fail_fast=True)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[MessageToolCall], Field(max_length=1024, fail_fast=True)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    # fields of openai-python's answers that are sent back
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: None = None
    function_call: LegacyCall | None = None
    parsed: Any = None
    provider_specific_fields: ProviderFields | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Check the fields that only some roles have."""
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("a message with the role tool needs tool_call_id, the id of the call that it answers")
        if self.role != "assistant" and self.tool_calls:
            raise ValueError("only messages with the role assistant can have tool_calls")
        if self.role != "tool" and self.tool_call_id is not None:
            raise ValueError("only messages with the role tool can have tool_call_id")
        if self.role == "function" and self.name is None:
            raise ValueError("a message with the role function needs name, the name of the function that returned it")
        if self.role != "assistant" and self.function_call is not None:
            raise ValueError("only messages with the role assistant can have function_call")
        if self.role not in ("user", "tool") and self._has_media:
            raise ValueError("images and audio need the role user or tool")
        if self.content is None and self.role != "assistant":  # an answer may be empty, or thinking only
            raise ValueError("a message needs content")
        return self

    @property
    def _has_media(self) -> bool:
        return isinstance(self.content, list) and not all(isinstance(part, TextPart) for part in self.content)

    def _content(self, place: tuple[str | int, ...]) -> str | list[dict[str, Any]]:
        """Return joined text, or ordered parts if there are images or audio."""
        content = self.content if self.content is not None else self.refusal or ""
        if isinstance(content, str):
            return content
        return content_of(
            [
                part.text if isinstance(part, TextPart) else part.plain((*place, "content", number))
                for number, part in enumerate(content)
            ]
        )

    def plain(self, place: tuple[str | int, ...]) -> dict[str, Any]:
        """Return the message for templates: `developer` as `system`, arguments of calls as values. Raises ApiError."""
        role = {"developer": "system", "function": "tool"}.get(self.role, self.role)
        message: dict[str, Any] = {"role": role, "content": self._content(place)}
        for name in ("name", "tool_call_id", "reasoning_content"):
            if getattr(self, name) is not None:
                message[name] = getattr(self, name)
        if self.role == "function":  # it answers the last call of its name
            message["tool_call_id"] = self.name
        if self.tool_calls:
            message["tool_calls"] = [
                _plain_call(call.id, call.function, (*place, "tool_calls", number, "function", "arguments"))
                for number, call in enumerate(self.tool_calls)
            ]
        elif self.function_call is not None:
            legacy = self.function_call
            message["tool_calls"] = [_plain_call(legacy.name, legacy, (*place, "function_call", "arguments"))]
        return message


def check_alone(name: str, other: str, value: Any) -> None:
    """Raise ApiError if another field also requests a format. value: of the other field"""
    if value is not None:
        raise ApiError(f"{name} and {other} exclude each other: an answer has one format", (name,))


def translate(fields: dict[str, Any], shape: type[R]) -> R:
    """Build our request from fields of another API, without those that are None. Raises ApiError."""
    present = {name: value for name, value in fields.items() if value is not None}
    try:
        return shape.model_validate(present)
    except ValidationError as error:
        raise refusal(error, present, shape) from None


def _plain_call(key: str, function: CalledFunction | LegacyCall, place: tuple[str | int, ...]) -> dict[str, Any]:
    """Return a call for templates, which serialize arguments themselves. Raises ApiError for invalid JSON."""
    arguments = parse_json_text(function.arguments or "{}", place)
    return {"id": key, "type": "function", "function": {"name": function.name, "arguments": arguments}}


def _with_parameters(tool: dict[str, Any]) -> dict[str, Any]:
    """Add empty parameters to a function without any, and drop null fields, which templates do not expect."""
    inner = tool.get("function", tool)
    function = {name: value for name, value in inner.items() if value is not None}
    function.setdefault("parameters", {"type": "object", "properties": {}})
    return {**tool, "function": function} if "function" in tool else function


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
BUDGETS = {"minimal": 256, "low": 1024, "medium": 4096, "high": 16384, "xhigh": 32768, "max": 32768}
"""Bounds of thinking tokens by effort, for templates that do not support effort."""
Thinking = Literal["auto", "on", "off"]


class NamedFunction(RequestBase):
    """The function to call."""

    name: str


class Reasoning(RequestBase):
    """The amount of thinking. exclude, summary: how to report it; it is always reported in full"""

    effort: Effort | None = None
    max_tokens: Annotated[int, Field(ge=0, le=1 << 20)] | None = None
    enabled: bool | None = None
    exclude: Literal[False] | None = None
    summary: str | None = None
    generate_summary: str | None = None


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
    functions: Annotated[list[dict[str, Any]], Field(min_length=1, fail_fast=True)] | None = None
    function_call: Literal["none", "auto"] | NamedFunction | None = None
    reasoning_effort: Effort | None = None
    reasoning: Reasoning | None = None
    chat_template_kwargs: Annotated[dict[str, Any], Field(max_length=64)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    @model_validator(mode="after")
    def _check_conflicts(self) -> Self:
        """Check fields that contradict each other."""
        if self.functions is not None and self.tools is not None:
            raise ValueError("functions are the older form of tools; leave functions out")
        if self.function_call is not None and (self.functions is None or self.tool_choice is not None):
            raise ValueError("function_call needs functions; with tools use tool_choice")
        if self.continue_final_message:
            if self.messages[-1].role != "assistant":
                raise ValueError("continue_final_message needs a last message with the role assistant")
            if self.add_generation_prompt:
                raise ValueError(
                    "continue_final_message and add_generation_prompt exclude each other: one continues a message, one "
                    "begins a new one"
                )
        elif self.add_generation_prompt is False:
            raise ValueError(
                "add_generation_prompt: false needs continue_final_message: true; otherwise the answer is a new message"
            )
        return self

    @property
    def names(self) -> Names:
        """Field names for errors: functions are tools in an older form."""
        functions = (("/tools/*/function", "/functions/*"), ("/tool_choice/function", "/function_call"))
        return functions if self.is_legacy else ()

    @property
    def is_legacy(self) -> bool:
        """True if the request has functions rather than tools."""
        return self.functions is not None

    @property
    def chosen_tools(self) -> tuple[list[dict[str, Any]] | None, str | dict[str, Any] | None, bool | None]:
        """The tools, the choice of tools, and whether several may be called at once."""
        if self.functions is None:
            return self.tools, self.tool_choice, self.parallel_tool_calls
        tools = [{"type": "function", "function": each} for each in self.functions]
        call = self.function_call
        choice = {"type": "function", "function": {"name": call.name}} if isinstance(call, NamedFunction) else call
        return tools, choice, False

    @property
    def effort(self) -> str | None:
        """The requested amount of thinking. Raises ApiError if two fields differ."""
        efforts = {self.reasoning_effort, None if self.reasoning is None else self.reasoning.effort} - {None}
        if len(efforts) > 1:
            raise ApiError("reasoning_effort and reasoning.effort differ; give one of them", ("reasoning_effort",))
        return next(iter(efforts), None)

    @property
    def template_options(self) -> dict[str, Any]:
        """Template variables besides messages and tools. Raises ApiError."""
        options: dict[str, Any] = {} if self.effort in (None, "none") else {"reasoning_effort": self.effort}
        if self.continue_final_message:
            options["continue_final_message"] = True
        return options | (self.chat_template_kwargs or {})

    def options(self) -> dict[str, Any]:
        """Return the engine's options except for the search, by name."""
        return super().options() | {"chat_template_kwargs": self.template_options}

    @property
    def thinking_options(self) -> tuple[Thinking, int | None]:
        """The thinking mode, and the bound of its tokens, if requested. Raises ApiError."""
        ours, reasoning, effort = self.trellm, self.reasoning, self.effort
        thinking, budget = ours.thinking, ours.thinking_budget
        if thinking == "auto" and (effort == "none" or (reasoning is not None and reasoning.enabled is False)):
            thinking = "off"
        if budget is None and thinking != "off":
            budget = None if reasoning is None else reasoning.max_tokens
            budget = BUDGETS.get(effort or "") if budget is None else budget
        return thinking, budget

    @field_validator("top_logprobs")
    @classmethod
    def _of_logprobs(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and not info.data.get("logprobs"):
            raise ValueError("top_logprobs needs logprobs: true")
        return value

    def chat(self) -> list[dict[str, Any]]:
        """Return the messages for templates. Raises ApiError."""
        return [message.plain(("messages", number)) for number, message in enumerate(self.messages)]

    def listed_tools(self) -> list[dict[str, Any]] | None:
        """Return the tools for templates, each with parameters."""
        tools = self.chosen_tools[0]
        return None if tools is None else [_with_parameters(tool) for tool in tools]

    @property
    def budget(self) -> int | None:
        """The requested budget of an answer. Raises ApiError if two fields differ."""
        budgets = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(budgets) > 1:
            raise ApiError("max_tokens and max_completion_tokens differ; give one of them", ("max_tokens",))
        return next(iter(budgets), None)

    @property
    def budget_field(self) -> str:
        """The field of the budget."""
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    @property
    def scores(self) -> int | bool | None:
        """True for log-probabilities of tokens, a number for top log-probabilities too."""
        return self.top_logprobs or True if self.logprobs else None


class CompletionRequest(TextRequest, title="Completion"):
    """The body of /v1/completions."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, fail_fast=True)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, fail_fast=True)]
    )
    max_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    echo: bool | None = None
    best_of: Annotated[int, Field(ge=1, le=1 << 16)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @model_validator(mode="after")
    def _check_echo_and_best_of(self) -> Self:
        """Check echo and best_of."""
        if self.has_echoed_scores and self.stream:
            raise ValueError("echo with logprobs cannot be streamed; leave out stream")
        if self.best_of is not None and self.best_of < super().texts:
            raise ValueError("best_of, the number of texts to choose n from, must be at least n")
        if self.best_of is not None and self.best_of > super().texts and self.stream:
            raise ValueError(
                "best_of cannot be streamed, because it chooses when all texts have ended; leave out stream"
            )
        return self

    @property
    def texts(self) -> int:
        """Number of texts generated for a prompt, of which the best n are returned."""
        return self.best_of or super().texts

    @property
    def returned_texts(self) -> int | None:
        """Number of texts returned for a prompt, the most probable ones; None for all."""
        return super().texts if self.texts > super().texts else None

    @property
    def has_echoed_scores(self) -> bool:
        """True if a text's log-probabilities include those of its echoed prompt."""
        return bool(self.echo) and self.logprobs is not None

    @property
    def prompt_scores(self) -> int | bool | None:
        """Requested log-probabilities of the prompt, the larger number of both fields."""
        numbers = {self.prompt_logprobs, self.logprobs if self.echo else None} - {None}
        return max(filter(None, numbers), default=True) if numbers else None

    @property
    def prompts(self) -> list[Prompt]:
        """One or several prompts."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [tuple(self.prompt)]  # type: ignore[arg-type]
        return [each if isinstance(each, str) else tuple(each) for each in self.prompt]  # type: ignore[union-attr]

    @property
    def budget(self) -> int | None:
        """The requested budget of a text; without one as for chats, unlike OpenAI's 16. Raises ApiError."""
        if self.max_tokens == 0 and self.prompt_scores is None:
            message = "max_tokens=0 needs prompt_logprobs, or echo with logprobs; otherwise ask for 1 or more"
            raise ApiError(message, ("max_tokens",))
        return self.max_tokens

    @property
    def budget_field(self) -> str:
        """The field of the budget."""
        return "max_tokens"

    @property
    def scores(self) -> int | bool | None:
        """True for log-probabilities of tokens, a number for top log-probabilities too."""
        return True if self.logprobs == 0 else self.logprobs
