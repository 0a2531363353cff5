"""A request for texts: from the validated body to the engine's handle, its pieces, and the statistics of the answer."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

from starlette.requests import Request

from ..checks import implements
from ..engine.decode.randomness import fresh_bits
from ..engine.decode.requests import Job
from ..engine.decode.sequence import Request as RowRequest
from ..engine.fields import FieldScorer
from ..engine.generator import Embedder
from ..engine.generator import Generator as TextGenerator
from ..engine.handle import Handle, Piece, Task
from ..engine.models.media.rows import counts_of
from ..engine.models.protocol import SourceModel
from ..engine.options import Options, RunOptions
from ..engine.prompts.arguments import Prompt, is_chat
from ..engine.results import Generation
from ..engine.search import Beam, Greedy, Sample
from ..errors import BudgetError, MediaError, TrellmError
from .bodies import derive
from .constraints.constraint import ConstraintSpec
from .dispatcher import QUICK_TOKENS, CursorBatches
from .errors import ApiError, Names, Place, api_error, constraint_error, request_error
from .hosting.shared import is_large
from .media.reading import RequestMedia
from .requests.chat import ChatRequest, CompletionRequest
from .requests.fields import ExtensionFields
from .service import SHORT, Service
from .telemetry import RequestTrace
from .tool_calls import AnswerPlan, AnswerReader, ContentDelta, Delta, ParsedMessage

T = TypeVar("T")
REASONS = {"complete": "stop", "stop": "stop", "length": "length"}
MAX_ROWS = 1 << 20
_PLAIN = ExtensionFields()
Beginning = Callable[[], Coroutine[Any, Any, "GenerationRequest"]]
"""Validates, resolves and starts a request, see `begin`."""
Prepared = tuple[Task, Sequence[Prompt], AnswerPlan | None]
"""The task for each prompt, the prompts, and the plan that parses answers into thinking, content and calls, or None."""


@dataclass
class GenerationRequest:
    """A validated and resolved request for texts.

    body: the validated body; constraint, options: resolved, except for max_tokens
    place: of the prompts in the request; texts: number admitted until `end`
    task, prompts, plan: see `Prepared`; a prompt is repeated for each of several greedy texts
    scorer: scores the fields of answers, if requested
    media: images and audio of the prompts, held until `end`
    prompt_tokens: of all prompts, each counted once; media_tokens: rows among them by kind; sizes: of each prompt
    arrivals: news of the engine's handle
    prompt_scores: serialized log-probabilities of a chat's prompt, for the whole answer
    key: id of the answer; created: in seconds since 1970
    names: field names of the called API, for errors
    trace: the request's span, if traced; reasons: finish reasons; first_seconds: time to the first piece
    """

    service: Service
    body: ChatRequest | CompletionRequest
    constraint: ConstraintSpec
    options: Options
    place: Place
    texts: int
    key: str
    media: RequestMedia
    task: Task = field(init=False)
    prompts: Sequence[Prompt] = field(init=False)
    plan: AnswerPlan | None = None
    prompt_tokens: int = 0
    media_tokens: Counter[str] = field(default_factory=Counter[str])
    sizes: Sequence[int] = ()
    scorer: FieldScorer | None = None
    arrivals: CursorBatches | None = None
    prompt_scores: bytes = b""
    output_tokens: int = 0
    reasoning_tokens: int = 0
    created: int = field(default_factory=lambda: int(time.time()))
    since: float = field(default_factory=time.perf_counter)
    names: Names = ()
    trace: RequestTrace | None = None
    reasons: list[str] = field(default_factory=list[str])
    first_seconds: float | None = None

    @property
    def copies(self) -> int:
        """Number of runs of each prompt. Greedy texts are no samples, and each needs its own run."""
        return self.body.texts if isinstance(self.options.search, Greedy) else 1

    @property
    def choices(self) -> int:
        """Number of texts in the answer."""
        return len(self.prompts) * self.options.search.n

    @property
    def model_name(self) -> str:
        """Name of the model, or of its adapter."""
        return self.service.name if self.options.adapter is None else self.options.adapter

    @property
    def requests(self) -> Sequence[RowRequest]:
        """The engine's requests."""
        assert self.arrivals is not None
        return self.arrivals.call.requests

    @property
    def usage(self) -> dict[str, Any]:
        """Token counts so far, without EOS."""
        total = self.prompt_tokens + self.output_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": total,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens} | self._media_details,
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        }

    @property
    def _media_details(self) -> dict[str, int]:
        """Number of prompt tokens that are rows of images and audio, for kinds that occur."""
        return {f"{kind}_tokens": self.media_tokens[kind] // self.copies for kind in self.media.counts}

    @property
    def cut_at(self) -> int | None:
        """Number of tokens at which a chat's free text is cut; None with a constraint."""
        return self.requests[0].budget if self.constraint.is_free else None

    @property
    def cached_tokens(self) -> int:
        """Number of prompt tokens that were in the KV cache when the first text of each prompt began."""
        assert self.arrivals is not None
        least: dict[int, int] = {}
        for number, request in enumerate(self.requests):
            found, prompt = self.arrivals.call.reused_tokens.get(number, 0), request.number // self.copies
            least[prompt] = min(found, least.get(prompt, found))
        return min(self.prompt_tokens, sum(least.values()))

    def _with_overruled(self, result: Generation[Any]) -> Generation[Any]:
        """Add stop conditions that occur in a constrained text to its `overruled`, since they did not end it."""
        overruled = ["stop"] if any(each in result.text for each in self.body.stops) else []
        overruled += ["stop_token_ids"] if {*(self.body.stop_token_ids or ())}.intersection(result.token_ids) else []
        return replace(result, overruled=(*result.overruled, *overruled)) if overruled else result

    def failed(self, error: Exception) -> ApiError:
        """Count an error during a stream, and return the error for the client."""
        client_error = api_error(error)
        self.service.metrics.fail(client_error)
        if self.trace is not None:
            self.trace.fail(client_error)
        return client_error.rename_field(self.names)

    def end(self) -> None:
        """Release everything the request holds, however it ended."""
        self.service.release(self.texts)
        self.texts = 0
        self.media.release()
        if self.arrivals is not None:
            metrics = self.service.metrics
            self.service.dispatcher.cancel(self.arrivals)
            metrics.found_tokens.inc(sum(self.arrivals.call.reused_tokens.values()))
            metrics.reasoning_tokens.inc(self.reasoning_tokens)
            metrics.request_seconds.observe(time.perf_counter() - self.since)
            if self.trace is not None:
                self.trace.set_attributes(self._span_attributes(self.arrivals))

    def add_event(self, event: str) -> None:
        """Add an event to the request's trace."""
        if self.trace is not None:
            self.trace.add_event(event)

    def _span_attributes(self, arrivals: CursorBatches) -> dict[str, Any]:
        """Return the attributes of the request's span."""
        search = self.options.search
        return {
            "gen_ai.operation.name": "chat" if isinstance(self.body, ChatRequest) else "text_completion",
            "gen_ai.request.model": self.model_name,
            "gen_ai.request.choice.count": self.choices,
            "gen_ai.request.max_tokens": self.body.budget,
            "gen_ai.request.stream": self.body.is_streamed,
            "gen_ai.request.temperature": search.temperature if isinstance(search, Sample) else 0.0,
            "gen_ai.response.id": self.key,
            "gen_ai.response.finish_reasons": tuple(self.reasons),
            "gen_ai.response.time_to_first_chunk": self.first_seconds,
            "gen_ai.usage.input_tokens": self.prompt_tokens,
            "gen_ai.usage.cache_read.input_tokens": self.cached_tokens,
            "gen_ai.usage.output_tokens": self.output_tokens,
            "gen_ai.usage.reasoning.output_tokens": self.reasoning_tokens,
            "gen_ai.latency.time_in_queue": arrivals.queue_seconds,
            "trellm.constraint": self.constraint.kind,
        }

    def index_of(self, piece: Piece) -> int:
        """Return the index of a piece's text among the choices."""
        return piece.prompt * self.options.search.n + piece.sample

    def reader(self) -> AnswerReader | None:
        """Return a reader of one streamed answer; None if all is content."""
        return None if self.plan is None else self.plan.reader()

    def read(self, result: Generation[Any]) -> ParsedMessage:
        """Return a finished answer as a message."""
        if self.plan is None:
            return message_of(None, result)
        reader = self.plan.read(result.token_ids)
        self.reasoning_tokens += reader.reasoning_tokens
        return reader.message

    def deltas(self, piece: Piece, reader: AnswerReader | None) -> list[Delta]:
        """Return the deltas of a piece, parsed in the model's format; without a format all is content."""
        if reader is None:
            return [ContentDelta(piece.text)] if piece.text else []
        found = reader.feed(piece.token_ids)
        if piece.result is not None:
            found += reader.finish()
            self.reasoning_tokens += reader.reasoning_tokens
        return found

    async def results(self, make: Callable[[int, Generation[Any]], T]) -> list[T]:
        """Return the results of `make` for all texts with their index, in order. Raises ApiError if a text failed."""
        found: dict[int, T] = {}
        async for pieces in self._updates():
            for each in pieces:
                assert each.result is not None
                work = partial(self._build, make, self.index_of(each), each.result)
                is_quick = self._is_quick and len(each.result.token_ids) < QUICK_TOKENS
                loop = asyncio.get_running_loop()
                found[self.index_of(each)] = work() if is_quick else await loop.run_in_executor(None, work)
        return [found[index] for index in sorted(found)]  # beam search may find fewer texts

    def _build(self, make: Callable[[int, Generation[Any]], T], index: int, result: Generation[Any]) -> T:
        """Build the result of a text, with scored fields if requested."""
        return make(index, result if self.scorer is None else self.scorer.scored(result, self.options))

    async def pieces(self) -> AsyncIterator[list[Piece]]:
        """Yield committed pieces of the texts. Raises ApiError if a text failed."""
        last, histogram = self.since, self.service.metrics.first_seconds
        async for pieces in self._updates():
            now = time.perf_counter()
            if self.first_seconds is None:
                self.first_seconds = now - self.since
            histogram.observe(now - last)
            last, histogram = now, self.service.metrics.token_seconds
            yield pieces

    async def enter(self) -> None:
        """Start the texts. Raises ApiError before anything runs."""
        ids: tuple[int, ...] | None = None
        if self._is_short and not self._has_frame_text:
            with self._convert_errors():
                ids = self._ids(self.prompts[0], 0)
            if self._may_enter_at_once(ids):
                self._enter(ids)
                return
        pool = self.service.shared.pool_of(self.prompts)
        entering = asyncio.get_running_loop().run_in_executor(pool, self._enter, ids)
        try:
            await asyncio.shield(entering)
        except asyncio.CancelledError:
            entering.add_done_callback(self._drop)
            raise

    def _drop(self, entering: asyncio.Future[None]) -> None:
        """End a request that was submitted after its client disconnected."""
        if not entering.cancelled() and entering.exception() is None:
            self.end()

    async def _updates(self) -> AsyncIterator[list[Piece]]:
        assert self.arrivals is not None
        metrics = self.service.metrics
        try:
            async for pieces in self.arrivals.pieces(is_quick=self._is_quick):
                for number, each in enumerate(pieces):
                    if each.result is not None:
                        if self.constraint.kind and (self.body.stop or self.body.stop_token_ids):
                            pieces[number] = replace(each, result=self._with_overruled(each.result))
                        self.reasons.append(REASONS[each.result.finish_reason])
                        metrics.finish(self.reasons[-1])
                        metrics.output_tokens.inc(len(each.result.token_ids))
                        self.output_tokens += len(each.result.token_ids)
                yield pieces
        except Exception as error:  # affects only this request
            raise api_error(error) from None

    @property
    def _is_quick(self) -> bool:
        """True if short results are cheap: no quotations, final conditions or score tables."""
        first = self.requests[0]
        is_plain = first.start.guide_cache is None or self.body.trellm == _PLAIN
        return is_plain and not (self.options.logprobs or self.options.prompt_logprobs or first.pools)

    @property
    def _is_short(self) -> bool:
        """True for one prompt that takes less than a millisecond to tokenize."""
        prompt = self.prompts[0]
        if len(self.prompts) > 1:
            return False
        if isinstance(prompt, (str, tuple)):
            return len(prompt) < SHORT
        return not is_large((prompt, self.options.extras), SHORT)

    @property
    def _has_frame_text(self) -> bool:
        """True if a frame's text is tokenized together with the prompt."""
        return isinstance(self.prompts[0], str) and getattr(self.task, "frame", None) not in (None, "auto")

    def _may_enter_at_once(self, ids: tuple[int, ...]) -> bool:
        """Test whether submission cannot block on the constraint, which another thread may hold."""
        task: Any = self.task
        if not isinstance(task, TextGenerator):
            return False
        return cast("TextGenerator[Any]", task).knows(self.prompts[0], ids, self.options)

    def _enter(self, ids: tuple[int, ...] | None) -> None:
        """Tokenize the prompts and submit them, in this or another thread. ids: tokens of the only prompt, if known"""
        service, task = self.service, self.task
        with self._convert_errors():
            jobs, self.sizes = self._jobs(ids)
            pairs = [(task, prompt) for prompt in self.prompts]
            handle = Handle(service.engine, pairs, self.options, jobs=jobs, keeps=False)
        tokens = sum(self.sizes)
        self.prompt_tokens = tokens // self.copies
        service.metrics.prompt_tokens.inc(tokens)
        self.arrivals = service.dispatcher.add(handle.cursor(grows=self.body.is_streamed))

    def _jobs(self, only_ids: tuple[int, ...] | None) -> tuple[list[Job], list[int]]:
        """Return the prompts with tokens and budgets, and their token counts. only_ids: tokens of the only prompt"""
        jobs: list[Job] = []
        sizes: list[int] = []
        for number, prompt in enumerate(self.prompts):
            job = self.task.job(prompt, self.options)
            ids = self._ids(job.prompt, number) if only_ids is None else only_ids
            tokens = job.read(self.service.model, self.options, number, ids)
            sizes.append(len(tokens.ids))
            if self.media.counts:
                self.media_tokens.update(counts_of(tokens.ids))
            budget = None if job.pools else self._budget(sizes[-1], job.needed)
            jobs.append(replace(job, tokens=tokens, max_tokens=budget))
        return jobs, sizes

    def _budget(self, prompt: int, needed: int) -> int | None:
        """Return the budget of a text: as requested, or as the context allows; None if it has no room."""
        model = self.service.model
        if self.body.budget is not None:
            return self.body.budget
        most = max(self.service.settings.output_tokens, needed)
        if model.context is None or implements(model, SourceModel):
            return most
        room = min(most, model.context - prompt)
        return room if room >= max(needed, 1) else None

    def _ids(self, prompt: Prompt, number: int) -> tuple[int, ...]:
        """Return a prompt's tokens, truncated as requested. -1 truncates to what the context allows."""
        is_verbatim, most = not self.body.trellm.special_tokens, self.body.truncate_prompt_tokens
        extras = self.options.extras if is_chat(prompt) else {}  # the template was applied before
        if most is not None and self.media.counts:
            message = "truncate_prompt_tokens might cut an image or audio; leave it out, or send fewer"
            raise ApiError(message, ("truncate_prompt_tokens",))
        if most is None:
            return self.service.ids(prompt, number, extras, self.place, is_verbatim=is_verbatim)
        ids, context = self.service.encode(prompt, number, extras, is_verbatim=is_verbatim), self.service.model.context
        if most == -1 and context is not None:
            budget = 0 if isinstance(self.task, Embedder) else self.body.budget
            most = max(1, context - (self.service.settings.output_tokens if budget is None else budget))
        return ids if most == -1 else ids[-max(most, 1) :]

    @contextmanager
    def _convert_errors(self) -> Generator[None]:
        """Convert errors in the block to the client's terms."""
        try:
            yield
        except MediaError:  # `begin` adds the place
            raise
        except BudgetError as error:
            raise request_error(error, (self.body.budget_field,)) from None
        except TrellmError as error:
            raise request_error(error, self.place if str(error).startswith("prompt ") else ()) from None


def message_of(reader: AnswerReader | None, result: Generation[Any]) -> ParsedMessage:
    """Return the message of a finished answer. reader: its reader, None if all is content"""
    return ParsedMessage(result.text, None, ()) if reader is None else reader.message


async def begin(
    request: Request,
    body: ChatRequest | CompletionRequest,
    prompts: int,
    place: Place,
    prepare: Callable[[GenerationRequest], Awaitable[Prepared]],
) -> GenerationRequest:
    """Validate, resolve and start a request with `prompts` prompts. Raises ApiError before anything runs."""
    service: Service = request.state.service
    if body.texts > service.settings.choices:
        field = "n" if body.texts == (body.n or 1) else "best_of"
        raise ApiError(
            f"{field}={body.texts}: the limit of this server is {service.settings.choices} texts for a prompt",
            (field,),
        )
    if body.priority and not service.settings.priorities:
        message = f"priority={body.priority}: this server runs without --priorities; leave it out"
        raise ApiError(message, ("priority",), code="unsupported_parameter")
    try:
        constraint = await derive(request, body.constraint)
    except TrellmError as error:
        raise constraint_error(error, ("trellm", "include")) from None
    make = partial(_options, service, body, constraint)
    # biases of a whole vocabulary would block the event loop for 0.1 s
    options = make() if body.allowed_token_ids is None else await service.shared.run_slow(make)
    _ = body.budget  # validates it, and may raise ApiError
    kind = "chatcmpl" if isinstance(body, ChatRequest) else "cmpl"
    texts = service.admit(prompts * body.texts, place if prompts > 1 else ("n",))
    key = f"{kind}-{fresh_bits(96):024x}"
    media = RequestMedia(service.shared.media, reads=service.reads)
    generation = GenerationRequest(service, body, constraint, options, place, texts, key, media)
    generation.names, generation.trace = getattr(request.state, "names", ()), getattr(request.state, "trace", None)
    try:
        generation.task, several, generation.plan = await prepare(generation)
        generation.add_event("constraint ready")
        generation.prompts = [prompt for prompt in several for _ in range(generation.copies)]
        if body.trellm.fields:
            generation.task, generation.scorer = _scored_task(generation)
        if generation.plan is not None:  # the plan implements stop strings and goals, which do not apply to calls
            generation.options = replace(options, stop=(), include=())
        await generation.enter()
        generation.add_event("in the engine")
    except BaseException as error:
        generation.end()
        if isinstance(error, MediaError):
            raise media.placed_error(error) from None
        raise
    return generation


def _scored_task(generation: GenerationRequest) -> tuple[Task, FieldScorer]:
    """Return the task and scorer of a request with fields. Raises ApiError."""
    place = ("trellm", "fields")
    if generation.body.is_streamed:
        raise ApiError("trellm.fields are only known at the end of a text; leave out stream", ("stream",))
    task: Any = generation.task
    if generation.plan is not None or not isinstance(task, TextGenerator):
        raise ApiError("trellm.fields together with tools or a model that thinks is not supported", place)
    generator = cast("TextGenerator[Any]", task)
    try:
        return generator.alone, generator.field_scorer(generation.options)
    except TrellmError as error:
        raise request_error(error, place) from None


def _ban_all_but(service: Service, ids: Sequence[int], bias: Mapping[int, float]) -> dict[int, float]:
    """Return biases that ban all but some tokens, as vLLM does. Raises ApiError."""
    service.check_tokens(ids, ("allowed_token_ids",))
    return dict(bias) | dict.fromkeys(set(range(service.model.vocabulary.size)).difference(ids), -math.inf)


def _options(service: Service, body: ChatRequest | CompletionRequest, constraint: ConstraintSpec) -> Options:
    """Return the engine's options of a request. Raises ApiError."""
    options: dict[str, Any] = body.options() | {"include": constraint.goals, "batch_size": MAX_ROWS}
    options |= {"diagnostics": body.trellm.trace, "fields": body.trellm.fields}
    options["adapter"] = body.model if body.model in service.adapters else None
    if body.allowed_token_ids is not None:
        options["logit_bias"] = _ban_all_but(service, body.allowed_token_ids, options.get("logit_bias", {}))
    if body.ignore_eos:
        if constraint.kind:
            raise ApiError("ignore_eos needs free text: a constraint decides where its texts end", ("ignore_eos",))
        options["min_tokens"] = service.settings.output_tokens if body.budget is None else body.budget
    if body.trellm.heal is not None:
        options["heal"] = body.trellm.heal
    if constraint.kind:  # a constraint defines the ends of its texts
        options = {name: value for name, value in options.items() if name not in ("stop", "stop_ids")}
    try:
        search = body.search(body.trellm.beam_search)
        if isinstance(search, Beam) and body.is_streamed and search.n > 1:
            raise ApiError("a beam search has several texts only at its end; leave out stream", ("stream",))
        if isinstance(body, CompletionRequest) and body.returned_texts is not None:
            if isinstance(search, (Beam, Greedy)):
                raise ApiError("best_of needs random sampling; give a temperature above 0", ("best_of",))
            options["logprobs"] = options.get("logprobs") or True
        return Options.of(RunOptions, {**options, "search": search})
    except TrellmError as error:
        raise request_error(error) from None
