"""How things show themselves: short, and saying what they are."""

from __future__ import annotations

import pickle

import pytest
from trellm import Beam, Generation, errors, generate, models

from .machines import letters_model

MODEL = models.ziplm("abc")


def test_models_and_generators_say_what_they_are() -> None:
    assert repr(MODEL) == "<ZipModel of 3 bytes, 97 tokens>"
    assert repr(letters_model()) == "<FunctionModel of <lambda>, 6 tokens>"
    assert repr(generate.text(MODEL)) == f"<Generator of free text with {MODEL!r}>"
    assert "RegexGuide('a+'" in repr(generate.regex(MODEL, "a+"))


def test_a_generation_is_shown_in_one_line() -> None:
    result = generate.format(MODEL, int).run("a", max_tokens=3, logprobs=True)
    assert repr(result) == (
        f"<Generation {result.text!r}, value={result.value}, {len(result.token_ids)} tokens, "
        f"finish_reason='complete', score={result.score:.3f}; with logprobs>"
    )
    plain = generate.choice(MODEL, ["a"]).run("a")
    assert repr(plain) == "<Generation 'a', 1 token, finish_reason='complete'>"
    failed = Generation("b", None, (1,), "complete", error=ValueError("no"))
    assert "error=ValueError('no')" in repr(failed)
    assert len(repr(Generation("b" * 10_000, None, tuple(range(10_000)), "length"))) < 500


def test_notebooks_show_pictures_where_there_are_some() -> None:
    assert str(generate.regex(MODEL, "a+")._repr_svg_()).startswith("<svg")
    assert str(generate.json(MODEL, True)._repr_svg_()).startswith("<svg")
    assert generate.text(MODEL)._repr_svg_() is None
    assert generate.regex(MODEL, "[ab]*a[ab]{9}")._repr_svg_() is None, "too large to be looked at"
    result = generate.regex(MODEL, "a+").run("a", max_tokens=2, diagnostics=True)
    assert "<style>" in str(result._repr_html_())
    assert generate.regex(MODEL, "a+").run("a", max_tokens=2)._repr_html_() is None
    trace = generate.text(MODEL).run("a", max_tokens=2, search=Beam(2), trace=True).trace
    assert trace is not None and trace._repr_svg_() == trace.to_svg()


@pytest.mark.parametrize(
    "error",
    [
        errors.BudgetError("too small", 7),
        errors.PatternError("wrong", "a(b", 1),
        errors.SchemaError("wrong", "#/a"),
        errors.ConversionError("wrong", [None], 0, "a"),
        errors.ModelError("wrong"),
    ],
)
def test_errors_go_from_process_to_process(error: errors.TrellmError) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error) and str(other) == str(error)
    assert {name: value for name, value in vars(other).items()} == vars(error)
