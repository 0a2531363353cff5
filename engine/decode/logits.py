"""A model's logits, looked at before anything is chosen by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import ModelError
from ..models.function import RowError
from ..models.protocol import Hidden, Model

Place = Callable[[int], str]
"""What a place in `hidden` is the logits of: "step 3 of prompt 1"."""


def logits_of(model: Model, hidden: Hidden, rows: Sequence[int], ids: Tensor | None, place: Place) -> Tensor:
    """Logits float32 [len(rows), V], or [len(rows), len(ids)]. Raises ModelError for anything else, with its place."""
    try:
        found: Any = model.logits(hidden, rows, ids)
    except RowError as error:
        raise ModelError(f"{error}, at {place(error.row)}") from None

    def where() -> str:
        return place(rows[0]) if rows else "a step without rows"

    if not isinstance(found, Tensor):
        raise ModelError(f"the model returned {type(found).__name__} in place of a tensor of logits, at {where()}")
    if found.is_nested or found.is_quantized:
        kind = "nested" if found.is_nested else "quantized"
        raise ModelError(f"the model returned logits in a {kind} tensor, not as plain floats, at {where()}")
    expected = (len(rows), model.vocabulary.size if ids is None else len(ids))
    if tuple(found.shape) != expected:
        raise ModelError(f"the model returned logits of shape {tuple(found.shape)}; expected {expected}, at {where()}")
    if found.layout != torch.strided or found.device.type == "meta" or not found.dtype.is_floating_point:
        kind = f"{found.dtype}, {found.layout}, on {found.device}".replace("torch.", "")
        raise ModelError(f"the model returned logits that are not plain floats ({kind}), at {where()}")
    return found if found.dtype == torch.float32 and found.stride(1) == 1 else found.float().contiguous()
