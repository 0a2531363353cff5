"""Drafts from a sequence's own history: repetitions, quotations and forced text, with acceptance rates of each kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..models.protocol import BEGIN

MAX_AGREEING = 17
_PAIR = 32


class DraftHistory:
    """The tokens of a sequence, prompt and output, with the latest earlier occurrence of its last tokens.

    tokens: rows of images and audio are stored as BEGIN, which is never drafted
    odds: acceptance rates of the sequence's drafts
    ahead: expected next tokens by kind. QUOTED: from the quoted document. SPELT: from forced text. SECOND: from a draft
        model
    wakes: number of tokens from which drafting is tried again
    """

    def __init__(self, tokens: Sequence[int], odds: AcceptanceRates) -> None:
        self.tokens = [max(token, BEGIN) for token in tokens]
        self.odds = AcceptanceRates(odds, memory=64)
        self.ahead: dict[int, Sequence[int]] = {QUOTED: (), SPELT: (), SECOND: ()}
        self.wakes = 0
        self._idle = 0
        self._nap = _NAP
        numbers = np.array(self.tokens, np.int64)
        # Later positions overwrite earlier ones.
        self._after_one: dict[int, int] = dict(zip(self.tokens, range(1, len(self.tokens)), strict=False))
        pairs: list[int] = (numbers[:-2] << _PAIR | numbers[1:-1]).tolist() if len(numbers) > 2 else []
        self._after_two: dict[int, int] = dict(zip(pairs, range(2, len(self.tokens)), strict=True))
        self._at = self._agreeing = 0
        self._find()

    def take(self, token: int, is_chosen: bool) -> None:
        """Append a token. is_chosen: it had alternatives, so a draft of it counts in the rates"""
        if is_chosen and self._agreeing:
            self.odds.note(kind_of(self._agreeing), self.tokens[self._at] == token)
        for kind, ahead in self.ahead.items():
            if ahead:
                if is_chosen:
                    self.odds.note(kind, ahead[0] == token)
                self.ahead[kind] = ahead[1:] if ahead[0] == token else ()
        goes_on = self._agreeing > 0 and self.tokens[self._at] == token
        tokens = self.tokens
        count = len(tokens)
        self._after_one[tokens[-1]] = count
        if count > 1:
            self._after_two[tokens[-2] << _PAIR | tokens[-1]] = count
        tokens.append(token)
        if goes_on:
            self._at += 1
            self._agreeing += 1
        if not goes_on or self._agreeing < _SURE:
            self._find()

    @property
    def is_sure(self) -> bool:
        """True if a draft from repetition is at least as likely to be accepted as one from a quotation."""
        return self._agreeing >= _SURE and self.odds.of(kind_of(self._agreeing)) >= self.odds.of(QUOTED)

    def drafts(self, most: int) -> list[tuple[int, int]]:
        """Return up to `most` drafted tokens, each with its kind.

        A quotation comes first, then forced text or repetition by acceptance rate, then the draft model.
        """
        agreeing, at = self._agreeing, self._at
        is_spelt = self.ahead[SPELT] and (not agreeing or self.odds.of(SPELT) > self.odds.of(kind_of(agreeing)))
        if self.ahead[QUOTED] or is_spelt or agreeing == 0:
            kind = QUOTED if self.ahead[QUOTED] else SPELT if is_spelt else SECOND
            return [(token, kind) for token in self.ahead[kind][:most]]
        ahead = self.tokens[at : at + most]
        if BEGIN in ahead:
            return [(token, kind_of(agreeing + n)) for n, token in enumerate(ahead[: ahead.index(BEGIN)])]
        # A repetition that reaches the end of the text continues in a cycle.
        return [(ahead[n % len(ahead)], kind_of(agreeing + n)) for n in range(most)]

    def rest(self, is_used: bool) -> None:
        """Record whether the last drafts were used. After many unused ones, draft less often."""
        if is_used:
            self._idle, self._nap = 0, _NAP
            return
        self._idle += 1
        if self._idle >= _PATIENCE:
            self.wakes = len(self.tokens) + self._nap
            self._nap = min(2 * self._nap, _LONGEST_NAP)
            self._idle = _PATIENCE - _LOOK

    def _find(self) -> None:
        """Find the latest earlier occurrence of the last tokens, and count how many tokens before it agree."""
        tokens = self.tokens
        count = len(tokens)
        at = self._after_two.get(tokens[-2] << _PAIR | tokens[-1]) if count > 1 else None
        if at is None:
            at = self._after_one.get(tokens[-1])
            if at is None:
                self._agreeing = 0
                return
        agreeing = 1
        while agreeing < min(at, MAX_AGREEING) and tokens[at - 1 - agreeing] == tokens[count - 1 - agreeing]:
            agreeing += 1
        self._at, self._agreeing = at, agreeing


_SURE = 3
"""Number of agreeing tokens from which the occurrence is kept as long as its predictions are right."""
_PATIENCE = 24
_LOOK = 4
_NAP = 16
_LONGEST_NAP = 64


LENGTHS = (1, 2, 3, 4, 6, 9, 17)
"""Kinds of repetition: the least number of agreeing tokens before the drafted one."""
QUOTED, SPELT, SECOND = range(len(LENGTHS), len(LENGTHS) + 3)
"""Kinds of other drafts: from a quoted document, from forced text, and from a draft model."""
_FIRST = (0.15, 0.4, 0.5, 0.6, 0.75, 0.85, 0.95, 0.9, 0.8, 0.6)
_WEIGHT = 6.0
"""Weight of the prior rate, as a number of drafts."""
_KIND = [next(kind for kind in reversed(range(len(LENGTHS))) if LENGTHS[kind] <= max(n, 1)) for n in range(18)]


def kind_of(length: int) -> int:
    """Return the kind of a drafted token after `length` agreeing tokens."""
    return _KIND[length if length < 17 else 17]


class AcceptanceRates:
    """Acceptance rates of drafts by kind.

    before: prior rates, which count all drafts too; None for built-in ones
    memory: number of drafts of a kind after which its counts are halved
    """

    def __init__(self, before: AcceptanceRates | None = None, memory: int = 256) -> None:
        self._before = before
        self._memory = memory
        self._tried = [0.0] * len(_FIRST)
        self._right = [0.0] * len(_FIRST)

    def note(self, kind: int, is_right: bool) -> None:
        """Count a drafted token."""
        self._tried[kind] += 1
        self._right[kind] += is_right
        if self._tried[kind] > self._memory:
            self._tried[kind] /= 2
            self._right[kind] /= 2
        if self._before is not None:
            self._before.note(kind, is_right)

    def of(self, kind: int) -> float:
        """Return the estimated acceptance rate of a kind."""
        before = _FIRST[kind] if self._before is None else self._before.of(kind)
        return (self._right[kind] + _WEIGHT * before) / (self._tried[kind] + _WEIGHT)
