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


def check_model(name: str | None, device: str | None, dtype: str | None, weights: str | None = None) -> None:
    """Raise UsageError for what no such model can be loaded with, before anything is loaded or begun."""
    if name is None and dtype:
        raise click.UsageError("--dtype is for models that are named; the small one of the package runs in float32")
    if name is not None and name.startswith(ZIP) and (device or dtype):
        raise click.UsageError("--device and --dtype are for models of transformers; ziplm has neither")
    if weights and (name is None or name.startswith(ZIP)):
        raise click.UsageError("--weights is for models of transformers that are named")


def load_model(name: str | None, device: str | None, dtype: str | None, weights: str | None = None) -> Model:
    """`ziplm:FILE`, a name, folder or GGUF file, or None for the small model of the package."""
    from ..engine import models

    check_model(name, device, dtype, weights)
    if name is None:
        try:
            return models.small(device=device)
        except OptionError as error:
            raise click.UsageError(in_flags(str(error))) from None
    if name.startswith(ZIP):
        return _zip_model(name.removeprefix(ZIP))
    try:
        return models.transformers(name, device=device, dtype=dtype, weights=weights)
    except OptionError as error:
        raise click.UsageError(
            f"{in_flags(str(error))}; --model takes a name on the Hugging Face Hub, a folder with a model and its "
            f"tokenizer, a GGUF file, or {ZIP}FILE; the small model of the package runs without --model"
        ) from None


def _zip_model(path: str) -> Model:
    from ..engine import models

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError too
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise click.UsageError(f"{ZIP}FILE needs a file with text, but {path!r} cannot be read: {reason}") from None
    return models.ziplm(text)
