"""Drafts by what constraints say: a quotation where it is, and what there is no alternative to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...guides.protocol import DEAD, Mask
from ..decode.draft_history import QUOTED, SPELT, DraftHistory
from ..decode.guide_cache import GuideCache
from ..decode.sequence import SequenceState
from ..models.protocol import Model

_LONGEST = 256
"""Bytes of what follows that are looked at."""
_REMEMBERED = 4096


class ForcedDrafts:
    """Tells the trails of a model's texts what their constraints say."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._known: dict[bytes, list[int]] = {}

    def tell(self, trail: DraftHistory, guide_cache: GuideCache, state: int, is_of_use: Callable[[int], bool]) -> None:
        """Look up how a text goes on that is in a state.

        is_of_use: whether guesses of a kind are; else nothing is looked up, which may take as long as a small model's
            pass
        """
        ahead = trail.ahead
        if not ahead[QUOTED] and not trail.is_sure and is_of_use(QUOTED):
            ahead[QUOTED] = self._tokens(guide_cache.ahead(state))
        if not ahead[QUOTED] and not ahead[SPELT] and is_of_use(SPELT):
            ahead[SPELT] = self._tokens(guide_cache.certain(state))

    def _tokens(self, data: bytes) -> list[int]:
        """The tokens that the model's tokenizer makes of a text, but for its last where that may be cut off in it.

        Nothing where it writes other bytes, such as a space in front, or cannot write them.
        """
        found = self._known.get(data)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[data] = self._spell(data)
        return found

    def _spell(self, data: bytes) -> list[int]:
        # A character that is cut off at the end is left out.
        text = data[:_LONGEST].decode(errors="ignore")
        if not text:
            return []
        try:
            encoded: Any = self._model.tokenizer.encode(text)
            ids: list[int] = list(getattr(encoded, "ids", encoded))
        except Exception:  # nobody asked for these tokens
            return []
        spelling = self._model.vocabulary.tokens
        tokens = [token for token in ids if spelling[token]]
        written = b"".join(spelling[token] or b"" for token in tokens)
        return tokens[: len(tokens) - (len(data) > len(written))] if text.encode() == written else []


def state_after_guess(sequence: SequenceState, state: int, token: int) -> int:
    """The state after a guess; DEAD where the constraint refuses it, or where it would end the text."""
    request = sequence.request
    if request.stops(state, token):
        return DEAD
    guide_cache = request.guide_cache(state)
    if guide_cache is None:
        return state
    own_cache, own = guide_cache.beyond(state)
    entry = own_cache.states.find(own, request.stop_ids)
    known = None if entry is None else entry.after.get(token)
    if known is not None and len(known.tokens) == 1:
        return state - own + known.state.state
    try:
        return guide_cache.guide.advance(state, token)
    except Exception:  # the sequence itself asks again, should it come to that
        return DEAD


def mask_of_guess(guide_cache: GuideCache, state: int, stop_ids: frozenset[int]) -> Mask | None:
    """Mask of a state; None where that cannot be told."""
    try:
        return guide_cache.mask(state, stop_ids)
    except Exception:  # as above
        return None
