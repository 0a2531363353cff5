"""Tokenizers of the `tokenizers` library, bare or inside a Hugging Face fast tokenizer.

The bytes of a token's string follow from the tokenizer's own parts: its decoder or, without one, the pre-tokenizer and
normalizer that produce the strings. Class names of wrappers are not reliable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..errors import VocabularyError
from .spelling import (
    Rewrite,
    Spell,
    TokenTable,
    encode_text,
    replace,
    spell_byte_level,
    spell_text,
    strip,
    word_end,
    word_start,
)

Part = dict[str, Any]


MAX_TOKENS = 1 << 24


def read_fast(tokenizer: Any, backend: Any) -> TokenTable:
    """Return the tokens of `backend`, a `tokenizers.Tokenizer`; `tokenizer` is its wrapper, or the same object.

    Raises VocabularyError if the decoder has steps that do not apply token by token.
    """
    vocabulary: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    added: dict[int, Any] = backend.get_added_tokens_decoder()
    special = {token for token, content in added.items() if content.special}
    special.update(token for token in getattr(tokenizer, "all_special_ids", ()) if token is not None)
    unknown, byte_fallback = _model_facts(backend.model)
    if unknown in vocabulary:
        special.add(vocabulary[unknown])
    # The text of an added token is its string, unless the model itself also produces the token from other text, such
    # as Gemma's runs of space marks.
    literal = {t for t, content in added.items() if backend.model.id_to_token(t) != content.content}
    spell = _spelling(backend, byte_fallback)
    greatest = max(vocabulary.values(), default=-1)
    if greatest >= MAX_TOKENS:
        raise VocabularyError(f"the tokenizer has a token with the id {greatest:,}; ids go up to {MAX_TOKENS - 1:,}")
    tokens: list[bytes | None] = [None] * (1 + greatest)
    for token in literal - special:
        tokens[token] = encode_text(added[token].content)
    added_ids = special | literal
    model_tokens = {text: token for text, token in vocabulary.items() if token not in added_ids}
    for token, data in zip(model_tokens.values(), spell([*model_tokens]), strict=True):
        tokens[token] = data
    eos: int | None = getattr(tokenizer, "eos_token_id", None)
    named = {text: token for text, token in vocabulary.items() if token in added_ids}
    return TokenTable(tokens, frozenset(special), () if eos is None else (eos,), named)


def _spelling(backend: Any, byte_fallback: bool) -> Spell:
    """Return the spelling of the tokenizer's own tokens, without added ones."""
    suffix: str = getattr(backend.model, "end_of_word_suffix", None) or ""
    rewrites: list[Rewrite] = [word_end(suffix)] if suffix else []
    decoder = list(_parts(backend.decoder, "decoders"))
    if not decoder:
        decoder = _inverse_of_encoding(backend)
    kinds = [part["type"] for part in decoder]
    if "ByteLevel" in kinds:
        if kinds[-1] != "ByteLevel":
            raise _unreadable(decoder[-1], "after ByteLevel")
        return spell_byte_level([*rewrites, *_rewrites(decoder[:-1])])
    return spell_text([*rewrites, *_rewrites(decoder)], byte_fallback or "ByteFallback" in kinds)


def _rewrites(decoder: list[Part]) -> Iterator[Rewrite]:
    """Yield the string rewriting of each decoder step, in order."""
    fused = False
    for part in decoder:
        match part:
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)} if not (
                fused and len(old) != 1
            ):
                yield replace(old, new)
            case {"type": "Metaspace", "replacement": str(mark)}:
                yield replace(mark, " ")
            case {"type": "WordPiece", "prefix": str(prefix)} if not fused:
                yield word_start(prefix)
            case {"type": "BPEDecoder", "suffix": str(suffix)} if not fused:
                yield word_end(suffix)
            case {"type": "Strip", "content": str(content), "start": int(start), "stop": int(stop)}:
                if not fused:  # later it strips the whole text: the leading-space rule of Vocabulary
                    yield strip(content, start, stop)
            case {"type": "Fuse"}:
                fused = True
            case {"type": "ByteFallback"}:
                pass
            case _:
                raise _unreadable(part, "after Fuse" if fused else "")


def _inverse_of_encoding(backend: Any) -> list[Part]:
    """Return decoder steps that invert the pre-tokenizer and normalizer, for a tokenizer without decoder."""
    before = list(_parts(backend.pre_tokenizer, "pretokenizers"))
    kinds = {part["type"] for part in before}
    drops_spaces = kinds & _DROPS_SPACES or "Removed" in {part.get("behavior") for part in before}
    prefix: str = getattr(backend.model, "continuing_subword_prefix", None) or ""
    if "ByteLevel" in kinds:
        return [{"type": "ByteLevel"}]
    if prefix:
        return [{"type": "WordPiece", "prefix": prefix}]
    if type(backend.model).__name__ == "WordLevel" and drops_spaces:
        return [{"type": "WordPiece", "prefix": " "}]
    steps: list[Part] = [part for part in before if part["type"] == "Metaspace"]
    for part in _parts(backend.normalizer, "normalizers"):
        match part:
            case {"type": "Replace", "pattern": {"String": " "}, "content": str(mark)} if len(mark) == 1:
                steps.append({"type": "Replace", "pattern": {"String": mark}, "content": " "})
            case _:
                pass
    return steps


_DROPS_SPACES = {"Whitespace", "WhitespaceSplit", "BertPreTokenizer"}


def _parts(component: Any, inner: str) -> Iterator[Part]:
    """Yield the steps of a decoder, pre-tokenizer or normalizer; sequences (with steps under `inner`) are flattened.

    The pickle state of a component is its JSON, without the megabytes of the vocabulary in the tokenizer's JSON.
    """
    pending: list[Part] = [] if component is None else [json.loads(component.__getstate__())]
    while pending:
        part = pending.pop(0)
        if part["type"] == "Sequence":
            pending[:0] = part[inner]
        else:
            yield part


def _model_facts(model: Any) -> tuple[str | None, bool]:
    """Return the model's unknown token or None, and True if the model has byte fallback."""
    if type(model).__name__ != "Unigram":
        return getattr(model, "unk_token", None), bool(getattr(model, "byte_fallback", False))
    state: Part = json.loads(model.__getstate__())  # no attributes have these facts
    unknown = None if state["unk_id"] is None else state["vocab"][state["unk_id"]][0]
    return unknown, bool(state.get("byte_fallback"))


def _unreadable(part: Part, where: str) -> VocabularyError:
    return VocabularyError(
        f"cannot give exact bytes to this tokenizer's tokens: its decoder has the step {json.dumps(part)}"
        f"{' ' + where if where else ''}, which is not a rule for single tokens; "
        "build Vocabulary(tokens, eos_ids) from the bytes of each token yourself"
    )
