"""Guesses of how texts in lanes go on: read with what is chosen, and known to the device before it comes to that.

A guess is only compared with what is chosen, by the logits at its own place and the sequence's own random number. Lanes
that read several tokens are few, and what such a launch takes is reading the weights, so a guess is read wherever it is
as likely as not to be right. Each token that is chosen says whether the guess of it was, read or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from ...guides.protocol import DEAD
from ...kernels.lanes.layout import FREE
from ..decode.draft_history import AcceptanceRates, DraftHistory
from ..decode.sequence import SequenceState
from ..drafts.foreseen import ForcedDrafts
from ..models.protocol import Model
from .state_table import DeviceStateTable

LIKELY = 0.5


class Guesses:
    """Guesses for some sequences of a model. special: bool [V], tokens that end texts; odds: of all guesses so far"""

    def __init__(
        self,
        model: Model,
        sequences: Iterable[SequenceState],
        records: DeviceStateTable,
        special: NDArray[np.bool_],
        odds: AcceptanceRates,
    ) -> None:
        for sequence in sequences:
            if sequence.trail is not None:
                missed = sequence.tokens[len(sequence.trail.tokens) - len(sequence.request.start.prompt) :]
                self.learn(sequence, missed, repeat(False))
        self._foreseen = ForcedDrafts(model)
        self._records = records
        self._special = special
        self._odds = odds
        self._led: dict[tuple[int, int], int | None] = {}

    def learn(self, sequence: SequenceState, tokens: Iterable[int], chosen: Iterable[bool]) -> None:
        """Take note of further tokens of a sequence. chosen: of each, whether it might have been another"""
        if sequence.trail is not None:
            for token, is_chosen in zip(tokens, chosen, strict=False):
                sequence.trail.take(token, is_chosen)

    def after(self, sequence: SequenceState, noted: Sequence[int], record: int, most: int) -> list[int]:
        """The last token of a sequence, and up to `most` that are likely to follow; nothing if not even one is.

        noted: tokens of the text that its sequence was not told of yet
        record: of the state after all of them. The device is told where guesses lead from there.
        """
        if not sequence.request.options.draft:
            return []
        if sequence.trail is None:
            sequence.trail = DraftHistory([*sequence.request.start.prompt, *sequence.tokens, *noted], self._odds)
        trail = sequence.trail
        if record != FREE:
            guide_cache, state, *_ = self._records.key(record)
            self._foreseen.tell(trail, guide_cache, state, lambda kind: trail.odds.of(kind) >= LIKELY)
        guesses = trail.guesses(most)
        if not guesses or trail.odds.of(guesses[0][1]) < LIKELY:
            return []
        found = [trail.tokens[-1]]
        for token, _ in guesses:
            after = self._lead(record, token, sequence)
            if after is None:
                break
            record = after
            found.append(token)
        return found if len(found) > 1 else []

    def _lead(self, record: int, token: int, sequence: SequenceState) -> int | None:
        """The record to which a guess leads; None where that is not known, or where it would end the text."""
        if self._special[token]:
            return None
        if record == FREE:
            return FREE
        if (record, token) not in self._led:
            self._led[record, token] = self._find(record, token, sequence.left)
        return self._led[record, token]

    def _find(self, record: int, token: int, left: int) -> int | None:
        before = self._records.key(record)
        if before.left is not None:
            return None
        try:
            state = before.guide_cache.guide.advance(before.state, token)
            return None if state == DEAD else self._records.lead(record, token, before._replace(state=state), left)
        except Exception:  # the sequence itself asks again, should it come to that
            return None
