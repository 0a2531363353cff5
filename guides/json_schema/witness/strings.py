"""Members of a set of strings, short ones first: a search through its conditions, read side by side.

Where a short text of one of the patterns or formats meets all conditions, the syntax tells it without a search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import nsmallest
from itertools import chain, islice, pairwise

from ....errors import PatternError
from ...automata.charsets import LAST
from ...kept import kept, kept_growing
from ...limits import spend, spend_growth
from ...regex.tree import ENDLESS, lengths
from ...syntax import Alternation, Chars, Literal, Node, Ranges, Repeat, Sequence
from ..algebra.cases import NO_NAMES, String
from ..algebra.strings import is_plain
from ..automata.conjunction import conjunction
from ..automata.derivatives import Expression, narrow
from ..automata.spelling import has_table
from ..read import formats, patterns
from ..read.patterns import parse

MANY_STAGES = 4_000
"""After how many stages, each counted once for every condition, a search for a shortest member becomes one for any."""
MUCH_WORK = 1_000_000
"""After how many steps of work, too, where there are several conditions."""
MAX_ANSWERS = 10_000
"""How many answers on membership a `PatternLanguage` remembers."""
LONG = 64
"""How many characters more than they must have texts are counted with, where there is no bound."""

Conditions = tuple[tuple[Expression, bool], ...]
States = tuple[int, ...]
Stage = tuple[int, States]
"""How many characters count towards the minimum so far, and the state of every condition."""


def _all_held_bytes(pairs: Conditions) -> int:
    return sum(language.held_bytes for language, _ in pairs)


@kept_growing(1024, 32 << 20)
def pattern_language(pattern: str) -> Expression:
    """The strings in which a pattern is found."""
    return Expression(parse(pattern))


@lru_cache(maxsize=64)
def format_language(name: str) -> Expression:
    """The strings of a format."""
    return Expression(parse(formats.PATTERNS[name]))


@kept_growing(1024, 32 << 20, _all_held_bytes)
def conditions(case: String) -> Conditions:
    """The patterns and formats of a set, each with whether it must match."""
    return (
        *((pattern_language(pattern), True) for pattern in sorted(case.patterns)),
        *((pattern_language(pattern), False) for pattern in sorted(case.not_patterns)),
        *((format_language(name), True) for name in sorted(case.formats)),
        *((format_language(name), False) for name in sorted(case.not_formats)),
    )


def examples(case: String, count: int) -> list[str]:
    """Up to `count` different members, short ones first; fewer only if there are no more."""
    if case.values is not None:
        return list(_shortest_of(case.values, count))
    if case.either:
        return _apart(case, count)
    if count == 1:
        text = _told(case)
        if text is not None:
            return [text]
    path = shortest(replace(case, excluded=NO_NAMES)) if count else None
    if path is None:
        return []
    if count == 1 and path.text not in case.excluded:
        return [path.text]
    return _pumped(path, case, count) or list(islice(_search(case, count), count))


@kept(1024, 8 << 20)
def _apart(case: String, count: int) -> list[str]:
    """Members of a set with groups, each found by a search that leaves those before it out."""
    found: list[str] = []
    while len(found) < count:
        text = conjunction(replace(case, excluded=case.excluded.union(found))).example(_readable)
        if text is None:
            break
        found.append(text)
    return found


def is_empty(case: String) -> bool:
    """Tell whether a set of strings that is no quotation has no member.

    Patterns that may be found anywhere are often all found in a text that has a match of each behind the other.
    """
    if case.values is None and len(case.patterns) > 1:
        texts = [_brief_match(pattern, 0, None) for pattern in sorted(case.patterns)]
        found = [text for text in texts if text is not None]
        if len(found) == len(texts) and is_member(case, "".join(found)):
            return False
    return not examples(case, 1)


@kept(16, 8 << 20)
def _shortest_of(texts: frozenset[str], count: int) -> tuple[str, ...]:
    most = max(nsmallest(count, map(len, texts)), default=0)
    few = [text for text in texts if len(text) <= most]
    return tuple(sorted(few, key=lambda text: (len(text), text))[:count])


def _told(case: String) -> str | None:
    """A short member that one of the patterns or formats tells without a search; None if none does.

    Of a set that only refuses patterns and formats it is the empty text.
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
    """Tell whether a string meets all conditions of a set that is no list of strings and no quotation."""
    if len(text) < case.min_length or (case.max_length is not None and len(text) > case.max_length):
        return False
    if text in case.excluded:
        return False
    only_format = len(case.formats) == 1 and not (case.patterns or case.not_patterns or case.not_formats or case.either)
    if only_format and text == formats.EXAMPLES[next(iter(case.formats))]:
        return True
    if not all(language.matches(text) == wanted for language, wanted in conditions(case)):
        return False
    return all(any(_is_in(one, text) for one in group) for group in case.either)


