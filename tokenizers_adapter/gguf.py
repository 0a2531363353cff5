"""GGUF files: headers with metadata and tensor offsets, and vocabularies as llama.cpp reads them.

Errors state their place in the file. The layout follows ggml's specification, versions 2 and 3, little-endian:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The package `gguf` takes seconds for the strings of a
vocabulary, so only tests use it, for comparison.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..checks import brief
from ..errors import VocabularyError
from .spelling import SPACE_MARK, Spell, TokenTable, encode_text, replace, spell_byte_level, spell_text

MAGIC = b"GGUF"
ENDS = ("eos", "eot", "eom")
"""Kinds of EOS tokens, with keys `tokenizer.ggml.*_token_id`: EOS, end of turn, end of message."""
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
"""Formats for `struct` of metadata values, by type number."""
_MAX_DIMENSIONS = 4


class TokenType(IntEnum):
    """The types of tokens in `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    LITERAL = 4
    UNUSED = 5
    BYTE = 6


class GGUFError(ValueError):
    """Raised for a file that is damaged or not GGUF. The message begins with the place in the file."""


class TensorHead(NamedTuple):
    """A tensor's entry in a header.

    shape: sizes, rows first
    kind: number of the tensor type
    offset: bytes from the beginning of all tensor data
    place: offset of the entry in the file
    """

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int
    place: int


@dataclass(frozen=True)
class GGUFHeader:
    """The header of a file.

    metadata: values by key; arrays of numbers are NumPy arrays, arrays of strings are lists. Strings in lists, such as
        tokens, may not be UTF-8; they are decoded with `surrogateescape`
    heads: entries of all tensors; the file may lack their data
    size: bytes of the header
    """

    metadata: Mapping[str, Any]
    heads: Sequence[TensorHead]
    size: int


def mapped(path: Path) -> mmap.mmap:
    """Map a file into memory for reading. Raises OSError, and GGUFError for an empty file."""
    with path.open("rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise GGUFError(f"cannot be read as a GGUF file: {error}") from error


def read_header(data: mmap.mmap) -> GGUFHeader:
    """Return the header of a mapped file. Raises GGUFError."""
    return _Reader(data).header()


class _Reader:
    """Reader of a header from its beginning, with bounds checks."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._offset = 0

    def header(self) -> GGUFHeader:
        if self._read(4) != MAGIC:
            raise self._error("a GGUF file begins with 'GGUF'", 0)
        version = self._number("<I")
        if version not in _VERSIONS:
            order = "; it is big-endian" if version & 0xFFFF == 0 else ""
            raise self._error(f"version {version} of GGUF{order}; only little-endian versions 2 and 3 are supported", 4)
        tensors, values = self._count("tensors", 24), self._count("values of metadata", 12)
        metadata: dict[str, Any] = {}
        for _ in range(values):
            offset, key = self._offset, self._string()
            if key in metadata:
                raise self._error(f"the key {key!r:.80} a second time", offset)
            metadata[key] = self._value(self._number("<I"), key)
        return GGUFHeader(metadata, [self._tensor_head() for _ in range(tensors)], self._offset)

    def _error(self, message: str, offset: int | None = None) -> GGUFError:
        return GGUFError(f"at byte {self._offset if offset is None else offset:,}: {message}")

    def _read(self, size: int) -> bytes:
        if size > len(self._data) - self._offset:
            raise self._error(
                f"{size:,} bytes are expected, but the file ends after {len(self._data) - self._offset:,}"
            )
        self._offset += size
        return self._data[self._offset - size : self._offset]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._read(struct.calcsize(form)))[0]

    def _count(self, of_what: str, least: int) -> int:
        """Read a number of items of at least `least` bytes each. Raises GGUFError if they exceed the file."""
        offset, count = self._offset, self._number("<Q")
        if count > (len(self._data) - self._offset) // least:
            raise self._error(f"{count:,} {of_what} do not fit into the file", offset)
        return count

    def _string(self) -> str:
        offset, size = self._offset, self._number("<Q")
        try:
            return self._read(size).decode()
        except UnicodeDecodeError as error:
            raise self._error(f"a string that is not UTF-8 ({error.reason})", offset) from error

    def _value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(key)
        form = _SCALARS.get(kind)
        if form is None:
            raise self._error(f"{key!r:.80} has the unknown type {kind}", self._offset - 4)
        return self._number(form)

    def _array(self, key: str) -> Any:
        kind = self._number("<I")
        if kind == _STRING:
            return self._strings(self._count(f"strings of {key!r:.80}", 8))
        form = _SCALARS.get(kind)
        if form is None:
            raise self._error(f"{key!r:.80} is an array of the unknown type {kind}", self._offset - 4)
        dtype = np.dtype(np.bool_ if form == "<?" else form)
        count = self._count(f"values of {key!r:.80}", dtype.itemsize)
        return np.frombuffer(self._read(count * dtype.itemsize), dtype)

    def _strings(self, count: int) -> list[str]:
        """Read many short strings, without a function call for each."""
        data, offset, end, strings = self._data, self._offset, len(self._data), list[str]()
        size_of = struct.Struct("<Q").unpack_from
        for _ in range(count):
            begin = offset + 8
            size = size_of(data, offset)[0] if begin <= end else 0
            if begin + size > end:
                self._offset = offset
                self._string()  # raises the error with its place
            offset = begin + size
            strings.append(data[begin:offset].decode("utf-8", "surrogateescape"))
        self._offset = offset
        return strings

    def _tensor_head(self) -> TensorHead:
        offset, name, count = self._offset, self._string(), self._number("<I")
        if not 1 <= count <= _MAX_DIMENSIONS:
            raise self._error(
                f"the tensor {name!r:.80} has {count} dimensions; 1 to {_MAX_DIMENSIONS} are supported", offset
            )
        shape = tuple(self._number("<Q") for _ in range(count))[::-1]
        return TensorHead(name, shape, self._number("<I"), self._number("<Q"), offset)


_SPELLINGS = {"gpt2": True, "llama": False, "t5": False, "bert": False}
"""Tokenizers of llama.cpp; True for byte-level spelling, False for text with a space mark."""


def is_gguf(path: Path) -> bool:
    """Test whether a file begins with the magic bytes of GGUF."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_gguf(path: Path) -> TokenTable:
    """Return the tokens of a GGUF file. Its EOS ids are all those of `ENDS` in the metadata.

    Raises VocabularyError for a damaged file, one without a vocabulary, or one with another spelling.
    """
    try:
        with mapped(path) as data:
            fields = read_header(data).metadata
    except GGUFError as error:
        raise VocabularyError(f"{path} is damaged: its header cannot be read ({error}); download it again") from error
    texts, model = fields.get("tokenizer.ggml.tokens"), fields.get("tokenizer.ggml.model")
    if not isinstance(texts, list) or not texts or not isinstance(model, str) or model not in _SPELLINGS:
        raise VocabularyError(
            f"{path} has a vocabulary of the unsupported kind {brief(model)}; supported are {', '.join(_SPELLINGS)}; "
            "build Vocabulary(tokens, eos_ids) from the bytes of each token yourself"
        )
    texts = cast("list[str]", texts)
    kinds = _kinds_of(path, fields.get("tokenizer.ggml.token_type"), len(texts))
    spell: Spell = spell_byte_level() if _SPELLINGS[model] else spell_text([replace(SPACE_MARK, " ")], True)
    spelled = [token for token, kind in enumerate(kinds) if kind in (TokenType.NORMAL, TokenType.BYTE)]
    tokens: list[bytes | None] = [None] * len(texts)  # None for control, unknown and unused tokens
    try:
        for token, data in zip(spelled, spell([texts[token] for token in spelled]), strict=True):
            tokens[token] = data
        for token, kind in enumerate(kinds):
            if kind == TokenType.LITERAL:
                tokens[token] = encode_text(texts[token])
    except VocabularyError as error:
        raise VocabularyError(f"{path}: {error}") from error
    eos_fields = [fields.get(f"tokenizer.ggml.{end}_token_id") for end in ENDS]
    ends = [end for end in eos_fields if type(end) is int and 0 <= end < len(tokens)]
    special = {token for token, data in enumerate(tokens) if data is None}
    added = {texts[token]: token for token, kind in enumerate(kinds) if token in special or kind == TokenType.LITERAL}
    return TokenTable(tokens, frozenset(special), tuple(dict.fromkeys(ends)), added)


def _kinds_of(path: Path, types: Any, count: int) -> list[Any]:
    """Return the types of all tokens. Raises VocabularyError."""
    if types is None:
        return [TokenType.NORMAL] * count
    if not isinstance(types, np.ndarray):
        raise VocabularyError(f"{path} has token types that are not integers; download it again")
    kinds: list[Any] = cast("NDArray[Any]", types).tolist()
    if len(kinds) != count:
        raise VocabularyError(f"{path} has {count:,} tokens, but token types of {len(kinds):,}; download it again")
    return kinds
