"""What a Vocabulary promises, whatever it is made from."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, ByteLevelBPETokenizer, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trellm import Vocabulary
from trellm.errors import OptionError, VocabularyError


def test_empty_special_and_end_tokens_have_no_bytes() -> None:
    vocabulary = Vocabulary([b"a", b"", None, b"<s>", b"</s>", b"a"], [4, 4], special_ids=[3])
    assert vocabulary.tokens == [b"a", None, None, None, None, b"a"]
    assert vocabulary.eos_ids == (4,)
    assert vocabulary.special_ids == {3, 4}
    assert vocabulary.size == 6
    assert vocabulary.decode([0, 3, 5, 1, 4]) == b"aa"
    assert vocabulary.trie.ids.tolist() == [0, 5]


@pytest.mark.parametrize("added", [["<a>"], {5: 1}, {"<a>": "b"}, {"<a>": 2}])
def test_added_tokens_are_ids_by_texts(added: Any) -> None:
    with pytest.raises((OptionError, VocabularyError), match="added_tokens"):
        Vocabulary([b"a", None], [1], added_tokens=added)
    vocabulary = Vocabulary([b"a", None, None], [1], [2], {"<a>": 2})
    assert pickle.loads(pickle.dumps(vocabulary)) is vocabulary and vocabulary.added_tokens == {"<a>": 2}


@pytest.mark.parametrize(
    ("eos", "special", "error", "message"),
    [
        ([], [], VocabularyError, "eos_ids="),
        ([2], [], VocabularyError, "eos_ids has 2, but token ids run from 0 to 1"),
        ([-1], [], VocabularyError, "eos_ids has -1"),
        ([1], [7], VocabularyError, "special_ids has 7"),
        ("</s>", [], OptionError, "eos_ids must be token ids"),
        ([1.0], [], OptionError, "integers"),
        (1, [], OptionError, "integers"),
    ],
)
def test_wrong_ids_are_refused(eos: object, special: list[int], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Vocabulary([b"a", None], eos, special)  # type: ignore[arg-type]


@pytest.mark.parametrize("tokens", [np.array("a"), {b"a"}, {"a": 0}, b"ab", 5])
def test_tokens_that_are_no_list_are_refused(tokens: object) -> None:
    with pytest.raises(OptionError, match="tokens must be a list with the bytes of each token"):
        Vocabulary(tokens, [0])  # type: ignore[arg-type]


def test_fingerprint_tells_vocabularies_apart() -> None:
    variants = [
        Vocabulary([b"a", b"bc", None], [2]),
        Vocabulary([b"ab", b"c", None], [2]),
        Vocabulary([b"a", b"bc", None, None], [2]),
        Vocabulary([b"a", b"bc", None, None], [3]),
        Vocabulary([b"a", b"bc", None, None], [2, 3]),
        Vocabulary([b"a", None, b"bc", None], [3]),
    ]
    assert len({variant.fingerprint for variant in variants}) == len(variants)
    again = Vocabulary([b"a", b"bc", None, b"gone"], [3, 2])
    assert again.fingerprint == variants[4].fingerprint
    assert len(again.fingerprint) == 64


def test_bytes_and_characters() -> None:
    every_byte = Vocabulary.from_bytes()
    assert every_byte.size == 257 and every_byte.eos_ids == (256,)
    assert every_byte.decode("né🙂".encode()) == "né🙂".encode()

    letters = Vocabulary.from_characters("ab🙂")
    assert letters.tokens == [b"a", b"b", "🙂".encode(), None]
    assert letters.eos_ids == (3,)
    with pytest.raises(VocabularyError, match="UTF-8"):
        Vocabulary.from_characters(["a", "\ud800"])


def test_logits_wider_than_the_tokenizer(trained: Callable[[str], Tokenizer]) -> None:
    tokenizer = trained("byte_level_bpe")
    length = tokenizer.get_vocab_size()
    vocabulary = Vocabulary.from_tokenizer(tokenizer, size=length + 28, eos_ids=2)
    assert vocabulary.size == len(vocabulary.tokens) == length + 28
    assert vocabulary.tokens[length:] == [None] * 28
    assert vocabulary.tokens[:length] == Vocabulary.from_tokenizer(tokenizer, eos_ids=2).tokens
    assert vocabulary.fingerprint != Vocabulary.from_tokenizer(tokenizer, eos_ids=2).fingerprint


def test_logits_narrower_than_the_tokenizer(trained: Callable[[str], Tokenizer]) -> None:
    tokenizer = Tokenizer.from_str(trained("byte_level_bpe").to_str())
    length = tokenizer.get_vocab_size()
    with pytest.raises(VocabularyError, match=f"size={length - 1}, .* up to {length - 1}; pass the width"):
        Vocabulary.from_tokenizer(tokenizer, size=length - 1, eos_ids=2)
    tokenizer.add_special_tokens(["<image>"])
    assert Vocabulary.from_tokenizer(tokenizer, size=length, eos_ids=2).size == length


def test_a_tokenizer_without_an_end(trained: Callable[[str], Tokenizer]) -> None:
    tokenizer = trained("byte_level_bpe")
    for missing in (tokenizer, PreTrainedTokenizerFast(tokenizer_object=tokenizer)):
        with pytest.raises(VocabularyError, match=r"no end-of-sequence token; pass .* eos_ids="):
            Vocabulary.from_tokenizer(missing)
        with pytest.raises(VocabularyError, match="eos_ids has 100000"):
            Vocabulary.from_tokenizer(missing, eos_ids=100_000)
        assert Vocabulary.from_tokenizer(missing, eos_ids=[2, 1]).eos_ids == (2, 1)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")
    assert Vocabulary.from_tokenizer(wrapped).eos_ids == (2,)


def test_added_tokens_have_their_text_and_special_ones_none(trained: Callable[[str], Tokenizer]) -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(trained("byte_level_bpe").to_str()), eos_token="</s>"
    )
    first = len(tokenizer)
    plain = ["<tool>", "éé", "ĠĠĠĠ", "   ", "two words 世"]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in plain])
    tokenizer.add_tokens(["<|user|>"], special_tokens=True)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.tokens[first : first + len(plain)] == [text.encode() for text in plain]
    assert vocabulary.tokens[first + len(plain)] is None
    assert vocabulary.special_ids == {0, 1, 2, first + len(plain)}
    text = "a <tool> in éé   two words 世"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert set(range(first, first + 2)) <= set(ids)
    assert vocabulary.decode(ids).decode() == text


def test_added_tokens_that_the_model_has_anyway_mean_what_the_model_means(
    trained: Callable[[str], Tokenizer],
) -> None:
    tokenizer = Tokenizer.from_str(trained("llama2_bpe").to_str())
    the, mark = tokenizer.token_to_id("▁the"), tokenizer.token_to_id("▁")
    tokenizer.add_tokens(["▁the", AddedToken("▁", special=True), "▁▁▁"])
    vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_ids=2)
    assert vocabulary.tokens[the] == b" the"
    assert vocabulary.tokens[mark] is None
    assert vocabulary.tokens[-1] == "▁▁▁".encode()


def test_the_unknown_token_is_special(trained: Callable[[str], Tokenizer]) -> None:
    model = models.WordLevel({"[UNK]": 0, "yes": 1, "no": 2, "end": 3}, unk_token="[UNK]")
    vocabulary = Vocabulary.from_tokenizer(Tokenizer(model), eos_ids=3)
    assert vocabulary.tokens == [None, b"yes", b"no", None]
    unigram = Vocabulary.from_tokenizer(Tokenizer(trained("unigram").model), eos_ids=2)
    assert 0 in unigram.special_ids and unigram.tokens[0] is None


def test_word_level_tokens_follow_a_space_where_spaces_are_dropped() -> None:
    tokenizer = Tokenizer(models.WordLevel({"yes": 0, "no": 1, "end": 2}, unk_token="?"))
    for splitter in (pre_tokenizers.Whitespace(), pre_tokenizers.Split(" ", "removed")):
        tokenizer.pre_tokenizer = splitter
        assert Vocabulary.from_tokenizer(tokenizer, eos_ids=2).tokens == [b" yes", b" no", None]


@pytest.mark.parametrize(
    ("decoder", "tokens"),
    [
        (decoders.Strip("_", 2, 1), ["x", "__a_b__", "___c", "d_"]),
        (decoders.Sequence([decoders.Strip("_", 1, 0), decoders.Fuse()]), ["__a", "b_"]),
        (decoders.Sequence([decoders.Replace("ab", "c"), decoders.Replace("c", "d")]), ["xab", "c", "bab"]),
        (decoders.Sequence([decoders.Fuse(), decoders.Replace("_", " ")]), ["a_", "_b"]),
        (decoders.ByteFallback(), ["x", "<0xF0>", "<0x9F>", "<0x99>", "<0x82>", "<0x1>", "<0x0A>", "<0x0g>"]),
        (decoders.ByteLevel(), ["Ġx", "ðŁ", "ĻĤ", "世 界", "Ċ", "é 日"]),
        (decoders.WordPiece("@", cleanup=False), ["a", "@b", "c@", "@", "d"]),
        (decoders.BPEDecoder("$"), ["a$", "b", "c$", "d"]),
        (decoders.Metaspace("_", "never"), ["_a", "b_", "__"]),
    ],
)
def test_decoder_steps(decoder: decoders.Decoder, tokens: list[str]) -> None:
    names = ["END", *dict.fromkeys(tokens)]
    tokenizer = Tokenizer(models.WordLevel({text: token for token, text in enumerate(names)}, unk_token="?"))
    tokenizer.decoder = decoder
    vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_ids=0)
    assert vocabulary.decode(map(names.index, tokens)).decode().strip() == decoder.decode(tokens).strip()


def test_tokens_that_are_stripped_away_are_empty() -> None:
    tokenizer = Tokenizer(models.WordLevel({"END": 0, "_": 1, "___": 2, "____": 3}, unk_token="?"))
    tokenizer.decoder = decoders.Strip("_", 2, 1)
    assert Vocabulary.from_tokenizer(tokenizer, eos_ids=0).tokens == [None, None, None, b"_"]


def test_byte_tokens_need_no_decoder_step() -> None:
    model = models.BPE({"</s>": 0, "a": 1, "<0x0A>": 2}, [], byte_fallback=True)
    assert Vocabulary.from_tokenizer(Tokenizer(model), eos_ids=0).tokens == [None, b"a", b"\n"]


def test_word_end_marks_become_spaces() -> None:
    tokenizer = Tokenizer(models.BPE({"lo": 0, "w</w>": 1, "e": 2}, [], end_of_word_suffix="</w>"))
    assert Vocabulary.from_tokenizer(tokenizer, eos_ids=2).tokens == [b"lo", b"w ", None]
    tokenizer.decoder = decoders.BPEDecoder()
    assert Vocabulary.from_tokenizer(tokenizer, eos_ids=2).tokens == [b"lo", b"w ", None]


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.CTC(),
        decoders.Sequence([decoders.Fuse(), decoders.Replace("ab", "c")]),
        decoders.Sequence([decoders.Fuse(), decoders.WordPiece()]),
        decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)]),
    ],
)
def test_decoders_that_say_nothing_of_single_tokens(decoder: decoders.Decoder) -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "e": 2}, []))
    tokenizer.decoder = decoder
    with pytest.raises(VocabularyError, match=r"its decoder has the step .*build Vocabulary\(tokens, eos_ids\)"):
        Vocabulary.from_tokenizer(tokenizer, eos_ids=2)


def test_wrapped_tokenizers(trained: Callable[[str], Tokenizer]) -> None:
    class Processor:
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained("llama2_bpe"), eos_token="</s>")

    vocabulary = Vocabulary.from_tokenizer(Processor())
    assert vocabulary.fingerprint == Vocabulary.from_tokenizer(trained("llama2_bpe"), eos_ids=2).fingerprint
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(["so so"], vocab_size=258, special_tokens=["</s>"], show_progress=False)
    assert Vocabulary.from_tokenizer(tokenizer, eos_ids=0).tokens[-1] == b"so"


def test_what_is_no_tokenizer() -> None:
    with pytest.raises(VocabularyError, match="int is not a tokenizer"):
        Vocabulary.from_tokenizer(3)


def test_importing_is_light() -> None:
    heavy = ["torch", "transformers", "tokenizers", "tiktoken", "numba"]
    code = f"import sys, trellm.tokenizers_adapter; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
