"""Which kind of tokenizer an object is, and what it says of its tokens."""

from __future__ import annotations

from typing import Any

from ..errors import VocabularyError
from .encodings import read_encoding
from .fast import read_fast
from .slow import read_slow
from .spelling import TokenTable


def read_tokenizer(tokenizer: Any) -> TokenTable:
    """The tokens of any supported tokenizer, recognised by what it offers, so that no library is imported.

    Raises VocabularyError for anything else.
    """
    wrapped = [getattr(tokenizer, name, None) for name in ("backend_tokenizer", "_tokenizer")]
    for backend in (tokenizer, *wrapped):
        if hasattr(backend, "get_added_tokens_decoder"):
            return read_fast(tokenizer, backend)
    if hasattr(tokenizer, "token_byte_values"):
        return read_encoding(tokenizer)
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        return read_slow(tokenizer)
    if hasattr(tokenizer, "tokenizer"):  # a processor of text and images or sound
        return read_tokenizer(tokenizer.tokenizer)
    raise VocabularyError(
        f"{type(tokenizer).__name__} is not a tokenizer that can be read; pass a Hugging Face tokenizer, a "
        "tokenizers.Tokenizer or a tiktoken.Encoding, or build Vocabulary(tokens, eos_ids) yourself"
    )
