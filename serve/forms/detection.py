"""Which family's form a model was trained for, as far as its chat template and its tokenizer say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from .families import FAMILIES, JSON, Family
from .spelling import token_of


def template_of(tokenizer: Any) -> str:
    """The chat template of a tokenizer, of several the one for tools, with line breaks as such; "" for none."""
    template: Any = getattr(tokenizer, "chat_template", None)
    if isinstance(template, Mapping):
        named = cast("Mapping[str, Any]", template)
        template = named.get("tool_use", named.get("default"))
    return template.replace("\\n", "\n") if isinstance(template, str) else ""


def detected(template: str, tokenizer: Any) -> Family:
    """The first family all of whose signs a template has, and whose tokens the tokenizer has; plain JSON for none."""
    for family in FAMILIES.values():
        has_signs = bool(family.template) and all(sign in template for sign in family.template)
        if has_signs and all(token_of(tokenizer, text) is not None for text in family.tokens):
            return family
    return JSON
