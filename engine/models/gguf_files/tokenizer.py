"""Tokenizers from the metadata of GGUF files, as fast tokenizers of transformers.

Pre-tokenization follows llama.cpp, which also parses special tokens in texts. Its named pre-tokenizers are defined here
by their regular expressions.
"""

# transformers and tokenizers are only partly typed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from ....errors import ModelError
from ....tokenizers_adapter.gguf import ENDS, TokenType
from .file import GGUFFile

_SPACE = "\u2581"
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_SHORTENED = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)


def _digits(most: int) -> str:
    """Return a pattern that splits texts into words, runs of up to `most` digits, and other characters."""
    count = rf"\p{{N}}{{1,{most}}}" if most > 1 else r"\p{N}"
    return rf"{_SHORTENED}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{count}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"


@dataclass(frozen=True)
class _PreTokenizer:
    """A pre-tokenizer of BPE.

    patterns: regular expressions; each splits the pieces of the previous one
    ignores_merges: True if a piece that is a token stays whole, without merges
    begins: True if BOS is added by default
    """

    patterns: tuple[str, ...]
    ignores_merges: bool = False
    begins: bool = False


_GPT2 = _PreTokenizer((_WORDS,))
_BY_DIGIT = _PreTokenizer((r"\p{N}", _WORDS))
_LLAMA3 = _PreTokenizer((_digits(3),), ignores_merges=True, begins=True)
_CUTS: Mapping[str, _PreTokenizer] = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "roberta-bpe"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _BY_DIGIT),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe"), _PreTokenizer((_digits(3),))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _PreTokenizer((_digits(1),))),
    "tekken": _PreTokenizer(
        (rf"{'|'.join(_CASED)}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}",), ignores_merges=True, begins=True
    ),
    **dict.fromkeys(
        ("gpt-4o", "llama4"),
        _PreTokenizer(
            (
                "|".join(f"{each}{_SHORTENED}?" for each in _CASED)
                + rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}",
            )
        ),
    ),
    "default": _PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", "[0-9][0-9][0-9]")),
}
"""Pre-tokenizers by `tokenizer.ggml.pre`."""


class GGUFTokenizer(PreTrainedTokenizerFast):
    """A tokenizer from a GGUF file.

    end_ids: EOS ids: EOS, end of turn, end of message
    unused_ids: ids of unused tokens, which have no bytes
    """

    def __init__(
        self,
        *arguments: Any,
        tokenizer_object: Tokenizer | None = None,
        end_ids: Sequence[int] = (),
        unused_ids: Sequence[int] = (),
        **options: Any,
    ):
        self.end_ids, self.unused_ids = list(end_ids), list(unused_ids)
        if tokenizer_object is not None:
            self._tokenizer = tokenizer_object  # transformers would copy it through JSON
        super().__init__(*arguments, **options)

    @property
    def all_special_ids(self) -> list[int]:
        """Ids of special and unused tokens, which have no bytes."""
        return [*super().all_special_ids, *self.unused_ids]


def tokenizer_of(file: GGUFFile) -> GGUFTokenizer:
    """Return the tokenizer of a file. Raises ModelError for an incomplete or unsupported one."""
    return _TokenizerBuilder(file).tokenizer()


