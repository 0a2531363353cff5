"""Handles: what a caller holds of prompts that an engine works on."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
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
from .prompts.given import Prompt
from .results import Generation, Scores, keeping
from .schedule.call import Call, RequestOutput
from .search import Beam, Target

MOST_TEXTS = 1 << 20
QUICK = 512
"""Tokens of a text below which its result is made on the event loop: another thread costs more."""


class Task(Protocol):
    """A prompt's task: how its text begins, and what the text comes to. A Generator is one."""

    @property
    def model(self) -> Model:
        """All tasks of a batch have the same."""
        ...

    @property
    def text_prefix(self) -> bytes:
        """The beginning of a free text that is no part of it."""
        ...

    def job(self, prompt: Prompt, include: Any = (), *, continues: bool = False) -> Job:
        """The prompt with its constraint, and goals besides. continues: the text goes on with a chat's last message"""
        ...

    def result(self, sequence: SequenceState, options: Options) -> Generation[Any]:
        """The result of a finished sequence."""
        ...


class RequestRunner(Protocol):
    """The runner of requests: an `Engine`, which says what its methods do."""

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
        """Outcomes of requests so far."""
        ...

    def certain(self, call: Call) -> dict[int, CommittedPrefix]:
        """Certain beginnings of texts on their way."""
        ...


