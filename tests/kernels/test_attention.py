"""Attention over blocks: the kernel against the definition."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm.kernels.attention.paged import AttentionRows, attend_blocks, write_blocks
from trellm.kernels.attention.panels import attend_panels
from trellm.kernels.attention.reference import attention
from trellm.kernels.attention.stored import room_near, row_length

BLOCK = 16
TOLERANCES = {np.float64: 1e-12, np.float32: 2e-5, np.float16: 2e-5, np.int8: 2e-5}
"""By the type of keys and values; with those in float16 and int8 all else is in float32."""
LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 47, 100)


def read(stored: Any) -> Any:
    """What is stored in rows: their numbers, or those times the scale behind them."""
    if stored.dtype == np.int8:
        return stored[..., :-4] * np.frombuffer(stored[..., -4:].tobytes(), np.float32).reshape(*stored.shape[:3], 1)
    return stored.view(np.float16) if stored.dtype == np.uint16 else stored


class Case:
    """Random rows over blocks in random order; what no row may look at is NaN."""

    def __init__(self, rows: list[tuple[int, int]], heads: tuple[int, int], sizes: tuple[int, int], kind: Any) -> None:
        random = np.random.default_rng(len(rows))
        counts = [(start + width + BLOCK - 1) // BLOCK for start, width in rows]
        order = random.permutation(sum(counts) + 3).astype(np.int32)
        self.tables = [order[sum(counts[:row]) : sum(counts[: row + 1])] for row in range(len(rows))]
        self.rows = rows
        stored: Any = np.uint16 if kind is np.float16 else kind
        kind = np.float32 if kind in (np.float16, np.int8) else kind
        nan = {np.uint16: np.float16(np.nan).view(np.uint16), np.int8: -1}.get(stored, np.nan)
        tokens = sum(width for _, width in rows)
        self.queries = random.standard_normal((tokens, heads[0], sizes[0])).astype(kind)
        self.keys = np.full((len(order), heads[1], BLOCK, row_length(sizes[0], stored)), nan, stored)
        self.values = np.full((len(order), heads[1], BLOCK, row_length(sizes[1], stored)), nan, stored)
        for table, (start, width) in zip(self.tables, rows, strict=True):
            at = np.arange(start + width, dtype=np.int32)
            slots = table[at // BLOCK] * np.int32(BLOCK) + at % BLOCK
            write_blocks(self.keys, random.standard_normal((len(at), heads[1], sizes[0])).astype(kind), slots)
            write_blocks(self.values, random.standard_normal((len(at), heads[1], sizes[1])).astype(kind), slots)
        self.sinks = random.standard_normal(heads[0]).astype(kind)
        self.kind, self.depth = kind, sizes[1]

    def freed(self, window: int) -> Case:
        """The same, but blocks that no token looks at are -1."""
        for table, (start, _) in zip(self.tables, self.rows, strict=True):
            table[: max(0, start - window + 1) // BLOCK] = -1
        return self

    def answer(self, window: int, chunk: int, cap: float, with_sinks: bool, edges: list[int]) -> Any:
        count = len(self.rows)
        columns = [[len(t) for t in self.tables], [w for _, w in self.rows]]
        tables, firsts = (np.cumsum([0, *column])[:count].astype(np.int32) for column in columns)
        widths, starts = (np.array([row[i] for row in self.rows], np.int32) for i in (1, 0))
        blocks = np.concatenate([np.empty(0, np.int32), *self.tables])
        rows = AttentionRows(blocks, tables, firsts, widths, starts)
        out = np.full((*self.queries.shape[:2], self.depth), np.nan, self.kind)
        scratch = np.empty(
            (self.queries.shape[1], max([start + width for start, width in self.rows], default=0)), self.kind
        )
        sinks = self.sinks if with_sinks else self.sinks[:0]
        limits = window, chunk, sinks, np.array([0.3, cap], self.kind)
        stored, (near,) = (self.keys, self.values), room_near([self.keys, self.values])
        for lo, hi in pairwise(edges):
            attend_blocks(out, self.queries, *stored, rows, lo, hi, *limits, scratch, near)
        return out

    def by_panels(self, window: int, chunk: int, cap: float, with_sinks: bool) -> Any:
        """What the kernel for long chunks answers, a row at a time."""
        out = np.full((*self.queries.shape[:2], self.depth), np.nan, self.kind)
        sinks, how = self.sinks if with_sinks else self.sinks[:0], np.array([0.3, cap], self.kind)
        first = 0
        for table, (start, width) in zip(self.tables, self.rows, strict=True):
            part = slice(first, first + width)
            attend_panels(
                out[part], self.queries[part], self.keys, self.values, table, start, window, chunk, sinks, how
            )
            first += width
        return out

    def expected(self, window: int, chunk: int, cap: float, with_sinks: bool) -> Any:
        keys, values = (
            read(each)[..., :size].astype(np.float64)
            for each, size in ((self.keys, self.queries.shape[2]), (self.values, self.depth))
        )
        places = [(table, start + step) for table, (start, width) in zip(self.tables, self.rows, strict=True)
                  for step in range(width)]  # fmt: skip
        scale, sinks = float(self.kind(0.3)), self.sinks.astype(np.float64) if with_sinks else None
        found = [
            attention(query.astype(np.float64), keys, values, list(table), place, scale=scale, window=window,
                      chunk=chunk, cap=cap, sinks=sinks)
            for query, (table, place) in zip(self.queries, places, strict=True)
        ]  # fmt: skip
        return np.array(found).reshape(len(places), self.queries.shape[1], self.depth)


@pytest.mark.parametrize("kind", TOLERANCES)
@given(
    st.lists(st.tuples(st.sampled_from([length - 1 for length in LENGTHS]), st.integers(1, 16)), max_size=4),
    st.sampled_from([(4, 4), (4, 2), (7, 1)]),
    st.sampled_from([(8, 8), (24, 16), (5, 3), (64, 64), (20, 20), (32, 80), (128, 128)]),
    st.sampled_from([(0, 0), (1, 0), (7, 0), (16, 0), (40, 0), (0, 5), (0, 16), (20, 9)]),
    st.sampled_from([0.0, 2.0]),
    st.booleans(),
)
@settings(max_examples=40, derandomize=True, deadline=None)
def test_the_kernel_is_attention(
    kind: Any, rows: Any, heads: Any, sizes: Any, reach: tuple[int, int], cap: float, with_sinks: bool
) -> None:
    case = Case(rows, heads, sizes, kind)
    if reach[0] and not reach[1]:
        case.freed(reach[0])
    found = case.answer(*reach, cap, with_sinks, [0, len(rows) * case.keys.shape[1]])
    assert np.allclose(found, case.expected(*reach, cap, with_sinks), rtol=0, atol=TOLERANCES[kind])


@pytest.mark.parametrize("kind", TOLERANCES)
@pytest.mark.parametrize(
    ("rows", "heads", "sizes", "reach"),
    [
        ([(0, 17), (99, 40)], (4, 2), (64, 64), (0, 0)),  # panels that are seen whole, and in part
        ([(3, 70), (150, 2)], (7, 1), (24, 16), (40, 0)),  # tokens of a tile that look back to different panels
        ([(64, 64), (0, 1)], (4, 4), (5, 3), (0, 16)),  # sizes that are no multiple of a vector's
        ([(120, 30)], (34, 1), (8, 8), (20, 9)),  # more queries of a token than a tile has
        ([(0, 140)], (2, 2), (8, 8), (1, 0)),  # more tiles than are read with a panel
        ([(15, 34)], (2, 1), (20, 80), (0, 0)),  # sizes of which only a part fills vectors
    ],
)
@pytest.mark.parametrize(("cap", "with_sinks"), [(0.0, False), (2.0, True)])
def test_the_kernel_for_long_chunks_is_attention(
    kind: Any, rows: Any, heads: Any, sizes: Any, reach: tuple[int, int], cap: float, with_sinks: bool
) -> None:
    case = Case(rows, heads, sizes, kind)
    if reach[0] and not reach[1]:
        case.freed(reach[0])
    found = case.by_panels(*reach, cap, with_sinks)
    assert np.allclose(found, case.expected(*reach, cap, with_sinks), rtol=0, atol=TOLERANCES[kind])


def test_many_rows_in_parts() -> None:
    rows = [(LENGTHS[i % 7], 1 + i % 3 // 2) for i in range(257)]
    case = Case(rows, (4, 2), (4, 4), np.float64)
    whole = case.answer(0, 0, 0.0, False, [0, 514])
    assert np.allclose(whole, case.expected(0, 0, 0.0, False), rtol=0, atol=1e-12)
    assert np.array_equal(case.answer(0, 0, 0.0, False, [0, 1, 100, 256, 257, 513, 514]), whole)


@pytest.mark.parametrize("kind", TOLERANCES)
def test_scores_far_apart(kind: Any) -> None:
    """The largest score decides alone, whatever its size; NaN is handed on."""
    case = Case([(40, 1)], (2, 2), (8, 8), kind)
    case.queries *= 3000
    for found in (case.answer(0, 0, 0.0, False, [0, 2]), case.by_panels(0, 0, 0.0, False)):
        assert np.isfinite(found).all()
        assert np.allclose(found, case.expected(0, 0, 0.0, False), rtol=0, atol=TOLERANCES[kind])
    case.queries[:] = np.nan
    with np.errstate(invalid="ignore"):  # said where kernels run as plain Python
        assert np.isnan(case.answer(0, 0, 0.0, False, [0, 2])).all()
        assert np.isnan(case.by_panels(0, 0, 0.0, False)).all()
