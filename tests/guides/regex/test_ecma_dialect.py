"""The ECMA dialect: hand tables, and the `RegExp` of node with the flag `u` where there is one."""

import json
import shutil
import subprocess
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..support import parse
from .naive import matches
from .patterns import looking_patterns, near

SCRIPT = """
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map(([pattern, flags, texts]) => {
  let whole;
  try { whole = new RegExp("^(?:" + pattern + ")$", flags.replace("m", "")); new RegExp(pattern, flags); }
  catch { return null; }
  const anywhere = new RegExp(pattern, flags);
  return texts.map(text => [whole.test(text), anywhere.test(text)]);
})));
"""
Case = tuple[str, str, list[str]]


@cache
def node_path() -> str:
    path = shutil.which("node")
    if path is None:
        pytest.skip("node is not installed")
    return path


def ask_node(cases: list[Case]) -> list[list[list[bool]] | None]:
    """For each (pattern, flags, texts): for each text (matches as a whole, matches somewhere); None if refused."""
    done = subprocess.run(
        [node_path(), "-e", SCRIPT], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def flag_bits(flags: str) -> int:
    return sum({"i": 2, "m": 8, "s": 16, "u": 0}[flag] for flag in flags)


def check(case: Case, answers: list[list[bool]]) -> None:
    pattern, flags, texts = case
    whole = parse(pattern, dialect="ecma", flags=flag_bits(flags))
    anywhere = parse(pattern, dialect="ecma", flags=flag_bits(flags), search=True)
    for text, (is_whole, is_anywhere) in zip(texts, answers, strict=True):
        assert matches(anywhere, text) == is_anywhere, (pattern, flags, text)
        if "m" not in flags:
            assert matches(whole, text) == is_whole, (pattern, flags, text)


TABLE = [
    (r"^\d{3}-\w+$", ["123-a_Z", "٣٣٣-a", "123-é", "x123-a"], [True, False, False, False]),
    (r"^a.c$", ["abc", "a\nc", "a\rc", "a\u2028c", "a\u2029c", "a\u0085c"], [True, *[False] * 4, True]),
    (r"^a$", ["a", "a\n"], [True, False]),
    (r"^\s$", ["\u00a0", "\ufeff", "\u2003", "\u2028", "\x1c", "\u0085", "\u180e"], [*[True] * 4, *[False] * 3]),
    (r"^\uD83D\uDE00[\uD83D\uDE00-\uD83D\uDE02]$", ["😀😁", "😀😃"], [True, False]),
    (r"^\u{1F600}\x41\u0042\cJ\0$", ["😀AB\n\0"], [True]),
    (r"^[]a|^[^]$", ["b", "a", "\n", ""], [True, True, True, False]),
    (r"^\p{L}+\P{Lu}\p{Script=Greek}$", ["Éaσ", "ÉAσ", "éaa"], [True, False, False]),
    (r"^(?<year>\d{4})(?<!0000)$", ["2024", "0000"], [True, False]),
    (r"(?<=a+b|c)d", ["aabd", "cd", "bd"], [True, True, False]),
    (r"\bfoo\b", ["a foo!", "foo", "éfooé", "afoo"], [True, True, True, False]),
    (r"\B", ["", "a", "ab"], [True, False, True]),
    (r"^(?!.*\.\.)[a-z.]+(?<!\.)$", ["a.b", "a..b", "a."], [True, False, False]),
    (r"foo|^bar$", ["xfoox", "bar", "bars"], [True, True, False]),
    (r"^[\w.-]+@[a-z\d-]+$", ["a.b-c@x-1", "a b@c"], [True, False]),
]


@pytest.mark.parametrize(("pattern", "texts", "expected"), TABLE)
def test_search_by_hand(pattern: str, texts: list[str], expected: list[bool]) -> None:
    node = parse(pattern, dialect="ecma", search=True)
    assert [matches(node, text) for text in texts] == expected


def test_the_hand_table_is_true_in_node() -> None:
    answers = ask_node([(pattern, "u", texts) for pattern, texts, _ in TABLE])
    assert [answer and [one[1] for one in answer] for answer in answers] == [row[2] for row in TABLE]


def test_constructs_against_node() -> None:
    texts = ["", "a", "b", "A", "ab\n", "a\nb", "k", "\u212a", "ſ", "S", "é", "É", "ß", "ẞ", "1", " ", "-a", "İ", "i"]
    patterns = [
        *["[a-k]", "[^k]", r"\w", r"\W", r"[^\w]", r"[\W_]", r"\bs\b", r"\Bs", ".", "[^]", "[]", "é", "ß", "ſ", "K"],
        *["^b", "a$", "^a$|b", r"a(?=\n)", r"(?<!a)\n", r"(?<=^|-)a", "a{1}", "a{0,2}?b*", "(?:a|b)+", "[-a]", "[a-]"],
        *[r"\p{Lu}", r"\P{Lu}", r"[^\P{Ll}]", r"[^\p{Lu}]", r"(?<n>a)", r"\/", r"[\b]", r"\t|\v|\f|\r|\n", "İ", "I"],
    ]
    cases = [(pattern, flags, texts) for pattern in patterns for flags in ("u", "iu", "su", "mu", "imsu")]
    for case, answers in zip(cases, ask_node(cases), strict=True):
        assert answers is not None, case
        check(case, answers)


@st.composite
def looking_cases(draw: st.DrawFn) -> Case:
    pattern, example = draw(looking_patterns("ab\n", behind=False))
    texts = draw(st.lists(near(example, "ab\ré"), min_size=1, max_size=6))
    return pattern, draw(st.sampled_from(["u", "su", "mu"])), texts


@settings(max_examples=3, derandomize=True, deadline=None)
@given(st.lists(looking_cases(), min_size=30, max_size=30))
def test_patterns_that_look_around_against_node(cases: list[Case]) -> None:
    # Looking behind over texts of several lengths is allowed here, unlike in Python's dialect.
    for case, answers in zip(cases, ask_node(cases), strict=True):
        if answers is not None:
            check(case, answers)


def test_ignoring_case_against_node() -> None:
    # Characters whose simple folding Unicode has changed since the first versions of node in use are left out.
    newer = "\u0390\u03b0\u1fd3\u1fe3\ufb05\ufb06"
    codes = [code for code in range(0x80, 0x2D2E) if chr(code).isalpha() and chr(code) not in newer]
    codes = [code for code in codes if chr(code).upper() != chr(code).lower()]
    texts = [chr(code) for code in codes]
    sample = texts[::40]
    for char, answers in zip(sample, ask_node([(char, "iu", texts) for char in sample]), strict=True):
        assert answers is not None
        node = parse(char, dialect="ecma", flags=2)
        assert [matches(node, text) for text in texts] == [whole for whole, _ in answers], ascii(char)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"a\-b\_c\"", 'a-b_c"', "ab"),
        ("{a}]", "{a}]", "a"),
        ("a{,3}", "a{,3}", "aa"),
        (r"[\w-.]+", "a-.", ","),
        (r"(?=a)*b", "b", "a"),
        ("(?i:a)b(?-i:c)", "Abc", "ABc"),
    ],
)
def test_lenience(pattern: str, matching: str, other: str) -> None:
    node = parse(pattern, dialect="ecma")
    assert matches(node, matching)
    assert not matches(node, other)
