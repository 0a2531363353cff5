"""One sequence under a guide, as a host's request holds it: accept, rollback, masks, and a token budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, cast
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from ..checks import brief, check_int
from ..errors import BudgetError, OptionError
from ..guides.arguments import check_token
from ..guides.lift.tables import VocabularyTables
from ..guides.limits import spend
from ..guides.protocol import DEAD, ByteGuide, Guide, Mask, mask_of, mask_within
from ..kernels.logits.mask import allowed_ids
from ..tokenizers_adapter import Vocabulary
from .bitmask import WORDS, BitmaskBuffer, States, bits_of, fill_bitmask, guide_of, numpy_of

STEPS_A_BYTE = 1000
"""Steps of work, as `guides.limits` counts them, for each certain byte that is looked up outside of guides."""


class Session:
    """One text under a guide. States are numbers, so rollback is free, and a fork copies a list of numbers.

    guide: any guide; stop_ids: further tokens that end this text like EOS, only where it is complete. Where nothing
    else is allowed they are text. max_tokens: token limit; masks keep the text completable within it.
    ended: whether EOS or a stop token was accepted; nothing is accepted after it. length: number of accepted tokens.
    Raises OptionError for other objects than guides, and for invalid token ids; BudgetError if no text is so short. Not
    thread-safe.
    """

    __slots__ = ("_advance", "_eos", "_states", "ended", "guide", "max_tokens", "stops")

    def __init__(self, guide: Guide, stop_ids: Iterable[int] = (), max_tokens: int | None = None) -> None:
        self.guide = guide_of(guide)
        self.max_tokens = max_tokens
        if max_tokens is not None:
            check_budget(guide, max_tokens, "max_tokens")
        self._advance = guide.advance
        self._eos = frozenset(guide.vocabulary.eos_ids)
        most = guide.vocabulary.size - 1
        self.stops = frozenset(check_int(token, "a stop id", 0, most) for token in _id_list(stop_ids)) - self._eos
        self._states = [guide.start]
        self.ended = False

    def __repr__(self) -> str:
        return f"Session({self.guide!r}, {self.length} tokens{', ended' if self.ended else ''})"

    @property
    def state(self) -> int:
        """The guide's state after all accepted tokens."""
        return self._states[-1]

    @property
    def length(self) -> int:
        """Number of accepted tokens that were not taken back, including EOS."""
        return len(self._states) - 1

    @property
    def is_accepting(self) -> bool:
        """True if the text so far is complete."""
        return self.guide.is_accepting(self._states[-1])

    def accept(self, tokens: int | Sequence[int]) -> bool:
        """Accept one or several tokens. Return False if one is not allowed; then none is accepted."""
        ids = _id_list(tokens)
        states, ended = self._states_after(ids)
        if len(states) < len(ids):
            return False
        self._states += states
        self.ended = ended
        return True

    def take(self, tokens: Sequence[int]) -> int:
        """Accept tokens up to the first that is not allowed. Return the number accepted."""
        states, self.ended = self._states_after(tokens)
        self._states += states
        return len(states)

    def validate(self, tokens: int | Sequence[int]) -> int:
        """Return how many of the tokens, from the first on, `take` would accept. Accepts none."""
        return len(self._states_after(_id_list(tokens))[0])

    def rollback(self, count: int) -> None:
        """Take back the last `count` tokens. Raises OptionError for more than were accepted."""
        if type(count) is not int or not 0 <= count < len(self._states):
            raise OptionError(
                f"rollback({brief(count)}): this session has accepted {self.length} tokens; roll back at most as many"
            )
        if count:
            del self._states[-count:]
            self.ended = False

    def reset(self) -> None:
        """Restart at the beginning."""
        self.rollback(self.length)

    def fork(self) -> Self:
        """Return an independent session at the same place."""
        other = type(self)(self.guide, self.stops, self.max_tokens)
        other._states, other.ended = self._states.copy(), self.ended
        return other

    def __copy__(self) -> Self:
        return self.fork()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.fork()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.length:
            raise OptionError(
                "a Session that has accepted tokens cannot be pickled: its states are valid for the guide of this "
                "process only; send the guide and the tokens, and accept them there"
            )
        return type(self), (self.guide, sorted(self.stops), self.max_tokens)

    def mask(self, left: int | None = None) -> Mask:
        """Return the mask of allowed tokens: uint32 [ceil(V / 32)], read-only or the caller's own.

        left: allow only tokens after which `left - 1` more complete the text; by default the rest of `max_tokens`.
        After the end only EOS is allowed.
        """
        if left is None or self.ended:
            mask = self.own_mask()
            return self.guide.mask(self._states[-1]) if mask is None else mask
        return self._with_stops(mask_within(self.guide, self._states[-1], left))

    def own_mask(self) -> Mask | None:
        """Return the mask if it differs from the guide's: after the end, with stop tokens, or near the token limit."""
        if self.ended:
            return token_mask(self.guide.vocabulary, self._eos)
        state, most = self._states[-1], self.max_tokens
        within = None if most is None else within_budget(self.guide, state, most - self.length)
        if not self.stops:
            return within
        # Stop tokens end a text for the host. If only they would complete it in time, it is cut short instead
        if within is not None and (within := self._with_stops(within)).any():
            return within
        return self._with_stops(self.guide.mask(state))

    def _with_stops(self, mask: Mask) -> Mask:
        """Return a mask with stop tokens where the text is complete, else without them."""
        if not self.stops:
            return mask
        state, stops = self._states[-1], token_mask(self.guide.vocabulary, self.stops)
        if self.guide.is_accepting(state):
            return mask | stops
        return mask & ~stops if (self.guide.mask(state) & ~stops).any() else mask

    def fill(self, bitmask: Any, row: int) -> None:
        """Write `mask()` into a row of a bitmask, see `fill_bitmask`."""
        if type(bitmask) is not BitmaskBuffer and type(row) is int:
            mask, array = self.mask(), numpy_of(bitmask)
            plain = array.ndim == 2 and array.dtype in WORDS and array.flags.c_contiguous and array.flags.writeable
            if plain and 0 <= row < len(array) and array.shape[1] >= len(mask):
                target = array[row].view(np.uint32)
                target[: len(mask)] = mask
                target[len(mask) :] = 0
                return
        fill_sessions([self], bitmask, [row])  # takes more kinds of memory, and raises errors

    def jump_forward(self, most: int = 256) -> bytes:
        """Return the bytes that come next in every continuation, at most `most`; they may end within a character.

        Nothing is accepted: the host chooses the tokens. Nothing is certain where a text may end.
        Raises OptionError for a guide that does not read bytes.
        """
        guide = self.guide
        if not isinstance(guide, ByteGuide):
            raise OptionError(f"jump_forward needs a guide that reads bytes, see guides.ByteGuide, not {brief(guide)}")
        most = check_int(most, "most")
        data = bytearray()
        state = self._states[-1]
        while not self.ended and len(data) < most and not guide.is_accepting(state):
            piece = _common_prefix(guide.vocabulary, guide.mask(state))[: most - len(data)]
            spend(STEPS_A_BYTE * (1 + len(piece)))
            state = guide.read(state, piece) if piece else DEAD
            data += piece
            if state == DEAD:
                break
        return bytes(data)

    def _states_after(self, tokens: Sequence[int]) -> tuple[list[int], bool]:
        """Return the states after the tokens, up to the first that is not allowed, and whether the text has ended."""
        advance, eos, stops = self._advance, self._eos, self.stops
        state, ended = self._states[-1], self.ended
        states: list[int] = []
        for token in tokens:
            if ended:
                break
            is_stop = bool(stops) and check_token(token, self.guide.vocabulary.size) in stops
            if is_stop and self.guide.is_accepting(state):
                ended = True
            elif is_stop and not self._stops_are_text(state):
                break
            else:
                after = advance(state, token)
                if after == DEAD:
                    break
                ended = token in eos
                state = after
            states.append(state)
        return states, ended

    def _stops_are_text(self, state: int) -> bool:
        """Test whether stop tokens are allowed in an incomplete text, because nothing else is."""
        return not (self.guide.mask(state) & ~token_mask(self.guide.vocabulary, self.stops)).any()


