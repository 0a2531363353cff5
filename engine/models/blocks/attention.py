"""Attention of a packed step over the KV cache in blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ....kernels.attention.paged import attend_blocks
from ....kernels.attention.panels import attend_panels
from ....kernels.attention.stored import room_near
from ....kernels.decoder.plain import Heads
from ...memory.tables import BLOCK
from ...scores import as_list
from ..threads import run_all, thread_count
from .reach import AttentionSpan
from .step import SHORT, DeviceStep, PackedStep
from .storage import DeviceRows, LayerBlocks, has_kernels

_TILE = 512
"""Number of query tokens per masked attention call."""
_MUCH = 1 << 19
"""Number of key elements to read that justifies another thread."""
_MANY = 1 << 22
"""Number of query-key products that justifies another thread."""


class ScoreOptions(NamedTuple):
    """Parameters of scores: `scale` of the products, optional soft cap, optional sinks [query heads]."""

    scale: float
    cap: float | None = None
    sinks: Tensor | None = None

    def settings(self, dtype: Any) -> NDArray[Any]:
        """Return scale and soft cap as kernel input."""
        return np.array([self.scale, self.cap or 0], dtype)


def attend(
    step: PackedStep | DeviceStep,
    layer: LayerBlocks,
    reach: AttentionSpan,
    new: tuple[Tensor, Tensor | None, Tensor | None],
    scoring: ScoreOptions,
) -> Tensor:
    """Return attention of the new tokens: [tokens, query heads, size of values].

    The layer's blocks already have the keys and values of the new tokens.
    new: queries, keys and values [tokens, heads, size]; keys and values are read from blocks if None
    """
    queries = new[0]
    out = queries.new_empty(*queries.shape[:2], layer.sizes[1])
    if isinstance(step, DeviceStep):
        by_rows = attend_rows if has_kernels(queries.device) else _attend_row_by_row
        by_rows(out, queries, step.rows, layer, reach, scoring)
    elif step.uploaded is None or not queries.dtype == layer.keys.dtype == layer.values.dtype:
        if layer.arrays is not None and queries.dtype == layer.dtype:
            _attend_in_place(out, queries.contiguous(), step, layer, reach, scoring)
        else:
            for chosen in step.similar():
                _attend_padded(out, queries, step, chosen, layer, reach, scoring)
            _attend_long(out, new, step, step.long, layer, reach, scoring)
    else:
        narrow, wide, prompt_rows, prompts = step.uploaded
        attend_rows(out, queries, narrow, layer, reach, scoring)
        attend_rows(out, queries, wide, layer, reach, scoring)
        if _is_plain(reach, scoring, prompt_rows.longest):
            _attend_long(out, new, step, prompts, layer, reach, scoring)
        else:
            attend_rows(out, queries, prompt_rows, layer, reach, scoring)
    if isinstance(step, PackedStep):
        for first, last in step.mutual or ():
            _attend_mutually(out, queries, step, first, last, layer, reach, scoring)
    return out


def attend_layer(step: PackedStep | DeviceStep, number: int, queries: Tensor, scale: float) -> Tensor:
    """Return `attend` for a layer by its number, without soft cap and sinks. Keys and values are in its blocks."""
    return attend(step, step.layers[number], step.reaches[number], (queries, None, None), ScoreOptions(scale))


def _attend_mutually(
    out: Tensor,
    queries: Tensor,
    step: PackedStep,
    first: int,
    last: int,
    layer: LayerBlocks,
    reach: AttentionSpan,
    scoring: ScoreOptions,
) -> None:
    """Compute bidirectional attention of a step's tokens from `first` to `last`, by torch."""
    chunk = bisect_right(step.firsts, first) - 1
    ahead = step.starts[chunk] - step.firsts[chunk]
    keys, values = (part[:, :, : last + ahead] for part in step.gather([chunk]).of_layer(layer))
    columns = torch.arange(last + ahead, device=queries.device)
    begin = columns[first + ahead :, None] - (reach.window or last + ahead)
    mixed = _attention(queries[first:last].transpose(0, 1)[None], keys, values, (columns > begin)[None, None], scoring)
    out[first:last] = mixed[0].transpose(0, 1)


def is_undivided(step: PackedStep, heads: Heads) -> bool:
    """Test whether one thread suffices for attention of each layer in this step."""
    if thread_count() == 1:
        return True
    if sum(step.widths[chunk] * step.ends[chunk] for chunk in step.long) * heads.queries * heads.size > _MANY:
        return False
    return not step.short or all(len(_parts(step, reach, heads.keys, heads.size)) == 2 for reach in set(step.reaches))


