"""Generators of one model run in one batch, and nothing that is finished gets lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast

from ..checks import brief
from ..errors import ConversionError
from .engine import Engine
from .handle import Handle, Pairs
from .options import Options
from .prompts.given import Prompt
from .results import Generation, keeping

Told = Callable[[int, int, Generation[Any]], None]
"""A listener to every text that is finished: the number of its prompt, that of the sample, and the result."""


def run_together(pairs: Pairs, options: Options, told: Told | None = None) -> list[Any]:
    """Run generators of one model in one batch: for each pair a Generation, or a list if `search.n > 1`.

    Ctrl-C raises Interrupted. What else goes wrong midway is raised as it is, and its `finished` holds the results so
    far, as that of Interrupted does.
    """
    if not pairs:
        return []
    handle = Handle(Engine.of(pairs[0][0].model), pairs, options)
    with keeping(handle.saved):
        go_on(handle, len(pairs) * options.search.n, options.progress, told)
        return handle.results()


def go_on(handle: Handle, total: int, progress: bool | None, told: Told | None) -> None:
    """Run to the end, a bar showing how far it is."""
    with _bar(total, progress) as bar:
        for each in handle.finished():
            if bar is not None:
                bar.update()
            if told is not None:
                assert each.result is not None, "it is the last piece of a text"
                told(each.prompt, each.sample, each.result)


def values_of(found: Sequence[Any], prompts: Sequence[Prompt]) -> list[Any]:
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


def _bar(total: int, progress: bool | None) -> Any:
    if progress if progress is not None else total > 1 and sys.stderr.isatty():
        from tqdm import tqdm

        return tqdm(total=total, unit="text")
    return nullcontext()
