"""The exact bytes of every token of a tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import index, itemgetter
from typing import Any, Self, cast
from weakref import WeakValueDictionary

import numpy as np

from ..checks import brief, items_of
from ..errors import OptionError, VocabularyError
from .fast import MAX_TOKENS
from .reading import read_tokenizer
from .trie import Trie


class Vocabulary:
    """The bytes of each token id, the EOS ids, and the width of the logits. Immutable: do not change attributes.

    `tokens[i]` has the bytes that token i adds to the output, or None: for special tokens, EOS, and ids between the
    tokenizer's last and the width of the logits. Several ids may have the same bytes.

    The leading-space rule: bytes contain spaces literally. SentencePiece and WordPiece tokenizers write the space
    before a word into the word's token, also for the first word of a text, and their own `decode` drops it there.
    Joining bytes does not: `▁Hello` is " Hello" everywhere, and a text that begins without a space consists of tokens
    without one (in WordPiece, `##` tokens). WordPiece loses spaces when it encodes: one space comes before each of its
    words and punctuation marks. If a tokenizer writes the space after a word into the word (`</w>`), its texts end with
    that space.
    """

    tokens: list[bytes | None]
    eos_ids: tuple[int, ...]
    special_ids: frozenset[int]
    added_tokens: dict[str, int]
    size: int

    def __init__(
        self,
        tokens: Sequence[bytes | None],
        eos_ids: Iterable[int],
        special_ids: Iterable[int] = (),
        added_tokens: Mapping[str, int] | None = None,
    ) -> None:
        """Create a vocabulary of `tokens` by id. EOS and special ids lose their bytes, since no text contains them.

        added_tokens: ids of added tokens, special ones and others, by the tokenizer's string, which grammars use, such
            as `<|im_end|>`
        Raises VocabularyError if there is no EOS id, or an id is outside `tokens`; OptionError for values that are not
        bytes or ids.
        """
        texts = [
            text or None if type(text) is bytes else _token_bytes(token, text)
            for token, text in enumerate(_token_list(tokens))
        ]
        self.size = len(texts)
        self.eos_ids = _token_ids("eos_ids", eos_ids, self.size)
        self.special_ids = frozenset(_token_ids("special_ids", special_ids, self.size)).union(self.eos_ids)
        if not self.eos_ids:
            raise VocabularyError(
                "a vocabulary needs a token that ends the text; pass its ids as eos_ids=, e.g. eos_ids=[2]"
            )
        self.added_tokens = _added_ids(added_tokens, self.size)
        self.tokens = texts
        for token in self.special_ids:
            self.tokens[token] = None

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Any, size: int | None = None, eos_ids: int | Iterable[int] | None = None
    ) -> Vocabulary:
        """Return the vocabulary of a tokenizer of Hugging Face (fast or slow), tokenizers, tiktoken or mistral-common.

        `tokenizer` may also be the path of a tokenizer.json (a tokenizer_config.json beside it names EOS), of a
        tekken.json, of a folder with one of these, or of a GGUF file; or a Llama of llama-cpp-python.
        `size` is the width of the model's logits, if it differs from the tokenizer's number of ids; `eos_ids`
        replaces the tokenizer's own EOS. Special tokens have no bytes; other added tokens have their text.
        Raises VocabularyError if there is no EOS, if the tokenizer's strings cannot be turned into bytes, or
        if tokens with text lie beyond `size`.
        """
        if size is not None and (type(size) is not int or not 1 <= size <= MAX_TOKENS):
            raise OptionError(
                f"size={brief(size)}: the width of the model's logits, a whole number of at least 1, and at most "
                f"{MAX_TOKENS:,}"
            )
        table = read_tokenizer(tokenizer)
        eos = table.eos_ids if eos_ids is None else (eos_ids,) if isinstance(eos_ids, int) else eos_ids
        size = len(table.tokens) if size is None else size
        if any(table.tokens[size:]):
            raise VocabularyError(
                f"size={size}, but the tokenizer has text for ids up to {len(table.tokens) - 1}; "
                "pass the width of the model's logits, or resize the model's embeddings to the tokenizer"
            )
        eos = _token_ids("eos_ids", eos, size)
        if not eos:
            raise VocabularyError(
                f"the tokenizer ({type(tokenizer).__name__}) names no end-of-sequence token; "
                "pass the ids that end a text as eos_ids=, e.g. eos_ids=[2]"
            )
        tokens = table.tokens[:size] + [None] * (size - len(table.tokens))
        added = {text: token for text, token in sorted(table.added.items(), key=itemgetter(1)) if token < size}
        return cls(tokens, eos, (token for token in table.special_ids if token < size), added)

    @classmethod
    def from_bytes(cls, added_tokens: Sequence[str] = ()) -> Vocabulary:
        """Return a vocabulary of the 256 bytes, each with its value as id, EOS as id 256, and added tokens after it.

        added_tokens: strings of these tokens, which grammars use, such as `<|im_end|>`
        """
        tokens = [*(bytes([byte]) for byte in range(256)), None, *(text.encode() for text in added_tokens)]
        return cls(tokens, [256], (), {text: token for token, text in enumerate(added_tokens, 257)})

    @classmethod
    def from_characters(cls, characters: Iterable[str]) -> Vocabulary:
        """Return a vocabulary with a token for each of `characters` (or longer texts) in order, and EOS after the last.

        Raises VocabularyError for text that UTF-8 cannot encode (lone surrogates).
        """
        try:
            tokens = [text.encode() for text in characters]
        except (AttributeError, TypeError):
            raise OptionError(
                f"characters must be texts, such as 'abc' or ['a', 'b'], not {brief(characters)}"
            ) from None
        except UnicodeEncodeError as error:
            raise VocabularyError(f"{error.object!r} is not text that UTF-8 can encode: {error.reason}") from None
        return cls([*tokens, None], [len(tokens)])

    def decode(self, ids: Iterable[int]) -> bytes:
        """Return the joined bytes of token ids. Tokens without bytes add nothing.

        Raises OptionError for values that are not token ids.
        """
        tokens, size = self.tokens, self.size
        try:
            numbers = [number if 0 <= (number := index(token)) < size else size for token in ids]
            return b"".join([tokens[number] or b"" for number in numbers])
        except (TypeError, IndexError):
            raise OptionError(f"ids must be token ids from 0 to {size - 1:,}, not {brief(ids)}") from None

    @cached_property
    def names(self) -> dict[int, str]:
        """The tokenizer's strings of added tokens by id, such as `<|im_end|>`."""
        return {token: text for text, token in self.added_tokens.items()}

    @cached_property
    def trie(self) -> Trie:
        """The trie of all tokens that have bytes."""
        return Trie.build(self.tokens)

    @cached_property
    def fingerprint(self) -> str:
        """Hexadecimal SHA-256 of tokens, EOS ids and size, equal for vocabularies that behave alike."""
        lengths = [-1 if text is None else len(text) for text in self.tokens]
        head = [self.size, len(self.eos_ids), *sorted(self.eos_ids)]
        digest = hashlib.sha256(np.array([*head, *lengths], "<i8").tobytes())
        digest.update(b"".join(text for text in self.tokens if text))
        return digest.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        _vocabularies[_key(self)] = self
        return _shared_vocabulary, (_key(self), self.tokens, self.eos_ids)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __repr__(self) -> str:
        with_text = sum(text is not None for text in self.tokens)
        return f"Vocabulary(size={self.size}, tokens with text={with_text}, eos_ids={self.eos_ids})"


