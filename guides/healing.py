"""A literal text in front of a guide, for token healing: prompts that end inside a token.

Tokens that begin within the literal and end within the guide cross the boundary (`Crossings`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..checks import brief, check_bool, implements
from ..errors import LanguageError, OptionError
from ..kernels.jit.compiling import call
from ..kernels.trie.align import end_nodes, shorten
from .arguments import MAX_LEFT, check_bytes, check_left, check_state, check_token, states_of
from .explain import NOTHING, expected, quoted
from .lift.table_guide import StateTableGuide
from .lift.tables import VocabularyTables
from .limits import Limits, Meter, spend, spend_growth
from .locks import new_lock
from .pictures import MAX_PICTURED, Drawable, Picture, PictureBuilder, refuse_tokens
from .protocol import DEAD, NEVER, ByteGuide, Mask, RowGuide, fits, mask_of, mask_within, rebuilt, should_rebuild


@runtime_checkable
class TrieGuide(ByteGuide, Protocol):
    """A guide that answers for all tokens below a node of the vocabulary's token trie at once.

    A token is *below* a node if it begins with the node's text and is longer. The guide reads the bytes after that
    text.
    """

    def mask_below(self, state: int, node: int, left: int | None = None) -> Mask:
        """Return the allowed tokens below `node`: uint32 [ceil(V / 32)], a copy without EOS.

        left: only tokens after which `left - 1` further tokens complete the text
        """
        ...

    def distance_below(self, state: int, node: int) -> int:
        """Return the fewest tokens to an accepting state, the first of them below `node`; NEVER if none is allowed."""
        ...


MAX_CUTS = 4096
"""Capacity of the cache of `Crossings.cut`, in ends of prompts about as long as the longest token."""


class Crossings:
    """The tokens that lead from a literal text into a guide, by the text's node of the token trie.

    guide: any ByteGuide; one that is no TrieGuide reads every token below a node by itself

    Results are cached, masks as rows of the vocabulary's table. Callers hold `lock`.
    """

    def __init__(self, guide: ByteGuide) -> None:
        self.guide = guide
        self.tables = VocabularyTables.of(guide.vocabulary)
        self.lock = new_lock()
        self._below = guide if implements(guide, TrieGuide) else None
        self._rows: dict[int, int] = {}
        self._distances: dict[int, int] = {}
        self._cuts: dict[tuple[bytes, ...], int] = {}

    def mask(self, node: int) -> Mask:
        """Return the allowed tokens below the node: uint32 [ceil(V / 32)], a copy."""
        row = self.tables.row_of(self._rows, node, lambda: self.mask_within(node, None))
        return self.tables.masks.rows[row].copy()

    def mask_within(self, node: int, left: int | None) -> Mask:
        """Apply `TrieGuide.mask_below` to the guide's start."""
        if self._below is not None:
            return self._below.mask_below(self.guide.start, node, left)
        allowed = (token for token, state in self._read(node) if left is None or self.guide.distance(state) < left)
        return mask_of(allowed, self.guide.vocabulary.size)

    def distance(self, node: int) -> int:
        """Apply `TrieGuide.distance_below` to the guide's start."""
        known = self._distances.get(node)
        if known is None:
            if self._below is not None:
                known = self._below.distance_below(self.guide.start, node)
            else:
                ways = (1 + self.guide.distance(state) for state in {state for _, state in self._read(node)})
                known = min(ways, default=NEVER)
            self._distances[node] = known
        return known

    def cut(self, ids: Sequence[int]) -> int:
        """Return the number of prompt tokens to keep so that no token crosses from them into a text of the guide.

        A token crosses if it begins inside the prompt, spells the rest of the prompt, and continues as the guide
        allows.
        Tokens without bytes, such as special tokens, are never cut.
        """
        pieces = self._last_pieces(ids)
        left = self._cuts.get(pieces)
        if left is None:
            left = self._count_to_cut(pieces)
            if len(self._cuts) >= MAX_CUTS:
                self._cuts.clear()
            self._cuts[pieces] = left
        return len(ids) - left

    def known_cut(self, ids: Sequence[int]) -> int | None:
        """Return the cached result of `cut`, else None. Does not call the guide, so the lock is not needed."""
        left = self._cuts.get(self._last_pieces(ids))
        return None if left is None else len(ids) - left

    def _count_to_cut(self, pieces: tuple[bytes, ...]) -> int:
        """Return the number of trailing tokens to cut."""
        data = np.frombuffer(b"".join(pieces), np.uint8)
        ends = np.empty(len(data), np.int32)
        call(end_nodes, self.tables.trie, data, ends)
        with self.lock:
            for place in np.flatnonzero(ends >= 0).tolist():
                if self.mask(int(ends[place])).any():
                    starts = np.cumsum([0, *map(len, pieces)])
                    return len(pieces) + 1 - int(np.searchsorted(starts, place, side="right"))
        return 0

    def _last_pieces(self, ids: Sequence[int]) -> tuple[bytes, ...]:
        """Return the bytes of trailing tokens, until they cover the longest token or one has no bytes."""
        pieces: list[bytes] = []
        room = self.tables.trie.deepest
        for token in reversed(ids):
            piece = self.guide.vocabulary.tokens[token]
            if piece is None or room <= 0:
                break
            pieces.append(piece)
            room -= len(piece)
        return tuple(pieces[::-1])

    def _read(self, node: int) -> Iterator[tuple[int, int]]:
        """Yield the allowed tokens below a node, with the states they lead to."""
        texts = self.guide.vocabulary.tokens
        depth = int(self.tables.trie.depth[node])
        for token in map(int, self.tables.trie.ids[self.tables.below(node)]):
            state = self.guide.read(self.guide.start, (texts[token] or b"")[depth:])
            if state != DEAD:
                yield token, state


