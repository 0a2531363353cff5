"""A guide of free text that mentions a text of another guide, such as sentences or reasoning with an answer."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...checks import shown
from ...errors import LimitError, OptionError
from ..automata.byte_table import OUTSIDE, WORD, last_character
from ..automata.charsets import ALL, negate, unicode_class
from ..automata.dfa import Dfa, StateNumbering, minimise
from ..chart.automaton import ChartAutomaton
from ..explain import NOTHING, expected
from ..graph.graph import Graph
from ..graph.lowering import Lowering
from ..lift.table_guide import StateTableGuide
from ..limits import Limits, Meter, spend
from ..protocol import DEAD, Mask
from ..regular_guide import RegularGuide
from ..syntax import Chars, Repeat, Table

MAX_STATES = 10_000
MAX_OF_CHILD = 2_000
STEPS_PER_MOVE = 50
FIRST_UNSPACED = 0x0E00
"""Scripts from Thai on put no spaces between words, or attach particles to them."""
SPACED = tuple((low, min(high, FIRST_UNSPACED - 1)) for low, high in unicode_class("w") if low < FIRST_UNSPACED)
"""Word characters of scripts with visible word ends."""
NO_TEXT = b"\xff"
LINE = negate(((10, 10), (13, 13)))


class MentionThread(NamedTuple):
    """A reading of the end of a text as a prefix of one of the child's texts.

    state: the child's state, DEAD where it cannot go on
    is_named: a text of the child was read, and its end seen
    is_open: a text of the child ends with the last whole character; it is named unless a word character follows
    """

    state: int
    is_named: bool = False
    is_open: bool = False


Threads = tuple[MentionThread, ...]
NAMED = MentionThread(DEAD, is_named=True)


class MentionGuide(StateTableGuide):
    """A line of free text up to a mention of a guide's text. See `guides.protocol.Guide` for the methods.

    child: a guide of a regular language without the empty text
    is_last: free text of several lines with one or more mentions, of which the last counts
    limits: bounds of each call, see `Limits`

    A text is mentioned where no letter, digit or underscore is adjacent to it; characters of scripts without spaces
    between words are ignored in this test. The first mention counts, and of those with one start the longest. The text
    ends with the token that shows this: it contains the first character behind the mention, or a later one if a longer
    mention had begun. The rest of that token is free, so that states depend on the tokenization and there is no `read`.
    Raises OptionError for an unsuitable guide, LimitError where the automaton has too many states.
    """

    def __init__(self, child: RegularGuide, *, is_last: bool = False, limits: Limits | None = None) -> None:
        if isinstance(child, type) or not isinstance(child, RegularGuide):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"{shown(child)} is not a guide of a regular language, which free text must name")
        if child.is_accepting(child.start):
            raise OptionError(f"{shown(child)} accepts the empty text, which free text cannot name")
        super().__init__(child.vocabulary)
        self.child, self.is_last = child, is_last
        try:
            self._child = child.dfa(MAX_OF_CHILD)
        except LimitError:
            raise _too_large(MAX_OF_CHILD) from None
        with Meter(limits):
            self._line = RegularGuide(_table(self._child, is_last=is_last), child.vocabulary)
        self._ended: dict[int, bool] = {}
        self._made_of = {"child": child, "is_last": is_last, "limits": limits}

    def __repr__(self) -> str:
        return f"MentionGuide({self.child!r}{', is_last=True' if self.is_last else ''})"

    @property
    def start(self) -> int:
        """The state before the first token."""
        return self._line.start

    def advance(self, state: int, token: int) -> int:
        """Return the state after `token`, or DEAD; EOS leaves an accepting state as it is."""
        after = self._line.advance(state, token)
        return DEAD if after != DEAD and self._has_ended(state) and token not in self._eos else after

    def is_accepting(self, state: int) -> bool:
        """Test whether a text of the child was mentioned."""
        return self._line.is_accepting(state)

    def distance(self, state: int) -> int:
        """Return the fewest tokens to an accepting state."""
        return self._line.distance(state)

    def fits(self, state: int, left: int) -> bool:
        """Test whether `distance(state) <= left`."""
        return self._line.fits(state, left)

    def mask_within(self, state: int, left: int) -> Mask:
        """Return the allowed tokens after which `left - 1` tokens can complete the text, and EOS iff accepting."""
        mask = self._line.mask_within(state, left)
        return mask & self._tables.eos_words if self._has_ended(state) else mask

    def describe(self, state: int) -> str:
        """Describe what may follow."""
        if self._check(state) == DEAD:
            return NOTHING
        if self._has_ended(state):
            return "the end of the text"
        what = expected(self.child, self.child.start)
        return f"free text, or {what}{', or the end of the text' if self.is_accepting(state) else ''}"

    def _check(self, state: int) -> int:
        self._line.is_accepting(state)  # raises StateError for an unknown state
        return int(state)

    def _compute_mask(self, state: int) -> Mask:
        mask = self._line.mask(state)
        return mask & self._tables.eos_words if self._has_ended(state) else mask

    def _has_ended(self, state: int) -> bool:
        """Test whether a mention and its end were seen. Only this state accepts bytes that are in no text."""
        known = self._ended.get(state)
        if known is None:
            known = self._ended[state] = state != DEAD and self._line.read(state, NO_TEXT) != DEAD
        return known

    def named(self, text: bytes) -> tuple[int, int] | None:
        """Return the start and end of the mention, in bytes; None in a text without one."""
        words, last = last_character(SPACED), OUTSIDE
        lasts = [last := words.item(last, byte) for byte in text]
        named, begin = None, 0
        while begin < len(text) and (named is None or self.is_last):
            found = self._mention_at(text, begin, lasts)
            named, begin = found or named, begin + 1 if found is None else found[1]
        return named

    def _mention_at(self, text: bytes, begin: int, lasts: list[int]) -> tuple[int, int] | None:
        """Return the longest mention that begins at an offset."""
        if begin and lasts[begin - 1] != OUTSIDE:
            return None
        state, found = self._child.start, None
        for place in range(begin, len(text)):
            state = self._child.step(state, text[place])
            if state == DEAD:
                break
            if self._child.is_accepting(state) and _is_word_end(text, lasts, place + 1):
                found = place + 1
        return None if found is None else (begin, found)


def _is_word_end(text: bytes, lasts: list[int], place: int) -> bool:
    """Test whether no word character stands at an offset of a text."""
    following = next((last for last in lasts[place:] if last in (OUTSIDE, WORD)), OUTSIDE)
    return following == OUTSIDE


def _table(child: Dfa, *, is_last: bool) -> Table:
    """Build the language as a table. Raises LimitError."""
    line, words, moves = _free_text(is_line=not is_last), last_character(SPACED), _Moves(child)
    numbers: StateNumbering[tuple[int, int, Threads]] = StateNumbering()
    end_state = (DEAD, OUTSIDE, (NAMED,))
    _ = numbers[line.start, OUTSIDE, _with_new_thread([], child.start)]
    kinds = np.concatenate([line.transitions, words, child.transitions])
    _, first, kind_of = np.unique(kinds, axis=1, return_index=True, return_inverse=True)
    kind_of, firsts = kind_of.reshape(-1), first.tolist()
    rows: list[NDArray[np.int32]] = []
    accepting: list[bool] = []
    for number, (place, last, threads) in enumerate(numbers.states):
        row = [number if place == DEAD else DEAD] * len(firsts)
        spend(STEPS_PER_MOVE * len(firsts))
        for kind, byte in enumerate(firsts if place != DEAD else ()):
            after = line.transitions.item(place, byte)
            if after != DEAD:
                current = words.item(last, byte)
                moved = moves.after(threads, byte, current)
                if any(each.is_named for each in moved) if is_last else moved[:1] == (NAMED,):
                    row[kind] = numbers[(after, OUTSIDE, (NAMED,)) if is_last else end_state]
                else:
                    row[kind] = numbers[after, current, moved]
        rows.append(np.array(row, np.int32)[kind_of])
        is_boundary = place == DEAD or line.is_accepting(place)
        accepting.append(is_boundary and any(each.is_named or each.is_open for each in threads))
        if len(numbers) > MAX_STATES:
            raise _too_large(MAX_STATES)
    return Table(*minimise(np.stack(rows), np.array(accepting)))


def _too_large(most: int) -> LimitError:
    return LimitError(
        f"free text that names one of these needs more than {most:,} states, a fixed limit; name fewer or shorter "
        "texts, or ask for them alone, with frame=None"
    )


class _Moves:
    """Byte transitions of threads, in order of their start."""

    def __init__(self, child: Dfa) -> None:
        self._child = child
        self._cache: dict[tuple[Threads, int, int], Threads] = {}

    def after(self, threads: Threads, byte: int, last: int) -> Threads:
        """Return the threads after a byte; last: the state of `last_character` after it"""
        key = threads, byte, last
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = self._compute_after(threads, byte, last)
        return found

    def _compute_after(self, threads: Threads, byte: int, last: int) -> Threads:
        child, is_boundary, moved = self._child, last <= WORD, list[MentionThread]()
        for state, is_named, is_open in threads:
            after = DEAD if state == DEAD else child.step(state, byte)
            if is_boundary:
                is_named |= is_open and last == OUTSIDE
                is_open = after != DEAD and child.is_accepting(after)
            thread = MentionThread(after, is_named, is_open)
            if after == DEAD and not is_named and not is_open:
                continue
            if not any(_covers(other, thread) for other in moved):
                moved.append(thread)
            if thread == NAMED:
                return tuple(moved)  # later threads do not matter
        return _with_new_thread(moved, child.start) if last == OUTSIDE else tuple(moved)


def _covers(earlier: MentionThread, later: MentionThread) -> bool:
    """Test whether every mention of the later thread is one of the earlier thread too."""
    return earlier.state == later.state and earlier.is_named >= later.is_named and earlier.is_open >= later.is_open


def _with_new_thread(threads: list[MentionThread], start: int) -> Threads:
    """Return the threads, and a new one that begins here unless an existing one covers it."""
    new = MentionThread(start)
    return tuple(threads) if any(_covers(each, new) for each in threads) else (*threads, new)


@lru_cache(maxsize=2)
def _free_text(*, is_line: bool) -> Dfa:
    """Return the automaton of any characters; for a line, without line ends."""
    graph = Graph()
    return Dfa.of(ChartAutomaton(graph, Lowering(graph).rule(Repeat(Chars(LINE if is_line else ALL), 0, None))))
