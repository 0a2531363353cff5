"""Places in one container of strings that is in no other, kept in arrays: a step there is one call of a kernel.

These are the items of an array, and the names of an object whatever its values; see `kernels.distinct`. All else is
told by the trail of such a place, which is made when it is wanted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitError
from ...kernels.answers import DEAD, EXPAND, FULL, UNREADY
from ...kernels.chart.ways import TokenBytes
from ...kernels.distinct import layout, places, strings
from ...kernels.jit.arrays import handle_of
from ...kernels.jit.calling import call, entry_of
from ..limits import Meter, spend
from .effects import Effects, Unsafe
from .frames import (
    AFTER,
    COLON,
    FIRST,
    ITEM,
    NAME,
    NAME_TEXT,
    PARTIAL,
    STRINGS,
    TEXT,
    WORD,
    Frame,
    Trail,
    joined,
    size_of,
)
from .heads import LETTERS, Heads
from .moves import Spot
from .rivals import ARRAY, NONE, OBJECT
from .trail import SPACE, Trails
from .ways import Ways
from .written import Written

LONG = 1 << 12
"""Strings of more bytes are not read again where a token needs their trail."""
FEW_KEPT = 256
AT_FIRST = 64
_VALUES = (COLON, ITEM, TEXT, WORD)
_MODES = {ARRAY: (FIRST, ITEM, AFTER, TEXT), OBJECT: (NAME, NAME_TEXT, AFTER, *_VALUES)}


class Flat:
    """The flat places of one guide, by their numbers without `layout.FIRST_FLAT`; hold the automaton's lock.

    told: all there is of them, handle: what kernels take of that; step: `kernels.distinct.places.step_on`, of states,
    without the lock
    looks: of each place a number that those of equal masks have in common, or -1; signatures: of these masks
    """

    def __init__(
        self, trails: Trails, ways: Ways, effects: Effects, heads: Heads, tokens: TokenBytes, meter: Meter
    ) -> None:
        self._trails = trails
        self._ways = ways
        self._effects = effects
        self._heads = heads
        self._meter = meter
        self._spots: list[Spot] = []
        self._written: dict[int, Written] = {}
        self.signatures: dict[int, int] = {}
        self.told = layout.Told(
            heads.spelt,
            tokens,
            np.zeros(10, np.int64),
            np.zeros((AT_FIRST, 8), np.int32),
            np.zeros((AT_FIRST, 6), np.int32),
            np.zeros((AT_FIRST, 3), np.int32),
            np.full(AT_FIRST, layout.NONE, np.int32),
            np.zeros((AT_FIRST, 2), np.int32),
            np.zeros((AT_FIRST, 4), np.int32),
            np.full((4 * AT_FIRST, 4), layout.NONE, np.int32),
        )
        self.handle = handle_of(self.told)
        self.looks = memoryview(self.told.looks)  # type: ignore[arg-type]  # single numbers are quicker this way
        self.told.sizes[layout.HITS] = 1
        trails.nothing.flat = self._run(strings.empty_set)
        self.step = entry_of(places.step_on, self.handle, DEAD, 0)

    def slow_step(self, state: int, token: int) -> int:
        """As `kernels.distinct.places.step_on`, with all that it asks for; UNREADY where the move is not known."""
        answer = call(places.step_on, self.handle, state, token)
        if answer >= DEAD or answer == UNREADY:
            return answer
        with self._meter:
            return self._run(places.step_on, state, token)

    def __contains__(self, place: int) -> bool:
        return 0 <= place < self.told.sizes.item(layout.PLACES)

    @property
    def held_bytes(self) -> int:
        """About how much memory the places take."""
        return sum(each.nbytes for each in vars(self.told).values() if isinstance(each, np.ndarray))

    def _run(self, function: Any, *arguments: Any) -> int:
        """Call a kernel, and do what its codes ask for, until it answers with something else, or UNREADY."""
        wanted = AT_FIRST
        while True:
            answer = call(function, self.handle, *arguments)
            if answer == FULL:
                self._grow(wanted)
                wanted *= 4
            elif answer == EXPAND:
                # Both at once: threads that step without the lock write them too.
                self._fork(*self.told.sizes[layout.FORKED : layout.FORKED_BY + 1].tolist())
            else:
                return answer

    def _grow(self, wanted: int) -> None:
        """Make room for as much again of what there is, and for so many bytes of strings."""
        sizes = self.told.sizes.tolist()
        if sizes[layout.PLACES] >= self._meter.limits.states:
            raise LimitError(
                f"the constraint has led through more than {self._meter.limits.states:,} states; simplify it, or raise "
                "states= of its limits=Limits(...)"
            )
        self._meter.check_memory(self.held_bytes)
        spend(sum(sizes))
        self._replace(
            nodes=(sizes[layout.NODES] + wanted, 0),
            sets=(sizes[layout.SETS] + 2, 0),
            places=(sizes[layout.PLACES] + 1, 0),
            looks=(sizes[layout.PLACES] + 1, layout.NONE),
            moves=(sizes[layout.MOVES] + 1, 0),
            table=(2 * (sizes[layout.ENTRIES] + wanted), layout.NONE),
        )

    def _replace(self, **wanted: tuple[int, int]) -> None:
        """Put larger arrays in the place of some, with room for twice as many rows as are wanted, of some value.

        A thread that steps meanwhile, without the lock, finds those before busy, then and for ever.
        """
        told = self.told
        try:
            told.sizes[layout.BUSY] = 1
            new = {name: larger(getattr(told, name), *how) for name, how in wanted.items()}
            table = new.get("table", told.table)
            if table is not told.table:
                table[:] = layout.NONE
                call(layout.rehash, told.table, table)
            sizes = told.sizes.copy()
            sizes[layout.BUSY] = 0
            after = replace(told, sizes=sizes, **new)
            self.looks = memoryview(after.looks)  # type: ignore[arg-type]
            self.handle = handle_of(after)
            self.told = after
        finally:
            if self.told is told:
                told.sizes[layout.BUSY] = 0

    def _fork(self, held: int, node: int) -> None:
        """Copy a set together with one more string, as it goes on with another one where it is."""
        size = call(strings.size_of, self.handle, held, node)
        spend(4 * size)
        texts = np.zeros(self.told.sets.item(held, layout.COUNT), np.int32)
        self._run(strings.fork, held, node, texts, np.zeros(size, np.uint8))

    def note(self, place: int, signature: int) -> None:
        """Note the signature of a place's mask, of all that have it."""
        look = self.looks[place]
        if look >= 0:
            self.signatures[look] = signature

    # Trails

    def trail(self, place: int) -> Trail:
        """The trail of a place."""
        spot = self.spot(place)
        node, held = (self.told.places.item(place, column) for column in (layout.NODE, layout.SET))
        kind = self._trails.shapes[spot.shape][0][0]
        written = self._written_in(held)
        name, length = None, written.count
        if kind is OBJECT and spot.mode in _VALUES:
            name, length = self._text(self.told.sets.item(held, layout.TEXT)), length - 1
        differs = node != layout.NONE
        is_other = not differs and spot.mode in (TEXT, WORD)  # some value, which matters to nobody
        text = self._text(node) if differs else b"" if is_other else None
        frame = Frame(None, kind, written, spot.shape, length=length, name=name)
        trail = Trail(frame, spot.mode, text, True if is_other else None)
        trail.spot = spot
        return trail

    def bare(self, place: int) -> Trail:
        """A trail as in a place where nothing has been written, not even of what is in progress."""
        spot = self.spot(place)
        kind = self._trails.shapes[spot.shape][0][0]
        name = b"" if kind is OBJECT and spot.mode in _VALUES else None
        frame = Frame(None, kind, self._trails.nothing, spot.shape, name=name)
        trail = Trail(frame, spot.mode, b"" if spot.mode in PARTIAL else None)
        trail.spot = spot
        return trail

    def spot(self, place: int) -> Spot:
        """The spot of a place."""
        return self._spots[self.told.places.item(place, layout.SPOT)]

    def _text(self, node: int) -> bytes:
        buffer = np.zeros(LONG, np.uint8)
        size = call(strings.bytes_of, self.handle, node, buffer)
        if size > len(buffer):
            spend(size)
            buffer = np.zeros(size, np.uint8)
            call(strings.bytes_of, self.handle, node, buffer)
        return buffer[len(buffer) - size :].tobytes()

    def _written_in(self, held: int) -> Written:
        """The strings of a set."""
        todo: list[int] = []
        at = held
        while at not in self._written and self.told.sets.item(at, layout.COUNT):
            todo.append(at)
            at = self.told.sets.item(at, layout.BEFORE)
        found = self._written.get(at, self._trails.nothing)
        for each in reversed(todo):
            spend(100)
            found = found.adding(self._text(self.told.sets.item(each, layout.TEXT)))
            found.flat = each
        if len(self._written) >= FEW_KEPT:
            self._written.clear()
        self._written[held] = found
        return found

    # What becomes flat

    def place(self, spot: Spot, trail: Trail, before: Trail | None) -> int | None:
        """The place of a trail, which comes after another one; None if it is not flat."""
        number = self._number(spot, trail)
        written = trail.frame.written
        if number is None or written is None or size_of(trail.text) > LONG:
            return None
        if written.flat < 0:
            self._follow(None if before is None else before.frame.written, written)
        if written.flat < 0:
            return None
        text = np.frombuffer(joined(trail.text), np.uint8)
        return self._run(places.enter, number, written.flat, text)

    def _follow(self, before: Written | None, written: Written) -> None:
        """Note the set of what has been written, as far as it is that which was there before and a few strings more."""
        while before is not None and before.flat >= 0 and before is not written and before.next is not None:
            value, after = before.next
            if not isinstance(value, bytes) or after.count > written.count:
                return
            node = self._run(strings.find, before.flat, np.frombuffer(value, np.uint8))
            after.flat = self._run(strings.add_string, before.flat, node)
            before = after

    def _number(self, spot: Spot, trail: Trail) -> int | None:
        """The number of a spot, None if its places are not flat: in what is in others, or may come to few values."""
        if spot.flat is None:
            spot.flat = -1
            if self._is_flat(spot, trail):
                if len(self._spots) >= len(self.told.spots):
                    self._replace(spots=(len(self._spots), 0))
                differs = (trail.frame.kind is ARRAY and spot.mode == TEXT) or spot.mode == NAME_TEXT
                flags = layout.DIFFERS if differs else 0
                if spot.mode in STRINGS and self._ways.variety.loops_on(spot.state, LETTERS):
                    flags |= layout.LOOPS
                self.told.spots[len(self._spots)] = (flags, 0)
                number = len(self._spots)
                self._spots.append(spot)
                spot.flat = number
        return spot.flat if spot.flat >= 0 else None

    def _is_flat(self, spot: Spot, trail: Trail) -> bool:
        frame, mode = trail.frame, spot.mode
        if frame.parent is not None or frame.is_open or frame.rivals is not NONE or mode not in _MODES[frame.kind]:
            return False
        if mode == AFTER or (frame.kind is OBJECT and mode in _VALUES):
            return True
        if mode in (TEXT, NAME_TEXT):
            return self._ways.variety.is_various(spot.state, trail)
        names = self._ways.variety.room(spot.state, mode, frame.kind)
        return names is not None and not names

    def learn(self, before: Trail, token: int, data: bytes, after: int, trail: Trail | None) -> bool:
        """Note what a token does at the spot of a bare trail, after which there is a chart's state with a trail.

        False if that is not simple, and so may depend on more than the spot.
        """
        spot: Spot = before.spot
        if trail is None:
            return self._learn_end(spot, token, data, after)
        if trail.frame.parent is not None or trail.frame.kind is not before.frame.kind:
            return False
        simple, number = self._effects.look_simple(before, token), self._number(trail.spot, trail)
        if simple is None or number is None or simple.mode != trail.mode:
            return False
        assert data.startswith(simple.more) and data.endswith(simple.begin or b"")
        ending = self._ending(spot) if simple.ends else layout.GOES_ON
        begin = layout.NONE
        if simple.begin is not None and self._differs(number):
            begin = len(data) - len(simple.begin)
        self._run(places.learn, spot.flat, token, number, ending, len(simple.more), begin)
        return True

    def _learn_end(self, spot: Spot, token: int, data: bytes, after: int) -> bool:
        """As `learn`, of a token with the end of the container."""
        more, rest, ending = b"", data, layout.GOES_ON
        if spot.mode in (TEXT, NAME_TEXT):
            more, quote, rest = data.partition(b'"')
            if not quote or b"\\" in more:
                return False
            ending = self._ending(spot)
        elif spot.mode == WORD:
            return False
        # Nothing else may begin in the token that would have to be looked at.
        if rest.lstrip(SPACE)[:1] not in (b"]", b"}") or set(rest) & set(b'[{"'):
            return False
        self._run(places.learn, spot.flat, token, layout.NONE, ending, len(more), after)
        return True

    def _ending(self, spot: Spot) -> int:
        assert spot.flat is not None
        return layout.ENDS_THIS if self._differs(spot.flat) else layout.ENDS_OTHER

    def _differs(self, number: int) -> bool:
        """Whether the string in progress at a spot must differ."""
        return bool(self.told.spots.item(number, layout.FLAGS) & layout.DIFFERS)

    def learn_spot(self, spot: Spot, unsafe: Unsafe) -> None:
        """Note that the tokens which may be refused at a spot are known, if all depends on whole strings they have."""
        if spot.flat is None or spot.flat < 0 or unsafe.words is None:
            return
        if self.told.spots[spot.flat, layout.FLAGS] & layout.DIFFERS and not self._ways.variety.is_robust(spot.state):
            return
        wholes = [*unsafe.wholes, *unsafe.named]
        if not self._heads.inner.issuperset(wholes):
            return
        longest = max((len(each) for each in wholes if isinstance(each, bytes)), default=0)
        self.told.spots[spot.flat, layout.FLAGS] |= layout.KNOWN | (layout.WHOLES if wholes else 0)
        self.told.spots[spot.flat, layout.LONGEST] = longest


def larger(array: NDArray[Any], wanted: int, value: int = 0) -> NDArray[Any]:
    """An array with room for twice as many rows."""
    if 2 * wanted <= len(array):
        return array
    shape = (rows_for(2 * wanted, len(array)), *array.shape[1:])
    # Zeros cost nothing before they are written to.
    more = np.full(shape, value, array.dtype) if value else np.zeros(shape, array.dtype)
    more[: len(array)] = array
    return more


def rows_for(wanted: int, there: int) -> int:
    """A number of rows, twice as many as there are until there is room."""
    while there < wanted:
        there *= 2
    return there
