"""Extraction: answers that are pieces of a context, with their places."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

from ..errors import OptionError
from ..guides.source import Place
from ..guides.substring import SubstringGuide
from .generator import Generator, run_together
from .models.protocol import Model
from .options import Options
from .randomness import row_key
from .results import Generation, Interrupted
from .row import Row
from .search import Sample
from .session import Job

Order = Literal["document", "score"]

NEARBY = 120
_WORD = re.compile(r"\w+")


class Extractor(Generator):
    """Generates quotations; the value is a Span, or None for the guide's `none_text`.

    Where the quoted text stands several times, the span is the place around which the most words of the prompt stand:
    words within 120 characters, those that are rare in the documents counting for more (each 1 / how often it is
    there), the documents themselves being taken out of the prompt first. Of equals it is the first.
    """

    def __init__(self, model: Model, guide: SubstringGuide, spans: int = 1, order: Order = "document") -> None:
        """spans: up to how many spans each prompt gets; above 1 the value is a list. order: of that list."""
        super().__init__(model, guide)
        if type(spans) is not int or spans < 1:
            raise OptionError(f"spans={spans!r}: a whole number of at least 1")
        if order not in ("document", "score"):
            raise OptionError(f"order={order!r}: 'document' or 'score'")
        self._quotations = guide
        self._most = spans
        self._order: Order = order

    def job(self, prompt: str, include: Any = ()) -> Job:
        """The prompt with this generator's constraint, and goals besides."""
        if self._most > 1:
            raise OptionError(f"spans={self._most} takes several runs; call the generator itself, or its run()")
        return super().job(prompt, include)

    def value_of(self, text: str, row: Row) -> Any:
        """The span of a text."""
        guide = self._quotations
        places = [] if text == guide.source.refusal else guide.places(text)
        if not places:
            return None
        chosen = 0
        if len(places) > 1:
            chosen = self._likeliest(places, self._prompt_of(row).decode(errors="replace"))
        return guide.source.span(places, chosen)

    def _run(self, prompts: str | Sequence[str], options: Options) -> Any:
        """As for every generator, with distinct spans for each prompt."""
        several = options.search.n
        if self._most > 1 and several > 1:
            raise OptionError(f"spans={self._most} and {options.search!r} both ask for several texts; use n=1")
        if self._most == 1 and not (several > 1 and isinstance(options.search, Sample)):
            return super()._run(prompts, options)
        if options.include:
            raise OptionError("include= with several distinct spans: leave it out, or ask for one span at a time")
        single = isinstance(prompts, str)
        texts = [prompts] if single else list(prompts)
        found = self._distinct(texts, options, max(several, self._most))
        return found[0] if single else found

    def _distinct(self, prompts: list[str], options: Options, wanted: int) -> list[list[Generation]]:
        """Up to `wanted` generations for each prompt, by one run after the other.

        In each run but the first nothing can be quoted that overlaps with what was quoted before.
        """
        by_score = self._most > 1 and self._order == "score"
        chosen = replace(options, logprobs=options.logprobs or by_score, progress=False)
        found: list[list[Generation]] = [[] for _ in prompts]
        open_ones: dict[int, SubstringGuide] = dict.fromkeys(range(len(prompts)), self._quotations)
        seeds = options.seeds(len(prompts))
        turn = 0
        while open_ones:
            numbers = list(open_ones)
            now = replace(chosen, seed=[seeds[i] if turn == 0 else row_key(seeds[i], -turn) for i in numbers])
            if turn and isinstance(now.search, Sample):
                now = replace(now, search=replace(now.search, n=1))
            pairs = [(Extractor(self.model, open_ones[i]), prompts[i]) for i in numbers]
            try:
                results = run_together(pairs, now)
            except Interrupted:
                raise Interrupted([None if i in open_ones else found[i] for i in range(len(prompts))]) from None
            for i, result in zip(numbers, results, strict=True):
                left = self._take(found[i], [result] if now.search.n == 1 else result, wanted)
                if left is None:
                    del open_ones[i]
                else:
                    open_ones[i] = left
            turn += 1
        return [self._ordered(results, options.logprobs) for results in found]

    def _take(self, found: list[Generation], results: list[Generation], wanted: int) -> SubstringGuide | None:
        """Add the results that say something new; the guide for the next run, None if there is no need of one."""
        if self._most > 1 and results[0].value is None:
            return None
        before = len(found)
        known = {result.text for result in found}
        for result in results:
            if result.text not in known:
                found.append(result)
                known.add(result.text)
        taken = [place for result in found if result.value is not None for place in result.value.occurrences]
        more = taken and before < len(found) < wanted
        return self._quotations.without(taken) if more else None

    def _ordered(self, results: list[Generation], logprobs: bool) -> list[Generation]:
        if self._most > 1 and self._order == "score":
            results = sorted(results, key=lambda result: -sum(result.raw_logprobs or ()))
        elif self._most > 1:
            results = sorted(results, key=lambda result: (result.value.document, result.value.start))
        if logprobs:
            return results
        return [replace(result, logprobs=None, raw_logprobs=None, score=None) for result in results]

    def _prompt_of(self, row: Row) -> bytes:
        """The prompt: what the model read, and what of it was generated again."""
        decode, start = self.model.vocabulary.decode, row.request.start
        return decode(start.prompt) + decode(row.tokens)[: start.tail]

    def _likeliest(self, places: list[Place], prompt: str) -> int:
        """Which place the prompt's words stand around."""
        documents = self._quotations.source.documents
        for document in sorted(documents, key=len, reverse=True):
            prompt = prompt.replace(document, " ")
        asked = {word for word in _words_of(prompt) if word in self._frequencies}
        points: list[float] = []
        for number, start, end in places:
            around = documents[number][max(0, start - NEARBY) : end + NEARBY]
            points.append(sum(1 / self._frequencies[word] for word in asked.intersection(_words_of(around))))
        return points.index(max(points))

    @cached_property
    def _frequencies(self) -> Counter[str]:
        """How often each word is in the documents."""
        return Counter(word for document in self._quotations.source.documents for word in _words_of(document))


def _words_of(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