_Key = tuple[str, frozenset[int], tuple[tuple[str, int], ...]]
# Pickled and unpickled vocabularies. Equal ones are unified, and so share their tables.
_vocabularies: WeakValueDictionary[_Key, Vocabulary] = WeakValueDictionary()


def _key(vocabulary: Vocabulary) -> _Key:
    return vocabulary.fingerprint, vocabulary.special_ids, tuple(vocabulary.added_tokens.items())


def _shared_vocabulary(key: _Key, tokens: list[bytes | None], eos_ids: tuple[int, ...]) -> Vocabulary:
    """Return this process's vocabulary with a key; create it if there is none."""
    vocabulary = _vocabularies.get(key)
    if vocabulary is None:
        _, special_ids, added = key
        vocabulary = Vocabulary(tokens, eos_ids, special_ids, dict(added))
        vocabulary = _vocabularies.setdefault(_key(vocabulary), vocabulary)
    return vocabulary


def _token_list(tokens: Any) -> list[Any]:
    """Return the tokens as a list. Raises OptionError."""
    items = items_of(tokens)
    if items is None:
        raise OptionError(
            f"tokens must be a list with the bytes of each token by its id, not {type(tokens).__name__}; for a "
            "tokenizer use Vocabulary.from_tokenizer(tokenizer)"
        )
    return items


def _added_ids(added: Any, size: int) -> dict[str, int]:
    """Return token ids by the strings that the tokenizer writes. Raises OptionError, VocabularyError."""
    value: Any = {} if added is None else added
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in cast("Mapping[Any, Any]", value)):
        raise OptionError(f"added_tokens={brief(added)}: expected token ids by texts, such as {{'<|im_end|>': 2}}")
    ids = dict(cast("Mapping[str, int]", value))
    _token_ids("added_tokens", ids.values(), size)
    return ids


def _token_bytes(token: int, text: Any) -> bytes | None:
    """Return the bytes of a token, None if it has none. Raises OptionError for other values."""
    if text is None:
        return None
    if not isinstance(text, (bytes, bytearray, memoryview)):
        hint = "encode it, text.encode()" if isinstance(text, str) else "None stands for no bytes"
        raise OptionError(f"token {token} is {brief(text)} ({type(text).__name__}), but must be bytes; {hint}")
    return memoryview(cast("bytes", text)).tobytes() or None


def _token_ids(option: str, ids: Iterable[int], size: int) -> tuple[int, ...]:
    """Return `ids` without duplicates. Raises OptionError for non-integers, VocabularyError for ids out of range."""
    try:
        unique = tuple(dict.fromkeys(map(index, ids)))
    except TypeError:
        raise OptionError(f"{option} must be token ids (integers), not {brief(ids)}") from None
    for token in unique:
        if not 0 <= token < size:
            raise VocabularyError(f"{option} has {token}, but token ids run from 0 to {size - 1}")
    return unique
