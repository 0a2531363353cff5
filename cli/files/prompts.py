"""Prompts from a file, results to a file: JSON Lines, one prompt or result a line."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from ..flags import lone_surrogate

if TYPE_CHECKING:
    from ...engine.results import Generation, TokenLogprob

RESULT_KEYS = (
    "output",
    "finish_reason",
    "thought",
    "thought_cut",
    "unmet",
    "span",
    "spans",
    "unenforced",
    "sample",
    "token_ids",
    "logprobs",
    "raw_logprobs",
    "top_logprobs",
    "raw_top_logprobs",
    "score",
)


@dataclass(frozen=True)
class Prompt:
    """One prompt, as generators take it, with what else its line said, which the result repeats."""

    given: Any
    record: dict[str, Any]

    @property
    def text(self) -> str:
        """What a page shows of it: a text, or token ids and messages as JSON."""
        return self.given if isinstance(self.given, str) else json.dumps(self.given, ensure_ascii=False)


def read_prompts(file: TextIO) -> list[Prompt]:
    """A line is a prompt, or an object with "prompt" and anything else; empty lines are skipped.

    A prompt is a JSON string, a list of token ids, or one of messages.
    """
    try:
        found = [_prompt(file.name, number, line) for number, line in enumerate(file, 1) if line.strip()]
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file.name} is not text in UTF-8 ({error.reason})") from None
    except OSError as error:
        raise click.UsageError(f"{file.name} cannot be read: {error.strerror}") from None
    if not found:
        raise click.UsageError(f"{file.name} has no prompts; write one JSON string or object on each line")
    return found


def _prompt(name: str, number: int, line: str) -> Prompt:
    try:
        value: Any = json.loads(line, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{name}, line {number} is not JSON ({error}); expected {_EXAMPLE}") from None
    record = cast("dict[str, Any]", value) if isinstance(value, dict) else {"prompt": value}
    if not isinstance(record.get("prompt"), (str, list)):
        raise click.UsageError(f"{name}, line {number} has no prompt; expected {_EXAMPLE}")
    # What the results repeat must be text that can be written.
    if lone_surrogate(json.dumps(record, ensure_ascii=False)) is not None:
        raise click.UsageError(f"{name}, line {number} has a lone surrogate, such as \\ud800, which is no character")
    taken = [key for key in RESULT_KEYS if key in record]
    if taken:
        raise click.UsageError(f"{name}, line {number} already has {taken[0]!r}, which the result needs; rename it")
    from ...engine.prompts.given import prompt_of

    return Prompt(prompt_of(record["prompt"], f"{name}, line {number}: the prompt"), record)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number that results can repeat")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


_EXAMPLE = '"a prompt" or {"prompt": "a prompt", "id": 7}, where lists are token ids or messages'


def result_lines(prompts: Sequence[Prompt], results: Iterable[Any]) -> Iterator[str]:
    """A JSON object for every finished text: what the prompt's line had, and the result."""
    for prompt, sample, generation in _finished(prompts, results):
        yield result_line(prompt, sample, generation)


def plain_lines(prompts: Sequence[Prompt], results: Iterable[Any]) -> Iterator[str]:
    """The finished texts alone."""
    return (generation.text for _, _, generation in _finished(prompts, results))


def report_page(prompts: Sequence[Prompt], results: Iterable[Any]) -> str:
    """A web page with the diagnostics of every finished text, under its prompt."""
    from ...engine.diagnostics.page import page

    parts: list[tuple[str, str]] = []
    for prompt, sample, generation in _finished(prompts, results):
        assert generation.diagnostics is not None
        parts.append(
            (prompt.text if sample is None else f"{prompt.text} ({sample})", generation.diagnostics.to_section())
        )
    return page(parts)


def _finished(
    prompts: Sequence[Prompt], results: Iterable[Any]
) -> Iterator[tuple[Prompt, int | None, Generation[Any]]]:
    """Every finished text with its prompt, and its number where there are several for each prompt."""
    for prompt, found in zip(prompts, results, strict=True):
        if isinstance(found, list):
            for sample, generation in enumerate(cast("list[Generation[Any] | None]", found)):
                if generation is not None:
                    yield prompt, sample, generation
        elif found is not None:
            yield prompt, None, found


def _token(each: TokenLogprob) -> dict[str, Any]:
    """A token that might have been chosen, as JSON has it."""
    text = None if each.token is None else each.token.decode(errors="backslashreplace")
    return {"token_id": each.token_id, "token": text, "logprob": each.logprob}


def result_line(prompt: Prompt, sample: int | None, generation: Generation[Any]) -> str:
    """What the prompt's line had, and a finished text; sample: its number, where there are several for each prompt."""
    from ...guides.quoting.source import Span

    record = prompt.record if sample is None else {**prompt.record, "sample": sample}
    result: dict[str, Any] = {**record, "output": generation.text, "finish_reason": generation.finish_reason}
    if generation.thought is not None:
        result |= {"thought": generation.thought, "thought_cut": generation.thought_cut}
    if generation.unmet:
        result["unmet"] = generation.unmet
    if isinstance(generation.value, Span):
        result["span"] = dataclasses.asdict(generation.value)
    if generation.spans:
        result["spans"] = {place: dataclasses.asdict(span) for place, span in generation.spans.items()}
    if generation.unenforced:
        result["unenforced"] = dict(generation.unenforced)
    if generation.logprobs is not None:
        result["token_ids"] = generation.token_ids
        result["logprobs"] = generation.logprobs
        result["raw_logprobs"] = generation.raw_logprobs
        result["score"] = generation.score
        for name in ("top_logprobs", "raw_top_logprobs"):
            if (best := getattr(generation, name)) is not None:
                result[name] = [[_token(each) for each in place] for place in best]
    return json.dumps(result, ensure_ascii=False, allow_nan=False)
