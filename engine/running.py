"""Generators of one model run in one batch, and nothing that is finished gets lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, Protocol, cast

from ..checks import brief
from ..errors import ConversionError, OptionError
from .decode.beam_loop import BeamLoop
from .decode.loop import Loop
from .decode.randomness import row_key
from .decode.row import Row
from .decode.session import Job, make_loop, run_all
from .gc_restored import gc_restored
from .models.protocol import Model
from .options import Options
from .results import Generation, Interrupted, finished_of


class Task(Protocol):
    """What a prompt is run for: how it begins, and what its text comes to. A Generator is one."""

    @property
    def model(self) -> Model:
        """All tasks of a batch have the same."""
        ...

    def job(self, prompt: str, include: Any = ()) -> Job:
        """The prompt with its constraint, and goals besides."""
        ...

    def result(self, row: Row, options: Options) -> Generation[Any]:
        """What a finished row comes to."""
        ...


Pairs = Sequence[tuple[Task, str]]
Told = Callable[[int, int, Generation[Any]], None]
"""What is told of every text as it is finished: the number of its prompt, that of the sample, and the result."""

MOST_TEXTS = 1 << 20


def run_together(pairs: Pairs, options: Options, told: Told | None = None) -> list[Any]:
    """Run generators of one model in one batch: for each pair a Generation, or a list if `search.n > 1`.

    Ctrl-C raises Interrupted. What else goes wrong midway is raised as it is, and its `finished` holds the results so
    far, as that of Interrupted does.
    """
    if not pairs:
        return []
    run = _Run(pairs, options, told)
    with gc_restored():
        try:
            run.start()
            run.go_on()
            return run.results()
        except KeyboardInterrupt:
            raise Interrupted(run.saved()) from None
        except BaseException as error:
            if run.has_started:
                keep_results(error, run.saved())
            raise


class _Run:
    """One call. found: for each prompt the result of each sample, None as long as it is not finished."""

    def __init__(self, pairs: Pairs, options: Options, told: Told | None) -> None:
        self._pairs = pairs
        self._options = options
        self._told = told
        self._samples = options.search.n
        self._attempts: dict[tuple[int, int], int] = {}
        self._loop: Loop | BeamLoop | None = None
        self.found: list[list[Generation[Any] | None]] = [[None] for _ in pairs]

    @property
    def has_started(self) -> bool:
        """Whether all that the caller said was found to be right."""
        return self._loop is not None

    def start(self) -> None:
        """Find the caller's mistakes. Raises OptionError and BudgetError."""
        model = self._pairs[0][0].model
        if any(task.model is not model for task, _ in self._pairs):
            raise OptionError("the generators of one batch must share one model object")
        if self._samples * len(self._pairs) > MOST_TEXTS:
            raise OptionError(
                f"n={self._samples:,} texts for each of {len(self._pairs):,} prompts: up to {MOST_TEXTS:,} run in "
                "one call; ask for fewer, or make several calls"
            )
        self.found = [[None] * self._samples for _ in self._pairs]
        jobs = [task.job(prompt, self._options.include) for task, prompt in self._pairs]
        self._loop = make_loop(model, jobs, self._options)

    def go_on(self) -> None:
        """Run to the end."""
        assert self._loop is not None
        with _bar(len(self._pairs) * self._samples, self._options.progress) as bar:
            for row in run_all(self._loop):
                if self._enter(row, self._options.retries) and bar is not None:
                    bar.update()

    def _enter(self, row: Row, retries: int) -> bool:
        """Keep the result of a finished row; False if it is drawn again in place of that."""
        assert self._loop is not None
        number, sample = row.request.number, row.request.sample
        result = self._pairs[number][0].result(row, self._options)
        attempt = self._attempts.get((number, sample), 0)
        if result.error is not None and attempt < retries:
            self._attempts[number, sample] = attempt + 1
            self._loop.waiting.append(replace(row.request, key=row_key(row.request.key, attempt + 1)))
            return False
        results = self.found[number]
        del results[row.siblings or self._samples :]
        is_new = results[sample] is None
        results[sample] = result
        if is_new and self._told is not None:
            self._told(number, sample, result)
        return True

    def results(self) -> list[Any]:
        """The results, for each prompt."""
        return [results[0] if self._samples == 1 else results for results in self.found]

    def saved(self) -> list[Any]:
        """What is finished, also what had not been entered: for each prompt as `Interrupted` says."""
        with suppress(KeyboardInterrupt):  # pressed once more: what has been entered has to do
            for row in [] if self._loop is None else self._loop.leaving():
                if self._lacks(row):
                    self._enter(row, 0)
        shaped = zip(self.found, self.results(), strict=True)
        return [None if all(result is None for result in results) else entry for results, entry in shaped]

    def _lacks(self, row: Row) -> bool:
        results = self.found[row.request.number]
        return row.request.sample < len(results) and results[row.request.sample] is None


def values_of(found: Sequence[Any], prompts: Sequence[str]) -> list[Any]:
    """The values in place of the generations, in the same lists. Raises ConversionError if there is one without."""
    failed = [
        (number, result) for number, entry in enumerate(found) for result in listed(entry) if result.error is not None
    ]
    if not failed:
        return [_value(entry) for entry in found]
    number, result = failed[0]
    others = f", and {len(failed) - 1} more were" if len(failed) > 1 else " was"
    raise ConversionError(
        f"the output of prompt {number} ({brief(prompts[number])}){others} refused: {brief(result.text)} "
        f"({type(result.error).__name__}: {result.error}); see .results for all that came out, or draw again with "
        "search=Sample(...) and retries=3",
        found,
        number,
        result.text,
    ) from result.error


def listed(entry: Any) -> list[Any]:
    """A prompt's results, one or several, in a list."""
    return cast("list[Any]", entry) if isinstance(entry, list) else [entry]


def _value(entry: Any) -> Any:
    return [_value(result) for result in listed(entry)] if isinstance(entry, list) else entry.value


def keep_results(error: BaseException, saved: list[Any]) -> None:
    """Attach the results to what was raised midway, which may be an exception of the model's own."""
    with suppress(AttributeError, TypeError):  # an exception that takes no attributes
        error.finished = saved  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        error.add_note(f"{finished_of(saved)} before; see .finished of this exception")


def _bar(total: int, progress: bool | None) -> Any:
    if progress if progress is not None else total > 1 and sys.stderr.isatty():
        from tqdm import tqdm

        return tqdm(total=total, unit="text")
    return nullcontext()
