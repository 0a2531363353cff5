"""The family of a model, by its chat template and its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trellm import models
from trellm.errors import OptionError
from trellm.serve import tool_calls

from .families import TEMPLATES
from .models import TEXT, Model


@pytest.mark.parametrize("name", sorted(set(tool_calls.NAMES) - {"small", "json"}))
def test_templates_of_families(name: str) -> None:
    """With line breaks as such, and as escapes in a string of the template."""
    tokens = ("<|start_header_id|>",) if name == "llama3" else ()
    for template in (TEMPLATES[name], TEMPLATES[name].replace("\n", "\\n")):
        assert tool_calls.ToolCallFormat.of(Model(tokens, template=template)).name == name


def test_the_small_model() -> None:
    folder = Path(models.__file__).parent / "small"
    form = tool_calls.ToolCallFormat.of(Model(template=(folder / "chat_template.jinja").read_text(encoding="utf-8")))
    assert (form.name, form.thinks) == ("small", False)


def test_by_name_and_by_default() -> None:
    assert tool_calls.ToolCallFormat.of(TEXT).name == "json"
    assert tool_calls.ToolCallFormat.of(TEXT, "glm-4.7").name == "glm-4.7"
    with pytest.raises(OptionError, match="the tool-call format='gml': one of 'deepseek-r1'"):
        tool_calls.ToolCallFormat.of(TEXT, "gml")


def test_whether_it_thinks() -> None:
    thinking: Any = {"default": "x", "tool_use": TEMPLATES["hermes"]}
    assert tool_calls.ToolCallFormat.of(Model(template=thinking)).thinks
    assert tool_calls.ToolCallFormat.of(Model(template="<tool_call>{{ m.content.split('</think>') }}")).thinks
    assert not tool_calls.ToolCallFormat.of(Model(template="<tool_call>")).thinks
    assert tool_calls.ToolCallFormat.of(Model(template=TEMPLATES["harmony"])).thinks
