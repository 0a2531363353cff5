"""Tables of tokens that end strings and words, and of those that may contain whole values, per vocabulary."""

from __future__ import annotations

import re
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.chart.compaction import TokenBytes
from ...tokenizers_adapter import Vocabulary
from ..graph.utf8 import EQUAL_ITEM
from ..lift.tables import VocabularyTables
from ..locks import new_lock
from .values import EMPTY, Value, word_of

Mask = NDArray[np.uint32]

MAX_SPELT = 1 << 14
"""Maximum number of texts with cached tokens."""
MAX_LISTED = 32
"""Number of tokens that are removed from a mask one by one."""
_BOUNDS = b" \t\n\r,]}"
"""Bytes that may follow a number or word."""
_QUOTE = re.compile(rb'"')
_WORD = re.compile(rb"([-+.0-9eE]*|(?:(?:t?r)?u)?e|(?:(?:(?:f?a)?l)?s)?e|(?:(?:n?u)?l)?l)[ \t\n\r,\]}]")


class FewTokens(NamedTuple):
    """A sparse set of tokens: the indices of nonzero mask words, and their bits."""

    words: NDArray[np.intp]
    bits: Mask

    @classmethod
    def of(cls, mask: Mask) -> FewTokens:
        """Return the tokens of a mask."""
        words = np.flatnonzero(mask)
        return cls(words, mask[words])

    def within(self, mask: Mask) -> FewTokens:
        """Return the tokens that are in a mask."""
        return FewTokens(self.words, mask[self.words] & self.bits)

    def without(self, mask: Mask) -> FewTokens:
        """Return the tokens that are not in a mask."""
        return FewTokens(self.words, ~mask[self.words] & self.bits)

    def listed(self) -> list[int]:
        """Return the token numbers, ascending."""
        at = np.flatnonzero(self.bits)
        places = np.flatnonzero(np.unpackbits(self.bits[at].view(np.uint8), bitorder="little"))
        return (32 * self.words[at[places >> 5]] + (places & 31)).tolist()


