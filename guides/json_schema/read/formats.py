r"""The formats that are enforced, each as an ECMA-262 pattern for the whole string.

Where a format's definition is not regular, or needs tables, the pattern is narrower, never wider:

- Leap seconds (23:59:60 in UTC) are accepted in UTC and with offsets of whole or half hours only: 48 of 1,440 offsets.
  For each of them the automaton must remember the time of day.
- hostname from draft 7 on, idn-hostname, email: no label has hyphens in its third and fourth place. This excludes
  A-labels (xn--), whose Punycode is not regular, and labels reserved by RFC 5890, section 2.3.1. Drafts 4 and 6 allow
  both.
- idn-hostname: besides ASCII, characters of common scripts, up to 14 in a label (see `international`).
- media-range: quoted strings have no characters beyond ASCII. RFC 9110 has them as bytes of no encoding (obs-text).
- regex: no back references, and at most one named group. If the string has other conditions too, there are no named
  groups, groups nest at most two deep, and fewer ranges are accepted.

To keep negations from being wider either, such a format has a second pattern, a superset of its strings; `not` refuses
all of these.

Where standards are ambiguous: years begin with 0000, as in RFC 3339, though Python's begin with 0001. The operators
that RFC 6570 reserves (= , ! @ |) belong to no level of its templates, and are refused.

The format `regex` has recursive rules and a pattern. Accepted expressions are valid with and without the flag `u`,
except `\-` outside of classes, which is valid without it only. Ranges beyond ASCII are refused if their order is hard
to check.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from ...automata.charsets import intersect, normalise
from ...syntax import Alternation, Chars, Literal, Node, Ranges, Reference, Repeat, Sequence
from .patterns import parse

SYNTAX = "^$\\.*+?()[]{}|/-"
HEX = "[0-9A-Fa-f]"

_DIGITS = "0123456789abcdef"
_HEX_DIGIT = Chars(((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)))
_NON_ASCII_ESCAPE = rf"\\x[89A-Fa-f]{HEX}|\\u(?:00[89A-Fa-f]{HEX}|0[1-9A-Fa-f]{HEX}{{2}}|[1-9A-Fa-f]{HEX}{{3}})"
_LOW = rf"(?:\\x|\\u00)[01]{HEX}"
_MARKS = (
    *(
        *range(0x80, 0x100, 0x10),
        0x100,
        0x180,
        0x250,
        0x370,
        *range(0x390, 0x460, 0x10),
        0x530,
        0x5E0,
        0x640,
        0x700,
        0x900,
    ),
    *(0xE40, 0x1000, 0x1E80, 0x2010, 0x3000, 0x3080, 0x30D0, 0x8000, 0xA000, 0xC000, 0xD7FF),
)
"""A range between two characters beyond ASCII is accepted only if one of these is between them."""

_HYPHEN = Literal(b"-")
_BACKSLASH = Literal(b"\\")


_WIDE = rf"(?:[\u007f-\uFFFF]|{_NON_ASCII_ESCAPE})"
"""A non-ASCII character at the end of a range; without the flag `u` a character beyond U+FFFF is two code units."""


def ranges() -> Node:
    """Return the syntax of ranges in ascending order that begin with neither hyphen nor caret.

    It is syntax rather than a pattern: alternatives share their beginnings, so that the chart has few items.
    """
    escaped = Alternation(
        (
            *_printable(_OF_SYNTAX),
            Sequence((Literal(b"x"), Alternation((_rising("x", "", 1), _rising("x", "0", 0), _rising("x", "1", 0))))),
            Sequence((Literal(b"u"), Alternation(_rising_by_four()))),
        )
    )
    return Alternation(
        (
            *_printable(_PLAIN_BUT_CARET),
            Sequence((_BACKSLASH, escaped)),
            *(
                Sequence((Chars(((low, high - 1),)), _HYPHEN, Chars(((high, 0xD7FF),))))
                for low, high in pairwise(_MARKS)
            ),
            Sequence((_among(_PLAIN_BUT_CARET, _OF_SYNTAX), parse(f"^-{_WIDE}$"))),
            Sequence(
                (parse(f"^{_LOW}-$"), Alternation((_from(0x20), parse(rf"^(?:(?:\\x|\\u00)[2-7]{HEX}|{_WIDE})$"))))
            ),
            Sequence((parse(r"^\\x20-$"), _from(0x20))),
            parse(rf"^\\x{HEX}{{2}}-\\u(?:0[1-9A-Fa-f]|[1-9A-Fa-f]{HEX}){HEX}{{2}}$"),
        )
    )


def ranges_from_hyphen() -> Node:
    """Return the syntax of ranges that begin with a hyphen."""
    return Sequence((Literal(b"--"), Alternation((_from(ord("-")), parse(f"^{_WIDE}$")))))


def ranges_from_caret() -> Node:
    """Return the syntax of ranges that begin with a caret, not at the start of a class."""
    return Alternation((*_printable(((ord("^"), ord("^")),)), Sequence((Literal(b"^"), parse(f"^-{_WIDE}$")))))


def _of(codes: Iterable[int]) -> Ranges:
    return normalise((code, code) for code in codes)


def _printable(lows: Ranges) -> list[Node]:
    """Return ranges between printable ASCII characters that begin with one of `lows`, without a backslash before it.

    Beginnings with the same escaped ends are grouped.
    """
    found: list[Node] = [
        Sequence((Chars(((code, code),)), _HYPHEN, Chars(_from_on(_PLAIN_OR_HYPHEN, code))))
        for low, high in lows
        for code in range(low, high + 1)
    ]
    last = -1
    for code in sorted(map(ord, SYNTAX)):
        begin = intersect(lows, ((last + 1, code),))
        if begin:
            found.append(Sequence((Chars(begin), Literal(b"-\\"), Chars(_from_on(_OF_SYNTAX, code)))))
        last = code
    return found


def _from_on(ranges: Ranges, first: int) -> Ranges:
    """Return the characters of a set that are not below `first`."""
    return tuple((max(low, first), high) for low, high in ranges if high >= first)


def _from(low: int) -> Alternation:
    """Return the ASCII ends of ranges that begin with an ASCII character, escaped or not, the hyphen included."""
    return _among(_from_on(_PLAIN_OR_HYPHEN, low), _from_on(_OF_SYNTAX, low))


def _among(plain: Ranges, escaped: Ranges) -> Alternation:
    """Return unescaped characters, and others behind a backslash."""
    return Alternation((Chars(plain), Sequence((_BACKSLASH, Chars(escaped)))))


def _rising_by_four() -> tuple[Node, ...]:
    """Return, behind `\\u`, ranges between four-digit numbers that differ in an early digit."""
    # With the flag `u` a surrogate may combine with one before it, so no number begins with d.
    first = _rising("u", "", 3, but="d")
    low = (_rising("u", "0", 2), _rising("u", "00", 1), _rising("u", "000", 0), _rising("u", "001", 0))
    return (first, *low, *(_rising("u", "20", 1), _rising("u", "30", 1), _rising("u", "f", 2), _rising("u", "ff", 1)))


def _rising(kind: str, begin: str, more: int, but: str = "") -> Node:
    """Return, behind `\\x` or `\\u`, ranges of numbers that share `begin` and ascend in the next digit."""
    common, repeated = _digits(begin), (Literal(b"-\\" + kind.encode()), *_digits(begin))
    if begin.isdecimal():
        common, repeated = (Literal(begin.encode()),), (Literal(b"-\\" + f"{kind}{begin}".encode()),)
    ways = [
        Sequence((_LOW_DIGITS[at], *more * (_HEX_DIGIT,), *repeated, _HIGHER_DIGITS[at]))
        for at, digit in enumerate(_DIGITS[:-1])
        if digit not in but
    ]
    return Sequence((*common, Alternation(tuple(ways)), *more * (_HEX_DIGIT,)))


def _digits(text: str) -> tuple[Node, ...]:
    return tuple(Chars(_in_both_cases(digit)) for digit in text)


def _in_both_cases(digits: str) -> Ranges:
    return _of(map(ord, {*digits, *digits.upper()}))


_LOW_DIGITS = [Chars(_in_both_cases(digit)) for digit in _DIGITS]
_HIGHER_DIGITS = [Chars(_in_both_cases(_DIGITS[at + 1 :])) for at in range(15)]
_PLAIN_BUT_CARET: Ranges = ((0x20, 0x2C), (0x2E, 0x5B), (0x5F, 0x7E))
"""Printable ASCII characters that need no backslash in a class, except the hyphen and the caret."""
_PLAIN_OR_HYPHEN: Ranges = ((0x20, 0x5B), (0x5E, 0x7E))
_OF_SYNTAX = _of(map(ord, SYNTAX))


_CODE = rf"\\x{HEX}{{2}}|\\u{HEX}{{4}}|\\c[A-Za-z]"
_CLASSES = r"\\[dDsSwW]"
_ASSERTION = r"[\^$]|\\[bB]"
_ZERO = r"\\0"
_NAMED = r"\(\?<[A-Za-z_$][A-Za-z0-9_$]*>"


def _escaped(characters: str) -> str:
    """Return the pattern of a backslash and one of these characters."""
    return rf"\\[{''.join(chr(92) + char for char in characters)}]" if characters else "[]"


_CONTROL = r"\\[fnrtv]"
_NO_CARET = rf"[^\\\]^-]|{_CONTROL}|{_escaped(SYNTAX)}|\\b|{_CODE}"
_ONE = rf"\^|{_NO_CARET}"
"""A character in a class, except the hyphen."""

_FEW_COUNTS = "[0-9](?:[0-9]?(?:,(?:[1-9][0-9]{2})?)?|,[1-9][0-9])"
_COUNTS = "|".join(
    (
        "[0-9]{1,3},?|[0-9],[1-9][0-9]{1,2}|[1-9][0-9],[1-9][0-9]{2}",
        *(f"{low},[{low}-9]" for low in string.digits),
        *(f"{ten}[0-9],[{int(ten) + 1}-9][0-9]" for ten in string.digits[1:-1]),
        *(f"{ten}{low},{ten}[{low}-9]" for ten in string.digits[1:] for low in string.digits),
    )
)
"""Content of a quantifier's braces: a count, or two in ascending order."""