def fill_sessions(sessions: Sequence[Session], bitmask: Any, rows: Sequence[int] | None = None) -> None:
    """Write the masks of several sessions into rows of a bitmask, see `fill_bitmask`."""
    guides = [session.guide for session in sessions]
    same = guides[0] if guides and all(guide is guides[0] for guide in guides) else guides
    special = [n for n, each in enumerate(sessions) if each.ended or each.stops or each.max_tokens is not None]
    overrides = {place: mask for place in special if (mask := sessions[place].own_mask()) is not None}
    fill_masks(same, [session.state for session in sessions], overrides, bitmask, rows)


def fill_masks(
    guide: Guide | Sequence[Guide],
    states: States,
    overrides: Mapping[int, Mask],
    bitmask: Any,
    rows: Sequence[int] | None = None,
) -> None:
    """Write masks into rows of a bitmask, see `fill_bitmask`. overrides: masks other than the guide's, by place"""
    fill_bitmask(guide, states, bitmask, rows)
    if overrides:
        bits = bits_of(bitmask)
        for place, mask in overrides.items():
            bits.put(place if rows is None else rows[place], mask)


MAX_BUDGETS = 1 << 16
"""Most states of a guide with a cached budget."""

# By id of a living guide: for each state the number of remaining tokens at which its whole mask is allowed
_BUDGETS: dict[int, tuple[ref[Guide], dict[int, int]]] = {}


