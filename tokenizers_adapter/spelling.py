"""Spellings of bytes as strings by tokenizers: byte-level alphabets, byte fallback, space marks, word marks."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

from ..errors import VocabularyError

SPACE_MARK = "\u2581"

Spell = Callable[[Sequence[str]], list[bytes]]
"""Maps the strings of tokens to their bytes."""
Rewrite = Callable[[str], str]

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class TokenTable:
    """The tokens of a tokenizer. tokens[i] has the bytes of token i, None if it has no text.

    added: ids of added tokens, special ones and others, by the tokenizer's string
    """

    tokens: list[bytes | None]
    special_ids: frozenset[int]
    eos_ids: tuple[int, ...]
    added: dict[str, int] = field(default_factory=dict[str, int])


@cache
def byte_level_alphabet() -> str:
    """Return the 256 characters that represent the bytes 0 to 255 in GPT-2's byte-level BPE.

    Printable characters of Latin-1 represent themselves, the other bytes U+0100, U+0101 ... in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


def spell_byte_level(rewrites: Iterable[Rewrite] = ()) -> Spell:
    """Return the spelling of byte-level tokens. Tokens with characters outside the alphabet are text in UTF-8."""
    table = codecs.charmap_build(byte_level_alphabet())
    rewrites = tuple(rewrites)

    def spell(tokens: Sequence[str]) -> list[bytes]:
        tokens = [_rewrite(token, rewrites) for token in tokens] if rewrites else tokens
        try:  # encode all tokens in one call; each character is one byte
            data = codecs.charmap_encode("".join(tokens), "strict", table)[0]
        except UnicodeEncodeError:
            return [_byte_level(token, table) for token in tokens]
        return [data[begin:end] for begin, end in pairwise(accumulate(map(len, tokens), initial=0))]

    return spell


def spell_text(rewrites: Iterable[Rewrite] = (), byte_fallback: bool = False) -> Spell:
    """Return the spelling of tokens whose strings are text after `rewrites`. byte_fallback: `<0xNN>` is the byte NN"""
    rewrites = tuple(rewrites)

    def spell(tokens: Sequence[str]) -> list[bytes]:
        return [
            bytes([int(match[1], 16)])
            if byte_fallback and len(token) == 6 and (match := _BYTE_TOKEN.fullmatch(token))
            else encode_text(_rewrite(token, rewrites))
            for token in tokens
        ]

    return spell


def _rewrite(token: str, rewrites: Sequence[Rewrite]) -> str:
    for rewrite in rewrites:
        token = rewrite(token)
    return token


def _byte_level(token: str, table: Any) -> bytes:
    try:
        return codecs.charmap_encode(token, "strict", table)[0]
    except UnicodeEncodeError:
        return encode_text(token)


def encode_text(token: str) -> bytes:
    """Return a token's string in UTF-8. Raises VocabularyError for lone surrogates."""
    try:
        return token.encode()
    except UnicodeEncodeError as error:
        raise VocabularyError(
            f"the token {token[:50]!r} has a lone surrogate at character {error.start}, which no UTF-8 can have; "
            "build Vocabulary(tokens, eos_ids) from the bytes of each token yourself"
        ) from None


def replace(old: str, new: str) -> Rewrite:
    """Return a rewriting that replaces every `old` by `new`, such as the space mark by a space."""
    return lambda token: token.replace(old, new)


def strip(content: str, start: int, stop: int) -> Rewrite:
    """Return a rewriting that strips up to `start` leading and `stop` trailing characters `content`."""

    def rewrite(token: str) -> str:
        first, last = 0, len(token)
        while first < min(start, last) and token[first] == content:
            first += 1
        while last > first and len(token) - last < stop and token[last - 1] == content:
            last -= 1
        return token[first:last]

    return rewrite


def word_start(prefix: str) -> Rewrite:
    """Return a rewriting that removes `prefix`, which continues a word, or else puts a space before the token."""
    return lambda token: token[len(prefix) :] if token.startswith(prefix) else " " + token


def word_part(suffix: str) -> Rewrite:
    """Return a rewriting that removes `suffix`, with which the word continues, or else puts a space after the token."""
    return lambda token: token[: -len(suffix)] if token.endswith(suffix) else token + " "


def word_end(suffix: str) -> Rewrite:
    """Return a rewriting that replaces `suffix`, the end of a word, by a space after the token."""
    return lambda token: token[: -len(suffix)] + " " if token.endswith(suffix) else token
