"""Members of a set of strings, short ones first, by a search in the product of its conditions.

If a short match of one of the patterns or formats meets all conditions, no search is needed.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import nsmallest
from itertools import chain

from ....errors import PatternError
from ...cached import cached
from ...limits import spend, spend_growth
from ...regex.tree import ENDLESS, lengths
from ...syntax import Alternation, Chars, Literal, Node, Ranges, Repeat, Sequence
from ..algebra.cases import NO_NAMES, String
from ..algebra.strings import is_plain
from ..automata.conjunction import Conjunction, conditions_of, conjunction
from ..automata.matching import matches, narrow
from ..automata.spelling import has_table
from ..read import formats, patterns
from ..read.patterns import parse

LONG = 1000
"""Minimum length of texts read by an automaton, and of members made by repeating a character."""
MAX_ANSWERS = 10_000
"""Maximum number of memberships, and of sets, that a `PatternLanguage` caches."""


def examples(case: String, count: int) -> list[str]:
    """Return up to `count` different members, short ones first; fewer only if there are no more."""
    if case.values is not None:
        return list(_shortest_of(case.values, count))
    text = _brief_member(case) if count == 1 and not case.either else None
    return list(_found(case, count)) if text is None else [text]


@cached(4096, 16 << 20)
def _found(case: String, count: int) -> tuple[str, ...]:
    """Return `examples` by a search, which also finds excluded texts and drops them."""
    texts = (lengths(node) for node, wanted in conditions_of(case) if wanted and not has_table(node))
    if any(longest < case.min_length for _, longest in texts):
        return ()
    most, found, held = count + len(case.excluded), list[str](), 0
    long = _lengthened(case, most) if case.min_length > LONG else None
    for text in conjunction(replace(case, excluded=NO_NAMES)).texts(most, _first_of) if long is None else long:
        if len(found) == count:
            break
        if text not in case.excluded:
            found.append(text)
            held += len(text)
            spend_growth(0, held + len(text) * (count - len(found)))  # the remaining ones are as long
    return tuple(found)


def _lengthened(case: String, count: int) -> list[str] | None:
    """Return long members, by repeating a character of a shorter text; None if that yields too few."""
    free = _free(case)
    text = next(free.texts(1, _first_of), None)
    if text is None:
        return []
    least = max(case.min_length, len(text))
    if case.max_length is not None and least + count > case.max_length + 1:
        return None
    spend_growth(100 * count * least, count * (least + count // 2))
    found = (free.lengthened(text, least - len(text) + more, _first_of) for more in range(count))
    longer = [each for each in found if each is not None]
    return longer or None


def _free(case: String) -> Conjunction:
    """Return the set without length bounds and exclusions."""
    return conjunction(replace(case, min_length=0, max_length=None, excluded=NO_NAMES))


@cached(16, 8 << 20)
def _shortest_of(texts: frozenset[str], count: int) -> tuple[str, ...]:
    most = max(nsmallest(count, map(len, texts)), default=0)
    few = [text for text in texts if len(text) <= most]
    return tuple(sorted(few, key=lambda text: (len(text), text))[:count])


def _brief_member(case: String) -> str | None:
    """Return a short member found by syntax alone; None if there is none.

    It is the empty text if the set only refuses patterns and formats, and contains it.
    """
    if not (case.patterns or case.formats) and is_member(case, ""):
        return ""
    for pattern in sorted(case.patterns):
        text = _brief_match(pattern, case.min_length, case.max_length)
        if text is not None and is_member(case, text):
            return text
    for name in sorted(case.formats):
        if is_member(case, formats.EXAMPLES[name]):
            return formats.EXAMPLES[name]
    return None


def is_member(case: String, text: str) -> bool:
    """Test whether a string meets all conditions of a set that is no quotation."""
    if case.values is not None:
        return text in case.values
    if len(text) < case.min_length or (case.max_length is not None and len(text) > case.max_length):
        return False
    if text in case.excluded:
        return False
    only_format = len(case.formats) == 1 and not (case.patterns or case.not_patterns or case.not_formats or case.either)
    if only_format and text == formats.EXAMPLES[next(iter(case.formats))]:
        return True
    if len(text) > LONG:
        return _free(case).reads(text)
    if not all(matches(node, text) == wanted for node, wanted in conditions_of(case)):
        return False
    return all(any(is_member(one, text) for one in group) for group in case.either)


@cached(1024, 8 << 20)
def _brief_match(pattern: str, least: int, most: int | None) -> str | None:
    """Return a short string within length bounds in which a pattern matches; None if its syntax does not yield one."""
    node = parse(pattern)
    if least:
        node = narrow(node, least, ENDLESS if most is None else most)
    return None if node is None else brief(node)


def brief(node: Node) -> str | None:
    """Return a short text of plain syntax; None if there is none, or it depends on a table or reference."""
    match node:
        case Chars(ranges):
            return next(iter(_first_of(ranges, 1)), None)
        case Literal(data):
            return data.decode()
        case Sequence(items):
            texts = [brief(item) for item in items]
            found = [text for text in texts if text is not None]
            return "".join(found) if len(found) == len(texts) else None
        case Alternation(items):
            texts = [brief(item) for item in items]
            return min((text for text in texts if text is not None), key=len, default=None)
        case Repeat(item, least, _):
            if least == 0:
                return ""
            text = brief(item)
            return None if text is None else least * text
        case _:
            return None


@cached(4096, 4 << 20)
def _first_of(ranges: Ranges, count: int) -> tuple[str, ...]:
    """Return up to `count` characters of a set, readable ones first."""
    spend(100 * (len(ranges) + count))
    begins = ((begin, high) for low, high in ranges for begin in (low, *b"0Aa") if low <= begin <= high)
    chars = {chr(point) for begin, high in begins for point in range(begin, min(high + 1, begin + count))}
    return tuple(sorted(chars, key=_strangeness)[:count])


def _strangeness(char: str) -> tuple[bool, bool, str]:
    """Sort key of characters in examples."""
    return (not char.isalnum() or ord(char) > 126, not " " <= char <= "~", char)


class StandInText(str):
    """A string that stands for the set `case`; where lengths are counted, another member may be written."""

    case: String

    @classmethod
    def of(cls, text: str, case: String) -> StandInText:
        """Return the string with its set."""
        found = cls(text)
        found.case = case
        return found


class PatternLanguage:
    """Membership, emptiness and examples of sets of strings; memberships and emptiness are cached."""

    def __init__(self) -> None:
        # By identity of the sets, which are held: an object's names are tested again wherever it is part of another
        # object.
        self._answers: dict[tuple[int, str], tuple[String, bool]] = {}
        # One of each sets that are equal: many objects of a schema have the same patterns for their names
        self._equal: dict[String, String] = {}
        self._empty: dict[String, bool] = {}

    def check(self, pattern: str) -> str | None:
        """Return the reason why an ECMA-262 pattern cannot be used, or None."""
        try:
            for part in chain.from_iterable(patterns.conditions(pattern)):
                parse(part)
        except PatternError as error:
            return error.reason
        return None

    def contains(self, case: String, text: str) -> bool:
        """Test whether a string is in the set."""
        if case.values is not None:
            return text in case.values
        if case.quote is not None or is_plain(case):
            within = case.min_length <= len(text) and (case.max_length is None or len(text) <= case.max_length)
            return within and text not in case.excluded and (case.quote is None or bool(case.quote.places(text)))
        known = self._answers.get((id(case), text))
        if known is None:
            if max(len(self._answers), len(self._equal)) >= MAX_ANSWERS:
                self._answers.clear()
                self._equal.clear()
            equal = self._equal.setdefault(case, case)
            known = self._answers.get((id(equal), text)) or (equal, is_member(equal, text))
            self._answers[id(equal), text] = known
            self._answers[id(case), text] = case, known[1]
        return known[1]

    def is_empty(self, case: String) -> bool:
        """Test whether the set is empty. Raises LimitError."""
        if case.quote is not None:
            return False
        known = self._empty.get(case)
        if known is None:
            if len(self._empty) >= MAX_ANSWERS:
                self._empty.clear()
            known = self._empty[case] = self._has_no_member(case)
        return known

    def _has_no_member(self, case: String) -> bool:
        """Test for `is_empty`. Several unanchored patterns often all match in the concatenation of a match of each."""
        if case.values is None and len(case.patterns) > 1:
            texts = [_brief_match(pattern, 0, None) for pattern in sorted(case.patterns)]
            found = [text for text in texts if text is not None]
            if len(found) == len(texts) and is_member(case, "".join(found)):
                return False
        return not examples(case, 1)

    def examples(self, case: String, count: int) -> list[str]:
        """Return up to `count` different members, short ones first; fewer only if there are no more."""
        if case.quote is not None:
            return case.quote.examples(count)
        return examples(case, count)
