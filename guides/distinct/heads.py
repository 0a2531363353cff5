"""Which tokens end strings and words, and which may contain whole values: found once for a vocabulary."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...tokenizers_adapter import Vocabulary
from .words import word_of

Mask = NDArray[np.uint32]

_BETWEEN = re.compile(rb"(?:^|(?<=[ \t\n\r,\[:]))[-+.0-9a-zA-Z]+(?=[ \t\n\r,\]}])")
_WORD = re.compile(rb"([-+.0-9eE]*|(?:(?:t?r)?u)?e|(?:(?:(?:f?a)?l)?s)?e|(?:(?:n?u)?l)?l)[ \t\n\r,\]}]")


class Heads:
    """What the tokens of a vocabulary tell.

    closers: what tokens have before a quote that may end a string, with the tokens
    inner: strings and words that some tokens have in whole
    enders: what tokens have before the end of a word, with the tokens; number_enders: those of numbers
    quoted, ending: the tokens with a quote, those that may end a word; powers: with an e; with_comma: with a comma
    opening: those of them that have a bracket before it, or space in front
    """

    _known: ClassVar[weakref.WeakKeyDictionary[Vocabulary, Heads]] = weakref.WeakKeyDictionary()

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._texts = vocabulary.tokens
        self._words = (vocabulary.size + 31) // 32
        self.closers: dict[bytes, list[int]] = {}
        self.inner: set[Any] = set()
        self.enders: dict[bytes, list[int]] = {}
        quoted: list[int] = []
        with_comma: list[int] = []
        opening: list[int] = []
        for token, text in enumerate(vocabulary.tokens):
            if not text:
                continue
            ended = _WORD.match(text)
            if ended:
                self.enders.setdefault(ended.group(1), []).append(token)
            self.inner.update(map(word_of, _BETWEEN.findall(text)))
            if b"," in text:
                with_comma.append(token)
                if text[:1].isspace() or 0 <= text.find(b"[") < text.rfind(b","):
                    opening.append(token)
            at = text.find(b'"')
            if at < 0:
                continue
            quoted.append(token)
            while at >= 0:
                self.closers.setdefault(text[:at], []).append(token)
                end = text.find(b'"', at + 1)
                while end >= 0:
                    self.inner.add(text[at + 1 : end])
                    end = text.find(b'"', end + 1)
                at = text.find(b'"', at + 1)
        self._masks: dict[tuple[int, bytes], Mask] = {}
        self.longest = max(map(len, self.closers), default=0)
        self.longest_token = max((len(text) for text in vocabulary.tokens if text), default=0)
        self.quoted = self.packed(quoted)
        self.ending = self.packed(token for tokens in self.enders.values() for token in tokens)
        self.powers = self.packed(
            [token for token, text in enumerate(vocabulary.tokens) if text and b"e" in text.lower()]
        )
        # Only with a digit at its end, or as it is, a number is complete.
        self.number_enders = {head: each for head, each in self.enders.items() if head[-1:] in b"0123456789"}
        self.with_comma = self.packed(with_comma)
        self.opening = self.packed(opening)

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Heads:
        """Those of a vocabulary, made when first asked for."""
        known = cls._known.get(vocabulary)
        if known is None:
            known = cls._known[vocabulary] = cls(vocabulary)
        return known

    def packed(self, tokens: Iterator[int] | list[int]) -> Mask:
        """A mask with some tokens."""
        flags = np.zeros(32 * self._words, np.bool_)
        flags[list(tokens)] = True
        return np.packbits(flags, bitorder="little").view(np.uint32)

    def enders_of(self, begin: bytes) -> dict[bytes, list[int]]:
        """What of `enders` may complete a word that begins so."""
        return self.number_enders if begin[:1] in b"-0123456789" else self.enders

    def ending_string(self, rest: bytes) -> Mask:
        """The tokens that begin with the rest of a string and a quote."""
        return self._mask(self.closers, rest)

    def ending_word(self, rest: bytes) -> Mask:
        """The tokens that begin with the rest of a word and what ends it."""
        return self._mask(self.enders, rest)

    def _mask(self, tokens: dict[bytes, list[int]], rest: bytes) -> Mask:
        key = (id(tokens), rest)
        known = self._masks.get(key)
        if known is None:
            known = self._masks[key] = self.packed(tokens[rest])
        return known

    def ends_of(self, text: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The ways to cut a string so that some tokens begin with the second part and a quote."""
        closers = self.closers
        for at in range(max(0, len(text) - self.longest), len(text) + 1):
            if text[at:] in closers:
                yield text[:at], text[at:]

    def spelling_on(self, begin: bytes, texts: Iterator[bytes]) -> set[int]:
        """The tokens that spell a piece of one of the texts, which begin alike, from behind that."""
        by_text, longest = self.by_text, self.longest_token
        found: set[int] = set()
        for text in texts:
            rest = text[len(begin) : len(begin) + longest]
            for end in range(1, len(rest) + 1):
                found.update(by_text.get(rest[:end], ()))
        return found

    @cached_property
    def twins(self) -> dict[int, tuple[int, ...]]:
        """The tokens with the same bytes as others, by each of them."""
        return {token: tokens for tokens in self.by_text.values() if len(tokens) > 1 for token in tokens}

    @cached_property
    def by_text(self) -> dict[bytes, tuple[int, ...]]:
        """The tokens by their bytes."""
        found: dict[bytes, tuple[int, ...]] = {}
        for token, text in enumerate(self._texts):
            if text:
                found[text] = (*found.get(text, ()), token)
        return found
