"""Functions that a model calls: the model asks for a call, reads its result, and in the end answers."""

from __future__ import annotations

import inspect
import json as json_module
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack, cast

from .checks import brief, check_int, items_of
from .engine.generator import Generator
from .engine.models.protocol import Model, check_model
from .engine.options import Options, StreamOptions
from .engine.prompts.arguments import Message, check_prompt, extras_of, is_chat
from .engine.prompts.encoding import ChatEncoder
from .engine.structures import structure_of
from .errors import OptionError
from .guides.limits import Limits
from .serve.tool_calls import (
    TAIL,
    AnswerPlan,
    Delta,
    ParsedCall,
    ParsedMessage,
    Tool,
    ToolCallFormat,
    choice_of,
    tools_of,
)

__all__ = ["ToolAnswer", "ToolCall", "run"]

ROUNDS = 8
IN_WORDS = "You may call these functions. To call one, answer with JSON alone: "
ANSWER = "So answer in a sentence."
EXAMPLE = '{"name": "...", "arguments": {...}}'


@dataclass(frozen=True)
class ToolCall:
    """A call that the model made.

    name, arguments: as the model wrote them
    value: the function's result, or the instance of a class
    error: the message that the model got instead of a result
    id: links the result to the call
    """

    name: str
    arguments: dict[str, Any]
    id: str
    value: Any = None
    error: str | None = None

    def is_like(self, others: Sequence[ToolCall]) -> bool:
        """Test whether the same call was made before."""
        return any(each.name == self.name and each.arguments == self.arguments for each in others)


@dataclass(frozen=True)
class ToolAnswer:
    """The end of a conversation.

    text: the answer; messages: the whole chat, with calls, results and the answer; calls: in order
    rounds: number of answers of the model; thought: its thinking before the answer, None for none
    """

    text: str
    messages: list[dict[str, Any]]
    calls: tuple[ToolCall, ...]
    rounds: int
    thought: str | None = None

    def __str__(self) -> str:
        return self.text


def run(
    model: Model,
    messages: str | Sequence[Message],
    functions: Sequence[Callable[..., Any]],
    *,
    rounds: int = ROUNDS,
    choice: str = "auto",
    parallel: bool = True,
    thinking: int | None = None,
    told: Callable[[Delta], Any] | None = None,
    limits: Limits | None = None,
    **options: Unpack[StreamOptions],
) -> ToolAnswer:
    """Answer a chat with functions: the model writes calls with valid arguments, and reads their results.

    messages: a chat, or the text of a user
    functions: with annotated arguments, and a docstring as their description; or pydantic models, whose instance is the
        value of a call. pydantic converts the arguments
    rounds: the most rounds with calls; then the model answers once more, without functions
    choice: "auto"; "required" for a call in the first round; "none"; or the name of the function to call first
    parallel: whether an answer may have several calls
    thinking: the most tokens of thinking before each answer, for a model that thinks; 0 for none
    told: is called with the pieces as they come, see docs/tools.md: `ContentDelta`, `ReasoningDelta`, `CallDelta` and
        so on
    options: of each answer, such as max_tokens, search and seed
    Exceptions of functions, and errors of pydantic, are sent to the model and are the `error` of the call;
    KeyboardInterrupt and the like pass through. If the model only repeats earlier calls, it must answer next. Functions
    run in this process, one after the other: pass none that can do harm.
    Raises OptionError, SchemaError, LimitError.
    """
    check_model(model, "tools.run", functions)
    check_int(rounds, "rounds", 1, 1000)
    Options.of(StreamOptions, dict(options))
    prompt: Any = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    chat = check_prompt(prompt, "the prompt")
    if not is_chat(chat):
        raise OptionError(f"tools.run expects a chat or a text, not {brief(messages)}")
    turns = [dict(each) for each in cast("Sequence[Message]", chat)]
    conversation = _Conversation(model, turns, _read(functions), limits)
    calls: list[ToolCall] = []
    now = choice
    for number in range(rounds + 1):
        message = conversation.ask(now, dict(options), told, thinking=thinking, parallel=parallel)
        new_calls = [conversation.called(each) for each in message.calls if each.complete]
        conversation.add(message, new_calls)
        repeats = bool(new_calls) and all(each.is_like(calls) for each in new_calls)
        calls += new_calls
        if not new_calls:
            return ToolAnswer(message.content or "", conversation.messages, tuple(calls), number + 1, message.reasoning)
        # The model already knows the results of repeated calls, so it must answer in words.
        now = "none" if repeats or number + 1 == rounds else "auto"
    raise AssertionError("the last round has no functions")


@dataclass(frozen=True)
class _Function:
    """A function: its entry for chat templates, and a callable that parses arguments and calls it."""

    name: str
    listed: dict[str, Any]
    call: Callable[[str], Any]


def _read(functions: Any) -> dict[str, _Function]:
    """Return functions by name. Raises OptionError."""
    several = items_of(functions)
    if several is None or not all(map(callable, several)):
        raise OptionError(f"functions={brief(functions)}: expected a list of functions or pydantic models")
    found = [_function(each) for each in several]
    by_name = {each.name: each for each in found}
    if len(by_name) < len(found):
        names = [each.name for each in found]
        twice = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"functions: duplicate name {twice!r}; give each function a name of its own")
    return by_name


