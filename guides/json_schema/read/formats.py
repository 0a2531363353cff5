"""The formats that are enforced, each as an ECMA-262 pattern for the whole string.

Where a format's definition is not regular, or needs tables, the pattern is narrower, never wider:

- a leap second, 23:59:60 in UTC, is written in UTC or behind an offset of whole or half hours: of 1,440 offsets that
  leaves 48, for which an automaton remembers the time of day
- hostname from draft 7 on, idn-hostname, email: no label with hyphens in its third and fourth place. A-labels
  (xn--) are among them, and whether their Punycode decodes is not regular; the others are the reserved ones that
  RFC 5890, section 2.3.1, forbids to take for ordinary labels. Drafts 4 and 6 know of neither, and allow both.
- idn-hostname: beside ASCII, characters of common scripts, up to 14 to a label (see `international`)
- regex: what ECMA-262 and Python read alike; no names, no back references, nothing looks behind; under further
  conditions on the string groups nest at most two deep, and fewer ranges are written (see regex_format.py)

So that its negation is not wider either, such a format has a second pattern, that of the strings that may be of it;
`not` refuses all of these.

Where a standard has two readings: years begin with 0000, as in RFC 3339, though Python's begin with 0001; the operators
that RFC 6570 reserves (= , ! @ |) are of no level of its templates, and are refused.
"""

from __future__ import annotations

from typing import NamedTuple

from .regex_format import nested

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
    """The pattern of internationalised names: labels of ASCII and U-labels of common scripts.

    A U-label has characters that are valid by themselves (PVALID), or within what RFC 5892, appendix A, asks to stand
    around them; it is in normal form, and short enough for its A-label whatever is in it. A name with letters from
    right to left is written as the rule of RFC 5893 has it: no label of it begins with a digit or goes both ways.
    label: the pattern of the labels of ASCII
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
    """Leap seconds in a minute whose offsets end in `offset`; those to the east are of the hour, or one hour later."""
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
_HEX = "[0-9A-Fa-f]"
_H16 = f"{_HEX}{{1,4}}"
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
    """A host name's label: at most 63 letters, digits and hyphens; no hyphen at an end or in places 3 and 4."""
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
    """Absolute and relative references of RFC 3986, with the further characters of RFC 3987."""
    percent = f"%{_HEX}{{2}}"
    unreserved = f"A-Za-z0-9._~{more}"
    sub = "!$&'()*+,;="
    char = f"(?:[{unreserved}{sub}:@-]|{percent})"
    segment = f"{char}*"
    first_segment = f"(?:[{unreserved}{sub}@-]|{percent})+"
    user = f"(?:(?:[{unreserved}{sub}:-]|{percent})*@)?"
    future = rf"[vV]{_HEX}+\.[A-Za-z0-9._~{sub}:-]+"
    host = rf"(?:\[(?:{_IPV6}|{future})\]|(?:[{unreserved}{sub}-]|{percent})*)"
    authority = f"//{user}{host}(?::[0-9]*)?(?:/{segment})*"
    absolute = f"/(?:{char}+(?:/{segment})*)?"
    query = rf"(?:\?(?:[{unreserved}{sub}:@/?{more_in_query}-]|{percent})*)?"
    fragment = f"(?:#(?:[{unreserved}{sub}:@/?-]|{percent})*)?"
    scheme = "[A-Za-z][A-Za-z0-9+.-]*:"
    rooted = f"{char}+(?:/{segment})*"
    whole = f"{scheme}(?:{authority}|{absolute}|{rooted})?"
    relative = f"(?:{authority}|{absolute}|{first_segment}(?:/{segment})*)?"
    return whole + query + fragment, _any(whole, relative) + query + fragment


_URI, _URI_REFERENCE = _resource_names("")
_UCS = "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF" + "".join(
    f"\\u{{{plane:X}0000}}-\\u{{{plane:X}FFFD}}" for plane in range(1, 14)
)
_IRI, _IRI_REFERENCE = _resource_names(_UCS, "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}")
_VARIABLE_CHAR = f"(?:[A-Za-z0-9_]|%{_HEX}{{2}})"
_VARIABLE = rf"{_VARIABLE_CHAR}(?:\.?{_VARIABLE_CHAR})*(?::[1-9][0-9]{{0,3}}|\*)?"
_TEMPLATE_CHAR = rf"(?:[!#$&'()*+,./0-9:;=?@A-Z\[\]_a-z~{_UCS}\uE000-\uF8FF-]|%{_HEX}{{2}})"
_TEMPLATE = rf"(?:{_TEMPLATE_CHAR}|\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"
_POINTER = "(?:/(?:[^~/]|~[01])*)*"

OLD_HOSTNAME = "hostname of RFC 1123"
"""The `hostname` of drafts 4 and 6: labels may have hyphens anywhere inside."""


class StringFormat(NamedTuple):
    """A format: the pattern of its strings, and a short string of it.

    perhaps: the pattern of all strings that may be of it, where `pattern` leaves some out; longest: in characters
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
        f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}", "00000000-0000-0000-0000-000000000000"
    ),
    "json-pointer": StringFormat(_POINTER, ""),
    "relative-json-pointer": StringFormat(f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})", "0"),
    "regex": StringFormat(nested(2), "", perhaps="(?:[^*+?)][^]*)?"),
}
"""All formats that are enforced."""

WIDER = {name: f"perhaps {name}" for name, each in _FORMATS.items() if each.perhaps is not None}
"""By format of which not all strings are told, the name of the format of all that may be of it."""

NARROWER = {wide: name for name, wide in WIDER.items()}
"""The other way round."""

PATTERNS = {name: f"^(?:{each.pattern})$" for name, each in _FORMATS.items()}
PATTERNS.update((wide, f"^(?:{_FORMATS[name].perhaps})$") for name, wide in WIDER.items())
"""The pattern of each format."""

ENFORCED = frozenset(_FORMATS) - {OLD_HOSTNAME}
"""The formats that schemas name; others are annotations."""

MAX_LENGTH = {name: each.longest for name, each in _FORMATS.items() if each.longest is not None}
"""Formats that also bound the length, in characters."""

EXAMPLES = {name: each.example for name, each in _FORMATS.items()}
EXAMPLES.update((wide, EXAMPLES[name]) for name, wide in WIDER.items())
"""A short member of each format."""
