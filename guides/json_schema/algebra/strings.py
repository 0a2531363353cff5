"""Sets of strings: intersection and complement of `String`, and the protocol for questions about regular languages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from ....errors import SchemaError
from ...limits import spend
from ..read.formats import NARROWER, WIDER
from ..read.patterns import beginning
from .cases import ANY_STRING, NO_NAMES, GroupKind, String

Group = tuple[String, ...]
MAX_MULTIPLIED = 8
"""Maximum number of string cases; each takes an automaton of its own, alternatives in a group share one."""


class StringLanguage(Protocol):
    """Answers about strings under patterns and formats, by any kind of automaton."""

    def contains(self, case: String, text: str) -> bool:
        """Test whether a string is in the set."""
        ...

    def is_empty(self, case: String) -> bool:
        """Test whether the set is empty."""
        ...

    def examples(self, case: String, count: int) -> list[str]:
        """Return up to `count` different members, short ones first; fewer only if there are no more."""
        ...

    def check(self, pattern: str) -> str | None:
        """Return the reason why an ECMA-262 pattern cannot be used, or None."""
        ...


def of_values(values: Iterable[str]) -> String:
    """Return the set of exactly these strings."""
    return String(values=frozenset(values))


def is_plain(case: String) -> bool:
    """Test whether the set has no pattern, format, quotation or groups."""
    return not (case.patterns or case.not_patterns or case.formats or case.not_formats or case.quote or case.either)


def intersect(a: String, b: String, language: StringLanguage) -> String | None:
    """Return the intersection; None if lengths, constants or literal beginnings of patterns show that it is empty."""
    if a is ANY_STRING or a == b:
        return b
    if b is ANY_STRING:
        return a
    if a.values is not None or b.values is not None:
        return _listed(a, b, language) if a.values is not None else _listed(b, a, language)
    if a.quote is not None or b.quote is not None:
        return _quoted(a, b)
    if a.patterns & b.not_patterns or a.not_patterns & b.patterns or _begin_apart(a.patterns, b.patterns):
        return None
    if _refutes(a.not_formats, b.formats) or _refutes(b.not_formats, a.formats):
        return None
    max_length = min((each.max_length for each in (a, b) if each.max_length is not None), default=None)
    min_length = max(a.min_length, b.min_length)
    if max_length is not None and min_length > max_length:
        return None
    case = String(
        min_length,
        max_length,
        a.patterns | b.patterns,
        a.not_patterns | b.not_patterns,
        a.formats | b.formats,
        a.not_formats | b.not_formats,
        None,
        a.excluded | b.excluded,
    )
    return _kind(language).within(case, (*a.either, *b.either)) if a.either or b.either else case


def _listed(few: String, other: String, language: StringLanguage) -> String | None:
    """Return the intersection of listed strings with another set."""
    assert few.values is not None
    if other == String(excluded=other.excluded):
        values = few.values - other.excluded
    else:
        values = frozenset(text for text in few.values if language.contains(other, text))
    return of_values(values) if values else None


def together(cases: Group) -> Group:
    """Return the cases with all listed strings merged; separate alternatives would multiply."""
    listed = [case.values for case in cases if case.values is not None]
    if len(listed) < 2:
        return cases
    return (of_values(listed[0].union(*listed[1:])), *(case for case in cases if case.values is None))


def _kind(language: StringLanguage) -> GroupKind[String]:
    return GroupKind(lambda a, b: intersect(a, b, language), covers, lambda groups: String(either=tuple(groups)))


def product(
    a: Group, b: Group, multiply: Callable[[Group, Group, int | None], Group], language: StringLanguage
) -> Group:
    """Return the intersection of two unions; many alternatives are held in groups.

    multiply: returns all pairs of alternatives; raises ManyError for more than its limit
    """
    if any(case.quote is not None for case in (*a, *b)):
        return multiply(a, b, None)
    return _kind(language).product(a, b, multiply, lambda a, b: grouped(a, b, language), MAX_MULTIPLIED)


def grouped(a: Group, b: Group, language: StringLanguage) -> list[String]:
    """Return the intersection of two unions as few sets: constants apart, other alternatives of each as a group.

    Constants often separate objects in shallow checks. There are no quotations.
    """
    texts: set[str] = set()
    for ours, theirs in ((a, b), (b, a)):
        for case in ours:
            if case.values is not None:
                spend(100 * len(case.values) * len(theirs))
                texts.update(text for text in case.values if any(language.contains(one, text) for one in theirs))
    found = [of_values(texts)] if texts else []
    others = ([case for case in side if case.values is None] for side in (a, b))
    return [*found, *_kind(language).both_groups(*others)]


def covers(wide: String, narrow: String) -> bool:
    """Test whether a syntactic comparison finds `narrow` to lie within `wide`."""
    if wide == narrow or wide.quote is not None or narrow.quote is not None:
        return wide == narrow
    if wide.values is not None or narrow.values is not None:
        return wide.values is not None and narrow.values is not None and narrow.values <= wide.values
    return (
        wide.min_length <= narrow.min_length
        and (wide.max_length is None or (narrow.max_length is not None and narrow.max_length <= wide.max_length))
        and wide.patterns <= narrow.patterns
        and wide.not_patterns <= narrow.not_patterns
        and wide.formats <= narrow.formats
        and wide.not_formats <= narrow.not_formats
        and wide.excluded <= narrow.excluded
        and all(group in narrow.either for group in wide.either)
    )


def _refutes(refused: frozenset[str], formats: frozenset[str]) -> bool:
    return any(name in refused or WIDER.get(name) in refused for name in formats)


def _begin_apart(patterns: frozenset[str], others: frozenset[str]) -> bool:
    """Test whether literal beginnings of patterns of both exclude each other."""
    if not patterns or not others or patterns == others:
        return False
    begin, other = (max(map(beginning, each), key=len) for each in (patterns, others))
    return not begin.startswith(other) and not other.startswith(begin)


def _quoted(a: String, b: String) -> String | None:
    """Return quotations of a kind within bounds on their length; None if there are none."""
    quote = a.quote or b.quote
    assert quote is not None
    for case in (a, b):
        if case != String(case.min_length, case.max_length, quote=case.quote) or case.quote not in (None, quote):
            raise SchemaError(
                "a string with x-quote can have minLength, maxLength, enum and const besides, but no pattern, format, "
                "negation or other x-quote: what is quoted is enforced by the document's own automaton",
                "#",
            )
    most = min((case.max_length for case in (a, b) if case.max_length is not None), default=None)
    quote = quote.within(max(a.min_length, b.min_length), most)
    return None if quote is None else String(quote=quote)


def refutation(case: String) -> list[String]:
    """Return the strings surely outside the set, as alternatives: for formats, outside their supersets."""
    return [surely(part) for part in complement(case)]


def surely(case: String) -> String:
    """Return the set with formats narrowed to the strings that are surely of them."""
    return _renamed(case, NARROWER, WIDER)


def perhaps(case: String) -> String:
    """Return the set with formats widened to all strings that may be of them."""
    return _renamed(case, WIDER, NARROWER)


def _renamed(case: String, formats: Mapping[str, str], not_formats: Mapping[str, str]) -> String:
    if not (case.formats or case.not_formats or case.either):
        return case
    return replace(
        case,
        formats=frozenset(formats.get(name, name) for name in case.formats),
        not_formats=frozenset(not_formats.get(name, name) for name in case.not_formats),
        either=tuple(tuple(_renamed(one, formats, not_formats) for one in group) for group in case.either),
    )


def complement(case: String) -> list[String]:
    """Return the strings that are not in the set, as alternatives."""
    if case.quote is not None:
        raise SchemaError("x-quote cannot be negated (by not, if, oneOf or dependencies)", "#")
    if case.values is not None:
        return [String(excluded=case.values)]
    parts: list[String] = []
    if case.min_length:
        parts.append(String(max_length=case.min_length - 1))
    if case.max_length is not None:
        parts.append(String(min_length=case.max_length + 1))
    parts.extend(String(not_patterns=frozenset((pattern,))) for pattern in sorted(case.patterns))
    parts.extend(String(patterns=frozenset((pattern,))) for pattern in sorted(case.not_patterns))
    parts.extend(String(not_formats=frozenset((name,))) for name in sorted(case.formats))
    parts.extend(String(formats=frozenset((name,))) for name in sorted(case.not_formats))
    if case.excluded != NO_NAMES:
        parts.append(of_values(case.excluded))
    for group in case.either:
        outside = tuple(tuple(complement(one)) for one in group)
        if all(outside):
            parts.append(String(either=outside))
    return parts


def difference(a: String, b: String, language: StringLanguage) -> list[String]:
    """Return the difference of `a` and `b`, as disjoint alternatives."""
    parts: list[String] = []
    inside: String | None = a
    for outside in complement(b):
        if inside is None:
            break
        part = intersect(inside, outside, language)
        if part is not None:
            parts.append(part)
        inverse = complement(outside)
        inside = intersect(inside, inverse[0], language) if inverse else None
    return parts


def exclude(case: String, names: Iterable[str], language: StringLanguage) -> String | None:
    """Return the set without these strings."""
    left = frozenset(names)
    if case.values is not None:
        values = case.values - left
        return of_values(values) if values else None
    gone = frozenset(name for name in left if language.contains(case, name)) if not is_plain(case) else left
    if gone <= case.excluded:
        return case
    if case == String(excluded=case.excluded):
        return String(excluded=case.excluded | gone)
    return replace(case, excluded=case.excluded | gone)
