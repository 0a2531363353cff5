"""Extraction: answers that are substrings of a context, with their positions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal, Unpack

from ..checks import MAX_INT, check_choice, check_int
from ..errors import OptionError
from ..guides.limits import Limits
from ..guides.quoting.source import Occurrence
from ..guides.substring_guide import SubstringGuide
from .decode.frames import After, Frame, FrameOption
from .decode.randomness import row_key
from .decode.requests import Job
from .decode.sequence import SequenceState
from .engine import OnResult, run_together
from .generator import Generator
from .models.protocol import Model
from .options import DEFAULTS, CallOptions, Options, RunOptions
from .prompts.arguments import AnyPrompts, Prompt
from .results import Generation, Interrupted, keep_results, listed
from .search import Beam, Sample
from .sending import Description

Order = Literal["document", "score"]

NEARBY = 120
WITHIN_CHATS = Beam(3, length_penalty=0.0)
"""The search for quotations in answers to chats; best by benchmarks/answers.py. Greedy search commits to any quotation
that begins like the model's own preferred words."""
_WORD = re.compile(r"\w+")


class Extractor(Generator[Any]):
    """Generates quotations; the value is a Span, or None for the guide's `none_text`.

    If the quoted text occurs several times, the span is the occurrence with the most words of the prompt around it:
    within 120 characters, weighted by 1 / frequency in the documents, after the documents are removed from the prompt.
    Of equal occurrences it is the first.
    """

    def __init__(
        self,
        model: Model,
        guide: SubstringGuide,
        spans: int = 1,
        order: Order = "document",
        limits: Limits | None = None,
        after: After | None = None,
        frame: Frame | FrameOption | None = None,
    ) -> None:
        """spans: greatest number of spans for each prompt; above 1 the value is a list. order: of that list

        after, frame: see `Generator`
        """
        super().__init__(model, guide, None, limits, after, frame)
        self._most = check_int(spans, "spans", 1, MAX_INT)
        check_choice(order, "order", ("document", "score"))
        self._quotations = guide
        self._order: Order = order

    def __call__(self, prompts: AnyPrompts, **options: Unpack[CallOptions]) -> Any:
        """Return the span; a list for a list of prompts, and for each prompt if `spans` is above 1."""
        return super().__call__(prompts, **options)

    def run(self, prompts: AnyPrompts, **options: Unpack[RunOptions]) -> Any:
        """Return a `Generation` in place of each span."""
        return super().run(prompts, **options)

    def job(self, prompt: Prompt, options: Options = DEFAULTS) -> Job:
        """Return the prompt with this generator's constraint and required content."""
        if self._most > 1:
            raise OptionError(f"spans={self._most} needs several runs; call the generator itself, or its run()")
        job = super().job(prompt, options)
        return job if job.frame is None or self.frame != "auto" else replace(job, search=WITHIN_CHATS)

    def _described(self) -> Description:
        options: dict[str, Any] = {"spans": self._most, "order": self._order, "limits": self.limits}
        options |= {"after": self._behind, "frame": self.frame}
        return Description.of(type(self), self.model, self._quotations, options)

    def value_of(self, text: str, sequence: SequenceState) -> Any:
        """Return the span of a text."""
        guide = self._quotations
        places = [] if text == guide.source.refusal else guide.places(text)
        if not places:
            return None
        chosen = 0
        if len(places) > 1:
            chosen = self._likeliest(places, self._prompt_of(sequence).decode(errors="replace"))
        return guide.source.span(places, chosen)

    def run_texts(self, prompts: Sequence[Prompt], options: Options, on_result: OnResult | None = None) -> list[Any]:
        """Run as every generator does, but with distinct spans for each prompt."""
        if options.fields:
            self.field_scorer(options)  # raises an error: quotations have no fields
        several = options.search.n
        if self._most > 1 and several > 1:
            raise OptionError(f"spans={self._most} and {options.search!r} both ask for several texts; use n=1")
        if self._most == 1 and not (several > 1 and isinstance(options.search, Sample)):
            return super().run_texts(prompts, options, on_result)
        if options.include:
            raise OptionError(
                "include= is not supported with several distinct spans; leave it out, or ask for one span at a time"
            )
        order = self._order if self._most > 1 else None
        if self._behind is not None:
            raise OptionError(
                "after= is not supported with several distinct spans; leave it out, or ask for one span at a time"
            )
        make = partial(Extractor, self.model, frame=self.frame)
        run = _DistinctSpans(make, self._quotations, prompts, options, max(several, self._most), order, on_result)
        try:
            run.go_on()
        except KeyboardInterrupt:
            raise Interrupted(run.saved()) from None
        except BaseException as error:
            if run.has_started:
                keep_results(error, run.saved())
            raise
        return list[Any](run.found)

    def _prompt_of(self, sequence: SequenceState) -> bytes:
        """Return the prompt's bytes, including the healed tail."""
        decode, start = self.model.vocabulary.decode, sequence.request.start
        return decode(start.prompt) + decode(sequence.tokens)[: start.tail]

    def _likeliest(self, places: list[Occurrence], prompt: str) -> int:
        """Return the index of the occurrence with the most words of the prompt around it."""
        documents = self._quotations.source.documents
        for document in sorted(documents, key=len, reverse=True):
            prompt = prompt.replace(document, " ")
        words = {word for word in _words_of(prompt) if word in self._frequencies}
        points: list[float] = []
        for number, start, end in places:
            around = documents[number][max(0, start - NEARBY) : end + NEARBY]
            points.append(sum(1 / self._frequencies[word] for word in words.intersection(_words_of(around))))
        return points.index(max(points))

    @cached_property
    def _frequencies(self) -> Counter[str]:
        """Frequencies of words in the documents."""
        return Counter(word for document in self._quotations.source.documents for word in _words_of(document))


