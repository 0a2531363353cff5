"""The model that a command line names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

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
    except OSError as error:
        first = str(error).strip().splitlines()[0]
        raise click.UsageError(
            f"the model {name!r} cannot be loaded ({first}); give a name on the Hugging Face Hub, a folder with "
            f"a model and its tokenizer, or {ZIP}FILE"
        ) from None


def _zip_model(path: str) -> Model:
    from ..engine import models

    try:
        return models.ziplm(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise click.UsageError(f"{ZIP}FILE needs a file with text, but {path!r} cannot be read: {reason}") from None
