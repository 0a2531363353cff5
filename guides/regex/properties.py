r"""The sets of `\p{...}`: whatever the `regex` package says, character by character."""

from __future__ import annotations

from functools import lru_cache

from ..automata.charsets import LAST, normalise, text_of_codes
from ..limits import spend
from ..syntax import Ranges


@lru_cache(maxsize=128)
def property_ranges(name: str, negated: bool, ignore_case: bool, ascii_only: bool) -> Ranges | None:
    r"""The characters of `\p{name}` (`\P{name}` if negated) under these flags; None if there is none."""
    import regex

    flags = (regex.I if ignore_case else 0) | (regex.A if ascii_only else 0)
    try:
        run = regex.compile(rf"\{'P' if negated else 'p'}{{{name}}}+", flags)
    except regex.error:
        return None
    spend(1_000_000)  # as long as it takes to look at all characters
    return normalise(
        (begin, end - 1) for begin, end in (match.span() for match in run.finditer(text_of_codes(LAST + 1)))
    )
