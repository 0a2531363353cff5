r"""Character sets of `\p{...}`, and case folding.

Sets come from the `regex` package, character by character; case folding follows `re` and ECMA-262.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

from ..automata.charsets import LAST, normalise, single, text_of_codes
from ..limits import spend
from ..syntax import Ranges


@lru_cache(maxsize=128)
def property_ranges(name: str, negated: bool, ignore_case: bool, ascii_only: bool) -> Ranges | None:
    r"""Return the characters of `\p{name}` (`\P{name}` if negated) under these flags; None if it is unknown."""
    import regex

    flags = (regex.I if ignore_case else 0) | (regex.A if ascii_only else 0)
    try:
        run = regex.compile(rf"\{'P' if negated else 'p'}{{{name}}}+", flags)
    except regex.error:
        return None
    spend(1_000_000)  # about the time to examine all characters
    return normalise(
        (begin, end - 1) for begin, end in (match.span() for match in run.finditer(text_of_codes(LAST + 1)))
    )


Folding = Literal["unicode", "ascii", "ecma"]


class Orbits(NamedTuple):
    """The characters with other cases: `codes`, sorted, and `same`, from each code to its case-fold class."""

    codes: list[int]
    same: dict[int, tuple[int, ...]]


def ignoring_case(ranges: Ranges, folding: Folding) -> Ranges:
    """Return the characters that equal one of `ranges` under case folding."""
    codes, same = orbits(folding)
    extra: list[tuple[int, int]] = []
    for low, high in ranges:
        for code in codes[bisect_left(codes, low) : bisect_right(codes, high)]:
            extra += [(other, other) for other in same[code]]
    spend(30 * len(extra))
    return normalise([*ranges, *extra]) if extra else ranges


def cases_of(code: int, folding: Folding) -> Ranges:
    """Return the characters that equal `code` under case folding, itself included."""
    same = orbits(folding).same.get(code)
    return normalise((other, other) for other in same) if same else single(code)


@lru_cache(maxsize=4)
def orbits(folding: Folding) -> Orbits:
    """Return all characters with other cases. Unicode tables are those of the running Python."""
    key: Callable[[int], str] = {"unicode": _python_key, "ascii": _ascii_key, "ecma": _simple_fold}[folding]
    classes: dict[str, list[int]] = {}
    for code in range(128) if folding == "ascii" else _cased_characters():
        classes.setdefault(key(code), []).append(code)
    same = {code: tuple(group) for group in classes.values() if len(group) > 1 for code in group}
    return Orbits(sorted(same), same)


def _cased_characters() -> list[int]:
    """Return every character that some case mapping changes; all of them are in the first two planes."""
    found: list[int] = []
    for block in range(0, 0x20000, 64):
        text = "".join(map(chr, range(block, block + 64)))
        if text.lower() == text == text.upper() == text.casefold():
            continue
        found += [ord(char) for char in text if not (char.lower() == char == char.upper() == char.casefold())]
    return found


def _python_key(code: int) -> str:
    """Return the key of `re`'s case folding: the upper case of the simple lower case.

    `re` compares simple lower cases, and has a table of lower-case letters that share their upper case. Only U+0130 has
    a longer lower case, whose first character is its simple one. (For characters above U+FFFF in sets, `re` omits
    this, so that an upper-case one matches nothing; that bug is not reproduced.)
    """
    return chr(code).lower()[0].upper()


def _ascii_key(code: int) -> str:
    return chr(code).lower()


def _simple_fold(code: int) -> str:
    """Return Unicode's simple case folding (statuses C and S of CaseFolding.txt); Python has only the full one."""
    char = chr(code)
    for folded in (char.casefold(), char.lower()):
        if len(folded) == 1:
            return folded
    return char