def _quantifier(counts: str) -> str:
    return rf"(?:(?:[*+?]|\{{(?:{counts})\}})\??)"


def _single(of_class: str, quantifier: str) -> str:
    r"""Return the pattern of a character or class with its quantifier, or of an assertion, which has none.

    `\0` must have a quantifier, so that no digit follows it.
    """
    return rf"(?:(?:{_CHARACTER}|{of_class}){quantifier}?|{_ZERO}{quantifier}|{_ASSERTION})"


_CHARACTER = "|".join((r"[^\\^$.*+?()\[\]{}|]", r"\.", _CONTROL, _escaped(SYNTAX), _CLASSES, _CODE))
"""One character, or a class written as an escape, which may have a quantifier."""


def _class() -> Node:
    """Return the syntax of a class. Only at its start a caret negates."""
    negated = Sequence((Literal(b"^"), Reference(BEHIND_RANGE)))
    return Sequence((Literal(b"["), Alternation((negated, _from_hyphen(), Reference(FIRST_IN_CLASS)))))


def _class_rules() -> dict[str, Node]:
    """Return the rules for the rest of a class: after a range or caret, at the start, and elsewhere.

    A hyphen is literal at the start, at the end and after a range; after a range it may also begin a range.
    """
    one, more, behind = parse(f"^(?:{_NO_CARET}|{_CLASSES})$"), Reference(IN_CLASS), Reference(BEHIND_RANGE)
    first = (Sequence((one, more)), Sequence((ranges(), behind)), Literal(b"-]"), Literal(b"]"))
    caret = (Sequence((ranges_from_caret(), behind)), Sequence((Literal(b"^"), more)))
    return {
        BEHIND_RANGE: Alternation((_from_hyphen(), more)),
        IN_CLASS: Alternation((*caret, Reference(FIRST_IN_CLASS))),
        FIRST_IN_CLASS: Alternation(first),
    }


