"""A goal as a nondeterministic machine over bytes: what may come before and after is a loop at either end."""

from __future__ import annotations

from typing import NamedTuple

from ...checks import brief
from ...errors import LanguageError, LimitError
from ...tokenizers_adapter import Vocabulary
from ..graph.utf8 import CONTINUATION
from ..limits import spend
from .specs import AnyOf, Gap, Goal, Ordered, Phrase, Template

Bytes = frozenset[int]

ANY: Bytes = frozenset(range(256))
SPACE: Bytes = frozenset(b"\t\n\v\f\r ")
INSIDE: Bytes = frozenset(CONTINUATION)

ALWAYS, AFTER_BOUNDARY, BEFORE_BOUNDARY = 0, 1, 2
MAX_NODES = 20_000
STEPS_PER_NODE = 300


class Count(NamedTuple):
    """The progress of a node in its gap: nodes of one gap and `inside` can be compared.

    words, chars: so far; exact: whether more or fewer words are no substitute for just as many
    """

    gap: int
    inside: bool
    words: int
    chars: int
    exact: bool


class GoalMachine:
    """The machine of one goal: it is in the node `start` before the text, and the goal is met in `end`.

    edges: for each node, (bytes, target); links: for each node, (target, condition), followed without reading
    resets: for each node in which all earlier ones of a chain are of no more use, the first of those
    counts: of the nodes that count a gap
    A link's condition is ALWAYS, AFTER_BOUNDARY (the character before must not be of a word), or
    BEFORE_BOUNDARY (the character after must not).
    """

    def __init__(self, goal: Goal, vocabulary: Vocabulary) -> None:
        self.goal = goal
        self.edges: list[list[tuple[Bytes, int]]] = []
        self.links: list[list[tuple[int, int]]] = []
        self.resets: dict[int, int] = {}
        self.counts: dict[int, Count] = {}
        self.has_words = False
        self._vocabulary = vocabulary
        self.start = self._loop()
        self.end = self._add(goal, self.start, 0)
        self.edges[self.end].append((ANY, self.end))

    def _node(self) -> int:
        if len(self.edges) >= MAX_NODES:
            raise LimitError(
                f"the goal {brief(self.goal)} takes more than {MAX_NODES:,} states, which is fixed; make its phrases "
                "shorter or its gaps smaller"
            )
        spend(STEPS_PER_NODE)
        self.edges.append([])
        self.links.append([])
        return len(self.edges) - 1

    def _loop(self) -> int:
        node = self._node()
        self.edges[node].append((ANY, node))
        return node

    def _add(self, goal: Goal, entry: int, first: int) -> int:
        """Add a goal that begins in the node `entry`; the node in which it has been met.

        first: where the nodes begin that nothing needs any more once the goal is met
        """
        if isinstance(goal, Phrase):
            return self._phrase(goal, entry)
        if isinstance(goal, AnyOf):
            return self._any(goal, entry)
        parts: tuple[Goal | Gap, ...]
        if isinstance(goal, Ordered):
            parts = tuple(part for each in goal.goals for part in (Gap(), each))[1:]
        else:
            assert isinstance(goal, Template)
            parts = goal.parts
        for part in parts:
            if not isinstance(part, Gap):
                entry = self._add(part, entry, first)
            elif part == Gap():
                loop = self._loop()
                self.links[entry].append((loop, ALWAYS))
                self.resets[loop] = first
                entry = loop
            else:
                entry = self._gap(part, entry)
        end = self._node()
        self.links[entry].append((end, ALWAYS))
        return end

    def _any(self, goal: AnyOf, entry: int) -> int:
        ends = [self._add(part, entry, len(self.edges)) for part in goal.goals]
        end = self._node()
        for each in ends:
            self.links[each].append((end, ALWAYS))
        return end

    def _phrase(self, phrase: Phrase, entry: int) -> int:
        node = self._node()
        self.links[entry].append((node, AFTER_BOUNDARY if phrase.word else ALWAYS))
        for byte in bytes_of(phrase, self._vocabulary):
            after = self._node()
            self.edges[node].append((frozenset([byte]), after))
            node = after
        end = self._node()
        self.links[node].append((end, BEFORE_BOUNDARY if phrase.word else ALWAYS))
        self.has_words |= phrase.word
        return end

    def _gap(self, gap: Gap, entry: int) -> int:
        """A node for each number of words and characters, between words and inside one."""
        end = self._node()
        exact = gap.min_words > 0 and gap.max_words is not None
        most = gap.min_words if gap.max_words is None else gap.max_words
        number = len(self.edges)
        nodes: dict[tuple[bool, int, int], int] = {}
        pending = [(False, 0, 0)]
        while pending:
            place = inside, words, chars = pending.pop()
            if place in nodes:
                continue
            node = nodes[place] = self._node()
            better = -words if gap.max_words is None else words
            self.counts[node] = Count(number, inside, better, chars, exact)
            if words >= gap.min_words:
                self.links[node].append((end, ALWAYS))
            pending += [after for _, after in _moves(gap, most, place)]
        for place, node in nodes.items():
            self.edges[node] += [(read, nodes[after]) for read, after in _moves(gap, most, place)]
        self.links[entry].append((nodes[False, 0, 0], ALWAYS))
        return end


def _moves(gap: Gap, most: int, place: tuple[bool, int, int]) -> list[tuple[Bytes, tuple[bool, int, int]]]:
    """From a place in a gap: bytes, and the place after them."""
    inside, words, chars = place
    found: list[tuple[Bytes, tuple[bool, int, int]]] = []
    for is_space in (True, False):
        more = words + (not is_space and not inside)
        if more > most:
            if gap.max_words is not None:
                continue
            more = most
        read = SPACE if is_space else ANY - SPACE
        if gap.max_chars is None:
            found.append((read, (not is_space, more, 0)))
            continue
        if read & INSIDE:
            found.append((read & INSIDE, (not is_space, more, chars)))
        if chars < gap.max_chars:
            found.append((read - INSIDE, (not is_space, more, chars + 1)))
    return found


def bytes_of(phrase: Phrase, vocabulary: Vocabulary) -> bytes:
    """The bytes of a phrase. Raises LanguageError for token ids that spell nothing."""
    if isinstance(phrase.text, str):
        return phrase.text.encode()
    if isinstance(phrase.text, bytes):
        return phrase.text
    for token in phrase.text:
        if not 0 <= token < vocabulary.size or not vocabulary.tokens[token]:
            raise LanguageError(
                f"{phrase!r}: token {token} spells no text; token ids run from 0 to {vocabulary.size - 1}, and "
                "special tokens are not part of a text"
            )
    return vocabulary.decode(phrase.text)
