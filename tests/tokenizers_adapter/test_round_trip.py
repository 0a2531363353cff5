"""text -> ids -> joined token bytes is the text again, for every kind of tokenizer."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer
from trellm import Vocabulary

TEXTS = [
    "",
    " ",
    "   two  spaces   and three   ",
    "Hello, world! It's 12345678 o'clock.",
    "Zürich naïve œuvre ﬁ Å Å e\u0301\u0327",
    "日本語のテキスト、한국어 और हिन्दी",
    "العربية עברית \u202eright to left\u202c",
    "🙂👩‍👩‍👧‍👦🏳️‍🌈🇨🇭 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010ffff",
    "".join(map(chr, range(32))) + "\x7f\x80\x85\x9f\xa0\xad\u200b\u2028\ufeff\ufffd",
    "\n\n\n\r\n\t\t\x00\x00",
    "def f(x: int) -> str:\n\treturn f'{x!r:>{10}}'  # naïve\n\n\nclass A:\n    pass\n",
    'int main(void) { for (;;) printf("%d\\n", a[i]->b); }\r\n',
    '{"key": [1, 2.5e-3, null, "\\u00e9"], "": {}}',
    "▁marks ▁▁ themselves▁",
    "<0x41> ##suffix Ġword Ċ </w> @@ _ <tool>",
]
texts = st.sampled_from(TEXTS) | st.text(max_size=30) | st.text("aàß ĠĊ.\n\t🙂e\u0301", max_size=30)
quick = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@cache
def load(folder: Path) -> tuple[Any, Vocabulary]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return tokenizer, Vocabulary.from_tokenizer(tokenizer)


def joined(vocabulary: Vocabulary, ids: list[int]) -> str:
    return vocabulary.decode(ids).decode()


def spaced(text: str) -> tuple[str, str]:
    """What a tokenizer that marks spaces makes of `text`: perhaps one more space first; a mark is a space."""
    text = text.replace("\u2581", " ")
    return text, " " + text


@pytest.mark.parametrize("name", ["llama3", "gpt2"])
@quick
@given(text=texts)
def test_real_byte_level(shared_data: Path, name: str, text: str) -> None:
    tokenizer, vocabulary = load(shared_data / "tokenizers" / name)
    assert joined(vocabulary, tokenizer(text, add_special_tokens=False)["input_ids"]) == text


@quick
@given(text=texts)
def test_real_sentencepiece(shared_data: Path, text: str) -> None:
    tokenizer, vocabulary = load(shared_data / "tokenizers" / "mistral-v1")
    again = joined(vocabulary, tokenizer(text, add_special_tokens=False)["input_ids"])
    assert again in spaced(text)
    assert text == "" or again.startswith(" ")


@pytest.mark.parametrize("name", ["llama3", "gpt2", "mistral-v1"])
def test_real_vocabularies_can_spell_every_byte(shared_data: Path, name: str) -> None:
    tokenizer, vocabulary = load(shared_data / "tokenizers" / name)
    assert {bytes([byte]) for byte in range(256)} <= set(vocabulary.tokens)
    special = {t for t, content in tokenizer.added_tokens_decoder.items() if content.special}
    assert {t for t, text in enumerate(vocabulary.tokens) if text is None} == special == vocabulary.special_ids
    assert vocabulary.size == len(tokenizer)
    assert vocabulary.eos_ids == (tokenizer.eos_token_id,)
    assert special <= set(tokenizer.convert_tokens_to_ids(list(vocabulary.added_tokens)))


@pytest.mark.parametrize("name", ["llama3", "gpt2", "mistral-v1"])
@quick
@given(data=st.data())
def test_real_tokenizers_decode_alike(shared_data: Path, name: str, data: st.DataObject) -> None:
    tokenizer, vocabulary = load(shared_data / "tokenizers" / name)
    ids = data.draw(st.lists(st.integers(0, vocabulary.size - 1).filter(vocabulary.tokens.__getitem__)))
    check_decode(vocabulary, ids, tokenizer.decode(ids))


def check_decode(vocabulary: Vocabulary, ids: list[int], decoded: str) -> None:
    """Joined bytes are what the tokenizer decodes, except for a space at the beginning; if they are text."""
    try:
        text = joined(vocabulary, ids)
    except UnicodeDecodeError:
        assert "\ufffd" in decoded
    else:
        assert decoded in (text, text.removeprefix(" "))


@pytest.mark.parametrize("kind", ["byte_level_bpe", "byte_level_bpe_without_decoder"])
@quick
@given(text=texts)
def test_byte_level(trained: Callable[[str], Tokenizer], kind: str, text: str) -> None:
    vocabulary = Vocabulary.from_tokenizer(trained(kind), eos_ids=2)
    assert joined(vocabulary, trained(kind).encode(text).ids) == text


@pytest.mark.parametrize("kind", ["unigram_with_bytes", "llama2_bpe"])
@quick
@given(text=texts.filter(lambda text: "<0x" not in text))  # the byte tokens' own strings are taken for bytes
def test_byte_fallback(trained: Callable[[str], Tokenizer], kind: str, text: str) -> None:
    vocabulary = Vocabulary.from_tokenizer(trained(kind), eos_ids=2)
    assert joined(vocabulary, trained(kind).encode(text).ids) in spaced(text)


@quick
@given(text=st.text("The quick世界🙂. \n", max_size=30))
def test_unigram_without_bytes(trained: Callable[[str], Tokenizer], text: str) -> None:
    vocabulary = Vocabulary.from_tokenizer(trained("unigram"), eos_ids=2)
    assert joined(vocabulary, trained("unigram").encode(text).ids) in spaced(text)


@quick
@given(words=st.lists(st.text("abcxyz", min_size=1, max_size=9) | st.sampled_from(",.;!?("), max_size=8))
def test_word_piece(trained: Callable[[str], Tokenizer], words: list[str]) -> None:
    vocabulary = Vocabulary.from_tokenizer(trained("word_piece"), eos_ids=2)
    spaced = "".join(" " + word for word in words)
    assert joined(vocabulary, trained("word_piece").encode(spaced).ids) == spaced


@quick
@given(text=st.text("The quick世界🙂é. \n\t", max_size=30))
def test_characters(trained: Callable[[str], Tokenizer], text: str) -> None:
    tokenizer = trained("characters")
    vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_ids=tokenizer.token_to_id("</s>"))
    assert joined(vocabulary, tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("kind", ["byte_level_bpe", "unigram", "unigram_with_bytes", "llama2_bpe", "word_piece"])
@quick
@given(data=st.data())
def test_trained_tokenizers_decode_alike(trained: Callable[[str], Tokenizer], kind: str, data: st.DataObject) -> None:
    vocabulary = Vocabulary.from_tokenizer(trained(kind), eos_ids=2)
    ids = data.draw(st.lists(st.integers(0, vocabulary.size - 1).filter(vocabulary.tokens.__getitem__)))
    if kind == "word_piece":  # its decoder reads no mark on the first token
        ids = trained(kind).encode("and").ids + ids
    check_decode(vocabulary, ids, trained(kind).decode(ids))


@cache
def local_encoding() -> tiktoken.Encoding:
    """256 bytes in an order of their own, and a few merges."""
    singles = [bytes([(byte * 37 + 5) % 256]) for byte in range(256)]
    merges = [
        b"th",
        b"the",
        b" t",
        b" the",
        "é".encode(),
        "🙂".encode()[:2],
        "🙂".encode()[2:],
        "🙂".encode(),
    ]
    return tiktoken.Encoding(
        "local",
        pat_str=r" ?\p{L}+|\s+|[^\s\p{L}]+",
        mergeable_ranks={data: rank for rank, data in enumerate([*singles, *merges])},
        special_tokens={"<|endoftext|>": 270, "<|fim|>": 271},
    )


@quick
@given(text=texts | st.text("the 🙂é", max_size=20))
def test_tiktoken(text: str) -> None:
    encoding = local_encoding()
    vocabulary = Vocabulary.from_tokenizer(encoding)
    assert joined(vocabulary, encoding.encode(text)) == text


def test_tiktoken_special_tokens_and_holes() -> None:
    vocabulary = Vocabulary.from_tokenizer(local_encoding())
    assert vocabulary.size == 272
    assert vocabulary.tokens[264:] == [None] * 8
    assert vocabulary.eos_ids == (270,)
    assert vocabulary.special_ids == set(vocabulary.added_tokens.values()) == {270, 271}
    assert vocabulary.tokens[260:264] == ["é".encode(), b"\xf0\x9f", b"\x99\x82", "🙂".encode()]


def test_the_texts_are_not_tame() -> None:
    assert {unicodedata.category(character) for text in TEXTS for character in text} >= {
        "Cc", "Cf", "Lu", "Ll", "Lo", "Mn", "So", "Zs", "Zl", "Nd", "Cn",
    }  # fmt: skip
