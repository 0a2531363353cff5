"""The model that a command line names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import OptionError
from .flags import in_flags

if TYPE_CHECKING:
    from ..engine.models import Model

ZIP = "ziplm:"


def load_model(name: str, device: str | None, dtype: str | None) -> Model:
    """`ziplm:FILE`, or a name or path for the transformers library."""
    if name.startswith(ZIP):
        if device or dtype:
            raise click.UsageError("--device and --dtype are for models of transformers; ziplm has neither")
        return _zip_model(name.removeprefix(ZIP))
    from ..engine import models

    try:
        return models.transformers(name, device=device, dtype=dtype)
    except OptionError as error:
        raise click.UsageError(
            f"{in_flags(str(error))}; --model takes a name on the Hugging Face Hub, a folder with a model and its "
            f"tokenizer, or {ZIP}FILE"
        ) from None


def _zip_model(path: str) -> Model:
    from ..engine import models

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError too
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise click.UsageError(f"{ZIP}FILE needs a file with text, but {path!r} cannot be read: {reason}") from None
    return models.ziplm(text)
