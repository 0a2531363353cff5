"""The service: one model with its engine, and what it takes to let a request run on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar, cast

from ..checks import conforms
from ..engine.engine import Engine
from ..engine.generator import Generator as TextGenerator
from ..engine.media.image import Image
from ..engine.models.protocol import Model, SourceModel
from ..engine.prompts.encoding import Extras, ids_of, written
from ..engine.prompts.given import Message, Prompt, held_by, is_chat, prompt_of
from ..engine.prompts.verbatim import Verbatim
from ..errors import OptionError, TrellmError
from .constraints.compiler import ConstraintCompiler, weight
from .constraints.constraint import ConstraintSpec
from .dispatcher import Dispatcher
from .errors import SERVER, ApiError, Place, busy, of_constraint, of_request, too_long
from .kept import KeptResponses
from .media.reading import ImageReader
from .settings import IMAGE_BODY, TEXT_BODY, Settings
from .telemetry import Metrics, Tracing
from .tool_calls import ToolCallFormat
from .trimming import Trimmer

T = TypeVar("T")
ENTERING = 2
SHORT = 2048
"""A prompt of fewer characters is taken to the engine where it is, and a chat written out: that takes less than another
thread."""
LARGE = 1 << 16
"""A prompt of more characters, or an eighth as many values, is made into tokens apart; others do not wait for that."""
MOST_ASIDE = 64
"""So many requests may wait for work that is beside all texts; then 429."""


def is_large(value: Any, most: int) -> bool:
    """Tell whether a value has more than so many characters and bytes of pixels, values counted by eight each."""
    left, size = [value], 0
    while left:
        each = left.pop()
        several = held_by(each) or []
        size += 8 + (len(each) if isinstance(each, str) else each.pixels.nbytes if isinstance(each, Image) else 0)
        if size + 8 * len(several) > most:
            return True
        left += several
    return False


class Service:
    """Made and used on the event loop.

    adapters: names of the model's adapters, which requests name in its place
    texts: how many are on their way, over all requests; is_draining: whether no more are taken
    body_bytes: the most of a request
    """

    def __init__(self, model: Model, settings: Settings, metrics: Metrics, memory: int | None = None) -> None:
        self.model = model
        self.settings = settings
        self.metrics = metrics
        gap = settings.max_gap_ms
        is_plain = memory is None and gap is None
        self.engine = Engine.of(model) if is_plain else Engine(model, memory=memory, max_gap_ms=gap)
        self.engine.start()
        self.adapters: tuple[str, ...] = getattr(model, "adapters", ())
        for name in settings.names:
            if name in self.adapters:
                raise OptionError(f"the adapter {name!r} has a name of the model; give it another one")
        self.dispatcher = Dispatcher(self.engine, metrics)
        self.compiler = ConstraintCompiler(
            settings, metrics, lambda: self.engine.is_busy, lambda: self.dispatcher.writing
        )
        self.form = ToolCallFormat.of(model)
        self.verbatim = Verbatim(model)
        self.created = int(time.time())
        endpoint = settings.otlp_traces_endpoint
        self.tracing = None if endpoint is None else Tracing(endpoint)
        self.images = ImageReader(model, settings)
        self.body_bytes = settings.body_bytes or (IMAGE_BODY if self.images.reads_images else TEXT_BODY)
        self.responses = KeptResponses(settings.response_bytes, self.body_bytes)
        self.texts = 0
        self.is_draining = False
        # One at a time: a body may take a second of the interpreter's, of which all others then have half.
        self.reading = ThreadPoolExecutor(1, "trellm reading")
        self._pool = ThreadPoolExecutor(ENTERING, "trellm entering")
        self._large = ThreadPoolExecutor(ENTERING, "trellm entering large")
        self._aside = ThreadPoolExecutor(1, "trellm aside")
        self._waiting_aside = 0
        self._admitted = 0
        self._trimmer = Trimmer(
            lambda: self._admitted + self.compiler.begun,
            lambda: not (self.texts or self.compiler.is_busy),
            self.compiler.forget,
        )
        tokens = (len(token) for token in model.vocabulary.tokens if token)
        self._longest_token = max(tokens, default=1)

    def close(self) -> None:
        """End all that runs."""
        self._trimmer.close()
        self.compiler.close()
        self.images.close()
        self.dispatcher.close()
        for pool in (self.reading, self._pool, self._large, self._aside):
            pool.shutdown(wait=True, cancel_futures=True)
        self.engine.close()
        if self.tracing is not None:
            self.tracing.close()

    def cut(self) -> None:
        """Let all that is under way end with an error."""
        self.compiler.cut()
        self.dispatcher.cut()

    def check(self, name: str | None) -> None:
        """Raise ApiError where requests are taken no more, and as `check_model` for a name that is given."""
        if self.is_draining:
            raise ApiError(
                "the server is being shut down", status=503, kind=SERVER, code="shutting_down",
                headers={"Retry-After": "5"},
            )  # fmt: skip
        if name is not None:
            self.check_model(name)

    def check_model(self, name: str) -> None:
        """Raise ApiError for a model that there is not."""
        if name not in (*self.settings.names, *self.adapters):
            there = ", ".join(map(repr, (self.settings.name, *self.adapters)))
            said = f"the model {name[:200]!r} does not exist; the server has {there}"
            raise ApiError(said, ("model",), status=404, code="model_not_found")

    def check_tokens(self, ids: Sequence[int], place: Place) -> None:
        """Raise ApiError for numbers, at a place of a request, that are no token ids."""
        size = self.model.vocabulary.size
        strange = next((each for each in ids if not 0 <= each < size), None)
        if strange is not None:
            raise ApiError(f"{strange} is not a token id; they go from 0 to {size - 1}", place)

    def admit(self, texts: int, place: Place) -> int:
        """Take room for the texts of a request until `release`. place: what asks for them. Raises ApiError."""
        if texts > self.settings.texts:
            said = f"{texts:,} sequences exceed the capacity of the server, {self.settings.texts:,}; ask for fewer"
            raise ApiError(said, place)
        if self.texts + texts > self.settings.texts:
            self.metrics.refuse("texts")
            raise busy(f"server at capacity ({self.texts:,} of {self.settings.texts:,} sequences); try again")
        self._admitted += 1
        self.release(-texts)
        return texts

    def release(self, texts: int) -> None:
        """Give room back."""
        self.texts -= texts
        self.metrics.running.set(self.texts)

    @property
    def is_cut(self) -> bool:
        """True where the texts that were on their way have been ended."""
        return self.dispatcher.is_cut

    async def generator(self, constraint: ConstraintSpec) -> TextGenerator[Any]:
        """The generator of texts of a constraint, compiled now or before. Raises ApiError."""
        try:
            return await self.compiler.made(constraint, self._maker(constraint), weight)
        except TrellmError as error:
            if constraint.framed is not None and type(error) is OptionError and str(error).startswith("frame"):
                raise of_request(error) from None
            goals = ("trellm", "include") if constraint.goals else ()
            raise of_constraint(error, constraint.place or goals) from None

    async def chat_ids(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        options: dict[str, Any],
        *,
        is_verbatim: bool,
    ) -> tuple[int, ...]:
        """The tokens of a chat, as its template writes it. options: what that is given besides. Raises ApiError."""
        extras = options | ({"tools": tuple(tools)} if tools else {})
        work = partial(self.ids, messages, 0, extras, ("messages",), is_verbatim=is_verbatim)
        try:
            if not is_large((messages, tools), SHORT):
                return work()
            return await asyncio.get_running_loop().run_in_executor(self.pool_of(messages, tools), work)
        except TrellmError as error:
            raise of_request(error, ("tools",) if str(error).startswith("tools=") else ("messages",)) from None

    async def aside(self, work: Callable[[], T]) -> T:
        """Do work that may take seconds: one after the other, in a thread that nothing else waits for.

        Raises what it raises, and ApiError where much waits.
        """
        if self._waiting_aside >= MOST_ASIDE:
            self.metrics.refuse("aside")
            raise busy(f"tokenizer at capacity ({self._waiting_aside} requests wait); try again")
        self._waiting_aside += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._aside, work)
        finally:
            self._waiting_aside -= 1

    def pool_of(self, *values: Any) -> ThreadPoolExecutor:
        """The threads in which texts and tools are made into tokens."""
        return self._large if is_large(values, LARGE) else self._pool

    def _maker(self, constraint: ConstraintSpec) -> Callable[[], TextGenerator[Any]]:
        return lambda: constraint.generator(self.model, self.settings.limits)

    def ids(self, prompt: Prompt, number: int, extras: Extras, place: Place, *, is_verbatim: bool) -> tuple[int, ...]:
        """The tokens of a prompt. is_verbatim: whether special tokens that messages name are text

        Raises OptionError, and ApiError for one that is certainly too long."""
        context = self.model.source_context if conforms(self.model, SourceModel) else self.model.context
        if context is not None:
            self._check_length(prompt, number, extras, place, context)
        return self.encoded(prompt, number, extras, is_verbatim=is_verbatim)

    def encoded(self, prompt: Prompt, number: int, extras: Extras, *, is_verbatim: bool) -> tuple[int, ...]:
        """The same of a prompt of any length. Raises OptionError."""
        if is_verbatim and is_chat(prompt_of(prompt, "the prompt")):
            return self.verbatim.ids(prompt, number, extras)
        return ids_of(self.model, prompt, number, extras)

    def _check_length(self, prompt: Prompt, number: int, extras: Extras, place: Place, context: int) -> None:
        """Raise ApiError for a prompt that is certainly too long, before it is looked at letter by letter."""
        most = 64 + context * self._longest_token
        if isinstance(prompt, tuple):
            if len(prompt) > context:
                raise too_long(f"prompt {number} has {len(prompt):,} tokens", context, place)
            return
        several = (
            [prompt]
            if isinstance(prompt, str)
            else [str(each["content"]) for each in cast("Sequence[Message]", prompt)]
        )
        size = sum(map(len, several))
        if size > most and not isinstance(prompt, str):  # of which a template may leave something out
            size = len(written(self.model, prompt, number, extras))
        if size > most:
            raise too_long(f"prompt {number} has {size:,} characters", context, place)
