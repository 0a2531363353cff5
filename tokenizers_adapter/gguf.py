"""The vocabulary of a GGUF file. Reads the header only, without llama.cpp or `gguf`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..checks import brief
from ..errors import VocabularyError
from .gguf_header import ENDS, MAGIC, GGUFError, TokenType, mapped, read_header
from .spelling import SPACE_MARK, Spell, TokenTable, encoded, replace, spell_byte_level, spell_text

_SPELLINGS = {"gpt2": True, "llama": False, "t5": False, "bert": False}
"""Tokenizers of llama.cpp; True for byte-level spelling, False for text with a space mark."""


def is_gguf(path: Path) -> bool:
    """Test whether a file begins with the magic bytes of GGUF."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_gguf(path: Path) -> TokenTable:
    """Return the tokens of a GGUF file. EOS ids are those of EOS, end of turn and end of message that it names.

    Raises VocabularyError for a damaged file, one without a vocabulary, or one with another spelling.
    """
    try:
        with mapped(path) as data:
            fields = read_header(data).metadata
    except GGUFError as error:
        raise VocabularyError(f"{path} is damaged: its head cannot be read ({error}); download it again") from error
    texts, model = fields.get("tokenizer.ggml.tokens"), fields.get("tokenizer.ggml.model")
    if not isinstance(texts, list) or not texts or not isinstance(model, str) or model not in _SPELLINGS:
        raise VocabularyError(
            f"{path} has a vocabulary of the kind {brief(model)}, and {', '.join(_SPELLINGS)} can be read; "
            "build Vocabulary(tokens, eos_ids) from the bytes of each token yourself"
        )
    texts = cast("list[str]", texts)
    kinds = _kinds_of(path, fields.get("tokenizer.ggml.token_type"), len(texts))
    spell: Spell = spell_byte_level() if _SPELLINGS[model] else spell_text([replace(SPACE_MARK, " ")], True)
    own = [token for token, kind in enumerate(kinds) if kind in (TokenType.NORMAL, TokenType.BYTE)]
    tokens: list[bytes | None] = [None] * len(texts)  # None for control, unknown and unused tokens
    try:
        for token, data in zip(own, spell([texts[token] for token in own]), strict=True):
            tokens[token] = data
        for token, kind in enumerate(kinds):
            if kind == TokenType.LITERAL:
                tokens[token] = encoded(texts[token])
    except VocabularyError as error:
        raise VocabularyError(f"{path}: {error}") from error
    found = [fields.get(f"tokenizer.ggml.{end}_token_id") for end in ENDS]
    ends = [end for end in found if type(end) is int and 0 <= end < len(tokens)]
    special = {token for token, data in enumerate(tokens) if data is None}
    added = {texts[token]: token for token, kind in enumerate(kinds) if token in special or kind == TokenType.LITERAL}
    return TokenTable(tokens, frozenset(special), tuple(dict.fromkeys(ends)), added)


def _kinds_of(path: Path, given: Any, count: int) -> list[Any]:
    """Return the types of all tokens. Raises VocabularyError."""
    if given is None:
        return [TokenType.NORMAL] * count
    if not isinstance(given, np.ndarray):
        raise VocabularyError(f"{path} has kinds of tokens that are no numbers; download it again")
    kinds: list[Any] = cast("NDArray[Any]", given).tolist()
    if len(kinds) != count:
        raise VocabularyError(f"{path} has {count:,} tokens, and kinds of {len(kinds):,}; download it again")
    return kinds