def attend_rows(
    out: Tensor, queries: Tensor, rows: DeviceRows, layer: LayerBlocks, reach: AttentionSpan, scoring: ScoreOptions
) -> None:
    """Compute attention of rows on a GPU by the Triton kernel; out, queries: [tokens, query heads, size]."""
    from ....kernels.attention.triton_paged import attend_paged

    device_rows = rows.on(queries.device)
    attend_paged(
        out,
        queries if queries.stride(2) == 1 else queries.contiguous(),
        *(layer.keys, layer.values, device_rows.tables, device_rows.firsts, device_rows.widths, device_rows.starts),
        scale=scoring.scale,
        window=reach.window or 0,
        chunk=reach.chunk or 0,
        cap=scoring.cap or 0.0,
        sinks=scoring.sinks,
        longest=device_rows.longest,
        widest=device_rows.widest,
    )


def _attend_row_by_row(
    out: Tensor, queries: Tensor, rows: DeviceRows, layer: LayerBlocks, reach: AttentionSpan, scoring: ScoreOptions
) -> None:
    """Compute `attend_rows` without a kernel."""
    firsts, widths, starts = (as_list(column) for column in (rows.firsts, rows.widths, rows.starts))
    for table, first, width, start in zip(rows.tables, firsts, widths, starts, strict=True):
        if not width:
            continue
        end = start + width
        begin = reach.begin(start) // BLOCK * BLOCK
        blocks = table[begin // BLOCK : (end + BLOCK - 1) // BLOCK].long()
        keys, values = (
            part[blocks].transpose(0, 1).flatten(1, 2)[:, : end - begin] for part in (layer.keys, layer.values)
        )
        positions = torch.arange(start, end, device=queries.device)[None]
        mixed = _attention(
            queries[first : first + width].transpose(0, 1)[None],
            *(keys[None], values[None]),
            reach.allowed(positions, end, begin),
            scoring,
        )
        out[first : first + width] = mixed[0].transpose(0, 1)


def _attend_long(
    out: Tensor,
    new: tuple[Tensor, Tensor | None, Tensor | None],
    step: PackedStep,
    chosen: list[int],
    layer: LayerBlocks,
    reach: AttentionSpan,
    scoring: ScoreOptions,
) -> None:
    """Compute attention of long chunks by torch."""
    queries, keys, values = new
    for chunk in chosen:
        first, last, start = step.firsts[chunk], step.firsts[chunk] + step.widths[chunk], step.starts[chunk]
        if start == 0 and keys is not None and values is not None:
            chunk_keys, chunk_values = keys[first:last].transpose(0, 1), values[first:last].transpose(0, 1)
        else:
            chunk_keys, chunk_values = (part[0] for part in step.gather([chunk]).of_layer(layer))
        mixed = _attend_chunk(queries[first:last].transpose(0, 1), chunk_keys, chunk_values, start, reach, scoring)
        out[first:last] = mixed.transpose(0, 1)


def _attend_in_place(
    out: Tensor, queries: Tensor, step: PackedStep, layer: LayerBlocks, reach: AttentionSpan, scoring: ScoreOptions
) -> None:
    """Compute attention by the CPU kernels: short chunks in one call per thread, long ones one by one."""
    assert layer.arrays is not None
    keys, values = layer.arrays
    outputs, query = out.numpy(), queries.numpy()
    settings = scoring.settings(query.dtype)
    beside = settings[:0] if scoring.sinks is None else scoring.sinks.detach().to(queries.dtype).contiguous().numpy()
    limits = (reach.window or 0, reach.chunk or 0, beside, settings)
    calls: list[Callable[[], None]] = []
    if step.short:
        edges = _parts(step, reach, keys.shape[1], keys.shape[3])
        for number, (lo, hi) in enumerate(pairwise(edges)):
            scratch = step.scratch(number, queries.shape[1], query.dtype), room_near(layer.arrays)[0]
            calls.append(partial(attend_blocks, outputs, query, keys, values, step.rows, lo, hi, *limits, *scratch))
    for chunk in step.long:
        first, start, blocks = step.firsts[chunk], step.starts[chunk], step.blocks_of(chunk)
        for lo, hi in pairwise(_pieces(step.widths[chunk], start, reach, queries[0].numel())):
            part = slice(first + lo, first + hi)
            calls.append(partial(attend_panels, outputs[part], query[part], keys, values, blocks, start + lo, *limits))
    run_all(calls)


def _pieces(width: int, start: int, reach: AttentionSpan, numbers: int) -> list[int]:
    """Return token bounds of parts of a long chunk, more parts than threads, since later tokens attend to more."""
    threads = thread_count()
    seen = min(start + width, reach.longest or start + width)
    most = 1 if threads == 1 else min(4 * threads, width // SHORT, width * seen * numbers // _MANY)
    return [width * part // max(1, most) for part in range(max(1, most) + 1)]


def _parts(step: PackedStep, reach: AttentionSpan, heads: int, size: int) -> list[int]:
    """Return bounds of parts of all (short row, key head) pairs, numbered row * heads + head, with equal reads."""
    threads = thread_count()
    count = len(step.short) * heads
    if threads == 1 or count == 1:
        return [0, count]
    limit = reach.longest or max(step.ends)
    reads = np.cumsum(np.repeat([min(step.ends[row], limit) * step.widths[row] for row in step.short], heads))
    parts = min(threads, int(reads[-1]) * size // _MUCH)
    if parts < 2:
        return [0, count]
    inner: list[int] = as_list(np.searchsorted(reads, reads[-1] * np.arange(1, parts) / parts) + 1)
    return sorted({0, *(edge for edge in inner if edge < count), count})


def _attend_padded(
    out: Tensor,
    queries: Tensor,
    step: PackedStep,
    chosen: list[int],
    layer: LayerBlocks,
    reach: AttentionSpan,
    scoring: ScoreOptions,
) -> None:
    """Compute attention of short chunks by torch, with gathered and padded texts."""
    rows = step.gather(chosen)
    keys, values = rows.of_layer(layer)
    mixed = _attention(
        queries[rows.tokens].transpose(1, 2), keys, values, reach.allowed(rows.positions, keys.shape[2]), scoring
    )
    out[rows.tokens[rows.real]] = mixed.transpose(1, 2)[rows.real]


def _attend_chunk(
    queries: Tensor, keys: Tensor, values: Tensor, start: int, reach: AttentionSpan, scoring: ScoreOptions
) -> Tensor:
    """Compute attention of a chunk from `start` on; keys and values [heads, tokens, size] end with the chunk."""
    count, end = queries.shape[1], keys.shape[1]
    if start == 0 and _is_plain(reach, scoring, end):
        return scaled_dot_product_attention(
            queries[None], keys[None], values[None], is_causal=True, scale=scoring.scale, enable_gqa=True
        )[0]
    parts: list[Tensor] = []
    for low in range(0, count, _TILE):
        high = min(low + _TILE, count)
        begin, stop = reach.begin(start + low), start + high
        positions = torch.arange(start + low, stop, device=queries.device)[None]
        allowed = reach.allowed(positions, stop, begin)
        seen = keys[None, :, begin:stop], values[None, :, begin:stop]
        parts.append(_attention(queries[None, :, low:high], *seen, allowed, scoring)[0])
    return torch.cat(parts, 1)


def _is_plain(reach: AttentionSpan, scoring: ScoreOptions, end: int) -> bool:
    """Test whether attention of a text up to `end` is causal, without span limits, soft cap and sinks."""
    return (reach.longest is None or reach.longest >= end) and scoring.cap is None and scoring.sinks is None


def _attention(queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor, scoring: ScoreOptions) -> Tensor:
    """Compute attention [rows, query heads, width, size] under a mask [rows, 1, width, tokens]."""
    if scoring.cap is None and scoring.sinks is None:
        return scaled_dot_product_attention(
            queries, keys, values, attn_mask=allowed, scale=scoring.scale, enable_gqa=True
        )
    group = queries.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
    scores = queries @ keys.mT * scoring.scale
    if scoring.cap is not None:
        scores = torch.tanh(scores / scoring.cap) * scoring.cap
    scores = scores.masked_fill(~allowed, -torch.inf)
    if scoring.sinks is not None:
        beside = scoring.sinks.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, beside], -1)
    exact = torch.float64 if scores.dtype == torch.float64 else torch.float32
    weights = torch.softmax(scores, -1, dtype=exact).to(values.dtype)
    return weights[..., : keys.shape[2]] @ values
