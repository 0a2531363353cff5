"""What answers have in common: entering a request's texts, waiting for them, and what they come to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request

from ...engine.decode.randomness import fresh_bits
from ...engine.decode.sequence import SequenceState
from ...engine.generator import Generator
from ...engine.handle import Task
from ...engine.options import Options, RunOptions
from ...engine.prompts.given import Prompt
from ...engine.results import Generation, Scores
from ...engine.search import Beam, Greedy
from ...errors import TrellmError
from ...guides.quoting.source import Span
from ...tokenizers_adapter.text_stream import TextStream
from ..constraints.constraint import Constraint
from ..errors import ApiError, Place, of_any, of_constraint, of_request, param_of
from ..forms import ContentDelta, Delta, Message, Plan, Reader
from ..requests.chat import Chat
from ..requests.completion import Completion
from ..requests.constrained import Ours
from ..service import Service, Ticket, Work
from ..texts.run import Ended, Grown, Run
from .events import DONE, event, while_connected

T = TypeVar("T")
SHORT = 512
"""A text of fewer tokens, without anything of our own about it, is read where it is: another thread costs more."""
_PLAIN = Ours()
REASONS = {"complete": "stop", "stop": "stop", "length": "length"}


@dataclass(frozen=True, slots=True)
class Piece:
    """What has become certain of a text: whole characters, tokens with what is asked of them, at its end the result.

    overlap: how many bytes of the first token lie before the text
    """

    index: int
    text: str
    tokens: Sequence[int] = ()
    scores: Scores | None = None
    result: Generation[Any] | None = None
    overlap: int = 0


@dataclass(frozen=True)
class Prepared:
    """What is to be run.

    plan: how what a model writes is read as thinking, content and calls, None for content
    answer: what knows more of the content, where it is of a constraint and the plan's task is of more than that
    """

    task: Task
    prompts: Sequence[Prompt]
    plan: Plan | None = None
    answer: Generator[Any] | None = None


Prepare = Callable[[Constraint], Awaitable[Prepared]]


@dataclass
class Begun:
    """A request whose texts are on their way.

    choices: how many there are; copies: how often each prompt was entered for them
    key: of the answer; created: when, in seconds since 1970
    is_free: whether nothing was asked of the texts, so that they may end anywhere
    """

    service: Service
    asked: Chat | Completion
    run: Run
    plan: Plan | None
    ticket: Ticket
    choices: int
    prompt_tokens: int
    key: str
    copies: int
    is_free: bool
    answer: Generator[Any] | None = None
    output_tokens: int = 0
    reasoning_tokens: int = 0
    created: int = field(default_factory=lambda: int(time.time()))
    since: float = field(default_factory=time.perf_counter)

    def end(self) -> None:
        """Give back what is held, however it ended."""
        self.ticket.release()
        self.service.relay.cancel(self.run)
        self.service.metrics.found_tokens.inc(sum(self.run.call.found.values()))
        self.service.metrics.reasoning_tokens.inc(self.reasoning_tokens)
        self.service.metrics.request_seconds.observe(time.perf_counter() - self.since)

    @property
    def usage(self) -> dict[str, Any]:
        """How many tokens there were so far, those that end texts not counted."""
        total = self.prompt_tokens + self.output_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": total,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        }

    @property
    def cut_at(self) -> int | None:
        """How many tokens a chat's text has that its budget, or the context, cuts; None where none is cut."""
        return self.run.call.requests[0].budget if self.is_free else None

    @property
    def cached_tokens(self) -> int:
        """How many tokens of the prompts were in memory already."""
        return min(self.prompt_tokens, self.run.found_tokens(self.copies))

    def read(self, result: Generation[Any]) -> Message:
        """A finished answer as messages have it."""
        if self.plan is None:
            return Message(result.text, None, ())
        reader = _reader_of(self.plan, result)
        self.reasoning_tokens += reader.reasoning_tokens
        return reader.message

    async def made(self, make: Callable[[int, Generation[Any]], T]) -> list[T]:
        """What `make` makes of all texts and their numbers, in order. Raises ApiError for what went wrong with one."""
        found: dict[int, T] = {}
        async for news in self.run.updates():
            for each in news:
                if isinstance(each, Ended):
                    found[each.index] = await self.result(each, partial(make, each.index))
        return [found[index] for index in sorted(found)]  # of beams there may be fewer

    async def result(self, ended: Ended, make: Callable[[Generation[Any]], T]) -> T:
        """What `make` makes of what a text came to, in another thread where that may take a while. Raises ApiError."""
        if ended.row is None:
            raise of_any(ended.error or RuntimeError())
        row = ended.row
        result: Generation[Any] | None = None

        def work() -> T:
            nonlocal result
            result = self._result(row)
            return make(result)

        is_plain = row.request.start.guide_cache is None or self.asked.trellm == _PLAIN
        is_scored = bool(self.run.options.logprobs) and not self.run.is_streamed
        if is_plain and not is_scored and len(row.tokens) < SHORT:
            made = work()
        else:  # places of quotations, conditions that are looked at in the end, tables of tokens
            made = await asyncio.get_running_loop().run_in_executor(None, work)
        assert result is not None
        self.service.metrics.finished.labels(REASONS[result.finish_reason]).inc()
        self.service.metrics.output_tokens.inc(len(result.token_ids))
        self.output_tokens += len(result.token_ids)
        return made

    def _result(self, row: SequenceState) -> Generation[Any]:
        """What a finished row comes to, with what the constraint says of its content."""
        result = self.run.result(row)
        if self.answer is None or self.plan is None:
            return result
        message = _reader_of(self.plan, result).message
        if message.calls or message.content is None:
            return result
        return self.answer.said(result, message.content, row)

    def deltas(self, piece: Piece, reader: Reader | None) -> list[Delta]:
        """What a piece adds to a message, as the model's form has it, or all of it content."""
        if reader is None:
            return [ContentDelta(piece.text)] if piece.text else []
        found = reader.feed(piece.tokens)
        if piece.result is not None:
            found += reader.finish()
            self.reasoning_tokens += reader.reasoning_tokens
        return found

    async def pieces(self) -> AsyncIterator[list[Piece]]:
        """What becomes certain of the texts, step by step."""
        streams = [TextStream() for _ in range(self.choices)]
        sent = [0] * self.choices
        last, histogram = self.since, self.service.metrics.first_seconds
        async for news in self.run.updates():
            now = time.perf_counter()
            histogram.observe(now - last)
            last, histogram = now, self.service.metrics.token_seconds
            found: list[Piece] = []
            for each in news:
                if isinstance(each, Grown):
                    text = streams[each.index].push(each.data)
                    sent[each.index] += len(text)
                    found.append(Piece(each.index, text, each.tokens, each.scores, overlap=each.overlap))
                else:
                    result = await self.result(each, _itself)
                    found.append(Piece(each.index, result.text[sent[each.index] :], result=result))
            if found:
                yield found


