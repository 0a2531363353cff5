"""Dispatch over kinds of tokenizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import VocabularyError
from .fast import read_fast
from .files import read_file, read_mistral
from .slow import read_slow
from .spelling import TokenTable


def read_tokenizer(tokenizer: Any) -> TokenTable:
    """Return the tokens of any supported tokenizer. Kinds are recognised by attributes, without importing libraries.

    Raises VocabularyError for other objects.
    """
    if isinstance(tokenizer, (str, Path)):
        return read_file(tokenizer)
    if isinstance(tokenizer, type):
        raise VocabularyError(f"{tokenizer.__name__} is a class, not a tokenizer; make or load one of it")
    mistral = _mistral(tokenizer)
    if mistral is not None:
        return read_mistral(mistral)
    if hasattr(tokenizer, "model_path") and hasattr(tokenizer, "n_vocab"):  # a Llama of llama-cpp-python
        return read_file(tokenizer.model_path)
    wrapped = [getattr(tokenizer, name, None) for name in ("backend_tokenizer", "_tokenizer")]
    for backend in (tokenizer, *wrapped):
        if hasattr(backend, "get_added_tokens_decoder"):
            return read_fast(tokenizer, backend)
    if hasattr(tokenizer, "token_byte_values"):
        return _read_encoding(tokenizer)
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        return read_slow(tokenizer)
    if hasattr(tokenizer, "tokenizer"):  # a processor of text and images or audio
        return read_tokenizer(tokenizer.tokenizer)
    raise VocabularyError(
        f"{type(tokenizer).__name__} is not a tokenizer that can be read; pass a Hugging Face tokenizer, a "
        "tokenizers.Tokenizer, a tiktoken.Encoding, one of mistral-common, or the path of a tokenizer.json or a GGUF "
        "file; or build Vocabulary(tokens, eos_ids) yourself"
    )


def _mistral(tokenizer: Any) -> Any:
    """Return the inner tokenizer of mistral-common, also from a wrapper; None for others."""
    for outer in (tokenizer, getattr(tokenizer, "tokenizer", None)):
        inner: Any = getattr(getattr(outer, "instruct_tokenizer", outer), "tokenizer", outer)
        if hasattr(inner, "n_words") and hasattr(inner, "special_ids"):
            return inner
    return None


def _read_encoding(encoding: Any) -> TokenTable:
    """Return the tokens of a `tiktoken.Encoding`. EOS is its `<|endoftext|>`, if it has one."""
    tokens: list[bytes | None] = [None] * encoding.n_vocab
    for data in encoding.token_byte_values():
        tokens[encoding.encode_single_token(data)] = data
    special = {name: encoding.encode_single_token(name) for name in encoding.special_tokens_set}
    eos: int | None = special.get("<|endoftext|>")
    return TokenTable(tokens, frozenset(special.values()), () if eos is None else (eos,), special)
