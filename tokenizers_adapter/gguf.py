"""The vocabulary in a GGUF file, as llama.cpp has it. Only the head of the file is read, and no library is needed.

The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from ..checks import brief
from ..errors import VocabularyError
from .spelling import SPACE_MARK, Spell, TokenTable, encoded, replace, spell_byte_level, spell_text

_MAGIC = b"GGUF"
# Numbers by the format's code of their type; 8 is a text, 9 an array
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9

# What tokenizer.ggml.token_type says of a token
_NORMAL, _LITERAL, _BYTE = 1, 4, 6
_SPELLINGS = {"gpt2": True, "llama": False, "t5": False, "bert": False}
"""The tokenizers of llama.cpp that spell tokens by the bytes' alphabet (True), or by text with a mark for spaces."""
_ENDS = ("eos", "eot", "eom")


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF files do."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_gguf(path: Path) -> TokenTable:
    """The tokens of a GGUF file; texts end with its EOS, end of turn and end of message, where it names them.

    Raises VocabularyError for a file that is damaged or has no vocabulary, or one in another spelling.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            fields = _Head(data).fields()
    except (struct.error, ValueError, IndexError, UnicodeDecodeError, MemoryError) as error:
        raise VocabularyError(f"{path} is damaged: its head cannot be read ({error}); download it again") from error
    texts: list[str] | None = fields.get("tokenizer.ggml.tokens")
    model: Any = fields.get("tokenizer.ggml.model")
    if not texts or model not in _SPELLINGS:
        raise VocabularyError(
            f"{path} has a vocabulary of the kind {brief(model)}, and {', '.join(_SPELLINGS)} can be read; "
            "build Vocabulary(tokens, eos_ids) from the bytes of each token yourself"
        )
    kinds: list[int] = fields.get("tokenizer.ggml.token_type") or [_NORMAL] * len(texts)
    if len(kinds) != len(texts):
        raise VocabularyError(f"{path} has {len(texts):,} tokens, and kinds of {len(kinds):,}; download it again")
    spell: Spell = spell_byte_level() if _SPELLINGS[model] else spell_text([replace(SPACE_MARK, " ")], True)
    tokens = [_bytes_of(text, kind, spell) for text, kind in zip(texts, kinds, strict=True)]
    ends = [fields[name] for end in _ENDS if (name := f"tokenizer.ggml.{end}_token_id") in fields]
    special = {token for token, data in enumerate(tokens) if data is None}
    return TokenTable(tokens, frozenset(special), tuple(dict.fromkeys(end for end in ends if end < len(tokens))))


def _bytes_of(text: str, kind: int, spell: Spell) -> bytes | None:
    """The bytes of a token; None for control tokens, the unknown one and those that are not used."""
    if kind == _LITERAL:
        return encoded(text)
    return spell(text) if kind in (_NORMAL, _BYTE) else None


class _Head:
    """What stands in a GGUF file before the tensors, read from front to back."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        if data[:4] != _MAGIC:
            raise ValueError("it is no GGUF file")
        self._at = 4
        version = self._number("I")
        if version not in (2, 3):
            raise ValueError(f"version {version}, where 2 and 3 are known, with the least byte first")

    def fields(self) -> dict[str, Any]:
        """All fields by name."""
        self._number("Q")  # how many tensors there are
        return {self._text(): self._value(self._number("I")) for _ in range(self._number("Q"))}

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind != _ARRAY:
            if kind not in _NUMBERS:
                raise ValueError(f"a field of the type {kind}")
            return self._number(_NUMBERS[kind])
        item, count = self._number("I"), self._number("Q")
        if count > len(self._data):
            raise ValueError(f"an array of {count:,}")
        if item not in _NUMBERS:
            return [self._value(item) for _ in range(count)]
        found = struct.unpack_from(f"<{count}{_NUMBERS[item]}", self._data, self._at)
        self._at += struct.calcsize(f"<{count}{_NUMBERS[item]}")
        return list(found)

    def _number(self, code: str) -> Any:
        (found,) = struct.unpack_from(f"<{code}", self._data, self._at)
        self._at += struct.calcsize(f"<{code}")
        return found

    def _text(self) -> str:
        length = self._number("Q")
        if length > len(self._data) - self._at:
            raise ValueError(f"a text of {length:,} bytes")
        begin, self._at = self._at, self._at + length
        # Tokens that are no UTF-8 are there as they are
        return self._data[begin : self._at].decode("utf-8", "surrogateescape")
