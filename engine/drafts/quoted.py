"""The tokens of what follows in a document that is being quoted."""

from __future__ import annotations

from typing import Any

from ..models.protocol import Model

AHEAD = 256
"""Bytes of the document that are looked at."""


def following(model: Model, data: bytes) -> list[int]:
    """The tokens that the model's tokenizer makes of a text, but for its last, which may be cut off in it.

    Nothing where it writes other bytes, such as a space in front, or cannot write them.
    """
    # A character that is cut off at the end is left out.
    text = data[:AHEAD].decode(errors="ignore")
    if not text:
        return []
    try:
        encoded: Any = model.tokenizer.encode(text)
        ids: list[int] = list(getattr(encoded, "ids", encoded))
    except Exception:  # nobody asked for these tokens
        return []
    spelling = model.vocabulary.tokens
    tokens = [token for token in ids if spelling[token]]
    written = b"".join(spelling[token] or b"" for token in tokens)
    return tokens[: len(tokens) - (len(data) > len(written))] if text.encode() == written else []
