"""Prompts and results as JSON Lines files."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections import defaultdict, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from ..checks import lone_surrogate, repeated_name, shown

if TYPE_CHECKING:
    from ..engine.media import Media
    from ..engine.results import Generation, TokenLogprob

RESULT_KEYS = (
    "output",
    "finish_reason",
    "thought",
    "thought_cut",
    "unmet",
    "span",
    "spans",
    "captures",
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
class PromptLine:
    """One prompt for generators. record: its line, which the result repeats; place: its place, for errors"""

    prompt: Any
    record: dict[str, Any]
    place: str

    @property
    def text(self) -> str:
        """The prompt as shown on a page: the text, or token ids and messages as JSON."""
        return (
            self.prompt if isinstance(self.prompt, str) else json.dumps(self.prompt, ensure_ascii=False, default=repr)
        )

    @property
    def parts(self) -> list[Any] | None:
        """The images, audio and text of a text prompt; None for token ids and messages."""
        prompt: Any = self.prompt
        parts = cast("list[Any]", prompt if isinstance(prompt, list) else [prompt])
        return parts if isinstance(parts[-1], str) else None

    def with_media(self, media: Sequence[Media]) -> PromptLine:
        """Return the prompt with further images and audio before it. Raises click.UsageError for token ids and
        messages."""
        if not media:
            return self
        if self.parts is None:
            raise click.UsageError(
                f"{self.place} is not a text; --image and --audio need texts, in messages make them parts of the "
                "content"
            )
        return dataclasses.replace(self, prompt=[*media, *self.parts])

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the texts in a field of its line, one or a list; () for other values."""
        value = self.record.get(name)
        texts = cast("list[Any]", value if isinstance(value, list) else [value])
        return tuple(texts) if all(isinstance(text, str) and text for text in texts) else ()


def read_prompts(file: TextIO) -> list[PromptLine]:
    """Read prompts: each line is a prompt, or an object with "prompt" and further members. Empty lines are skipped.

    A prompt is a JSON string, a list of token ids, or a list of messages. If no line is JSON, or begins like JSON, each
    line is a plain text prompt. "images" and "audio" name files placed before a text, and messages have parts {"type":
    "image", "image": FILE} or {"type": "audio", "audio": FILE}. Paths are relative to the file of prompts.
    """
    try:
        lines = [(number, line.rstrip("\r\n")) for number, line in enumerate(file, 1) if line.strip()]
        if not any(line.lstrip()[0] in '"[{' or _is_json(line) for _, line in lines):
            lines = [(number, json.dumps(line)) for number, line in lines]
        media = _MediaFiles(Path(file.name).parent)
        prompts = [_prompt(file.name, number, line, media) for number, line in lines]
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file.name} is not text in UTF-8 ({error.reason})") from None
    except OSError as error:
        raise click.UsageError(f"{file.name} cannot be read: {error.strerror}") from None
    if not prompts:
        raise click.UsageError(f"{file.name} has no prompts; write one JSON string or object on each line")
    return prompts


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


class _MediaFiles:
    """The images and audio in files named by lines, relative to a folder. Each file is read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._media: dict[tuple[str, str], Media] = {}

    def of(self, kind: str, path: Any, place: str) -> Media:
        """Return the image or audio of a file. Raises ImageError, AudioError, and click.UsageError for a path of
        another type."""
        from ..engine.media import KINDS

        if not isinstance(path, str):
            raise click.UsageError(f"{place}: the {kind} is {shown(path)}; expected the path of its file")
        if (kind, path) not in self._media:
            self._media[kind, path] = KINDS[kind].of(self._folder / path, f"{place}: the {kind} {path!r}")
        return self._media[kind, path]

    def within(self, value: Any, place: str) -> Any:
        """Return messages with the files in their parts read, and other values unchanged. Raises the errors of `of`."""
        if isinstance(value, list):
            return [self.within(each, place) for each in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        part = cast("dict[str, Any]", value)
        kind = part.get("type")
        if kind in ("image", "audio"):
            return part | {kind: self.of(kind, part.get(kind), place)}
        return part | {"content": self.within(part["content"], place)} if "content" in part else part


def _prompt(name: str, number: int, line: str, media: _MediaFiles) -> PromptLine:
    try:
        value: Any = json.loads(
            line, parse_constant=_refuse_constant, parse_float=_parse_float, object_pairs_hook=_unique_members
        )
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{name}, line {number} is not JSON ({error}); expected {_EXAMPLE}") from None
    record = cast("dict[str, Any]", value) if isinstance(value, dict) else {"prompt": value}
    if not isinstance(record.get("prompt"), (str, list)):
        raise click.UsageError(f"{name}, line {number} has no prompt; expected {_EXAMPLE}")
    # results repeat the record, so it must be valid text
    if lone_surrogate(json.dumps(record, ensure_ascii=False)) >= 0:
        raise click.UsageError(f"{name}, line {number} has a lone surrogate, such as \\ud800, which is no character")
    conflicts = [key for key in RESULT_KEYS if key in record]
    if conflicts:
        raise click.UsageError(f"{name}, line {number} already has {conflicts[0]!r}, which the result needs; rename it")
    from ..engine.prompts.arguments import check_prompt

    place = f"{name}, line {number}"
    prompt = media.within(record["prompt"], place)
    placed: list[Media] = []
    for kind, member in (("image", "images"), ("audio", "audio")):
        named: Any = record.get(member, [])
        paths = cast("list[Any]", named if isinstance(named, list) else [named])
        placed += (media.of(kind, path, place) for path in paths)
    return PromptLine(check_prompt(prompt, f"{place}: the prompt"), record, place).with_media(placed)


def _unique_members(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        raise ValueError(f"duplicate name {repeated_name(members)!r} in an object")
    return found


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a finite JSON number")


def _parse_float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse_constant(text)


_EXAMPLE = '"a prompt" or {"prompt": "a prompt", "id": 7}, where lists are token ids or messages'


def result_lines(prompts: Sequence[PromptLine], results: Iterable[Any]) -> Iterator[str]:
    """Yield a JSON line for each finished text, with the members of its prompt's line."""
    for prompt, sample, generation in _finished(prompts, results):
        yield result_line(prompt, sample, generation)


