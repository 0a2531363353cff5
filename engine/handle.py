"""Handles: what a caller holds of prompts that an engine works on."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..errors import Cancelled, OptionError
from ..tokenizers_adapter.text_stream import TextStream
from .decode.randomness import row_key
from .decode.requests import Job, requests_of
from .decode.sequence import CommittedPrefix, Request, SequenceState
from .diagnostics import Diagnostics
from .models.protocol import Model
from .options import Options
from .prompts.given import Prompt
from .results import Generation, Scores, keeping
from .schedule.call import Call, RequestOutput

MOST_TEXTS = 1 << 20


class Task(Protocol):
    """What a prompt is run for: how it begins, and what its text comes to. A Generator is one."""

    @property
    def model(self) -> Model:
        """All tasks of a batch have the same."""
        ...

    @property
    def text_prefix(self) -> bytes:
        """What a free text begins with that is not a part of it."""
        ...

    def job(self, prompt: Prompt, include: Any = ()) -> Job:
        """The prompt with its constraint, and goals besides."""
        ...

    def result(self, sequence: SequenceState, options: Options) -> Generation[Any]:
        """What a finished row comes to."""
        ...


class Runner(Protocol):
    """What runs requests: an `Engine`, which says what its methods do."""

    @property
    def model(self) -> Model:
        """That of all its requests."""
        ...

    def enter(self, requests: Sequence[Request], limit: int) -> Call:
        """Let requests run."""
        ...

    def again(self, call: Call, request: Request) -> None:
        """A further request of a call."""
        ...

    def cancel(self, call: Call) -> None:
        """Let nothing more come of a call."""
        ...

    def wait(self, call: Call, *, every_step: bool = False) -> None:
        """Go on until there may be an outcome."""
        ...

    def outcomes(self, call: Call) -> Iterator[tuple[int, RequestOutput]]:
        """What has come of requests so far."""
        ...

    def certain(self, call: Call) -> dict[int, CommittedPrefix]:
        """What texts on their way will begin with."""
        ...


Pairs = Sequence[tuple[Task, Prompt]]


@dataclass(frozen=True)
class Piece:
    """What has become certain of a text.

    prompt: which of those that were given; text: whole characters that follow what came before
    result: of the last piece of a text, which may be empty, all that has come of it; its `finish_reason` says why it
        ends
    scores: with `logprobs=`, the tokens that became certain with it, and what `Generation` says of them. Together they
        are those of the result; those of a beam search come with the last piece. Else None
    """

    prompt: int
    text: str
    result: Generation[Any] | None = None
    scores: Scores | None = None


@dataclass(frozen=True)
class Finished:
    """A text that is finished: the number of its prompt, that of the sample, and the result."""

    prompt: int
    sample: int
    result: Generation[Any]


class Handle:
    """Prompts on their way to results. Whoever waits for these takes the engine's steps, unless its own thread does.

    `result()` gives what the generator's `run` gives; `await handle` the same in asyncio; `finished()` the texts as
    they are finished, `pieces()` also what is certain of those that are not. Each of them gives all, whatever another
    took before. A handle that nobody holds is cancelled, and so is one whose waiting task in asyncio is cancelled.
    Not to be used from two threads at once; several handles may be.
    """

    def __init__(self, engine: Runner, pairs: Pairs, options: Options, *, is_single: bool = False) -> None:
        """Raises OptionError and BudgetError for mistakes of the caller's."""
        self._engine = engine
        self._pairs = pairs
        self._options = options
        self._is_single = is_single
        self._samples = options.search.n
        self._attempts: dict[tuple[int, int], int] = {}
        self.found: list[list[Generation[Any] | None]] = [[None] * self._samples for _ in pairs]
        self._order: list[Finished] = []
        if any(task.model is not engine.model for task, _ in pairs):
            raise OptionError("the generators of one batch must share one model object, that of the engine")
        if self._samples * len(pairs) > MOST_TEXTS:
            raise OptionError(
                f"n={self._samples:,} texts for each of {len(pairs):,} prompts: up to {MOST_TEXTS:,} run in "
                "one call; ask for fewer, or make several calls"
            )
        jobs = [task.job(prompt, options.include) for task, prompt in pairs]
        self._call = engine.enter(requests_of(engine.model, jobs, options), options.batch_size)
        self._end = weakref.finalize(self, engine.cancel, self._call)
        self._end.atexit = False

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self._call.done

    def cancel(self) -> None:
        """Let nothing more come; a second time, or when all is there, does nothing."""
        if not self._call.done:
            self._engine.cancel(self._call)

    def result(self) -> Any:
        """A `Generation`, or a list of them for a list of prompts, and for each prompt if `search.n > 1`.

        Raises what went wrong, with the results so far as its `finished`; for Ctrl-C Interrupted, which has them too;
        Cancelled for a handle that was cancelled.
        """
        with keeping(self.saved):
            for _ in self.finished():
                pass
        results = self.results()
        return results[0] if self._is_single else results

    def finished(self) -> Iterator[Finished]:
        """The texts as they are finished, in any order. Raises what goes wrong with one, and cancels the others."""
        given = 0
        try:
            while True:
                self._take()
                while given < len(self._order):
                    given += 1
                    yield self._order[given - 1]
                if self._call.done:
                    break
                self._engine.wait(self._call)
        finally:
            if not self._call.done:
                self.cancel()
        self._check_cancelled()

    def pieces(self) -> Iterator[Piece]:
        """What becomes certain of each text, step by step, and at its end the result. One text for each prompt."""
        if self._samples != 1:
            raise OptionError(f"search={self._options.search!r}: a stream is one text for each prompt; use n=1")
        if self._options.retries:
            raise OptionError(
                f"retries={self._options.retries}: a stream cannot take back what it has given; take result() instead"
            )
        streams = [_Stream() for _ in self._pairs]
        given = 0
        while True:
            certain = self._engine.certain(self._call)
            for number, each in certain.items():
                prompt = self._call.requests[number].number
                if piece := streams[prompt].push(self._own(prompt, each.text)):
                    yield Piece(prompt, piece, scores=self._scores(streams[prompt], each))
            self._take()
            while given < len(self._order):
                each = self._order[given]
                given += 1
                stream, result = streams[each.prompt], each.result
                yield Piece(each.prompt, result.text[stream.sent :], result, stream.rest(result))
            if self._call.done:
                break
            self._engine.wait(self._call, every_step=True)
        self._check_cancelled()

    def __await__(self) -> Generator[Any, None, Any]:
        return self._in_thread(self.result).__await__()

    async def stream(self) -> AsyncIterator[Piece]:
        """`pieces`, for asyncio; the event loop is free meanwhile."""
        pieces = self.pieces()
        while (piece := await self._in_thread(next, pieces, None)) is not None:
            yield piece

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function gives that waits, in another thread; cancelled with the task, which could not end it."""
        try:
            return await asyncio.to_thread(function, *arguments)
        except asyncio.CancelledError:
            self.cancel()
            raise

    def results(self) -> list[Any]:
        """The results so far, for each prompt; None for what is not finished."""
        if self._options.diagnostics and self._samples > 1:
            for prompt in range(len(self.found)):
                self._compare(prompt)
        return [results[0] if self._samples == 1 else results for results in self.found]

    def saved(self) -> list[Any]:
        """What is finished, also what had not been looked at: for each prompt as `Interrupted` says."""
        with suppress(KeyboardInterrupt):  # pressed once more: what has been entered has to do
            for number, outcome in self._engine.outcomes(self._call):
                self._enter(number, outcome)
        shaped = zip(self.found, self.results(), strict=True)
        return [None if all(result is None for result in results) else entry for results, entry in shaped]

    def _scores(self, stream: _Stream, certain: CommittedPrefix) -> Scores | None:
        """Those of the tokens that are new in a stream."""
        if not self._options.logprobs or certain.sequence is None:
            return None
        begin, stream.tokens = stream.tokens, max(stream.tokens, certain.tokens)
        return Scores.of(certain.sequence, begin, stream.tokens, self._engine.model.vocabulary)

    def _check_cancelled(self) -> None:
        if self._call.is_cancelled:
            raise Cancelled("the handle was cancelled before all was finished, or its engine was closed")
        self._end.detach()

    def _own(self, prompt: int, text: bytes) -> bytes:
        """A text without what is not a part of it."""
        task = self._pairs[prompt][0]
        return text if self._options.include else text.removeprefix(task.text_prefix)

    def _take(self) -> None:
        """Keep what has come of requests since this was last asked. Raises what went wrong with one."""
        for number, outcome in self._engine.outcomes(self._call):
            if outcome.error is not None:
                self.cancel()
                raise outcome.error
            self._enter(number, outcome)

    def _enter(self, number: int, outcome: RequestOutput) -> None:
        """Keep the results of a request; those that are drawn again in their place are not among them."""
        request = self._call.requests[number]
        for sequence in outcome.sequences:
            prompt, sample = sequence.request.number, sequence.request.sample
            result = self._pairs[prompt][0].result(sequence, self._options)
            attempt = self._attempts.get((prompt, sample), 0)
            if result.error is not None and attempt < self._options.retries:
                self._attempts[prompt, sample] = attempt + 1
                self._engine.again(self._call, replace(request, key=row_key(request.key, attempt + 1)))
                continue
            results = self.found[prompt]
            del results[sequence.siblings or self._samples :]
            is_new = results[sample] is None
            results[sample] = result
            if is_new:
                self._order.append(Finished(prompt, sample, result))

    def _compare(self, prompt: int) -> None:
        """Let the diagnostics of texts that were sampled for one prompt know of each other, when all are there."""
        several = [result for result in self.found[prompt] if result is not None]
        known = [result.diagnostics for result in several if result.diagnostics is not None]
        if len(known) == self._samples > 1:
            compared = zip(several, Diagnostics.together(known), strict=True)
            self.found[prompt][:] = [replace(result, diagnostics=one) for result, one in compared]


class _Stream:
    """One text in pieces of whole characters. sent, tokens: how many characters and scored tokens there were so far"""

    def __init__(self) -> None:
        self._decoder = TextStream()
        self._bytes = 0
        self.sent = 0
        self.tokens = 0

    def push(self, text: bytes) -> str:
        """What is new of a text that only grows."""
        piece = self._decoder.push(text[self._bytes :])
        self._bytes = max(self._bytes, len(text))
        self.sent += len(piece)
        return piece

    def rest(self, result: Generation[Any]) -> Scores | None:
        """What the stream did not have yet of a result's scores."""
        if result.logprobs is None or result.raw_logprobs is None:
            return None
        begin = self.tokens
        tops = [None if each is None else each[begin:] for each in (result.top_logprobs, result.raw_top_logprobs)]
        return Scores(result.token_ids[begin:], result.logprobs[begin:], result.raw_logprobs[begin:], *tops)
