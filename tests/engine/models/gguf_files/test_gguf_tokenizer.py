"""Tokenizers out of GGUF files: how texts are cut and merged, and what tokens are for."""

# transformers does not say of what its arguments are.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trellm import Vocabulary

from ..support import GGUFFile, GGUFTokenizer, tokenizer_of
from .tiny import BYTE, CONTROL, LITERAL, NORMAL, UNKNOWN, UNUSED, add_value, finish, words_of

gguf = pytest.importorskip("gguf")

SPACE = "\u2581"
TEXT = "I'll pay $1234.50 FOR don'T\n\n  x=\t12½"
PIECES = {
    "gpt-2": "I|'ll| pay| $|1234|.|50| FOR| don|'|T|\n\n | x|=|\t|12½",
    "smollm": "I|'ll| pay| $|1|2|3|4|.|5|0| FOR| don|'|T|\n\n | x|=|\t|1|2|½",
    "llama-bpe": "I|'ll| pay| $|123|4|.|50| FOR| don|'T|\n\n| | x|=|\t|12½",
    "qwen2": "I|'ll| pay| $|1|2|3|4|.|5|0| FOR| don|'T|\n\n| | x|=|\t|1|2|½",
    "tekken": "I|'ll| pay| $|1|2|3|4|.|5|0| FOR| don|'T|\n\n| | x|=|\t|1|2|½",
    "gpt-4o": "I'll| pay| $|123|4|.|50| FOR| don'T|\n\n| | x|=|\t|12½",
    "default": "I|'|ll| pay| |$|123|4|.|50| FOR| don|'|T|\n\n | x|=|\t|12½",
}
CHARACTERS = [SPACE, "t", "h", "e", "o", "n", SPACE + "t", "th", "he", SPACE + "th", SPACE + "the", "on", SPACE + "on"]


def made(folder: Path, words: dict[str, Any]) -> GGUFTokenizer:
    """The tokenizer of a file with these metadata."""
    writer = gguf.GGUFWriter(folder / "words.gguf", "llama")
    for key, value in words.items():
        if value is not None:
            add_value(writer, f"tokenizer.{key}" if key == "chat_template" else f"tokenizer.ggml.{key}", value)
    finish(writer)
    return tokenizer_of(GGUFFile.open(folder / "words.gguf"))


def sentences(**changed: Any) -> dict[str, Any]:
    """A vocabulary of SentencePiece: what is longer comes first."""
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *CHARACTERS, "<note>", "<free>"]
    scores = [0.0] * 259 + [float(len(text)) for text in CHARACTERS] + [0.0, 0.0]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(CHARACTERS), LITERAL, UNUSED]
    return {"model": "llama", "tokens": texts, "scores": scores, "token_type": kinds, **changed}


@pytest.mark.parametrize("name", PIECES)
def test_how_texts_are_cut(name: str, tmp_path: Path) -> None:
    tokenizer = made(tmp_path, {**words_of(288), "pre": name})
    pieces = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(TEXT)
    assert [TEXT[begin:end] for _, (begin, end) in pieces] == PIECES[name].split("|")


def test_merges_and_special_tokens(tmp_path: Path) -> None:
    tokenizer = made(tmp_path, words_of(288))
    texts = words_of(288)["tokens"]
    ids = tokenizer.encode("the the <turn>on12<note>[unused0]")
    assert [texts[token] for token in ids[:8]] == ["the", "Ġthe", "Ġ", "<turn>", "on", "12", "<note>", "["]
    assert tokenizer.decode(ids) == "the the <turn>on12<note>[unused0]"
    assert tokenizer.end_ids == [268, 269]
    vocabulary = Vocabulary.from_tokenizer(tokenizer, 288, tokenizer.end_ids)
    assert vocabulary.tokens[266] == b" 1"
    assert vocabulary.tokens[270] == b"<note>"
    assert [token for token in range(288) if vocabulary.tokens[token] is None] == [*range(267, 270), *range(271, 288)]


def test_a_whole_piece_is_a_token_whatever_merges_say(tmp_path: Path) -> None:
    words = words_of(288)
    words["tokens"][280] = "on12"
    words["token_type"][280] = NORMAL
    words["tokens"][281] = "nice"
    words["token_type"][281] = NORMAL
    assert made(tmp_path, {**words, "pre": "llama-bpe", "add_bos_token": False}).encode("nice") == [281]
    assert len(made(tmp_path, {**words, "pre": "dbrx"}).encode("nice")) == 4


@pytest.mark.parametrize(
    ("words", "first", "last"),
    [
        ({}, [], []),
        ({"pre": "llama-bpe"}, [267], []),
        ({"add_bos_token": True}, [267], []),
        ({"pre": "tekken", "add_bos_token": False}, [], []),
        ({"add_bos_token": True, "add_eos_token": True}, [267], [268]),
    ],
)
def test_what_texts_begin_and_end_with(
    words: dict[str, Any], first: list[int], last: list[int], tmp_path: Path
) -> None:
    tokenizer = made(tmp_path, {**words_of(288), **words})
    plain = tokenizer.encode("on", add_special_tokens=False)
    assert tokenizer.encode("on") == [*first, *plain, *last]
    assert tokenizer.encode("on", "on") == 2 * [*first, *plain, *last]


def test_sentences_are_merged_by_scores_and_come_apart_into_bytes(tmp_path: Path) -> None:
    tokenizer = made(tmp_path, sentences())
    texts = sentences()["tokens"]
    ids = tokenizer.encode("the on é<note>on")
    expected = ["<s>", SPACE + "the", SPACE + "on", SPACE, "<0xC3>", "<0xA9>", "<note>", SPACE + "on"]
    assert [texts[token] for token in ids] == expected
    assert tokenizer.end_ids == [2]
    vocabulary = Vocabulary.from_tokenizer(tokenizer, len(texts), tokenizer.end_ids)
    assert vocabulary.tokens[3 + 0xC3] == b"\xc3"
    assert vocabulary.tokens[texts.index(SPACE + "the")] == b" the"
    assert vocabulary.tokens[texts.index("<free>")] is None


def test_a_space_before_sentences_is_an_option(tmp_path: Path) -> None:
    tokenizer = made(tmp_path, sentences(add_space_prefix=False, add_bos_token=False))
    texts = sentences()["tokens"]
    assert [texts[token] for token in tokenizer.encode("the on")] == [
        "the" if "the" in texts else "th",
        "e",
        SPACE + "on",
    ]
    assert tokenizer.decode(tokenizer.encode(" the on")) == " the on"


def test_a_chat_template_comes_with_the_tokens(tmp_path: Path) -> None:
    template = "{% for message in messages %}<turn>{{ message.content }}{% endfor %}"
    tokenizer = made(tmp_path, {**words_of(288), "chat_template": template})
    assert tokenizer.apply_chat_template([{"role": "user", "content": "on"}], tokenize=False) == "<turn>on"


@pytest.mark.parametrize("words", [words_of(288), sentences()], ids=["bytes", "sentences"])
def test_tokens_spell_what_the_vocabulary_of_the_file_says(words: dict[str, Any], tmp_path: Path) -> None:
    """The tokenizer is for texts; `Vocabulary` reads a file for other engines by itself."""
    tokenizer = made(tmp_path, words)
    expected = Vocabulary.from_tokenizer(tmp_path / "words.gguf", eos_ids=tokenizer.end_ids)
    found = Vocabulary.from_tokenizer(tokenizer, len(words["tokens"]), tokenizer.end_ids)
    assert found.tokens == expected.tokens
    assert set(found.eos_ids) == set(tokenizer.end_ids)