def _from_hyphen() -> Node:
    """Return the syntax after a hyphen that is literal or begins a range."""
    range_first = Sequence((ranges_from_hyphen(), Reference(BEHIND_RANGE)))
    return Alternation((range_first, Sequence((Literal(b"-"), Reference(IN_CLASS)))))


_FEW_RANGES = "[a-f]-[g-z]|[A-F]-[G-Z]|[0-4]-[5-9]"


def nested(depth: int) -> str:
    """Return the pattern of regular expressions with `depth` levels of groups, and fewer ranges and counts."""
    quantifier = _quantifier(_FEW_COUNTS)
    single = _single(rf"\[\^?-?(?:{_FEW_RANGES}|{_ONE}|{_CLASSES})*-?\]", quantifier)
    branch = f"(?:{single})*"
    for _ in range(depth):
        inside = rf"{branch}(?:\|{branch})*\)"
        branch = rf"(?:{single}|\((?:\?:)?{inside}{quantifier}?|\(\?<?[=!]{inside})*"
    return rf"{branch}(?:\|{branch})*"


WHOLE, BRANCH, INSIDE, NAMED, QUANTIFIER = "whole", "branch", "inside", "named", "quantifier"
BEHIND_RANGE, FIRST_IN_CLASS, IN_CLASS = "behind range", "first in class", "in class"


