"""A guide as the engine asks it, and a table of its states, so that sequences go on from those that were met."""

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

from ...checks import conforms
from ...errors import LimitError
from ...guides import AlignedGuide, FreeGuide
from ...guides.goals import GoalGuide
from ...guides.healing import Crossings
from ...guides.limits import Limits
from ...guides.locks import new_lock
from ...guides.protocol import DEAD, ByteGuide, Foreseeing, Guide, Mask, Quoting, RowGuide, mask_within
from ...kernels.logits.mask import allowed_ids
from ..models.protocol import Model
from ..prompts.encoding import Ids
from ..scores import as_list

T = TypeVar("T")

_CERTAIN_BYTES = 64
_TAILS = 256
RESERVE = 3
"""Of 1 to 4, the least with which records of a real model are right most often: see docs/answers.md."""
_NO_STOPS: frozenset[int] = frozenset()


class MaskTimer:
    """Counts of masks, and of the time that they have taken in this process, over all guides.

    Threads may count at once: what one of them adds in the midst of another's addition may be lost, which is rare.
    """

    count = 0
    seconds = 0.0

    @classmethod
    def timed(cls, ask: Callable[[], T]) -> T:
        """The answer to a question about a mask, counted."""
        begin = perf_counter()
        found = ask()
        cls.seconds += perf_counter() - begin
        cls.count += 1
        return found


