"""Guides from the constraint strings that hosts pass with requests."""

from __future__ import annotations

import json
from typing import Any

from ..checks import brief, check_any_text, check_choice
from ..errors import OptionError
from ..guides.cfg_guide import CFGGuide
from ..guides.json_guide import JSONGuide
from ..guides.protocol import Guide
from ..guides.regular_guide import ChoiceGuide, RegexGuide
from ..tokenizers_adapter import Vocabulary

KINDS = ("json", "json_object", "regex", "choice", "grammar")


def guide_for(kind: str, text: str, vocabulary: Vocabulary, *, compact: bool = False) -> Guide:
    """Return the guide of a constraint.

    kind: "json" (a schema as JSON text), "json_object" (any object), "regex", "choice" (a JSON list of texts) or
    "grammar" (GBNF if it contains "::=", else Lark); compact: JSON without white space
    Raises the errors of guides, and OptionError for another kind.
    """
    check_choice(kind, "the kind of a constraint", KINDS)
    if kind in ("json", "json_object"):
        schema = text if kind == "json" else '{"type": "object"}'
        return JSONGuide(schema, vocabulary, whitespace="compact" if compact else "flexible")
    if kind == "regex":
        return RegexGuide(text, vocabulary)
    text = check_any_text(text, f"a constraint of the kind {kind}")
    if kind == "choice":
        return ChoiceGuide(_choices_of(text), vocabulary)
    return CFGGuide(text, vocabulary, syntax="gbnf" if "::=" in text else "lark")


def _choices_of(text: str) -> list[str]:
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise OptionError(f"choices are a JSON list of texts, not {brief(text)}")
    return found  # pyright: ignore[reportUnknownVariableType]
