"""Handles: a caller's access to prompts that an engine runs."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Protocol

from ..errors import Cancelled, OptionError
from ..tokenizers_adapter.text_stream import TextStream
from .decode.randomness import row_key
from .decode.requests import Job, requests_of
from .decode.sequence import CommittedPrefix, Request, SequenceState
from .diagnostics import Diagnostics
from .models.protocol import Model
from .options import Options
from .prompts.arguments import Prompt
from .results import Generation, Scores, keeping
from .schedule.call import Call, RequestOutput
from .search import Beam, Target

MAX_TEXTS = 1 << 20


class Task(Protocol):
    """A source of jobs and results, such as a Generator."""

    @property
    def model(self) -> Model:
        """The model, the same for all tasks of a batch."""
        ...

    @property
    def text_prefix(self) -> bytes:
        """The beginning of a free text that is not part of the output."""
        ...

    def job(self, prompt: Prompt, options: Options) -> Job:
        """Return the prompt with its constraint, and the required content of the options."""
        ...

    def result(self, sequence: SequenceState, options: Options) -> Generation[Any]:
        """Return the result of a finished sequence."""
        ...


class RequestRunner(Protocol):
    """The interface of `Engine` that handles use. `Engine` documents the methods."""

    @property
    def model(self) -> Model:
        """The model of all requests."""
        ...

    def enter(self, requests: Sequence[Request], limit: int) -> Call:
        """Submit requests."""
        ...

    def retry(self, call: Call, request: Request) -> None:
        """Add a request to a call."""
        ...

    def cancel(self, call: Call) -> None:
        """Cancel a call."""
        ...

    def wait(self, call: Call, *, every_step: bool = False) -> None:
        """Run steps until there may be an outcome."""
        ...

    def committed_prefixes(self, call: Call) -> dict[int, CommittedPrefix]:
        """Return the committed prefixes of running texts."""
        ...


Pairs = Sequence[tuple[Task, Prompt]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Newly committed text.

    prompt, sample: number of the prompt, and of its sample
    text: whole characters that follow the pieces before
    result: in the last piece of a text, whose `text` may be empty, its result; `finish_reason` says why it ended
    scores: with `logprobs=`, scores of the newly committed tokens as in `Generation`. All pieces together have those of
        the result. Beam search gives them in the last piece. None without `logprobs=`
    token_ids: the newly committed tokens; beam search gives them in the last piece
    overlap: number of bytes of the first token that belong to the healed prompt; 0 after the first piece
    """

    prompt: int
    text: str
    result: Generation[Any] | None = None
    scores: Scores | None = None
    sample: int = 0
    token_ids: Sequence[int] = ()
    overlap: int = 0


News = tuple[int, CommittedPrefix | RequestOutput]
"""The number of a request, with its outcome or newly committed text."""


