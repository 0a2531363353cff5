"""Structural tags: free text in which markers begin constrained parts, as XGrammar, vLLM and SGLang write them."""

from __future__ import annotations

import json
from typing import Any, cast

from ...checks import brief, items_of, shown, text_of
from ...engine.models.protocol import Model
from ...errors import OptionError
from ...guides import JSONGuide, TaggedGuide
from ...guides.limits import Limits
from ...guides.protocol import Guide
from ...guides.tagged.composed_guide import ComposedGuide
from .format_place import FormatError
from .formats import Formats

_STRUCTURE = ("begin", "schema", "end")


def structural_guide(asked: Any, model: Model, limits: Limits) -> Guide:
    """The guide of a `format`, or of the older form with `structures` and `triggers`. Raises OptionError, SchemaError.

    A mistake in a format is a FormatError with its place.
    """
    if not isinstance(asked, dict):
        raise OptionError(f"a structural tag is an object, not {shown(asked)}")
    given = cast("dict[str, Any]", asked)
    vocabulary = model.vocabulary
    if given.get("format") is not None:
        for name in given.keys() - {"type", "format"}:
            raise FormatError("a structural tag with a format has nothing else", (name,))
        piece = Formats(model.tokenizer, vocabulary, limits).piece(given["format"], ("format",))
        return ComposedGuide(piece, vocabulary, limits=limits)
    structures, triggers = items_of(given.get("structures")), items_of(given.get("triggers"))
    if not structures or not triggers:
        raise OptionError(
            'a structural tag has a "format", or "structures", a list of {begin, schema, end}, and "triggers"'
        )
    heads = [text_of(trigger, f"trigger {number}") for number, trigger in enumerate(triggers)]
    tags: list[Any] = []
    for number, each in enumerate(structures):
        if not isinstance(each, dict) or sorted(cast("dict[str, Any]", each)) != sorted(_STRUCTURE):
            raise OptionError(f"structure {number} is {brief(each)}, and must have begin, schema and end")
        begin, schema, end = (cast("dict[str, Any]", each)[name] for name in _STRUCTURE)
        if not any(text_of(begin, f"structure {number}, begin").startswith(head) for head in heads if head):
            raise OptionError(f"structure {number} begins with none of the triggers: {brief(begin)}")
        text = schema if isinstance(schema, str) else json.dumps(schema)
        guide = JSONGuide(text, vocabulary, order="schema", spelling="plain", limits=limits)
        tags.append((begin, guide, text_of(end, f"structure {number}, end")))
    return TaggedGuide(tags, vocabulary, limits=limits)