async def begin(service: Service, asked: Chat | Completion, prompts: int, place: Place, prepare: Prepare) -> Begun:
    """Check a request of some prompts, prepare it, and let it run. Raises ApiError before anything runs."""
    service.check(asked.model)
    is_streamed = asked.is_streamed
    if asked.texts > service.settings.choices:
        raise ApiError(f"n={asked.texts}: up to {service.settings.choices} texts for a prompt", ("n",))
    try:
        constraint = asked.constraint()
    except TrellmError as error:
        raise of_constraint(error, ("trellm", "include")) from None
    options = _options(asked, constraint)
    copies = asked.texts if isinstance(options.search, Greedy) else 1
    budget = asked.budget
    since = time.perf_counter()
    ticket = service.admit(prompts * asked.texts)
    try:
        prepared = await prepare(constraint)
        if prepared.plan is not None:  # which knows what ends content and what it must contain, and that calls do not
            options = replace(options, stop=(), include=())
        work = Work(
            prompts=[prompt for prompt in prepared.prompts for _ in range(copies)],
            options=options,
            budget=budget,
            budget_field=asked.budget_field,
            place=place,
            texts=options.search.n,
            is_streamed=is_streamed,
            is_verbatim=not asked.trellm.special_tokens,
        )
        run = await service.run(prepared.task, work)
    except BaseException:
        ticket.release()
        raise
    kind = "chatcmpl" if isinstance(asked, Chat) else "cmpl"
    choices = len(work.prompts) * options.search.n
    tokens, key = run.prompt_tokens // copies, f"{kind}-{fresh_bits(96):024x}"
    free, answer = constraint.is_free, prepared.answer
    return Begun(service, asked, run, prepared.plan, ticket, choices, tokens, key, copies, free, answer, since=since)


