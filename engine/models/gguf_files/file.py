"""GGUF files: metadata and memory-mapped tensors. Errors state their place in the file."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ....errors import ModelError
from ....kernels.quantized.formats import FORMATS
from ....tokenizers_adapter.gguf import GGUFError, TensorHead, mapped, read_header

_ALIGNMENT = 32
_REALS: Mapping[str, Any] = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
KINDS: Mapping[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 20: "IQ4_NL", 30: "BF16",
}  # fmt: skip
"""Tensor types by their number in a file."""
_OTHERS: Mapping[int, str] = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
    39: "MXFP4",
}  # fmt: skip


@dataclass(frozen=True)
class GGUFTensor:
    """A tensor of a file.

    kind: its type, such as "Q4_1" or "F32"
    shape: rows first; weights of a product are [out, in]
    data: uint8 [rows, bytes of a row], mapped and read-only
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


@dataclass(frozen=True)
class GGUFFile:
    """The contents of a file: metadata by key, with NumPy arrays of numbers, and tensors by name."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GGUFTensor]

    @classmethod
    def open(cls, path: str | Path) -> GGUFFile:
        """Read the header of a file, and map the rest. Raises ModelError."""
        path = Path(path)
        try:
            data = mapped(path)
            header = read_header(data)
            found = _tensors(data, header.heads, header.size, header.metadata)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read as a GGUF file: {error}") from error
        except GGUFError as error:
            what_to_do = "" if ";" in str(error) else "; fetch the file again, or convert the model again"
            raise ModelError(f"{path}: {error}{what_to_do}") from error
        return cls(path, header.metadata, found)

    def need(self, key: str, kind: type | tuple[type, ...]) -> Any:
        """Return a value of the metadata. Raises ModelError if it is missing or of another type."""
        value = self.metadata.get(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ModelError(f"{self.path}: the metadata has no usable {key!r} ({value!r:.60})")
        return value

    def reals(self, name: str) -> NDArray[np.float32]:
        """Return the values of a tensor as float32. Raises ModelError if it is quantized."""
        tensor = self.tensors[name]
        if tensor.kind not in _REALS:
            raise ModelError(
                f"{self.path}: the tensor {name!r} is of the type {tensor.kind}; {', '.join(_REALS)} are read for it"
            )
        found = tensor.data.view(_REALS[tensor.kind])
        if tensor.kind == "BF16":
            found = (found.astype(np.uint32) << 16).view(np.float32)
        return found.astype(np.float32).reshape(tensor.shape)

    def numbers(self, key: str, count: int) -> NDArray[Any] | None:
        """Return an array of `count` numbers of the metadata; None if missing. Raises ModelError for other values."""
        value = self.metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.shape != (count,):  # pyright: ignore[reportUnknownMemberType]
            raise ModelError(f"{self.path}: the metadata's {key!r} is no array of {count:,} numbers")
        return cast("NDArray[Any]", value)

    def texts(self, key: str) -> list[str]:
        """Return a non-empty array of texts of the metadata. Raises ModelError for other values."""
        value = self.metadata.get(key)
        if not isinstance(value, list) or not value:
            raise ModelError(f"{self.path}: the metadata has no texts by the name of {key!r}; convert the model again")
        texts = cast("list[str]", value)
        try:
            "".join(texts).encode()
        except UnicodeEncodeError as error:
            number = next(i for i, text in enumerate(texts) if not _is_utf8(text))
            raise ModelError(
                f"{self.path}: the metadata's {key!r} has a text, number {number:,}, that is not UTF-8"
            ) from error
        return texts


def _is_utf8(text: str) -> bool:
    """Test whether a text contains no escaped bytes."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _tensors(
    data: mmap.mmap, heads: Sequence[TensorHead], size: int, metadata: Mapping[str, Any]
) -> dict[str, GGUFTensor]:
    """Return the tensors of a file. size: of the header in bytes. Raises GGUFError."""
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    if type(alignment) is not int or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise GGUFError(f"at byte 0: general.alignment={alignment!r:.40} is no power of two")
    first = -(-size // alignment) * alignment
    found: dict[str, GGUFTensor] = {}
    for head in heads:
        if head.name in found:
            raise _error(head, "a second time")
        found[head.name] = _tensor(data, first, alignment, head)
    return found


def _tensor(data: mmap.mmap, first: int, alignment: int, head: TensorHead) -> GGUFTensor:
    kind = KINDS.get(head.kind)
    if kind is None:
        type_name = _OTHERS.get(head.kind, f"of number {head.kind}")
        raise _error(head, f"has the type {type_name}; read are {', '.join(KINDS.values())}")
    form, width, rows = FORMATS[kind], head.shape[-1], prod(head.shape[:-1])
    if not all(head.shape):
        raise _error(head, f"has the shape {head.shape}; all sizes are to be above 0")
    if width % form.weights:
        raise _error(head, f"has the shape {head.shape}; {kind} packs {form.weights} in a row")
    row = form.row_bytes(width)
    begin = first + head.offset
    if head.offset % alignment or begin + rows * row > len(data):
        raise _error(head, f"of {rows * row:,} bytes at {begin:,} is not within the file")
    return GGUFTensor(head.name, kind, head.shape, np.frombuffer(data, np.uint8, rows * row, begin).reshape(rows, row))


def _error(head: TensorHead, what: str) -> GGUFError:
    return GGUFError(f"at byte {head.place:,}: the tensor {head.name!r:.80} {what}")
