"""The markers of a family as a model's tokenizer has them: tokens of their own, or text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ...guides.tagged.pieces import Fixed, Marker, marker_data
from ...tokenizers_adapter import Vocabulary
from ...tokenizers_adapter.marked import with_markers


class Spelling:
    """How texts with markers are spelled.

    tokens: those of the markers that are special tokens, by their text; such that end texts are not among them
    ends: those that end texts
    vocabulary: that of the model, in which the tokens have bytes
    """

    def __init__(self, texts: Iterable[str], tokenizer: Any, vocabulary: Vocabulary) -> None:
        listed = sorted(set(texts), key=len, reverse=True)
        self.tokens: dict[str, int] = {}
        self.ends: set[str] = set()
        for text in listed:
            token = token_of(tokenizer, text)
            if token is not None and token in vocabulary.eos_ids:
                self.ends.add(text)
            elif token is not None and token in vocabulary.special_ids:
                self.tokens[text] = token
        self.vocabulary = with_markers(vocabulary, self.tokens.values())
        self._split = re.compile("|".join(map(re.escape, listed))) if listed else None
        self._texts = {marker_data(token): text for text, token in self.tokens.items()}

    def parts(self, text: str) -> tuple[Marker, ...]:
        """A text as texts and tokens."""
        found: list[Marker] = []
        at = 0
        for each in self._split.finditer(text) if self._split is not None else ():
            if each[0] in self.tokens:
                found += [text[at : each.start()], self.tokens[each[0]]]
                at = each.end()
        return tuple(part for part in [*found, text[at:]] if part != "")

    def fixed(self, *texts: str) -> Fixed:
        """A piece of these texts, one after the other."""
        return Fixed(self.parts("".join(texts)))

    def data(self, *texts: str) -> bytes:
        """These texts in bytes, as they are in what a model writes."""
        return marker_data(*self.parts("".join(texts)))

    def marker(self, text: str) -> Marker:
        """A marker by its text."""
        return self.tokens.get(text, text)

    def written(self, data: bytes) -> str:
        """Bytes as text, tokens by theirs."""
        for each, text in self._texts.items():
            data = data.replace(each, text.encode())
        return data.decode(errors="replace")


def token_of(tokenizer: Any, text: str) -> int | None:
    """The token that a tokenizer writes as a text; None where it has none."""
    find: Any = getattr(tokenizer, "convert_tokens_to_ids", getattr(tokenizer, "token_to_id", None))
    token = None if find is None else find(text)
    if not isinstance(token, int):
        return None
    written: Any = getattr(tokenizer, "convert_ids_to_tokens", getattr(tokenizer, "id_to_token", None))
    return token if written is None or written(token) == text else None  # other texts are the unknown token
