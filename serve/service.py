"""The service: one model with its engine, and what it takes to let a request run on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from ..checks import conforms
from ..engine.decode.requests import Job, requests_of
from ..engine.decode.sequence import Request as RowRequest
from ..engine.engine import Engine
from ..engine.generator import Generator as TextGenerator
from ..engine.handle import Task
from ..engine.models.protocol import Model, SourceModel
from ..engine.options import Options
from ..engine.prompts.encoding import Extras, ids_of, written
from ..engine.prompts.given import Message, Prompt, held_by, is_chat, prompt_of
from ..engine.prompts.verbatim import Verbatim
from ..errors import BudgetError, Cancelled, TrellmError
from .constraints.compiler import Compiler, weight
from .constraints.constraint import Constraint
from .errors import SERVER, ApiError, Place, busy, of_constraint, of_request, too_long
from .forms import Form
from .metrics import Metrics
from .settings import Settings
from .texts.relay import SHUT_DOWN, Relay
from .texts.run import Run
from .trimming import Trimmer

T = TypeVar("T")
ENTERING = 2
SHORT = 2048
"""A prompt of fewer characters is taken to the engine where it is, and a chat written out: that takes less than another
thread."""
LARGE = 1 << 16
"""What has more characters, or an eighth as many values, is made into tokens apart; others do not wait for that."""
MOST_ASIDE = 64
"""So many requests may wait for work that is beside all texts; then 429."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a request comes to.

    options: of the engine but for max_tokens; budget, budget_field: that, and which field says it
    place: of the prompts in the request; texts: for each prompt
    is_verbatim: whether special tokens that messages name are text
    """

    prompts: Sequence[Prompt]
    options: Options
    budget: int | None
    budget_field: str
    place: Place
    texts: int
    is_streamed: bool
    is_verbatim: bool


class Ticket:
    """Room for some texts; given back once."""

    def __init__(self, service: Service, texts: int) -> None:
        self._service = service
        self._texts = texts

    def release(self) -> None:
        """Give the room back."""
        self._service.texts -= self._texts
        self._texts = 0
        self._service.metrics.running.set(self._service.texts)


def is_large(value: Any, most: int) -> bool:
    """Whether a value has more than so many characters and bytes, values within it counted by eight each."""
    left, size = [value], 0
    while left:
        each = left.pop()
        several = held_by(each) or []
        size += 8 + (len(each) if isinstance(each, str) else 0)
        if size + 8 * len(several) > most:
            return True
        left += several
    return False


class Service:
    """Made and used on the event loop.

    texts: how many are on their way, over all requests; is_draining: whether no more are taken
    is_cut: whether those that were on their way have been ended too
    """

    def __init__(self, model: Model, settings: Settings, metrics: Metrics, memory: int | None = None) -> None:
        self.model = model
        self.settings = settings
        self.metrics = metrics
        gap = settings.max_gap_ms
        is_plain = memory is None and gap is None
        self.engine = Engine.of(model) if is_plain else Engine(model, memory=memory, max_gap_ms=gap)
        self.engine.start()
        self.relay = Relay(self.engine, metrics)
        self.compiler = Compiler(settings, metrics, lambda: self.engine.is_busy, lambda: self.relay.writing)
        self.form = Form.of(model)
        self.verbatim = Verbatim(model)
        self.created = int(time.time())
        self.texts = 0
        self.is_draining = self.is_cut = False
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
        self.relay.close()
        for pool in (self.reading, self._pool, self._large, self._aside):
            pool.shutdown(wait=True, cancel_futures=True)
        self.engine.close()

    def cut(self) -> None:
        """Let all that is under way end with an error."""
        self.is_cut = True
        self.compiler.cut()
        self.relay.cut()

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
        if name not in self.settings.names:
            said = f"the model {name[:200]!r} does not exist; there is {self.settings.name!r}"
            raise ApiError(said, ("model",), status=404, code="model_not_found")

    def admit(self, texts: int) -> Ticket:
        """Room for the texts of a request. Raises ApiError where there is none."""
        if texts > self.settings.texts:
            raise ApiError(f"{texts:,} texts, and the server has room for {self.settings.texts:,}", ("n",))
        if self.texts + texts > self.settings.texts:
            self.metrics.refuse("texts")
            raise busy(f"{self.texts:,} texts are on their way, of {self.settings.texts:,} that may be; try again")
        self.texts += texts
        self._admitted += 1
        self.metrics.running.set(self.texts)
        return Ticket(self, texts)

    async def generator(self, constraint: Constraint) -> TextGenerator[Any]:
        """What generates texts of a constraint, compiled now or before. Raises ApiError."""
        try:
            return await self.compiler.made(constraint, self._maker(constraint), weight)
        except TrellmError as error:
            goals = ("trellm", "include") if constraint.goals else ()
            raise of_constraint(error, constraint.place or goals) from None

    async def ids(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, *, is_verbatim: bool
    ) -> tuple[int, ...]:
        """The tokens of a chat, as its template writes it. Raises ApiError."""
        extras: dict[str, tuple[Any, ...]] = {"tools": tuple(tools)} if tools else {}
        asked = messages, 0, extras, ("messages",), is_verbatim
        try:
            if not is_large((messages, tools), SHORT):
                return self._ids(*asked)
            pool = self._pool_of(messages, tools)
            return await asyncio.get_running_loop().run_in_executor(pool, self._ids, *asked)
        except TrellmError as error:
            raise of_request(error, ("tools",) if str(error).startswith("tools=") else ("messages",)) from None

    async def aside(self, work: Callable[[], T]) -> T:
        """What comes of work that may take seconds: one after the other, in a thread that nothing else waits for.

        Raises what it raises, and ApiError where much waits.
        """
        if self._waiting_aside >= MOST_ASIDE:
            self.metrics.refuse("aside")
            raise busy(f"{self._waiting_aside} requests wait to be looked at; try again")
        self._waiting_aside += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._aside, work)
        finally:
            self._waiting_aside -= 1

    async def run(self, task: Task, work: Work) -> Run:
        """Let the texts of a request run. Raises ApiError, before anything runs."""
        if self.is_cut:
            raise of_request(Cancelled(SHUT_DOWN))
        ids: tuple[int, ...] | None = None
        if _is_short(work):
            with _told(work):
                ids = self._ids(work.prompts[0], 0, work.options.extras, work.place, work.is_verbatim)
            if _is_known(task, work, ids):
                return self._enter(task, work, ids)
        pool = self._pool_of(work.prompts)
        entering = asyncio.get_running_loop().run_in_executor(pool, self._enter, task, work, ids)
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError:
            entering.add_done_callback(self._drop)
            raise

    def _pool_of(self, *values: Any) -> ThreadPoolExecutor:
        """The threads in which texts and tools are made into tokens."""
        return self._large if is_large(values, LARGE) else self._pool

    def _maker(self, constraint: Constraint) -> Callable[[], TextGenerator[Any]]:
        return lambda: constraint.generator(self.model, self.settings.limits)

    def _drop(self, entering: asyncio.Future[Run]) -> None:
        """What entered while its client went away."""
        if not entering.cancelled() and entering.exception() is None:
            self.relay.cancel(entering.result())

    def _enter(self, task: Task, work: Work, ids: tuple[int, ...] | None) -> Run:
        """Here or in a thread of its own: prompts to tokens, and these to the engine. ids: those of the only prompt"""
        with _told(work):
            requests, tokens = self._requests(task, work, ids)
            call = self.engine.enter(requests, 1 << 20)
        run = Run(call, task, work.options, work.texts, work.is_streamed, tokens)
        self.metrics.prompt_tokens.inc(tokens)
        self.relay.add(run)
        return run

    def _requests(self, task: Task, work: Work, known: tuple[int, ...] | None) -> tuple[list[RowRequest], int]:
        """What the engine runs, and how many tokens the prompts have. known: those of the only one"""
        found: list[RowRequest] = []
        total = 0
        for number, prompt in enumerate(work.prompts):
            ids = (
                self._ids(prompt, number, work.options.extras, work.place, work.is_verbatim) if known is None else known
            )
            total += len(ids)
            job = task.job(ids if is_chat(prompt_of(prompt, "the prompt")) else prompt, work.options.include)
            needed = 0 if job.guide_cache is None else job.guide_cache.distance
            options = work.options.within(self._budget(work, len(ids), needed))
            made = requests_of(self.model, [Job(job.prompt, job.guide_cache, ids)], options)
            found += [replace(each, number=number) for each in made] if number else made
        return found, total

    def _budget(self, work: Work, prompt: int, needed: int) -> int | None:
        """The most tokens of a text: what was asked for, or what there is room for. None where there is none."""
        if work.budget is not None:
            return work.budget
        most = max(self.settings.output_tokens, needed)
        if self.model.context is None or conforms(self.model, SourceModel):
            return most
        room = min(most, self.model.context - prompt)
        return room if room >= max(needed, 1) else None

    def _ids(self, prompt: Prompt, number: int, extras: Extras, place: Place, is_verbatim: bool) -> tuple[int, ...]:
        """The tokens of a prompt. Raises OptionError, and ApiError for one that is certainly too long."""
        context = self.model.source_context if conforms(self.model, SourceModel) else self.model.context
        if context is not None:
            self._check_length(prompt, number, extras, place, context)
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


@contextmanager
def _told(work: Work) -> Generator[None]:
    """What is wrong with a request, as its client is told."""
    try:
        yield
    except BudgetError as error:
        raise of_request(error, (work.budget_field,)) from None
    except TrellmError as error:
        raise of_request(error, work.place if str(error).startswith("prompt ") else ()) from None


def _is_short(work: Work) -> bool:
    """Whether a prompt is made tokens of in less than a millisecond: there is one, and little of it."""
    prompt = work.prompts[0]
    if len(work.prompts) > 1:
        return False
    if isinstance(prompt, (str, tuple)):
        return len(prompt) < SHORT
    return not is_large((prompt, work.options.extras), SHORT)


def _is_known(task: Task, work: Work, ids: tuple[int, ...]) -> bool:
    """Whether it enters the engine as quickly: nothing is asked of a constraint, which another thread may be at."""
    if work.options.include or not isinstance(task, TextGenerator):
        return False
    return task.knows(ids, heal=work.options.heal and isinstance(work.prompts[0], str))