def _reader_of(plan: Plan, result: Generation[Any]) -> Reader:
    """What has read a whole text."""
    reader = plan.reader()
    reader.feed(result.token_ids)
    reader.finish()
    return reader


def _options(asked: Chat | Completion, constraint: Constraint) -> Options:
    """The engine's options of a request. Raises ApiError."""
    said = asked.options() | {"include": constraint.goals, "diagnostics": asked.trellm.trace}
    if asked.trellm.heal is not None:
        said["heal"] = asked.trellm.heal
    if constraint.kind and (asked.stop or asked.stop_token_ids):
        name = "stop" if asked.stop else "stop_token_ids"
        raise ApiError(
            f"{name} together with {param_of(constraint.place)} would cut the output short of what was asked for; say "
            "in the constraint where it ends",
            (name,),
        )
    try:
        search = asked.search(asked.trellm.beam_search)
        if isinstance(search, Beam) and asked.is_streamed and search.n > 1:
            raise ApiError("several texts of a beam search are there at its end only; leave out stream", ("stream",))
        return Options.of(RunOptions, {**said, "search": search})
    except TrellmError as error:
        raise of_request(error) from None


async def whole(
    request: Request, beginning: Callable[[], Awaitable[Begun]], make: Callable[[Begun, int, Generation[Any]], T]
) -> tuple[Begun, list[T]]:
    """A request that is not streamed, from its beginning, and what is made of all its texts, in order.

    Raises ApiError, and ClientDisconnect.
    """

    async def work() -> tuple[Begun, list[T]]:
        begun = await beginning()
        try:
            return begun, await begun.made(partial(make, begun))
        finally:
            begun.end()

    return await while_connected(request, work())


def _itself(result: Generation[Any]) -> Generation[Any]:
    return result


async def to_the_end(begun: Begun, head: dict[str, Any], events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The events of a streamed answer, then its usage if that was asked for; or what went wrong on the way.

    head: what each event has
    """
    try:
        async for data in events:
            yield data
    except Exception as error:  # what went wrong with this request is its own
        said = of_any(error)
        begun.service.metrics.fail(said)
        yield event(said.body)
        return
    yield (event(head | {"choices": [], "usage": begun.usage}) if begun.asked.has_usage else b"") + DONE


def ours(result: Generation[Any]) -> dict[str, Any] | None:
    """What only this server says of a text: places of quotations, what did not hold, and the trace."""
    said: dict[str, Any] = {}
    if isinstance(result.value, Span):
        said["span"] = _span(result.value)
    if result.spans:
        said["spans"] = {name: _span(span) for name, span in result.spans.items()}
    if result.unenforced:
        said["unenforced"] = dict(result.unenforced)
    if result.overruled:
        said["overruled"] = list(result.overruled)
    if result.unmet:
        said["unmet"] = list(result.unmet)
    if result.error is not None:
        said["error"] = str(result.error)
    if result.diagnostics is not None:
        summary = result.diagnostics.summary
        said["trace"] = {
            "steps": result.diagnostics.to_dicts(),
            "forced": summary.forced,
            "logprob": summary.logprob,
            "raw_logprob": summary.raw_logprob,
            "log_feasible_mass": summary.log_feasible_mass,
            "hints": [str(hint) for hint in summary.hints],
        }
    return said or None


def _span(span: Span) -> dict[str, Any]:
    return {
        "text": span.text,
        "start": span.start,
        "end": span.end,
        "document": span.document,
        "occurrences": [[place.document, place.start, place.end] for place in span.occurrences],
    }
