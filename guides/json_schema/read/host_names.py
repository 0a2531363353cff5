"""The format `idn-hostname`: labels of ASCII and U-labels of common scripts, as a pattern.

A U-label has characters that are valid by themselves (PVALID), or within what RFC 5892, appendix A, asks to stand
around them; it is in normal form, and short enough for its A-label whatever is in it. A name with letters from right to
left is written as the rule of RFC 5893 has it: no label of it begins with a digit or goes in both directions.
"""

from __future__ import annotations

SEPARATOR = "[.\\u3002\\uFF0E\\uFF61]"

_GREEK = "\\u03AC-\\u03AF\\u03B1-\\u03CE"
_KANA = "\\u3041-\\u3096\\u30A1-\\u30FA"
_HAN = "\\u3007\\u4E00-\\u9FA5"
_DEVANAGARI = "\\u0904-\\u0939"
_LETTERS = f"a-z\\u00DF-\\u00F6\\u00F8-\\u00FF{_GREEK}\\u0430-\\u044F{_DEVANAGARI}\\u0F0B{_KANA}{_HAN}\\uAC00-\\uD7A3"
_EASTERN_DIGITS = "\\u06F0-\\u06F9"
_ANY = f"{_LETTERS}0-9{_EASTERN_DIGITS}"

# Middle dot, keraia, and what joins consonants behind a virama, or keeps them apart
_IN_CONTEXT = f"(?:l\\u00B7l|\\u0375[{_GREEK}]|[{_DEVANAGARI}]\\u094D[\\u200C\\u200D]?[\\u0915-\\u0939])"
# The middle dot of Katakana stands anywhere in a label that has a character of Japanese
_DOTTED = f"[{_ANY}\\u30FB]{{0,6}}[{_KANA}{_HAN}][{_ANY}\\u30FB]{{0,7}}"
_LEFT_TO_RIGHT = (
    f"[{_ANY}]{{1,3}}|[{_ANY}]{{2}}[{_ANY}-][{_ANY}]{{1,11}}|[{_ANY}]{{0,5}}{_IN_CONTEXT}[{_ANY}]{{0,5}}|{_DOTTED}"
)

_HEBREW = "\\u05D0-\\u05EA"
_JOINING_BOTH = "\\u0626\\u0628\\u062A-\\u062E\\u0633-\\u063F\\u0641-\\u0647\\u0649\\u064A"
_JOINING = f"{_JOINING_BOTH}\\u0622-\\u0625\\u0627\\u0629\\u062F-\\u0632\\u0648"
_RIGHT = f"{_HEBREW}\\u0620-\\u063F\\u0641-\\u064A\\u06FD\\u06FE"
_RIGHT_TO_LEFT = "|".join(
    (
        f"[{_RIGHT}][{_RIGHT}0-9{_EASTERN_DIGITS}]{{0,13}}",
        f"[{_RIGHT}][{_RIGHT}\\u0660-\\u0669]{{0,13}}",
        f"[{_RIGHT}]{{0,5}}[{_HEBREW}][\\u05F3\\u05F4][{_RIGHT}]{{0,5}}",
        f"[{_RIGHT}]{{0,5}}[{_JOINING_BOTH}]\\u200C[{_JOINING}][{_RIGHT}]{{0,5}}",
    )
)
_BESIDE = f"[A-Za-z][A-Za-z0-9]{{0,62}}|[{_LETTERS}][{_LETTERS}0-9]{{0,13}}"
"""A label from left to right in a name that has others, too."""


def international(label: str) -> str:
    """The pattern of internationalised names; label: that of the labels of ASCII."""
    forward = f"(?:{label}|{_LEFT_TO_RIGHT})"
    either = f"(?:{_BESIDE}|{_RIGHT_TO_LEFT})"
    mixed = f"(?:(?:{_BESIDE}){SEPARATOR})*(?:{_RIGHT_TO_LEFT})(?:{SEPARATOR}{either})*"
    return f"(?:{forward}(?:{SEPARATOR}{forward})*|{mixed})"
