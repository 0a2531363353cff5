"""Named groups: what the first way through a pattern has read, as the module `regex` and `re` tell it."""

from __future__ import annotations

import re
from random import Random

import pytest
import regex
from trellm import Capture, LimitError, Limits, Vocabulary, generate, models
from trellm.guides import RegexGuide
from trellm.guides.regex import named_groups

from .patterns import ATOMS, drawn

BYTES = Vocabulary.from_bytes()
PLACES = [*ATOMS, "(?<=a)", "(?<!b)", "é"]


def _read(pattern: str, text: str) -> dict[str, list[tuple[int, int]]]:
    groups = named_groups(pattern, 0, "python")
    found: dict[str, list[tuple[int, int]]] = {}
    for name, begin, end in groups.read(text) if groups is not None else ():
        found.setdefault(name, []).append((begin, end))
    return found


@pytest.mark.parametrize("marks", [["", "?"], ["", "?", "+"]])
def test_groups_are_those_of_the_first_way(marks: list[str]) -> None:
    random, compared = Random(5), 0
    while compared < 1000:
        names: list[str] = []
        pattern = drawn(random, 4, PLACES, marks, names)
        if not names:
            continue
        ours, theirs = re.compile(pattern), regex.compile(pattern)
        for _ in range(12):
            text = "".join(random.choice("abcé") for _ in range(random.randrange(6)))
            match, whole = theirs.fullmatch(text), ours.fullmatch(text)
            if (match is None) == (whole is None):  # few patterns are read in two ways by the two modules
                spans = {name: match.spans(name) for name in names if match.spans(name)} if match else {}
                assert _read(pattern, text) == spans, (pattern, text)
                compared += match is not None
            if whole is not None and "+" not in marks:  # `re` 3.11 places groups in possessive repeats wrongly
                last = {name: spans[-1] for name, spans in _read(pattern, text).items()}
                assert last == {name: whole.span(name) for name in names if whole.start(name) >= 0}, (pattern, text)


def test_the_examples_of_the_page() -> None:
    guide = RegexGuide("(?P<key>[a-z]+)(?:=(?P<value>[0-9]+);)*", BYTES)
    assert guide.captures("ab=1;=20;") == {
        "key": (Capture("ab", 0, 2),),
        "value": (Capture("1", 3, 4), Capture("20", 6, 8)),
    }
    assert guide.captures("ab=1;=2") == {} == RegexGuide("[a-z]+", BYTES).captures("ab")


def test_javascripts_names_and_flags() -> None:
    guide = RegexGuide(r"(?<día>\d{2})-(?<rest>\w*?)(?<tail>\w*)", BYTES, dialect="ecma")
    assert guide.captures("07-ab") == {
        "día": (Capture("07", 0, 2),),
        "rest": (Capture("", 3, 3),),
        "tail": (Capture("ab", 3, 5),),
    }
    assert RegexGuide("(?P<x> a b )c", BYTES, re.X | re.I).captures("ABC")["x"] == (Capture("AB", 0, 2),)


def test_nothing_is_tried_again() -> None:
    """Patterns on which a search that gives ways up takes exponential time."""
    limits = Limits(work=10**7)
    assert len(RegexGuide("(?P<x>(?:a|aa)+)(?:b|(?P<y>c))", BYTES, limits=limits).captures("a" * 500 + "c")) == 2
    guide = RegexGuide("(?:(?P<word>[a-z]+) ?)*", BYTES, limits=limits)
    assert [each.text for each in guide.captures("ab cd " * 50)["word"]] == ["ab", "cd"] * 50
    assert guide.captures("a" * 500 + "!") == {}


@pytest.mark.parametrize(
    "pattern", ["(?P<x>a++)b?", "(?:(?>(?P<x>a+)|c)b?)*", "(?>(?P<x>(?>a|c)*))", "(?P<x>(?>a|b?)++)"]
)
def test_atomic_groups_are_read_once(pattern: str) -> None:
    """Where the first way from a place ends is known from where it ends further on."""
    guide, size = RegexGuide(pattern, BYTES, limits=Limits(work=10**7)), 4000
    assert guide.captures("a" * size)["x"][0] == Capture("a" * size, 0, size)


def test_work_grows_with_the_turns_of_an_atomic_group() -> None:
    guide = RegexGuide("(?:(?>(?P<x>a+))b)*", BYTES, limits=Limits(work=2 * 10**6))
    assert len(guide.captures("ab" * 1000)["x"]) == 1000
    with pytest.raises(LimitError, match="2,000,000 steps"):
        guide.captures("ab" * 3000)


def test_the_work_of_reading_a_text_is_bounded() -> None:
    guide = RegexGuide("(?P<x>(?:ab|a|b)*)", BYTES, limits=Limits(work=100_000))
    assert guide.captures("ab" * 10)["x"] == (Capture("ab" * 10, 0, 20),)
    with pytest.raises(LimitError, match="100,000 steps"):
        guide.captures("ab" * 10_000)


def test_results_have_captures() -> None:
    model = models.ziplm("Born 1969-07-20. Born 1972-12-11.")
    result = generate.regex(model, r"(?P<year>\d{4})-(?P<month>\d\d)-\d\d").run("Born ")
    assert result.captures == {
        "year": (Capture(result.text[:4], 0, 4),),
        "month": (Capture(result.text[5:7], 5, 7),),
    }
