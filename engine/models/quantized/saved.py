"""Files of quantized weights in the user's cache, mapped on loading.

The format is safetensors. The metadata contain the origin, the tensor of each layer, and a checksum. A file is written
under a temporary name and renamed, so that readers only see complete files, also with concurrent writers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor

from ...downloads.registry import cache_folder
from .conversion import QuantizedLayer, QuantizedWeights

_OPEN: Any = safe_open
_LOG = logging.getLogger("trellm.models")
_LAYOUT = 1
"""Version of the layout. A change of the layout must raise it."""
_FILES = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".py")
_CONFIGS = ("config.json", "generation_config.json")
_STALE = 3600.0
"""Seconds after which a temporary file counts as abandoned."""


@dataclass(frozen=True)
class WeightsSource:
    """The origin of weights: a folder, or a model on the Hub at a commit.

    place: key of the origin, with format and layout
    state: version of transformers, and for a folder the sizes and times of its files
    """

    place: Mapping[str, Any]
    state: Mapping[str, Any]

    @classmethod
    def of(cls, path: str, config: Any, form: str) -> WeightsSource | None:
        """Return the origin of a model by its path and configuration; None if its version is unknown."""
        how = {"weights": form, "layout": _LAYOUT}
        state = {"transformers": str(transformers.__version__)}
        if os.path.isdir(path):
            return cls({"folder": os.path.realpath(path), **how}, {**state, "files": _files_of(Path(path))})
        commit: str | None = getattr(config, "_commit_hash", None)
        return None if commit is None else cls({"hub": path, "commit": commit, **how}, state)

    @property
    def file(self) -> Path:
        """Path of the file of quantized weights."""
        name = str(self.place.get("folder", self.place.get("hub")))
        last = re.sub(r"[^\w.-]+", "-", re.split(r"[/\\]", name)[-1])[:60]
        digest = hashlib.sha256(json.dumps(self.place, sort_keys=True).encode()).hexdigest()[:16]
        return cache_folder("weights") / f"{last}-{self.place['weights']}-{digest}.safetensors"

    @property
    def text(self) -> str:
        """The origin as text, for comparison."""
        return json.dumps([self.place, self.state], sort_keys=True)


def _files_of(folder: Path) -> list[list[Any]]:
    """Return names, sizes and times of the files that determine the weights."""
    found = sorted(file for file in folder.iterdir() if file.name.endswith(_FILES) or file.name in _CONFIGS)
    return [[file.name, stat.st_size, stat.st_mtime_ns] for file in found for stat in [file.stat()]]


def load_saved(source: WeightsSource) -> tuple[QuantizedWeights, Mapping[str, Any] | None] | None:
    """Return mapped weights from the cache, with the generation config; None if there are none.

    Logs damaged and outdated files, and returns None for them.
    """
    file = source.file
    try:
        with _OPEN(str(file), "pt") as opened:
            facts: dict[str, str] = opened.metadata() or {}
            if facts.get("source") != source.text:
                _LOG.warning("%s was made of other files than there are now: it is made again", file)
                return None
            tensors: dict[str, Tensor] = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        if facts.pop("sum", None) != _sum_of(tensors, facts):
            raise ValueError("its contents do not add up to what was saved")
        layers = {path: QuantizedLayer(*layer) for path, layer in json.loads(facts["layers"]).items()}
        return QuantizedWeights(tensors, layers, json.loads(facts["names"])), json.loads(facts["generation"])
    except FileNotFoundError:
        return None
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        _LOG.warning("%s is damaged (%s): it is made again", file, error)
        return None


def save(source: WeightsSource, weights: QuantizedWeights, generation: Mapping[str, Any] | None) -> bool:
    """Save weights. Return False, with a log message, if that fails."""
    file = source.file
    facts = {
        "source": source.text, "layers": json.dumps(weights.layers), "names": json.dumps(weights.names),
        "generation": json.dumps(generation),
    }  # fmt: skip
    facts["sum"] = _sum_of(weights.tensors, facts)
    written = file.with_name(f"{file.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale_files(file)
        try:
            save_file(dict(weights.tensors), str(written), metadata=facts)
            os.replace(written, file)
        finally:
            with suppress(FileNotFoundError):
                written.unlink()
    except (SafetensorError, OSError) as error:
        _LOG.warning("quantized weights cannot be saved as %s (%s): they are made anew each time", file, error)
        return False
    _LOG.info("quantized weights are saved as %s", file)
    return True


def _remove_stale_files(file: Path) -> None:
    """Remove temporary files of processes that were killed while writing."""
    for left in file.parent.glob(f"{file.name}.*.tmp"):
        with suppress(OSError):  # another process may have removed it
            if time.time() - left.stat().st_mtime > _STALE:
                left.unlink()


def say_unfit(source: WeightsSource, error: Exception) -> None:
    """Log that saved weights do not fit the model."""
    _LOG.warning("%s does not fit the model (%s): it is made again", source.file, error)


def _sum_of(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> str:
    """Return a checksum of all tensors and their metadata."""
    found = zlib.crc32(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].reshape(-1)
        found = zlib.crc32(name.encode(), found)
        if tensor.numel():
            found = zlib.crc32(tensor.view(torch.uint8).numpy().data, found)
    return f"{found:08x}"
