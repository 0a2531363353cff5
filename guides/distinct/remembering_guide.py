"""The states of a guide that remembers what has been written: a chart's states, each with a trail or without one."""

from __future__ import annotations

from ...errors import LimitError, SchemaError
from ...kernels.answers import DEAD
from ...kernels.distinct.layout import FIRST_FLAT
from ..given import MOST_LEFT, bytes_of, no_state, state_of
from ..lift.lifted_guide import MAX_STEPS, LiftedGuide
from ..limits import spend
from .beginnings import Beginnings
from .effects import Effects
from .flat import Flat
from .frames import NAME_ESCAPE, NAME_TEXT, Trail, joined, more_of
from .heads import Heads
from .moves import NO_SIGNATURE, Moves
from .trail import SPACE, Trails
from .unread import Settled, Unread, level_of, where_of
from .ways import Place, Steps, Ways

FIRST_NUMBER = 1 << 30
"""From here on states have a trail; those below are the chart's own."""
EACH_STATE = 700
"""About how many bytes a state with a trail takes."""
LOOKS = 256
"""After how many states there is a look at how much memory there is."""
EACH_READ = 500
"""Steps of work, as `guides.limits` counts them, that it takes to read a token."""


class RememberingGuide(LiftedGuide):
    """The states of a `DistinctGuide`: those of the chart with trails, and where bytes and tokens lead from them."""

    refuses_goals = "it remembers what has been written and must differ, items or names, too many states"

    def watch(
        self,
        items: set[int],
        names: set[int],
        *,
        remembers_names: bool,
        canonical: bool,
        by_bytes: bool,
        told_by_byte: bool = False,
        open_names: bool = True,
        scarce_names: bool = True,
    ) -> None:
        """Begin to remember; before the first use.

        items, names: the nodes that the items of arrays to be watched return to, and the names of members that must be
        there once only, also those that are made later
        remembers_names: whether there may be any of the latter; canonical: whether every string has one spelling
        by_bytes: whether distances count bytes, since a shortest text of the chart may have values twice
        told_by_byte: whether the first byte of the first item tells an array to be watched from others
        open_names: whether objects may have names that are not listed; scarce_names: whether these may be few
        Raises SchemaError where the vocabulary has no tokens for some bytes.
        """
        if not self._tables.spells_all_bytes:
            raise SchemaError(
                "uniqueItems over infinitely many values, and counts of members that are not mentioned, take a "
                "vocabulary with tokens for all single bytes",
                "#",
            )
        self._items = Beginnings(self._automaton, items, by_byte=told_by_byte)
        self._names = Beginnings(self._automaton, names)
        self._heads = Heads.of(self.vocabulary)
        self._twins = self._heads.twins
        self._trails = Trails(self._heads, canonical=canonical, with_names=remembers_names)
        self._ways = Ways(self._automaton, self._trails, self._items.begins, self._closing)
        self._chart_steps = Steps(self._automaton, self._tables.bytes, self._prepare)
        self._effects = Effects(
            self._automaton, self._trails, self._ways, self._heads, self.vocabulary, self._chart_steps
        )
        self._by_bytes = by_bytes
        self._closing.only_shortest = True
        self._moves = Moves(self._trails, self._effects, self._ways, self._heads, self._chart_steps)
        # Where strings have several spellings what is flat cannot be told by their bytes.
        tokens = self._tables.bytes
        self._flat = (
            Flat(self._trails, self._ways, self._effects, self._heads, tokens, self._meter) if canonical else None
        )
        settled = Settled(self._trails, self._ways, self._heads, self._chart_steps, open_names=open_names)
        self._settled = None if scarce_names else settled
        self._given: list[Trail | Unread] = []
        self._numbers: dict[tuple[int, bytes], int] = {}

    def _place(self, state: int) -> Place:
        """The chart's state and the trail of a state. Raises StateError."""
        if state < FIRST_NUMBER:
            return state, None
        if state >= FIRST_FLAT and self._flat is not None and state - FIRST_FLAT in self._flat:
            trail = self._flat.trail(state - FIRST_FLAT)
            return trail.spot.state, trail
        if state - FIRST_NUMBER >= len(self._given):
            raise no_state(state)
        trail = self._trail(self._given[state - FIRST_NUMBER])
        return trail.spot.state, trail

    def _trail(self, given: Trail | Unread) -> Trail:
        """The trail of what was given out."""
        if isinstance(given, Trail):
            return given
        if given.trail is None:
            base = given.base
            trail, _ = self._read_on(base.spot.state, base, joined(given.text), 0)
            assert trail is not None, "a settled item has not ended"
            trail.spot = self._moves.spot(given.state, trail)
            given.trail = trail
        return given.trail

    def _number(self, state: int, data: bytes, place: Place | None) -> int:
        """The number of a place that `data` leads to from a state; DEAD for None."""
        if place is None:
            return DEAD
        after, trail = place
        if trail is None:
            return after
        trail.spot = self._moves.spot(after, trail)
        flat = None if self._flat is None else self._flat.place(trail.spot, trail, self._place(state)[1])
        if flat is not None:
            return FIRST_FLAT + flat
        # Steps by tokens are remembered as such, and by the bytes of others
        tokens = self._heads.spelling(data)
        key = (state, data)
        number = self._steps.get(state << 32 | tokens[0]) if tokens else self._numbers.get(key)
        if number is None:
            count = len(self._given)
            limits = self._meter.limits
            if count >= limits.states:
                raise LimitError(
                    f"the constraint has led through more than {limits.states:,} states; simplify it, or raise states= "
                    "of its limits=Limits(...)"
                )
            if count % LOOKS == 0:
                self._meter.check_memory(self._automaton.held_bytes + self.trail_bytes)
            number = self._add(len(data), trail)
            if tokens:
                self._note_steps([state << 32 | token for token in tokens], number)
            else:
                if len(self._numbers) >= MAX_STEPS:
                    self._numbers.clear()
                self._numbers[key] = number
        return number

    def _add(self, size: int, trail: Trail | Unread) -> int:
        """The number of one more place, which so many bytes led to."""
        number = FIRST_NUMBER + len(self._given)
        self._trails.states_bytes += EACH_STATE + size
        self._given.append(trail)
        return number

    def _note_steps(self, keys: list[int], number: int) -> None:
        if len(self._steps) >= MAX_STEPS:
            self._steps.clear()
        for key in keys:
            self._steps[key] = number

    @property
    def trail_bytes(self) -> int:
        """About how much memory the states with a trail take."""
        return self._states_bytes + self._trails.values.held_bytes

    @property
    def _states_bytes(self) -> int:
        return self._trails.states_bytes + (0 if self._flat is None else self._flat.held_bytes)

    @property
    def is_worn(self) -> bool:
        """Whether so many states have been given out, which are never forgotten, that another guide should begin."""
        return self._states_bytes > self._meter.limits.memory >> 2

    def _differs(self, state: int) -> bool:
        """Whether an item of a watched array may begin in a state of the chart."""
        return self._items.may_be(state)

    def _must_differ(self, state: int) -> bool:
        """Whether a name that must be there once only may begin in a state of the chart."""
        return self._trails.with_names and self._names.may_be(state)

    def _may_begin(self, state: int, data: bytes) -> bool:
        """Whether something to be remembered may begin in `data`, from a state of the chart."""
        if b"[" in data or data[0] in SPACE or self._differs(state):
            return True
        return self._trails.with_names and b'"' in data

    def _follow(self, place: Place, data: bytes, after: int) -> Place | None:
        """Where `data` leads, which leads to `after` in the chart; None if it must not be there, or has no end."""
        if after == DEAD:
            return None
        state, trail = place
        if trail is None:
            if not self._may_begin(state, data):
                return after, None
            found = self._entered(state, data)
        else:
            found = self._read(state, trail, data, 0)
        if found is None:
            return None
        trail = found[0]
        if trail is None:
            return after, None
        return (after, trail) if self._ways.is_alive(after, trail) else None

    def _entered(self, state: int, data: bytes) -> tuple[Trail | None] | None:
        """The trail after data that begins outside of all that is remembered; None if something must not be there."""
        spend(EACH_READ)
        at = 0
        while True:
            while at < len(data) and data[at] in SPACE:
                at += 1
            if at == len(data):
                return (None,)
            begun = self._begun(self._automaton.read(state, data[:at]) if at else state, data[at])
            if begun is not None:
                trail, at = self._read_on(state, begun, data, at)
                if at < 0:
                    return None
                if trail is not None:
                    return (trail,)
                continue
            found = self._trails.openings.search(data, at)
            if not found:
                return (None,)
            at = found.end()

    def _begun(self, state: int, byte: int) -> Trail | None:
        """The trail before a byte that begins the first item of a watched array, or a name; None elsewhere."""
        if byte == 0x22 and self._must_differ(state):
            return self._trails.begin_names()
        return self._trails.begin() if byte != 0x5D and self._items.begins(state, byte) else None

    def _read(self, state: int, trail: Trail, data: bytes, at: int) -> tuple[Trail | None] | None:
        """As `_entered`, from within what is remembered."""
        found, end = self._read_on(state, trail, data, at)
        if end < 0:
            return None
        if found is None and self._trails.openings.search(data, end):
            rest = self._automaton.read(state, data[:end])
            return self._entered(rest, data[end:])
        return (found,)

    def _read_on(self, state: int, trail: Trail, data: bytes, at: int) -> tuple[Trail | None, int]:
        """As `Trails.read`, in a state of the chart before `data`."""
        read, begins = self._automaton.read, self._items.begins
        spend(EACH_READ)
        return self._trails.read(trail, data, at, lambda i: begins(read(state, data[:i]) if i else state, data[i]))

    def advance(self, state: int, token: int) -> int:
        """The state after `token`, or DEAD; EOS leaves an accepting state as it is."""
        if type(state) is int and type(token) is int and state >= FIRST_NUMBER:
            flat = self._flat
            if state >= FIRST_FLAT and flat is not None:
                step = flat.step  # called as an attribute it would be looked for as a method first
                try:
                    after = step(flat.handle, state, token)
                except OverflowError:  # numbers that no state and no token has
                    return super().advance(state, token)
                if after >= DEAD and not self._automaton.is_crowded:
                    return after
                return self._advance_flat(flat, state, token)
            known = self._advance_trail(state, token)
            if known is not None:
                return known
        return super().advance(state, token)

    def _advance_flat(self, flat: Flat, state: int, token: int) -> int:
        """As `advance` from a flat place, where its kernel wants something."""
        with self._lock:
            after = flat.slow_step(state, token)
        return after if after >= DEAD and not self._automaton.is_crowded else super().advance(state, token)

    def _advance_trail(self, state: int, token: int) -> int | None:
        """As `advance` from a place with a trail of its own, where that is known at once; None elsewhere."""
        if not 0 <= token < self._size:
            return None
        key = state << 32 | token
        known = self._steps.get(key)
        if known is None:
            known = self._quick_step(state, token, key)
        return None if self._automaton.is_crowded else known

    def _quick_step(self, state: int, token: int, key: int) -> int | None:
        """As `advance`, where what the token does is known of such places; None elsewhere."""
        with self._lock:
            given, steps = self._given, self._steps
            index, count = state - FIRST_NUMBER, len(given)
            if index >= count or count % LOOKS == 0 or len(steps) >= MAX_STEPS:
                return None
            before = given[index]
            after = self._unread_after(before, token)
            if after is None:
                if isinstance(before, Unread):
                    return None
                after = self._moves.after(before, token)
                if after is None:
                    return None
            number = FIRST_NUMBER + count
            self._trails.states_bytes += EACH_STATE
            given.append(after)
            steps[key] = number
            if token in self._twins:
                for twin in self._twins[token]:
                    steps[state << 32 | twin] = number
            # What its mask is shows here, mostly
            signature = NO_SIGNATURE if isinstance(after, Unread) else self._moves.signature(after)
            if signature >= 0 and len(self._signatures) < MAX_STEPS:
                self._signatures[number] = signature
            return number

    def _unread_after(self, before: Trail | Unread, token: int) -> Unread | None:
        """What a token leads to in a settled item, if that is not to be read now."""
        settled = self._settled
        if settled is None or (isinstance(before, Trail) and before.mode in (NAME_TEXT, NAME_ESCAPE)):
            return None
        if isinstance(before, Unread):
            state, level, where, base, text = before.state, before.level, before.where, before.base, before.text
        else:
            found = level_of(before)
            if found is None:
                return None
            state, level, where, base, text = before.spot.state, found, where_of(before), before, b""
        found = settled.after(where, level, token)
        if found is None:
            return None
        after = self._chart_steps.quick(state, token)
        if after is None or after == DEAD:
            return None
        return Unread(after, base, more_of(text, self._vocabulary.tokens[token] or b""), found[1], found[0])

    def _new_step(self, state: int, token: int) -> int:
        """As `advance`, where it is not known and the token is not EOS."""
        with self._lock, self._meter:
            if self._automaton.is_crowded:
                self._automaton.collect()
            data = self._vocabulary.tokens[token] or b""
            if self._flat is not None and self._learnt(self._flat, state - FIRST_FLAT, token, data):
                return self._flat.slow_step(state, token)
            after = self._number(state, data, self._place_after(self._place(state), token))
            self._note_steps([state << 32 | token], after)
            return after

    def _learnt(self, flat: Flat, place: int, token: int, data: bytes) -> bool:
        """Whether it is known from now on what a token does at such flat places."""
        if place not in flat:
            return False
        bare = flat.bare(place)
        found = self._place_after((bare.spot.state, bare), token)
        if found is None:
            return False
        after, trail = found
        if trail is not None:
            trail.spot = self._moves.spot(after, trail)
        return flat.learn(bare, token, data, after, trail)

    def _place_after(self, place: Place, token: int) -> Place | None:
        """The state after a token; None if it is not allowed."""
        data = self._vocabulary.tokens[token]
        if not data:
            return None
        return self._follow(place, data, self._chart_steps.after(place[0], token))

    def _places_after(self, place: Place, tokens: list[int]) -> list[Place | None]:
        """As `_place_after`, of several tokens; quicker."""
        self._chart_steps.after_each(place[0], tokens)
        return [self._place_after(place, token) for token in tokens]

    def read(self, state: int, data: bytes) -> int:
        """The state after `data`, which may end anywhere; DEAD if no tokens can complete a text from there."""
        data = bytes_of(data)
        with self._lock, self._meter:
            place = self._ready(state)
            if place[0] == DEAD or not data:
                return state if place[0] != DEAD else DEAD
            found = self._follow(place, data, self._automaton.read(place[0], data))
            return self._number(state, data, found)

    def _ready(self, state: int) -> Place:
        """The place of a state that somebody gave, which can be looked at. Raises StateError."""
        state = state_of(state, MOST_LEFT)
        place = self._place(state)
        return self._prepare(place[0]), place[1]

    def is_accepting(self, state: int) -> bool:
        """Whether the text so far is complete; never within what is remembered."""
        state = state_of(state, MOST_LEFT)
        if self._flat is not None and state - FIRST_FLAT in self._flat:
            return False
        state, trail = self._place(state)
        return trail is None and super().is_accepting(state)
