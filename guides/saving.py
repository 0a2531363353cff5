"""Saved guides: the masks of all states in a safetensors file, with what they belong to and a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import GuideFileError
from ..tokenizers_adapter import Vocabulary

if TYPE_CHECKING:
    from .dfa import Dfa
    from .regular import RegularGuide

FORMAT = "trellm guide 1"

Tensors = dict[str, NDArray[Any]]


class SavedGuide(NamedTuple):
    """What a file holds: what it is for, masks uint32 [states, words] and transitions int32 [states, 256]."""

    path: str
    identity: dict[str, str]
    masks: NDArray[np.uint32]
    transitions: NDArray[np.int32]


def save(guide: RegularGuide, path: str | Path, identity: dict[str, str]) -> None:
    """Write the masks of a precompiled guide.

    masks: uint32 [states, words]; transitions: int32 [states, 256]; states are numbered breadth first.
    """
    import safetensors.numpy

    library: Any = safetensors.numpy
    order, numbered = _breadth_first(guide)
    tensors: Tensors = {
        "masks": np.stack([guide.mask(state).copy() for state in order]),
        "transitions": numbered.transitions,
    }
    metadata = {**identity, "format": FORMAT, "vocabulary": guide.vocabulary.fingerprint}
    metadata["checksum"] = _checksum(metadata, tensors)
    library.save_file(tensors, str(path), metadata)


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


def restore(guide: RegularGuide, saved: SavedGuide) -> None:
    """Give a guide the masks saved for it. Raises GuideFileError if it is now built another way."""
    order, numbered = _breadth_first(guide)
    if not np.array_equal(numbered.transitions, saved.transitions) or len(saved.masks) != len(order):
        raise GuideFileError(f"{saved.path} was saved by a version that builds another automaton; save the guide again")
    guide.install(order, saved.masks)


def _breadth_first(guide: RegularGuide) -> tuple[list[int], Dfa]:
    """The states of a guide in the order of a breadth-first search, and its automaton so numbered."""
    dfa = guide.dfa()
    states = guide.automaton.explore(len(dfa))
    order, numbered = dfa.breadth_first()
    return [states[place] for place in order], numbered


def _read(path: str | Path) -> SavedGuide:
    from safetensors import SafetensorError, safe_open

    try:
        opened: Any = safe_open(str(path), framework="numpy")
        with opened as file:
            metadata: dict[str, str] = dict(file.metadata() or {})
            if metadata.get("format") != FORMAT or set(file.keys()) != {"masks", "transitions"}:
                raise GuideFileError(f"{path} is not a saved guide of this version; save the guide again")
            tensors: Tensors = {name: file.get_tensor(name) for name in ("masks", "transitions")}
    except FileNotFoundError:
        raise GuideFileError(f"there is no file {path}") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise GuideFileError(f"{path} is not a whole safetensors file ({error}); save the guide again") from None
    if metadata.pop("checksum", "") != _checksum(metadata, tensors):
        raise GuideFileError(f"{path} is damaged: its checksum does not fit; save the guide again")
    return SavedGuide(str(path), metadata, tensors["masks"], tensors["transitions"])


def _checksum(metadata: dict[str, str], tensors: Tensors) -> str:
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def _short(value: str | None) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
