"""What is known of a constraint's states by the texts that were in them, so that others go on without asking."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from ...guides.protocol import Mask

_KNOWN_BYTES = 256
_MOST_BYTES = 1 << 24
FAR = 1 << 60
"""More tokens than any text has left."""
FREE = -1
"""In place of a state where anything may follow."""


class Allowed(NamedTuple):
    """The tokens that a step may choose from; with neither ids nor mask, all of them.

    ids: int64 tensor of all of them where they are few, else None
    mask: uint32 [words]; what `GuideCache.allowed` remembers has none, ask for it where there are no ids
    forced: the one token, where there is just one and it does not end the text, else -1
    ends: nothing but EOS is allowed
    """

    ids: Tensor | None = None
    mask: Mask | None = None
    forced: int = -1
    ends: bool = False


class KnownState:
    """A state of a constraint in which texts were, as long as they have plenty of tokens left.

    allowed: what a step may choose from; enough: with so many more tokens a text surely comes to its end
    after: where tokens lead that were chosen here before
    Whatever is written here is true for good, so that threads may share it.
    """

    __slots__ = ("after", "allowed", "enough", "state")

    def __init__(self, state: int) -> None:
        self.state = state
        self.allowed = Allowed()
        self.enough = FAR
        self.after: dict[int, Transition] = {}


class Transition(NamedTuple):
    """What comes of a token that is chosen in a state. tokens: it, and those that are forced after it; text: theirs"""

    state: KnownState
    tokens: tuple[int, ...]
    text: bytes


class KnownStates:
    """Those of one constraint, or of texts without any, by stop ids too; forgotten when they take too much room."""

    def __init__(self) -> None:
        self._states: dict[tuple[int, frozenset[int]], KnownState] = {}
        self._masks: dict[bytes, Allowed] = {}
        self._bytes = 0

    def of(self, state: int, stop_ids: frozenset[int]) -> KnownState:
        """What is known of a state, which may be nothing yet."""
        found = self._states.get((state, stop_ids))
        if found is None:
            self._grow(_KNOWN_BYTES)
            found = self._states[state, stop_ids] = KnownState(state)
            if state == FREE:
                found.enough = 0
        return found

    def met(self, state: int, stop_ids: frozenset[int]) -> KnownState | None:
        """A state in which a text was with plenty of tokens left; None for any other."""
        found = self._states.get((state, stop_ids))
        return None if found is None or found.enough == FAR else found

    def after(self, state: int, stop_ids: frozenset[int], token: int) -> int | None:
        """The state after a token, where one that is met was left by it and nothing was forced; None if not known."""
        known = self._states.get((state, stop_ids))
        found = None if known is None else known.after.get(token)
        return found.state.state if found is not None and len(found.tokens) == 1 else None

    def allow(self, state: KnownState, allowed: Allowed) -> None:
        """Remember what a state allows; of equal masks, which most states have, one."""
        if allowed.mask is not None:
            content = allowed.mask.tobytes()
            known = self._masks.get(content)
            if known is None:
                self._grow(len(content))
                known = self._masks[content] = Allowed(mask=np.frombuffer(content, np.uint32))
            allowed = known
        state.allowed = allowed

    def follow(self, state: KnownState, token: int, found: Transition) -> None:
        """Remember what comes of a token."""
        self._grow(_KNOWN_BYTES + len(found.text) + 8 * len(found.tokens))
        state.after[token] = found

    def _grow(self, count: int) -> None:
        self._bytes += count
        if self._bytes > _MOST_BYTES:
            # Texts on their way go on by what they have.
            self._states.clear()
            self._masks.clear()
            self._bytes = count
