"""Attention over blocks on a GPU, against the definition: on a GPU if there is one, else in Triton's interpreter.

The interpreter has to be chosen before Triton is imported, so these tests are run by themselves with it.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from trellm.kernels.attention.reference import attention

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if CUDA and not INTERPRETED else "cpu"
BLOCK = 16
TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SCALE = 0.3

needs_triton = pytest.mark.skipif(not (CUDA or INTERPRETED), reason="no GPU; TRITON_INTERPRET=1 takes its place")


class Case:
    """Random rows (start, width) over blocks in random order; what no row may look at is NaN, or in no block."""

    def __init__(
        self,
        rows: list[tuple[int, int]],
        heads: tuple[int, int] = (2, 1),
        sizes: tuple[int, int] = (16, 16),
        dtype: torch.dtype = torch.float32,
        window: int = 0,
    ) -> None:
        from trellm.kernels.attention.triton_paged import write_paged

        torch.manual_seed(len(rows))
        random = np.random.default_rng(len(rows))
        self.rows = rows
        self.dtype = dtype
        ends = [start + width if width else 0 for start, width in rows]
        counts = [(end + BLOCK - 1) // BLOCK for end in ends]
        order = random.permutation(sum(counts) + 3).astype(np.int32)
        self.tables = np.full((len(rows), max(counts, default=0) + 1), -1, np.int32)
        self.firsts = np.zeros(len(rows), np.int32)
        tokens = 1  # the step's first token belongs to no row
        self.keys, self.values = (
            torch.full((len(order), heads[1], BLOCK, size), torch.nan, dtype=dtype, device=DEVICE) for size in sizes
        )
        for row, (start, width) in enumerate(rows):
            own = order[sum(counts[:row]) : sum(counts[: row + 1])]
            at = np.arange(ends[row], dtype=np.int32)
            slots = torch.from_numpy(own[at // BLOCK] * np.int32(BLOCK) + at % BLOCK).to(DEVICE)
            new = (self.random(len(at), heads[1], size) for size in sizes)
            write_paged(self.keys, self.values, *new, slots)
            self.tables[row, : counts[row]] = own
            if window:
                self.tables[row, : max(0, start - window + 1) // BLOCK] = -1
            self.firsts[row] = tokens
            tokens += width
        self.queries = self.random(tokens, heads[0], sizes[0])
        self.sinks = self.random(heads[0])

    def random(self, *shape: int) -> Any:
        """Strided, as what models hand on may be; numbers are next to one another."""
        return torch.randn(*shape[:-1], 2, shape[-1], dtype=torch.float64).to(DEVICE, self.dtype)[..., 1, :]

    def answer(self, **options: Any) -> Any:
        from trellm.kernels.attention.triton_paged import attend_paged

        out = torch.full((*self.queries.shape[:2], self.values.shape[3]), torch.nan, dtype=self.dtype, device=DEVICE)
        columns = [self.firsts, np.array([row[1] for row in self.rows]), np.array([row[0] for row in self.rows])]
        attend_paged(
            *(out, self.queries, self.keys, self.values, torch.from_numpy(self.tables).to(DEVICE)),
            *(torch.from_numpy(column.astype(np.int32)).to(DEVICE) for column in columns),
            longest=max((start + width for start, width in self.rows), default=0) + 5,
            widest=max((width for _, width in self.rows), default=0) + 1,
            scale=SCALE,
            **options,
        )
        return out.double().cpu().numpy()

    def expected(self, *, sinks: Any = None, parts: int | None = None, **options: Any) -> Any:
        keys, values, queries = (one.double().cpu().numpy() for one in (self.keys, self.values, self.queries))
        beside = None if sinks is None else sinks.double().cpu().numpy()
        out = np.full((*queries.shape[:2], values.shape[3]), np.nan)
        for row, (start, width) in enumerate(self.rows):
            for step in range(width):
                token, blocks = self.firsts[row] + step, list(self.tables[row])
                out[token] = attention(
                    queries[token], keys, values, blocks, start + step, scale=SCALE, sinks=beside, **options
                )
        return out

    def check(self, *, with_sinks: bool = False, **options: Any) -> None:
        """What is NaN is so at the same places: tokens of no row are neither read nor written."""
        sinks = self.sinks if with_sinks else None
        found, expected = self.answer(sinks=sinks, **options), self.expected(sinks=sinks, **options)
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCES[self.dtype])


@needs_triton
@pytest.mark.parametrize(("dtype", "parts"), [(torch.float32, 1), *((dtype, 3) for dtype in TOLERANCES)], ids=str)
def test_chunks_of_all_widths(dtype: torch.dtype, parts: int) -> None:
    Case([(0, 1), (31, 0), (15, 3), (16, 17), (130, 70)], (2, 1), (24, 24), dtype).check(parts=parts)


@needs_triton
@pytest.mark.parametrize(
    ("heads", "sizes", "parts"),
    [
        ((1, 1), (16, 16), 1),
        ((1, 1), (16, 16), 4),
        ((4, 2), (64, 64), 1),
        ((4, 2), (64, 64), None),
        ((4, 1), (24, 16), 3),
        ((7, 1), (5, 3), 1),
        ((7, 1), (5, 3), None),
    ],
)
def test_a_token_or_a_few(heads: tuple[int, int], sizes: tuple[int, int], parts: int | None) -> None:
    Case([(0, 1), (15, 1), (31, 3), (40, 0), (299, 1)], heads, sizes).check(parts=parts)


@needs_triton
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    ("window", "chunk", "cap", "with_sinks"),
    [
        (1, 0, 0.0, True),
        (7, 0, 2.0, False),
        (40, 0, 0.0, False),
        (40, 0, 2.0, True),
        (0, 16, 0.0, False),
        (20, 9, 2.0, True),
        (0, 0, 2.0, True),
    ],
)
def test_what_is_seen_and_how_it_weighs(window: int, chunk: int, cap: float, with_sinks: bool, parts: int) -> None:
    case = Case([(0, 1), (33, 1), (60, 25), (7, 0), (140, 3)], (2, 1), (16, 16), window=0 if chunk else window)
    case.check(window=window, chunk=chunk, with_sinks=with_sinks, cap=cap, parts=parts)


@needs_triton
@pytest.mark.parametrize("parts", [1, 2, None])
@pytest.mark.parametrize("count", [0, 1, 33])
def test_as_many_rows_as_there_are(count: int, parts: int | None) -> None:
    Case([(7 * row % 50, row % 3 + (count == 1)) for row in range(count)]).check(parts=parts)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiles_of_many_tokens(dtype: torch.dtype) -> None:
    """More tokens than a tile has, behind a text and without one."""
    Case([(0, 140), (61, 133)], (2, 2), (16, 16), dtype).check(window=70, parts=1)


@needs_triton
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")  # said by the interpreter
@pytest.mark.parametrize("parts", [1, 2])
def test_scores_far_apart(parts: int) -> None:
    """The largest score decides alone, whatever its size; NaN is handed on."""
    case = Case([(140, 1), (40, 1)])
    case.queries *= 3000
    case.check(parts=parts)
    case.queries[2] = torch.nan
    found, expected = case.answer(parts=parts), case.expected()
    assert np.isnan(found[2]).all()
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=2e-5)


@needs_triton
def test_tokens_without_a_slot_are_not_written() -> None:
    from trellm.kernels.attention.triton_paged import write_paged

    torch.manual_seed(0)
    for heads, sizes in ((1, (16, 16)), (3, (24, 5)), (70, (128, 128))):
        keys, values = (torch.zeros(4, heads, BLOCK, size, device=DEVICE) for size in sizes)
        new = [torch.randn(5, heads, size, device=DEVICE) for size in sizes]
        slots = torch.tensor([17, -1, 63, 0, 16], dtype=torch.int32, device=DEVICE)
        write_paged(keys, values, *new, slots)
        for stored, given in zip((keys, values), new, strict=True):
            expected = torch.zeros_like(stored)
            for token, (block, place) in ((0, (1, 1)), (2, (3, 15)), (3, (0, 0)), (4, (1, 0))):
                expected[block, :, place] = given[token]
            torch.testing.assert_close(stored, expected, rtol=0, atol=0)
        write_paged(keys, values, *(one[:0] for one in new), slots[:0])


@needs_triton
def test_the_work_is_cut_as_the_machine_asks() -> None:
    from trellm.kernels.attention.triton_paged import DeviceProperties, cut_work

    machine = DeviceProperties(132, 160 << 10)
    one = cut_work(machine, 1, 8, 4, 1, 32768, (128, 128), 2, None)
    assert one.rows == 16
    assert one.parts == 33
    assert cut_work(machine, 64, 8, 4, 1, 32768, (128, 128), 2, None).parts == 1
    assert cut_work(machine, 1, 8, 4, 1, 100, (128, 128), 2, None).parts == 1
    many = cut_work(machine, 1, 8, 4, 2048, 2048, (128, 128), 2, None)
    assert (many.tokens, many.rows, many.parts) == (32, 128, 1)
    for sizes in ((16, 16), (128, 128), (192, 128), (256, 256), (576, 512)):
        for bytes_each in (2, 4, 8):
            for group in (1, 7, 16, 71, 128):
                for widest in (1, 4, 500):
                    cut = cut_work(DeviceProperties(20, 64 << 10), 3, 2, group, widest, 5000, sizes, bytes_each, None)
                    assert cut.tokens >= 1
                    assert cut.tokens * group <= cut.rows