def rules() -> dict[str, Node]:
    """Return the rules of regular expressions with any nesting of groups.

    WHOLE: the start; BRANCH: an alternative; INSIDE: the rest of a group, with its closing bracket; NAMED: the same,
    containing the one named group; QUANTIFIER: a quantifier
    """
    texts = (_CHARACTER, _ZERO, _ASSERTION, _quantifier(_COUNTS), _NAMED)
    single, zero, assertion, many, name = (parse(f"^(?:{text})$") for text in texts)
    quantified = Alternation((single, _class()))
    branch, inside, quantifier = Reference(BRANCH), Reference(INSIDE), _perhaps(Reference(QUANTIFIER))
    singles = (Sequence((quantified, quantifier)), Sequence((zero, Reference(QUANTIFIER))), assertion)
    kind = _perhaps(Literal(b"?:"))
    looking = (Literal(b"(?"), _perhaps(Literal(b"<")), parse("^[=!]$"))
    groups = (Sequence((Literal(b"("), kind, inside, quantifier)), Sequence((*looking, inside)))
    listed = Sequence((branch, Repeat(Sequence((Literal(b"|"), branch)), 0, None)))
    holder = Alternation(
        (
            Sequence((name, inside, quantifier)),
            Sequence((Literal(b"("), kind, Reference(NAMED), quantifier)),
            Sequence((*looking, Reference(NAMED))),
        )
    )
    with_name = Sequence((Repeat(Sequence((branch, Literal(b"|"))), 0, None), branch, holder, listed))
    return {
        WHOLE: Alternation((listed, with_name)),
        BRANCH: Repeat(Alternation((*singles, *groups)), 0, None),
        INSIDE: Sequence((listed, Literal(b")"))),
        NAMED: Sequence((with_name, Literal(b")"))),
        QUANTIFIER: many,
        **_class_rules(),
    }


def _perhaps(node: Node) -> Node:
    return Repeat(node, 0, 1)


SEPARATOR = "[.\\u3002\\uFF0E\\uFF61]"

_GREEK = "\\u03AC-\\u03AF\\u03B1-\\u03CE"
_KANA = "\\u3041-\\u3096\\u30A1-\\u30FA"
_HAN = "\\u3007\\u4E00-\\u9FA5"
_DEVANAGARI = "\\u0904-\\u0939"
_LETTERS = f"a-z\\u00DF-\\u00F6\\u00F8-\\u00FF{_GREEK}\\u0430-\\u044F{_DEVANAGARI}\\u0F0B{_KANA}{_HAN}\\uAC00-\\uD7A3"
_EASTERN_DIGITS = "\\u06F0-\\u06F9"
_ANY = f"{_LETTERS}0-9{_EASTERN_DIGITS}"

