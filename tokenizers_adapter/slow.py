"""Hugging Face tokenizers written in Python.

They do not describe the spelling of their strings, but join tokens into text. A known spelling is accepted if it joins
the whole vocabulary as the tokenizer does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import VocabularyError
from .spelling import (
    SPACE_MARK,
    Spell,
    TokenTable,
    byte_level_alphabet,
    encode_text,
    replace,
    spell_byte_level,
    spell_text,
    word_end,
    word_part,
    word_start,
)


def read_slow(tokenizer: Any) -> TokenTable:
    """Return the tokens of a Python tokenizer, from its SentencePiece model or from how it joins tokens.

    Raises VocabularyError if no known spelling explains how the tokenizer joins them.
    """
    added: dict[int, Any] = tokenizer.added_tokens_decoder
    special = {token for token, content in added.items() if content.special}
    special.update(token for token in tokenizer.all_special_ids if token is not None)
    ids = sorted(set(tokenizer.get_vocab().values()) | set(added))
    literal = {t for t, content in added.items() if not _is_piece(tokenizer, content.content)}
    piece_ids = [token for token in ids if token not in literal and token not in special]
    pieces: list[str | bytes] = tokenizer.convert_ids_to_tokens(piece_ids)

    tokens: list[bytes | None] = [None] * (1 + max(ids, default=-1))
    for token in literal - special:
        tokens[token] = encode_text(added[token].content)
    model = getattr(tokenizer, "sp_model", None)
    if model is None:
        strings = [piece for piece in pieces if isinstance(piece, str)]
        spell, textless = _spelling_by_joining(tokenizer, strings), set[str]()
    else:
        spell, textless = _spelling_of_pieces(model)
    for token, piece in zip(piece_ids, pieces, strict=True):
        if piece not in textless:
            tokens[token] = piece if isinstance(piece, bytes) else spell([piece])[0]
    eos: int | None = tokenizer.eos_token_id
    named = {text: token for text, token in tokenizer.get_vocab().items() if token in literal or token in special}
    return TokenTable(tokens, frozenset(special), () if eos is None else (eos,), named)


def read_pieces(model: Any) -> tuple[list[bytes | None], frozenset[int]]:
    """Return the bytes of each piece of a `sentencepiece.SentencePieceProcessor`, and the pieces without any."""
    spell, textless = _spelling_of_pieces(model)
    pieces: list[str] = [model.id_to_piece(piece) for piece in range(model.get_piece_size())]
    special = frozenset(number for number, piece in enumerate(pieces) if piece in textless)
    return [None if number in special else spell([piece])[0] for number, piece in enumerate(pieces)], special


def _is_piece(tokenizer: Any, text: str) -> bool:
    """Test whether the tokenizer's SentencePiece model has the piece `text`, and produces it from ordinary text."""
    model = getattr(tokenizer, "sp_model", None)
    return model is not None and model.id_to_piece(model.piece_to_id(text)) == text


def _spelling_of_pieces(model: Any) -> tuple[Spell, set[str]]:
    """Return the spelling of the pieces of a `sentencepiece.SentencePieceProcessor`, and the pieces without text.

    These are control, unknown and unused pieces, which the model never produces from text.
    """
    pieces = range(model.get_piece_size())
    textless = [each for each in pieces if model.is_control(each) or model.is_unknown(each) or model.is_unused(each)]
    spell = spell_text([replace(SPACE_MARK, " ")], any(map(model.is_byte, pieces)))
    return spell, set(map(model.id_to_piece, textless))


def _spelling_by_joining(tokenizer: Any, tokens: Sequence[str]) -> Spell:
    """Return the spelling that joins `tokens` as the tokenizer does, apart from space at the ends."""
    spellings = [
        spell_text(),
        spell_text([replace(SPACE_MARK, " ")]),
        spell_text([replace(SPACE_MARK, " ")], byte_fallback=True),
        spell_text([word_start("##")]),
        spell_text([word_end("</w>")]),
        spell_text([word_part("@@")]),
    ]
    if set(byte_level_alphabet()).issuperset("".join(tokens)):
        spellings.insert(0, spell_byte_level())
    if all(len(token) == 1 and ord(token) < 256 for token in tokens):
        spellings.insert(0, lambda tokens: [token.encode("latin-1") for token in tokens])
    # With U+FFFD in more than one token, bytes were lost before, and cannot be restored.
    if sum("\ufffd" in token for token in tokens) < 2:
        # Tokenizers may ignore word marks at the ends of a text, so both ends must be whole words.
        tokens = sorted(tokens, key=lambda token: (token.startswith("##"), not token.endswith("@@")))
        text = tokenizer.convert_tokens_to_string(tokens).strip()
        for spell in spellings:
            joined = b"".join(spell(tokens))
            if text in (joined.decode(errors=errors).strip() for errors in ("replace", "ignore")):
                return spell
    raise VocabularyError(
        f"cannot tell which bytes the tokens of {type(tokenizer).__name__} stand for: its way of joining tokens is "
        "unknown; build Vocabulary(tokens, eos_ids) from the bytes of each token yourself"
    )
