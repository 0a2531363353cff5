"""What no pattern may do: take long, break off with an error of somebody else's, or speak of texts that are none."""

import random
import re
from functools import cache

import pytest
from trellm import Limits, Vocabulary
from trellm.errors import LimitError, OptionError, PatternError
from trellm.guides import RegexGuide
from trellm.guides.grammar import Alternation, Literal, Repeat, Sequence

from ..support import Meter, Node, RegularGuide, parse

BYTES = Vocabulary.from_bytes()

LONG = {
    "optional": lambda n: ".?" * n,
    "literal": lambda n: "a" * n,
    "accents": lambda n: "é" * n,
    "escapes": lambda n: r"\." * n,
    "braces": lambda n: "{" * n,
    "blanks": lambda n: "(?x)" + "a " * n,
    "comments": lambda n: "(?x)" + "#a\n" * n + "a",
    "alternatives": lambda n: "|".join(f"w{i}" for i in range(n)),
    "alternatives with repeats": lambda n: "|".join(f"w{i}x+" for i in range(n)),
    "boundaries": lambda n: r".\b." * n,
    "boundaries between letters": lambda n: r"a\b." * n,
    "lookaheads": lambda n: "(?=a)" * n + "a",
    "set": lambda n: "[" + "".join(chr(200 + i % 50_000) for i in range(n)) + "]",
    "distinct sets": lambda n: "".join(f"[a{chr(300 + i)}]" for i in range(n)),
    "looks behind": lambda n: ".?(?<=a)." * n,
}


@pytest.mark.parametrize("kind", LONG)
def test_twice_the_pattern_takes_twice_the_work(kind: str) -> None:
    spent: list[int] = []
    for size in (400, 800):
        with Meter() as meter:
            node = parse(LONG[kind](size))
            spent.append(meter.spent)
            assert node is not None
    assert spent[1] <= 2.3 * spent[0] + 20_000


@pytest.mark.parametrize(
    "pattern",
    [
        "(?:a{1000}){1000}",
        "(?:(?:ab){100}){1001}",
        "(?:ab){1,1000000}",
        "(.*a){200}",
        "(?:" * 40 + "a" + "){0,2}" * 40,
        "a" * 200_000,
    ],
)
def test_large_counts_and_literals_are_no_copies(pattern: str) -> None:
    guide = RegexGuide(pattern, BYTES, limits=Limits(work=20_000_000))
    assert guide.mask(guide.start).any()


@pytest.mark.parametrize(
    "pattern",
    [
        "".join(f"(?i:[\\u{code:04x}-\\U0010ffff])" for code in range(0x100, 0x1000)),
        "(?i)" + "éß" * 100_000,
        "".join(rf"[^\W{chr(300 + code)}]" for code in range(20_000)),
        "(?=" + "|".join(f"[a{chr(300 + code)}]b" for code in range(5000)) + ")...",
        "(?=.*a.{9})(?=.*b.{9})(?=.*c.{9}).*",
    ],
)
def test_work_that_is_too_much_is_refused(pattern: str) -> None:
    with Meter() as meter, pytest.raises(LimitError, match="work="):
        RegexGuide(pattern, BYTES, limits=Limits(work=3_000_000))
    assert meter.spent < 40_000_000, "the work was to be counted before it was done"


@pytest.mark.parametrize("pattern", ["(b?" * 90 + "a?" + "){1,2}" * 90, "(" * 90 + "a?" + "b?){1,2}" * 90])
def test_nested_counts_of_what_may_be_empty(pattern: str) -> None:
    try:
        guide = RegexGuide(pattern, BYTES)
    except LimitError:
        return
    assert guide.is_accepting(guide.start)


