"""Decoders whose attention is their own, run by transformers' code: from a cache of whole texts, or without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from ....errors import OptionError
from ...memory.tables import Chunk
from ..blocks.reach import Reach, reaches
from ..blocks.storage import BlockStorage
from .passes import Pass, by_cut, by_length, by_width, ends_of, in_passes

Run = Callable[..., Tensor]
_GROUPS = {"padded": by_width, "aligned": by_length, "equal": by_cut}
_MASKED_BY_BOOL, _MASKED_BY_ADDITION = {"sdpa"}, {"eager"}


class BodyRunner:
    """Runs a decoder with keys and values that are copied out of blocks, whole texts of them, or without any.

    rows: what runs together, and how it is shown to the model
        "padded": rows of different lengths, kept apart by `masks`
        "aligned": rows that are as long, wherever they begin, padded on the left: so transformers runs texts of several
            lengths, and positions are right which a model works out from a mask or from columns
        "equal": rows that begin alike and are as long, for which a model's own masks are right, and so several passes
        "whole": all texts from their beginning, without a cache; "alone": each by itself, for attention that chooses
            among all columns, padding too
    takes_positions: whether the model takes positions of tokens
    """

    def __init__(
        self,
        run: Run,
        device: torch.device,
        rows: Literal["padded", "aligned", "equal", "whole", "alone"],
        takes_positions: bool = False,
        masks: AttentionMasks | None = None,
    ) -> None:
        self._run = run
        self._device = device
        self.rows = rows
        self._takes_positions = takes_positions
        self._masks = masks

    def read(self, chunks: Sequence[Chunk], storage: Any, ends: Sequence[int] | None = None) -> Tensor:
        """The states [chunks, size] of the last tokens; with ends [sum(ends), size], so many of each chunk."""
        match self.rows:
            case "whole":
                return self._whole(chunks, ends)
            case "alone":
                return in_passes(chunks, [[row] for row in range(len(chunks))], self._whole, ends)
            case rows:
                return in_passes(chunks, _GROUPS[rows](chunks), partial(self._pass, storage), ends)

    def _pass(self, storage: BlockStorage, chunks: Sequence[Chunk], ends: Sequence[int] | None) -> Tensor:
        now = Pass(chunks, storage, self._device, aligned=self.rows == "aligned")
        more: dict[str, Any] = {"position_ids": now.positions} if self._takes_positions else {}
        if self._masks is not None:
            own = now.start == 0 or (now.start is not None and now.alike)  # the model's own masks are right
            more["attention_mask"] = None if own else self._masks(now.positions.expand(len(chunks), -1), now.end)
        elif self.rows == "aligned" and now.texts is not None and now.texts.absent is not None:
            more["attention_mask"] = (~now.texts.absent).long()
        return now.lasts(self._run(now.ids, cache=now.view, use_cache=True, **more), ends)

    def _whole(self, chunks: Sequence[Chunk], ends: Sequence[int] | None) -> Tensor:
        texts = [[*table.tokens, *tokens] for table, tokens in chunks]
        width = max(map(len, texts))
        padded = [[*text, *[text[-1]] * (width - len(text))] for text in texts]
        states = self._run(torch.tensor(padded, device=self._device), use_cache=False)
        return ends_of(states, list(map(len, texts)), [1] * len(texts) if ends is None else ends)


class AttentionMasks:
    """The masks of a model, for its kinds of layers; made as its configuration says.

    Raises OptionError for layers that are not attention over all keys, a window or chunks.
    """

    def __init__(self, config: Any, implementation: str, dtype: torch.dtype) -> None:
        if implementation not in _MASKED_BY_BOOL | _MASKED_BY_ADDITION:
            raise OptionError(
                f"attention implementation {implementation!r} cannot run rows of different lengths; load the "
                "model with attn_implementation='sdpa' or 'eager', or pass cache=False"
            )
        self._additive = implementation in _MASKED_BY_ADDITION
        self._dtype = dtype
        self._reaches = reaches(config)

    def __call__(self, positions: Tensor, end: int) -> Tensor | dict[str, Tensor]:
        """A mask [rows, 1, width, end], or one by kind of layer where a model has several kinds."""
        masks = {kind: self._mask(reach, positions, end) for kind, reach in self._reaches.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _mask(self, reach: Reach, positions: Tensor, end: int) -> Tensor:
        seen = reach.allowed(positions, end)
        if not self._additive:
            return seen
        lowest = torch.finfo(self._dtype).min
        return torch.zeros(seen.shape, dtype=self._dtype, device=seen.device).masked_fill_(~seen, lowest)