class TokenSummaries:
    """Tables of the tokens of a vocabulary.

    tokens: their bytes, None where a token has none
    closers: the text before a quote that may end a string, with the tokens that have it
    spelt: the texts between two quotes of a token, which include all complete strings; spelt_begins: their prefixes
    token_values: these, words that a token may force, and the empty containers
    enders: the text before the end of a word, with the tokens that have it; number_enders: those of numbers
    quoted, ending: masks of tokens with a quote, and of those that may end a word; quotes: quoted as FewTokens; powers:
    mask of tokens with an e or E
    outside: bool [tokens], those with a byte that no text has; inside: mask of the others
    closing: tokens that may end a container, if they begin outside a string, or inside; naming: also those with a
    complete string
    beginning: tokens that may contain a repeated value outside trails, by (may an item that must differ begin before
    the token, must names differ)
    nested: tokens in which an array of several items may begin, if they begin outside a string, or inside
    readers, effects: data shared by the `Effects` of several guides; lock: hold it while using these
    """

    _known: ClassVar[weakref.WeakKeyDictionary[Vocabulary, TokenSummaries]] = weakref.WeakKeyDictionary()

    def __init__(self, vocabulary: Vocabulary) -> None:
        tokens = vocabulary.tokens
        self._words = (vocabulary.size + 31) // 32
        self.tokens = tokens
        texts = _Counts(VocabularyTables.of(vocabulary).bytes)
        at_once = texts.first(_BOUNDS)
        self.enders = self._find_enders(texts, at_once)
        with_comma = np.flatnonzero(texts.of(b",")).tolist()
        quoted = np.flatnonzero(texts.of(b'"')).tolist()
        self.closers, self.spelt = self._find_closers(quoted)
        self.token_values = frozenset[Value](
            (*self.spelt, *map(word_of, (b"0", b"true", b"false", b"null")), *EMPTY.values())
        )
        self.spelt_begins = frozenset(text[:end] for text in self.spelt for end in range(len(text) + 1))
        self._masks: dict[tuple[bool, bytes], Mask] = {}
        ends, quotes = texts.of(b"]}") > 0, texts.of(b'"')
        closing = (ends, ends & (quotes > 0))
        self.closing = [FewTokens.of(self.packed(np.flatnonzero(each))) for each in closing]
        risky = (ends | (quotes > 1), closing[1] | (quotes > 2))
        self.naming = [FewTokens.of(self.packed(np.flatnonzero(each))) for each in risky]
        # For `Effects`, which hold this lock
        self.lock = new_lock()
        self.readers: dict[tuple[bool, bool], Any] = {}
        self.effects: dict[Any, Any] = {}
        self.longest_token = int(texts.lengths.max(initial=0))
        self.quoted = self.packed(quoted)
        self.quotes = FewTokens.of(self.quoted)
        self.outside = texts.of(bytes((EQUAL_ITEM,))) > 0
        self.inside = ~self.packed(np.flatnonzero(self.outside))
        ending = at_once.copy()
        ending[[token for head, tokens in self.enders.items() if head for token in tokens]] = True
        self.ending = self.packed(np.flatnonzero(ending))
        self.powers = self.packed(np.flatnonzero(texts.of(b"eE")))
        # A number is complete after a digit only, or where it stands.
        self.number_enders = {head: each for head, each in self.enders.items() if head[-1:] in b"0123456789"}
        commas = self.packed(with_comma)
        opening = self.packed([token for token in with_comma if _opens(tokens[token] or b"")])
        nested = [token for token in with_comma if _nests(tokens[token] or b"")]
        in_strings = [token for token in nested if quotes[token]]
        self.nested = [FewTokens.of(self.packed(each)) for each in (nested, in_strings)]
        self.beginning = {
            (differs, with_names): FewTokens.of((commas if differs else opening) | (commas & self.quoted) * with_names)
            for differs in (False, True)
            for with_names in (False, True)
        }
        self._trie = vocabulary.trie
        self._spelling: dict[bytes, tuple[int, ...]] = {}

    def _find_enders(self, texts: _Counts, at_once: NDArray[np.bool_]) -> dict[bytes, list[int]]:
        """Compute `enders`; at_once: tokens whose first byte ends a word."""
        found: dict[bytes, list[int]] = {b"": np.flatnonzero(at_once).tolist()}
        # Most tokens do not end a word; regular expressions take ten times as long to decide that.
        for token in np.flatnonzero((texts.of(_BOUNDS) > 0) & ~at_once).tolist():
            ended = _WORD.match(self.text(token))
            if ended:
                found.setdefault(ended.group(1), []).append(token)
        return found

    def _find_closers(self, quoted: list[int]) -> tuple[dict[bytes, list[int]], frozenset[bytes]]:
        """Compute `closers` and `spelt` from the tokens with a quote."""
        found: dict[bytes, list[int]] = {}
        spelt: set[bytes] = set()
        for token in quoted:
            text = self.text(token)
            ends = [at.start() for at in _QUOTE.finditer(text)]
            for at in ends:
                found.setdefault(text[:at], []).append(token)
            spelt.update(text[begin + 1 : end] for begin, end in combinations(ends, 2))
        return found, frozenset(spelt)

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> TokenSummaries:
        """Return the tables of a vocabulary, made at first use."""
        known = cls._known.get(vocabulary)
        if known is None:
            known = cls._known[vocabulary] = cls(vocabulary)
        return known

    def text(self, token: int) -> bytes:
        """Return the bytes of a token."""
        return self.tokens[token] or b""

    def packed(self, tokens: Sequence[int] | NDArray[np.intp]) -> Mask:
        """Return the mask of some tokens."""
        flags = np.zeros(32 * self._words, np.bool_)
        flags[tokens] = True
        return np.packbits(flags, bitorder="little").view(np.uint32)

    def enders_of(self, begin: bytes) -> dict[bytes, list[int]]:
        """Return the part of `enders` that may complete a word with this beginning."""
        return self.number_enders if begin[:1] in b"-0123456789" else self.enders

    def ending_with(self, rest: bytes, *, is_word: bool) -> tuple[Sequence[int], Mask | None]:
        """Return the tokens that begin with the rest of a string and a quote, or of a word and its delimiter.

        Few are listed; of many, which few texts end in, there is a mask.
        """
        tokens = (self.enders if is_word else self.closers).get(rest, ())
        if len(tokens) <= MAX_LISTED:
            return tokens, None
        key = (is_word, rest)
        known = self._masks.get(key)
        if known is None:
            known = self._masks[key] = self.packed(tokens)
        return (), known

    def spelling_on(self, begin: bytes, texts: Iterator[bytes]) -> set[int]:
        """Return the tokens that spell a next piece of one of the texts, after their common prefix `begin`."""
        rests = {text[len(begin) : len(begin) + self.longest_token] for text in texts}
        pieces = {rest[:end] for rest in rests for end in range(1, len(rest) + 1)}
        return {token for piece in pieces for token in self.spelling(piece)}

    @cached_property
    def first_equal_token(self) -> dict[int, int]:
        """First token with the same bytes, by each later token with equal bytes."""
        start, ids = self._trie.token_start, self._trie.ids
        shared = [ids[start[node] : start[node + 1]].tolist() for node in np.flatnonzero(np.diff(start) > 1)]
        return {token: tokens[0] for tokens in shared for token in tokens[1:]}

    def spelling(self, text: bytes) -> tuple[int, ...]:
        """Return the tokens with these bytes, ascending."""
        known = self._spelling.get(text)
        if known is None:
            ids = self._trie.ids  # in the order of their bytes
            first = bisect_left(ids, text, key=self.text)
            known = tuple(ids[first : bisect_right(ids, text, first, key=self.text)].tolist())
            if len(self._spelling) >= MAX_SPELT:
                self._spelling.clear()
            self._spelling[text] = known
        return known


class _Counts:
    """Byte counts of tokens; lengths: bytes of each token; some: whether it has any."""

    def __init__(self, tokens: TokenBytes) -> None:
        self.lengths = np.diff(tokens.start)
        self._starts = tokens.start[:-1]
        self._bytes = tokens.data.tobytes() + b"\0"
        self._token_of = np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)
        self.some = self.lengths > 0

    def of(self, wanted: bytes) -> NDArray[np.int64]:
        """Return the number of wanted bytes in each token: int64 [tokens]."""
        return np.bincount(self._token_of[np.flatnonzero(self._are(wanted)[:-1])], minlength=len(self.lengths))

    def first(self, wanted: bytes) -> NDArray[np.bool_]:
        """Test whether the first byte of each token is wanted: bool [tokens]."""
        return self.some & self._are(wanted)[self._starts]

    def _are(self, wanted: bytes) -> NDArray[np.bool_]:
        flags = bytes(byte in wanted for byte in range(256))
        return np.frombuffer(self._bytes.translate(flags), np.bool_)


def _nests(text: bytes) -> bool:
    """Test whether a token with a comma has an opening bracket before it."""
    return 0 <= text.find(b"[") < text.rfind(b",")


def _opens(text: bytes) -> bool:
    """Test whether a token with a comma has an opening bracket before it, or leading space."""
    return text[:1].isspace() or _nests(text)
