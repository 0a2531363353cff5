"""Goals are checked when they are made, and print as they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from trellm import AllOf, AnyOf, Gap, OptionError, Ordered, Phrase, Template

from .support import goals_of


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Phrase(""), "empty phrase"),
        (lambda: Phrase([]), "empty phrase"),
        (lambda: Phrase("\ud800"), "lone surrogate at character 0"),
        (lambda: Phrase(7), "a text or token ids, not int"),  # type: ignore[arg-type]
        (lambda: Phrase("a", word=1), "word=1"),  # type: ignore[arg-type]
        (lambda: AnyOf(), r"AnyOf\(\) is empty"),
        (lambda: AnyOf("a", ""), "empty phrase"),
        (lambda: Ordered(), r"Ordered\(\) is empty"),
        (lambda: AllOf(), r"AllOf\(\) is empty"),
        (lambda: Ordered("a", AllOf("b", "c")), r"AllOf\('b', 'c'\) cannot be inside Ordered"),
        (lambda: Template(..., ...), r"Template\(..., ...\) has no literal part"),
        (lambda: Template(), "no literal part"),
        (lambda: Template("a", ...), "ends with a gap"),
        (lambda: AnyOf(...), "gaps belong between the parts of a Template"),  # type: ignore[arg-type]
        (lambda: Gap(min_words=-1), "min_words=-1"),
        (lambda: Gap(max_words=1.5), "max_words=1.5"),  # type: ignore[arg-type]
        (lambda: Gap(min_words=2, max_words=1), "max_words is less than min_words"),
        (lambda: Gap(min_words=3, max_chars=4), "max_chars is too small"),
        (lambda: goals_of([["scream", "screams"]]), r"one of several is AnyOf\(...\)"),
        (lambda: goals_of([5, 6]), r"Phrase\(\[5, 6\]\)"),
        (lambda: goals_of([None]), r"None \(NoneType\) is no goal"),
    ],
)
def test_what_cannot_be_asked_for(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


def test_strings_within_goals_may_be_words() -> None:
    sie, wir = Phrase("Sie", word=True), Phrase("wir", word=True)
    assert AnyOf("Sie", "wir", word=True) == AnyOf(sie, wir)
    assert Ordered("Sie", Phrase("wir"), word=True) == Ordered(sie, "wir")
    assert AllOf("Sie", "wir", word=True) == AllOf(sie, wir)
    assert Template("Sie", ..., Gap(1), "wir", word=True) == Template(sie, ..., Gap(1), wir)
    for made in (AnyOf, Ordered, AllOf, Template):
        with pytest.raises(OptionError, match=f"{made.__name__}: word=1: True or False"):
            made("a", word=1)  # type: ignore[arg-type]


def test_goals_are_taken_apart() -> None:
    assert goals_of("a") == goals_of(["a", AllOf("a", Phrase("a"))]) == (Phrase("a"),)
    assert goals_of([AllOf("a", AllOf("b", Phrase([1, 2]))), "c"]) == (
        Phrase("a"), Phrase("b"), Phrase([1, 2]), Phrase("c"))  # fmt: skip


@pytest.mark.parametrize(
    "shown",
    [
        "Phrase('a')",
        "Phrase('a', word=True)",
        "Phrase([1, 2])",
        "Phrase(b'a')",
        "AnyOf('a', Phrase('b', word=True), Ordered('c', 'd'))",
        "Template('the', ..., 'School of', Gap(min_words=1, max_words=3), 'in')",
        "AllOf('a', Phrase([3]))",
        "Gap(max_words=0, max_chars=4)",
    ],
)
def test_goals_print_as_they_are_written(shown: str) -> None:
    assert repr(eval(shown)) == shown
