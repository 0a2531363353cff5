"""The `StringLanguage` that needs nothing but the syntax trees of patterns."""

from __future__ import annotations

from itertools import chain

from ....errors import PatternError
from ..algebra.cases import String
from ..algebra.strings import is_plain
from ..read.patterns import conditions
from . import strings

MAX_ANSWERS = 10_000


class PatternLanguage:
    """Membership, emptiness and examples of sets of strings; patterns are explored on demand and remembered."""

    def __init__(self) -> None:
        # By the identity of sets, which are held: the names of an object are asked for wherever it is part of another.
        self._answers: dict[tuple[int, str], tuple[String, bool]] = {}

    def check(self, pattern: str) -> str | None:
        """Why an ECMA-262 pattern cannot be used, or None."""
        try:
            for part in chain.from_iterable(conditions(pattern)):
                strings.pattern_language(part)
        except PatternError as error:
            return error.reason
        return None

    def contains(self, case: String, text: str) -> bool:
        """Whether a string is in the set."""
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
            known = self._answers[id(case), text] = case, strings.is_member(case, text)
        return known[1]

    def is_empty(self, case: String) -> bool:
        """Whether the set has no string."""
        return case.quote is None and strings.is_empty(case)

    def examples(self, case: String, count: int) -> list[str]:
        """Up to `count` different members, short ones first; fewer only if there are no more."""
        if case.quote is not None:
            return case.quote.examples(count)
        return strings.examples(case, count)
