"""The service of one loaded model: engine, admission, tokenization and constraints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from ..checks import implements
from ..engine.engine import Engine
from ..engine.generator import Generator as TextGenerator
from ..engine.models.media.encoder import kinds_read
from ..engine.models.protocol import Model, SourceModel
from ..engine.prompts import describe
from ..engine.prompts.arguments import Message, Prompt, is_chat
from ..engine.prompts.description import with_description
from ..engine.prompts.encoding import ChatEncoder, Extras, ids_of, written
from ..errors import Cancelled, MediaError, OptionError, TrellmError
from .constraints.compiler import ConstraintCompiler, weight
from .constraints.constraint import ConstraintSpec
from .dispatcher import CLOSED, Dispatcher
from .errors import ApiError, Place, api_error, constraint_error, request_error, too_long
from .hosting.shared import SharedState, is_large
from .settings import MEDIA_BODY, TEXT_BODY
from .telemetry import ModelMetrics
from .tool_calls import ToolCallFormat
from .trimming import MemoryTrimmer

SHORT = 2048
"""Most characters of a chat that is tokenized on the event loop, where it takes less time than a change of threads."""


class Service:
    """The service of a model, used on the event loop. `close` may run in a thread when no sequence runs any more.

    name: name for clients; adapters: names of the model's adapters, which requests use as model names
    memory: bytes of the KV cache; kept_bytes: bound in bytes of cached constraints
    on_idle: called when the last sequence has ended
    texts: number of unfinished sequences; body_bytes: size limit of a body
    keep_alive: idle seconds after which the model is to be unloaded, from a client's request; None for unset
    """

    def __init__(
        self,
        name: str,
        model: Model,
        shared: SharedState,
        metrics: ModelMetrics,
        *,
        memory: int | None = None,
        kept_bytes: int,
        on_idle: Callable[[], None],
    ) -> None:
        self.name = name
        self.model = model
        self.shared = shared
        self.metrics = metrics
        settings = self.settings = replace(shared.settings, kept_bytes=kept_bytes)
        gap = settings.max_gap_ms
        is_plain = memory is None and gap is None
        self.engine = Engine.of(model) if is_plain else Engine(model, memory=memory, max_gap_ms=gap)
        self.engine.start()
        self.adapters: tuple[str, ...] = getattr(model, "adapters", ())
        self.dispatcher = Dispatcher(self.engine, metrics)
        self.compiler = ConstraintCompiler(
            settings, metrics, lambda: self.engine.is_busy, lambda: self.dispatcher.writing
        )
        self.tool_format = ToolCallFormat.of(model)
        self.verbatim = ChatEncoder(model)
        self.reads = kinds_read(model)
        self.body_bytes = settings.body_bytes or (MEDIA_BODY if self.reads else TEXT_BODY)
        self.texts = 0
        self.keep_alive: float | None = None
        self._on_idle = on_idle
        self._admitted = 0
        self._trimmer = MemoryTrimmer(
            lambda: self._admitted + self.compiler.started,
            lambda: not (self.texts or self.compiler.is_busy),
            self.compiler.forget,
        )
        tokens = (len(token) for token in model.vocabulary.tokens if token)
        self._longest_token = max(tokens, default=1)

    async def stop_trimmer(self) -> None:
        """Stop the trimmer. Call this on the event loop before `close`."""
        await self._trimmer.close()

    def close(self) -> None:
        """Close compiler, dispatcher and engine."""
        self.compiler.close()
        self.dispatcher.close()
        self.engine.close()

    def cut(self) -> None:
        """End all requests with an error."""
        self.compiler.cut()
        self.dispatcher.cut()

    def check_tokens(self, ids: Sequence[int], place: Place) -> None:
        """Raise ApiError for token ids outside the vocabulary. place: of the ids in the request"""
        size = self.model.vocabulary.size
        invalid = next((each for each in ids if not 0 <= each < size), None)
        if invalid is not None:
            raise ApiError(f"{invalid} is not a token id; ids are 0 to {size - 1}", place)

    def admit(self, texts: int, place: Place) -> int:
        """Reserve capacity for a number of sequences until `release`, and return the number. Raises ApiError.

        place: the field that requests them
        """
        if self.engine.is_closed:
            raise api_error(Cancelled(CLOSED))
        self.shared.check_room(texts, place)
        self._admitted += 1
        self.release(-texts)
        return texts

    def release(self, texts: int) -> None:
        """Release the capacity of a number of sequences."""
        self.texts -= texts
        self.shared.texts -= texts
        self.metrics.running.set(self.texts)
        if not self.texts:
            self._on_idle()

    def measure(self) -> None:
        """Update the gauges of the metrics."""
        engine = self.engine
        self.metrics.waiting.set(self.dispatcher.waiting)
        self.metrics.hold(held=engine.held_bytes, kept=engine.kept_bytes, room=engine.memory_bytes)

    async def generator(self, constraint: ConstraintSpec) -> TextGenerator[Any]:
        """Return the generator of a constraint from the cache, or compile it. Raises ApiError."""
        try:
            make = partial(constraint.generator, self.model, self.settings.limits)
            return await self.compiler.compile(constraint, make, weight)
        except TrellmError as error:
            if constraint.framed is not None and type(error) is OptionError and str(error).startswith("frame"):
                raise request_error(error) from None
            goals = ("trellm", "include") if constraint.goals else ()
            raise constraint_error(error, constraint.place or goals) from None

    async def chat_ids(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        options: dict[str, Any],
        *,
        is_verbatim: bool,
    ) -> tuple[int, ...]:
        """Return the token ids of a chat by its template. options: further template arguments

        is_verbatim: as for `ids`. Raises ApiError, and MediaError for content that the model does not read.
        """
        extras = options | ({"tools": tuple(tools)} if tools else {})
        work = partial(self.ids, messages, 0, extras, ("messages",), is_verbatim=is_verbatim)
        try:
            if not is_large((messages, tools), SHORT):
                return work()
            return await asyncio.get_running_loop().run_in_executor(self.shared.pool_of(messages, tools), work)
        except MediaError:  # the caller adds the place
            raise
        except TrellmError as error:
            raise request_error(error, ("tools",) if str(error).startswith("tools=") else ("messages",)) from None

    async def describe(self, constraint: ConstraintSpec, prompts: list[Any], place: Place) -> list[Any]:
        """Return prompts with the constraint's description appended. place: of the prompts. Raises ApiError."""

        def make() -> list[Prompt]:
            try:
                description = describe(constraint.content)
            except TrellmError as error:
                raise constraint_error(error, constraint.place) from None
            try:
                return [with_description(prompt, description) for prompt in prompts]
            except TrellmError as error:
                raise request_error(error, place) from None

        return await asyncio.get_running_loop().run_in_executor(self.shared.reading, make)

    def ids(self, prompt: Prompt, number: int, extras: Extras, place: Place, *, is_verbatim: bool) -> tuple[int, ...]:
        """Return the token ids of a prompt. number: its index, for messages; extras: template arguments

        is_verbatim: True to encode names of special tokens in messages as ordinary text
        Raises OptionError, and ApiError for a prompt that must exceed the context.
        """
        context = self.model.source_context if implements(self.model, SourceModel) else self.model.context
        if context is not None:
            self._check_length(prompt, number, extras, place, context)
        return self.encode(prompt, number, extras, is_verbatim=is_verbatim)

    def encode(self, prompt: Prompt, number: int, extras: Extras, *, is_verbatim: bool) -> tuple[int, ...]:
        """Return `ids` without a length check. Raises OptionError."""
        if is_verbatim and is_chat(prompt):
            return self.verbatim.ids(prompt, number, extras)
        return ids_of(self.model, prompt, number, extras)

    def _check_length(self, prompt: Prompt, number: int, extras: Extras, place: Place, context: int) -> None:
        """Raise ApiError, before tokenization, for a prompt that must exceed the context."""
        most = 64 + context * self._longest_token
        if isinstance(prompt, tuple):
            if len(prompt) > context:
                raise too_long(f"prompt {number} has {len(prompt):,} tokens", context, place)
            return
        texts = (
            [prompt]
            if isinstance(prompt, str)
            else [str(each["content"]) for each in cast("Sequence[Message]", prompt)]
        )
        size = sum(map(len, texts))
        if size > most and not isinstance(prompt, str):  # a template may omit parts
            size = len(written(self.model, prompt, number, extras))
        if size > most:
            raise too_long(f"prompt {number} has {size:,} characters", context, place)
