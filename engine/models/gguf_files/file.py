"""Files of GGUF: metadata and tensors, found by their header and mapped; what is wrong is said with its place.

The layout is that of ggml's specification, versions 2 and 3, little-endian. The package `gguf` reads it too, and takes
seconds for the strings of a vocabulary; it is what tests compare with.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ....errors import ModelError
from ....kernels.quantized.formats import FORMATS

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
"""Types of values of metadata by their number, as `struct` has them."""
_MOST_DIMENSIONS = 4
_ALIGNMENT = 32
_REALS: Mapping[str, Any] = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
KINDS: Mapping[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 20: "IQ4_NL", 30: "BF16",
}  # fmt: skip
"""Types of tensors by their number in a file."""
_OTHERS: Mapping[int, str] = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
    39: "MXFP4",
}  # fmt: skip


@dataclass(frozen=True)
class GGUFTensor:
    """A tensor as it lies in a file.

    kind: its type, such as "Q4_1" or "F32"
    shape: rows first; weights of a product are [out, in]
    data: uint8 [rows, bytes of a row], mapped and not to be written
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]

    def reals(self) -> NDArray[np.float32]:
        """Its numbers as float32, of those that are not quantized: F32, F16 and BF16."""
        found = self.data.view(_REALS[self.kind])
        if self.kind == "BF16":
            found = (found.astype(np.uint32) << 16).view(np.float32)
        return found.astype(np.float32).reshape(self.shape)


