"""The byte automaton of quotations: states are places in the suffix tree of the documents."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from ...kernels.jit.calling import call
from ...kernels.suffix.quoting import Quotable, accepts, follow, read
from ...kernels.suffix.tree import END
from ..given import no_state, state_of
from ..limits import Meter, current
from ..locks import new_lock
from ..protocol import DEAD

DEPTH_BITS = 31
STATE_BYTES = 200
"""About how much memory a state that was met takes."""


class SubstringAutomaton:
    """The byte automaton of the quotations that a source allows.

    States are numbered as they are met; each stands for a place in the suffix tree (see kernels/suffix/quoting.py).
    """

    start = 0

    def __init__(self, quotable: Quotable, meter: Meter | None = None) -> None:
        self.quotable = quotable
        self._meter = meter or current() or Meter()
        # Node and depth of each state, and the state of each; as one number they take half the memory.
        self._places = array("q", [0])
        self._numbers = {0: 0}
        self._lock = new_lock()

    @property
    def held_bytes(self) -> int:
        """About how much memory the states met so far take."""
        return 120 * len(self._places)

    def place(self, state: int) -> tuple[int, int]:
        """The node and the depth that a state stands for. Raises StateError for what is no state."""
        state = self.check(state)
        if state == DEAD:
            raise no_state(state)
        packed = self._places[state]
        return packed >> DEPTH_BITS, packed & (1 << DEPTH_BITS) - 1

    def check(self, state: int) -> int:
        """The state, which may be DEAD, as an int. Raises StateError for what is neither."""
        return state_of(state, len(self._places))

    def _state(self, node: int, depth: int) -> int:
        packed = node << DEPTH_BITS | depth
        state = self._numbers.get(packed)
        if state is None:
            with self._lock:
                self._meter.check_memory(STATE_BYTES * len(self._places))
                state = self._numbers.get(packed, len(self._places))
                if state == len(self._places):
                    self._places.append(packed)
                    self._numbers[packed] = state
        return state

    def step(self, state: int, byte: int) -> int:
        """The state after `byte`, or DEAD."""
        return self.read(state, bytes([byte]))

    def read(self, state: int, data: bytes) -> int:
        """The state after `data`, or DEAD."""
        return self.read_part(state, np.frombuffer(data, np.uint8), 0, len(data))

    def read_part(self, state: int, data: NDArray[np.uint8], first: int, last: int) -> int:
        """The state after data[first:last], or DEAD."""
        if self.check(state) == DEAD:
            return DEAD
        place = np.array(self.place(state), np.int64)
        return self._state(*place.tolist()) if call(read, self.quotable, place, data, first, last) else DEAD

    def transitions(self, state: int) -> NDArray[np.int32]:
        """The state after each byte: int32 [256], DEAD where there is none."""
        return np.array([self.step(state, byte) for byte in range(256)], np.int32)

    def is_accepting(self, state: int) -> bool:
        """Tell whether the bytes read so far may be quoted."""
        return self.check(state) != DEAD and bool(call(accepts, self.quotable, *self.place(state)))

    def occurrences(self, data: bytes) -> list[int]:
        """The places in the text where the data stands as a quotation, in order."""
        quotable = self.quotable
        place = np.array(self.place(self.start), np.int64)
        if not data or not call(follow, quotable, place, np.frombuffer(data, np.uint8), 0, len(data)):
            return []
        node, depth = place.tolist()
        first, last = self._below(node)
        starts = quotable.starts[first:last]
        allowed = quotable.ends[starts + depth] == 1
        if len(quotable.reach):
            allowed &= (quotable.least[first:last] <= depth) & (depth <= quotable.reach[first:last])
        return sorted(starts[allowed].tolist())

    def positions(self, state: int) -> list[int]:
        """The places in the text where quotations in this state go on, in order; of equal futures one may be listed."""
        node, depth = self.place(state)
        if node == len(self.quotable.lo) + len(self.quotable.starts):
            return [depth]
        first, last = self._below(node)
        return sorted((self.quotable.starts[first:last] + depth).tolist())

    def ahead(self, state: int, most: int) -> bytes:
        """Up to so many bytes that follow in the document, where a state stands for one place only; else nothing."""
        if self.check(state) == DEAD:
            return b""
        node, depth = self.place(state)
        inner = len(self.quotable.lo)
        if node == inner + len(self.quotable.starts):
            begin = depth
        else:
            first, last = self._below(node)
            if last - first != 1:
                return b""
            begin = int(self.quotable.starts[first]) + depth
        text = self.quotable.text[begin : begin + most]
        ends = np.flatnonzero(text == END)
        return text[: ends[0] if len(ends) else most].tobytes()

    def _below(self, node: int) -> tuple[int, int]:
        """The suffixes that a node of the tree stands for: starts[first:last]."""
        inner = len(self.quotable.lo)
        return (
            (int(self.quotable.lo[node]), int(self.quotable.hi[node]))
            if node < inner
            else (node - inner, node - inner + 1)
        )
