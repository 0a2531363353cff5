"""Where a transformers model ends its texts."""

from __future__ import annotations

from typing import Any


def eos_ids(model: Any, tokenizer: Any) -> list[int] | None:
    """The ids at which the model's own `generate` ends a text; None to leave it to the tokenizer."""
    configured: Any = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if configured is None:
        return None
    ids: list[int] = [configured] if isinstance(configured, int) else list(configured)
    own: int | None = getattr(tokenizer, "eos_token_id", None)
    return ids if own is None or own in ids else [*ids, own]
