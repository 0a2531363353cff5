"""A literal text in front of a guide: what heals prompts that end inside a token."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checks import brief, conforms, switch
from ...errors import LanguageError, OptionError
from ...kernels.jit.calling import call
from ...kernels.trie.align import end_nodes, nodes_along, shorten
from ..explain.expectation import NOTHING, expected, quoted
from ..given import MOST_LEFT, bytes_of, left_of, state_of, states_of, token_of
from ..lift.table_guide import StateTableGuide
from ..limits import Limits, Meter, spend, spend_growth
from ..pictures import MAX_PICTURED, Drawable, Joined, Picture, refuse_tokens
from ..protocol import DEAD, NEVER, ByteGuide, Mask, RowGuide, mask_within
from .crossing import Crossings

# Of the tail: of work for each byte and each of two walks along it, and of memory in all
STEPS_PER_BYTE, BYTES_PER_BYTE = 10, 10


class AlignedGuide(StateTableGuide, Drawable):
    """The bytes of `tail`, then a text of `child`, in any tokens: some may reach from one into the other.

    See `guides.protocol.Guide` for the methods. States below len(tail) are places in the tail; the others are the
    child's, moved up by len(tail), with the child's own masks. What the child's start allows behind a text is
    found in one walk below the text's node of the token trie.
    counts_tail: whether tokens that lie within the tail count in distances
    crossings: those of the child, to be shared by guides of one child; limits: what a call may take, see `Limits`
    Raises LanguageError if no tokens spell the tail and a text of the child.
    """

    def __init__(
        self,
        child: ByteGuide,
        tail: bytes,
        *,
        counts_tail: bool = True,
        crossings: Crossings | None = None,
        limits: Limits | None = None,
    ) -> None:
        if not conforms(child, ByteGuide):
            raise OptionError(f"{brief(child)} is no guide that can read bytes, see guides.ByteGuide")
        if crossings is not None and not isinstance(crossings, Crossings):  # pyright: ignore
            raise OptionError(f"crossings must be Crossings of the child, not {brief(crossings)}")
        super().__init__(child.vocabulary)
        self.child = child
        self.tail = tail = bytes_of(tail)
        self._meter = Meter(limits)
        self._made_of = {"child": child, "tail": tail, "counts_tail": counts_tail, "limits": limits}
        self._cost = int(switch(counts_tail, "counts_tail"))
        self._crossings = Crossings(child) if crossings is None else crossings
        self._child_rows = child if conforms(child, RowGuide) else None
        self._data = np.frombuffer(tail, np.uint8)
        with self._meter:
            spend_growth(STEPS_PER_BYTE * len(tail), BYTES_PER_BYTE * len(tail))
            self._ends = np.empty(len(tail), np.int32)
            call(end_nodes, self._tables.trie, self._data, self._ends)
        self._spellable = self._tables.spells_all_bytes and self._tables.single_bytes.issuperset(tail)
        self._needed: NDArray[np.int32] = np.empty(0, np.int32)
        self._lock = self._crossings.lock
        if not self._spellable and self.distance(self.start) >= NEVER:
            raise LanguageError(
                f"the vocabulary has no tokens that spell {tail!r} and then a text of the guide; "
                "give it tokens for all single bytes or characters"
            )

    def __repr__(self) -> str:
        return f"AlignedGuide({self.child!r}, {self.tail!r})"

    def picture(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> Picture:
        """The tail, and behind it the picture of the child."""
        refuse_tokens(tokens, "a text in front of a guide")
        drawn = Joined(states_of(max_states))
        tail = drawn.box(quoted(self.tail.decode("utf-8", "backslashreplace")))
        drawn.arrow(tail, drawn.guide(self.child)[0])
        return drawn.picture()

    @property
    def is_worn(self) -> bool:
        """As that of the child, if it says so."""
        return bool(getattr(self.child, "is_worn", False))

    def renewed(self) -> AlignedGuide:
        """Another guide of the same."""
        child: Any = self.child
        return AlignedGuide(child.renewed(), self.tail, counts_tail=bool(self._cost), limits=self._meter.limits)

    @property
    def start(self) -> int:
        """The state before the first token."""
        return 0 if self.tail else self.child.start

    def mask(self, state: int) -> Mask:
        """The tokens allowed in `state`: uint32 [ceil(V / 32)], which nobody can write to; none in DEAD."""
        state = self._check(state)
        return self.child.mask(state - len(self.tail)) if self._is_beyond(state) else super().mask(state)

    def row(self, state: int) -> int:
        """The number of the row of `table` that holds `mask(state)`."""
        state = self._check(state)
        if self._is_beyond(state) and self._child_rows is not None:
            return self._child_rows.row(state - len(self.tail))
        return super().row(state)

    def _check(self, state: int) -> int:
        return state_of(state, MOST_LEFT)

    def _made(self, state: int) -> Mask:
        with self._lock, self._meter:
            if self._is_beyond(state):
                return self.child.mask(state - len(self.tail))
            return self._mask_within_tail(state, None)

    def advance(self, state: int, token: int) -> int:
        """The state after `token`, or DEAD; EOS leaves an accepting state as it is."""
        state, token = self._check(state), token_of(token, self.vocabulary.size)
        if self._is_beyond(state):
            return self._moved(self.child.advance(state - len(self.tail), token))
        text = self.vocabulary.tokens[token] if token >= 0 else None
        return self.read(state, text) if text else DEAD

    def read(self, state: int, data: bytes) -> int:
        """The state after `data`, which may end anywhere; DEAD if no tokens can complete a text from there."""
        state, data = self._check(state), bytes_of(data)
        if state == DEAD:
            return DEAD
        beyond = self._is_beyond(state)
        rest = b"" if beyond else self.tail[state:]
        if len(data) >= len(rest):
            begin = state - len(self.tail) if beyond else self.child.start
            return self._moved(self.child.read(begin, data[len(rest) :])) if data.startswith(rest) else DEAD
        after = state + len(data)
        if not rest.startswith(data):
            return DEAD
        with self._lock, self._meter:
            return after if self._is_alive(after) else DEAD

    def is_accepting(self, state: int) -> bool:
        """Tell whether the text so far is complete, the tail with it."""
        state = self._check(state)
        return self._is_beyond(state) and self.child.is_accepting(state - len(self.tail))

    def distance(self, state: int) -> int:
        """Fewest tokens to an accepting state, EOS not counted."""
        state = self._check(state)
        if self._is_beyond(state):
            return self.child.distance(state - len(self.tail))
        if state == DEAD:
            return NEVER
        with self._lock, self._meter:
            return self._distance_at(state)

    def fits(self, state: int, left: int) -> bool:
        """Tell whether `distance(state) <= left`; quick when there is plenty left."""
        state, left = self._check(state), left_of(left)
        if self._is_beyond(state):
            return self._child_fits(state - len(self.tail), left)
        if state == DEAD:
            return left >= NEVER
        with self._lock, self._meter:
            return self._fits_at(state, left)

    def mask_within(self, state: int, left: int) -> Mask:
        """The allowed tokens after which `left - 1` tokens can complete the text, and EOS iff accepting."""
        state, left = self._check(state), left_of(left)
        if self._is_beyond(state):
            state -= len(self.tail)
            rows = self._child_rows
            return mask_within(self.child, state, left) if rows is None else rows.mask_within(state, left)
        with self._lock, self._meter:
            return self._mask_within_tail(state, left)

    def end_node(self, place: int) -> int | None:
        """The node of the token trie for the tail from a place on: the tokens below it cross; None if none do."""
        node = int(self._ends[place])
        return None if node < 0 else node

    def describe(self, state: int) -> str:
        """A description of what may follow."""
        state = self._check(state)
        if self._is_beyond(state):
            return expected(self.child, state - len(self.tail))
        if state == DEAD:
            return NOTHING
        return f"{quoted(self.tail[state:].decode(errors='backslashreplace'))}, then {self._child_start()}"

    def _child_start(self) -> str:
        return expected(self.child, self.child.start)

    def _moved(self, state: int) -> int:
        return DEAD if state == DEAD else state + len(self.tail)

    def _child_fits(self, state: int, left: int) -> bool:
        quick = getattr(self.child, "fits", None)
        return self.child.distance(state) <= left if quick is None else quick(state, left)

    def _is_beyond(self, state: int) -> bool:
        """Tell whether a state is one of the child, behind the tail."""
        return state >= len(self.tail)

    # What follows is asked with the lock held, by a call that counts its work: places up to the tail's end.

    def _distance_at(self, place: int) -> int:
        """The distance from a place of the tail; at its end that of the child's start."""
        if not len(self._needed):
            self._needed = self._distances()
        return self._needed.item(place)

    def _fits_at(self, place: int, left: int) -> bool:
        """Tell whether the distance from a place of the tail is at most `left`."""
        spelt = left - self._cost * (len(self.tail) - place)
        if self._spellable and not len(self._needed) and spelt >= 0 and self._child_fits(self.child.start, spelt):
            return True
        return self._distance_at(place) <= left

    def _is_alive(self, place: int) -> bool:
        return self._spellable or self._distance_at(place) < NEVER

    def _mask_within_tail(self, place: int, left: int | None) -> Mask:
        """As `_mask_at`, of DEAD as well."""
        return np.zeros(self._tables.words, np.uint32) if place == DEAD else self._mask_at(place, left)

    def _mask_at(self, place: int, left: int | None) -> Mask:
        """The tokens allowed at a place of the tail; with `left`, those after which the rest fits."""
        trie = self._tables.trie
        nodes = np.empty(min(trie.deepest, len(self.tail) - place), np.int32)
        count = call(nodes_along, trie, self._data, place, nodes)
        node = self.end_node(place)
        if node is not None:
            mask = self._crossings.mask(node) if left is None else self._crossings.mask_within(node, left)
        else:
            mask = np.zeros(self._tables.words, np.uint32)
        for after, node in enumerate(nodes[:count].tolist(), place + 1):
            tokens = trie.ids[trie.token_start[node] : trie.token_start[node + 1]].tolist()
            fits = left is None or self._fits_at(after, left - self._cost)
            if tokens and fits and self._is_alive(after):
                for token in tokens:
                    mask[token >> 5] |= np.uint32(1 << (token & 31))
        return mask

    def _distances(self) -> NDArray[np.int32]:
        """The distance from each place of the tail, by the tokens that spell it and those that go beyond it."""
        spend(STEPS_PER_BYTE * len(self.tail))
        found = np.full(len(self.tail) + 1, NEVER, np.int32)
        for place in np.flatnonzero(self._ends >= 0).tolist():
            found[place] = self._crossings.distance(self._ends.item(place))
        found[-1] = self.child.distance(self.child.start)
        call(shorten, self._tables.trie, self._data, self._cost, found)
        return np.minimum(found, NEVER)
