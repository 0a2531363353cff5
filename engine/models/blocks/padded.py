"""Models whose attention is their own: rows padded to one width, or passes of rows that are alike; or no cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from ...memory.tables import Chunk
from .key_values import Pass, by_cut, by_length, by_width, in_passes
from .masks import AttentionMasks
from .storage import BlockStorage

Run = Callable[..., Tensor]


class Reader(Protocol):
    """Runs a decoder over chunks."""

    def read(self, chunks: Sequence[Chunk], storage: Any) -> Tensor:
        """The states [chunks, size] of the last tokens."""
        ...


class PaddedReader:
    """Rows of different lengths together, kept apart by masks. Raises OptionError where there are none for them."""

    def __init__(self, device: torch.device, masks: AttentionMasks, run: Run) -> None:
        self._device = device
        self._masks = masks
        self._run = run

    def read(self, chunks: Sequence[Chunk], storage: Any) -> Tensor:
        """The states [chunks, size] of the last tokens."""
        return in_passes(chunks, by_width(chunks), partial(self._pass, storage))

    def _pass(self, storage: BlockStorage, chunks: Sequence[Chunk]) -> Tensor:
        now = Pass(chunks, storage, self._device)
        own = now.start == 0 or (now.start is not None and now.alike)  # the model's own masks are right
        mask = None if own else self._masks(now.positions.expand(len(chunks), -1), now.end)
        states = self._run(
            now.ids, position_ids=now.positions, attention_mask=mask, past_key_values=now.view, use_cache=True
        )
        return now.lasts(states)


class AlignedReader:
    """Rows that are as long together, wherever they begin: padded on the left, where a model's own masks show it that.

    That is how transformers runs texts of several lengths, so that positions which a model works out from a mask, or
    from columns, are right.
    """

    def __init__(self, device: torch.device, takes_positions: bool, run: Run) -> None:
        self._device = device
        self._takes_positions = takes_positions
        self._run = run

    def read(self, chunks: Sequence[Chunk], storage: Any) -> Tensor:
        """The states [chunks, size] of the last tokens."""
        return in_passes(chunks, by_length(chunks), partial(self._pass, storage))

    def _pass(self, storage: BlockStorage, chunks: Sequence[Chunk]) -> Tensor:
        now = Pass(chunks, storage, self._device, aligned=True)
        more = {"position_ids": now.positions} if self._takes_positions else {}
        if now.texts is not None and now.texts.absent is not None:
            more["attention_mask"] = (~now.texts.absent).long()
        return now.lasts(self._run(now.ids, past_key_values=now.view, use_cache=True, **more))


class EqualReader:
    """Rows that begin alike and are as long together, and so several passes: a model's own masks are right for them."""

    def __init__(self, device: torch.device, takes_positions: bool, run: Run) -> None:
        self._device = device
        self._takes_positions = takes_positions
        self._run = run

    def read(self, chunks: Sequence[Chunk], storage: Any) -> Tensor:
        """The states [chunks, size] of the last tokens."""
        return in_passes(chunks, by_cut(chunks), partial(self._pass, storage))

    def _pass(self, storage: BlockStorage, chunks: Sequence[Chunk]) -> Tensor:
        now = Pass(chunks, storage, self._device)
        more = {"position_ids": now.positions} if self._takes_positions else {}
        return now.lasts(self._run(now.ids, past_key_values=now.view, use_cache=True, **more))


class WholeReader:
    """Every text whole, without a cache.

    singly: whether each runs alone, for attention that chooses among all columns, padding too
    """

    def __init__(self, device: torch.device, singly: bool, run: Run) -> None:
        self._device = device
        self._singly = singly
        self._run = run

    def read(self, chunks: Sequence[Chunk], storage: Any) -> Tensor:
        """The states [chunks, size] of the last tokens."""
        texts = [[*table.tokens, *tokens] for table, tokens in chunks]
        parts = [[text] for text in texts] if self._singly else [texts]
        return torch.cat([self._pass(part) for part in parts])

    def _pass(self, texts: list[list[int]]) -> Tensor:
        width = max(map(len, texts))
        padded = [[*text, *[text[-1]] * (width - len(text))] for text in texts]
        states = self._run(torch.tensor(padded, device=self._device), use_cache=False)
        lasts = torch.tensor([len(text) - 1 for text in texts], device=states.device)
        return states[torch.arange(len(texts), device=states.device), lasts]