def plain_lines(prompts: Sequence[PromptLine], results: Iterable[Any]) -> Iterator[str]:
    """Yield the finished texts."""
    return (generation.text for _, _, generation in _finished(prompts, results))


def report_page(prompts: Sequence[PromptLine], results: Iterable[Any]) -> str:
    """Return a page with the diagnostics of each finished text under its prompt."""
    from ..engine.diagnostics.page import page

    parts: list[tuple[str, str]] = []
    for prompt, sample, generation in _finished(prompts, results):
        assert generation.diagnostics is not None
        parts.append(
            (prompt.text if sample is None else f"{prompt.text} ({sample})", generation.diagnostics.to_section())
        )
    return page(parts)


def _finished(
    prompts: Sequence[PromptLine], results: Iterable[Any]
) -> Iterator[tuple[PromptLine, int | None, Generation[Any]]]:
    """Yield finished texts with their prompts, and their sample number if there are several."""
    for prompt, found in zip(prompts, results, strict=True):
        if isinstance(found, list):
            for sample, generation in enumerate(cast("list[Generation[Any] | None]", found)):
                if generation is not None:
                    yield prompt, sample, generation
        elif found is not None:
            yield prompt, None, found


def _token(each: TokenLogprob) -> dict[str, Any]:
    """Return a top token as a JSON object."""
    text = None if each.token is None else each.token.decode(errors="backslashreplace")
    return {"token_id": each.token_id, "token": text, "logprob": each.logprob}


def result_line(prompt: PromptLine, sample: int | None, generation: Generation[Any]) -> str:
    """Return the line of a finished text. sample: its number if there are several"""
    from ..guides.quoting.source import Span

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
    if generation.captures:
        captured = generation.captures.items()
        result["captures"] = {name: [each._asdict() for each in several] for name, several in captured}
    if generation.lookup_error is not None:
        result["lookup_error"] = str(generation.lookup_error)
    if generation.unenforced:
        result["unenforced"] = dict(generation.unenforced)
    if generation.fields:
        result["fields"] = {pointer: each.to_dict() for pointer, each in generation.fields.items()}
    if generation.logprobs is not None:
        result["token_ids"] = generation.token_ids
        result["logprobs"] = generation.logprobs
        result["raw_logprobs"] = generation.raw_logprobs
        result["score"] = generation.score
        for name in ("top_logprobs", "raw_top_logprobs"):
            if (best := getattr(generation, name)) is not None:
                result[name] = [[_token(each) for each in place] for place in best]
    return json.dumps(result, ensure_ascii=False, allow_nan=False)


def read_file(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Read the file of an option. Errors are usage errors of this option."""
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # a path with a null byte raises ValueError
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise click.BadParameter(f"{path!r} cannot be read: {reason}") from None


def json_of(text: str, path: str) -> Any:
    """Parse a JSON file named by an option."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{path!r} is no JSON: {error}") from None