def _function(function: Any) -> _Function:
    name = str(getattr(function, "__name__", type(function).__name__))
    if inspect.iscoroutinefunction(function):
        raise OptionError(f"{name} is asynchronous; give a function that waits for it, such as with asyncio.run")
    structure = structure_of(function)
    listed: dict[str, Any] = {"name": name, "parameters": structure.schema}
    if described := inspect.getdoc(function):
        listed["description"] = described.partition("\n\n")[0].replace("\n", " ")

    def call(arguments: str) -> Any:
        value: Any = structure.convert(arguments)
        return value if inspect.isclass(function) else function(**value)

    return _Function(name, {"type": "function", "function": listed}, call)


@dataclass
class _Conversation:
    """A chat that grows by answers, calls and results."""

    model: Model
    messages: list[dict[str, Any]]
    functions: dict[str, _Function]
    limits: Limits | None
    _form: ToolCallFormat = field(init=False)
    _tools: tuple[Tool, ...] = field(init=False)
    _plans: dict[Any, tuple[AnswerPlan, Generator[Any]]] = field(default_factory=dict[Any, Any])

    def __post_init__(self) -> None:
        self._form = ToolCallFormat.of(self.model)
        self._tools = tools_of([each.listed for each in self.functions.values()])

    def ask(
        self,
        choice: str,
        options: dict[str, Any],
        told: Callable[[Delta], Any] | None,
        *,
        thinking: int | None,
        parallel: bool,
    ) -> ParsedMessage:
        """Generate the next message, and return it parsed; `told` gets its pieces."""
        ids = self._ids(choice)
        named = {"type": "function", "function": {"name": choice}} if choice in self.functions else choice
        tail = ids[-TAIL:] if self._form.thinks else ()
        key = choice, tail
        if key not in self._plans:
            plan = self._form.plan(
                self._tools,
                choice_of(named, self._tools),
                parallel=parallel,
                thinking="off" if thinking == 0 else "auto",
                budget=thinking or None,
                prompt=tail,
                limits=self.limits,
            )
            self._plans[key] = plan, Generator(self.model, plan.guide, limits=self.limits)
        plan, generator = self._plans[key]
        reader = plan.reader()
        for piece in generator.stream([(*ids, *plan.opening)], **options):
            for delta in reader.feed(piece.token_ids):
                if told is not None:
                    told(delta)
        for delta in reader.finish():
            if told is not None:
                told(delta)
        return reader.message

    def called(self, call: ParsedCall) -> ToolCall:
        """Run a call. Return it with its value, or with its error."""
        arguments = call.values
        try:
            value = self.functions[call.name].call(call.arguments or "{}")
        except Exception as error:  # an error of the user's function; the model may correct the call
            return ToolCall(call.name, arguments, call.id, error=f"{type(error).__name__}: {error}")
        return ToolCall(call.name, arguments, call.id, value)

    def add(self, message: ParsedMessage, new_calls: list[ToolCall]) -> None:
        """Append an answer and the results of its calls to the messages."""
        entry: dict[str, Any] = {"role": "assistant", "content": message.content or ""}
        if message.reasoning is not None:
            entry["reasoning_content"] = message.reasoning
        if new_calls:
            entry["tool_calls"] = [
                {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
                for each in new_calls
            ]
        self.messages.append(entry)
        for each in new_calls:
            content = _written(each.value) if each.error is None else each.error
            self.messages.append({"role": "tool", "tool_call_id": each.id, "name": each.name, "content": content})

    def _ids(self, choice: str) -> tuple[int, ...]:
        """Return the tokens of the messages and functions.

        If the template does not support functions, a system message describes them, unless `choice` is "none".
        """
        verbatim, listed = ChatEncoder(self.model), [each.listed for each in self.functions.values()]
        if not listed:
            return verbatim.ids(self.messages, 0, {})
        try:
            return verbatim.ids(self.messages, 0, {"tools": extras_of(listed, "tools")})
        except OptionError as error:
            if not str(error).startswith("tools="):
                raise
        if choice == "none":
            return verbatim.ids(_as_reports(self.messages), 0, {})
        text = IN_WORDS + EXAMPLE + "\n" + "\n".join(json_module.dumps(each["function"]) for each in listed)
        return verbatim.ids([{"role": "system", "content": text}, *map(_plain, self.messages)], 0, {})


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message for a template that supports neither calls nor results."""
    if message["role"] == "tool":
        return {"role": "user", "content": f"Result of {message['name']}: {message['content']}"}
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    written = "\n".join(json_module.dumps(each["function"]) for each in calls)
    return {"role": message["role"], "content": "\n".join(filter(None, (message["content"], written)))}


def _as_reports(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages for such a template and an answer in words: the user reports the calls and their results."""
    found: list[dict[str, Any]] = []
    calls: dict[str, str] = {}
    for message in messages:
        for each in message.get("tool_calls") or ():
            arguments = ", ".join(f"{name}={value!r}" for name, value in each["function"]["arguments"].items())
            calls[each["id"]] = f"{each['function']['name']}({arguments})"
        if message["role"] == "tool":
            called = calls.get(message["tool_call_id"], message["name"])
            found.append({"role": "user", "content": f"{called} is {message['content']}."})
        elif message["content"]:
            found.append({"role": message["role"], "content": message["content"]})
    if found and any(each["role"] == "tool" for each in messages[-1:]):
        found[-1]["content"] += " " + ANSWER
    return found


def _written(value: Any) -> str:
    """Return a result as text for the model."""
    if isinstance(value, str):
        return value
    dump: Any = getattr(value, "model_dump_json", None)
    return str(dump()) if callable(dump) else json_module.dumps(value, ensure_ascii=False, default=str)
