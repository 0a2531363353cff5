"""Models and guides as callers pass them: told from what is often passed in their place."""

from __future__ import annotations

from typing import Any

from ..checks import shown
from ..errors import OptionError
from ..guides.protocol import Guide
from ..tokenizers_adapter import Vocabulary

_OF_MODELS = (
    "vocabulary",
    "tokenizer",
    "context",
    "sparse_head_limit",
    "block_bytes",
    "state_bytes",
    "window",
    "make_memory",
    "forward",
    "logits",
)
_OF_GUIDES = ("vocabulary", "start", "mask", "advance", "is_accepting", "distance")


def is_model(value: Any) -> bool:
    """True if it has what the decode loop asks of a model."""
    return not isinstance(value, type) and all(hasattr(value, name) for name in _OF_MODELS)


def check_model(model: Any, call: str, *others: Any) -> None:
    """Raise OptionError for what is no model. call: what got it; others: its other arguments: one may be the model."""
    if is_model(model):
        return
    if any(is_model(other) for other in others):
        raise OptionError(f"{call}: the model comes first, before {shown(model)}; swap the two")
    raise OptionError(f"{call}: the first argument must be a model of trellm, not {shown(model)}; {_to_model(model)}")


def check_guide(guide: object) -> None:
    """Raise OptionError for what is neither a guide nor None."""
    if guide is None or (not isinstance(guide, type) and all(hasattr(guide, name) for name in _OF_GUIDES)):
        return
    raise OptionError(
        f"guide={shown(guide)}: a guide such as guides.RegexGuide(pattern, model.vocabulary), or None for free text; "
        "generate.regex, generate.json and the others make it themselves"
    )


def _to_model(value: Any) -> str:
    """Advice on how a model is made of what was passed in its place."""
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        return f"load it: models.transformers({str(value)!r})"
    if isinstance(value, (Vocabulary, Guide)):
        return "a vocabulary or a guide has no model; make a guide of it with guides.RegexGuide and its like"
    if isinstance(value, (tuple, list)):
        return "make one of it: models.transformers(model, tokenizer)"
    if hasattr(value, "config"):
        return "make one of it and its tokenizer: models.transformers(model, tokenizer)"
    return "make one with models.transformers, models.from_function or models.ziplm"