class _DistinctSpans:
    """Distinct spans for each prompt, by successive runs. Each run excludes overlaps with earlier spans.

    make: creates the extractor of one span for a guide
    order: order of a prompt's spans; None for samples, which may overlap, and may include one None
    found: results by prompt; open: remaining text to quote from, for prompts that may get more
    """

    def __init__(
        self,
        make: Callable[[SubstringGuide], Extractor],
        guide: SubstringGuide,
        prompts: Sequence[Prompt],
        options: Options,
        wanted: int,
        order: Order | None,
        on_result: OnResult | None,
    ) -> None:
        self._make = make
        self._guide = guide
        self._prompts = prompts
        self._user_options = options
        self._options = replace(options, logprobs=options.logprobs or order == "score", progress=False)
        self._seeds = options.seeds(len(prompts))
        self._wanted = wanted
        self._order = order
        self._on_result = on_result
        self._turn = 0
        self.has_started = False
        self.found: list[list[Generation[Any]]] = [[] for _ in prompts]
        self.open: dict[int, SubstringGuide] = dict.fromkeys(range(len(prompts)), guide)

    def go_on(self) -> None:
        """Run until no prompt may get more."""
        while self.open:
            numbers, options = list(self.open), self._options_now()
            pairs = [(self._make(self.open[i]), self._prompts[i]) for i in numbers]
            try:
                results = run_together(pairs, options)
            except BaseException as error:
                partly: list[Any] | None = getattr(error, "finished", None)
                self.has_started |= partly is not None
                self._take(numbers, partly or [])
                raise
            self.has_started = True
            self._take(numbers, results)
            self._turn += 1

    def saved(self) -> list[Any]:
        """Return the results so far, as in `Interrupted`. Unfinished prompts end in None."""
        return [
            (None if not results else [*self._ordered(results), None]) if number in self.open else results
            for number, results in enumerate(self.found)
        ]

    def _options_now(self) -> Options:
        """Return the options of the next run: new seeds, and one sample each after the first run."""
        seeds = [self._seeds[i] if self._turn == 0 else row_key(self._seeds[i], -self._turn) for i in self.open]
        now = replace(self._options, seed=seeds)
        if self._turn and isinstance(now.search, Sample):
            now = replace(now, search=replace(now.search, n=1))
        return now

    def _take(self, numbers: Sequence[int], entries: Sequence[Any]) -> None:
        """Store the results of a run; None for prompts without."""
        for number, entry in zip(numbers, entries, strict=False):
            results = [result for result in listed(entry) if result is not None]
            if not results:
                continue
            left = self._after(self.found[number], results)
            if left is not None:
                self.open[number] = left
                continue
            del self.open[number]
            self.found[number] = self._ordered(self.found[number])
            for place, result in enumerate(self.found[number]):
                if self._on_result is not None:
                    self._on_result(number, place, result)

    def _after(self, found: list[Generation[Any]], results: list[Generation[Any]]) -> SubstringGuide | None:
        """Add new results. Return the guide of the next run; None if none is needed."""
        if self._order is not None and results[0].value is None:
            return None
        before = len(found)
        known = {result.text for result in found}
        for result in results:
            if result.text not in known:
                found.append(result)
                known.add(result.text)
        quoted = [place for result in found if result.value is not None for place in result.value.occurrences]
        if not quoted or not before < len(found) < self._wanted:
            return None
        left, most = self._guide.without(quoted), self._user_options.max_tokens
        is_too_long = left is not None and most is not None and left.distance(left.start) > most
        return None if is_too_long else left

    def _ordered(self, results: list[Generation[Any]]) -> list[Generation[Any]]:
        if self._order == "score":
            results = sorted(results, key=lambda result: -sum(result.raw_logprobs or ()))
        elif self._order is not None:
            results = sorted(results, key=lambda result: (result.value.document, result.value.start))
        if self._user_options.logprobs:
            return results
        return [replace(result, logprobs=None, raw_logprobs=None, score=None) for result in results]


def _words_of(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
