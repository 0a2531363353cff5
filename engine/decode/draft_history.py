"""A sequence's own guesses, by what it repeats or quotes or must say, and how often each kind of them is right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..models.protocol import BEGIN

MOST_AGREEING = 17
_PAIR = 32


class DraftHistory:
    """The tokens of a text, prompt and output, and where in it the last of them came before.

    tokens: rows of images and audio are as BEGIN among them, which is guessed nowhere
    odds: how often its guesses were right
    ahead: tokens that follow, by QUOTED in the document that is being quoted, by SPELT in a text to which there is no
        alternative, and by SECOND as a smaller model guesses
    wakes: at how many tokens it is worth a look again
    """

    def __init__(self, tokens: Sequence[int], odds: AcceptanceRates) -> None:
        self.tokens = [max(token, BEGIN) for token in tokens]
        self.odds = AcceptanceRates(odds, memory=64)
        self.ahead: dict[int, Sequence[int]] = {QUOTED: (), SPELT: (), SECOND: ()}
        self.wakes = 0
        self._idle = 0
        self._nap = _NAP
        numbers = np.array(self.tokens, np.int64)
        # Later places overwrite earlier ones.
        self._after_one: dict[int, int] = dict(zip(self.tokens, range(1, len(self.tokens)), strict=False))
        pairs: list[int] = (numbers[:-2] << _PAIR | numbers[1:-1]).tolist() if len(numbers) > 2 else []
        self._after_two: dict[int, int] = dict(zip(pairs, range(2, len(self.tokens)), strict=True))
        self._at = self._agreeing = 0
        self._find()

    def take(self, token: int, is_chosen: bool) -> None:
        """One more token. is_chosen: it might have been another one, so that a guess of it counts"""
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
        """True if a repetition in the text is as likely to be right as a guess of how a quotation goes on."""
        return self._agreeing >= _SURE and self.odds.of(kind_of(self._agreeing)) >= self.odds.of(QUOTED)

    def guesses(self, most: int) -> list[tuple[int, int]]:
        """The next tokens, up to so many, each with its kind: of a quotation, else of what is repeated or must be said,
        whichever is likelier."""
        agreeing, at = self._agreeing, self._at
        is_spelt = self.ahead[SPELT] and (not agreeing or self.odds.of(SPELT) > self.odds.of(kind_of(agreeing)))
        if self.ahead[QUOTED] or is_spelt or agreeing == 0:
            kind = QUOTED if self.ahead[QUOTED] else SPELT if is_spelt else SECOND
            return [(token, kind) for token in self.ahead[kind][:most]]
        ahead = self.tokens[at : at + most]
        if BEGIN in ahead:
            return [(token, kind_of(agreeing + n)) for n, token in enumerate(ahead[: ahead.index(BEGIN)])]
        # Where this place is near the end, the text is taken to go round.
        return [(ahead[n % len(ahead)], kind_of(agreeing + n)) for n in range(most)]

    def rest(self, is_used: bool) -> None:
        """After a look: where nothing was of use for long, look less often."""
        if is_used:
            self._idle, self._nap = 0, _NAP
            return
        self._idle += 1
        if self._idle >= _PATIENCE:
            self.wakes = len(self.tokens) + self._nap
            self._nap = min(2 * self._nap, _LONGEST_NAP)
            self._idle = _PATIENCE - _LOOK

    def _find(self) -> None:
        """The place where the last tokens came before, and how many of them agree."""
        tokens = self.tokens
        count = len(tokens)
        at = self._after_two.get(tokens[-2] << _PAIR | tokens[-1]) if count > 1 else None
        if at is None:
            at = self._after_one.get(tokens[-1])
            if at is None:
                self._agreeing = 0
                return
        agreeing = 1
        while agreeing < min(at, MOST_AGREEING) and tokens[at - 1 - agreeing] == tokens[count - 1 - agreeing]:
            agreeing += 1
        self._at, self._agreeing = at, agreeing


_SURE = 3
"""Once so many tokens agree, the place stays what it is as long as it is right."""
_PATIENCE = 24
_LOOK = 4
_NAP = 16
_LONGEST_NAP = 64


LENGTHS = (1, 2, 3, 4, 6, 9, 17)
"""Guesses of a repeated text are told apart by how many tokens before them agree: so many, or more."""
QUOTED, SPELT, SECOND = range(len(LENGTHS), len(LENGTHS) + 3)
"""Guesses of how a quotation goes on, of how a text without alternative is spelt, and those of a smaller model."""
_FIRST = (0.15, 0.4, 0.5, 0.6, 0.75, 0.85, 0.95, 0.9, 0.8, 0.6)
_WEIGHT = 6.0
"""Guesses that the knowledge of before counts as."""
_KIND = [next(kind for kind in reversed(range(len(LENGTHS))) if LENGTHS[kind] <= max(n, 1)) for n in range(18)]


def kind_of(length: int) -> int:
    """The kind of a guess before which so many tokens agree."""
    return _KIND[length if length < 17 else 17]


class AcceptanceRates:
    """The share of guesses of each kind that were right.

    before: what is believed while there are few guesses; those of another `AcceptanceRates`, which then counts all
        guesses too
    memory: after so many guesses of a kind, old ones begin to count less
    """

    def __init__(self, before: AcceptanceRates | None = None, memory: int = 256) -> None:
        self._before = before
        self._memory = memory
        self._tried = [0.0] * len(_FIRST)
        self._right = [0.0] * len(_FIRST)

    def note(self, kind: int, is_right: bool) -> None:
        """Count a guess."""
        self._tried[kind] += 1
        self._right[kind] += is_right
        if self._tried[kind] > self._memory:
            self._tried[kind] /= 2
            self._right[kind] /= 2
        if self._before is not None:
            self._before.note(kind, is_right)

    def of(self, kind: int) -> float:
        """Probability that a guess of a kind is right."""
        before = _FIRST[kind] if self._before is None else self._before.of(kind)
        return (self._right[kind] + _WEIGHT * before) / (self._tried[kind] + _WEIGHT)
