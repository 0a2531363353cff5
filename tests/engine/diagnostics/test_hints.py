"""Hints: each known pattern from a model that wants it, and no hint from one that is content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from trellm import Generation, Phrase, Vocabulary, generate, models

WORDS = [*map(chr, range(32, 127)), "\n", "  ", " Born", " born", "Sure", "Michael", "pos", "Pos", "itive", "colour"]
WORDS += [" applicable", "not", "_applicable", " Jordan", "color", "good"]
VOCABULARY = Vocabulary([*(word.encode() for word in WORDS), None], eos_ids=[len(WORDS)])
EOS = ""


def written(wants: Mapping[str, str], make: Any, **options: Any) -> Generation:
    """What comes out of a model that, after a text that ends with a key, wants the word there; else anything."""

    def logits(ids: Any) -> list[float]:
        text = "".join(WORDS[token] for token in ids)
        ends = [end for end in wants if text.endswith(end)]
        wanted = wants[max(ends, key=len)] if ends else None
        return [8.0 if word == wanted else 0.0 for word in [*WORDS, EOS]]

    model = models.from_function(logits, VOCABULARY)
    result = make(model).run("A:", diagnostics=True, **options)
    assert isinstance(result, Generation)
    return result


def hints_of(result: Generation) -> dict[str, tuple[int, ...]]:
    assert result.diagnostics is not None
    return {hint.kind: hint.positions for hint in result.diagnostics.summary.hints}


@pytest.mark.parametrize(
    ("wants", "pattern", "expected"),
    [
        ({"A:": "Sure"}, "Michael Jordan", {"preface": (0,)}),
        ({"A:": "  "}, "good", {"whitespace": (0,)}),
        ({"A:": " Born"}, "Born", {"whitespace": (0,)}),
        ({"A:": "good"}, " good", {"whitespace": (0,)}),
        ({"A:": "Michael", "Michael": " born"}, "Michael Born", {"case": (1,)}),
        ({"A:": "Pos"}, "positive|negative", {"case": (0,)}),
        ({"A:": " born"}, "Born", {"case": (0,)}),
        ({"A:": "colour"}, "color", {"spelling": (0,)}),
        ({"A:": "not", "not": " applicable"}, "not_applicable|known", {"spelling": (1,)}),
        ({"A:": "good", "good": EOS}, "good {3}", {"stop": (1,)}),
        ({"A:": "good", "good": EOS}, "(good)?", {}),
        ({"A:": "good", "good": "good"}, "(good)+", {}),
        ({"A:": "x"}, "[a-z]{3}", {}),
    ],
)
def test_each_pattern_is_recognised(wants: dict[str, str], pattern: str, expected: dict[str, Any]) -> None:
    result = written(wants, lambda model: generate.regex(model, pattern), max_tokens=15)
    assert hints_of(result) == expected


@pytest.mark.parametrize(
    ("wants", "pattern", "warning"),
    [
        ({"A:": "Sure"}, "Michael Jordan|good", 'token 0: the model wanted "Sure" 0.9'),
        ({"A:": "Sure"}, "Sure|good", None),
        ({"A:": "Sure"}, "x", None),  # there was no choice
        ({"A:": " Born"}, "Born|good", None),  # white space alone
        ({"A:": "good", "good": EOS}, "good( Born|colour)", "token 1: the model wanted EOS 0.9"),
        ({"A:": "x"}, "[a-c]{3}", 'token 0: the model wanted "x" 0.9'),
    ],
)
def test_warnings(wants: dict[str, str], pattern: str, warning: str | None) -> None:
    result = written(wants, lambda model: generate.regex(model, pattern), max_tokens=15)
    assert (result.warning or "").startswith(warning or "")
    assert (result.warning is None) == (warning is None)
    assert result.warning is None or "\n" not in result.warning
    assert result.warning is None or "probability: " in result.warning
    model = models.from_function(lambda ids: [0.0] * VOCABULARY.size, VOCABULARY)
    assert generate.regex(model, pattern).run("A:").warning is None, "not without diagnostics"


def test_what_the_budget_cut_is_told_from_what_the_constraint_forbids() -> None:
    result = written({"": "a"}, lambda model: generate.regex(model, "a+b"), max_tokens=4)
    assert (result.text, hints_of(result)) == ("aaab", {"budget": (3,)})
    assert "raise max_tokens" in str(result.diagnostics)


def test_a_free_text_that_ends_with_its_budget_has_a_hint() -> None:
    result = written({"": "a"}, generate.text, max_tokens=4)
    assert (result.finish_reason, hints_of(result)) == ("length", {"budget": (3,)})
    assert all(step.leading_allowed for step in result.diagnostics or ())


def test_white_space_in_json_and_how_often() -> None:
    schema = {
        "properties": {"a": {"const": 1}, "b": {"const": 2}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    result = written(
        {"{": "\n", ",": "\n"},
        lambda model: generate.json(model, {"type": "object", **schema}, whitespace="compact"),
    )
    (hint,) = result.diagnostics.summary.hints  # type: ignore[union-attr]
    assert hint.positions == (1, 7)
    assert hint.text.startswith("the model wanted other white space at tokens 1, 7 (")
    assert 'whitespace="any"' in hint.text


def test_the_worst_steps_come_first() -> None:
    result = written({"A:": "Sure", "M": "good"}, lambda model: generate.regex(model, "Michael Jordan"))
    worst = result.diagnostics.summary.worst  # type: ignore[union-attr]
    assert [step.feasible_mass for step in worst] == sorted(step.feasible_mass for step in worst)
    assert worst[0].feasible_mass < 0.5


@pytest.mark.parametrize(
    ("include", "text", "found"),
    [
        ("mic", "dynamic", (0,)),
        ("mic", "mic dynamic", ()),
        ("mic", "dynamic mic", ()),
        ("dyna", "dynamic", (0,)),
        ("dynamic", "dynamic", ()),
        (Phrase("mic", word=True), "dynamic mic", ()),
        (" ", "a b", ()),
        ("字", "漢字", ()),
        ("字", "字kanji", ()),
        ("né", "née", (0,)),
    ],
)  # fmt: skip
def test_phrases_inside_words(include: Any, text: str, found: tuple[int, ...]) -> None:
    """The one that is meant may be another."""
    vocabulary = Vocabulary([text.encode(), *(bytes([value]) for value in range(256)), None], eos_ids=[257])
    model = models.from_function(lambda ids: [9.0 * (len(ids) == 1), *[0.0] * 256, 5.0], vocabulary)
    result = generate.text(model).run([1], include=include, diagnostics=True, heal=False)
    assert result.text == text and result.diagnostics is not None
    hints = [hint for hint in result.diagnostics.summary.hints if hint.kind == "word"]
    assert [hint.positions for hint in hints] == ([found] if found else [])
    assert not hints or f"Phrase({include!r}, word=True)" in hints[0].text


@pytest.mark.parametrize(
    ("pattern", "flags", "is_told"),
    [(r"\d", 0, True), (r"x|\d", 0, True), ("[0-9\u0663]", 0, False), (r"[0-9\u0663]|\\\\d", 0, False)],
)
def test_digits_of_other_scripts(pattern: str, flags: int, is_told: bool) -> None:
    vocabulary = Vocabulary([*(bytes([value]) for value in range(256)), None], eos_ids=[256])
    wanted = "\u0663".encode()
    model = models.from_function(
        lambda ids: [9.0 * (len(ids) < 3 and value == wanted[len(ids) - 1]) for value in range(257)], vocabulary
    )
    result = generate.regex(model, pattern, flags).run([1], diagnostics=True, heal=False)
    assert result.text == "\u0663" and result.diagnostics is not None
    hints = [hint for hint in result.diagnostics.summary.hints if hint.kind == "digit"]
    assert [hint.positions for hint in hints] == ([(1,)] if is_told else [])
    assert not hints or "write [0-9]" in hints[0].text