# Middle dot, keraia, and zero-width (non-)joiners after a virama
_IN_CONTEXT = f"(?:l\\u00B7l|\\u0375[{_GREEK}]|[{_DEVANAGARI}]\\u094D[\\u200C\\u200D]?[\\u0915-\\u0939])"
# The Katakana middle dot may stand anywhere in a label with a Japanese character
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
"""A left-to-right label in a name that also has right-to-left ones."""


def international(label: str) -> str:
    """Return the pattern of internationalised host names: ASCII labels and U-labels of common scripts.

    U-labels contain characters that are always valid (PVALID), or valid in their context by RFC 5892, appendix A. They
    are in normal form, and short enough for any A-label. Names with right-to-left letters follow RFC 5893: no label
    begins with a digit or mixes directions. label: pattern of ASCII labels
    """
    forward = f"(?:{label}|{_LEFT_TO_RIGHT})"
    either = f"(?:{_BESIDE}|{_RIGHT_TO_LEFT})"
    mixed = f"(?:(?:{_BESIDE}){SEPARATOR})*(?:{_RIGHT_TO_LEFT})(?:{SEPARATOR}{either})*"
    return f"(?:{forward}(?:{SEPARATOR}{forward})*|{mixed})"


def _any(*parts: str) -> str:
    return "(?:" + "|".join(parts) + ")"


_YEAR = "[0-9]{4}"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = _any(
    f"{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))",
    f"{_LEAP_YEAR}-02-29",
)
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]+)?"
_ZONE = f"(?:[Zz]|[+-]{_CLOCK})"


def _leap_seconds(minute: int, later: int, offset: str) -> str:
    """Return leap seconds in a minute with offsets ending in `offset`; `later`: hours added to eastern offsets."""
    hours = (rf"{hour:02}:{minute}:60{_FRACTION}(?:\+{(hour + later) % 24:02}|-{23 - hour:02})" for hour in range(24))
    return _any(*hours) + offset


_LEAP_SECOND = _any(f"23:59:60{_FRACTION}[Zz]", _leap_seconds(59, 1, ":00"), _leap_seconds(29, 0, ":30"))
_TIME = _any(f"{_CLOCK}:[0-5][0-9]{_FRACTION}{_ZONE}", _LEAP_SECOND)
_PERHAPS_TIME = f"{_CLOCK}:(?:[0-5][0-9]|60){_FRACTION}{_ZONE}"
_CLOCK_PART = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DAY_PART = "(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)"
_DURATION = f"P(?:{_DAY_PART}(?:{_CLOCK_PART})?|{_CLOCK_PART}|[0-9]+W)"

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H16 = f"{HEX}{{1,4}}"
_LAST32 = f"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = _any(
    f"(?:{_H16}:){{6}}{_LAST32}",
    f"::(?:{_H16}:){{5}}{_LAST32}",
    f"(?:{_H16})?::(?:{_H16}:){{4}}{_LAST32}",
    f"(?:(?:{_H16}:){{0,1}}{_H16})?::(?:{_H16}:){{3}}{_LAST32}",
    f"(?:(?:{_H16}:){{0,2}}{_H16})?::(?:{_H16}:){{2}}{_LAST32}",
    f"(?:(?:{_H16}:){{0,3}}{_H16})?::{_H16}:{_LAST32}",
    f"(?:(?:{_H16}:){{0,4}}{_H16})?::{_LAST32}",
    f"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}",
    f"(?:(?:{_H16}:){{0,6}}{_H16})?::",
)


def _label(letter: str) -> str:
    """Return the pattern of a host name label: 1 to 63 characters, no hyphen at an end or in places 3 and 4."""
    inner = f"[{letter}-]"
    end = f"[{letter}]"
    return _any(
        end,
        end + end,
        f"{end}{inner}{end}",
        f"{end}{inner}{end}{inner}{{0,59}}{end}",
        f"{end}{inner}-{end}",
        f"{end}{inner}-{end}{inner}{{0,58}}{end}",
    )


