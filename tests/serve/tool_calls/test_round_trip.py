"""Turns as templates write them are what the guide accepts, and what the reader reads back, however they are split."""

from __future__ import annotations

import json
from random import Random

import pytest
from trellm.serve import tool_calls

from .families import TEMPLATES, TOOLS, Turn, rendered, turns_of
from .models import TEXT, TOKENS, accepts, form_of, read


@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize("name", TEMPLATES)
def test_turns_as_templates_write_them(name: str, is_text: bool) -> None:
    random, model = Random(1), TEXT if is_text else TOKENS[name]
    plan = form_of(name, is_text=is_text, thinks=True).plan(tool_calls.tools_of(TOOLS))
    assert plan.guide is not None
    for turn in turns_of(name, "</tool_call>" if is_text else "</tool-call>"):
        tokens = model.tokenizer.encode(rendered(name, turn), add_special_tokens=False)
        tokens = [token for token in tokens if token not in model.vocabulary.eos_ids]
        assert accepts(plan.guide, tokens), rendered(name, turn)
        for _ in range(3):
            check_message(read(plan, tokens, random), turn)
        check_message(read(plan, tokens), turn)


def check_message(message: tool_calls.ParsedMessage, turn: Turn) -> None:
    """That a message is what a turn was."""
    assert (message.content or "", message.reasoning or "") == (turn.content, turn.reasoning)
    assert [(call.name, json.loads(call.arguments)) for call in message.calls] == list(turn.calls)
    assert all(call.complete for call in message.calls)


def test_every_family_has_a_template() -> None:
    assert set(TEMPLATES) == set(tool_calls.NAMES)