class GuideCache:
    """A guide with what its states allow, as far as they were met; shared by sequences and calls, safe between threads.

    sparse_head_limit: up to how many allowed tokens are listed, for the logits of these alone
    free: the text is free but for the goals of the guide: its budget, stop strings and stop ids may end it
    limits: of what stands before the guide, the end of a prompt
    reserve: for each token that a text still needs at least, so many are to be left: see `reserving`
    """

    def __init__(
        self,
        guide: Guide,
        sparse_head_limit: int,
        *,
        free: bool = False,
        limits: Limits | None = None,
        reserve: int = 1,
    ) -> None:
        self.guide = guide
        self.limits = limits
        self.reserve = reserve
        self.sparse_head_limit = sparse_head_limit
        self.free = free
        self.goals = guide if isinstance(guide, GoalGuide) else None
        self._quoting = guide if conforms(guide, Quoting) else None
        self._foreseeing = guide if conforms(guide, Foreseeing) else None
        self._quick_fits: Callable[[int, int], bool] | None = getattr(guide, "fits", None)
        self._quick_enough: Callable[[int, int], int | None] | None = getattr(guide, "enough", None)
        self._within = guide.mask_within if conforms(guide, RowGuide) else partial(mask_within, guide)
        self._eos = frozenset(guide.vocabulary.eos_ids)
        self.states = StateTable()
        self._crossings: Crossings | None = None
        self._behind: dict[bytes, HealedGuideCache] = {}
        self._reserving: dict[int, GuideCache] = {}
        self._distance: int | None = None
        self._lock = new_lock()

    @property
    def distance(self) -> int:
        """Fewest tokens that complete a text; remembered."""
        if self._distance is None:
            self._distance = self.guide.distance(self.guide.start)
        return self._distance

    def knows(self, tail: bytes) -> bool:
        """True if `behind` and the distance of that ask nothing of the guide, which another thread may be at."""
        known = None if getattr(self.guide, "is_worn", False) else self._behind.get(tail) if tail else self
        return known is not None and known._distance is not None

    @property
    def crossings(self) -> Crossings | None:
        """The tokens that lead from a text before the guide's into it; None for a guide that does not read bytes."""
        if self._crossings is None and conforms(self.guide, ByteGuide):
            self._crossings = Crossings(self.guide)
        return self._crossings

    def known_cut(self, prompt: Sequence[int]) -> int | None:
        """Number of tokens of a prompt that stay when it is healed; None where to find that out may ask the guide."""
        if self._crossings is None:  # made by the first prompt
            return None if conforms(self.guide, ByteGuide) else len(prompt)
        return self._crossings.known_cut(prompt)

    def behind(self, tail: bytes) -> HealedGuideCache:
        """This constraint behind a sequence that is to be spelt first; those made last are remembered."""
        found = self._behind.get(tail)  # without the lock, under which another is made
        if found is None:
            with self._lock:
                found = self._behind[tail] = self._behind.get(tail) or HealedGuideCache(self, self._aligned(tail))
                if len(self._behind) > _TAILS:
                    del self._behind[next(iter(self._behind))]
        return found

    def _aligned(self, tail: bytes) -> AlignedGuide:
        assert conforms(self.guide, ByteGuide)
        return AlignedGuide(self.guide, tail, counts_tail=False, crossings=self.crossings, limits=self.limits)

    def reserving(self, budget: int) -> GuideCache:
        """This constraint for texts of so many tokens, of which the end of a text has a share.

        The distance counts a token for a string that may be empty, so that a list which a model would continue for
        ever leaves the members behind it one token each. With a reserve of r, a choice may only lead to where r times
        the distance is left. Up to RESERVE, as long as half of the budget is not reserved at the start; one step of
        the distance frees r tokens and takes one, so that a text which begins within its budget stays there.
        """
        return self.with_reserve(max(min(RESERVE, budget // (2 * max(self.distance, 1))), 1))

    def with_reserve(self, reserve: int) -> GuideCache:
        """This constraint with another reserve; made once."""
        if reserve == self.reserve:
            return self
        found = self._reserving.get(reserve)
        if found is None:
            with self._lock:
                found = self._reserving[reserve] = self._reserving.get(reserve) or self._with_reserve(reserve)
        return found

    def _with_reserve(self, reserve: int) -> GuideCache:
        found = GuideCache(self.guide, self.sparse_head_limit, free=self.free, limits=self.limits, reserve=reserve)
        found._distance = self._distance
        return found

    def beyond(self, state: int) -> tuple[GuideCache, int]:
        """The cache that knows a state, and the state's number there, whatever prompt stands before it."""
        return self, state

    def allowed(self, state: int) -> Allowed:
        """The tokens that `state` allows, without the mask; remembered."""
        cache, state = self.beyond(state)
        entry = cache.states.of(state)
        found = entry.choice
        if found is None:
            found = MaskTimer.timed(lambda: cache.listed(cache.guide.mask(state)))._replace(mask=None)
            entry.choice = found
            cache.states.hold(0 if found.ids is None else 8 * len(found.ids))
        return found

    def known(self, state: int) -> Allowed | None:
        """The same, as far as it is remembered; None if it was not asked yet."""
        cache, state = self.beyond(state)
        entry = cache.states.find(state)
        return None if entry is None else entry.choice

    def ahead(self, state: int) -> bytes:
        """The bytes that follow in the document that is quoted, where only one place of it is meant; else none."""
        cache, state = self.beyond(state)
        return b"" if cache._quoting is None else cache._quoting.ahead(state)

    def certain(self, state: int) -> bytes:
        """The bytes to which there is no alternative, which several tokens may spell in several ways; remembered."""
        cache, state = self.beyond(state)
        entry = cache.states.of(state)
        found = entry.certain
        if found is None:
            found = b""
            if cache._foreseeing is not None:
                with suppress(LimitError):  # the sequence itself asks again, should it come to that
                    found = cache._foreseeing.certain_bytes(state, _CERTAIN_BYTES)
            entry.certain = found
            cache.states.hold(len(found))
        return found

    def mask(self, state: int, stop_ids: frozenset[int], left: int | None = None) -> Mask:
        """Tokens that a step may choose from, the caller's own: with `left` only those after which the rest still fits.

        Stop ids end a text as EOS does, and so only where it is complete; where nothing else is left they are text.
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
        """The state after each token, int32 [V], DEAD where it is not allowed or ends the text; None where only
        asking about one token after the other would tell.

        Raises LimitError.
        """
        return None if self._foreseeing is None else self._foreseeing.after_each_token(state)

    def progress(self, state: int) -> int:
        """Progress of the text with the goals; 0 if there are none."""
        return 0 if self.goals is None else self.goals.progress(state)

    def progress_after(self, state: int, token: int) -> int:
        """Progress after an allowed token."""
        return 0 if self.goals is None else self.goals.progress_after(state, token)

    def advancing(self, state: int) -> NDArray[np.int32]:
        """The allowed tokens that lead on to a goal, ascending: int32 [n]; remembered."""
        cache, state = self.beyond(state)
        entry = cache.states.of(state)
        found = entry.advancing
        if found is None:
            found = entry.advancing = cache._leading_on(state)
            cache.states.hold(found.nbytes)
        return found

    def _leading_on(self, state: int) -> NDArray[np.int32]:
        return np.zeros(0, np.int32) if self.goals is None else allowed_ids(self.goals.advancing(state))

    def listed(self, mask: Mask) -> Allowed:
        """The tokens that a mask allows."""
        count = int.from_bytes(mask.tobytes(), "little").bit_count()
        if count > max(self.sparse_head_limit, len(self._eos)):
            return Allowed(mask=mask)
        ids = allowed_ids(mask)
        ends = count <= len(self._eos) and self._eos.issuperset(as_list(ids))
        forced = int(ids[0]) if count == 1 and not ends else -1
        listed = torch.as_tensor(ids, dtype=torch.int64) if count <= self.sparse_head_limit else None
        return Allowed(listed, mask, forced, ends)

    def fits(self, state: int, left: int) -> bool:
        """Tell whether `left` tokens are enough to complete the text, reserve included.

        Asks the guide how many are, or else about half of them first, so that a state that is met again and again,
        with ever less left, costs few questions.
        """
        cache, state = self.beyond(state)
        entry = cache.states.of(state)
        if entry.enough <= left:
            return True
        if cache._quick_enough is not None:
            found = cache._quick_enough(state, left // cache.reserve)
            entry.enough = entry.enough if found is None else found * cache.reserve
            return found is not None
        for enough in (left // 2, left):
            if enough >= 0 and cache._guide_fits(state, enough // cache.reserve):
                entry.enough = enough
                return True
        return False

    def enough(self, state: int) -> int | None:
        """A number of tokens that is known by `fits` to complete the text from a state; None if none is known."""
        cache, state = self.beyond(state)
        entry = cache.states.find(state)
        return None if entry is None or entry.enough == FAR else entry.enough

    def _guide_fits(self, state: int, left: int) -> bool:
        if self._quick_fits is not None:
            return self._quick_fits(state, left)
        return self.guide.distance(state) <= left

    def tight(self, state: int, left: int) -> bool:
        """True if so little is left that most tokens would not fit."""
        return not self.fits(state, left - 2)


class HealedGuideCache(GuideCache):
    """A constraint behind the end of a prompt. Once that is spelt, what is known of the constraint is used.

    Tokens that lie within the end of the prompt count neither in distances nor against budgets.
    """

    def __init__(self, guide_cache: GuideCache, aligned: AlignedGuide) -> None:
        super().__init__(
            aligned,
            guide_cache.sparse_head_limit,
            free=guide_cache.free,
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
        """Tokens that a step may choose from; within the end of the prompt nothing stops."""
        return super().mask(state, frozenset() if state < self._begin else stop_ids, left)

    def after_tokens(self, state: int) -> NDArray[np.int32] | None:
        """The state after each token, as the constraint says; None within the end of the prompt."""
        after = self._guide_cache.after_tokens(state - self._begin) if state >= self._begin else None
        return None if after is None else np.where(after == DEAD, DEAD, after + self._begin).astype(np.int32)

    def progress(self, state: int) -> int:
        """Progress of the text with the goals, of which none begins within the prompt."""
        return self._guide_cache.progress(max(state - self._begin, 0))

    def progress_after(self, state: int, token: int) -> int:
        """Progress after an allowed token."""
        if state >= self._begin:
            return self._guide_cache.progress_after(state - self._begin, token)
        return self.progress(self.guide.advance(state, token))

    def _leading_on(self, state: int) -> NDArray[np.int32]:
        """The same within the end of the prompt: by what tokens have beyond it."""
        node = self._guide.end_node(state)
        if self.goals is None or node is None:
            return np.zeros(0, np.int32)
        return allowed_ids(self.goals.advancing_below(self.goals.start, node))

    def beyond(self, state: int) -> tuple[GuideCache, int]:
        """The constraint's own cache once the prompt's end is spelt."""
        return (self, state) if state < self._begin else (self._guide_cache, state - self._begin)


_ENTRY_BYTES = 256
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


class StateEntry:
    """Everything that is known of a state of a constraint, under the stop ids of the requests that met it.

    Fields are filled in when they are first asked for. Each of them is true for good, so that threads may share it.

    state: the number that the guide gives it
    choice: the tokens that its mask allows, without the mask and whatever the stop ids; None until asked for
    enough: with so many more tokens a text is known to be completed; FAR until anything is known
    certain: the bytes to which there is no alternative; None until asked for
    advancing: the allowed tokens that lead on to a goal, int32 [n] ascending; None until asked for
    allowed: the tokens that a step may choose from where plenty are left; None until a step has been there with plenty
    after: where tokens lead that were chosen here with plenty left, forced tokens behind them included
    """

    __slots__ = ("advancing", "after", "allowed", "certain", "choice", "enough", "state")

    def __init__(self, state: int) -> None:
        self.state = state
        self.choice: Allowed | None = None
        self.enough = FAR
        self.certain: bytes | None = None
        self.advancing: NDArray[np.int32] | None = None
        self.allowed: Allowed | None = None
        self.after: dict[int, Transition] = {}


class Transition(NamedTuple):
    """The way from a state over a token. tokens: it, and those that are forced after it; text: their bytes"""

    state: StateEntry
    tokens: tuple[int, ...]
    text: bytes


class StateTable:
    """The states that were met of one constraint, or of sequences without any; forgotten when they take too much room.

    Sequences that run go on by the entries that they have. `choice`, `certain` and `advancing` are in the entry of a
    state without stop ids.
    """

    def __init__(self) -> None:
        self._states: dict[tuple[int, frozenset[int]], StateEntry] = {}
        self._masks: dict[bytes, Allowed] = {}
        self._bytes = 0

    def of(self, state: int, stop_ids: frozenset[int] = _NO_STOPS) -> StateEntry:
        """The entry of a state, made if there is none."""
        found = self._states.get((state, stop_ids))
        if found is None:
            self.hold(_ENTRY_BYTES)
            found = self._states[state, stop_ids] = StateEntry(state)
        return found

    def find(self, state: int, stop_ids: frozenset[int] = _NO_STOPS) -> StateEntry | None:
        """The entry of a state, if there is one."""
        return self._states.get((state, stop_ids))

    def allow(self, entry: StateEntry, allowed: Allowed) -> None:
        """Remember the tokens that a step may choose from; of equal masks, which most states have, one."""
        if allowed.mask is not None:
            content = allowed.mask.tobytes()
            known = self._masks.get(content)
            if known is None:
                self.hold(len(content))
                known = self._masks[content] = Allowed(mask=np.frombuffer(content, np.uint32))
            allowed = known
        entry.allowed = allowed

    def follow(self, entry: StateEntry, token: int, found: Transition) -> None:
        """Remember the way over a token."""
        self.hold(_ENTRY_BYTES + len(found.text) + 8 * len(found.tokens))
        entry.after[token] = found

    def hold(self, count: int) -> None:
        """Account for so many more bytes, and forget all states where that are too many."""
        self._bytes += count
        if self._bytes > _MOST_BYTES:
            self._states.clear()
            self._masks.clear()
            self._bytes = count


@dataclass(frozen=True, slots=True)
class HealedPrompt:
    """The beginning of a text.

    prompt: what the model reads; constraint: what it then may say, None for anything
    tail: how many bytes of the prompt the constraint has before its own text
    is_free: whether anything may follow the tail
    source: what an encoder reads apart from the prompt, which is then what the decoder starts from
    held: what the prompt's images and audio are, held for as long as their rows may be read
    """

    prompt: Ids
    guide_cache: GuideCache | None
    tail: int = 0
    is_free: bool = False
    source: Ids = ()
    held: tuple[Any, ...] = ()

    @property
    def size(self) -> int:
        """The most tokens it can take up to where the output begins."""
        return len(self.prompt) + self.tail


def healed(model: Model, prompt: Ids, guide_cache: GuideCache | None, most: int | None = None) -> HealedPrompt | None:
    """The prompt without the tokens that a token of the output may cross into; None if there are none.

    A prompt that is cut away completely begins with the token that begins a text (BOS), as an empty one does;
    where the tokenizer has none, its first token stays. A constraint by tokens rather than by bytes, and a model
    that reads its prompt apart from its output, have nothing to heal.
    most: how many bytes at its end may be cut away; None for all
    """
    behind = _free(model) if guide_cache is None else guide_cache
    if behind.crossings is None or getattr(model, "is_encoder_decoder", False):
        return None
    kept = behind.crossings.cut(prompt)
    while most is not None and len(model.vocabulary.decode(prompt[kept:])) > most:
        kept += 1
    begin: int | None = getattr(model.tokenizer, "bos_token_id", None)
    first = prompt[:kept] or (prompt[:1] if begin is None else (begin,))
    tail = _tail(model, prompt, kept)
    return HealedPrompt(first, behind.behind(tail), len(tail), guide_cache is None) if tail else None


def is_known(model: Model, prompt: Ids, guide_cache: GuideCache, *, heal: bool) -> bool:
    """True if the beginning of a text, and its number of tokens, was found out before: see `GuideCache.knows`."""
    if getattr(model, "is_encoder_decoder", False):
        return False
    if not heal:
        return guide_cache.knows(b"")
    kept = guide_cache.known_cut(prompt)
    return kept is not None and guide_cache.knows(b"") and guide_cache.knows(_tail(model, prompt, kept))


def _tail(model: Model, prompt: Ids, kept: int) -> bytes:
    """The end that is generated again where so many tokens of a prompt are kept, or its first where there is no BOS."""
    has_begin = getattr(model.tokenizer, "bos_token_id", None) is not None
    return model.vocabulary.decode(prompt[kept if kept or has_begin else 1 :])


def _free(model: Model) -> GuideCache:
    """The cache that stands for no constraint: one for each model, so that what is known of prompts' ends is kept."""
    known = _FREE.get(model)
    if known is None:
        known = _FREE[model] = GuideCache(FreeGuide(model.vocabulary), model.sparse_head_limit)
    return known


_FREE: WeakKeyDictionary[Any, GuideCache] = WeakKeyDictionary()
