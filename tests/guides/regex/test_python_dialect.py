"""Python's dialect: exactly the texts that `re.fullmatch` accepts."""

import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm.errors import PatternError
from trellm.guides.grammar import Chars, Literal, Repeat, Sequence

from ..support import Table, parse
from .naive import matches
from .patterns import looking_patterns, near, plain_patterns

ALPHABET = "đĐabxyKkſsiIıİé😀σςΣ \t\n_-.]7٣{A\0"


def compiled(pattern: str, flags: int = 0) -> re.Pattern[str] | None:
    """The pattern as `re` has it, if `re` accepts it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return re.compile(pattern, flags)
        except re.error:
            return None


def agree(pattern: str, texts: list[str], flags: int = 0) -> None:
    expected = re.compile(pattern, flags)
    node = parse(pattern, flags=flags)
    for text in texts:
        assert matches(node, text) == bool(expected.fullmatch(text)), (pattern, flags, text)


@settings(max_examples=70, derandomize=True, deadline=None)
@given(st.data())
def test_patterns_without_conditions(data: st.DataObject) -> None:
    pattern, example = data.draw(plain_patterns())
    flags = data.draw(st.sampled_from([0, re.I, re.S, re.A, re.I | re.A, re.X, re.M | re.I]))
    if compiled(pattern, flags) is not None:
        agree(pattern, data.draw(st.lists(near(example, ALPHABET), min_size=1, max_size=8)), int(flags))


@pytest.mark.parametrize("letters", ["ab\n", "a -"])
@settings(max_examples=70, derandomize=True, deadline=None)
@given(data=st.data())
def test_patterns_that_look_around(letters: str, data: st.DataObject) -> None:
    pattern, example = data.draw(looking_patterns(letters))
    flags = data.draw(st.sampled_from([0, re.S, re.M]))
    if compiled(pattern, flags) is not None:
        agree(pattern, data.draw(st.lists(near(example, letters + "é"), min_size=1, max_size=8)), int(flags))


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"(?i:(ab))(ab)(ab)", ["ABabab", "ABABab", "ababAB"]),  # the same groups under other flags, and the same
        (r"(a|b)(?=(a|b))(a|b){2}", ["aba", "ab", "abab"]),
        (r"((a)(a))((a)(a))+", ["aaaa", "aaa", "aaaaaa"]),
        (r"(\b)a(\b)", ["a", "ab"]),
        (r"(?x: (a b) ) (a b)", ["ab a b", "abab", "a b a b"]),
        (r"\[\n\\+\.\{2}\é*", ["[\n\\\\.{2}é", "[\n\\.{2}", "[\n\\..é", "[\n.{2}"]),  # runs with escapes
        (r"(?x)a\ b\#+ # c", ["a b#", "ab#", "a b##", "a b"]),
        (r"(?i)\-k\n?", ["-K", "-\u212a\n", "k"]),
    ],
)
def test_groups_and_escapes_that_are_read_together(pattern: str, texts: list[str]) -> None:
    agree(pattern, texts)


PIECES = [
    *"ab()[]{}?*+|^$.-,:=!<>P#ix123 \n",
    "\\",
    "(?",
    "(?:",
    "(?#",
    "(?i",
    "[^",
    r"\d",
    r"\b",
    "(?P<n>",
    "(?<=",
    "(?!",
    "{1,",
    "\\\n",
]


@settings(max_examples=600, derandomize=True, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=9).map("".join), st.sampled_from([0, re.X, re.I]))
def test_accepts_what_re_accepts(pattern: str, flags: int) -> None:
    expected = compiled(pattern, flags)
    try:
        node = parse(pattern, flags=int(flags))
    except PatternError as error:
        assert expected is None or "not supported" in error.reason
        return
    assert expected is not None or r"\P" in pattern
    for text in ["", "a", "b", "ab", "ba", "1", "a-b", "\n", "a\n", " ", "#", "{1,", "A"] if expected else []:
        assert matches(node, text) == bool(expected and expected.fullmatch(text)), text


@settings(max_examples=60, derandomize=True, deadline=None)
@given(data=st.data())
def test_search_is_a_match_anywhere(data: st.DataObject) -> None:
    pattern, example = data.draw(looking_patterns("ab\n"))
    expected = compiled(pattern)
    if expected is not None:
        node = parse(pattern, search=True)
        for text in data.draw(st.lists(near(example, "ab\né"), min_size=1, max_size=8)):
            assert matches(node, text) == bool(expected.search(text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"a$\n?", ["a", "a\n", "a\n\n"]),
        (r"(?m)a$\n^b", ["a\nb", "ab"]),
        (r"\b\w+\b(?: \b\w+\b)*", ["a", "a b", "a  b", " a", "é_1 2"]),
        (r"(?=.*[A-Z])(?=.*\d).{4,6}", ["Aa1a", "aaaa1", "A1", "A1aaaaa", "٣Éab", "a1É-é"]),
        (r"^(?!con$|prn)[a-z]{1,9}(?<!x)$", ["con", "cons", "prnt", "axx", "axa", "co"]),
        (r"(?:(?!--).)*-", ["a-b-", "a--", "-", "--", "a---"]),
        (r"(?<![a-z])\d+(?![.\d])|x", ["12", "1", "x", ""]),
        (r"\B", [""]),
        (r"[\w.]+(?<=\w)@(?=\w).+", ["a.b@c", "a.@c", "a@.c", "é@é"]),
        (r"(?s:.)(?-s:.)", ["\nx", "x\n"]),
        (r"(?x) a b # comment [ )" + "\n c [ ] \\ d", ["abc  d", "abcd", "ab"]),
        (r"(?i)straße|ﬁ|k", ["STRASSE", "STRAßE", "STRAẞE", "ﬁ", "\u212a", "fi"]),
        (r"(?ia)[k-s]|é", ["K", "\u212a", "ſ", "É", "S"]),
        (r"(?#a \) comment)a" + "(?x:b # c \\\n d\n)", ["ab", "abd"]),
        (r"a{,2}b{2}c{1,}d{x}", ["bbcd{x}", "aabbcccd{x}", "aaabbcd{x}"]),
        (r"(?P<year>\d{4})-(?P<month>\d\d)", ["2024-01", "٢٠٢٤-01", "2024-1"]),
        (r"[]\-a^]+|[^]]", ["]-a^", "b", "]"]),
        (r"\07\x7f\N{GREEK SMALL LETTER ALPHA}[\b\7]", ["\x07\x7fα\x08", "\x07\x7fα\x07"]),
        (r"|a||b", ["", "a", "b", "ab"]),
        (r"(?:a|b|[^\W\d])*?", ["abc", "ab1", "é"]),
        (r"(?=a)*(?!b){2}a", ["a", "b"]),
        (r"a\ud800|b", ["b", "a"]),
    ],
)
def test_constructs(pattern: str, texts: list[str]) -> None:
    agree(pattern, texts)


def test_flags_as_an_argument() -> None:
    agree("a.b$ # end", ["A\nb", "A\nb\n", "a\nB"], int(re.I | re.S | re.X))
    agree("(?u)é", ["É", "é"], int(re.I | re.U))


def test_sets_that_come_again() -> None:
    """A set is read once, but once for each combination of flags, and only if it is the same to its end."""
    agree("[a](?i:[a])[a](?a:[\\w])[\\w][ab][a]", ["aAaaéba", "aAAaéba", "AAaaéba", "aAaéaba", "aaaaaaa", "aaaaaab"])
    sets = "".join(f"[{letter}x]" for letter in "abcdefghijklmnopqrstuvw") * 2
    agree(sets, ["abcdefghijklmnopqrstuvw" * 2, "x" * 46, "x" * 45 + "y"])


@pytest.mark.parametrize("pattern", [r"\bab\b", r"^a$", r"\A(?:a|b)\Z", r"(?!b)[ab]+", r"(?m)a$\n^b", r"a(?=b)b"])
def test_conditions_that_their_neighbours_decide_leave_plain_syntax(pattern: str) -> None:
    def tables(node: object) -> int:
        if isinstance(node, Table):
            return 1
        return sum(tables(item) for item in node.items) if isinstance(node, Sequence) else 0

    assert tables(parse(pattern)) == 0


def test_only_the_window_that_a_condition_sees_becomes_a_table() -> None:
    node = parse(r"[0-9]{1,500}(?!foo)[a-z]{3}x*")
    assert isinstance(node, Sequence)
    digits, window, rest = node.items
    assert digits == Repeat(Chars(((48, 57),)), 1, 500)
    assert isinstance(window, Table)
    assert rest == Repeat(Literal(b"x"), 0, None)


def test_literals_are_joined_and_characters_become_one_set() -> None:
    assert parse("a(bc)(?:d|e|[f])gh") == Sequence((Literal(b"abc"), Chars(((100, 102),)), Literal(b"gh")))


def test_a_language_without_texts_is_the_empty_alternation() -> None:
    assert parse("a^b") == parse("(?!)") == parse("[^\\s\\S]") == parse(r"(?=ab)a(?!b).*")


def test_tables_are_trimmed_and_minimal() -> None:
    node = parse(r"(?:(?!aa)[ab])*")
    assert isinstance(node, Table)
    assert len(node.transitions) == 2
    assert node.accepting.all()
