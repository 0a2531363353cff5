"""Files that options of the command line name."""

from __future__ import annotations

from pathlib import Path

import click


def read_file(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """The text of a file, for an option that was given; what is wrong with it is the option's."""
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError too
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise click.BadParameter(f"{path!r} cannot be read: {reason}") from None