def within_budget(guide: Guide, state: int, left: int) -> Mask | None:
    """Return the mask after which `left - 1` tokens complete the text; None if that is the guide's own.

    Caches for each state a number of tokens at which nothing is excluded. It tries half of `left` first, so a state
    that recurs is computed anew only when `left` has halved.
    """
    budgets = _budgets_of(guide)
    if budgets.get(state, left + 1) <= left:
        return None
    if len(budgets) >= MAX_BUDGETS:
        budgets.clear()
    for budget in (left // 2, left):
        within = mask_within(guide, state, budget)
        if np.array_equal(within, guide.mask(state)):
            budgets[state] = budget
            return None
    return within


def _budgets_of(guide: Guide) -> dict[int, int]:
    """Return the cache of a guide, by identity: equal guides may number their states differently."""
    if not type(guide).__weakrefoffset__:  # without weak references the guide's end cannot be noticed
        return {}
    number = id(guide)
    entry = _BUDGETS.get(number)
    if entry is None:
        entry = _BUDGETS[number] = ref(guide, lambda _: _BUDGETS.pop(number, None)), {}
    return entry[1]


def check_budget(guide: Guide, most: int, option: str) -> None:
    """Raise BudgetError if all texts of the guide have more than `most` tokens. option: the host's name for it"""
    needed = guide.distance(guide.start)
    if needed > check_int(most, option):
        raise BudgetError(f"{option}={most}: the shortest text of this guide has {needed} tokens", needed)


MAX_MASKS = 64
"""Most cached masks of token sets of a vocabulary."""

# As long as the vocabulary lives
_MASKS: WeakKeyDictionary[Vocabulary, dict[frozenset[int], NDArray[np.uint32]]] = WeakKeyDictionary()


def token_mask(vocabulary: Vocabulary, tokens: frozenset[int]) -> NDArray[np.uint32]:
    """Return the read-only mask that allows exactly these tokens."""
    masks = _MASKS.setdefault(vocabulary, {})
    mask = masks.get(tokens)
    if mask is None:
        mask = mask_of(tokens, vocabulary.size)
        mask.flags.writeable = False
        if len(masks) >= MAX_MASKS:
            masks.clear()
        masks[tokens] = mask
    return mask


def _id_list(tokens: Any) -> list[int]:
    """Return one or several token ids as a list. Raises OptionError for other objects."""
    if type(tokens) is list:
        return cast("list[int]", tokens)
    if isinstance(tokens, (int, np.integer)):
        return [int(cast("int", tokens))]
    values: Any = tokens.tolist() if hasattr(tokens, "tolist") else tokens
    if isinstance(values, int):  # an array or tensor without dimensions
        return [values]
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise OptionError(f"tokens are given by their ids, one or several, not {brief(tokens)}")
    return list(cast("Iterable[int]", values))


def _common_prefix(vocabulary: Vocabulary, mask: Mask) -> bytes:
    """Return the longest common prefix of the texts of all allowed tokens; empty if none is allowed."""
    ids = allowed_ids(mask)
    if not len(ids):
        return b""
    # All texts lie between the first and the last in the order of the trie
    places = VocabularyTables.of(vocabulary).places[ids]
    ends = ids.item(int(places.argmin())), ids.item(int(places.argmax()))
    first, last = (vocabulary.tokens[token] or b"" for token in ends)
    differing = next((place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), None)
    return first[: min(len(first), len(last)) if differing is None else differing]
