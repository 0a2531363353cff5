"""The output of a forward pass, with logits computed on demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import ModelError
from ..models.function import RowError
from ..models.protocol import Hidden, ListingModel, Model, PoolingModel
from ..scores import first_columns, token_scores
from .sequence import SequenceState

T = TypeVar("T")
Pick = Callable[[Tensor, "Tensor | None", Sequence[float]], list[int]]
"""The signature of `Search.pick`."""


class ForwardOutput(Generic[T]):
    """The hidden states of a forward pass, and the sequences that have read all their pending tokens.

    places: the row of each sequence's last token in `hidden`
    place: names a sequence in errors, such as "step 3 of prompt 1"
    ahead: further rows by sequence number, whose logits are likely to be needed later
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
        self._cached_logits: tuple[dict[int, int], Tensor] | None = None  # the row of each place, and the logits

    def logits(self, numbers: Sequence[int]) -> Tensor:
        """Return logits of some sequences, float32 [len(numbers), V]. Computed logits are cached."""
        places = [self._places[number] for number in numbers]
        if self._cached_logits is not None:
            known, found = self._cached_logits
            rows = [known.get(place, -1) for place in places]
            if -1 not in rows:
                first = rows[0]
                in_order = rows == list(range(first, first + len(rows)))
                return found[first : first + len(rows)] if in_order else found[rows]
        more = [place for number in numbers for place in self._ahead.get(number, ())]
        found = self._computed([*places, *more], None)
        self._cached_logits = {place: row for row, place in enumerate([*places, *more])}, found
        return found[: len(places)] if more else found

    def further(self, numbers: Sequence[int], shifts: Sequence[int]) -> ForwardOutput[T]:
        """Return the output for some sequences, each shifted by some rows. Cached logits are shared."""
        places = [self._places[number] + shift for number, shift in zip(numbers, shifts, strict=True)]
        ahead = {
            new: [place for place in self._ahead.get(number, ()) if place > places[new]]
            for new, number in enumerate(numbers)
        }
        texts = [self.texts[number] for number in numbers]
        found = ForwardOutput(self._model, self._hidden, texts, places, self._place, ahead)
        found._cached_logits = self._cached_logits
        return found

    def some_logits(self, number: int, ids: Tensor) -> Tensor:
        """Return logits of some tokens of one sequence, float32 [1, len(ids)]."""
        return self._computed([self._places[number]], ids)

    def pooled(self) -> NDArray[np.float32]:
        """Return the final hidden states of all sequences, [sequences, size]."""
        return cast("PoolingModel", self._model).pool(self._hidden, self._places).cpu().numpy()

    def pick_listed(self, pick: Pick, listed: Sequence[tuple[int, Tensor]], draws: Sequence[float]) -> list[int]:
        """Pick a token of each sequence from its short list. Returns positions in these lists."""
        found = self._listed(listed)
        if found is not None:
            return pick(*found, draws)
        both = zip(listed, draws, strict=True)
        return [pick(self.some_logits(number, ids), None, [draw])[0] for (number, ids), draw in both]

    def _listed(self, listed: Sequence[tuple[int, Tensor]]) -> tuple[Tensor, Tensor | None] | None:
        """Return logits of the listed tokens, float32 [sequences, longest list], and masks of each list's length.

        Returns None if the model has no batched computation for them.
        """
        if not hasattr(self._model, "logits_listed"):  # `isinstance` would check all attributes of the protocol
            return None
        model, places = cast("ListingModel", self._model), [self._places[number] for number, _ in listed]
        found = model.logits_listed(self._hidden, places, [ids for _, ids in listed])
        return None if found is None else (found, first_columns([len(ids) for _, ids in listed], found))

    def _computed(self, places: Sequence[int], ids: Tensor | None) -> Tensor:
        def place(entry: int) -> str:
            # A row ahead belongs to the sequence before it.
            owner = max((each for each in self._places if each <= entry), default=self._places[0])
            return self._place(self.texts[self._places.index(owner)])

        return logits_of(self._model, self._hidden, places, ids, place)


def alike(values: Iterable[T]) -> list[tuple[T, list[int]]]:
    """Group equal values: return each value once with its positions. Runs of the same object take a fast path."""
    found: list[tuple[T, list[int]]] = []
    last: T | None = None
    places: list[int] = []
    for place, item in enumerate(values):
        if item is not last:
            last = item
            same = next((places for value, places in found if value is item or value == item), None)
            if same is None:
                found.append((item, []))
            places = found[-1][1] if same is None else same
        places.append(place)
    return found


Place = Callable[[int], str]
"""Names a row of `hidden` in errors, such as "step 3 of prompt 1"."""


def logits_of(model: Model, hidden: Hidden, rows: Sequence[int], ids: Tensor | None, place: Place) -> Tensor:
    """Return logits float32 [len(rows), V], or [len(rows), len(ids)]. Raises ModelError for any other model output."""
    try:
        found: Any = model.logits(hidden, rows, ids)
    except RowError as error:
        raise ModelError(f"{error}, at {place(error.row)}") from None

    def where() -> str:
        return place(rows[0]) if rows else "a step without rows"

    if not isinstance(found, Tensor):
        raise ModelError(f"the model returned {type(found).__name__} instead of a tensor of logits, at {where()}")
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


AT_ONCE = 64 << 20
"""Bytes of logits in memory at once. With a vocabulary of 128k tokens these are 131 rows."""


def score_prompt(model: Model, hidden: Hidden, first: int, sequence: SequenceState, count: int) -> None:
    """Record the log-probabilities of the prompt tokens that follow each of the last `count` tokens read.

    first: row of the first of these tokens in `hidden`
    """
    prompt, read = sequence.request.start.prompt, len(sequence.table.tokens)
    assert len(sequence.prompt_scores) == read - count, "all of the prompt is read by the sequence itself"
    following, size = prompt[read - count + 1 : read + 1], max(1, AT_ONCE // (4 * model.vocabulary.size))
    for begin in range(0, len(following), size):
        tokens = following[begin : begin + size]
        places = range(first + begin, first + begin + len(tokens))
        logits = logits_of(model, hidden, places, None, lambda row: f"token {row - first} of {_chunk(sequence, count)}")
        found = token_scores(logits, tokens, sequence.request.prompt_best or 0)
        if any(math.isnan(each.logprob) for each in found):
            sequence.error = ModelError(f"the model's logits in {_chunk(sequence, count)} are NaN or infinite")
            return
        sequence.prompt_scores += found


def _chunk(sequence: SequenceState, count: int) -> str:
    return f"the {count} tokens of prompt {sequence.request.number} that begin at {len(sequence.table.tokens) - count}"