# Steps per byte of the tail (in the constructor, and in each of two later passes), and memory per byte
STEPS_PER_BYTE, BYTES_PER_BYTE = 10, 10


class AlignedGuide(StateTableGuide, Drawable):
    """The bytes of `tail`, then a text of `child`, in any tokenization: a token may cross from one into the other.

    See `guides.protocol.Guide` for the methods. States below len(tail) are offsets in the tail; the others are the
    child's, shifted by len(tail), with the child's own masks. One walk below the tail's node of the token trie finds
    the tokens that cross into the child.

    counts_tail: whether tokens inside the tail count in distances
    crossings: the child's `Crossings`, which guides of one child may share
    limits: bounds of each call, see `Limits`
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
        if not implements(child, ByteGuide):
            raise OptionError(f"{brief(child)} is no guide that can read bytes, see guides.ByteGuide")
        if crossings is not None and not isinstance(crossings, Crossings):  # pyright: ignore
            raise OptionError(f"crossings must be Crossings of the child, not {brief(crossings)}")
        super().__init__(child.vocabulary)
        self.child = child
        self.tail = tail = check_bytes(tail)
        self._meter = Meter(limits)
        self._made_of = {"child": child, "tail": tail, "counts_tail": counts_tail, "limits": limits}
        self._cost = int(check_bool(counts_tail, "counts_tail"))
        self._crossings = Crossings(child) if crossings is None else crossings
        self._child_rows = child if implements(child, RowGuide) else None
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
        """Draw the tail, followed by the picture of the child."""
        refuse_tokens(tokens, "a text in front of a guide")
        drawn = PictureBuilder(states_of(max_states))
        tail = drawn.box(quoted(self.tail.decode("utf-8", "backslashreplace")))
        drawn.arrow(tail, drawn.guide(self.child)[0])
        return drawn.picture()

    @property
    def should_rebuild(self) -> bool:
        """True if the child should be rebuilt."""
        return should_rebuild(self.child)

    def rebuild(self) -> AlignedGuide:
        """Return a guide of the same tail, with the child rebuilt if it should be."""
        return self._with_arguments(child=rebuilt(self.child))

    @property
    def start(self) -> int:
        """The state before the first token."""
        return 0 if self.tail else self.child.start

    def mask(self, state: int) -> Mask:
        """Return the tokens allowed in `state`: uint32 [ceil(V / 32)], read-only; none in DEAD."""
        state = self._check(state)
        return self.child.mask(state - len(self.tail)) if self._is_beyond(state) else super().mask(state)

    def row(self, state: int) -> int:
        """Return the number of the row of `table` that holds `mask(state)`."""
        state = self._check(state)
        if self._is_beyond(state) and self._child_rows is not None:
            return self._child_rows.row(state - len(self.tail))
        return super().row(state)

    def _check(self, state: int) -> int:
        return check_state(state, MAX_LEFT)

    def _compute_mask(self, state: int) -> Mask:
        with self._lock, self._meter:
            if self._is_beyond(state):
                return self.child.mask(state - len(self.tail))
            return self._mask_within_tail(state, None)

    def advance(self, state: int, token: int) -> int:
        """Return the state after `token`, or DEAD; EOS leaves an accepting state as it is."""
        state, token = self._check(state), check_token(token, self.vocabulary.size)
        if self._is_beyond(state):
            return self._moved(self.child.advance(state - len(self.tail), token))
        text = self.vocabulary.tokens[token] if token >= 0 else None
        return self.read(state, text) if text else DEAD

    def read(self, state: int, data: bytes) -> int:
        """Return the state after `data`, which may end anywhere; DEAD if no tokens can complete a text from there."""
        state, data = self._check(state), check_bytes(data)
        if state == DEAD:
            return DEAD
        is_beyond = self._is_beyond(state)
        rest = b"" if is_beyond else self.tail[state:]
        if len(data) >= len(rest):
            begin = state - len(self.tail) if is_beyond else self.child.start
            return self._moved(self.child.read(begin, data[len(rest) :])) if data.startswith(rest) else DEAD
        after = state + len(data)
        if not rest.startswith(data):
            return DEAD
        with self._lock, self._meter:
            return after if self._is_alive(after) else DEAD

    def is_accepting(self, state: int) -> bool:
        """Test whether the text so far is complete, the tail with it."""
        state = self._check(state)
        return self._is_beyond(state) and self.child.is_accepting(state - len(self.tail))

    def distance(self, state: int) -> int:
        """Return the fewest tokens to an accepting state, EOS not counted."""
        state = self._check(state)
        if self._is_beyond(state):
            return self.child.distance(state - len(self.tail))
        if state == DEAD:
            return NEVER
        with self._lock, self._meter:
            return self._distance_at(state)

    def fits(self, state: int, left: int) -> bool:
        """Test whether `distance(state) <= left`; may be faster than `distance`."""
        state, left = self._check(state), check_left(left)
        if self._is_beyond(state):
            return fits(self.child, state - len(self.tail), left)
        if state == DEAD:
            return left >= NEVER
        with self._lock, self._meter:
            return self._fits_at(state, left)

    def mask_within(self, state: int, left: int) -> Mask:
        """Return the allowed tokens after which `left - 1` tokens can complete the text, and EOS iff accepting."""
        state, left = self._check(state), check_left(left)
        if self._is_beyond(state):
            state -= len(self.tail)
            rows = self._child_rows
            return mask_within(self.child, state, left) if rows is None else rows.mask_within(state, left)
        with self._lock, self._meter:
            return self._mask_within_tail(state, left)

    def end_node(self, place: int) -> int | None:
        """Return the trie's node for the tail from an offset on, below which tokens cross; None if there is none."""
        node = int(self._ends[place])
        return None if node < 0 else node

    def describe(self, state: int) -> str:
        """Describe what may follow."""
        state = self._check(state)
        if self._is_beyond(state):
            return expected(self.child, state - len(self.tail))
        if state == DEAD:
            return NOTHING
        rest = quoted(self.tail[state:].decode(errors="backslashreplace"))
        return f"{rest}, then {expected(self.child, self.child.start)}"

    def _moved(self, state: int) -> int:
        return DEAD if state == DEAD else state + len(self.tail)

    def _is_beyond(self, state: int) -> bool:
        """Test whether a state is one of the child, behind the tail."""
        return state >= len(self.tail)

    # The methods below run with the lock held, in a metered call. A place is an offset in the tail, len(tail) included.

    def _distance_at(self, place: int) -> int:
        """Return the distance from an offset in the tail; at the end of the tail, the distance of the child's start."""
        if not len(self._needed):
            self._needed = self._distances()
        return self._needed.item(place)

    def _fits_at(self, place: int, left: int) -> bool:
        """Test whether the distance from an offset in the tail is at most `left`."""
        spelt = left - self._cost * (len(self.tail) - place)
        if self._spellable and not len(self._needed) and spelt >= 0 and fits(self.child, self.child.start, spelt):
            return True
        return self._distance_at(place) <= left

    def _is_alive(self, place: int) -> bool:
        return self._spellable or self._distance_at(place) < NEVER

    def _mask_within_tail(self, place: int, left: int | None) -> Mask:
        """Return `_mask_at`, or an empty mask in DEAD."""
        return np.zeros(self._tables.words, np.uint32) if place == DEAD else self._mask_at(place, left)

    def _mask_at(self, place: int, left: int | None) -> Mask:
        """Return the tokens allowed at an offset in the tail; with `left`, only those after which the rest fits."""
        node = self.end_node(place)
        if node is not None:
            mask = self._crossings.mask(node) if left is None else self._crossings.mask_within(node, left)
        else:
            mask = np.zeros(self._tables.words, np.uint32)
        found: list[int] = []
        for after, tokens in self._tables.along(self._data, place):
            if tokens and (left is None or self._fits_at(after, left - self._cost)) and self._is_alive(after):
                found += tokens
        return mask | mask_of(found, self.vocabulary.size)

    def _distances(self) -> NDArray[np.int32]:
        """Return the distance from each offset in the tail, and from its end: int32 [len(tail) + 1]."""
        spend(STEPS_PER_BYTE * len(self.tail))
        found = np.full(len(self.tail) + 1, NEVER, np.int32)
        for place in np.flatnonzero(self._ends >= 0).tolist():
            found[place] = self._crossings.distance(self._ends.item(place))
        found[-1] = self.child.distance(self.child.start)
        call(shorten, self._tables.trie, self._data, self._cost, found)
        return np.minimum(found, NEVER)
