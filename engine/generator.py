"""What `generate.X(model, ...)` returns: call it with prompts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Unpack

from ..errors import OptionError
from ..guides.free import FreeGuide
from ..guides.goals import GoalGuide, goals_of
from ..guides.goals.specs import Goal
from ..guides.locks import new_lock
from ..guides.protocol import Guide
from ..guides.source import Span
from ..tokenizers_adapter import Vocabulary
from ..tokenizers_adapter.text_stream import TextStream
from .beam_loop import BeamLoop
from .constraint import Constraint
from .diagnostics import Diagnostics
from .loop import Loop
from .models.protocol import Model, SourceModel
from .options import CallOptions, Options, RunOptions, TextOptions
from .results import Generation, Interrupted
from .row import Row
from .session import Job, make_loop, run_all

KEPT = 8
Convert = Callable[[str], Any]


class Generator:
    """Generates texts under one constraint; reusable, and safe to share between threads.

    Options are given by name: `Options` lists them, with their defaults. A stream does without those that are
    about several texts, and only `run` has those that add to its results.
    """

    def __init__(self, model: Model, guide: Guide | None = None, convert: Convert | None = None) -> None:
        """guide: None for free text; convert: from a complete text to its value. Raises OptionError."""
        if guide is not None and not _same(guide.vocabulary, model.vocabulary):
            raise OptionError("the guide was made for another vocabulary; make it with model.vocabulary")
        self.model = model
        self.guide = guide
        self._constraint = None if guide is None else Constraint(guide, model.few)
        self._convert = convert
        # Under a constraint the lead lies before the constraint's text, as a prompt's end does.
        self._lead = model.lead if isinstance(model, SourceModel) and guide is None else b""
        self._spans: Callable[[str], Mapping[str, Span]] | None = getattr(guide, "spans", None)
        self._with_goals: dict[tuple[Goal, ...], Constraint] = {}
        self._lock = new_lock()

    def __call__(self, prompts: str | Sequence[str], **options: Unpack[CallOptions]) -> Any:
        """The output's value; a list of them for a list of prompts, and for each prompt if `search.n > 1`."""
        return values_of(self._run(prompts, Options.of(CallOptions, options)))

    def run(self, prompts: str | Sequence[str], **options: Unpack[RunOptions]) -> Any:
        """Like a call, with a `Generation` in place of each value.

        Ctrl-C raises Interrupted, a KeyboardInterrupt whose `finished` holds the results so far.
        """
        return self._run(prompts, Options.of(RunOptions, options))

    def stream(self, prompt: str, **options: Unpack[TextOptions]) -> Iterator[str]:
        """The output in pieces of whole characters, as soon as they are certain."""
        chosen = Options.of(TextOptions, options)
        if chosen.search.n != 1:
            raise OptionError(f"search={chosen.search!r}: a stream is one text; use n=1")
        loop = make_loop(self.model, [self.job(prompt, chosen.include)], chosen)
        return _pieces(loop, b"" if chosen.include else self._lead)

    def _run(self, prompts: str | Sequence[str], options: Options) -> Any:
        single = isinstance(prompts, str)
        texts = [prompts] if single else list(prompts)
        found = run_together([(self, text) for text in texts], options)
        return found[0] if single else found

    def job(self, prompt: str, include: Any = ()) -> Job:
        """The prompt with this generator's constraint, and goals besides. Raises as `guides.GoalGuide`."""
        goals = goals_of(include)
        return Job(prompt, self._including(goals) if goals else self._constraint)

    def _including(self, goals: tuple[Goal, ...]) -> Constraint:
        """The constraint with goals; the last few are kept, since what is found out about them takes time."""
        with self._lock:
            known = self._with_goals.pop(goals, None)
            if known is None:
                child: Any = FreeGuide(self.model.vocabulary) if self.guide is None else self.guide
                known = Constraint(GoalGuide(child, goals), self.model.few, free=self.guide is None)
            self._with_goals[goals] = known
            if len(self._with_goals) > KEPT:
                del self._with_goals[next(iter(self._with_goals))]
            return known

    def result(self, row: Row, options: Options) -> Generation:
        """What a finished row comes to."""
        assert row.finish is not None
        logprobs = options.logprobs
        lead = b"" if row.request.start.constraint else self._lead
        text = bytes(row.text).removeprefix(lead).decode(errors="replace")
        return Generation(
            text=text,
            value=self.value_of(text, row),
            token_ids=tuple(row.tokens[row.inside :]),
            finish_reason=row.finish,
            overlap=row.overlap(self.model.vocabulary),
            logprobs=tuple(row.scores[row.inside :]) if logprobs else None,
            raw_logprobs=tuple(row.raw_scores[row.inside :]) if logprobs else None,
            score=sum(row.scores) + row.end_score if row.score is None and logprobs else row.score,
            spans={} if self._spans is None else self._spans(text),
            overruled=tuple(sorted(row.overruled)),
            diagnostics=self._diagnostics(row) if options.diagnostics else None,
            unmet=_unmet(row),
            trace=row.trace,
        )

    def value_of(self, text: str, row: Row) -> Any:
        """The value of a finished row's text."""
        return text if self._convert is None else self._convert(text)

    def _diagnostics(self, row: Row) -> Diagnostics:
        assert row.finish is not None
        constraint = row.request.start.constraint
        guide = None if constraint is None else constraint.guide
        return Diagnostics.of(row.traces, self.model.vocabulary, guide, row.finish)


