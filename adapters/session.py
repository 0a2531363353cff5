"""A sequence at a guide, as a host's request holds it: forwards by tokens, and back; its mask, and its budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, cast
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from ..checks import brief, whole
from ..errors import BudgetError, OptionError
from ..guides.given import token_of
from ..guides.lift.tables import VocabularyTables
from ..guides.limits import spend
from ..guides.protocol import DEAD, ByteGuide, Guide, Mask, mask_of, mask_within
from ..kernels.logits.mask import allowed_ids
from ..tokenizers_adapter import Vocabulary
from .bitmask import WORDS, BitmaskBuffer, States, bits_of, fill_bitmask, guide_of, numpy_of

STEPS_A_BYTE = 1000
"""Steps of work, as `guides.limits` counts them, that looking for the next certain byte takes outside of guides."""


class Session:
    """One text at a guide. A state is a number, so that going back is free and a fork costs a list of numbers.

    guide: any; stop_ids: further tokens that end this text as EOS does: only where it is complete. Where nothing else
    is allowed they are text. max_tokens: so many tokens the text may have; masks keep it such that it can be completed.
    ended: whether EOS or a stop token was accepted; after it nothing is. length: how many tokens were accepted.
    Raises OptionError for what is no guide, or no token of its vocabulary; BudgetError if no text is so short. One
    thread at a time.
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
        self.stops = frozenset(whole(token, "a stop id", 0, most) for token in _listed(stop_ids)) - self._eos
        self._states = [guide.start]
        self.ended = False

    def __repr__(self) -> str:
        return f"Session({self.guide!r}, {self.length} tokens{', ended' if self.ended else ''})"

    @property
    def state(self) -> int:
        """The guide's state after all that was accepted."""
        return self._states[-1]

    @property
    def length(self) -> int:
        """Number of tokens that were accepted and not taken back, EOS among them."""
        return len(self._states) - 1

    @property
    def is_accepting(self) -> bool:
        """True where the text is complete as it is."""
        return self.guide.is_accepting(self._states[-1])

    def accept(self, tokens: int | Sequence[int]) -> bool:
        """Go on by a token or several; False where one is not allowed, and then none is taken."""
        listed = _listed(tokens)
        states, ended = self._after(listed)
        if len(states) < len(listed):
            return False
        self._states += states
        self.ended = ended
        return True

    def take(self, tokens: Sequence[int]) -> int:
        """Go on by the first of the tokens, as many as are allowed one after the other; how many these were."""
        states, self.ended = self._after(tokens)
        self._states += states
        return len(states)

    def validate(self, tokens: int | Sequence[int]) -> int:
        """Count the tokens, from the first on, that `accept` would take one after the other; nothing is taken."""
        return len(self._after(_listed(tokens))[0])

    def rollback(self, count: int) -> None:
        """Take back the last `count` tokens. Raises OptionError for more than were accepted."""
        if type(count) is not int or not 0 <= count < len(self._states):
            raise OptionError(
                f"rollback({brief(count)}): this session has accepted {self.length} tokens; take back as many or fewer"
            )
        if count:
            del self._states[-count:]
            self.ended = False

    def reset(self) -> None:
        """Begin anew."""
        self.rollback(self.length)

    def fork(self) -> Self:
        """Another session at the same place, which goes its own way."""
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
                "a Session that has accepted tokens cannot be pickled: its states are numbers of this process's guide; "
                "send the guide and the tokens, and accept them there"
            )
        return type(self), (self.guide, sorted(self.stops), self.max_tokens)

    def mask(self, left: int | None = None) -> Mask:
        """The tokens that may follow: uint32 [ceil(V / 32)], read-only or the caller's own.

        left: only those after which `left - 1` more complete the text; if not given, what `max_tokens` leaves.
        After its end EOS alone is there.
        """
        if left is None or self.ended:
            mask = self.own_mask()
            return self.guide.mask(self._states[-1]) if mask is None else mask
        return self._with_stops(mask_within(self.guide, self._states[-1], left))

    def own_mask(self) -> Mask | None:
        """The mask where it is not the guide's own: behind the end, with stop tokens, and where few tokens are left."""
        if self.ended:
            return packed(self.guide.vocabulary, self._eos)
        state, most = self._states[-1], self.max_tokens
        within = None if most is None else within_budget(self.guide, state, most - self.length)
        if not self.stops:
            return within
        # Stop tokens end a text for the host; where only they would complete it, it is rather cut short
        if within is not None and (within := self._with_stops(within)).any():
            return within
        return self._with_stops(self.guide.mask(state))

    def _with_stops(self, mask: Mask) -> Mask:
        """A mask of the guide's in this state with stop tokens where the text is complete, else without."""
        if not self.stops:
            return mask
        state, stops = self._states[-1], packed(self.guide.vocabulary, self.stops)
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
        fill_sessions([self], bitmask, [row])  # which takes more kinds of memory, or says what is wrong

    def jump_forward(self, most: int = 256) -> bytes:
        """The bytes that come next whatever is chosen, at most so many; they may end within a character.

        Nothing is accepted: a host decides by which tokens they are written. Where a text may end nothing is certain.
        Raises OptionError for a guide that does not read bytes.
        """
        guide = self.guide
        if not isinstance(guide, ByteGuide):
            raise OptionError(f"jump_forward needs a guide that reads bytes, see guides.ByteGuide, not {brief(guide)}")
        most = whole(most, "most")
        found = bytearray()
        state = self._states[-1]
        while not self.ended and len(found) < most and not guide.is_accepting(state):
            piece = _common(guide.vocabulary, guide.mask(state))[: most - len(found)]
            spend(STEPS_A_BYTE * (1 + len(piece)))
            state = guide.read(state, piece) if piece else DEAD
            found += piece
            if state == DEAD:
                break
        return bytes(found)

    def _after(self, tokens: Sequence[int]) -> tuple[list[int], bool]:
        """The states after the tokens, up to the first that is not allowed; whether the last of them ended the text."""
        advance, eos, stops = self._advance, self._eos, self.stops
        state, ended = self._states[-1], self.ended
        states: list[int] = []
        for token in tokens:
            if ended:
                break
            is_stop = bool(stops) and token_of(token, self.guide.vocabulary.size) in stops
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
        """Tell whether stop tokens are allowed where the text is not complete, because nothing else is."""
        return not (self.guide.mask(state) & ~packed(self.guide.vocabulary, self.stops)).any()