@dataclass(frozen=True)
class GGUFFile:
    """What a file has: metadata by key, arrays of numbers as NumPy's, and tensors by name."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GGUFTensor]

    @classmethod
    def open(cls, path: str | Path) -> GGUFFile:
        """Read the header of a file and map the rest. Raises ModelError."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise ModelError(f"{path}: cannot be read as a GGUF file: {error}") from error
        return _Reader(path, data).file()

    def need(self, key: str, kind: type | tuple[type, ...]) -> Any:
        """A value of the metadata. Raises ModelError where there is none, or one of another type."""
        value = self.metadata.get(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ModelError(f"{self.path}: the metadata has no usable {key!r} ({value!r:.60})")
        return value

    def reals(self, name: str) -> NDArray[np.float32]:
        """The numbers of a tensor. Raises ModelError where they are quantized."""
        tensor = self.tensors[name]
        if tensor.kind not in _REALS:
            raise ModelError(
                f"{self.path}: the tensor {name!r} is of the type {tensor.kind}; {', '.join(_REALS)} are read for it"
            )
        return tensor.reals()

    def numbers(self, key: str, count: int) -> NDArray[Any] | None:
        """So many numbers of the metadata; None where there are none. Raises ModelError for another value."""
        value = self.metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.shape != (count,):  # pyright: ignore[reportUnknownMemberType]
            raise ModelError(f"{self.path}: the metadata's {key!r} is no array of {count:,} numbers")
        return cast("NDArray[Any]", value)

    def texts(self, key: str) -> list[str]:
        """An array of texts of the metadata, one at least. Raises ModelError for another value."""
        value = self.metadata.get(key)
        if not isinstance(value, list) or not value:
            raise ModelError(f"{self.path}: the metadata has no texts by the name of {key!r}; convert the model again")
        return cast("list[str]", value)


class _Reader:
    """Reads a header from its beginning on, and never beyond the end of the file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._at = 0

    def file(self) -> GGUFFile:
        if self._take(4) != _MAGIC:
            raise self._fault("a file of GGUF begins with 'GGUF'", 0)
        version = self._number("<I")
        if version not in _VERSIONS:
            order = "; it is big-endian" if version & 0xFFFF == 0 else ""
            raise self._fault(f"version {version} of GGUF{order}; little-endian versions 2 and 3 are read", 4)
        tensors, values = self._count("tensors", 24), self._count("values of metadata", 12)
        metadata: dict[str, Any] = {}
        for _ in range(values):
            at, key = self._at, self._string()
            if key in metadata:
                raise self._fault(f"the key {key!r:.80} a second time", at)
            metadata[key] = self._value(self._number("<I"), key)
        heads = [self._tensor_head() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
            raise self._fault(f"general.alignment={alignment!r:.40} is no power of two", 0)
        first = -(-self._at // alignment) * alignment
        found: dict[str, GGUFTensor] = {}
        for head in heads:
            if head[0] in found:
                raise self._fault(f"the tensor {head[0]!r:.80} a second time", head[-1])
            found[head[0]] = self._tensor(first, alignment, *head)
        return GGUFFile(self._path, metadata, found)

    def _fault(self, what: str, at: int | None = None) -> ModelError:
        return ModelError(f"{self._path}: at byte {self._at if at is None else at:,}: {what}")

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise self._fault(f"{size:,} bytes are expected, and the file ends after {len(self._data) - self._at:,}")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _count(self, of_what: str, least: int) -> int:
        """A count of things that take so many bytes each at least: there cannot be more than the file has room for."""
        at, count = self._at, self._number("<Q")
        if count > (len(self._data) - self._at) // least:
            raise self._fault(f"{count:,} {of_what} do not fit into the file", at)
        return count

    def _string(self) -> str:
        at, size = self._at, self._number("<Q")
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise self._fault(f"a string that is not UTF-8 ({error.reason})", at) from error

    def _value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(key)
        form = _SCALARS.get(kind)
        if form is None:
            raise self._fault(f"{key!r:.80} has the unknown type {kind}", self._at - 4)
        return self._number(form)

    def _array(self, key: str) -> Any:
        kind = self._number("<I")
        if kind == _STRING:
            return self._strings(self._count(f"strings of {key!r:.80}", 8))
        form = _SCALARS.get(kind)
        if form is None:
            raise self._fault(f"{key!r:.80} is an array of the unknown type {kind}", self._at - 4)
        dtype = np.dtype(np.bool_ if form == "<?" else form)
        count = self._count(f"values of {key!r:.80}", dtype.itemsize)
        return np.frombuffer(self._take(count * dtype.itemsize), dtype)

    def _strings(self, count: int) -> list[str]:
        """Many strings, of which most are short: without a call for each."""
        data, at, end, found = self._data, self._at, len(self._data), list[str]()
        begin = at + 8
        size_of = struct.Struct("<Q").unpack_from
        try:
            for _ in range(count):
                begin = at + 8
                size = size_of(data, at)[0]
                at = begin + size
                if at > end:
                    break
                found.append(data[begin:at].decode())
        except (struct.error, UnicodeDecodeError):
            self._at = at if at <= end else begin - 8
        else:
            self._at = at
        if len(found) < count:  # once more, to say what is wrong, and where
            self._at = begin - 8
            self._string()
        return found

    def _tensor_head(self) -> tuple[str, tuple[int, ...], int, int, int]:
        """Name, shape with rows first, type, offset, and where all this stands."""
        at, name, count = self._at, self._string(), self._number("<I")
        if not 1 <= count <= _MOST_DIMENSIONS:
            raise self._fault(f"the tensor {name!r:.80} has {count} dimensions; 1 to {_MOST_DIMENSIONS} are read", at)
        shape = tuple(self._number("<Q") for _ in range(count))[::-1]
        return name, shape, self._number("<I"), self._number("<Q"), at

    def _tensor(
        self, first: int, alignment: int, name: str, shape: tuple[int, ...], number: int, offset: int, at: int
    ) -> GGUFTensor:
        kind = KINDS.get(number)
        if kind is None:
            said = _OTHERS.get(number, f"of number {number}")
            raise self._fault(f"the tensor {name!r:.80} has the type {said}; read are {', '.join(KINDS.values())}", at)
        form = FORMATS.get(kind)
        weights, size = (1, np.dtype(_REALS[kind]).itemsize) if form is None else (form.weights, form.size)
        width, rows = shape[-1], prod(shape[:-1])
        if not all(shape) or width % weights:
            raise self._fault(f"the tensor {name!r:.80} has the shape {shape}; {kind} packs {weights} in a row", at)
        row = width // weights * size
        begin = first + offset
        if offset % alignment or begin + rows * row > len(self._data):
            raise self._fault(
                f"the tensor {name!r:.80} of {rows * row:,} bytes at {begin:,} is not within the file", at
            )
        data = np.frombuffer(self._data, np.uint8, rows * row, begin).reshape(rows, row)
        return GGUFTensor(name, kind, shape, data)