def _is_in(case: String, text: str) -> bool:
    return is_member(case, text) if case.values is None else text in case.values


@kept(1024, 8 << 20)
def _brief_match(pattern: str, least: int, most: int | None) -> str | None:
    """A short string of some length in which a pattern is found; None if its syntax does not tell."""
    node = parse(pattern)
    if least:
        node = narrow(node, least, ENDLESS if most is None else most)
    return None if node is None else brief(node)


def brief(node: Node) -> str | None:
    """A short text of plain syntax; None if there is no text, or only a table or a rule that is referred to tells."""
    match node:
        case Chars(ranges):
            return _readable(ranges) if ranges else None
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


def _readable(ranges: Ranges) -> str:
    """A character of a set, if possible a letter or digit."""
    firsts = [chr(low) for low, _ in ranges]
    common = [char for char in "a0A" if any(low <= ord(char) <= high for low, high in ranges)]
    return min(common + firsts, key=_strangeness)


class StandingText(str):
    """A string that is one of those in `case`, of which others may be written where lengths are counted."""

    case: String

    @classmethod
    def of(cls, text: str, case: String) -> StandingText:
        """The string, which knows its set."""
        found = cls(text)
        found.case = case
        return found


@dataclass(frozen=True, slots=True)
class ShortPath:
    """A short text; a character that may be repeated in it at will, and where, if one was met.

    is_shortest: whether no text is shorter
    """

    text: str
    place: int = 0
    again: str = ""
    is_shortest: bool = True


