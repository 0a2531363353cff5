"""A text at a guide as a host's request holds it: forwards by tokens, and back, as far as it came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..checks import brief, whole
from ..errors import OptionError
from ..guides.given import token_of
from ..guides.lift.tables import VocabularyTables
from ..guides.limits import spend
from ..guides.protocol import DEAD, ByteGuide, Guide, Mask, mask_within
from ..kernels.logits.mask import allowed_ids
from ..tokenizers_adapter import Vocabulary
from .bitmask import WORDS, BitmaskBuffer, Bits, fill_bitmask, guide_of, numpy_of

STEPS_A_BYTE = 1000
"""Steps of work, as `guides.limits` counts them, that looking for the next certain byte takes outside of guides."""


class Session:
    """One text at a guide. A state is a number, so that going back is free and a fork costs a list of numbers.

    guide: any; stop_ids: further tokens that end this text as EOS does: only where it is complete. Where nothing else
    is allowed they are text.
    ended: whether EOS or a stop token was accepted; after it nothing is. length: how many tokens were accepted.
    Raises OptionError for what is no guide, or no token of its vocabulary. One thread at a time.
    """

    __slots__ = ("_advance", "_eos", "_states", "ended", "guide", "stops")

    def __init__(self, guide: Guide, stop_ids: Iterable[int] = ()) -> None:
        self.guide = guide_of(guide)
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
        """How many tokens were accepted and not taken back, EOS among them."""
        return len(self._states) - 1

    @property
    def is_accepting(self) -> bool:
        """Whether the text is complete as it is."""
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

    def validate(self, tokens: int | Sequence[int]) -> int:
        """How many of the tokens, from the first on, `accept` would take one after the other; nothing is taken."""
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
        other = object.__new__(type(self))
        other.guide, other._advance, other._eos, other.stops = self.guide, self._advance, self._eos, self.stops
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
        return type(self), (self.guide, sorted(self.stops))

    def mask(self, left: int | None = None) -> Mask:
        """The tokens that may follow: uint32 [ceil(V / 32)], read-only or the caller's own.

        left: only those after which `left - 1` more complete the text. After its end EOS alone is there.
        """
        if self.ended:
            return packed(self.guide.vocabulary, self._eos)
        state = self._states[-1]
        return self.with_stops(self.guide.mask(state) if left is None else mask_within(self.guide, state, left))

    def with_stops(self, mask: Mask) -> Mask:
        """A mask of the guide's in this state as `mask` has it: stop tokens where the text is complete, else none."""
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
        """Whether stop tokens are allowed where the text is not complete, because nothing else is."""
        return not (self.guide.mask(state) & ~packed(self.guide.vocabulary, self.stops)).any()


def fill_sessions(sessions: Sequence[Session], bitmask: Any, rows: Sequence[int] | None = None) -> None:
    """Write the masks of several sessions into rows of a bitmask, as `fill_bitmask` does."""
    guides = [session.guide for session in sessions]
    same = guides[0] if guides and all(guide is guides[0] for guide in guides) else guides
    fill_bitmask(same, [session.state for session in sessions], bitmask, rows)
    special = [place for place, session in enumerate(sessions) if session.ended or session.stops]
    if not special:
        return
    bits = Bits.of(bitmask)
    bits.forget(special if rows is None else [rows[place] for place in special])
    for place in special:
        mask = sessions[place].mask().view(np.int32)
        begin = bits.stride * (place if rows is None else rows[place])
        bits.memory[begin : begin + len(mask)] = mask


MOST_PACKED = 64
"""Of how many sets of tokens of a vocabulary the masks are remembered."""

# As long as there is the vocabulary
_PACKED: WeakKeyDictionary[Vocabulary, dict[frozenset[int], NDArray[np.uint32]]] = WeakKeyDictionary()


def packed(vocabulary: Vocabulary, tokens: frozenset[int]) -> NDArray[np.uint32]:
    """The mask that allows just these tokens; nobody can write to it."""
    known = _PACKED.setdefault(vocabulary, {})
    mask = known.get(tokens)
    if mask is None:
        mask = np.zeros((vocabulary.size + 31) // 32, np.uint32)
        for token in tokens:
            mask[token >> 5] |= np.uint32(1 << (token & 31))
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
