"""Vocabularies with markers: tokens with bytes that no text contains, such as the tags around tool calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from ..errors import VocabularyError
from .vocabulary import Vocabulary

MARK = 0xFF
"""First byte of every marker. Neither it nor the following bytes occur in UTF-8."""
FIRST_DIGIT, BASE = 0xF8, 7


def marker_bytes(token: int) -> bytes:
    """Return the bytes of a marker: MARK, and its id in digits that do not occur in UTF-8 either."""
    digits = bytearray()
    while True:
        token, digit = divmod(token, BASE)
        digits.append(FIRST_DIGIT + digit)
        if not token:
            return bytes([MARK, *reversed(digits)])


_MARKERS = re.compile(b"\xff[\xf8-\xfe]+")


class MarkedVocabulary(Vocabulary):
    """A vocabulary in which some tokens, also special ones, have the bytes of markers, and no others spell these.

    Other tokens with bytes from FIRST_DIGIT on, which do not occur in UTF-8, lose their bytes.
    unmarked: the vocabulary without markers; markers: ids of the markers
    """

    unmarked: Vocabulary
    markers: frozenset[int]

    def __init__(self, unmarked: Vocabulary, markers: frozenset[int]) -> None:
        """Raises VocabularyError for ids that are out of range or EOS. Use `with_markers`, which caches."""
        for token in markers:
            if not 0 <= token < unmarked.size:
                raise VocabularyError(f"the marker {token} is not a token id; ids are 0 to {unmarked.size - 1}")
            if token in unmarked.eos_ids:
                raise VocabularyError(
                    f"the marker {token} is an end-of-sequence token, which cannot occur within a text"
                )
        # Many vocabularies have a token for each byte. Together these could spell markers.
        tokens = [text if not text or text.isascii() or max(text) < FIRST_DIGIT else None for text in unmarked.tokens]
        for token in markers:
            tokens[token] = marker_bytes(token)
        super().__init__(tokens, unmarked.eos_ids, unmarked.special_ids - markers, unmarked.added_tokens)
        self.unmarked = unmarked
        self.markers = markers
        self._bytes_of_marker = {marker_bytes(token): unmarked.tokens[token] or b"" for token in markers}

    def text_of(self, data: bytes) -> bytes:
        """Replace markers by the bytes of their tokens in the unmarked vocabulary, b"" for special tokens."""
        return _MARKERS.sub(lambda marker: self._bytes_of_marker[marker.group()], data)

    def __reduce__(self) -> tuple[Any, ...]:
        return with_markers, (self.unmarked, self.markers)


_cache: WeakKeyDictionary[Vocabulary, WeakValueDictionary[frozenset[int], MarkedVocabulary]] = WeakKeyDictionary()


def with_markers(vocabulary: Vocabulary, markers: Iterable[int]) -> Vocabulary:
    """Return the vocabulary with these markers besides its own. A cache returns the same object, with its tables."""
    base = without_markers(vocabulary)
    ids = frozenset(markers)
    if isinstance(vocabulary, MarkedVocabulary):
        ids |= vocabulary.markers
    if not ids:
        return base
    marked = _cache.setdefault(base, WeakValueDictionary())
    found = marked.get(ids)
    return marked.setdefault(ids, MarkedVocabulary(base, ids)) if found is None else found


def unmarked_text(vocabulary: Vocabulary, data: bytes) -> bytes:
    """Return decoded bytes with markers replaced as in `MarkedVocabulary.text_of`."""
    return vocabulary.text_of(data) if isinstance(vocabulary, MarkedVocabulary) else data


def marker_names(vocabulary: Vocabulary) -> dict[str, bytes]:
    """Return the bytes of a vocabulary's markers by the tokenizer's strings of their tokens."""
    if not isinstance(vocabulary, MarkedVocabulary):
        return {}
    names = vocabulary.names
    return {names[token]: marker_bytes(token) for token in sorted(vocabulary.markers) if token in names}


def pieces_of(vocabulary: Vocabulary, text: str) -> Iterator[tuple[str, bytes]]:
    """Yield the characters of a text with their bytes, and each name of a marker as one piece with the marker's bytes.

    Lone surrogates have bytes that are not UTF-8.
    """
    markers = marker_names(vocabulary)
    pattern = re.compile("|".join([*map(re.escape, sorted(markers, key=len, reverse=True)), "."]), re.DOTALL)
    for match in pattern.finditer(text):
        yield match[0], markers.get(match[0]) or match[0].encode("utf-8", "surrogatepass")


def without_markers(vocabulary: Vocabulary) -> Vocabulary:
    """Return the vocabulary without markers."""
    return vocabulary.unmarked if isinstance(vocabulary, MarkedVocabulary) else vocabulary


def token_of(tokenizer: Any, text: str) -> int | None:
    """Return the id of the token with this string in a tokenizer; None if there is none."""
    find: Any = getattr(tokenizer, "convert_tokens_to_ids", getattr(tokenizer, "token_to_id", None))
    token = None if find is None else find(text)
    if not isinstance(token, int):
        return None
    name_of: Any = getattr(tokenizer, "convert_ids_to_tokens", getattr(tokenizer, "id_to_token", None))
    return token if name_of is None or name_of(token) == text else None  # else `find` returned the unknown token