Pairs = Sequence[tuple[Task, Prompt]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that has become certain.

    prompt, sample: which of those that were given, and which of its samples
    text: whole characters that follow what came before
    result: of the last piece of a text, which may be empty, all that has come of it; its `finish_reason` says why it
        ends
    scores: with `logprobs=`, the tokens that became certain with it, and what `Generation` says of them. Together they
        are those of the result; those of a beam search come with the last piece. Else None
    token_ids: the tokens that became certain with it; those of a beam search come with the last piece
    overlap: how many bytes of the first of these are the end of the prompt, which was healed; 0 behind the first piece
    """

    prompt: int
    text: str
    result: Generation[Any] | None = None
    scores: Scores | None = None
    sample: int = 0
    token_ids: Sequence[int] = ()
    overlap: int = 0


News = tuple[int, CommittedPrefix | RequestOutput]
"""The number of a request, and what has become of it; of the text that is certain, what is new."""


class Handle:
    """Prompts on their way to results. Whoever waits for these takes the engine's steps, unless its own thread does.

    `result()` gives what the generator's `run` gives; `await handle` the same in asyncio; `finished()` the texts as
    they are finished, `pieces()` also what is certain of those that are not. Each of them gives all, whatever another
    took before. A handle that nobody holds is cancelled, and so is one whose waiting task in asyncio is cancelled.
    Not to be used from two threads at once; several handles may be.

    call: what the engine knows it by
    """

    def __init__(
        self,
        engine: RequestRunner,
        pairs: Pairs,
        options: Options,
        *,
        is_single: bool = False,
        requests: Sequence[Request] | None = None,
        keeps: bool = True,
    ) -> None:
        """Raises OptionError and BudgetError for mistakes of the caller's.

        requests: what the engine runs for the pairs, where the caller has made it; keeps: whether results stay here
        after they were given to the one who reads them, for others who do
        """
        self.engine = engine
        self.pairs = pairs
        self.options = options
        self._keeps = keeps
        self._is_single = is_single
        self._samples = options.search.n
        self._attempts: dict[tuple[int, int], int] = {}
        self._found: list[list[Generation[Any] | None]] = [[None] * self._samples for _ in pairs]
        self._ended: list[Piece] = []  # those that no cursor may have read
        if any(task.model is not engine.model for task, _ in pairs):
            raise OptionError("the generators of one batch must share one model object, that of the engine")
        if self._samples * len(pairs) > MOST_TEXTS:
            raise OptionError(
                f"n={self._samples:,} texts for each of {len(pairs):,} prompts: up to {MOST_TEXTS:,} run in "
                "one call; ask for fewer, or make several calls"
            )
        if requests is None:
            jobs = [task.job(prompt, options.include, continues=options.continues) for task, prompt in pairs]
            requests = requests_of(engine.model, jobs, options)
        self.call = engine.enter(requests, options.batch_size)
        weakref.finalize(self, _give_up, engine, self.call).atexit = False

    @property
    def done(self) -> bool:
        """True if nothing more will come."""
        return self.call.done

    def cancel(self) -> None:
        """Let nothing more come; a second time, or when all is there, does nothing."""
        _give_up(self.engine, self.call)

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

    def finished(self) -> Iterator[Piece]:
        """The texts as they are finished, in any order, each in one piece with its result.

        Raises what goes wrong with one, and cancels the others.
        """
        try:
            yield from chain.from_iterable(self.cursor(grows=False))
        finally:
            if not self.call.done:
                self.cancel()

    def pieces(self) -> Iterator[Piece]:
        """Pieces of each text as they become certain, step by step, and at its end the result."""
        return chain.from_iterable(self.cursor(grows=True))

    def cursor(self, *, grows: bool) -> Cursor:
        """A reader of its own of all texts. Raises OptionError where they have no pieces.

        grows: whether there are pieces of texts that have not ended
        """
        return Cursor(self, self._take, self._ended, keeps=self._keeps, grows=grows)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._in_thread(self.result).__await__()

    async def stream(self) -> AsyncIterator[Piece]:
        """`pieces`, for asyncio; the event loop is free meanwhile."""
        pieces = self.pieces()
        while (piece := await self._in_thread(next, pieces, None)) is not None:
            yield piece

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The answer of a function that waits, in another thread; cancelled with the task, which could not end it."""
        try:
            return await asyncio.to_thread(function, *arguments)
        except asyncio.CancelledError:
            self.cancel()
            raise

    def results(self) -> list[Any]:
        """The results so far, for each prompt; None for what is not finished."""
        if self.options.diagnostics and self._samples > 1:
            for prompt in range(len(self._found)):
                self._compare(prompt)
        return [results[0] if self._samples == 1 else results for results in self._found]

    def saved(self) -> list[Any]:
        """Results that are finished, also those that had not been looked at: for each prompt as `Interrupted` says."""
        with suppress(KeyboardInterrupt):  # pressed once more: what has been entered has to do
            for number, outcome in self.engine.outcomes(self.call):
                self._enter(number, outcome)
        shaped = zip(self._found, self.results(), strict=True)
        return [None if all(result is None for result in results) else entry for results, entry in shaped]

    def _take(self, number: int, outcome: RequestOutput) -> None:
        """Keep what has come of a request. Raises what went wrong with it."""
        if outcome.error is not None:
            self.cancel()
            raise outcome.error
        self._enter(number, outcome)

    def _enter(self, number: int, outcome: RequestOutput) -> None:
        """Keep the results of a request; those that are drawn again in their place are not among them."""
        request = self.call.requests[number]
        for sequence in outcome.sequences:
            prompt, sample = sequence.request.number, sequence.request.sample
            result = self.pairs[prompt][0].result(sequence, self.options)
            attempt = self._attempts.get((prompt, sample), 0)
            if result.error is not None and attempt < self.options.retries:
                self._attempts[prompt, sample] = attempt + 1
                self.engine.again(self.call, replace(request, key=row_key(request.key, attempt + 1)))
                continue
            results = self._found[prompt]
            del results[sequence.siblings or self._samples :]
            is_new = results[sample] is None
            if self._keeps:
                results[sample] = result
            if is_new:
                self._ended.append(Piece(prompt, result.text, result, sample=sample))

    def _compare(self, prompt: int) -> None:
        """Let the diagnostics of texts that were sampled for one prompt know of each other, when all are there."""
        several = [result for result in self._found[prompt] if result is not None]
        known = [result.diagnostics for result in several if result.diagnostics is not None]
        if len(known) == self._samples > 1:
            compared = zip(several, Diagnostics.together(known), strict=True)
            self._found[prompt][:] = [replace(result, diagnostics=one) for result, one in compared]


class Cursor:
    """One reader's place in what becomes of a handle's texts.

    `news` collects between two steps of the engine, `read` makes pieces of that where there is time. Iteration, and
    `updates` in asyncio, do both, and give what came together as a list.
    take: keeps an outcome, and adds the texts that end with it to `ended`, in which they stay if it `keeps` them for
        other readers; grows: see `Handle.cursor`
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
            raise OptionError(f"search={options.search!r}: a stream is one text for each prompt; use n=1")
        if grows and options.retries:
            raise OptionError(
                f"retries={options.retries}: a stream cannot take back what it has given; take result() instead"
            )
        if grows and any(request.pools for request in handle.call.requests):
            raise OptionError("an embedding has no text that could come in pieces; call the generator, or its run()")
        self.handle = handle
        self.grows = grows
        self._take, self._ended, self._keeps = take, ended, keeps
        self._collected: dict[int, int] = {}
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._given = 0

    def __iter__(self) -> Iterator[list[Piece]]:
        """Pieces after each step, or with each text that ends. Raises what goes wrong with one, and Cancelled."""
        handle = self.handle
        while True:
            found = self.read(self.news())
            is_over = handle.done
            yield found
            if is_over:
                break
            if not handle.done:  # as another reader may have found meanwhile
                handle.engine.wait(handle.call, every_step=self.grows)
        self._check_all()

    async def updates(self, arrivals: AsyncIterable[Sequence[News]], *, is_quick: bool) -> AsyncIterator[list[Piece]]:
        """The same of news that another thread has collected. Raises what goes wrong with a text, and Cancelled.

        is_quick: whether results of short texts take no longer than another thread would
        """
        loop = asyncio.get_running_loop()
        async for news in arrivals:
            if any(isinstance(each, RequestOutput) and not (is_quick and each.tokens < QUICK) for _, each in news):
                found = await loop.run_in_executor(None, self.read, news)
            else:
                found = self.read(news)
            if found:
                yield found
        self._check_all()

    def news(self) -> Iterator[News]:
        """News of the texts since this was last asked; no step is taken meanwhile.

        An outcome is gone when the one behind it is asked for, so that an interrupt loses none.
        """
        handle = self.handle
        if self.grows and handle.call.groups:
            for number, certain in handle.engine.certain(handle.call).items():
                begin = self._collected.get(number)
                if begin is None:
                    begin = self._lead(number, certain.text)
                if begin is not None and len(certain.text) > begin:
                    self._collected[number] = len(certain.text)
                    yield number, certain._replace(text=certain.text[begin:])
        yield from handle.engine.outcomes(handle.call)

    def read(self, news: Iterable[News]) -> list[Piece]:
        """Pieces of what was collected. Raises what went wrong with a text."""
        handle = self.handle
        found: list[Piece] = []
        for number, each in news:
            if isinstance(each, RequestOutput):
                self._take(number, each)
            elif (piece := self._grown(handle.call.requests[number], each)) is not None:
                found.append(piece)
        found += map(self._last, self._ended[self._given :])
        if self._keeps:
            self._given = len(self._ended)
        else:
            self._ended.clear()
        return found

    def _check_all(self) -> None:
        """Raise Cancelled where not all was given."""
        if self.handle.call.is_cancelled:
            raise Cancelled("the handle was cancelled before all was finished, or its engine was closed")

    def _lead(self, number: int, text: bytes) -> int | None:
        """Length of what the model writes before a request's text and is no part of it; None where that is not all."""
        request = self.handle.call.requests[number]
        prefix = b"" if request.start.guide_cache else self.handle.pairs[request.number][0].text_prefix
        if len(text) < len(prefix) and prefix.startswith(text):
            return None
        return len(prefix) if text.startswith(prefix) else 0

    def _grown(self, request: Request, grown: CommittedPrefix) -> Piece | None:
        """The piece that some bytes complete; None within a character."""
        stream = self._streams.setdefault((request.number, request.sample), _Stream())
        text = stream.decoder.push(grown.text)
        if not text:
            return None
        stream.sent += len(text)
        if grown.sequence is None:
            return Piece(request.number, text, sample=request.sample)
        sequence, begin, vocabulary = grown.sequence, stream.tokens, self.handle.engine.model.vocabulary
        stream.tokens = max(begin, grown.tokens)
        return Piece(
            request.number,
            text,
            None,
            Scores.of(sequence, begin, stream.tokens, vocabulary) if self.handle.options.logprobs else None,
            request.sample,
            tuple(sequence.tokens[sequence.inside + begin : sequence.inside + stream.tokens]),
            0 if begin else sequence.overlap(vocabulary),
        )

    def _last(self, ended: Piece) -> Piece:
        """The last piece of a text: what the pieces before it did not have."""
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


def _give_up(engine: RequestRunner, call: Call) -> None:
    """Cancel a call, unless all of it is there."""
    if not call.done:
        engine.cancel(call)


@dataclass(slots=True)
class _Stream:
    """One text in pieces. sent, tokens: how many characters and tokens were given so far"""

    decoder: TextStream = field(default_factory=TextStream)
    sent: int = 0
    tokens: int = 0


def _scores_behind(result: Generation[Any], begin: int) -> Scores | None:
    """Those of a result's tokens from one of them on; None unless they were asked for."""
    if result.logprobs is None or result.raw_logprobs is None:
        return None
    tops = [None if each is None else each[begin:] for each in (result.top_logprobs, result.raw_top_logprobs)]
    return Scores(result.token_ids[begin:], result.logprobs[begin:], result.raw_logprobs[begin:], *tops)
