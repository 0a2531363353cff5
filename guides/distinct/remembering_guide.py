"""The states of a guide that remembers written values: chart states, with or without a trail."""

from __future__ import annotations

from ...errors import LimitError, SchemaError
from ...kernels.answers import DEAD
from ..arguments import MAX_LEFT, check_bytes, check_state, state_error
from ..graph.utf8 import EQUAL_ITEM
from ..lift.lifted_guide import LiftedGuide
from ..lift.table_guide import MAX_STEPS
from ..limits import spend
from .continuations import At, ChartSteps, Continuations
from .effects import Effects
from .frames import JSONTrail
from .settled import PlaceClass, SettledSpots
from .summaries import TokenSummaries
from .trail import SPACE, Beginnings, ChartPlaces, JSONTrails

FIRST_NUMBER = 1 << 30
"""States from here on have a trail; those below are the chart's own."""
EACH_STATE = 700
"""Approximate bytes of a state with a trail."""
LOOKS = 256
"""Number of new states between two checks of memory."""
EACH_READ = 500
"""Work of reading a token, in the units of `guides.limits`."""


class RememberingGuide(LiftedGuide):
    """The states of a `DistinctGuide`, chart states with trails, and their transitions over bytes and tokens."""

    refuses_goals = "it remembers what has been written and must differ, items or names, too many states"

    def watch(
        self,
        items: set[int],
        names: set[int],
        *,
        remembers_names: bool,
        canonical: bool,
        by_bytes: bool,
        beside_free: bool = False,
        open_names: bool = True,
        scarce_names: bool = True,
    ) -> None:
        """Begin to remember; call before the first use.

        items, names: return nodes of the items to be watched, and of the member names that must be unique; may grow
        later
        remembers_names: whether there may be such names; canonical: whether every string has one spelling
        by_bytes: whether distances count bytes, since the chart's shortest text may repeat values
        beside_free: whether arrays without unique items may stand at the same places as watched ones
        open_names: whether objects may have names that are not listed; scarce_names: whether these may be few
        Raises SchemaError if the vocabulary lacks tokens for some bytes.
        """
        if not self._tables.spells_all_bytes:
            raise SchemaError(
                "uniqueItems over infinitely many values, and counts of members that are not mentioned, take a "
                "vocabulary with tokens for all single bytes",
                "#",
            )
        self._items = Beginnings(self._automaton, items, beside_free=beside_free)
        self._names = Beginnings(self._automaton, names)
        self._summaries = TokenSummaries.of(self.vocabulary)
        self._first_equal_token = self._summaries.first_equal_token
        self._trails = JSONTrails(
            canonical=canonical, with_names=remembers_names, token_values=self._summaries.token_values
        )
        self._continuations = Continuations(self._automaton, self._trails, self._items, self._closing)
        self._chart_steps = ChartSteps(self._automaton, self._tables.bytes, self._prepare, self._summaries.outside)
        self._effects = Effects(self._continuations, self._summaries, self._chart_steps, open_names=open_names)
        self._settled = SettledSpots(self._effects, self._items, scarce=scarce_names)
        self._by_bytes = by_bytes
        self._closing.only_shortest = True
        # For each state from FIRST_NUMBER on: its spot, and its trail, or the key of the step to it (see `_step`) if
        # the trail has not been read. Two lists, since Python's garbage collector would traverse pairs
        self._spots: list[PlaceClass] = []
        self._reads: list[JSONTrail | int] = []
        self._numbers: dict[tuple[int, bytes], int] = {}

    def _spot(self, state: int) -> PlaceClass | None:
        """Return the spot of a state; None for the chart's own. Raises StateError."""
        if state < FIRST_NUMBER:
            return None
        if state - FIRST_NUMBER >= len(self._spots):
            raise state_error(state)
        return self._spots[state - FIRST_NUMBER]

    def _place(self, state: int) -> At:
        """Return the chart state and the trail of a state. Raises StateError."""
        spot = self._spot(state)
        return (state, None) if spot is None else (spot.state, self._trail(state))

    def _trail(self, state: int) -> JSONTrail:
        """Return the trail of a state from FIRST_NUMBER on; read it if necessary."""
        index = before = state - FIRST_NUMBER
        known = self._reads[index]
        if isinstance(known, int):
            found = list[bytes]()
            while isinstance(known, int):
                found.append(self._summaries.text(known & MAX_LEFT))
                before = (known >> 32) - FIRST_NUMBER
                known = self._reads[before]
            spend(EACH_READ + len(found))
            data = b"".join(reversed(found))
            after, _ = self._trails.read(known, data, 0, self._items.places(self._spots[before].state, data))
            assert after is not None, "what was not read has no end"
            known = self._reads[index] = after
        return known

    def _number(self, state: int, data: bytes, after: int) -> int:
        """Return the state after `data`, which leads to `after` in the chart. Equal bytes lead to one state."""
        tokens = self._summaries.spelling(data)
        if tokens:
            return self._step(state, tokens[0], after)
        key = (state, data)
        known = self._numbers.get(key)
        if known is None:
            known = self._give(self._follow(self._place(state), data, after), len(data))
            if len(self._numbers) >= MAX_STEPS:
                self._numbers.clear()
            self._numbers[key] = known
        return known

    def _step(self, state: int, token: int, after: int | None = None) -> int:
        """Return the state after a token, the first with its bytes, which leads to `after` in the chart."""
        key = state << 32 | token
        known = self._cache.steps.get(key)
        if known is None:
            data, spot = self._summaries.text(token), self._spot(state)
            target = self._settled.after(spot, token) if data and spot is not None else None
            if not data:
                known = DEAD
            elif target is not None:
                known = self._add(target, key)
            elif spot is not None and token in spot.exits:
                known = spot.exits[token]
            else:
                at = self._place(state)
                if after is None:
                    after = self._chart_steps.after(at[0], token)
                known = self._give(self._follow(at, data, after), len(data))
            self._note_step(key, known)
        return known

    def _give(self, at: At | None, size: int) -> int:
        """Return the state of a place reached by `size` bytes; DEAD for None."""
        if at is None:
            return DEAD
        state, trail = at
        if trail is None:
            return state
        self._trails.states_bytes += size
        return self._add(self._settled.spot(state, trail), trail)

    def _add(self, spot: PlaceClass, known: JSONTrail | int) -> int:
        """Add a state in a spot, with its trail or the key of the step to it."""
        count, limits = len(self._spots), self._meter.limits
        if count >= limits.states:
            raise LimitError(
                f"the constraint has led through more than {limits.states:,} states; simplify it, or raise states= "
                "of its limits=Limits(...)"
            )
        if count % LOOKS == 0:
            self._meter.check_memory(self._automaton.held_bytes + self.trail_bytes)
        self._reads[count:] = (known,)  # what an interrupt left behind is replaced
        self._spots.append(spot)
        return FIRST_NUMBER + count

    def _note_step(self, key: int, number: int) -> None:
        if len(self._cache.steps) >= MAX_STEPS:
            self._cache.steps.clear()
            self._cache.signatures.clear()
        self._cache.steps[key] = number

    @property
    def trail_bytes(self) -> int:
        """Approximate memory of the states with a trail."""
        return self._own_bytes + self._trails.values.held_bytes

    @property
    def _own_bytes(self) -> int:
        return self._trails.states_bytes + EACH_STATE * len(self._spots)

    @property
    def should_rebuild(self) -> bool:
        """True if the states, which are never freed, take so much memory that a new guide should replace this one."""
        return self._own_bytes > self._meter.limits.memory >> 2

    def _differs(self, state: int) -> bool:
        """Test whether an item of a watched array may begin in a state of the chart."""
        return self._items.may_be(state)

    def _must_differ(self, state: int) -> bool:
        """Test whether a name that must be unique may begin in a state of the chart."""
        return self._trails.with_names and self._names.may_be(state)

    def _may_begin(self, state: int, data: bytes) -> bool:
        """Test whether a trail may begin in `data`, from a state of the chart."""
        if b"[" in data or data[0] in SPACE or self._differs(state):
            return True
        return self._trails.with_names and b'"' in data

    def _follow(self, at: At, data: bytes, after: int) -> At | None:
        """Return the place after `data`, which leads to `after` in the chart; None if refused or without completion."""
        if after == DEAD or EQUAL_ITEM in data:
            return None
        state, trail = at
        if trail is None and not self._may_begin(state, data):
            return after, None
        places = self._items.places(state, data)
        found = self._read(places, trail, data)
        after = DEAD if found is None else places.last(after)
        if found is None or after == DEAD:
            return None
        trail = found[0]
        return (after, trail) if trail is None or self._continuations.is_alive(after, trail) else None

    def _read(self, places: ChartPlaces, trail: JSONTrail | None, data: bytes) -> tuple[JSONTrail | None] | None:
        """Return (trail after data,), starting from a trail or none; None if a value is refused."""
        at = 0
        while True:
            spend(EACH_READ)
            if trail is not None:
                trail, at = self._trails.read(trail, data, at, places)
                if at < 0:
                    return None
                if trail is not None:
                    return (trail,)
                if not self._trails.openings.search(data, at):
                    return (None,)
            while at < len(data) and data[at] in SPACE:
                at += 1
            if at == len(data):
                return (None,)
            trail = self._begin_trail(places.before(at), data[at])
            if trail is None:
                found = self._trails.openings.search(data, at)
                if not found:
                    return (None,)
                at = found.end()

    def _begin_trail(self, state: int, byte: int) -> JSONTrail | None:
        """Return the trail before a byte that begins the first item of a watched array, or a name; else None."""
        if byte == 0x22 and self._must_differ(state):
            return self._trails.begin_names()
        return self._trails.begin() if byte != 0x5D and self._items.may_be(state) else None

    def _new_step(self, state: int, token: int) -> int:
        """Compute `advance` where it is not cached and the token is not EOS."""
        with self._lock:
            spots, index = self._spots, state - FIRST_NUMBER
            count = len(spots)
            if 0 <= index < count and count % LOOKS and not self._automaton.is_crowded:
                before, trail = spots[index], self._reads[index]
                spot = before.moves.get(token)
                if spot is None and token not in self._first_equal_token:
                    spot = self._settled.after_at_once(before, token)
                if spot is not None and count < self._meter.limits.states:
                    # Fast path of `_step`, without the checks after every LOOKS states
                    number, step = FIRST_NUMBER + count, state << 32 | token
                    known: JSONTrail | int = step
                    if before.is_piece and not isinstance(trail, int):
                        known = self._trails.longer(trail, self._summaries.text(token))
                        spot = self._settled.spot(spot.state, known) if self._trails.is_free(known) else spot
                    self._reads[count:] = (known,)
                    spots.append(spot)
                    self._cache.steps[step] = number
                    if spot.signature >= 0:
                        self._cache.signatures[number] = spot.signature
                    return number
            first = self._first_equal_token.get(token)
            if first is not None:
                number = self.advance(state, first)
                self._note_step(state << 32 | token, number)
                return number
            with self._meter:
                if self._automaton.is_crowded:
                    self._automaton.collect()
                return self._step(state, token)

    def read(self, state: int, data: bytes) -> int:
        """Return the state after `data`, which may end anywhere; DEAD if no tokens can complete a text from there."""
        data = check_bytes(data)
        with self._lock, self._meter:
            place = self._ready(state)[0]
            if place == DEAD or not data:
                return DEAD if place == DEAD else state
            return self._number(state, data, self._automaton.read(place, data))

    def _ready(self, state: int) -> At:
        """Return the place of a state passed in by a caller, ready for kernels. Raises StateError."""
        at = self._place(check_state(state, MAX_LEFT))
        return self._prepare(at[0]), at[1]

    def is_accepting(self, state: int) -> bool:
        """Test whether the text so far is complete; never inside a trail."""
        state = check_state(state, MAX_LEFT)
        return self._spot(state) is None and super().is_accepting(state)