class Handle:
    """Prompts being processed. A thread that waits for results runs the engine's steps, unless the engine has its own
    thread.

    `result()` returns the same as the generator's `run`; `await handle` the same in asyncio. `finished()` yields texts
    as they finish, `pieces()` also committed parts of unfinished ones. Each of them yields everything, whatever others
    read. A handle is cancelled when nothing refers to it, and when its waiting task in asyncio is cancelled. One handle
    is not thread-safe; several handles are.

    call: the engine's call
    """

    def __init__(
        self,
        engine: RequestRunner,
        pairs: Pairs,
        options: Options,
        *,
        is_single: bool = False,
        jobs: Sequence[Job] | None = None,
        keeps: bool = True,
    ) -> None:
        """Raises OptionError and BudgetError for invalid input.

        jobs: jobs of the pairs, if the caller has made them; keeps: keep results after delivery, for other readers
        """
        self.engine = engine
        self.pairs = pairs
        self.options = options
        self._keeps_results = keeps
        self._is_single = is_single
        self._samples = options.search.n
        self._attempts: dict[tuple[int, int], int] = {}
        self._results: list[list[Generation[Any] | None]] = [[None] * self._samples for _ in pairs]
        self._ended: list[Piece] = []  # finished texts that some cursor may not have read
        if any(task.model is not engine.model for task, _ in pairs):
            raise OptionError("the generators of one batch must share one model object, that of the engine")
        if self._samples * len(pairs) > MAX_TEXTS:
            raise OptionError(
                f"n={self._samples:,} texts for each of {len(pairs):,} prompts: the limit of one call is "
                f"{MAX_TEXTS:,} texts; ask for fewer, or make several calls"
            )
        if jobs is None:
            jobs = [task.job(prompt, options) for task, prompt in pairs]
        self.call = engine.enter(requests_of(engine.model, jobs, options), options.batch_size)
        weakref.finalize(self, _cancel_unfinished, engine, self.call).atexit = False

    @property
    def done(self) -> bool:
        """True if no more results will come."""
        return self.call.done

    def cancel(self) -> None:
        """Cancel the prompts. Does nothing once all is finished."""
        _cancel_unfinished(self.engine, self.call)

    def result(self) -> Any:
        """Return a `Generation`; a list for a list of prompts, and for each prompt if `search.n > 1`.

        Raises the error of a text, with the results so far as its `finished`; Interrupted, which has them too, for
        Ctrl-C;
        Cancelled for a cancelled handle.
        """
        with keeping(self.saved):
            for _ in self.finished():
                pass
        results = self.results()
        return results[0] if self._is_single else results

    def finished(self) -> Iterator[Piece]:
        """Yield texts as they finish, in any order, each in one piece with its result.

        Raises the error of a text, and cancels the others.
        """
        try:
            yield from chain.from_iterable(self.cursor(grows=False))
        finally:
            if not self.call.done:
                self.cancel()

    def pieces(self) -> Iterator[Piece]:
        """Yield pieces of each text as they are committed, step by step, and at its end the result."""
        return chain.from_iterable(self.cursor(grows=True))

    def cursor(self, *, grows: bool) -> Cursor:
        """Return an independent reader of all texts. Raises OptionError if they have no pieces.

        grows: also yield pieces of unfinished texts
        """
        return Cursor(self, self._take, self._ended, keeps=self._keeps_results, grows=grows)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._in_thread(self.result).__await__()

    async def stream(self) -> AsyncIterator[Piece]:
        """Yield `pieces` in asyncio without blocking the event loop."""
        pieces = self.pieces()
        while (piece := await self._in_thread(next, pieces, None)) is not None:
            yield piece

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a blocking function in another thread. Cancel the handle with the task, since the thread cannot be
        stopped."""
        try:
            return await asyncio.to_thread(function, *arguments)
        except asyncio.CancelledError:
            self.cancel()
            raise

    def results(self) -> list[Any]:
        """Return the results so far, for each prompt; None for unfinished ones."""
        if self.options.diagnostics and self._samples > 1:
            for prompt in range(len(self._results)):
                self._compare(prompt)
        return [results[0] if self._samples == 1 else results for results in self._results]

    def saved(self) -> list[Any]:
        """Return all finished results, also unread ones, by prompt as in `Interrupted`."""
        with suppress(KeyboardInterrupt):  # a second Ctrl-C: keep what is stored so far
            for number, outcome in self.call.take():
                self._enter(number, outcome)
        shaped = zip(self._results, self.results(), strict=True)
        return [None if all(result is None for result in results) else entry for results, entry in shaped]

    def _take(self, number: int, outcome: RequestOutput) -> None:
        """Store the outcome of a request. Raises its error."""
        if outcome.error is not None:
            self.cancel()
            raise outcome.error
        self._enter(number, outcome)

    def _enter(self, number: int, outcome: RequestOutput) -> None:
        """Store the results of a request, except for texts that are drawn again."""
        request = self.call.requests[number]
        for sequence in outcome.sequences:
            prompt, sample = sequence.request.number, sequence.request.sample
            result = self.pairs[prompt][0].result(sequence, self.options)
            attempt = self._attempts.get((prompt, sample), 0)
            if result.error is not None and attempt < self.options.retries:
                self._attempts[prompt, sample] = attempt + 1
                self.engine.retry(self.call, replace(request, key=row_key(request.key, attempt + 1)))
                continue
            results = self._results[prompt]
            del results[sequence.siblings or self._samples :]
            is_new = results[sample] is None
            if self._keeps_results:
                results[sample] = result
            if is_new:
                self._ended.append(Piece(prompt, result.text, result, sample=sample))

    def _compare(self, prompt: int) -> None:
        """Add the common bias to the diagnostics of a prompt's samples, once all are finished."""
        several = [result for result in self._results[prompt] if result is not None]
        known = [result.diagnostics for result in several if result.diagnostics is not None]
        if len(known) == self._samples > 1:
            compared = zip(several, Diagnostics.together(known), strict=True)
            self._results[prompt][:] = [replace(result, diagnostics=one) for result, one in compared]


