"""Classes, properties and cases, over every character there is."""

import re

import pytest
import regex
from trellm.guides.grammar import Chars

from ..support import Ranges, negate, parse

CODES = [*range(0xD800), *range(0xE000, 0x110000)]
EVERY = "".join(map(chr, CODES))
CASED = "".join(char for char in EVERY if char.isascii() or {char.lower(), char.upper(), char.casefold()} != {char})


def characters(ranges: Ranges) -> str:
    return "".join(chr(code) for low, high in ranges for code in range(low, high + 1))


def set_of(pattern: str, **options: object) -> str:
    node = parse(pattern, **options)  # type: ignore[arg-type]
    assert isinstance(node, Chars)
    return characters(node.ranges)


@pytest.mark.parametrize("flags", [0, re.A])
@pytest.mark.parametrize("pattern", [r"\d", r"\D", r"\s", r"\S", r"\w", r"\W", ".", r"[^\w\s]", r"[\W\d_]"])
def test_classes_are_those_of_re(pattern: str, flags: int) -> None:
    assert set_of(pattern, flags=int(flags)) == "".join(re.findall(pattern, EVERY, flags))


@pytest.mark.parametrize(
    ("letter", "name"),
    [
        *(("p", name) for name in ("L", "Lu", "^Lu", "Script=Greek", "greek", "scx=Deva", "Alphabetic", "Emoji", "Cn")),
        *((letter, name) for letter in "pP" for name in ("Any", "ASCII")),
        ("P", "^Lu"),
        ("P", "Script=Greek"),
    ],
)
def test_properties_are_those_of_the_regex_package(letter: str, name: str) -> None:
    pattern = rf"\{letter}{{{name}}}"
    found = "".join(regex.findall(pattern, EVERY))
    node = parse(pattern)
    assert (characters(node.ranges) if isinstance(node, Chars) else "") == found


def test_properties_under_flags_and_in_sets() -> None:
    for pattern in [r"(?i)\p{Lu}", r"(?i)[^\p{Ll}]", r"\pN", r"(?a)\p{L}", r"[\P{L}a]"]:
        assert set_of(pattern) == "".join(regex.findall(pattern, EVERY)), pattern


def test_every_cased_character_ignoring_case() -> None:
    for char in CASED:
        expected = "".join(re.findall(re.escape(char), CASED, re.I))
        node = parse(re.escape(char), flags=int(re.I))
        assert (characters(node.ranges) if isinstance(node, Chars) else node.data.decode()) == expected, ascii(char)


def test_characters_above_the_second_plane_have_no_cases() -> None:
    high = EVERY[EVERY.index("\U00020000") :]
    assert high.lower() == high == high.upper() == high.casefold()


@pytest.mark.parametrize(
    "pattern",
    ["[a-z]", "[^k]", "[^a-jl-z]", "[À-Þ]", "[đxĐ]", r"[\x00-\u0fff]", r"[^\W\d]", "[ſt]", "[ΐst]"],
)
@pytest.mark.parametrize("flags", [re.I, re.I | re.A])
def test_sets_ignoring_case(pattern: str, flags: int) -> None:
    assert set_of(pattern, flags=int(flags)) == "".join(re.findall(pattern, EVERY, flags))


def test_sets_ignoring_case_above_the_first_plane() -> None:
    assert (
        set_of("[\U00010400-\U00010402]", flags=re.I.value)
        == "\U00010400\U00010401\U00010402\U00010428\U00010429\U0001042a"
    )
    assert set_of("[\U00010400x]", flags=re.I.value) == "Xx\U00010400\U00010428"


def test_surrogates_are_in_no_set() -> None:
    for pattern in [r"[\ud000-\uf000]", r"[^a]", r"\W", r"(?s:.)"]:
        node = parse(pattern)
        assert isinstance(node, Chars)
        assert all(high < 0xD800 or low > 0xDFFF for low, high in node.ranges)
        assert negate(negate(node.ranges)) == node.ranges