def _pumped(path: ShortPath, case: String, count: int) -> list[str]:
    """Members that repeat one character of a shortest one; none if that does not give enough of them."""
    wanted = len(case.excluded) + count
    if not path.again or (case.max_length is not None and len(path.text) + wanted > case.max_length):
        return []
    spend_growth(wanted, wanted * (len(path.text) + wanted // 2))
    texts = (path.text[: path.place] + path.again * more + path.text[path.place :] for more in range(wanted))
    return [text for text in texts if text not in case.excluded][:count]


@kept(4096, 16 << 20)
def shortest(case: String) -> ShortPath | None:
    """A shortest member, by one character of each kind breadth first; exclusions are not looked at."""
    least, most = _lengths(case)
    if least > most:
        return None
    if case.min_length > 1 and (case.max_length is None or case.min_length <= case.max_length):
        # Without its characters being counted there are far fewer places to look at.
        path = shortest(replace(case, min_length=0, max_length=None))
        if path is None:
            return None
        missing = case.min_length - len(path.text)
        if missing > 0 and path.again:
            spend_growth(100 * missing, missing)
            return replace(path, text=path.text[: path.place] + path.again * missing + path.text[path.place :])
        if case.max_length is not None and len(path.text) > case.max_length:
            if path.is_shortest:
                return None
        elif missing <= 0:
            return path
    return _first_reached(case)


def _first_reached(case: String) -> ShortPath | None:
    """A shortest member, its characters counted up to the least length."""
    pairs = conditions(case)
    budget = MUCH_WORK + sum(language.work for language, _ in pairs) if len(pairs) > 1 else 2**62
    start: Stage = (0, tuple(0 for _ in pairs))
    came_from: dict[Stage, tuple[Stage, str] | None] = {start: None}
    level = [start]
    length = 0
    while level and (case.max_length is None or length <= case.max_length):
        length += 1
        following: list[Stage] = []
        for node in level:
            if node[0] >= case.min_length and _accepted(pairs, node[1]):
                return _retraced(pairs, node, came_from)
            for char in _representatives(pairs, node[1], 1):
                after = _step(pairs, node[1], char)
                reached = None if after is None else (min(length, case.min_length), after)
                if reached is not None and reached not in came_from:
                    came_from[reached] = (node, char)
                    following.append(reached)
                if sum(language.work for language, _ in pairs) > budget:
                    return _any(case)
        if len(came_from) * len(pairs) > MANY_STAGES:
            return _any(case)
        level = following
    return None


def _lengths(case: String) -> tuple[int, int]:
    """Bounds on the lengths of members, as far as single patterns and formats tell."""
    nodes = (*map(parse, case.patterns), *(parse(formats.PATTERNS[name]) for name in case.formats))
    told = [lengths(node) for node in nodes if not has_table(node)]
    least = max((case.min_length, *(low for low, _ in told)))
    most = ENDLESS if case.max_length is None else case.max_length
    return least, min((most, *(high for _, high in told)))


def _any(case: String) -> ShortPath | None:
    """A member, by automata of all conditions side by side; exclusions are not looked at."""
    text = conjunction(replace(case, excluded=NO_NAMES)).example(_readable)
    return None if text is None else ShortPath(text, is_shortest=False)


def _retraced(pairs: Conditions, end: Stage, came_from: dict[Stage, tuple[Stage, str] | None]) -> ShortPath:
    chars: list[str] = []
    nodes = [end]
    step = came_from[end]
    while step is not None:
        nodes.append(step[0])
        chars.append(step[1])
        step = came_from[step[0]]
    text = "".join(reversed(chars))
    for place, (_, states) in enumerate(reversed(nodes)):
        for char in _representatives(pairs, states, 1):
            if _step(pairs, states, char) == states:
                return ShortPath(text, place, char)
    return ShortPath(text)


def _accepted(pairs: Conditions, states: States) -> bool:
    return all(
        language.is_accepting(state) == positive for (language, positive), state in zip(pairs, states, strict=True)
    )


def _step(pairs: Conditions, states: States, char: str) -> States | None:
    """The states after a character; None if no member begins like that."""
    after: list[int] = []
    for (language, positive), state in zip(pairs, states, strict=True):
        reached = language.steps[state].get(char)
        if reached is None:
            reached = language.step(state, char)
        if (language.dead if positive else language.universal)[reached]:
            return None
        after.append(reached)
    return tuple(after)


def _search(case: String, count: int) -> Iterator[str]:
    """Members in order of length, breadth first, as many ways to a state as may be needed."""
    pairs = conditions(case)
    wanted = len(case.excluded) + count
    visits: dict[Stage, int] = {}
    level: list[tuple[str, States]] = [("", tuple(0 for _ in pairs))]
    while level:
        following: list[tuple[str, States]] = []
        for text, states in level:
            if len(text) >= case.min_length and text not in case.excluded and _accepted(pairs, states):
                yield text
        for text, states in level:
            length = len(text)
            if case.max_length is not None and length >= case.max_length:
                continue
            for char in _representatives(pairs, states, wanted):
                after = _step(pairs, states, char)
                if after is None:
                    continue
                node = (min(length + 1, case.min_length), after)
                visits[node] = visits.get(node, 0) + 1
                if visits[node] <= wanted:
                    following.append((text + char, after))
        level = following


def few(case: String, most: int) -> list[str] | None:
    """All members of a set that is no list and no quotation; None if they are more than `most`.

    Counts, length by length, how many texts lead to each state; characters that nothing tells apart count together.
    """
    pairs = conditions(case)
    left = most + sum(is_member(replace(case, excluded=NO_NAMES), text) for text in case.excluded)
    level = {tuple(0 for _ in pairs): 1}
    ways: list[dict[States, list[tuple[int, int, States]]]] = []
    for length in range(case.min_length + LONG if case.max_length is None else case.max_length + 1):
        if length >= case.min_length:
            left -= sum(count for states, count in level.items() if _accepted(pairs, states))
            if left < 0:
                return None
        ways.append({states: _ways(pairs, states) for states in level})
        following: dict[States, int] = {}
        for states, count in level.items():
            for low, high, after in ways[-1][states]:
                following[after] = min(following.get(after, 0) + count * (high - low), left + 1)
        if not following:
            break
        level = following
    else:
        if case.max_length is None:
            found = examples(case, most + 1)
            return found if len(found) <= most else None
    endings: dict[States, list[str]] = {}
    for length in range(len(ways) - 1, -1, -1):
        endings = {
            states: [""] * (length >= case.min_length and _accepted(pairs, states))
            + [chr(at) + end for low, high, after in onward if endings.get(after) for at in range(low, high)
               for end in endings[after]]
            for states, onward in ways[length].items()
        }  # fmt: skip
    return sorted(
        (text for texts in endings.values() for text in texts if text not in case.excluded),
        key=lambda text: (len(text), text),
    )


def _ways(pairs: Conditions, states: States) -> list[tuple[int, int, States]]:
    """From and up to which character which states follow; no halves of surrogate pairs."""
    bounds = sorted(_bounds(pairs, states))
    spend((200 + 50 * len(pairs)) * len(bounds))
    found = ((low, high, _step(pairs, states, chr(low))) for low, high in pairwise(bounds) if low != 0xD800)
    return [(low, high, after) for low, high, after in found if after is not None]


def _bounds(pairs: Conditions, states: States) -> frozenset[int]:
    """The bounds at which characters begin that the conditions tell from those before; and behind the last one."""
    bounds = frozenset((0, 0x30, 0x61, 0xD800, 0xE000, LAST + 1))
    return bounds.union(*(language.bounds(state) for (language, _), state in zip(pairs, states, strict=True)))


def _representatives(pairs: Conditions, states: States, count: int) -> tuple[str, ...]:
    """Of every kind of character that the conditions tell apart the first `count`, the readable ones in front.

    Counts the steps that it takes to try them, too.
    """
    bounds = _bounds(pairs, states)
    spend(100 * len(bounds))
    chars = _first_of(bounds, count)
    spend((100 + 50 * len(pairs)) * len(chars))
    return chars


@kept(1024, 4 << 20)
def _first_of(bounds: frozenset[int], count: int) -> tuple[str, ...]:
    """Of the characters between each two bounds the first `count`, the readable ones in front."""
    chars = [
        chr(point)
        for low, high in pairwise(sorted(bounds))
        if low != 0xD800
        for point in range(low, min(high, low + count))
    ]
    return tuple(sorted(chars, key=_strangeness))


def _strangeness(char: str) -> tuple[bool, bool, str]:
    """The order in which characters are taken for examples."""
    return (not char.isalnum() or ord(char) > 126, not " " <= char <= "~", char)


class PatternLanguage:
    """Membership, emptiness and examples of sets of strings; patterns are explored on demand and remembered."""

    def __init__(self) -> None:
        # By the identity of sets, which are held: the names of an object are asked for wherever it is part of another.
        self._answers: dict[tuple[int, str], tuple[String, bool]] = {}

    def check(self, pattern: str) -> str | None:
        """The reason why an ECMA-262 pattern cannot be used, or None."""
        try:
            for part in chain.from_iterable(patterns.conditions(pattern)):
                pattern_language(part)
        except PatternError as error:
            return error.reason
        return None

    def contains(self, case: String, text: str) -> bool:
        """Tell whether a string is in the set."""
        if case.values is not None:
            return text in case.values
        if case.quote is not None:
            within = case.min_length <= len(text) and (case.max_length is None or len(text) <= case.max_length)
            return within and bool(case.quote.places(text))
        if is_plain(case):
            within = case.min_length <= len(text) and (case.max_length is None or len(text) <= case.max_length)
            return within and text not in case.excluded
        known = self._answers.get((id(case), text))
        if known is None:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            known = self._answers[id(case), text] = case, is_member(case, text)
        return known[1]

    def is_empty(self, case: String) -> bool:
        """Tell whether the set has no string."""
        return case.quote is None and is_empty(case)

    def examples(self, case: String, count: int) -> list[str]:
        """Up to `count` different members, short ones first; fewer only if there are no more."""
        if case.quote is not None:
            return case.quote.examples(count)
        return examples(case, count)
