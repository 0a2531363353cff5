"""A literal text in front of a guide: what heals prompts that end inside a token."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..checks import brief
from ..errors import LanguageError, OptionError
from ..kernels.align import end_nodes, nodes_along, shorten
from ..kernels.calling import call
from ..tokenizers_adapter import Vocabulary
from .automaton import is_within, no_state
from .crossing import Crossings
from .expectation import NOTHING, expected, quoted
from .limits import Limits, Meter
from .mask_table import Cache, MaskTable
from .protocol import DEAD, MOST_LEFT, UNREACHABLE, ByteGuide, Mask, RowGuide, as_bytes, is_token, mask_within, whole


class AlignedGuide:
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
        if not isinstance(child, ByteGuide):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"{brief(child)} is no guide that can read bytes, see guides.ByteGuide")
        if crossings is not None and not isinstance(crossings, Crossings):  # pyright: ignore
            raise OptionError(f"crossings must be Crossings of the child, not {brief(crossings)}")
        self.child = child
        self.tail = as_bytes(tail)
        self._meter = Meter(limits)
        self._cost = int(bool(counts_tail))
        self._crossings = Crossings(child) if crossings is None else crossings
        self._tables = self._crossings.tables
        self._child_rows = child if isinstance(child, RowGuide) else None
        self._data = np.frombuffer(tail, np.uint8)
        self._ends = np.empty(len(tail), np.int32)
        call(end_nodes, self._tables.trie, self._data, self._ends)
        self._spellable = self._tables.spells_all_bytes and self._tables.single_bytes.issuperset(tail)
        self._needed: list[int] = []
        self._rows: Cache = {}
        self._lock = self._crossings.lock
        if not self._spellable and self.distance(self.start) >= UNREACHABLE:
            raise LanguageError(
                f"the vocabulary has no tokens that spell {tail!r} and then a text of the guide; "
                "give it tokens for all single bytes or characters"
            )

    def __repr__(self) -> str:
        return f"AlignedGuide({self.child!r}, {self.tail!r})"

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary whose token ids the masks speak of."""
        return self.child.vocabulary

    @property
    def table(self) -> MaskTable:
        """The table that holds the masks; one per vocabulary."""
        return self._tables.masks

    @property
    def start(self) -> int:
        """The state before the first token."""
        return 0 if self.tail else self.child.start

    def mask(self, state: int) -> Mask:
        """The tokens allowed in `state`: uint32 [ceil(V / 32)], which nobody can write to; none in DEAD."""
        if _is_beyond(state, self.tail):
            return self.child.mask(state - len(self.tail))
        return self._tables.masks.masks[self.row(state)]

    def row(self, state: int) -> int:
        """The number of the row of `table` that holds `mask(state)`."""
        beyond = _is_beyond(state, self.tail)
        if beyond and self._child_rows is not None:
            return self._child_rows.row(state - len(self.tail))
        with self._lock, self._meter:
            with self._tables.lock:
                row = self._rows.get(state)
                if row is not None:
                    self._tables.masks.touch(row)
                    return row
            mask = self.mask(state) if beyond else self._mask_within_tail(state, None)
            with self._tables.lock:
                return self._tables.masks.store(self._rows, state, mask)

    def advance(self, state: int, token: int) -> int:
        """The state after `token`, or DEAD; EOS leaves an accepting state as it is."""
        if _is_beyond(state, self.tail):
            return self._moved(self.child.advance(state - len(self.tail), token))
        text = self.vocabulary.tokens[token] if is_token(token, self.vocabulary.size) else None
        return self.read(state, text) if text else DEAD

    def read(self, state: int, data: bytes) -> int:
        """The state after `data`, which may end anywhere; DEAD if no tokens can complete a text from there."""
        beyond, data = _is_beyond(state, self.tail), as_bytes(data)
        if state == DEAD:
            return DEAD
        rest = b"" if beyond else self.tail[state:]
        if len(data) >= len(rest):
            begin = state - len(self.tail) if beyond else self.child.start
            return self._moved(self.child.read(begin, data[len(rest) :])) if data.startswith(rest) else DEAD
        after = state + len(data)
        return after if rest.startswith(data) and self._is_alive(after) else DEAD

    def is_accepting(self, state: int) -> bool:
        """Whether the text so far is complete, the tail with it."""
        return _is_beyond(state, self.tail) and self.child.is_accepting(state - len(self.tail))

    def distance(self, state: int) -> int:
        """Fewest tokens to an accepting state, EOS not counted."""
        if _is_beyond(state, self.tail):
            return self.child.distance(state - len(self.tail))
        if state == DEAD:
            return UNREACHABLE
        with self._lock, self._meter:
            if not self._needed:
                self._needed = self._distances().tolist()
            return self._needed[state]

    def fits(self, state: int, left: int) -> bool:
        """Whether `distance(state) <= left`; quick when there is plenty left."""
        if _is_beyond(state, self.tail):
            return self._child_fits(state - len(self.tail), left)
        if state == DEAD:
            return whole(left) >= UNREACHABLE
        spelt = left - self._cost * (len(self.tail) - state)
        if self._spellable and not self._needed and spelt >= 0 and self._child_fits(self.child.start, spelt):
            return True
        return self.distance(state) <= left

    def mask_within(self, state: int, left: int) -> Mask:
        """The allowed tokens after which `left - 1` tokens can complete the text, and EOS iff accepting."""
        if _is_beyond(state, self.tail):
            return mask_within(self.child, state - len(self.tail), left)
        with self._lock, self._meter:
            return self._mask_within_tail(state, whole(left))

    def end_node(self, place: int) -> int | None:
        """The node of the token trie for the tail from a place on: the tokens below it cross; None if none do."""
        node = int(self._ends[place])
        return None if node < 0 else node

    def describe(self, state: int) -> str:
        """What may follow, in words."""
        if _is_beyond(state, self.tail):
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

    def _state_at(self, place: int) -> int:
        return place if place < len(self.tail) else place + self.child.start

    def _is_alive(self, place: int) -> bool:
        return self._spellable or self.distance(self._state_at(place)) < UNREACHABLE

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
            fits = left is None or self.fits(self._state_at(after), left - self._cost)
            if tokens and fits and self._is_alive(after):
                for token in tokens:
                    mask[token >> 5] |= np.uint32(1 << (token & 31))
        return mask

    def _distances(self) -> NDArray[np.int32]:
        """The distance from each place of the tail, by the tokens that spell it and those that go beyond it."""
        ends = self._ends.tolist()
        needed = [UNREACHABLE if node < 0 else self._crossings.distance(node) for node in ends]
        needed.append(self.child.distance(self.child.start))
        found = np.array(needed, np.int32)
        call(shorten, self._tables.trie, self._data, self._cost, found)
        return np.minimum(found, UNREACHABLE)


def _is_beyond(state: int, tail: bytes) -> bool:
    """Whether a state is one of the child, behind the tail. Raises StateError for what is no state."""
    if not is_within(state, MOST_LEFT):
        raise no_state(state)
    return state >= len(tail)