def fill_sessions(sessions: Sequence[Session], bitmask: Any, rows: Sequence[int] | None = None) -> None:
    """Write the masks of several sessions into rows of a bitmask, as `fill_bitmask` does."""
    guides = [session.guide for session in sessions]
    same = guides[0] if guides and all(guide is guides[0] for guide in guides) else guides
    special = [n for n, each in enumerate(sessions) if each.ended or each.stops or each.max_tokens is not None]
    own = {place: mask for place in special if (mask := sessions[place].own_mask()) is not None}
    fill_masks(same, [session.state for session in sessions], own, bitmask, rows)


def fill_masks(
    guide: Guide | Sequence[Guide],
    states: States,
    own: Mapping[int, Mask],
    bitmask: Any,
    rows: Sequence[int] | None = None,
) -> None:
    """Write masks into rows of a bitmask, as `fill_bitmask` does; own: those that are not their guide's, by place."""
    fill_bitmask(guide, states, bitmask, rows)
    if own:
        bits = bits_of(bitmask)
        for place, mask in own.items():
            bits.put(place if rows is None else rows[place], mask)


MOST_KNOWN = 1 << 16
"""For how many states of a guide it is remembered how much is enough."""

# By a guide's id, as long as there is the guide: how many tokens left are enough for all that each state allows
_KNOWN: dict[int, tuple[ref[Guide], dict[int, int]]] = {}


def within_budget(guide: Guide, state: int, left: int) -> Mask | None:
    """The mask that leaves `left - 1` tokens enough to complete the text; None if that is the guide's own.

    It is remembered how many are enough for all that a state allows, since then the mask costs nothing. A state is
    asked for half of what is left first, so that one that is met again and again costs a question only every time that
    is halved.
    """
    known = _enough_of(guide)
    if known.get(state, left + 1) <= left:
        return None
    if len(known) >= MOST_KNOWN:
        known.clear()
    for enough in (left // 2, left):
        within = mask_within(guide, state, enough)
        if np.array_equal(within, guide.mask(state)):
            known[state] = enough
            return None
    return within


def _enough_of(guide: Guide) -> dict[int, int]:
    """The table of a guide that is remembered by identity: equal guides may number their states in other ways."""
    if not type(guide).__weakrefoffset__:  # one of somebody else's, whose end nobody would be told of
        return {}
    number = id(guide)
    found = _KNOWN.get(number)
    if found is None:
        found = _KNOWN[number] = ref(guide, lambda _: _KNOWN.pop(number, None)), {}
    return found[1]


def check_budget(guide: Guide, most: int, option: str) -> None:
    """Raise BudgetError if no text of the guide has at most so many tokens; option: as the host calls them."""
    needed = guide.distance(guide.start)
    if needed > whole(most, option):
        raise BudgetError(f"{option}={most}: the shortest text of this guide has {needed} tokens", needed)


MOST_PACKED = 64
"""Of how many sets of tokens of a vocabulary the masks are remembered."""

# As long as there is the vocabulary
_PACKED: WeakKeyDictionary[Vocabulary, dict[frozenset[int], NDArray[np.uint32]]] = WeakKeyDictionary()


def packed(vocabulary: Vocabulary, tokens: frozenset[int]) -> NDArray[np.uint32]:
    """The mask that allows just these tokens; nobody can write to it."""
    known = _PACKED.setdefault(vocabulary, {})
    mask = known.get(tokens)
    if mask is None:
        mask = mask_of(tokens, vocabulary.size)
        mask.flags.writeable = False
        if len(known) >= MOST_PACKED:
            known.clear()
        known[tokens] = mask
    return mask


def _listed(tokens: Any) -> list[int]:
    """Token ids as a list: one, or several in order. Raises OptionError for what are none."""
    if type(tokens) is list:
        return cast("list[int]", tokens)
    if isinstance(tokens, (int, np.integer)):
        return [int(cast("int", tokens))]
    found: Any = tokens.tolist() if hasattr(tokens, "tolist") else tokens
    if isinstance(found, int):  # of an array or a tensor without dimensions
        return [found]
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise OptionError(f"tokens are given by their ids, one or several, not {brief(tokens)}")
    return list(cast("Iterable[int]", found))


def _common(vocabulary: Vocabulary, mask: Mask) -> bytes:
    """The longest beginning that the texts of all allowed tokens have in common; none where none are allowed."""
    ids = allowed_ids(mask)
    if not len(ids):
        return b""
    # In the order of the trie, all texts lie between the first and the last
    places = VocabularyTables.of(vocabulary).places[ids]
    ends = ids.item(int(places.argmin())), ids.item(int(places.argmax()))
    first, last = (vocabulary.tokens[token] or b"" for token in ends)
    same = next((place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), None)
    return first[: min(len(first), len(last)) if same is None else same]