@pytest.mark.parametrize(("seed", "count"), [(3, 20), pytest.param(4, 80, marks=pytest.mark.slow)])
def test_counts_of_what_may_be_empty(seed: int, count: int) -> None:
    """Against a matcher that tries everything: `re` takes exponential time for some of these patterns."""
    rng = random.Random(seed)
    texts = ["", *("".join(rng.choices("ab", k=rng.randint(1, 6))) for _ in range(40))]
    for _ in range(count):
        low, high = rng.choice([(2, 2), (1, 3), (2, None), (0, 2)])
        node = Repeat(_nullable(rng, 3), low, high)
        guide = RegularGuide(node, BYTES)
        for text in texts:
            state = guide.automaton.read(guide.start, text.encode())
            matches = len(text) in _ends(node, text.encode(), 0)
            assert (state >= 0 and guide.is_accepting(state)) == matches, (node, text)


def _nullable(rng: random.Random, depth: int) -> Node:
    if depth == 0:
        return Repeat(Literal(rng.choice([b"a", b"b", b"ab"])), 0, rng.choice([1, 2, None]))
    parts = [_nullable(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.3:
        return Alternation((*parts, Literal(b"ab"), Literal(b""), Literal(b"b")))
    low, high = rng.choice([(1, 1), (0, 1), (1, 2), (0, None), (2, None), (2, 3)])
    return Repeat(Sequence(tuple(parts)), low, high)


@cache
def _ends(node: Node, data: bytes, begin: int) -> set[int]:
    """Where a match that begins at a place may end."""
    if isinstance(node, Literal):
        return {begin + len(node.data)} if data.startswith(node.data, begin) else set()
    if isinstance(node, Alternation):
        return {end for item in node.items for end in _ends(item, data, begin)}
    if isinstance(node, Sequence):
        ends = {begin}
        for item in node.items:
            ends = {after for end in ends for after in _ends(item, data, end)}
        return ends
    assert isinstance(node, Repeat)
    ends = {begin}
    for _ in range(node.min):
        ends = {after for end in ends for after in _ends(node.item, data, end)}
    for _ in range(len(data) + 1 if node.max is None else node.max - node.min):
        ends = ends | {after for end in ends for after in _ends(node.item, data, end)}
    return ends


@pytest.mark.parametrize("pattern", ["a\ud800", "[\udfff]", "(?#\ud800)a", "(?x) # \ud800"])
@pytest.mark.parametrize("dialect", ["python", "ecma"])
def test_lone_surrogates(pattern: str, dialect: str) -> None:
    with pytest.raises(PatternError, match="lone surrogate") as caught:
        parse(pattern, dialect=dialect)  # type: ignore[arg-type]
    assert 0xD800 <= ord(pattern[caught.value.offset]) <= 0xDFFF
    str(caught.value).encode()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (None, "must be a text, not None"),
        (b"ab", "decode it first"),
        (re.compile("x"), r"pass its \.pattern, and its flags apart: RegexGuide"),
        (3, "must be a text, not 3"),
        (["a"], r"must be a text, not \['a'\]"),
        (BYTES, "swapped"),
    ],
)
def test_what_is_no_pattern(pattern: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        RegexGuide(pattern, BYTES)  # type: ignore[arg-type]


@pytest.mark.parametrize("flags", ["i", None, True, 1.5, -1, 2**70, 1 << 20, re.L])
def test_what_are_no_flags(flags: object) -> None:
    with pytest.raises(OptionError, match="flags"):
        RegexGuide("a", BYTES, flags=flags)  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", ["js", None, 3, ["python"]])
def test_what_is_no_dialect(dialect: object) -> None:
    with pytest.raises(OptionError, match="dialect"):
        RegexGuide("a", BYTES, dialect=dialect)  # type: ignore[arg-type]


def test_swapped_arguments() -> None:
    with pytest.raises(OptionError, match="swapped"):
        RegexGuide(BYTES, "a")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="needs a Vocabulary"):
        RegexGuide("a", None)  # type: ignore[arg-type]


def test_a_deep_stack_is_no_excuse() -> None:
    def below(depth: int) -> object:
        return below(depth - 1) if depth else RegexGuide("(a|b(c" * 45 + "x" + ")*)*" * 45, BYTES)

    for depth in (300, 500, 600, 700):
        try:
            below(depth)
        except LimitError as error:
            assert "stack" in str(error)
