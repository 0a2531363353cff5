"""Which tokens end strings, and which may contain whole values: found once for a vocabulary."""

from __future__ import annotations

import re
import weakref
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ...tokenizers_adapter import Vocabulary

Mask = NDArray[np.uint32]

OPENS = re.compile(rb'\s*"')
INSIDE = re.compile(rb'(?:[^"\\]|\\.?)*', re.DOTALL)
# A comma, and more behind it than what opens a value
GOES_ON = re.compile(rb',(?![\[{\s]*"?$)', re.DOTALL)


class Heads:
    """What the tokens of a vocabulary tell.

    closers: what tokens have before a quote that may end a string, with the tokens
    openers: strings that some tokens spell in whole, with the tokens
    quoted: the tokens with a quote; going_on: with a comma and something of a value after it; with_comma: with a comma
    opening: those of them that have a bracket before it, or space in front
    """

    _known: ClassVar[weakref.WeakKeyDictionary[Vocabulary, Heads]] = weakref.WeakKeyDictionary()

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._texts = vocabulary.tokens
        self._words = (vocabulary.size + 31) // 32
        self.closers: dict[bytes, list[int]] = {}
        self.openers: dict[bytes, list[int]] = {}
        quoted: list[int] = []
        going_on: list[int] = []
        with_comma: list[int] = []
        opening: list[int] = []
        for token, text in enumerate(vocabulary.tokens):
            if not text:
                continue
            if b"," in text:
                with_comma.append(token)
                if text[:1].isspace() or 0 <= text.find(b"[") < text.rfind(b","):
                    opening.append(token)
                if GOES_ON.search(text):
                    going_on.append(token)
            at = text.find(b'"')
            if at < 0:
                continue
            quoted.append(token)
            opened = OPENS.match(text)
            while at >= 0:
                self.closers.setdefault(text[:at], []).append(token)
                if opened and at >= opened.end():
                    self.openers.setdefault(text[opened.end() : at], []).append(token)
                at = text.find(b'"', at + 1)
        self.longest = max(map(len, self.closers), default=0)
        self.quoted = self._packed(quoted)
        self.going_on = self._packed(going_on)
        self.with_comma = self._packed(with_comma)
        self.opening = self._packed(opening)

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Heads:
        """Those of a vocabulary, made when first asked for."""
        known = cls._known.get(vocabulary)
        if known is None:
            known = cls._known[vocabulary] = cls(vocabulary)
        return known

    def _packed(self, tokens: list[int]) -> Mask:
        flags = np.zeros(32 * self._words, np.bool_)
        flags[tokens] = True
        return np.packbits(flags, bitorder="little").view(np.uint32)

    def ends_of(self, text: bytes) -> dict[bytes, tuple[bytes, ...]]:
        """The ways to cut a string so that some tokens begin with the second part and a quote, by the first part."""
        closers = self.closers
        first = max(0, len(text) - self.longest)
        return {text[:at]: (text[at:],) for at in range(first, len(text) + 1) if text[at:] in closers}

    def strings_in(self, token: int, *, in_string: bool, escaped: bool) -> tuple[bytes, tuple[bytes, ...]] | None:
        """Of a token: what it has of a string in progress, and the whole strings behind; None if there is more to it.

        escaped: whether a backslash stands before it
        """
        text = self._texts[token] or b""
        head, at = b"", 0
        if in_string:
            ended = INSIDE.match(text, 1 if escaped else 0)
            if not ended or ended.end() == len(text):
                return text, ()
            head, at = text[: ended.end()], ended.end() + 1
        parts = text[at:].split(b'"')
        between, inside = parts[::2], parts[1::2]
        if b"\\" in text[at:] or any(each.strip(b", \t\n\r") for each in between):
            return None
        # The last string is whole if something stands behind its quote.
        return head, tuple(inside[: len(between) - 1])

    @cached_property
    def by_text(self) -> dict[bytes, list[int]]:
        """The tokens by their bytes."""
        found: dict[bytes, list[int]] = {}
        for token, text in enumerate(self._texts):
            if text:
                found.setdefault(text, []).append(token)
        return found

    @cached_property
    def longest_token(self) -> int:
        """The bytes of the longest token."""
        return max(map(len, self.by_text))
