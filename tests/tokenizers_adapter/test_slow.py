"""Tokenizers written in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import ByT5Tokenizer, CTRLTokenizer, PreTrainedTokenizerFast
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy
from transformers.tokenization_utils_sentencepiece import SentencePieceBackend
from trellm import Vocabulary
from trellm.errors import VocabularyError


@pytest.fixture(scope="module")
def sentencepiece(shared_data: Path) -> SentencePieceBackend:
    model = shared_data / "tokenizers" / "mistral-v1" / "tokenizer.model"
    return SentencePieceBackend(
        vocab_file=str(model), unk_token="<unk>", bos_token="<s>", eos_token="</s>", legacy=True
    )


def test_sentencepiece_equals_the_fast_tokenizer(sentencepiece: SentencePieceBackend, shared_data: Path) -> None:
    slow = Vocabulary.from_tokenizer(sentencepiece)
    folder = shared_data / "tokenizers" / "mistral-v1"
    fast = Vocabulary.from_tokenizer(
        PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), eos_token="</s>")
    )
    assert slow.tokens == fast.tokens
    assert slow.fingerprint == fast.fingerprint


def test_sentencepiece_added_tokens(sentencepiece: SentencePieceBackend) -> None:
    tokenizer = SentencePieceBackend(vocab_file=sentencepiece.vocab_file, unk_token="▁the", eos_token="</s>")
    tokenizer.add_tokens(["▁▁▁▁", "<tool>", "▁new▁"])
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.tokens[:3] == [None] * 3  # <unk> and <s> are named nowhere, but they are control pieces
    assert vocabulary.tokens[tokenizer.convert_tokens_to_ids("▁the")] is None
    assert vocabulary.tokens[tokenizer.convert_tokens_to_ids("▁▁▁▁")] == b"    "
    assert vocabulary.tokens[32000:] == [b"<tool>", "▁new▁".encode()]


def test_sentencepiece_round_trip(sentencepiece: SentencePieceBackend) -> None:
    vocabulary = Vocabulary.from_tokenizer(sentencepiece)

    @settings(max_examples=60, derandomize=True, deadline=None)
    @given(st.text(max_size=30).filter(lambda text: "\u2581" not in text))
    def check(text: str) -> None:
        ids = sentencepiece.encode(text, add_special_tokens=False)
        assert vocabulary.decode(ids).decode() in (text, " " + text)

    check()


def test_bytes() -> None:
    tokenizer = ByT5Tokenizer()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.tokens[:3] == [None] * 3
    assert vocabulary.tokens[3:259] == [bytes([byte]) for byte in range(256)]
    assert vocabulary.tokens[259:] == [None] * 125
    text = "né 🙂\x00\n"
    assert vocabulary.decode(tokenizer.encode(text)).decode() == text


def test_word_piece(tmp_path: Path) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "##s", "wor", "##ld", ","]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    tokenizer = BertTokenizerLegacy(str(tmp_path / "vocab.txt"))
    vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_ids=tokenizer.sep_token_id)
    assert vocabulary.tokens == [*[None] * 5, b" hello", b"s", b" wor", b"ld", b" ,"]
    assert vocabulary.decode(tokenizer.encode("hellos, world")) == b" hellos , world"


def test_joined_words(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({"<unk>": 0, "he@@": 1, "llo": 2, "wor@@": 3}))
    (tmp_path / "merges.txt").write_text("#version\nh e\n")
    tokenizer = CTRLTokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    assert Vocabulary.from_tokenizer(tokenizer, eos_ids=0).tokens == [None, b"he", b"llo ", b"wor"]


class PythonTokenizer:
    """As little of a Python tokenizer as is read, with its own way of joining tokens."""

    all_special_ids = (0,)
    eos_token_id = 0

    def __init__(self, tokens: list[str], joint: str, mark: str = "") -> None:
        self.tokens = ["<end>", *tokens]
        self.joint, self.mark = joint, mark
        self.added_tokens_decoder: dict[int, object] = {}

    def get_vocab(self) -> dict[str, int]:
        return {text: token for token, text in enumerate(self.tokens)}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.tokens[token] for token in ids]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        text = self.joint.join(tokens)
        return text.replace(self.mark, " ") if self.mark else text


def test_ways_of_joining() -> None:
    def read(*arguments: object) -> list[bytes | None]:
        return Vocabulary.from_tokenizer(PythonTokenizer(*arguments)).tokens  # type: ignore[arg-type]

    assert read(["a", "世", "b c"], "") == [None, b"a", "世".encode(), b"b c"]
    assert read(["▁a", "b", "▁"], "", "▁") == [None, b" a", b"b", b" "]
    assert read(["ab</w>", "c"], "", "</w>") == [None, b"ab ", b"c"]
    assert read(["a", "b"], " ") == [None, b" a", b" b"]


@pytest.mark.parametrize(
    "tokenizer",
    [PythonTokenizer(["ab", "cd"], "-"), PythonTokenizer(["\ufffd", "a\ufffd", "b"], "")],
)
def test_unknown_ways_of_joining_are_refused(tokenizer: PythonTokenizer) -> None:
    with pytest.raises(VocabularyError, match="cannot tell which bytes the tokens of PythonTokenizer"):
        Vocabulary.from_tokenizer(tokenizer)
