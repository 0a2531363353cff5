"""Patterns that cannot be used: what is said, and where the caret points."""

import re

import pytest
from trellm.errors import LimitError, OptionError, PatternError
from trellm.guides.grammar import Chars, Repeat

from ..support import Table, parse

PYTHON = [
    (r"a(b\1)", 3, "backreferences"),
    (r"(?P<n>a)(?P=n)", 8, "backreferences"),
    (r"a(?(1)b|c)", 1, "conditionals"),
    ("a*+*", 3, "two quantifiers"),
    ("a(?>b", 1, r"expected \)"),
    (r"a(?R)", 1, "recursion"),
    (r"a(?1)", 1, "recursion"),
    (r"a(?&n)", 1, "recursion"),
    (r"a(?P>n)", 1, "recursion"),
    ("a(b", 1, r"expected \)"),
    ("ab)", 2, "closes no group"),
    ("a[bc", 1, "expected ]"),
    ("a[b\\", 1, "expected ]"),
    ("[]", 0, "expected ]"),
    ("a\\", 1, "after the backslash"),
    ("*a", 0, "nothing to repeat"),
    ("a|+", 2, "nothing to repeat"),
    ("(?:?)", 3, "nothing to repeat"),
    ("a^*", 2, "nothing to repeat"),
    (r"\b+", 2, "nothing to repeat"),
    ("a**", 2, "two quantifiers"),
    ("a{2}{3}", 4, "two quantifiers"),
    ("a{3,2}", 1, "greater than"),
    ("x[z-a]", 2, "ends before it begins"),
    (r"[\w-a]", 1, "a range needs a character"),
    (r"a\q", 1, r"unknown escape \\q"),
    (r"[\8]", 1, "unknown escape"),
    (r"[\477]", 1, "octal"),
    (r"\xg1", 0, "2 hexadecimal digits"),
    (r"\u12", 0, "4 hexadecimal digits"),
    (r"\U00110000", 0, "above"),
    ("(?P<n>a)(?P<n>a)", 12, "there is a group named 'n' already"),
    (r"\N{NO SUCH NAME}", 0, "no character named"),
    (r"\Nx", 0, "character name in braces"),
    (r"a\p{Nope}", 1, "unknown character property"),
    (r"\p(L)", 0, "property name"),
    (r"(?P<1a>b)", 4, "identifier"),
    (r"(?P<n>a)(?P<n>b)", 12, "already"),
    (r"(?Pn)", 0, "group name"),
    (r"(?<n>a)", 0, r"\(\?P<name>"),
    (r"a(?i)b", 1, "at its start"),
    (r"(?q)a", 2, "unknown flag"),
    (r"(?i-a:b)", 4, "cannot be turned off"),
    (r"(?i-i:b)", 0, "contradict"),
    (r"(?L)a", 2, "bytes"),
    (r"(?i", 0, "expected flags"),
    (r"(?", 0, "expected flags"),
    (r"(?#x", 0, "comment"),
    (r"a(?<=b|cd)", 1, "one length"),
    (r"(?<!a*)", 0, "one length"),
]
ECMA = [
    (r"(a)\1", 3, "backreferences"),
    (r"(?<n>a)\k<n>", 7, "backreferences"),
    ("a*+", 1, "possessive quantifiers are not supported: ECMA-262 has none"),
    ("(?>a)", 0, "atomic groups are not supported: ECMA-262 has none"),
    ("(?(1)a)", 0, "conditionals"),
    ("(?P<n>a)", 0, r"\(\?<name>"),
    ("(?i)a", 0, "expected"),
    ("(?#a)", 0, "expected"),
    (r"\Aa", 0, r"the start of the text is \^"),
    (r"a\Z", 1, r"the end of the text is \$"),
    (r"\07", 0, "unknown escape"),
    (r"\a", 0, "unknown escape"),
    (r"\u{110000}", 0, "above"),
    (r"\u00g0", 0, "hexadecimal"),
    (r"\c1", 0, "letter after"),
    (r"\p{L", 0, "property name"),
    (r"\p{Nope=x}", 0, "unknown character property"),
    ("a[", 1, "expected ]"),
    ("a(", 1, r"expected \)"),
    ("(?<=a)*", 6, "nothing to repeat"),
    ("(?ii:a)", 0, "repeat"),
    ("(?x:a)", 0, "unknown flag"),
    ("[b-a]", 1, "ends before it begins"),
    ("(?<1>a)", 3, "identifier"),
]


@pytest.mark.parametrize(
    ("dialect", "pattern", "offset", "reason"),
    [("python", *case) for case in PYTHON] + [("ecma", *case) for case in ECMA],
)
def test_the_caret_is_under_the_construct(dialect: str, pattern: str, offset: int, reason: str) -> None:
    with pytest.raises(PatternError, match=reason) as caught:
        parse(pattern, dialect=dialect)  # type: ignore[arg-type]
    assert caught.value.offset == offset
    assert str(caught.value).splitlines()[-1] == "  " + " " * offset + "^"


@pytest.mark.parametrize(("pattern", "offset", "reason"), PYTHON)
def test_what_is_called_malformed_is_so_to_re(pattern: str, offset: int, reason: str) -> None:
    unsupported = ("backreferences", "conditionals", "unknown character property")
    if reason in unsupported:
        return
    with pytest.raises(re.error):
        re.compile(pattern)


def test_counting_costs_nothing() -> None:
    assert parse(".{1,10000000}") == Repeat(parse("."), 1, 10_000_000)
    assert parse("(?:(?:ab){100}){1001}") == Repeat(Repeat(parse("ab"), 100, 100), 1001, 1001)


def test_counts_have_a_fixed_limit() -> None:
    with pytest.raises(LimitError, match="repeats more than"):
        parse("a{99999999999999999999999}")


def test_nesting_has_a_fixed_limit() -> None:
    with pytest.raises(LimitError) as caught:
        parse("(" * 60_000 + "a" + ")" * 60_000)
    deep = int(re.findall(r"deeper than (\d+) levels", str(caught.value))[0])
    assert isinstance(parse("(" * deep + "[ab]" + ")" * deep), Chars)
    with pytest.raises(LimitError, match="nests groups deeper"):
        parse("(" * (deep + 1) + "a" + ")" * (deep + 1))


def test_looking_around_has_a_limit_on_states() -> None:
    for pattern in [r"(?:(?!a.{20}b)[ab])*", r"(?=.{100000}).*", r"(?:(?!(?:.*a){9})(?=.*b.{9}c).)*"]:
        with pytest.raises(LimitError, match="more than 5,000 states"):
            parse(pattern, max_states=5000)
    counted = r"(?=.*\d)\w{8,40}"
    with pytest.raises(LimitError, match="more than 100 states"):
        parse(counted, max_states=100)
    assert isinstance(parse(counted), Table)


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match="unknown dialect 'perl'"):
        parse("a", dialect="perl")  # type: ignore[arg-type]
    for flags, dialect in [(re.L, "python"), (re.DEBUG, "python"), (re.A | re.U, "python"), (re.X, "ecma")]:
        with pytest.raises(OptionError, match="cannot be used"):
            parse("a", flags=int(flags), dialect=dialect)  # type: ignore[arg-type]