_ASCII = "A-Za-z0-9"
_HOSTNAME = rf"{_label(_ASCII)}(?:\.{_label(_ASCII)})*"
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_QUOTED = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_ADDRESS = rf"\[(?:{_IPV4}|IPv6:{_IPV6})\]"
_OLD_LABEL = f"[{_ASCII}](?:[{_ASCII}-]{{0,61}}[{_ASCII}])?"
_OLD_HOSTNAME = rf"{_OLD_LABEL}(?:\.{_OLD_LABEL})*"
_BEYOND_ASCII = "\\u0080-\\u{10FFFF}"
_WIDE_ATOM = f"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{_BEYOND_ASCII}-]+"
_WIDE_QUOTED = rf'"(?:[ !#-\[\]-~{_BEYOND_ASCII}]|\\[ -~])*"'
_MAIL_LABEL = _label(_ASCII + _BEYOND_ASCII)
_WIDE_DOMAIN = rf"{_MAIL_LABEL}(?:\.{_MAIL_LABEL})*"
_ANY_LABEL = f"[{_ASCII}{_BEYOND_ASCII}-]+"
_LOCAL = rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})"
_WIDE_LOCAL = rf"(?:{_WIDE_ATOM}(?:\.{_WIDE_ATOM})*|{_WIDE_QUOTED})"


def _resource_names(more: str, more_in_query: str = "") -> tuple[str, str]:
    """Return the patterns of absolute and relative references of RFC 3986, with additional characters of RFC 3987."""
    percent = f"%{HEX}{{2}}"
    unreserved = f"A-Za-z0-9._~{more}"
    sub = "!$&'()*+,;="
    char = f"(?:[{unreserved}{sub}:@-]|{percent})"
    segment = f"{char}*"
    first_segment = f"(?:[{unreserved}{sub}@-]|{percent})+"
    user = f"(?:(?:[{unreserved}{sub}:-]|{percent})*@)?"
    future = rf"[vV]{HEX}+\.[A-Za-z0-9._~{sub}:-]+"
    host = rf"(?:\[(?:{_IPV6}|{future})\]|(?:[{unreserved}{sub}-]|{percent})*)"
    authority = f"//{user}{host}(?::[0-9]*)?(?:/{segment})*"
    absolute = f"/(?:{char}+(?:/{segment})*)?"
    query = rf"(?:\?(?:[{unreserved}{sub}:@/?{more_in_query}-]|{percent})*)?"
    fragment = f"(?:#(?:[{unreserved}{sub}:@/?-]|{percent})*)?"
    scheme = "[A-Za-z][A-Za-z0-9+.-]*:"
    rooted = f"{char}+(?:/{segment})*"
    absolute_name = f"{scheme}(?:{authority}|{absolute}|{rooted})?"
    relative = f"(?:{authority}|{absolute}|{first_segment}(?:/{segment})*)?"
    return absolute_name + query + fragment, _any(absolute_name, relative) + query + fragment


_URI, _URI_REFERENCE = _resource_names("")
_UCS = "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF" + "".join(
    f"\\u{{{plane:X}0000}}-\\u{{{plane:X}FFFD}}" for plane in range(1, 14)
)
_IRI, _IRI_REFERENCE = _resource_names(_UCS, "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}")
_VARIABLE_CHAR = f"(?:[A-Za-z0-9_]|%{HEX}{{2}})"
_VARIABLE = rf"{_VARIABLE_CHAR}(?:\.?{_VARIABLE_CHAR})*(?::[1-9][0-9]{{0,3}}|\*)?"
_TEMPLATE_CHAR = rf"(?:[!#$&'()*+,./0-9:;=?@A-Z\[\]_a-z~{_UCS}\uE000-\uF8FF-]|%{HEX}{{2}})"
_TEMPLATE = rf"(?:{_TEMPLATE_CHAR}|\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"
_POINTER = "(?:/(?:[^~/]|~[01])*)*"

_TCHAR = "[A-Za-z0-9!#$%&'*+.^_`|~-]"


def _media_range(more: str) -> str:
    """Return the pattern of `media-range` of RFC 9110, section 12.5.1. more: characters for obs-text of quoted strings

    The asterisk is a character of tokens, so that `*/*` and `text/*` need no alternatives.
    """
    text = rf"[\t !#-\[\]-~{more}]"
    quoted = rf'"(?:{text}|\\[\t -~{more}])*"'
    return rf"{_TCHAR}+/{_TCHAR}+(?:[\t ]*;[\t ]*(?:{_TCHAR}+=(?:{_TCHAR}+|{quoted}))?)*"


