"""A finite set of texts, or its complement, as an automaton over characters with states made on demand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from ....kernels.answers import DEAD, NEVER
from ...automata.charsets import LAST, negate, single
from ...automata.dfa import StateNumbering
from ...limits import spend
from .spelling import bytes_of


class TextTree:
    """The strings `texts`, or their complement. The last atom has all characters that none of them contains.

    is_endless: whether every text can be continued to a string
    """

    def __init__(self, texts: Iterable[str], *, all_but: bool = False) -> None:
        self._texts = sorted(texts)
        self._all_but = self.is_endless = all_but
        chars = sorted(set("".join(self._texts)))
        self._columns = {char: number for number, char in enumerate(chars)}
        singles = [single(ord(char)) for char in chars]
        self.atoms = [*singles, negate(tuple(pair for one in singles for pair in one))]
        self._costs = {char: bytes_of(one) for char, one in zip(chars, singles, strict=True)}
        self._promised: dict[int, int] = {}
        # A state is a range of the sorted texts with a common prefix, and its length; empty where no text matches.
        self._numbers: StateNumbering[tuple[int, int, int]] = StateNumbering()
        self.start = self._numbers[0, len(self._texts), 0]

    def row(self, state: int) -> list[int]:
        """Return the state after each atom, DEAD if no string continues so."""
        first, last, depth = self._numbers.states[state]
        row = [self._numbers[0, 0, 0] if self._all_but else DEAD] * len(self.atoms)
        first += self._is_text(first, last, depth)
        while first < last:
            text = self._texts[first]
            code = ord(text[depth])
            end = bisect_left(self._texts, text[:depth] + chr(code + 1), first, last) if code < LAST else last
            row[self._columns[text[depth]]] = self._numbers[first, end, depth + 1]
            first = end
        return row

    def _is_text(self, first: int, last: int, depth: int) -> bool:
        """Test whether the characters so far are one of the texts."""
        return first < last and len(self._texts[first]) == depth

    def cost_at_end(self, state: int) -> int:
        """Return the bytes after a string that ends in a state: 0, or NEVER if none may end."""
        return 0 if self._is_text(*self._numbers.states[state]) != self._all_but else NEVER

    def promised(self, state: int) -> int:
        """Return the fewest bytes from a state to the end."""
        known = self._promised.get(state)
        if known is None:
            known = self._promised[state] = self._fewest(state)
        return known

    def _fewest(self, state: int) -> int:
        first, last, depth = self._numbers.states[state]
        if not self._all_but:
            spend(20 * (last - first))
            return min(sum(map(self._costs.__getitem__, text[depth:])) for text in self._texts[first:last])
        if self.cost_at_end(state) == 0:
            return 0
        row = zip(self.row(state), self.atoms, strict=True)
        return min(bytes_of(atom) for after, atom in row if self.cost_at_end(after) == 0)
