"""The evaluation on the small model: constrained answers are always of the form that was asked for."""

from typing import Any

import pytest
import torch
from trellm import models

from .support import KINDS, ByTransformers, cases, constrained, grammar_of, is_held_out, measure, unconstrained


@pytest.fixture(scope="module")
def model() -> Any:
    return models.small()


@pytest.mark.parametrize("kind", KINDS)
def test_constrained_answers_are_of_the_form(kind: str, model: Any) -> None:
    found = measure(cases(kind, 4), lambda several: constrained(model, several))
    assert found["formed"] == 1.0
    assert 0 <= found["whole"] <= found["fields"] <= 1


def test_dates_are_read_as_well_without_a_constraint(model: Any) -> None:
    several = cases("normal form", 10)
    for answer in (constrained, unconstrained):
        assert measure(several, lambda batch, answer=answer: answer(model, batch))["whole"] >= 0.8


def test_cases_are_the_same_each_time_and_half_are_chats() -> None:
    first, again, other = cases("record", 6), cases("record", 6), cases("record", 6, seed=1)
    assert [case.prompt for case in first] == [case.prompt for case in again]
    assert [case.prompt for case in first] != [case.prompt for case in other]
    assert ["<|im_start|>" in case.prompt for case in first] == [False, True] * 3
    for case in cases("tool call", 20):
        call = case.task.value
        assert all(is_held_out(value) for name, value in call["arguments"].items() if name in ("song", "artist"))


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # llguidance.torch has torch compile
def test_llguidance_answers_too(model: Any) -> None:
    pytest.importorskip("llguidance")
    ask = ByTransformers(model)
    with torch.compiler.set_stance("force_eager"):  # llguidance would compile with a compiler of C++
        for kind in ("record", "quotation", "choice", "normal form", "tool call"):
            several = cases(kind, 1)
            assert all(grammar_of(case.task) for case in several)
            assert measure(several, ask)["formed"] == 1.0
