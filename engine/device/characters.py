"""Sets of characters as three words: what a token is made of, and which characters lead a state back to itself."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitError
from ...guides.protocol import DEAD, Guide
from ...kernels.utf8 import FIRST_NEXT, FORMS, LAST_LEAD, LAST_NEXT, LAST_SECOND, LEAD, MORE, SECOND
from ...tokenizers_adapter import Vocabulary

_FIRST_LEAD = int(FORMS[0, LEAD])
_NEVER = 63
"""A bit of the third word that no state has: of tokens that are no whole characters."""

_charsets: WeakKeyDictionary[Vocabulary, NDArray[np.int64]] = WeakKeyDictionary()


def charsets(vocabulary: Vocabulary) -> NDArray[np.int64]:
    """The characters of each token, int64 [V, 3]: ASCII below 64, from 64 on, and lead bytes of others."""
    found = _charsets.get(vocabulary)
    if found is None:
        found = _charsets[vocabulary] = np.array([_charset(token) for token in vocabulary.tokens], np.uint64).view(
            np.int64
        )
    return found


def _charset(token: bytes | None) -> tuple[int, int, int]:
    words = [0, 0, 0]
    try:
        (token or b"\xff").decode()
    except UnicodeDecodeError:
        return 0, 0, 1 << _NEVER
    for byte in set(token or b""):
        if byte < FIRST_NEXT:
            words[byte >> 6] |= 1 << (byte & 63)
        elif byte >= _FIRST_LEAD:
            words[2] |= 1 << (byte - _FIRST_LEAD)
    return words[0], words[1], words[2]


def loops(guide: Guide, state: int) -> NDArray[np.int64]:
    """The characters after any of which a guide is in the same state again, int64 [3].

    None if the guide reads no bytes, or if that takes more than its limits allow: a text may well do with less.
    """
    words = [0, 0, 0]
    ask: Any = getattr(guide, "after_bytes", None)
    if ask is not None:
        with suppress(LimitError):
            after: NDArray[np.int32] = ask(state)
            for byte in np.flatnonzero(after[:FIRST_NEXT] == state).tolist():
                words[byte >> 6] |= 1 << (byte & 63)
            if any(words):
                words[2] = _leads(ask, after, state)
    return np.array(words, np.uint64).view(np.int64)


def _leads(ask: Any, after: NDArray[np.int32], state: int) -> int:
    """The lead bytes all of whose characters lead back, a bit each."""
    known: dict[int, NDArray[np.int32]] = {}

    def returns(place: int, first: int, last: int, more: int) -> bool:
        if place == DEAD:
            return False
        if place not in known:
            known[place] = ask(place)
        targets = set(known[place][first : last + 1].tolist())
        if more == 0:
            return targets == {state}
        return len(targets) == 1 and returns(targets.pop(), FIRST_NEXT, LAST_NEXT, more - 1)

    found = 0
    for form in FORMS:
        several = {int(after[lead]) for lead in range(form[LEAD], form[LAST_LEAD] + 1)}
        if len(several) == 1 and returns(several.pop(), int(form[SECOND]), int(form[LAST_SECOND]), int(form[MORE])):
            for lead in range(form[LEAD], form[LAST_LEAD] + 1):
                found |= 1 << (lead - _FIRST_LEAD)
    return found