class _TokenizerBuilder:
    """Builder of a tokenizer from metadata."""

    def __init__(self, file: GGUFFile) -> None:
        self._file = file
        self._tokens: list[str] = file.texts("tokenizer.ggml.tokens")
        self._kinds = self._types()
        self._ids = {text: token for token, text in enumerate(self._tokens)}
        if len(self._ids) < len(self._tokens):
            seen: dict[str, int] = {}
            for token, text in enumerate(self._tokens):
                if (first := seen.setdefault(text, token)) != token:
                    raise self._error(f"tokens {first:,} and {token:,} are the same, {text!r:.60}")

    def tokenizer(self) -> GGUFTokenizer:
        kind = self._value("model")
        if kind == "gpt2":
            backend, begins = self._of_bytes()
        elif kind == "llama":
            backend, begins = self._of_sentences(), True
        else:
            raise self._error(f"tokenizer.ggml.model is {kind!r:.60}; read are 'gpt2' (bytes, merged) and 'llama'")
        typed = list(zip(self._tokens, self._kinds, strict=True))
        special = [text for text, kind in typed if kind in (TokenType.UNKNOWN, TokenType.CONTROL)]
        literal = [text for text, kind in typed if kind == TokenType.LITERAL]
        for texts, is_special in ((special, True), (literal, False)):
            backend.add_tokens([AddedToken(text, special=is_special, normalized=False) for text in texts if text])
        defaults = {"bos": 1, "eos": 2} if kind == "llama" else {}
        found = {name: self._id(name, defaults.get(name)) for name in ("bos", "padding", *ENDS)}
        unknown = self._id("unknown")
        self._frame(backend, found["bos"], found["eos"], begins)
        named = {"bos_token": found["bos"], "eos_token": found["eos"], "pad_token": found["padding"]}
        named["unk_token"] = unknown
        template = self._file.metadata.get("tokenizer.chat_template")
        ends = [token for name in ENDS if (token := found[name]) is not None]
        return GGUFTokenizer(
            tokenizer_object=backend,
            end_ids=list(dict.fromkeys(ends)),
            unused_ids=[token for token, kind in enumerate(self._kinds) if kind == TokenType.UNUSED],
            chat_template=template if isinstance(template, str) else None,
            clean_up_tokenization_spaces=False,
            **{name: self._tokens[token] for name, token in named.items() if token is not None},
        )

    def _of_bytes(self) -> tuple[Tokenizer, bool]:
        """Return a byte-level BPE tokenizer, and True if it adds BOS by default."""
        name = self._value("pre") or "default"
        cut = _CUTS.get(name)
        if cut is None:
            raise self._error(f"tokenizer.ggml.pre is {name!r:.60}; read are {', '.join(_CUTS)}")
        texts = self._file.texts("tokenizer.ggml.merges")
        cuts = [text.find(" ", 1) for text in texts]
        merges = [(text[:at], text[at + 1 :]) for text, at in zip(texts, cuts, strict=True)]
        try:
            model = models.BPE(vocab=self._ids, merges=merges, ignore_merges=cut.ignores_merges)
        except Exception as error:  # the library has no class of its own for invalid merges
            raise self._no_merge(texts, merges) from error
        if min(cuts) < 1:
            raise self._no_merge(texts, merges)
        backend = Tokenizer(model)
        patterns = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in cut.patterns]
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [*patterns, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        backend.decoder = decoders.ByteLevel()
        return backend, cut.begins

    def _no_merge(self, texts: Sequence[str], merges: Sequence[tuple[str, str]]) -> ModelError:
        """Return the error of the first invalid merge."""
        number = next(
            number for number, (left, right) in enumerate(merges)
            if texts[number] != f"{left} {right}" or not {left, right, left + right} <= self._ids.keys()
        )  # fmt: skip
        return self._error(f"merge {number:,}, {texts[number]!r:.60}, is not of two tokens that make a third")

    def _of_sentences(self) -> Tokenizer:
        """Return a BPE tokenizer as SentencePiece's: characters, merges by scores, byte fallback."""
        scores = self._file.numbers("tokenizer.ggml.scores", len(self._tokens))
        if scores is None or not np.isfinite(scores).all():
            raise self._error("tokenizer.ggml.scores are missing, infinite or NaN; convert the model again")
        unknown = self._id("unknown", 0)
        backend = Tokenizer(
            models.BPE(
                vocab=self._ids, merges=self._merges_by(scores), fuse_unk=True, byte_fallback=True,
                unk_token=None if unknown is None else self._tokens[unknown],
            )
        )  # fmt: skip
        begins = self._file.metadata.get("tokenizer.ggml.add_space_prefix", True) is not False
        spaced = [normalizers.Replace(" ", _SPACE)]
        backend.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), *spaced] if begins else spaced)
        steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if begins else steps)
        return backend

    def _merges_by(self, scores: NDArray[Any]) -> list[tuple[str, str]]:
        """Return all pairs of tokens whose concatenation is a token, by decreasing score of that token."""
        found: list[tuple[float, int, str, str]] = []
        for token, text in enumerate(self._tokens):
            if self._kinds[token] in (TokenType.UNKNOWN, TokenType.CONTROL, TokenType.BYTE):
                continue
            for at in range(1, len(text)):
                if text[:at] in self._ids and text[at:] in self._ids:
                    found.append((-float(scores[token]), token, text[:at], text[at:]))
        found.sort()
        return [(left, right) for *_, left, right in found]

    def _frame(self, backend: Tokenizer, bos: int | None, eos: int | None, begins: bool) -> None:
        """Set a post-processor that adds BOS and EOS as the file specifies. begins: default for BOS"""
        pieces, special = ["$A:0"], list[tuple[str, int]]()
        for name, token, default in (("bos", bos, begins), ("eos", eos, False)):
            is_added = self._file.metadata.get(f"tokenizer.ggml.add_{name}_token", default and token is not None)
            if not is_added:
                continue
            if token is None:
                raise self._error(f"tokenizer.ggml.add_{name}_token asks for a token, and {name}_token_id names none")
            text = self._tokens[token]
            special.append((text, token))
            pieces = [f"{text}:0", *pieces] if name == "bos" else [*pieces, f"{text}:0"]
        if special:
            second = [("$B:1" if piece == "$A:0" else f"{piece[:-1]}1") for piece in pieces]
            backend.post_processor = processors.TemplateProcessing(
                single=pieces, pair=[*pieces, *second], special_tokens=list(dict(special).items())
            )

    def _value(self, name: str) -> Any:
        return self._file.metadata.get(f"tokenizer.ggml.{name}")

    def _types(self) -> list[int]:
        found = self._file.numbers("tokenizer.ggml.token_type", len(self._tokens))
        if found is None:
            return [TokenType.NORMAL] * len(self._tokens)
        strange = np.flatnonzero(~np.isin(found, list(TokenType)))
        if strange.size:
            token = int(strange[0])
            known = f"0 to {max(TokenType)} are known"
            raise self._error(f"tokenizer.ggml.token_type of token {token:,} is {found[token]}; {known}")
        return found.astype(int).tolist()

    def _id(self, name: str, default: int | None = None) -> int | None:
        """Return the id of a special token by its metadata name, such as "bos"; None if there is none."""
        found = self._value(f"{name}_token_id")
        if found is None:
            return default if default is not None and default < len(self._tokens) else None
        if type(found) is not int or not 0 <= found < len(self._tokens):
            raise self._error(f"tokenizer.ggml.{name}_token_id is {found!r:.40}, none of {len(self._tokens):,} tokens")
        return found

    def _error(self, what: str) -> ModelError:
        return ModelError(f"{self._file.path}: {what}")
