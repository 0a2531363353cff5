"""Vocabularies with markers: tokens that stand for themselves alone, between texts."""

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
    """A vocabulary with markers: tokens, also special ones, that no other tokens spell.

    Other tokens with bytes that never occur in UTF-8 have no bytes in it.

    unmarked: the vocabulary without markers; markers: their ids
    """

    unmarked: Vocabulary
    markers: frozenset[int]

    def __init__(self, unmarked: Vocabulary, markers: frozenset[int]) -> None:
        """Raises VocabularyError for ids that are out of range, or end texts. Use `with_markers`, which caches."""
        for token in markers:
            if not 0 <= token < unmarked.size:
                raise VocabularyError(f"the marker {token} is not a token id; ids are 0 to {unmarked.size - 1}")
            if token in unmarked.eos_ids:
                raise VocabularyError(
                    f"the marker {token} is an end-of-sequence token, which cannot occur within a text"
                )
        # Many vocabularies have tokens of single bytes, which would spell the bytes of markers.
        tokens = [text if not text or text.isascii() or max(text) < FIRST_DIGIT else None for text in unmarked.tokens]
        for token in markers:
            tokens[token] = marker_bytes(token)
        super().__init__(tokens, unmarked.eos_ids, unmarked.special_ids - markers, unmarked.added_tokens)
        self.unmarked = unmarked
        self.markers = markers
        self._spelt = {marker_bytes(token): unmarked.tokens[token] or b"" for token in markers}

    def text_of(self, data: bytes) -> bytes:
        """Replace the bytes of markers by the unmarked vocabulary's; special tokens have none there."""
        return _MARKERS.sub(lambda marker: self._spelt[marker.group()], data)

    def __reduce__(self) -> tuple[Any, ...]:
        return with_markers, (self.unmarked, self.markers)


_known: WeakKeyDictionary[Vocabulary, WeakValueDictionary[frozenset[int], MarkedVocabulary]] = WeakKeyDictionary()


def with_markers(vocabulary: Vocabulary, markers: Iterable[int]) -> Vocabulary:
    """Return the vocabulary with these markers and its own. It is cached, so its tables are shared."""
    base = without_markers(vocabulary)
    wanted = frozenset(markers)
    if isinstance(vocabulary, MarkedVocabulary):
        wanted |= vocabulary.markers
    if not wanted:
        return base
    known = _known.setdefault(base, WeakValueDictionary())
    found = known.get(wanted)
    return known.setdefault(wanted, MarkedVocabulary(base, wanted)) if found is None else found


def unmarked_text(vocabulary: Vocabulary, data: bytes) -> bytes:
    """Return bytes that a vocabulary decoded, as its unmarked vocabulary decodes them."""
    return vocabulary.text_of(data) if isinstance(vocabulary, MarkedVocabulary) else data


def marker_names(vocabulary: Vocabulary) -> dict[str, bytes]:
    """The bytes of the markers of a vocabulary, by how the tokenizer writes these."""
    if not isinstance(vocabulary, MarkedVocabulary):
        return {}
    names = vocabulary.names
    return {names[token]: marker_bytes(token) for token in sorted(vocabulary.markers) if token in names}


def pieces_of(vocabulary: Vocabulary, text: str) -> Iterator[tuple[str, bytes]]:
    """The characters of a text, with their bytes; the name of a marker of the vocabulary is one piece, that marker.

    A lone surrogate has bytes that no text of UTF-8 has.
    """
    markers = marker_names(vocabulary)
    named = re.compile("|".join([*map(re.escape, sorted(markers, key=len, reverse=True)), "."]), re.DOTALL)
    for found in named.finditer(text):
        yield found[0], markers.get(found[0]) or found[0].encode("utf-8", "surrogatepass")


def without_markers(vocabulary: Vocabulary) -> Vocabulary:
    """Return the vocabulary without markers."""
    return vocabulary.unmarked if isinstance(vocabulary, MarkedVocabulary) else vocabulary


def token_of(tokenizer: Any, text: str) -> int | None:
    """Return the token that a tokenizer writes as a text; None if there is none."""
    find: Any = getattr(tokenizer, "convert_tokens_to_ids", getattr(tokenizer, "token_to_id", None))
    token = None if find is None else find(text)
    if not isinstance(token, int):
        return None
    written: Any = getattr(tokenizer, "convert_ids_to_tokens", getattr(tokenizer, "id_to_token", None))
    return token if written is None or written(token) == text else None  # otherwise it is the unknown token
