"""Small tokenizers of every kind, trained or put together on the spot."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog sleeps on.",
    "def add(left, right):\n    return left + right  # sums\n",
    "Straße, naïve café, 世界 and 日本語, Привет мир, 🙂🙂 and 👩‍👩‍👧.",
    "numbers 0 1 2 3 44 555 6666, 7.5 and -8e9; tabs\tand\r\nlines",
] * 4
SPECIAL = ["<unk>", "<s>", "</s>"]


def byte_level_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False),
    )
    return tokenizer


def byte_level_bpe_without_decoder() -> Tokenizer:
    tokenizer = byte_level_bpe()
    bare = Tokenizer(tokenizer.model)
    bare.pre_tokenizer = tokenizer.pre_tokenizer
    bare.add_special_tokens(SPECIAL)
    return bare


def _unigram_pieces() -> list[tuple[str, float]]:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    by_id = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return [(piece, 0.0 if piece in SPECIAL else -5.0 - 0.01 * token) for piece, token in by_id]


def unigram() -> Tokenizer:
    """As T5: no byte fallback, what is unknown is lost."""
    tokenizer = Tokenizer(models.Unigram(_unigram_pieces(), unk_id=0))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizer


def unigram_with_bytes() -> Tokenizer:
    pieces = _unigram_pieces() + [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def llama2_bpe() -> Tokenizer:
    """As Llama 2: the normalizer writes the space marks, one more at the beginning."""
    pieces = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "t", "h", "e", "th", "the", "▁the"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the")]
    model = models.BPE(
        {piece: token for token, piece in enumerate(pieces)},
        merges,
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[SEP]"], show_progress=False)
    tokenizer.train_from_iterator([*CORPUS, " ".join("abcdefghijklmnopqrstuvwxyz,.;!?()")], trainer)
    return tokenizer


def characters() -> Tokenizer:
    """One token for each character, no decoder at all."""
    alphabet = ["<unk>", *sorted(set("".join(CORPUS)))]
    model = models.BPE({piece: token for token, piece in enumerate(alphabet)}, [], unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.add_tokens([AddedToken("</s>", special=True)])
    return tokenizer


MAKERS: list[Callable[[], Tokenizer]] = [
    byte_level_bpe,
    byte_level_bpe_without_decoder,
    unigram,
    unigram_with_bytes,
    llama2_bpe,
    word_piece,
    characters,
]


@pytest.fixture(scope="session")
def trained() -> Callable[[str], Tokenizer]:
    """Small tokenizers by kind; each has an end token: `</s>`, or `[SEP]` for word pieces."""
    made = {maker.__name__: maker() for maker in MAKERS}
    return made.__getitem__