OLD_HOSTNAME = "hostname of RFC 1123"
"""The `hostname` of drafts 4 and 6: labels may have hyphens anywhere inside."""


class StringFormat(NamedTuple):
    """A format: the pattern of its strings, and a short example.

    perhaps: pattern of a superset of its strings, where `pattern` is narrower; longest: maximum length in characters
    """

    pattern: str
    example: str
    perhaps: str | None = None
    longest: int | None = None


_FORMATS = {
    "date": StringFormat(_DATE, "2000-01-01"),
    "time": StringFormat(_TIME, "00:00:00Z", perhaps=_PERHAPS_TIME),
    "date-time": StringFormat(f"{_DATE}[Tt]{_TIME}", "2000-01-01T00:00:00Z", perhaps=f"{_DATE}[Tt]{_PERHAPS_TIME}"),
    "duration": StringFormat(_DURATION, "P1D"),
    "email": StringFormat(
        f"{_LOCAL}@(?:{_HOSTNAME}|{_ADDRESS})", "a@b.c", perhaps=f"{_LOCAL}@(?:{_OLD_HOSTNAME}|{_ADDRESS})"
    ),
    "idn-email": StringFormat(
        f"{_WIDE_LOCAL}@(?:{_WIDE_DOMAIN}|{_ADDRESS})",
        "a@b.c",
        perhaps=rf"{_WIDE_LOCAL}@(?:{_ANY_LABEL}(?:[.]{_ANY_LABEL})*|{_ADDRESS})",
    ),
    "hostname": StringFormat(_HOSTNAME, "a", perhaps=_OLD_HOSTNAME, longest=253),
    OLD_HOSTNAME: StringFormat(_OLD_HOSTNAME, "a", longest=253),
    "idn-hostname": StringFormat(
        international(_label(_ASCII)), "a", perhaps=f"{_ANY_LABEL}(?:{SEPARATOR}{_ANY_LABEL})*", longest=253
    ),
    "ipv4": StringFormat(_IPV4, "0.0.0.0"),
    "ipv6": StringFormat(_IPV6, "::"),
    "uri": StringFormat(_URI, "a:"),
    "uri-reference": StringFormat(_URI_REFERENCE, ""),
    "iri": StringFormat(_IRI, "a:"),
    "iri-reference": StringFormat(_IRI_REFERENCE, ""),
    "uri-template": StringFormat(_TEMPLATE, ""),
    "uuid": StringFormat(
        f"{HEX}{{8}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{12}}", "00000000-0000-0000-0000-000000000000"
    ),
    "json-pointer": StringFormat(_POINTER, ""),
    "relative-json-pointer": StringFormat(f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})", "0"),
    "media-range": StringFormat(_media_range(""), "*/*", perhaps=_media_range(_BEYOND_ASCII)),
    "regex": StringFormat(nested(2), "", perhaps="(?:[^*+?)][^]*)?"),
}
"""All formats that are enforced."""

WIDER = {name: f"perhaps {name}" for name, each in _FORMATS.items() if each.perhaps is not None}
"""Name of the superset format, by format whose pattern is narrower than its definition."""

NARROWER = {wide: name for name, wide in WIDER.items()}
"""The inverse of WIDER."""

PATTERNS = {name: f"^(?:{each.pattern})$" for name, each in _FORMATS.items()}
PATTERNS.update((wide, f"^(?:{_FORMATS[name].perhaps})$") for name, wide in WIDER.items())
"""The pattern of each format."""

ENFORCED = frozenset(_FORMATS) - {OLD_HOSTNAME}
"""Formats that schemas can name; others are annotations."""

MAX_LENGTH = {name: each.longest for name, each in _FORMATS.items() if each.longest is not None}
"""Maximum length in characters, of formats that have one."""

EXAMPLES = {name: each.example for name, each in _FORMATS.items()}
EXAMPLES.update((wide, EXAMPLES[name]) for name, wide in WIDER.items())
"""A short string of each format."""
