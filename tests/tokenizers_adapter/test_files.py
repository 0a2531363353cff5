"""Vocabularies of files: what is read is what the tokenizer itself says, and what is damaged is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers.convert_slow_tokenizer import bytes_to_unicode
from trellm import Vocabulary
from trellm.errors import OptionError, VocabularyError

from .hosts_of import path_of

TEXT, ARRAY, UINT, INT, BOOL, FLOAT = 8, 9, 4, 5, 7, 6
Field = tuple[str, int, Any]


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind: int, given: Any) -> bytes:
    if kind == TEXT:
        return text(given)
    if kind == ARRAY:
        item, values = given
        return struct.pack("<IQ", item, len(values)) + b"".join(value(item, each) for each in values)
    return struct.pack({UINT: "<I", INT: "<i", BOOL: "<?", FLOAT: "<f"}[kind], given)


def gguf(folder: Path, *fields: Field, version: int = 3) -> Path:
    """A GGUF file with just a head."""
    path = folder / "model.gguf"
    head = b"GGUF" + struct.pack("<IQQ", version, 0, len(fields))
    path.write_bytes(head + b"".join(text(name) + struct.pack("<I", kind) + value(kind, v) for name, kind, v in fields))
    return path


def vocabulary_fields(model: str, tokens: list[str], kinds: list[int], **more: int) -> list[Field]:
    return [
        ("general.architecture", TEXT, "llama"),
        ("tokenizer.ggml.add_bos_token", BOOL, True),
        ("tokenizer.ggml.model", TEXT, model),
        ("tokenizer.ggml.tokens", ARRAY, (TEXT, tokens)),
        ("tokenizer.ggml.scores", ARRAY, (FLOAT, [0.5] * len(tokens))),
        ("tokenizer.ggml.token_type", ARRAY, (INT, kinds)),
        *((f"tokenizer.ggml.{name}_token_id", UINT, token) for name, token in more.items()),
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_gguf_with_byte_level_tokens(tmp_path: Path, version: int) -> None:
    tokens = [*map(bytes_to_unicode().get, range(256)), "Ġthe", "<|x|>", "<|end|>", "<|eot|>", "unused"]
    kinds = [1] * 257 + [4, 3, 3, 5]
    path = gguf(tmp_path, *vocabulary_fields("gpt2", tokens, kinds, eos=258, eot=259), version=version)
    vocabulary = Vocabulary.from_tokenizer(path)
    assert vocabulary.tokens == [*(bytes([b]) for b in range(256)), b" the", b"<|x|>", None, None, None]
    assert vocabulary.eos_ids == (258, 259) and vocabulary.special_ids == {258, 259, 260}
    assert vocabulary.added_tokens == {"<|x|>": 257, "<|end|>": 258, "<|eot|>": 259, "unused": 260}
    assert Vocabulary.from_tokenizer(str(path), size=300).size == 300


def test_gguf_with_sentencepiece_tokens(tmp_path: Path) -> None:
    tokens = ["<unk>", "<s>", "</s>", "<0x41>", "<0xE2>", "▁the", "a", "  ", "é▁"]
    path = gguf(tmp_path, *vocabulary_fields("llama", tokens, [2, 3, 3, 6, 6, 1, 1, 4, 1], eos=2, bos=1))
    vocabulary = Vocabulary.from_tokenizer(path)
    assert vocabulary.tokens == [None, None, None, b"A", b"\xe2", b" the", b"a", b"  ", "é ".encode()]
    assert vocabulary.eos_ids == (2,)

    class Llama:  # a model of llama-cpp-python, as far as it is asked
        model_path = str(path)

        def n_vocab(self) -> int:
            return len(tokens)

    assert Vocabulary.from_tokenizer(Llama()).fingerprint == vocabulary.fingerprint


def test_gguf_with_a_token_that_is_not_utf8(tmp_path: Path) -> None:
    """It cannot be spelled; one that is not used may be anything."""
    for kind, match in ((1, r"model\.gguf: .* lone surrogate .* from the bytes of each token"), (5, None)):
        path = gguf(tmp_path, *vocabulary_fields("gpt2", ["a", "Ġxy", "<e>"], [1, kind, 3], eos=2))
        path.write_bytes(path.read_bytes().replace("Ġxy".encode(), b"\xff\xfexy"))
        if match is None:
            assert Vocabulary.from_tokenizer(path).tokens == [b"a", None, None]
        else:
            with pytest.raises(VocabularyError, match=match):
                Vocabulary.from_tokenizer(path)


def test_gguf_with_ends_that_are_no_tokens(tmp_path: Path) -> None:
    fields = vocabulary_fields("gpt2", ["a", "<e>"], [1, 3], eos=1, eot=9)
    path = gguf(tmp_path, *fields, ("tokenizer.ggml.eom_token_id", TEXT, "x"))
    assert Vocabulary.from_tokenizer(path).eos_ids == (1,)


def test_gguf_is_read_as_its_own_library_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(path_of("gguf"))
    path = gguf(tmp_path, *vocabulary_fields("gpt2", ["a", "Ġb", "<e>"], [1, 1, 3], eos=2))
    field = import_module("gguf.gguf_reader").GGUFReader(path).get_field("tokenizer.ggml.tokens")
    assert field.contents() == ["a", "Ġb", "<e>"]
    assert Vocabulary.from_tokenizer(path).tokens == [b"a", b" b", None]


@pytest.mark.parametrize("cut", range(3, 260, 9))
def test_damaged_gguf(tmp_path: Path, cut: int) -> None:
    path = gguf(tmp_path, *vocabulary_fields("gpt2", ["a", "b", "<e>"], [1, 1, 3], eos=2))
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    with pytest.raises(VocabularyError, match=r"is damaged|is not a valid tokenizer.json|kind None|names no end"):
        Vocabulary.from_tokenizer(path)
    path.write_bytes(whole[:cut] + b"\xff" * 12 + whole[cut + 12 :])
    with suppress(VocabularyError):  # what is in names and numbers may be anything; but nothing else is raised
        Vocabulary.from_tokenizer(path)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        (vocabulary_fields("rwkv", ["a"], [1]), "of the unsupported kind 'rwkv'; supported are gpt2, llama"),
        (vocabulary_fields("gpt2", ["a"], [1, 1]), "1 tokens, but token types of 2"),
        (vocabulary_fields("gpt2", ["a"], [1]), "eos_ids="),
        ([("general.architecture", TEXT, "llama")], "kind None"),
        (
            [*vocabulary_fields("gpt2", ["a"], [1])[:4], ("tokenizer.ggml.token_type", TEXT, "x")],
            "that are not integers",
        ),
        (
            [("tokenizer.ggml.model", UINT, 1), ("tokenizer.ggml.tokens", ARRAY, (INT, [7]))],
            "of the unsupported kind 1",
        ),
    ],
)
def test_gguf_without_what_is_needed(tmp_path: Path, fields: list[Field], match: str) -> None:
    with pytest.raises(VocabularyError, match=match):
        Vocabulary.from_tokenizer(gguf(tmp_path, *fields))
    with pytest.raises(VocabularyError, match=r"is damaged: .*at byte 4: version 1 of GGUF; .* 2 and 3"):
        Vocabulary.from_tokenizer(gguf(tmp_path, *fields, version=1))


@pytest.mark.parametrize("name", ["gpt2", "mistral-v1"])
def test_real_files_are_as_their_tokenizers(shared_data: Path, name: str) -> None:
    folder = shared_data / "tokenizers" / name
    end = json.loads((folder / "tokenizer_config.json").read_text())["eos_token"]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    eos = tokenizer.token_to_id(end["content"] if isinstance(end, dict) else end)
    expected = Vocabulary.from_tokenizer(tokenizer, eos_ids=eos)
    for path in (folder, folder / "tokenizer.json", str(folder)):
        assert Vocabulary.from_tokenizer(path).fingerprint == expected.fingerprint


def test_files_that_are_none(tmp_path: Path) -> None:
    for path, content in (
        ("a.json", "{}"),
        ("b.json", "[" * 9),
        ("c.bin", "xx"),
        ("d.json", '{"vocab": 1, "config": 2}'),
    ):
        (tmp_path / path).write_text(content)
        with pytest.raises(VocabularyError, match=r"is not a valid"):
            Vocabulary.from_tokenizer(tmp_path / path)
    (tmp_path / "e.json").write_text('{"model": {"type": "none"}}')
    with pytest.raises(VocabularyError, match="cannot be read"):
        Vocabulary.from_tokenizer(tmp_path / "e.json")
    for path in (tmp_path / "absent", tmp_path, "gpt2"):
        with pytest.raises(VocabularyError, match=r"is not a file with a vocabulary; give a tokenizer.json"):
            Vocabulary.from_tokenizer(path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    (tmp_path / "tokenizer.json").write_text(Tokenizer(import_module("tokenizers.models").BPE({"a": 0}, [])).to_str())
    assert Vocabulary.from_tokenizer(tmp_path, eos_ids=[1], size=2).tokens == [b"a", None]


def test_names_and_sizes_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="a' cannot be read: File name too long"):
        Vocabulary.from_tokenizer("a" * 5000)
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    backend: Any = Tokenizer(BPE({"a": 0, "b": 1}, []))
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("[" * 100_000)
    with pytest.raises(VocabularyError, match="names no end-of-sequence token"):
        Vocabulary.from_tokenizer(folder)
    assert Vocabulary.from_tokenizer(folder, eos_ids=1, size=40).size == 40
    for size in (0, 1 << 25, 2**40):
        with pytest.raises(OptionError, match="of at least 1, and at most 16,777,216"):
            Vocabulary.from_tokenizer(folder, eos_ids=1, size=size)
    with pytest.raises(VocabularyError, match="Tokenizer is a class, not a tokenizer"):
        Vocabulary.from_tokenizer(Tokenizer)


def test_a_tekken_file_with_what_are_no_bytes(tmp_path: Path) -> None:
    config = {"default_vocab_size": 4, "default_num_special_tokens": 3}
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps({"config": config, "vocab": [{"rank": 0, "token_bytes": "!!!!"}]}))
    with pytest.raises(VocabularyError, match=r"is not a valid tekken\.json"):
        Vocabulary.from_tokenizer(path)


@pytest.mark.parametrize("make", ["v1", "v3", "tekken"])
def test_mistral_common(make: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are those that its own decoding gives, and its files hold the same."""
    folder = path_of("mistral_common")
    monkeypatch.syspath_prepend(folder)
    library: Any = pytest.importorskip("mistral_common.tokens.tokenizers.mistral").MistralTokenizer
    data = Path(folder) / "mistral_common" / "data"
    makers: dict[str, Callable[[], Any]] = {
        "v1": library.v1,
        "v3": library.v3,
        "tekken": lambda: library.from_file(str(data / "tekken_240911.json")),
    }
    tokenizer = makers[make]()
    inner = tokenizer.instruct_tokenizer.tokenizer
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.size == inner.n_words and vocabulary.eos_ids == (inner.eos_id,)
    assert (
        vocabulary.added_tokens["</s>"] == inner.eos_id
        and set(vocabulary.added_tokens.values()) == vocabulary.special_ids
    )
    assert Vocabulary.from_tokenizer(inner).fingerprint == vocabulary.fingerprint
    for words in ("The date is 2024, é世界!", '{"a": [1, null]}'):
        ids = inner.encode(words, bos=False, eos=False)
        assert vocabulary.decode(ids).decode().strip() == words
    if make == "tekken":
        assert Vocabulary.from_tokenizer(data / "tekken_240911.json").fingerprint == vocabulary.fingerprint
