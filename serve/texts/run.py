"""A run: the texts of one request, on their way, as the event loop sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from ...engine.decode.sequence import SequenceState
from ...engine.handle import Task
from ...engine.options import Options
from ...engine.results import Generation, Scores
from ...engine.schedule.call import Call

AT_ONCE = 64
"""So much news is told in one go, or less where a table of tokens comes with each."""


@dataclass(frozen=True, slots=True)
class Grown:
    """What has become certain of a text: the bytes and tokens that follow those before.

    scores: of the tokens, where they were asked for; overlap: then, how many bytes of the first lie before the text
    """

    index: int
    data: bytes
    tokens: Sequence[int]
    scores: Scores | None = None
    overlap: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished text: its row, or what went wrong with it."""

    index: int
    row: SequenceState | None
    error: Exception | None = None


News = Grown | Ended


@dataclass(eq=False)
class Run:
    """texts: how many each prompt has; is_streamed: whether what grows is told before it ends.

    A text's index is its prompt's number times `texts`, and the number of the sample. `known` and `has_begun` are the
    engine's thread's; entered: when it came to the engine
    """

    call: Call
    task: Task
    options: Options
    texts: int
    is_streamed: bool
    prompt_tokens: int
    known: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    is_over: bool = False
    has_begun: bool = False
    entered: float = field(default_factory=perf_counter)
    _news: list[News] = field(default_factory=list[News])
    _event: asyncio.Event = field(default_factory=asyncio.Event)

    def index_of(self, row: SequenceState) -> int:
        """The number of a text among the choices."""
        return row.request.number * self.texts + row.request.sample

    def found_tokens(self, copies: int) -> int:
        """How many tokens of the prompts were in memory when its first text began.

        copies: how often each prompt was entered
        """
        least: dict[int, int] = {}
        for number, request in enumerate(self.call.requests):
            found, prompt = self.call.found.get(number, 0), request.number // copies
            least[prompt] = min(found, least.get(prompt, found))
        return sum(least.values())

    def grown(self, row: SequenceState) -> Sequence[Grown]:
        """What a text has grown by since this was last asked: certain bytes, and the tokens chosen."""
        index, start = self.index_of(row), row.request.start
        # What a model writes before free text is no part of it; see `Generator.result`.
        sent, seen = self.known.get(index) or (0 if start.guide_cache else len(self.task.text_prefix), 0)
        seen = max(seen, row.inside)
        size = len(row.text) if row.finish is not None else row.request.stop.safe(row.text)
        if size <= sent and len(row.tokens) <= seen:
            return ()
        self.known[index] = max(size, sent), len(row.tokens)
        tokens = tuple(row.tokens[seen:])
        scores: Scores | None = None
        overlap = 0
        if self.options.logprobs:
            begin, end = seen - row.inside, len(row.tokens) - row.inside
            vocabulary = self.task.model.vocabulary
            scores = Scores.of(row, begin, end, vocabulary)
            overlap = 0 if begin else row.overlap(vocabulary)
        return (Grown(index, bytes(row.text[sent:size]), tokens, scores, overlap),)

    def tell(self, news: Sequence[News]) -> None:
        """Let whoever waits know, on the event loop."""
        self._news += news
        self._event.set()

    def end(self) -> None:
        """Nothing more will come."""
        self.is_over = True
        self._event.set()

    async def updates(self) -> AsyncIterator[list[News]]:
        """What has come since one last looked, until all is there."""
        while True:
            await self._event.wait()
            self._event.clear()
            if self._news:
                news, self._news = self._news, []
                most = max(1, AT_ONCE // (1 + int(self.options.logprobs or 0)))
                for at in range(0, len(news), most):
                    if at:  # whoever reads slowly has much of it, and others are answered between
                        await asyncio.sleep(0)
                    yield news[at : at + most]
            if self.is_over and not self._news:
                return

    def result(self, row: SequenceState) -> Generation[Any]:
        """What a finished row comes to; without the scores of its tokens where they were told as they came."""
        is_told = self.is_streamed and self.options.logprobs
        options = replace(self.options, logprobs=False) if is_told else self.options
        return self.task.result(row, options)
