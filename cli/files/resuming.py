"""Going on where a run of the same prompts ended: what its file of results has is not made again."""

from __future__ import annotations

import json
import os
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import click

from .prompts import RESULT_KEYS, Prompt, result_lines


@dataclass
class Resumed:
    """The prompts that are left, and the lines of those that are done.

    prompts: all of them, in order; left: the numbers of those to run; done: the lines of the others, by number
    """

    prompts: Sequence[Prompt]
    left: list[int] = field(default_factory=list[int])
    done: dict[int, list[str]] = field(default_factory=dict[int, list[str]])

    @classmethod
    def of(cls, prompts: Sequence[Prompt], path: str | None, samples: int) -> Resumed:
        """What the file at `path` has of `samples` texts for each prompt; None, or no file there: nothing.

        A last line that was cut off is dropped, and a prompt with too few texts is run anew. Raises click.UsageError
        for a file that has anything else than results of these prompts.
        """
        found = cls(prompts)
        lines = [] if path is None else _lines(path)
        places: dict[str, deque[int]] = defaultdict(deque)
        for number, prompt in enumerate(prompts):
            for sample in range(samples):
                places[_key(prompt.record, sample if samples > 1 else None)].append(number)
        for line_number, line in enumerate(lines, 1):
            place = places.get(_key_of_result(line))
            if not place:
                raise click.UsageError(
                    f"--resume: line {line_number} of {path} is no result of these prompts, or one too many; give the "
                    "prompts and options of the run that wrote it, or name another file"
                )
            found.done.setdefault(place.popleft(), []).append(line)
        found.done = {number: lines for number, lines in sorted(found.done.items()) if len(lines) == samples}
        found.left = [number for number in range(len(prompts)) if number not in found.done]
        return found

    @property
    def running(self) -> list[Prompt]:
        """The prompts to run, in order."""
        return [self.prompts[number] for number in self.left]

    @property
    def kept(self) -> list[str]:
        """The lines of the prompts that are done, in order."""
        return [line for lines in self.done.values() for line in lines]

    def lines(self, results: Iterable[Any]) -> Iterator[str]:
        """The lines of all prompts, in order, with what came of those that were run."""
        came = dict(zip(self.left, results, strict=True))
        for number, prompt in enumerate(self.prompts):
            yield from self.done[number] if number in self.done else result_lines([prompt], [came[number]])


def _lines(path: str) -> list[str]:
    """The whole lines of a file; none of one that is not there."""
    if not os.path.isfile(path):
        if os.path.exists(path):
            raise click.UsageError(f"--resume: {path} is no file that results could be read from")
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
    """What a line says of its prompt, as `_key` has it; "" if it is no result."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict) or "output" not in value:
        return ""
    result = cast("dict[str, Any]", value)
    return _key({name: said for name, said in result.items() if name not in RESULT_KEYS}, result.get("sample"))