class Cursor:
    """One reader's position in a handle's texts.

    `news` collects between two steps of the engine, `read` builds pieces later, perhaps in another thread. Iteration
    does both, and yields lists of simultaneous pieces.
    take: stores an outcome, and appends texts that it finishes to `ended`; keeps: `ended` keeps them for other readers
    grows: see `Handle.cursor`
    """

    def __init__(
        self,
        handle: Handle,
        take: Callable[[int, RequestOutput], None],
        ended: list[Piece],
        *,
        keeps: bool,
        grows: bool,
    ) -> None:
        options = handle.options
        if grows and isinstance(options.search, (Beam, Target)) and options.search.n != 1:
            raise OptionError(f"search={options.search!r}: a stream has one text for each prompt; use n=1")
        if grows and options.retries:
            raise OptionError(f"retries={options.retries}: a stream cannot retract its text; use result() instead")
        if grows and any(request.pools for request in handle.call.requests):
            raise OptionError("an embedding cannot be streamed; call the generator, or its run()")
        self.handle = handle
        self.grows = grows
        self._take, self._ended, self._keeps_results = take, ended, keeps
        self._collected: dict[int, int] = {}
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._delivered = 0

    def __iter__(self) -> Iterator[list[Piece]]:
        """Yield pieces after each step, or with each finished text. Raises the error of a text, and Cancelled."""
        handle = self.handle
        while True:
            found = self.read(self.news())
            is_over = handle.done
            yield found
            if is_over:
                break
            if not handle.done:  # another reader may have finished it meanwhile
                handle.engine.wait(handle.call, every_step=self.grows)
        self.check_all()

    def news(self) -> Iterator[News]:
        """Yield news since the last call, between two steps. Outcomes are taken from the call."""
        handle = self.handle
        if self.grows and handle.call.groups:
            for number, prefix in handle.engine.committed_prefixes(handle.call).items():
                begin = self._collected.get(number)
                if begin is None:
                    begin = self._prefix_length(number, prefix.text)
                if begin is not None and len(prefix.text) > begin:
                    self._collected[number] = len(prefix.text)
                    yield number, prefix._replace(text=prefix.text[begin:])
        yield from handle.call.take()

    def read(self, news: Iterable[News]) -> list[Piece]:
        """Return the pieces of collected news. Raises the error of a text."""
        handle = self.handle
        found: list[Piece] = []
        for number, each in news:
            if isinstance(each, RequestOutput):
                self._take(number, each)
            elif (piece := self._new_piece(handle.call.requests[number], each)) is not None:
                found.append(piece)
        found += map(self._last_piece, self._ended[self._delivered :])
        if self._keeps_results:
            self._delivered = len(self._ended)
        else:
            self._ended.clear()
        return found

    def check_all(self) -> None:
        """Raise Cancelled unless all texts were finished."""
        if self.handle.call.is_cancelled:
            raise Cancelled("the handle was cancelled, or its engine closed, before all texts were finished")

    def _prefix_length(self, number: int, text: bytes) -> int | None:
        """Return the length of the model's prefix of a text that is not output; None while it is incomplete."""
        request = self.handle.call.requests[number]
        prefix = b"" if request.start.guide_cache else self.handle.pairs[request.number][0].text_prefix
        if len(text) < len(prefix) and prefix.startswith(text):
            return None
        return len(prefix) if text.startswith(prefix) else 0

    def _new_piece(self, request: Request, prefix: CommittedPrefix) -> Piece | None:
        """Return the piece of new bytes; None inside a character."""
        stream = self._streams.setdefault((request.number, request.sample), _Stream())
        text = stream.decoder.push(prefix.text)
        if not text:
            return None
        stream.sent += len(text)
        if prefix.sequence is None:
            return Piece(request.number, text, sample=request.sample)
        sequence, begin, vocabulary = prefix.sequence, stream.tokens, self.handle.engine.model.vocabulary
        stream.tokens = max(begin, prefix.tokens)
        return Piece(
            request.number,
            text,
            None,
            Scores.of(sequence, begin, stream.tokens, vocabulary) if self.handle.options.logprobs else None,
            request.sample,
            tuple(sequence.tokens[sequence.inside + begin : sequence.inside + stream.tokens]),
            0 if begin else sequence.overlap(vocabulary),
        )

    def _last_piece(self, ended: Piece) -> Piece:
        """Return the last piece of a text: everything that earlier pieces lack."""
        stream, result = self._streams.pop((ended.prompt, ended.sample), None), ended.result
        assert result is not None
        sent, begin = (0, 0) if stream is None else (stream.sent, stream.tokens)
        return Piece(
            ended.prompt,
            result.text[sent:],
            result,
            _scores_behind(result, begin) if self.grows else None,
            ended.sample,
            result.token_ids[begin:],
            0 if begin else result.overlap,
        )


def _cancel_unfinished(engine: RequestRunner, call: Call) -> None:
    """Cancel a call unless it is finished."""
    if not call.done:
        engine.cancel(call)


@dataclass(slots=True)
class _Stream:
    """The stream of one text. sent, tokens: number of characters and tokens delivered"""

    decoder: TextStream = field(default_factory=TextStream)
    sent: int = 0
    tokens: int = 0


def _scores_behind(result: Generation[Any], begin: int) -> Scores | None:
    """Return the scores of a result's tokens from `begin` on; None unless requested."""
    if result.logprobs is None or result.raw_logprobs is None:
        return None
    tops = [None if each is None else each[begin:] for each in (result.top_logprobs, result.raw_top_logprobs)]
    return Scores(result.token_ids[begin:], result.logprobs[begin:], result.raw_logprobs[begin:], *tops)
