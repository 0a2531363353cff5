"""A guide with cached masks, distances and transitions of the states that sequences have met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...checks import implements
from ...errors import LimitError
from ...guides import AlignedGuide, FreeGuide
from ...guides.healing import Crossings
from ...guides.limits import Limits
from ...guides.locks import new_lock
from ...guides.protocol import DEAD, ByteGuide, Foreseeing, Guide, Mask, Quoting, RowGuide, mask_within, should_rebuild
from ...guides.required_content import GoalGuide
from ...kernels.logits.mask import allowed_ids
from ..models.protocol import Model
from ..prompts.encoding import Ids
from ..scores import as_list

T = TypeVar("T")

_MAX_FORCED_BYTES = 64
_TAILS = 256
RESERVE = 3
"""From 1 to 4, the smallest reserve with the best accuracy on records of a real model: see docs/answers.md."""
_NO_STOPS: frozenset[int] = frozenset()


class MaskTimer:
    """Counts of mask computations and their total time in this process, over all guides.

    Updates are not atomic. An addition of one thread may be lost during one of another, which is rare.
    """

    count = 0
    seconds = 0.0

    @classmethod
    def timed(cls, ask: Callable[[], T]) -> T:
        """Return the result of `ask`, counted and timed."""
        begin = perf_counter()
        found = ask()
        cls.seconds += perf_counter() - begin
        cls.count += 1
        return found


class GuideCache:
    """A guide and the cached facts of its states. Sequences and calls share it; it is thread-safe.

    sparse_head_limit: greatest number of allowed tokens that are listed, so that only their logits are computed
    may_be_cut: the text is free but for the guide's goals: its budget, stop strings and stop ids may end it
    limits: bounds of the guide that heals the end of a prompt
    reserve: tokens reserved for each token of the distance: see `reserving`
    """

    def __init__(
        self,
        guide: Guide,
        sparse_head_limit: int,
        *,
        may_be_cut: bool = False,
        limits: Limits | None = None,
        reserve: int = 1,
    ) -> None:
        self.guide = guide
        self.limits = limits
        self.reserve = reserve
        self.sparse_head_limit = sparse_head_limit
        self.may_be_cut = may_be_cut
        self.goals = guide if isinstance(guide, GoalGuide) else None
        self._quoting = guide if implements(guide, Quoting) else None
        self._foreseeing = guide if implements(guide, Foreseeing) else None
        self._quick_fits: Callable[[int, int], bool] | None = getattr(guide, "fits", None)
        self._quick_bound: Callable[[int, int], int | None] | None = getattr(guide, "known_bound", None)
        self._within = guide.mask_within if implements(guide, RowGuide) else partial(mask_within, guide)
        self._eos = frozenset(guide.vocabulary.eos_ids)
        self.states = StateTable(guide.advance)
        self._crossings: Crossings | None = None
        self._behind: dict[bytes, HealedGuideCache] = {}
        self._reserving: dict[int, GuideCache] = {}
        self._distance: int | None = None
        self._lock = new_lock()

    @property
    def distance(self) -> int:
        """The distance of the start state; cached."""
        if self._distance is None:
            self._distance = self.guide.distance(self.guide.start)
        return self._distance

    def warm(self) -> None:
        """Compute the mask and the distance of the start state, which every text needs first."""
        self.allowed(self.guide.start)
        _ = self.distance

    def knows(self, tail: bytes) -> bool:
        """Test whether `behind(tail)` and its distance are cached. If so, they ask nothing of the guide."""
        known = None if should_rebuild(self.guide) else self._behind.get(tail) if tail else self
        return known is not None and known._distance is not None

    @property
    def crossings(self) -> Crossings | None:
        """Tokens that lead from a text before the guide's into it; None if the guide does not read bytes."""
        if self._crossings is None and implements(self.guide, ByteGuide):
            self._crossings = Crossings(self.guide)
        return self._crossings

    def known_cut(self, prompt: Sequence[int]) -> int | None:
        """Return the number of prompt tokens that token healing keeps; None if this may have to ask the guide."""
        if self._crossings is None:  # created by the first prompt
            return None if implements(self.guide, ByteGuide) else len(prompt)
        return self._crossings.known_cut(prompt)

    def behind(self, tail: bytes) -> HealedGuideCache:
        """Return this constraint after a tail that has to be spelt first. The latest ones are cached."""
        found = self._behind.get(tail)  # lock-free lookup: creation holds the lock
        if found is None:
            with self._lock:
                found = self._behind[tail] = self._behind.get(tail) or HealedGuideCache(self, self._aligned(tail))
                if len(self._behind) > _TAILS:
                    del self._behind[next(iter(self._behind))]
        return found

    def _aligned(self, tail: bytes) -> AlignedGuide:
        assert implements(self.guide, ByteGuide)
        return AlignedGuide(self.guide, tail, counts_tail=False, crossings=self.crossings, limits=self.limits)

    def reserving(self, budget: int) -> GuideCache:
        """Return this constraint for a budget of tokens, a part of which is reserved to end the text.

        The distance counts one token for a string that may be empty. A list that a model would continue for ever
        therefore leaves one token for each member after it. With a reserve of r, a token is only chosen if r times the
        distance is left. The reserve is at most RESERVE, and at the start at most half of the budget. One step of the
        distance frees r tokens and takes one, so a text that fits its budget at the start always fits.
        """
        return self.with_reserve(max(min(RESERVE, budget // (2 * max(self.distance, 1))), 1))

    def with_reserve(self, reserve: int) -> GuideCache:
        """Return this constraint with another reserve; cached."""
        if reserve == self.reserve:
            return self
        found = self._reserving.get(reserve)
        if found is None:
            with self._lock:
                found = self._reserving[reserve] = self._reserving.get(reserve) or self._with_reserve(reserve)
        return found

    def _with_reserve(self, reserve: int) -> GuideCache:
        found = GuideCache(
            self.guide, self.sparse_head_limit, may_be_cut=self.may_be_cut, limits=self.limits, reserve=reserve
        )
        found._distance = self._distance
        return found

    def unwrap(self, state: int) -> tuple[GuideCache, int]:
        """Return the cache that holds a state, and the state's number there. A healed prompt's end is left out."""
        return self, state

    def allowed(self, state: int) -> AllowedTokens:
        """Return the tokens that `state` allows, without the mask; cached."""
        cache, state = self.unwrap(state)
        entry = cache.states.of(state)
        found = entry.choice
        if found is None:
            found = MaskTimer.timed(lambda: cache.listed(cache.guide.mask(state)))._replace(mask=None)
            entry.choice = found
            cache.states.hold(0 if found.ids is None else 8 * len(found.ids))
        return found

    def known(self, state: int) -> AllowedTokens | None:
        """Return the cached result of `allowed`; None if there is none."""
        cache, state = self.unwrap(state)
        entry = cache.states.find(state)
        return None if entry is None else entry.choice

    def ahead(self, state: int) -> bytes:
        """Return the bytes that follow in the quoted document if the place in it is unique; else no bytes."""
        cache, state = self.unwrap(state)
        return b"" if cache._quoting is None else cache._quoting.ahead(state)

    def forced_bytes(self, state: int) -> bytes:
        """Return the forced bytes. Several tokenizations of them may be allowed. Cached."""
        cache, state = self.unwrap(state)
        entry = cache.states.of(state)
        found = entry.forced_bytes
        if found is None:
            found = b""
            if cache._foreseeing is not None:
                with suppress(LimitError):  # the sequence itself repeats the query if it gets there
                    found = cache._foreseeing.certain_bytes(state, _MAX_FORCED_BYTES)
            entry.forced_bytes = found
            cache.states.hold(len(found))
        return found

    def mask(self, state: int, stop_ids: frozenset[int], left: int | None = None) -> Mask:
        """Return a fresh mask of the tokens that a step may choose. left: keep only tokens after which the rest still
        fits

        Stop ids end a text like EOS, so only where it is complete. If nothing else is allowed they are text.
        """
        within = None if left is None else (left - 1) // self.reserve + 1
        mask = MaskTimer.timed(lambda: self.guide.mask(state) if within is None else self._within(state, within)).copy()
        if stop_ids:
            stops = np.zeros_like(mask)
            for token in stop_ids:
                stops[token >> 5] |= np.uint32(1 << (token & 31))
            if self.guide.is_accepting(state):
                mask |= stops
            elif (mask & ~stops).any():
                mask &= ~stops
        return mask

    def after_tokens(self, state: int) -> NDArray[np.int32] | None:
        """Return the state after each token, int32 [V], DEAD for tokens that are not allowed or end the text.

        Returns None if the guide can only answer token by token. Raises LimitError.
        """
        return None if self._foreseeing is None else self._foreseeing.after_each_token(state)

    def progress(self, state: int) -> int:
        """Return the progress with the goals; 0 if there are none."""
        return 0 if self.goals is None else self.goals.progress(state)

    def progress_after(self, state: int, token: int) -> int:
        """Return the progress after an allowed token."""
        return 0 if self.goals is None else self.goals.progress_after(state, token)

    def advancing(self, state: int) -> NDArray[np.int32]:
        """Return the allowed tokens that advance a goal, int32 [n], ascending; cached."""
        cache, state = self.unwrap(state)
        entry = cache.states.of(state)
        found = entry.advancing
        if found is None:
            found = entry.advancing = cache._leading_on(state)
            cache.states.hold(found.nbytes)
        return found

    def _leading_on(self, state: int) -> NDArray[np.int32]:
        return np.zeros(0, np.int32) if self.goals is None else allowed_ids(self.goals.advancing(state))

    def listed(self, mask: Mask) -> AllowedTokens:
        """Return the tokens that a mask allows."""
        count = int.from_bytes(mask.tobytes(), "little").bit_count()
        if count > max(self.sparse_head_limit, len(self._eos)):
            return AllowedTokens(mask=mask)
        ids = allowed_ids(mask)
        ends = count <= len(self._eos) and self._eos.issuperset(as_list(ids))
        forced = int(ids[0]) if count == 1 and not ends else -1
        listed = torch.as_tensor(ids, dtype=torch.int64) if count <= self.sparse_head_limit else None
        return AllowedTokens(listed, mask, forced, ends)

    def fits(self, state: int, left: int) -> bool:
        """Test whether `left` tokens are enough to complete the text, reserve included.

        A guide with `known_bound` gives the number. Otherwise half of `left` is tried first, so that a state that is
        met again with less left costs few queries.
        """
        cache, state = self.unwrap(state)
        entry = cache.states.of(state)
        if entry.known_bound <= left:
            return True
        if cache._quick_bound is not None:
            found = cache._quick_bound(state, left // cache.reserve)
            entry.known_bound = entry.known_bound if found is None else found * cache.reserve
            return found is not None
        for bound in (left // 2, left):
            if bound >= 0 and cache._guide_fits(state, bound // cache.reserve):
                entry.known_bound = bound
                return True
        return False

    def known_bound(self, state: int) -> int | None:
        """Return a number of tokens known to complete the text from a state; None if unknown."""
        cache, state = self.unwrap(state)
        entry = cache.states.find(state)
        return None if entry is None or entry.known_bound == FAR else entry.known_bound

    def _guide_fits(self, state: int, left: int) -> bool:
        if self._quick_fits is not None:
            return self._quick_fits(state, left)
        return self.guide.distance(state) <= left

    def is_near_budget(self, state: int, left: int) -> bool:
        """Test whether so few tokens are left that some choices may not fit."""
        return not self.fits(state, left - 2)


class HealedGuideCache(GuideCache):
    """A constraint after a healed prompt tail. Once the tail is spelt, the constraint's own cache is used.

    Tokens inside the tail count neither in distances nor against budgets.
    """

    def __init__(self, guide_cache: GuideCache, aligned: AlignedGuide) -> None:
        super().__init__(
            aligned,
            guide_cache.sparse_head_limit,
            may_be_cut=guide_cache.may_be_cut,
            limits=guide_cache.limits,
            reserve=guide_cache.reserve,
        )
        self.goals = guide_cache.goals
        self._guide = aligned
        self._guide_cache = guide_cache
        self._begin = len(aligned.tail)

    def _with_reserve(self, reserve: int) -> GuideCache:
        found = HealedGuideCache(self._guide_cache.with_reserve(reserve), self._guide)
        found._distance = self._distance
        return found

    def mask(self, state: int, stop_ids: frozenset[int], left: int | None = None) -> Mask:
        """Return the mask as the base class does. Stop ids do not apply inside the tail."""
        return super().mask(state, frozenset() if state < self._begin else stop_ids, left)

    def after_tokens(self, state: int) -> NDArray[np.int32] | None:
        """Return the state after each token, as the constraint does; None inside the tail."""
        after = self._guide_cache.after_tokens(state - self._begin) if state >= self._begin else None
        return None if after is None else np.where(after == DEAD, DEAD, after + self._begin).astype(np.int32)

    def progress(self, state: int) -> int:
        """Return the progress with the goals. No goal begins inside the tail."""
        return self._guide_cache.progress(max(state - self._begin, 0))

    def progress_after(self, state: int, token: int) -> int:
        """Return the progress after an allowed token."""
        if state >= self._begin:
            return self._guide_cache.progress_after(state - self._begin, token)
        return self.progress(self.guide.advance(state, token))

    def _leading_on(self, state: int) -> NDArray[np.int32]:
        """Return the tokens that advance a goal. Inside the tail, their bytes beyond it count."""
        node = self._guide.end_node(state)
        if self.goals is None or node is None:
            return np.zeros(0, np.int32)
        return allowed_ids(self.goals.advancing_below(self.goals.start, node))

    def unwrap(self, state: int) -> tuple[GuideCache, int]:
        """Return the constraint's own cache once the tail is spelt."""
        return (self, state) if state < self._begin else (self._guide_cache, state - self._begin)


_ENTRY_BYTES = 256
_MAX_BYTES = 1 << 24
FAR = 1 << 60
"""A distance greater than any budget."""
FREE = -1
"""The state number of free text."""


class AllowedTokens(NamedTuple):
    """The tokens that a step may choose. Without ids and mask, all are allowed.

    ids: int64 tensor of all allowed tokens if they are few, else None
    mask: uint32 [words]; `GuideCache.allowed` does not cache it
    forced: the only allowed token if it does not end the text, else -1
    ends: True if only EOS is allowed
    """

    ids: Tensor | None = None
    mask: Mask | None = None
    forced: int = -1
    ends: bool = False


class StateEntry:
    """Known facts of a constraint's state under a set of stop ids.

    Fields are filled in on demand and never become wrong, so threads may share them.

    state: the guide's number of the state
    choice: the allowed tokens without the mask, whatever the stop ids; None if unknown
    known_bound: a number of tokens that completes the text; FAR if unknown
    forced_bytes: the forced bytes; None if unknown
    advancing: the allowed tokens that advance a goal, int32 [n], ascending; None if unknown
    allowed: the tokens of a step that is not tight; None if unknown
    forced: the forced tokens of a step that is not tight, and the state after them; None if none or unknown
    """

    __slots__ = ("advancing", "allowed", "choice", "forced", "forced_bytes", "known_bound", "state")

    def __init__(self, state: int) -> None:
        self.state = state
        self.choice: AllowedTokens | None = None
        self.known_bound = FAR
        self.forced_bytes: bytes | None = None
        self.advancing: NDArray[np.int32] | None = None
        self.allowed: AllowedTokens | None = None
        self.forced: ForcedTokens | None = None


class ForcedTokens(NamedTuple):
    """The forced tokens of a state, their bytes, and the state after them."""

    tokens: tuple[int, ...]
    text: bytes
    state: StateEntry


class StateTable:
    """The known states of one constraint, or of free text. The table is cleared when it takes too much memory.

    Running sequences keep the entries that they refer to. `choice`, `forced_bytes` and `advancing` are stored in the
    entry without stop ids.
    advance: the guide's; transitions are cached there (`TransitionCache`)
    """

    def __init__(self, advance: Callable[[int, int], int]) -> None:
        self._advance = advance
        self._states: dict[tuple[int, frozenset[int]], StateEntry] = {}
        self._masks: dict[bytes, AllowedTokens] = {}
        self._bytes = 0

    def of(self, state: int, stop_ids: frozenset[int] = _NO_STOPS) -> StateEntry:
        """Return the entry of a state, created if missing."""
        found = self._states.get((state, stop_ids))
        if found is None:
            self.hold(_ENTRY_BYTES)
            found = self._states[state, stop_ids] = StateEntry(state)
        return found

    def find(self, state: int, stop_ids: frozenset[int] = _NO_STOPS) -> StateEntry | None:
        """Return the entry of a state, or None."""
        return self._states.get((state, stop_ids))

    def after(self, entry: StateEntry, token: int, stop_ids: frozenset[int]) -> StateEntry | None:
        """Return the entry of the state after a token, if there is one."""
        return self._states.get((self._advance(entry.state, token), stop_ids))

    def allow(self, entry: StateEntry, allowed: AllowedTokens) -> None:
        """Store the allowed tokens of a state. Equal masks, which are frequent, are stored once."""
        if allowed.mask is not None:
            content = allowed.mask.tobytes()
            known = self._masks.get(content)
            if known is None:
                self.hold(len(content))
                known = self._masks[content] = AllowedTokens(mask=np.frombuffer(content, np.uint32))
            allowed = known
        entry.allowed = allowed

    def force(self, entry: StateEntry, found: ForcedTokens) -> None:
        """Store the forced tokens of a state."""
        self.hold(_ENTRY_BYTES + len(found.text) + 8 * len(found.tokens))
        entry.forced = found

    def hold(self, count: int) -> None:
        """Account for `count` more bytes, and clear the table if the sum exceeds the bound."""
        self._bytes += count
        if self._bytes > _MAX_BYTES:
            self._states.clear()
            self._masks.clear()
            self._bytes = count


@dataclass(frozen=True, slots=True)
class HealedPrompt:
    """The start of a sequence.

    prompt: the tokens that the model reads
    guide_cache: the constraint of the output; None for free text
    tail: number of bytes of the prompt's healed tail, which the constraint spells first
    is_free: True if the text after the tail is free
    source: the tokens that an encoder reads; `prompt` is then the decoder's start
    held: the prompt's images and audio, referenced as long as their rows may be read
    """

    prompt: Ids
    guide_cache: GuideCache | None
    tail: int = 0
    is_free: bool = False
    source: Ids = ()
    held: tuple[Any, ...] = ()

    @property
    def size(self) -> int:
        """The greatest number of tokens before the output."""
        return len(self.prompt) + self.tail


def healed(model: Model, prompt: Ids, guide_cache: GuideCache | None, most: int | None = None) -> HealedPrompt | None:
    """Return the prompt without the tokens that an output token may merge with; None if there are none.

    A prompt that is cut completely is replaced by BOS, as an empty one is. Without BOS its first token stays. Token
    healing does not apply to guides that do not read bytes, nor to encoder-decoders.
    most: greatest number of bytes to cut; None for no bound
    """
    behind = _free(model) if guide_cache is None else guide_cache
    if behind.crossings is None or getattr(model, "is_encoder_decoder", False):
        return None
    cut = behind.crossings.cut(prompt)
    while most is not None and len(model.vocabulary.decode(prompt[cut:])) > most:
        cut += 1
    begin: int | None = getattr(model.tokenizer, "bos_token_id", None)
    first = prompt[:cut] or (prompt[:1] if begin is None else (begin,))
    tail = _tail(model, prompt, cut)
    return HealedPrompt(first, behind.behind(tail), len(tail), guide_cache is None) if tail else None


def is_known(model: Model, prompt: Ids, guide_cache: GuideCache, *, heal: bool) -> bool:
    """Test whether the start of a text and its distance are cached: see `GuideCache.knows`."""
    if getattr(model, "is_encoder_decoder", False):
        return False
    if not heal:
        return guide_cache.knows(b"")
    cut = guide_cache.known_cut(prompt)
    return cut is not None and guide_cache.knows(b"") and guide_cache.knows(_tail(model, prompt, cut))


def _tail(model: Model, prompt: Ids, cut: int) -> bytes:
    """Return the bytes of a prompt after its `cut` tokens, or after its first token without BOS."""
    has_begin = getattr(model.tokenizer, "bos_token_id", None) is not None
    return model.vocabulary.decode(prompt[cut if cut or has_begin else 1 :])


def _free(model: Model) -> GuideCache:
    """Return the cache that stands for no constraint. It is one per model, to cache healed tails."""
    known = _FREE.get(model)
    if known is None:
        known = _FREE[model] = GuideCache(FreeGuide(model.vocabulary), model.sparse_head_limit, may_be_cut=True)
    return known


_FREE: WeakKeyDictionary[Any, GuideCache] = WeakKeyDictionary()
