"""Texts of the named groups of a pattern, in a text that it matches as a whole.

`re` tries the ways through a pattern in an order; the first that reaches the end of the text determines the groups.
This module does not backtrack. For each part of the pattern it computes the positions from which the part leads to
where the rest can follow, as an int with one bit per position. The first way is then walked without a wrong turn, in
time polynomial in the text and the pattern.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from typing import NamedTuple

from ...errors import LimitError
from ..automata.charsets import LAST
from ..limits import spend, spend_growth
from ..syntax import Alternation, Chars, Literal, Ranges, Repeat, Sequence
from .atomic import Lazy
from .tree import AtomicGroup, Concat, Lookaround, LookaroundAlternation, LookaroundLoop, NamedGroup, Tree, lengths

# Work per part of a pattern that is examined, besides the work per position
STEPS_PER_PART = 100
# Work per position of a set
STEPS_PER_PLACE = 10
# Memory of an atomic group per position
BITS_PER_PLACE = 2_000
_ONE = ord("1")


class GroupText(NamedTuple):
    """Text of a group: `text[begin:end]` of the text that was read."""

    name: str
    begin: int
    end: int


class NamedGroups(NamedTuple):
    """A pattern parsed for its groups. lazy: the repeats that try fewer iterations first"""

    tree: Tree
    lazy: Lazy

    def read(self, text: str) -> list[GroupText]:
        """Return the texts of the groups in the order in which they end; empty if the pattern does not match the text.

        Raises LimitError.
        """
        ways = _Ways(text, self.lazy)
        try:
            if ways.before(self.tree, 1 << len(text)) & 1:
                ways.walk(self.tree, 0, 1 << len(text))
        except RecursionError:
            raise LimitError("the pattern nests groups deeper than the rest of Python's stack allows") from None
        return ways.found


class _Turns(NamedTuple):
    """The start positions of a repeat, by the number of remaining optional iterations, and of required ones."""

    optional: list[int]
    needed: list[int]


class _Ways:
    """The ways through trees in one text. A set of positions is an int; bit n is the position before character n."""

    def __init__(self, text: str, lazy: Lazy) -> None:
        self.text = text
        self.lazy = lazy
        self.found: list[GroupText] = []
        self._all_places = (1 << len(text) + 1) - 1
        self._characters: dict[str, int] = {}
        for place, character in enumerate(text):
            self._characters[character] = self._characters.get(character, 0) | 1 << place
        self._reach_cache: dict[tuple[int, int, bool], int] = {}
        self._turns_cache: dict[tuple[int, int, bool], _Turns] = {}
        self._starts_of_leaves: dict[int, int] = {}
        self._ends: dict[int, dict[int, int]] = {}
        self._begins: dict[int, defaultdict[int, list[int]]] = {}
        self._last_ends: dict[tuple[int, int], dict[int, int]] = {}
        self._only_ends = False
        self._held = 0

    def before(self, tree: Tree, ends: int) -> int:
        """Return the positions from which the tree leads to one of `ends`."""
        return self._reach(tree, ends, True)

    def walk(self, tree: Tree, place: int, ends: int) -> int:
        """Return the end of the first way from a position to one of `ends`, and add its groups to `found`.

        There must be such a way.
        """
        spend(STEPS_PER_PART)
        match tree:
            case Chars():
                return place + 1
            case Literal(data):
                return place + len(data.decode())
            case Sequence(items) | Concat(items):
                targets = [ends]
                for item in reversed(items[1:]):
                    targets.append(self.before(item, targets[-1]))
                for item in items:
                    place = self.walk(item, place, targets.pop())
                return place
            case Alternation(items) | LookaroundAlternation(items):
                return self.walk(next(item for item in items if self.before(item, ends) >> place & 1), place, ends)
            case Repeat() | LookaroundLoop():
                return self._walk_turns(tree, place, ends)
            case Lookaround(body, ahead, negative):
                if not (negative or self._only_ends):
                    begins = 1 << place if ahead else self.before(body, 1 << place)
                    self.walk(body, (begins & -begins).bit_length() - 1, self._all_places if ahead else 1 << place)
                return place
            case NamedGroup(name, item):
                end = self.walk(item, place, ends)
                if not self._only_ends:
                    self.found.append(GroupText(name, place, end))
                return end
            case AtomicGroup(item):
                return self._first_ends(tree)[place] if self._only_ends else self.walk(item, place, self._all_places)
            case _:
                raise AssertionError(f"{tree!r} is no part of a pattern")

    def _walk_turns(self, tree: Repeat | LookaroundLoop, place: int, ends: int) -> int:
        turns, may_be_empty = self._turns_of(tree, ends, True), lengths(tree.item)[0] == 0
        # Once an unbounded repeat has its required iterations, its end depends only on the position, not on the way
        # there.
        last = self._last_ends.setdefault((id(tree), ends), {}) if self._only_ends and tree.max is None else {}
        passed, done = list[int](), 0
        while done != tree.max and not (done >= tree.min and place in last):
            if done < tree.min:
                target = turns.needed[min(tree.min - done, len(turns.needed)) - 1]
            else:
                left = len(turns.optional) if tree.max is None else tree.max - done
                target = turns.optional[min(left, len(turns.optional)) - 1]
                if may_be_empty:  # an empty iteration is the last one
                    target = target & ~(1 << place) | ends & 1 << place
                passed.append(place)
                is_done = id(tree) in self.lazy and ends >> place & 1
                if is_done or not self.before(tree.item, target) >> place & 1:
                    break
            end = self.walk(tree.item, place, target)
            if end == place and done >= tree.min:
                break
            place = end
            done += 1
        end = last.get(place, place)
        last.update(dict.fromkeys(passed, end))
        return end

    def _turns_of(self, tree: Repeat | LookaroundLoop, places: int, back: bool) -> _Turns:
        key = id(tree), places, back
        if key not in self._turns_cache:
            left = None if tree.max is None else tree.max - tree.min
            optional, new = [places], places
            while new and left != 0:
                new = self._reach(tree.item, new, back) & ~optional[-1]
                optional.append(optional[-1] | new)
                if left is None:
                    optional = optional[-1:]  # the number of remaining iterations never changes
                else:
                    left -= 1
                self._hold(left is not None)
            needed = optional[-1:]
            while len(needed) <= tree.min and needed[-1:] != needed[-2:-1]:
                needed.append(self._reach(tree.item, needed[-1], back))
                self._hold(1)
            self._turns_cache[key] = _Turns(optional, needed)
        return self._turns_cache[key]

    def _reach(self, tree: Tree, places: int, back: bool) -> int:
        """Return the positions before (`back`) or after texts of the tree that end or begin at one of `places`."""
        spend(STEPS_PER_PART + (len(self.text) >> 6))
        match tree:
            case Chars(ranges):
                return self._shift(places, self._leaf_starts(tree, ranges), 1, back)
            case Literal(data):
                return self._shift(places, self._leaf_starts(tree, data.decode()), len(data.decode()), back)
            case Lookaround():
                return places & self._condition_places(tree)
            case NamedGroup(_, item):
                return self._reach(item, places, back)
            case _:
                key = id(tree), places, back
                if key not in self._reach_cache:
                    self._reach_cache[key] = self._reach_through(tree, places, back)
                    self._hold(2)
                return self._reach_cache[key]

    def _reach_through(self, tree: Tree, places: int, back: bool) -> int:
        match tree:
            case Sequence(items) | Concat(items):
                for item in reversed(items) if back else items:
                    places = self._reach(item, places, back)
                return places
            case Alternation(items) | LookaroundAlternation(items):
                found = 0
                for item in items:
                    found |= self._reach(item, places, back)
                return found
            case Repeat() | LookaroundLoop():
                return self._turns_of(tree, places, back).needed[-1]
            case AtomicGroup():
                ends = self._first_ends(tree)
                if back:
                    return self._set_of(
                        [begin for end in self._places_of(places) for begin in self._begins[id(tree)].get(end, ())]
                    )
                return self._set_of([ends[begin] for begin in self._places_of(places) if begin in ends])
            case _:
                raise AssertionError(f"{tree!r} is no part of a pattern")

    def _shift(self, places: int, begins: int, length: int, back: bool) -> int:
        return places >> length & begins if back else (places & begins) << length

    def _leaf_starts(self, tree: Tree, pattern: Ranges | str) -> int:
        """Return the positions where a character of a set, or a text, begins."""
        if id(tree) not in self._starts_of_leaves:
            if isinstance(pattern, str):
                found = self._all_places
                for at, character in enumerate(pattern):
                    found &= self._characters.get(character, 0) >> at
            else:
                found = 0
                for character, places in self._characters.items():
                    spend(STEPS_PER_PART)
                    at = bisect_right(pattern, (ord(character), LAST)) - 1
                    found |= places if at >= 0 and ord(character) <= pattern[at][1] else 0
            self._starts_of_leaves[id(tree)] = found
            self._hold(1)
        return self._starts_of_leaves[id(tree)]

    def _condition_places(self, look: Lookaround) -> int:
        """Return the positions where a condition holds."""
        places = self._reach(look.body, self._all_places, look.ahead)
        return self._all_places & ~places if look.negative else places

    def _first_ends(self, tree: AtomicGroup) -> dict[int, int]:
        """Return the end of the first way from each position that has one."""
        if id(tree) not in self._ends:
            begins, outer = self.before(tree.item, self._all_places), self._only_ends
            self._only_ends = True
            ends = {place: self.walk(tree.item, place, self._all_places) for place in self._places_of(begins)}
            self._only_ends = outer
            self._ends[id(tree)], self._begins[id(tree)] = ends, defaultdict(list)
            for begin, end in ends.items():
                self._begins[id(tree)][end].append(begin)
            self._hold(BITS_PER_PLACE)
        return self._ends[id(tree)]

    def _places_of(self, places: int) -> list[int]:
        """Return the positions of a set in ascending order."""
        found = [match.start() for match in re.finditer("1", f"{places:b}"[::-1])]
        spend(len(found) * STEPS_PER_PLACE)
        return found

    def _set_of(self, places: list[int]) -> int:
        """Return the set of some positions."""
        spend(len(places) * STEPS_PER_PLACE)
        digits = bytearray(b"0") * (len(self.text) + 1)
        for place in places:
            digits[-1 - place] = _ONE
        return int(digits, 2)

    def _hold(self, count: int) -> None:
        """Count the memory of cached sets of positions. Raises LimitError where it is too much."""
        self._held += count * (len(self.text) >> 3)
        spend_growth(0, self._held)
