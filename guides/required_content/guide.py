"""A guide joined with goals: the guide's texts that meet all goals."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...checks import brief
from ...errors import LanguageError, LimitError, OptionError
from ..arguments import check_bytes, check_left, check_token, state_error, states_of
from ..explain import NOTHING, expected
from ..free_guide import FreeGuide
from ..lift.table_guide import StateTableGuide
from ..limits import Limits, Meter
from ..locks import new_lock
from ..pictures import MAX_PICTURED, Drawable, Picture, PictureBuilder, refuse_tokens
from ..protocol import DEAD, NEVER, ByteGuide, Mask
from .completion import MAX_SEARCHED, FreeCompletion, GoalCompletion, SearchedCompletion
from .joint import START, GoalTokens, Joint, JointSteps
from .specs import Goal, goals_of

RECENT = 64


class LiveSteps(NamedTuple):
    """The transitions of a state, and which of their target states can still be completed: bool [states]."""

    steps: JointSteps
    alive: NDArray[np.bool_]

    def tokens(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the tokens, in trie order, that lead to the chosen target states: bool [tokens]."""
        flags = np.append(chosen, False)  # the last entry serves DEAD
        return flags[self.steps.which]


class GoalGuide(StateTableGuide, Drawable):
    """A guide joined with goals. See `guides.protocol.Guide` for the methods.

    child: the guide; FreeGuide for goals alone. A guide that cannot be joined has the reason in `refuses_goals`.
    goals: as `include=` takes them, see `goals_of`
    limits: bounds of each call, see `Limits`
    max_states: the most joint states of a search for a completion. A token is allowed if the child allows it and a
        completion with all goals met is found within this bound.

    A text is complete if the child's is and all goals are met. Raises OptionError for malformed goals, LanguageError
    where no text of the child meets them or the vocabulary cannot spell one, LimitError where none was found
    within limits. Thread-safe.
    """

    def __init__(
        self, child: ByteGuide, goals: Any, *, max_states: int = MAX_SEARCHED, limits: Limits | None = None
    ) -> None:
        if not isinstance(child, ByteGuide):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(
                f"{brief(child)} cannot be joined with goals: it has no method `read`, see guides.ByteGuide"
            )
        refusal: str = getattr(child, "refuses_goals", "")
        if refusal:
            raise OptionError(f"{brief(child)} cannot be joined with goals: {refusal}")
        most = states_of(max_states)
        super().__init__(child.vocabulary)
        self.child = child
        self.goals: tuple[Goal, ...] = goals_of(goals)
        self._lock = new_lock()
        self._meter = Meter(limits)
        self._made_of = {"child": child, "goals": self.goals, "max_states": most, "limits": limits}
        self._options: OrderedDict[int, LiveSteps] = OrderedDict()
        with self._meter:
            self._goals = [GoalTokens.of(goal, self._vocabulary) for goal in self.goals]
            self._joint = Joint(child, self._goals, self._tables)
            self._completion = self._make_completion(self._joint, most)
            if not self._completion.is_alive(START):
                raise self._refusal(most)

    def __repr__(self) -> str:
        return f"GoalGuide({self.child!r}, {list(self.goals)!r})"

    def picture(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> Picture:
        """Draw a box with an arrow to each goal, and one to the picture of the child."""
        refuse_tokens(tokens, "goals")
        drawn = PictureBuilder(states_of(max_states))
        both = drawn.box("a text")
        for goal in self.goals:
            drawn.arrow(both, drawn.box(repr(goal)), "contains")
        drawn.arrow(both, drawn.guide(self.child)[0], "is one of")
        return drawn.picture()

    @property
    def start(self) -> int:
        """The state before the first token."""
        return START

    @property
    def steps(self) -> int:
        """The progress of a text that meets all goals."""
        return sum(goal.steps for goal in self._goals)

    def progress(self, state: int) -> int:
        """Return the number of steps done towards the goals: tokens no longer needed, summed over the goals."""
        _, *places = self._joint.members[self._alive(state)]
        return sum(goal.progress.item(place) for goal, place in zip(self._goals, places, strict=True))

    def progress_after(self, state: int, token: int) -> int:
        """Return the progress after an allowed token, including EOS."""
        token = check_token(token, self._vocabulary.size)
        if token < 0 or token in self._eos:
            return self.progress(state)
        state = self._alive(state)
        with self._lock, self._meter:
            steps = self._options_of(state).steps
            place = steps.which.item(self._tables.places.item(token))
        return self.progress(state if place == DEAD else steps.states[place])

    def unmet(self, state: int) -> tuple[str, ...]:
        """Return the `repr` of the goals that are not met if the text ends here."""
        _, *places = self._joint.members[self._alive(state)]
        return tuple(
            repr(goal.automaton.goal)
            for goal, place in zip(self._goals, places, strict=True)
            if not goal.automaton.met[place]
        )

    def missing(self, text: bytes) -> tuple[str, ...]:
        """Return the `repr` of the goals that a text does not meet, whether or not the child accepts it."""
        found = (goal.automaton for goal in self._goals)
        return tuple(repr(each.goal) for each in found if not each.met[each.read(0, text)])

    def _advanced(self, state: int, token: int) -> int:
        with self._lock, self._meter:
            child = self.child.advance(self._joint.members[state][0], token)
            return self._after(state, child, b"" if child == DEAD else self._vocabulary.tokens[token] or b"")

    def read(self, state: int, data: bytes) -> int:
        """Return the state after `data`, which may end anywhere; DEAD if no tokens can complete a text from there."""
        state, data = self._joint.check(state), check_bytes(data)
        if state == DEAD:
            return DEAD
        with self._lock, self._meter:
            return self._after(state, self.child.read(self._joint.members[state][0], data), data)

    def is_accepting(self, state: int) -> bool:
        """Test whether the child's text is complete and all goals are met."""
        state = self._joint.check(state)
        return state != DEAD and self._joint.is_met(state) and self.child.is_accepting(self._joint.members[state][0])

    def distance(self, state: int) -> int:
        """Return the tokens that complete the text with all goals met, EOS not counted; never an underestimate."""
        state = self._joint.check(state)
        if state == DEAD:
            return NEVER
        with self._lock, self._meter:
            return self._distance(state)

    def fits(self, state: int, left: int) -> bool:
        """Test whether `distance(state) <= left`; faster than `distance` for a large `left`."""
        state, left = self._joint.check(state), check_left(left)
        if state == DEAD:
            return left >= NEVER
        with self._lock, self._meter:
            return self._fits(state, left)

    def mask_within(self, state: int, left: int) -> Mask:
        """Return the allowed tokens after which `left - 1` tokens can complete the text, and EOS iff accepting."""
        return self._mask(self._joint.check(state), check_left(left))

    def advancing(self, state: int) -> Mask:
        """Return the allowed tokens that increase the progress: uint32 [ceil(V / 32)]."""
        return self.advancing_below(state, 0)

    def mask_below(self, state: int, node: int, left: int | None = None) -> Mask:
        """See `guides.healing.TrieGuide`."""
        state = self._alive(state)
        with self._lock, self._meter:
            options = self._options_of(state, node)
            chosen = self._fitting(options, None if left is None else check_left(left))
            return self._tables.pack(options.tokens(chosen), node)

    def distance_below(self, state: int, node: int) -> int:
        """See `guides.healing.TrieGuide`."""
        state = self._alive(state)
        with self._lock, self._meter:
            options = self._options_of(state, node)
            alive = (after for after, is_alive in zip(options.steps.states, options.alive, strict=True) if is_alive)
            return min((1 + self._distance(after) for after in alive), default=NEVER)

    def advancing_below(self, state: int, node: int) -> Mask:
        """Return the tokens below a node of the trie that are allowed from there and increase the progress."""
        state = self._alive(state)
        with self._lock, self._meter:
            options = self._options_of(state, node)
            return self._tables.pack(options.tokens(options.alive & self._further(options, state)), node)

    def _alive(self, state: int) -> int:
        """Return a live state as an int. Raises StateError for DEAD and for unknown states."""
        state = self._joint.check(state)
        if state == DEAD:
            raise state_error(state)
        return state

    def _distance(self, state: int) -> int:
        if self.is_accepting(state):
            return 0
        if self._joint.is_settled(state):
            return self.child.distance(self._joint.members[state][0])
        return self._completion.distance(state)

    def _fits(self, state: int, left: int) -> bool:
        return self._completion.bound(state) <= left or self._distance(state) <= left

    def _fitting(self, options: LiveSteps, left: int | None) -> NDArray[np.bool_]:
        """Test which target states can still be completed, in `left - 1` tokens if given."""
        if left is None:
            return options.alive
        places = enumerate(options.steps.states)
        return np.array([bool(options.alive[i]) and self._fits(after, left - 1) for i, after in places], np.bool_)

    def _further(self, options: LiveSteps, state: int) -> NDArray[np.bool_]:
        """Test which target states have more progress than `state`."""
        now = self.progress(state)
        return np.array([self.progress(after) > now for after in options.steps.states], np.bool_)

    def describe(self, state: int) -> str:
        """Describe what may follow for the child, the progress, and the goals that are not met."""
        state = self._joint.check(state)
        if state == DEAD:
            return NOTHING
        words = expected(self.child, self._joint.members[state][0])
        missing = self.unmet(state)
        still = f", missing {', '.join(missing)}" if missing else ""
        return f"{words}; goals {self.progress(state)}/{self.steps}{still}"

    def _make_completion(self, joint: Joint, max_states: int) -> GoalCompletion:
        by_bytes = self._tables.spells_all_bytes
        if by_bytes and isinstance(self.child, FreeGuide):
            return FreeCompletion(joint, self._tables)
        return SearchedCompletion(joint, self._tables, by_bytes=by_bytes, max_states=max_states)

    def _after(self, state: int, child: int, data: bytes) -> int:
        if child == DEAD:
            return DEAD
        after = self._joint.read(state, child, data)
        return after if self._is_alive(after) else DEAD

    def _is_alive(self, state: int) -> bool:
        return self._joint.is_settled(state) or self._completion.is_alive(state)

    def _options_of(self, state: int, node: int = 0) -> LiveSteps:
        """Return the transitions of the tokens below a node of the trie; those of all tokens are cached."""
        options = None if node else self._options.get(state)
        if options is None:
            self._meter.check_memory(self._joint.held_bytes)
            steps = self._joint.by_tokens(state, node)
            options = LiveSteps(steps, np.array([self._is_alive(after) for after in steps.states], np.bool_))
            if not node:
                self._options[state] = options
                if len(self._options) > RECENT:
                    self._options.popitem(last=False)
        return options

    def _check(self, state: int) -> int:
        return self._joint.check(state)

    def _compute_mask(self, state: int) -> Mask:
        return self._mask(state, None)

    def _mask(self, state: int, left: int | None) -> Mask:
        """Compute `mask`, or with `left` `mask_within`."""
        if state == DEAD:
            return np.zeros(self._tables.words, np.uint32)
        with self._lock, self._meter:
            options = self._options_of(state)
            mask = self._tables.pack(options.tokens(self._fitting(options, left)))
        if self.is_accepting(state):
            mask |= self._tables.eos_words
        return mask

    def _refusal(self, max_states: int) -> Exception:
        """Return the error for a constraint without a text; it names the first unreachable goal, or all goals."""
        found: list[tuple[Goal | None, GoalCompletion]] = [(None, self._completion)]
        if len(self.goals) > 1:
            for goal, tokens in zip(self.goals, self._goals, strict=True):
                completion = self._make_completion(Joint(self.child, [tokens], self._tables), max_states)
                if not completion.is_alive(START):
                    found.append((goal, completion))
                    break
        goal, completion = found[-1]
        named = repr(goal) if goal is not None else " and ".join(map(repr, self.goals))
        if isinstance(completion, SearchedCompletion) and completion.given_up:
            return LimitError(
                f"no text of the constraint with {named} was found within {max_states:,} states; it may have none. "
                "Include less, simplify the constraint, or make a GoalGuide with greater max_states"
            )
        return LanguageError(
            f"no text of the constraint contains {named}; change the constraint, or leave the goal out"
            if goal is not None or len(self.goals) == 1
            else f"no text of the constraint contains all of {named}, though it may contain each; leave one out"
        )
