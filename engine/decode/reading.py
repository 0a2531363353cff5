"""What a forward pass gave, and the logits that are asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from ...guides.protocol import Mask
from ..models.protocol import Hidden, ListingModel, Model
from .logits import logits_of

T = TypeVar("T")
Pick = Callable[[Tensor, "Tensor | None", Sequence[float]], list[int]]
"""As `Search.pick`."""


class Reading(Generic[T]):
    """Texts that have read all there was, and where in `hidden` each finds its last token.

    place: what a text is called in errors: "step 3 of prompt 1"
    ahead: further places of some of the texts, by their numbers, whose logits are likely to be asked for later
    """

    def __init__(
        self,
        model: Model,
        hidden: Hidden,
        texts: Sequence[T],
        places: Sequence[int],
        place: Callable[[T], str],
        ahead: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.texts = texts
        self._model = model
        self._hidden = hidden
        self._places = places
        self._place = place
        self._ahead = ahead or {}
        self._known: tuple[dict[int, int], Tensor] | None = None  # the row of each place, and the logits

    def logits(self, numbers: Sequence[int]) -> Tensor:
        """Logits of all tokens, float32 [len(numbers), V], of some of the texts; what was computed is used again."""
        places = [self._places[number] for number in numbers]
        if self._known is not None:
            known, found = self._known
            rows = [known.get(place, -1) for place in places]
            if -1 not in rows:
                first = rows[0]
                in_order = rows == list(range(first, first + len(rows)))
                return found[first : first + len(rows)] if in_order else found[rows]
        more = [place for number in numbers for place in self._ahead.get(number, ())]
        found = self._computed([*places, *more], None)
        self._known = {place: row for row, place in enumerate([*places, *more])}, found
        return found[: len(places)] if more else found

    def further(self, numbers: Sequence[int], shifts: Sequence[int]) -> Reading[T]:
        """Some of the texts, so many places further on; what was computed is used again."""
        places = [self._places[number] + shift for number, shift in zip(numbers, shifts, strict=True)]
        ahead = {
            new: [place for place in self._ahead.get(number, ()) if place > places[new]]
            for new, number in enumerate(numbers)
        }
        texts = [self.texts[number] for number in numbers]
        found = Reading(self._model, self._hidden, texts, places, self._place, ahead)
        found._known = self._known
        return found

    def some_logits(self, number: int, ids: Tensor) -> Tensor:
        """Logits of some tokens, float32 [1, len(ids)], of one of the texts."""
        return self._computed([self._places[number]], ids)

    def pick_listed(self, pick: Pick, listed: Sequence[tuple[int, Tensor]], draws: Sequence[float]) -> list[int]:
        """What is picked for texts, given by number, each with a few tokens to choose from: the places among these."""
        found = self._listed(listed)
        if found is not None:
            return pick(*found, draws)
        both = zip(listed, draws, strict=True)
        return [pick(self.some_logits(number, ids), None, [draw])[0] for (number, ids), draw in both]

    def _listed(self, listed: Sequence[tuple[int, Tensor]]) -> tuple[Tensor, Tensor | None] | None:
        """The logits of these tokens, float32 [texts, most], and masks of how many each text has.

        None where the model computes them text by text.
        """
        if not hasattr(self._model, "logits_listed"):  # `isinstance` would look at all that a model has, in each step
            return None
        model, places = cast("ListingModel", self._model), [self._places[number] for number, _ in listed]
        found = model.logits_listed(self._hidden, places, [ids for _, ids in listed])
        return None if found is None else (found, first_columns([len(ids) for _, ids in listed], found))

    def _computed(self, places: Sequence[int], ids: Tensor | None) -> Tensor:
        def place(entry: int) -> str:
            # A place ahead is that of the text before it.
            owner = max((each for each in self._places if each <= entry), default=self._places[0])
            return self._place(self.texts[self._places.index(owner)])

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


def first_columns(counts: Sequence[int], logits: Tensor) -> Tensor | None:
    """Masks of the first `counts[r]` columns of each row r, as `stack_masks` has them; None where these are all."""
    width = logits.shape[1]
    if min(counts) == width:
        return None
    bits = np.arange((width + 31) // 32 * 32) < np.array(counts)[:, None]
    packed = np.packbits(bits, axis=1, bitorder="little").view("<u4").astype(np.uint32, copy=False)
    return torch.as_tensor(packed.view(np.int32), device=logits.device)


def alike(values: Iterable[T]) -> list[tuple[T, list[int]]]:
    """Each value once, with the places of those that equal it; quick where the same follow one another."""
    found: list[tuple[T, list[int]]] = []
    last: T | None = None
    places: list[int] = []
    for place, own in enumerate(values):
        if own is not last:
            last = own
            same = next((places for value, places in found if value is own or value == own), None)
            if same is None:
                found.append((own, []))
            places = found[-1][1] if same is None else same
        places.append(place)
    return found
