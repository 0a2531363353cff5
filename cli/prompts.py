"""Prompts from a file, results to a file: JSON Lines, one prompt or result a line."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

if TYPE_CHECKING:
    from ..engine.diagnostics import Diagnostics
    from ..engine.results import Generation

RESULT_KEYS = (
    "output",
    "finish_reason",
    "unmet",
    "span",
    "spans",
    "sample",
    "token_ids",
    "logprobs",
    "raw_logprobs",
    "score",
)


@dataclass(frozen=True)
class Prompt:
    """One prompt with what else its line said, which the result repeats."""

    text: str
    record: dict[str, Any]


def read_prompts(file: TextIO) -> list[Prompt]:
    """A line is a JSON string, or an object with "prompt" and anything else; empty lines are skipped."""
    try:
        found = [_prompt(file.name, number, line) for number, line in enumerate(file, 1) if line.strip()]
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file.name} is not text in UTF-8 ({error.reason})") from None
    if not found:
        raise click.UsageError(f"{file.name} has no prompts; write one JSON string or object on each line")
    return found


def _prompt(name: str, number: int, line: str) -> Prompt:
    try:
        value: Any = json.loads(line)
    except ValueError as error:
        raise click.UsageError(f"{name}, line {number} is not JSON ({error}); expected {_EXAMPLE}") from None
    record: Any = {"prompt": value} if isinstance(value, str) else value
    if not isinstance(record, dict) or not isinstance(record.get("prompt"), str):  # pyright: ignore[reportUnknownMemberType]
        raise click.UsageError(f"{name}, line {number} has no prompt; expected {_EXAMPLE}")
    taken = [key for key in RESULT_KEYS if key in record]
    if taken:
        raise click.UsageError(f"{name}, line {number} already has {taken[0]!r}, which the result needs; rename it")
    return Prompt(record["prompt"], record)  # pyright: ignore[reportUnknownArgumentType]


_EXAMPLE = '"a prompt" or {"prompt": "a prompt", "id": 7}'


def result_lines(prompts: Sequence[Prompt], results: Iterable[Any]) -> Iterator[str]:
    """A JSON object for every finished text: what the prompt's line had, and the result."""
    for prompt, sample, generation in _finished(prompts, results):
        record = prompt.record if sample is None else {**prompt.record, "sample": sample}
        yield _line(record, generation)


def plain_lines(prompts: Sequence[Prompt], results: Iterable[Any]) -> Iterator[str]:
    """The finished texts alone."""
    return (generation.text for _, _, generation in _finished(prompts, results))


def report_page(prompts: Sequence[Prompt], results: Iterable[Any]) -> str:
    """A web page with the diagnostics of every finished text, under its prompt."""
    from ..engine.diagnostics.page import page

    parts: list[tuple[str, Diagnostics]] = []
    for prompt, sample, generation in _finished(prompts, results):
        assert generation.diagnostics is not None
        parts.append((prompt.text if sample is None else f"{prompt.text} ({sample})", generation.diagnostics))
    return page(parts)


def _finished(
    prompts: Sequence[Prompt], results: Iterable[Any]
) -> Iterator[tuple[Prompt, int | None, Generation[Any]]]:
    """Every finished text with its prompt, and its number where there are several for each prompt."""
    for prompt, found in zip(prompts, results, strict=True):
        if isinstance(found, list):
            for sample, generation in enumerate(cast("list[Generation[Any]]", found)):
                yield prompt, sample, generation
        elif found is not None:
            yield prompt, None, found


def _line(record: dict[str, Any], generation: Generation[Any]) -> str:
    from ..guides.source import Span

    result: dict[str, Any] = {**record, "output": generation.text, "finish_reason": generation.finish_reason}
    if generation.unmet:
        result["unmet"] = generation.unmet
    if isinstance(generation.value, Span):
        result["span"] = dataclasses.asdict(generation.value)
    if generation.spans:
        result["spans"] = {place: dataclasses.asdict(span) for place, span in generation.spans.items()}
    if generation.logprobs is not None:
        result["token_ids"] = generation.token_ids
        result["logprobs"] = generation.logprobs
        result["raw_logprobs"] = generation.raw_logprobs
        result["score"] = generation.score
    return json.dumps(result, ensure_ascii=False, allow_nan=False)


@contextmanager
def writing(path: str, option: str = "--out") -> Generator[TextIO]:
    """A file to write results to, - for standard output; a file appears under its name when it is whole.

    option: what named it. It is opened before the work, so that a place that cannot be written to costs nothing.
    """
    if path == "-":
        yield sys.stdout
        return
    target = Path(path)
    if target.is_dir():
        raise click.UsageError(f"{option} {path} is a folder; name a file")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        file = partial.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise click.UsageError(f"{option} {path} cannot be written: {error.strerror}") from None
    try:
        with file:
            yield file
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
