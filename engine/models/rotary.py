"""Rotary embeddings that depend on how long a text is."""

from __future__ import annotations

from typing import Any


def unscaled_context(config: Any) -> int | None:
    """How many tokens a text may have without its rotary embeddings being scaled anew; None without limit.

    LongRoPE has two sets of frequencies, for texts up to `original_max_position_embeddings` and for longer ones, and
    dynamic NTK scaling has others for each length past `max_position_embeddings`. transformers chooses one for all
    rows of a pass, the keys of a cache stay as they were written, and so beyond these lengths no text would be
    as if it were alone.
    """
    limits: list[int] = []
    # MPT makes the biases of its attention for so many tokens.
    for name in ("max_position_embeddings", "max_seq_len"):
        if (context := getattr(config, name, None)) is not None and context > 0:  # XLNet says -1 for no limit
            limits.append(context)
    given: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    kinds: list[Any] = [given, *(each for each in given.values() if isinstance(each, dict))]
    for kind in kinds:
        if kind.get("rope_type") == "longrope" and (original := kind.get("original_max_position_embeddings")):
            limits.append(original)
    return min(limits, default=None)
