"""Strings of a schema as fragments of a graph: everything between and including the quotes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from .....errors import LimitError
from .....kernels.answers import NEVER
from ....automata.charsets import ALL, single
from ....automata.conditions import Together, automaton, without
from ....automata.positions import MAX_SUBSETS
from ....graph.lowering import Lowering
from ....graph.text_tree import text_tree
from ....kept import kept, kept_growing
from ....limits import spend
from ....quoting.quotation import fragment_of_quote
from ....regex.measure import ENDLESS
from ....syntax import NOTHING, Alternation, Chars, Literal, Node, Repeat, Sequence
from ...algebra.cases import String
from ...algebra.strings import is_plain
from ...automata.conjunction import Conjunction, conjunction, listed
from ...automata.counting import Counting
from ...automata.derivatives import narrow, size
from ...automata.spelling import Escapes, all_spelt, fewest_bytes, has_table, spell, spell_chars, spelt
from ...read.formats import PATTERNS
from ...read.patterns import parse
from .conjunction import ConjunctionPlaces
from .counted import CountedStrings
from .exclusion import all_but
from .text_places import TextPlaces

QUOTE = Literal(b'"')
MANY_TEXTS = 24
MANY_CONDITIONS = 4
MAX_JOINT_STATES = 500
"""Up to how many states so many conditions are worked out together; beyond, their states are made when reached."""
REGEX = String(formats=frozenset(("regex",)))
MAX_SIZE: dict[Escapes, int] = {"canonical": 1100, "any": 40}
"""Up to how many nodes of syntax a pattern is spelt; larger ones are determinised first."""


class StringLowering:
    """Adds strings to a graph, spelt as JSON with the escapes allowed.

    conjunctions: those that are known, and where new ones are remembered
    """

    def __init__(
        self, lowering: Lowering, escapes: Escapes, conjunctions: dict[String, Conjunction] | None = None
    ) -> None:
        self._lowering = lowering
        self._graph = lowering.graph
        self._escapes: Escapes = escapes
        self._conjunctions: dict[String, Conjunction] = {} if conjunctions is None else conjunctions

    def entry(self, case: String, target: int) -> int | None:
        """The node from which a string of the set is read, quotes included, and which goes on at `target`.

        None if there is no such string. The graph's counter must be 0.
        """
        if case.values is not None:
            return self.literals(case.values, target)
        if case.quote is not None:
            end = self._graph.literal(b'"', target)
            return self._graph.literal(b'"', self._graph.instantiate(fragment_of_quote(case.quote, True), end))
        if _only_excludes(case):
            return self._all_but(_writable(case.excluded), target)
        found = plan(case, self._escapes)
        if found is None:
            strings = self._conjunction(case)
            if strings.needed(strings.start) >= NEVER:
                return None
            return ConjunctionPlaces(self._lowering, self._escapes, strings, lambda _: target, target).entry()
        if not isinstance(found, Counting):
            return self._lowering.lower(in_quotes(found), target)
        if found.is_empty:
            return None
        return CountedStrings(self._lowering, self._escapes, found, target).entry()

    def shortest(self, case: String) -> int:
        """The bytes of a short string of the set, quotes included; the set is not empty."""
        if case.values is not None:
            return min(map(len, all_spelt(_writable(case.values))), default=NEVER)
        if case.quote is not None:
            return len(spelt(case.quote.examples(1)[0]))
        if _only_excludes(case):
            texts = chain(("",), map(chr, range(0x23, 0xD800)))
            return next(len(spelt(text)) for text in texts if text not in case.excluded)
        if case == REGEX:
            return 2
        found = plan(case, self._escapes)
        if found is None:
            strings = self._conjunction(case)
            return 2 + strings.needed(strings.start)
        if isinstance(found, Counting):
            return 2 + found.bytes_needed(found.automaton.start, 0)
        return 2 + fewest_bytes(found)

    def _conjunction(self, case: String) -> Conjunction:
        """The strings of a set whose conditions are too many to be worked out up front."""
        known = self._conjunctions.get(case)
        if known is None:
            known = self._conjunctions[case] = conjunction(case)
        return known

    def literals(self, texts: Iterable[str], target: int) -> int | None:
        """The entry of finitely many strings, all different."""
        listed = _writable(texts)
        if self._escapes == "canonical" and listed:
            # Sorting texts is quicker than sorting bytes, and leaves little to sort.
            return self._graph.instantiate(text_tree(sorted(all_spelt(sorted(listed)))), target)
        if len(listed) > MANY_TEXTS:
            return TextPlaces(self._lowering, "any", listed, target).entry()
        return self._lowering.lower(Alternation(tuple(self.literal(text) for text in listed)), target)

    def _all_but(self, texts: list[str], target: int) -> int:
        """The entry of all strings that are not among the texts."""
        if self._escapes == "any":
            return TextPlaces(self._lowering, "any", texts, target, all_but=True).entry()
        return all_but(self._graph, texts, target)

    def literal(self, text: str) -> Node:
        """One string with its quotes."""
        if self._escapes == "canonical":
            return Literal(spelt(text))
        return Sequence((QUOTE, *(spell_chars(single(ord(char)), "any") for char in text), QUOTE))


def in_quotes(node: Node) -> Node:
    """Spelt syntax as a string."""
    return Sequence((QUOTE, node, QUOTE))


def _only_excludes(case: String) -> bool:
    return bool(case.excluded) and case == String(excluded=case.excluded)


def _writable(texts: Iterable[str]) -> list[str]:
    """The texts without lone surrogates, which cannot be written."""
    listed = list(texts)
    if "".join(listed).isascii():
        return listed
    return [text for text in listed if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)]


def plan(case: String, escapes: Escapes) -> Node | Counting | None:
    """The strings of a set without their quotes: spelt syntax where that is brief, else an automaton.

    None where the automaton is too large to be worked out before it is read.
    """
    if case.either:
        return None
    node = _brief_syntax(case, escapes)
    if node is not None:
        return node
    return _long_syntax(case, escapes) if _takes_too_much(case) else counted(case)


@kept(4096, 16 << 20)
def _brief_syntax(case: String, escapes: Escapes) -> Node | None:
    """The strings of a set as syntax, spelt, where that is brief."""
    node = _as_syntax(case)
    if node is None or (escapes == "any" and has_table(node)):
        return None
    return spell(node, escapes) if size(node) <= MAX_SIZE[escapes] else None


@kept(4096, 8 << 20)
def _takes_too_much(case: String) -> bool:
    """Tell whether the automaton is too large."""
    try:
        counted(case)
    except LimitError:
        spend(0)  # raises the error again where it is the call that takes too much
        return True
    return False


@kept(64, 32 << 20)
def _long_syntax(case: String, escapes: Escapes) -> Node | None:
    """The strings of a set as syntax, spelt, however large that is."""
    node = _as_syntax(case)
    return None if node is None or (escapes == "any" and has_table(node)) else spell(node, escapes)


def _as_syntax(case: String) -> Node | None:
    """The strings of a set as syntax; None if that takes an automaton."""
    most = ENDLESS if case.max_length is None else case.max_length
    if most < case.min_length:
        return NOTHING
    if case.excluded or case.not_patterns or case.not_formats:
        return None
    if is_plain(case):
        return Repeat(Chars(ALL), case.min_length, case.max_length)
    if len(case.patterns) + len(case.formats) > 1:
        return None
    node = parse(next(iter(case.patterns or (PATTERNS[name] for name in case.formats))))
    if case.min_length or case.max_length is not None:
        return narrow(node, case.min_length, most)
    return node


@kept_growing(256, 32 << 20)
def counted(case: String) -> Counting:
    """A set of strings as an automaton with its lengths. Raises LimitError."""
    if case.min_length or case.max_length is not None:
        return counted(replace(case, min_length=0, max_length=None)).within(case.min_length, case.max_length)
    conditions = sorted(
        (*_named(case.patterns, case.formats, True), *_named(case.not_patterns, case.not_formats, False))
    )
    try:
        machine = automaton(
            _read_together(tuple(pattern for pattern, _ in conditions)),
            [wanted for _, wanted in conditions],
            MAX_SUBSETS if len(conditions) < MANY_CONDITIONS else MAX_JOINT_STATES,
        )
        if case.excluded:
            machine = without(machine, _writable(sorted(case.excluded)))
        return Counting(machine)
    except LimitError as error:
        raise LimitError(f"{error}: {listed(case)}") from None


def _named(patterns: Iterable[str], formats: Iterable[str], wanted: bool) -> Iterator[tuple[str, bool]]:
    """Patterns, those of formats too, each with whether strings must match it."""
    return ((pattern, wanted) for pattern in chain(patterns, (PATTERNS[name] for name in formats)))


@kept_growing(64, 16 << 20)
def _read_together(patterns: tuple[str, ...]) -> Together:
    """Patterns over the same atoms; many sets of strings have the same ones, some of which they must not match."""
    return Together([parse(pattern) for pattern in patterns])