class Output:
    """An output file. It replaces an older file of its name with its first line, not before.

    option: its option, for messages. Raises click.UsageError if it cannot be written.
    """

    def __init__(self, path: str, option: str) -> None:
        self._target = Path(path)
        if os.path.isdir(path):  # os.path accepts any text, Path does not
            raise click.UsageError(f"{option} {path} is a folder; name a file")
        if not self._target.name:
            raise click.UsageError(f"{option} {path!r} names no file")
        # devices and pipes are written directly
        self._is_replaced = os.path.isfile(path) or not os.path.exists(path)
        self._partial = self._target.with_name(f".{self._target.name[:200]}.{os.getpid()}.partial")
        try:
            self._file = self._open()
        except (OSError, ValueError) as error:  # a path with a null byte raises ValueError
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise click.UsageError(f"{option} {path} cannot be written: {reason}") from None
        self._has_replaced = False

    def _open(self) -> TextIO:
        place = self._partial if self._is_replaced else self._target
        return place.open("w", encoding="utf-8", newline="\n")

    def begin(self, lines: Iterable[str]) -> None:
        """Write the lines of an older file first. The older file stays until more lines come."""
        for line in lines:
            self._file.write(line + "\n")

    def add(self, line: str) -> None:
        """Write a line and flush it, so that no crash of this process loses it."""
        if not self._is_replaced:
            return
        self._file.write(line + "\n")
        self._file.flush()
        if not self._has_replaced:
            self._partial.replace(self._target)
            self._has_replaced = True

    def finish(self, lines: Iterable[str]) -> None:
        """Replace all lines by the final ones, if there are any."""
        text = "".join(line + "\n" for line in lines)
        if not text:
            return
        self._file.close()
        with self._open() as file:
            file.write(text)
        if self._is_replaced:
            self._partial.replace(self._target)

    def close(self) -> None:
        """Remove the unfinished file."""
        self._file.close()
        if self._is_replaced:
            self._partial.unlink(missing_ok=True)


class StandardOutput:
    """Standard output, written at the end, in order."""

    def begin(self, lines: Iterable[str]) -> None:
        """Do nothing: there is no older file."""

    def add(self, line: str) -> None:
        """Do nothing: lines on standard output could not be reordered later."""

    def finish(self, lines: Iterable[str]) -> None:
        """Write all lines."""
        for line in lines:
            click.echo(line, sys.stdout)


@contextmanager
def writing(path: str, option: str = "--out") -> Generator[Output | StandardOutput]:
    """Open an output, - for standard output, before the work, so that an invalid path fails early."""
    if path == "-":
        yield StandardOutput()
        return
    output = Output(path, option)
    try:
        yield output
    finally:
        output.close()


@dataclass
class ResumedRun:
    """The state of a resumed run.

    prompts: all prompts in order; left: numbers of those to run; done: lines of the others, by number
    """

    prompts: Sequence[PromptLine]
    left: list[int] = field(default_factory=list[int])
    done: dict[int, list[str]] = field(default_factory=dict[int, list[str]])

    @classmethod
    def of(cls, prompts: Sequence[PromptLine], path: str | None, samples: int) -> ResumedRun:
        """Read the results at `path`, of `samples` texts for each prompt. Without a path or file, none are done.

        A truncated last line is dropped, and a prompt with too few texts is run again. Raises click.UsageError if the
        file contains anything but results of these prompts.
        """
        run = cls(prompts)
        lines = [] if path is None else _lines(path)
        places: dict[str, deque[int]] = defaultdict(deque)
        for number, prompt in enumerate(prompts):
            for sample in range(samples):
                places[_key(prompt.record, sample if samples > 1 else None)].append(number)
        for line_number, line in enumerate(lines, 1):
            place = places.get(_key_of_result(line))
            if not place:
                raise click.UsageError(
                    f"--resume: line {line_number} of {path} is not a result of these prompts and options; repeat the "
                    "command of the run that wrote it, or name another file"
                )
            run.done.setdefault(place.popleft(), []).append(line)
        run.done = {number: lines for number, lines in sorted(run.done.items()) if len(lines) == samples}
        run.left = [number for number in range(len(prompts)) if number not in run.done]
        return run

    @property
    def running(self) -> list[PromptLine]:
        """The prompts to run, in order."""
        return [self.prompts[number] for number in self.left]

    @property
    def done_lines(self) -> list[str]:
        """The lines of finished prompts, in order."""
        return [line for lines in self.done.values() for line in lines]

    def lines(self, results: Iterable[Any]) -> Iterator[str]:
        """Yield the lines of all prompts in order, including new results."""
        new_results = dict(zip(self.left, results, strict=True))
        for number, prompt in enumerate(self.prompts):
            yield from self.done[number] if number in self.done else result_lines([prompt], [new_results[number]])


def _lines(path: str) -> list[str]:
    """Return the complete lines of a file; none if it does not exist."""
    if not os.path.isfile(path):
        if os.path.exists(path):
            raise click.UsageError(f"--resume: {path} is not a regular file, so that no results can be read from it")
        return []
    try:
        text = Path(path).read_bytes().decode()
    except OSError as error:
        raise click.UsageError(f"--resume: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"--resume: {path} cannot be read: {error}") from None
    return text.split("\n")[:-1]


def _key(record: dict[str, Any], sample: Any) -> str:
    return json.dumps([record, sample], sort_keys=True)


def _key_of_result(line: str) -> str:
    """Return the key of a result's prompt, see `_key`; "" if the line is no result."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict) or "output" not in value:
        return ""
    result = cast("dict[str, Any]", value)
    return _key({name: member for name, member in result.items() if name not in RESULT_KEYS}, result.get("sample"))