def run_together(pairs: Sequence[tuple[Generator, str]], options: Options) -> list[Any]:
    """Run generators of one model in one batch: for each pair a Generation, or a list if `search.n > 1`."""
    if not pairs:
        return []
    model = pairs[0][0].model
    if any(generator.model is not model for generator, _ in pairs):
        raise OptionError("the generators of one batch must share one model object")
    loop = make_loop(model, [generator.job(prompt, options.include) for generator, prompt in pairs], options)
    samples = options.search.n
    found: list[list[Generation | None]] = [[None] * samples for _ in pairs]
    try:
        with _bar(len(pairs) * samples, options.progress) as bar:
            for row in run_all(loop):
                number = row.request.number
                del found[number][row.siblings or samples :]
                found[number][row.request.sample] = pairs[number][0].result(row, options)
                if bar is not None:
                    bar.update()
    except KeyboardInterrupt:
        raise Interrupted([_shaped(results, samples) if None not in results else None for results in found]) from None
    return [_shaped(results, samples) for results in found]


def _unmet(row: Row) -> tuple[str, ...]:
    """The goals that the text, as it was cut, does not meet."""
    constraint = row.request.start.constraint
    return () if constraint is None or constraint.goals is None else constraint.goals.missing(bytes(row.text))


def _same(left: Vocabulary, right: Vocabulary) -> bool:
    return left is right or left.fingerprint == right.fingerprint


def _shaped(results: list[Generation | None], samples: int) -> Any:
    return results[0] if samples == 1 else results


def values_of(results: Generation | list[Any]) -> Any:
    """The values in place of the generations, in the same lists."""
    return results.value if isinstance(results, Generation) else [values_of(result) for result in results]


def _bar(total: int, progress: bool | None) -> Any:
    if progress if progress is not None else total > 1 and sys.stderr.isatty():
        from tqdm import tqdm

        return tqdm(total=total, unit="text")
    return nullcontext()


def _pieces(loop: Loop | BeamLoop, lead: bytes) -> Iterator[str]:
    decoder = TextStream()
    sent = 0
    while not loop.done:
        finished = loop.step()
        text = (bytes(finished[0].text) if finished else loop.certain()).removeprefix(lead)
        piece = decoder.push(text[sent:])
        sent = len(text)
        if piece:
            yield piece
    if rest := decoder.finish():
        yield rest
