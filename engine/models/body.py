"""Decoders whose attention is their own, run by transformers' code: texts are copied out of blocks into its caches, or
read whole without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from ...errors import OptionError
from ..memory.tables import Chunk
from .blocks.reach import Reach, reaches
from .blocks.storage import BlockStorage, Gathered, LayerBlocks, RightAligned, SlotMapping, slots_of


class Pass:
    """Some chunks that are run together as [rows, width], padded on the right.

    aligned: they are as long, and their texts end in the same column
    start: where all of them begin in their texts; None if they do not begin alike
    alike: whether they are as long
    end: one past the last column that attention sees; before: how many columns lie before the new tokens of all rows
    ids: int64 [rows, width]
    positions: of the tokens in their texts, [rows, width], padding at its row's last; [1, width] if all begin alike
    view: the cache to hand to the model
    """

    def __init__(
        self, chunks: Sequence[Chunk], storage: BlockStorage, device: torch.device, *, aligned: bool = False
    ) -> None:
        starts = [len(table.tokens) for table, _ in chunks]
        widths = [len(tokens) for _, tokens in chunks]
        ends = [start + width for start, width in zip(starts, widths, strict=True)]
        self.width = max(widths)
        self.end = max(ends)
        self.start = starts[0] if starts.count(starts[0]) == len(starts) else None
        self.alike = widths.count(self.width) == len(widths)
        padded = [[*tokens, *[tokens[-1]] * (self.width - len(tokens))] for _, tokens in chunks]
        self.ids = torch.tensor(padded, device=device)
        self._widths = widths
        self._lasts = torch.tensor(widths, device=device) - 1
        steps = torch.arange(self.width, device=device)
        if self.start is not None:
            self.positions = (steps + self.start)[None]
        else:
            self.positions = torch.tensor(starts, device=device)[:, None] + torch.minimum(steps, self._lasts[:, None])
        self.real = None if self.alike else steps <= self._lasts[:, None]
        tables = [table for table, _ in chunks]
        slots = [slots_of(*each) for each in zip(tables, starts, widths, strict=True)]
        self.places = SlotMapping(torch.as_tensor(np.concatenate(slots)))
        self.before = self.end - self.width if aligned else self.start or 0
        gathered = RightAligned if aligned else Gathered
        self.texts = None if self.start == 0 else gathered(tables, ends, device)
        self.view = Cache(layers=[_BlockLayer(self, layer) for layer in storage.layers])

    def lasts(self, states: Tensor, ends: Sequence[int] | None = None) -> Tensor:
        """Of states [rows, width, size] those of the chunks' last tokens; with ends, so many of each chunk."""
        if ends is not None:
            return ends_of(states, self._widths, ends)
        if self.alike:
            return states[:, -1]
        return states[torch.arange(len(states), device=states.device), self._lasts]


class _BlockLayer(CacheLayerMixin):
    """One layer's keys and values, as transformers' models see them during a pass."""

    is_sliding = False
    supports_early_init = False

    def __init__(self, run: Pass, blocks: LayerBlocks) -> None:
        self.run = run
        self.blocks = blocks
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.is_initialized = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Blocks are allocated when they are first written."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new tokens. Return the keys and values of the whole texts."""
        run = self.run
        keys, values = (
            states.transpose(1, 2).flatten(0, 1) if run.real is None else states.transpose(1, 2)[run.real]
            for states in (key_states, value_states)
        )
        self.blocks.write(keys, values, run.places)
        # Texts that begin in this pass are padded on the right, which causal attention does not see.
        return (key_states, value_states) if run.texts is None else self.blocks.read(run.texts)

    def get_seq_length(self) -> int:
        """Return the number of tokens before this pass, if common: models then create their masks themselves."""
        return self.run.before

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return length and offset of the keys that `update` returns."""
        return self.run.end, 0

    def get_max_length(self) -> int:
        """There is no limit here."""
        return -1

    def get_max_cache_shape(self) -> int:
        """The same, as older releases of transformers 5 call it."""
        return self.get_max_length()


def by_cut(chunks: Sequence[Chunk]) -> list[list[int]]:
    """Which chunks begin alike and are as long, those that begin first before the others.

    Then a chunk that looks at blocks which another one fills is run after that: these lie before its own beginning.
    """
    alike: dict[tuple[int, int], list[int]] = {}
    for row, (table, tokens) in enumerate(chunks):
        alike.setdefault((len(table.tokens), len(tokens)), []).append(row)
    return [alike[cut] for cut in sorted(alike)]


def by_length(chunks: Sequence[Chunk]) -> list[list[int]]:
    """Group chunks of equal width, ordered by start as in `by_cut`."""
    order = sorted(range(len(chunks)), key=lambda row: (len(chunks[row].table.tokens), len(chunks[row].tokens)))
    groups: list[list[int]] = []
    for row in order:
        if not groups or len(chunks[groups[-1][0]].tokens) != len(chunks[row].tokens):
            groups.append([])
        groups[-1].append(row)
    return groups


def by_width(chunks: Sequence[Chunk]) -> list[list[int]]:
    """Group chunks to pad to a common width: neighbours in the order of their starts, with similar widths."""
    order = sorted(range(len(chunks)), key=lambda row: len(chunks[row].table.tokens))
    groups: list[list[int]] = []
    size = -1
    for row in order:
        if (len(chunks[row].tokens) - 1).bit_length() != size:
            size = (len(chunks[row].tokens) - 1).bit_length()
            groups.append([])
        groups[-1].append(row)
    return groups


def ends_of(states: Tensor, widths: Sequence[int], ends: Sequence[int]) -> Tensor:
    """Of states [rows, width, size], of which a row has `widths` of its own, the last ones, [sum(ends), size]."""
    both = list(zip(widths, ends, strict=True))
    rows = [row for row, (_, count) in enumerate(both) for _ in range(count)]
    return states[rows, [place for width, count in both for place in range(width - count, width)]]


Read = Callable[[Sequence[Chunk], Sequence[int] | None], Tensor]
"""Reads chunks. Returns states of the last `ends` tokens of each; None for the last ones."""


def in_passes(
    chunks: Sequence[Chunk], groups: list[list[int]], read: Read, ends: Sequence[int] | None = None
) -> Tensor:
    """The states [chunks, size] that `read` returns for each group of chunks, in the order of the chunks.

    ends: of how many of the last tokens of each chunk there are states, [sum(ends), size], where these are several
    """
    parts = [
        read([chunks[row] for row in group], None if ends is None else [ends[row] for row in group]) for group in groups
    ]
    counts = [1] * len(chunks) if ends is None else ends
    starts = list(accumulate(counts, initial=0))
    hidden = parts[0].new_empty(starts[-1], parts[0].shape[1])
    for group, part in zip(groups, parts, strict=True):
        hidden[[place for row in group for place in range(starts[row], starts[row + 1])]] = part
    return hidden


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
    """Attention masks by layer type, as the configuration defines them.

    Raises OptionError for layers other than full, sliding-window or chunked attention.
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
        """Return a mask [rows, 1, width, end], or a dict by layer type if there are several."""
        masks = {kind: self._mask(reach, positions, end) for kind, reach in self._reaches.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _mask(self, reach: Reach, positions: Tensor, end: int) -> Tensor:
        seen = reach.allowed(positions, end)
        if not self._additive:
            return seen
        lowest = torch.finfo(self._dtype).min
        return torch.zeros(seen.shape, dtype=self._dtype, device=seen.device).masked_fill_(~seen, lowest)
