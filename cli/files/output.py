"""Where results are written: each as soon as it is finished, and at the end all of them in order."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click


class Output:
    """A file to be, under its name from its first line on; until then an older file of that name stays as it is.

    option: what named it, for messages. Raises click.UsageError for a place that cannot be written to.
    """

    def __init__(self, path: str, option: str) -> None:
        self._target = Path(path)
        if os.path.isdir(path):  # unlike a Path, it takes any text
            raise click.UsageError(f"{option} {path} is a folder; name a file")
        if not self._target.name:
            raise click.UsageError(f"{option} {path!r} names no file")
        # A device or a pipe is written to as it is; there is nothing there that could be replaced.
        self._is_replaced = os.path.isfile(path) or not os.path.exists(path)
        self._partial = self._target.with_name(f".{self._target.name[:200]}.{os.getpid()}.partial")
        try:
            self._file = self._open()
        except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise click.UsageError(f"{option} {path} cannot be written: {reason}") from None
        self._is_there = False

    def _open(self) -> TextIO:
        place = self._partial if self._is_replaced else self._target
        return place.open("w", encoding="utf-8", newline="\n")

    def begin(self, lines: Iterable[str]) -> None:
        """Put lines before all others; they are an older file's, which stays until there is more."""
        for line in lines:
            self._file.write(line + "\n")

    def add(self, line: str) -> None:
        """Write a line that is not lost any more, whatever ends the process."""
        if not self._is_replaced:
            return
        self._file.write(line + "\n")
        self._file.flush()
        if not self._is_there:
            self._partial.replace(self._target)
            self._is_there = True

    def finish(self, lines: Iterable[str]) -> None:
        """Write the whole, in place of what was added; nothing, if there is nothing."""
        text = "".join(line + "\n" for line in lines)
        if not text:
            return
        self._file.close()
        with self._open() as whole:
            whole.write(text)
        if self._is_replaced:
            self._partial.replace(self._target)

    def close(self) -> None:
        """Leave nothing behind but what is finished."""
        self._file.close()
        if self._is_replaced:
            self._partial.unlink(missing_ok=True)


class StandardOutput:
    """Takes the whole at the end, in order."""

    def begin(self, lines: Iterable[str]) -> None:
        """Nothing: there is no older file."""

    def add(self, line: str) -> None:
        """Nothing: what is written there cannot be put in order any more."""

    def finish(self, lines: Iterable[str]) -> None:
        """Write all lines."""
        for line in lines:
            click.echo(line, sys.stdout)


@contextmanager
def writing(path: str, option: str = "--out") -> Generator[Output | StandardOutput]:
    """Where to write, - for standard output; opened before the work, so that a wrong place costs nothing."""
    if path == "-":
        yield StandardOutput()
        return
    output = Output(path, option)
    try:
        yield output
    finally:
        output.close()
