"""What a forward pass gave, and the logits that are asked of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from ...guides.protocol import Mask
from ..models.protocol import Hidden, Model
from .logits import logits_of

T = TypeVar("T")


class Reading(Generic[T]):
    """Texts that have read all there was, and where in `hidden` each finds its last token.

    place: what a text is called in errors: "step 3 of prompt 1"
    """

    def __init__(
        self, model: Model, hidden: Hidden, texts: Sequence[T], places: Sequence[int], place: Callable[[T], str]
    ) -> None:
        self.texts = texts
        self._model = model
        self._hidden = hidden
        self._places = places
        self._place = place
        self._known: tuple[list[int], Tensor] | None = None

    def logits(self, numbers: Sequence[int]) -> Tensor:
        """Logits of all tokens, float32 [len(numbers), V], of some of the texts; what was computed is used again."""
        numbers = list(numbers)
        if self._known is not None:
            known, found = self._known
            if numbers == known:
                return found
            if set(numbers) <= set(known):
                return found[[known.index(number) for number in numbers]]
        found = self._computed(numbers, None)
        self._known = numbers, found
        return found

    def some_logits(self, number: int, ids: Tensor) -> Tensor:
        """Logits of some tokens, float32 [1, len(ids)], of one of the texts."""
        return self._computed([number], ids)

    def _computed(self, numbers: Sequence[int], ids: Tensor | None) -> Tensor:
        places = [self._places[number] for number in numbers]

        def place(entry: int) -> str:
            return self._place(self.texts[self._places.index(entry)])

        return logits_of(self._model, self._hidden, places, ids, place)


def stack_masks(masks: Sequence[Mask | None], logits: Tensor) -> Tensor | None:
    """The masks of all rows as int32 [rows, words] where the logits are, full ones for None."""
    if all(mask is None for mask in masks):
        return None
    words = (logits.shape[1] + 31) // 32
    stacked = np.full((len(masks), words), 0xFFFFFFFF, np.uint32)
    for row, mask in zip(stacked, masks, strict=True):
        if mask is not None:
            row[:] = mask
    return torch.as_tensor(stacked.view(np.int32), device=logits.device)
