"""A row's constraint, asked about texts to which it may never come: what it raises is raised when it does."""

from __future__ import annotations

from ...guides.protocol import DEAD, Mask
from ..decode.guide_cache import GuideCache
from ..decode.row import Row


def after(row: Row, state: int, token: int) -> int:
    """The state after a guess; DEAD where the constraint refuses it, or where it would end the text."""
    request = row.request
    if request.stops(state, token):
        return DEAD
    guide_cache = request.guide_cache(state)
    if guide_cache is None:
        return state
    own_cache, own = guide_cache.beyond(state)
    known = own_cache.states.after(own, request.stop_ids, token)
    if known is not None:
        return state - own + known
    try:
        return guide_cache.guide.advance(state, token)
    except Exception:  # the row itself asks again, should it come to that
        return DEAD


def mask_of(guide_cache: GuideCache, state: int, stop_ids: frozenset[int]) -> Mask | None:
    """What a state allows; None where that cannot be told."""
    try:
        return guide_cache.mask(state, stop_ids)
    except Exception:  # as above
        return None
