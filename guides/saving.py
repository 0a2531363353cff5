"""Saved guides: the masks of all states in a safetensors file, with what they belong to and a checksum."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..checks import brief
from ..errors import GuideFileError
from ..tokenizers_adapter import Vocabulary

FORMAT = "trellm guide 1"

Tensors = dict[str, NDArray[Any]]


class SavedGuide(NamedTuple):
    """The content of a file: what it is for, masks uint32 [states, words] and transitions int32 [states, 256]."""

    path: str
    identity: dict[str, str]
    masks: NDArray[np.uint32]
    transitions: NDArray[np.int32]

    def check(self, transitions: NDArray[np.int32], size: int) -> None:
        """Raise GuideFileError where the guide is now built another way, or the masks are not of `size` tokens."""
        if not np.array_equal(transitions, self.transitions) or len(self.masks) != len(transitions):
            raise GuideFileError(
                f"{self.path} was saved by a version that builds another automaton; save the guide again"
            )
        words, spare = self.masks.shape[1], size % 32
        if words != (size + 31) // 32 or (spare and (self.masks[:, -1] >> np.uint32(spare)).any()):
            raise GuideFileError(f"{self.path} has masks that are not of {size:,} tokens; save the guide again")


def save(
    path: str | Path,
    masks: NDArray[np.uint32],
    transitions: NDArray[np.int32],
    identity: dict[str, str],
    vocabulary: Vocabulary,
) -> None:
    """Write the masks of a precompiled guide.

    masks: uint32 [states, words]; transitions: int32 [states, 256]; states are numbered breadth first.
    """
    import safetensors.numpy

    library: Any = safetensors.numpy
    tensors: Tensors = {"masks": masks, "transitions": transitions}
    metadata = {**identity, "format": FORMAT, "vocabulary": vocabulary.fingerprint}
    metadata["checksum"] = _checksum(metadata, tensors)
    place = _path(path)
    if os.path.isdir(place):
        raise GuideFileError(f"{place} is a folder; name a file")
    # Under another name first, so that whatever happens there is never half a file.
    partial = place.with_name(f".{place.name[:200]}.{os.getpid()}.partial")
    try:
        partial.write_bytes(library.save(tensors, metadata))
        partial.replace(place)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise GuideFileError(f"{place} cannot be written: {reason}; name a file in a folder that is there") from None
    finally:
        with suppress(OSError, ValueError):
            partial.unlink(missing_ok=True)


def read(path: str | Path, vocabulary: Vocabulary, expected: Mapping[str, str]) -> SavedGuide:
    """A saved guide. Raises GuideFileError if it is damaged or not for this vocabulary and what is expected."""
    saved = _read(path)
    for key, value in {**expected, "vocabulary": vocabulary.fingerprint}.items():
        found = saved.identity.get(key)
        if found != value:
            raise GuideFileError(
                f"{path} was saved for another {key}: {_short(found)}, not {_short(value)}; save the guide again"
            )
    return saved


def _read(path: str | Path) -> SavedGuide:
    from safetensors import safe_open

    place = _path(path)
    if not os.path.isfile(place):
        raise GuideFileError(f"{path} is a folder, not a file" if os.path.isdir(place) else f"there is no file {path}")
    try:
        opened: Any = safe_open(str(place), framework="numpy")
        with opened as file:
            metadata: dict[str, str] = dict(file.metadata() or {})
            if metadata.get("format") != FORMAT or set(file.keys()) != {"masks", "transitions"}:
                raise GuideFileError(f"{path} is not a saved guide of this version; save the guide again")
            tensors: Tensors = {name: file.get_tensor(name) for name in ("masks", "transitions")}
    except GuideFileError:
        raise
    except Exception as error:  # whatever the library comes upon in a damaged file
        raise GuideFileError(f"{path} is not a whole safetensors file ({error}); save the guide again") from None
    if metadata.pop("checksum", "") != _checksum(metadata, tensors):
        raise GuideFileError(f"{path} is damaged: its checksum does not fit; save the guide again")
    found = {name: (str(tensor.dtype), tensor.ndim) for name, tensor in tensors.items()}
    if found != {"masks": ("uint32", 2), "transitions": ("int32", 2)} or not _is_identity(metadata):
        raise GuideFileError(f"{path} does not hold what a saved guide does; save the guide again")
    return SavedGuide(str(path), metadata, tensors["masks"], tensors["transitions"])


def _is_identity(metadata: Mapping[str, str]) -> bool:
    """Tell whether it says of a pattern what `RegexGuide.load` asks for."""
    is_flags = re.fullmatch("[0-9]{1,9}", metadata.get("flags", "")) is not None
    return "pattern" in metadata and is_flags and metadata.get("dialect") in ("python", "ecma")


def _path(path: Any) -> Path:
    if not isinstance(path, (str, Path)) or not str(path) or "\0" in str(path):
        raise GuideFileError(f"{brief(path)} is no path of a file; give a text or a Path")
    return Path(path)


def _checksum(metadata: dict[str, str], tensors: Tensors) -> str:
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def _short(value: str | None) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
