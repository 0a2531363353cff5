"""tiktoken encodings."""

from __future__ import annotations

from typing import Any

from .spelling import TokenTable


def read_encoding(encoding: Any) -> TokenTable:
    """The tokens of a `tiktoken.Encoding`. EOS is its `<|endoftext|>`, where it has one."""
    tokens: list[bytes | None] = [None] * encoding.n_vocab
    for data in encoding.token_byte_values():
        tokens[encoding.encode_single_token(data)] = data
    special = {name: encoding.encode_single_token(name) for name in encoding.special_tokens_set}
    eos: int | None = special.get("<|endoftext|>")
    return TokenTable(tokens, frozenset(special.values()), () if eos is None else (eos,))
