"""The folder of pulled models, and what lies there under which name."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import ModelError
from ..cache_folder import cache_folder
from .hub import cached_file
from .registry import REGISTRY, RegisteredModel

_HUB_FILE = re.compile(r"([\w.-]+/[\w.-]+):(.+\.gguf)")


def place_of_model(model: RegisteredModel) -> Path:
    """The file's place; another version has another place."""
    return cache_folder("models") / f"{model.name}-{model.version}" / model.file


def kept(model: RegisteredModel) -> Path | None:
    """The file of a model that is pulled, whole; None of one that is not."""
    place = place_of_model(model)
    return place if place.is_file() and place.stat().st_size == model.size else None


def hub_file(name: str) -> tuple[str, str] | None:
    """The repository and the file of `owner/repo:file.gguf`, None of another name."""
    found = _HUB_FILE.fullmatch(name)
    return None if found is None else (found[1], found[2])


def pulled_file(name: str) -> str | None:
    """The GGUF file of a registered name or of `owner/repo:file.gguf`; None of a name that is neither.

    Raises ModelError for a model that has not been pulled.
    """
    model, of_hub = REGISTRY.get(name), hub_file(name)
    if model is None and of_hub is None:
        return None
    found = cached_file(*of_hub) if of_hub is not None else kept(REGISTRY[name])
    if found is None:
        raise ModelError(f"the model {name!r} is not on this machine; fetch it once: trellm pull {name}")
    return str(found)
