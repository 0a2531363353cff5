"""The Triton kernels against the CPU's: on a GPU if there is one, in Triton's interpreter otherwise.

The interpreter has to be chosen before Triton is imported, so these tests are run by themselves with it.
"""

import os
from typing import Any

import numpy as np
import pytest
import torch
from trellm import kernels
from trellm.kernels.logits.contracts import check

from ..thresholds import thresholds

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if CUDA and not INTERPRETED else "cpu"

needs_triton = pytest.mark.skipif(not (CUDA or INTERPRETED), reason="no GPU; TRITON_INTERPRET=1 takes its place")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
BLOCK = 1024 if DEVICE == "cuda" else 64  # the interpreter is slow, above all at ranking a block
WIDTHS = [1, BLOCK // 2 + 1, BLOCK, BLOCK + 3, 3 * BLOCK + 8]
FILTERS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5, "min_p": 0.1},
    {"top_k": 3},
    {"top_p": 0.7},
    {"temperature": 1.5, "top_k": np.array([0, 4, 9, 1, 0, 2]), "top_p": 0.9, "min_p": 0.05},
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    if CUDA or INTERPRETED:
        blocks = dict.fromkeys(("block_of_masks", "block_of_scans", "block_of_choices"), BLOCK)
        thresholds(monkeypatch, **blocks, block_of_cuts=2 * BLOCK)


def case(width: int, dtype: torch.dtype = torch.float32) -> tuple[Any, Any, Any, int]:
    """Six rows of a strided tensor with NaN, -inf, +inf and forbidden rows: logits, masks, row numbers, size."""
    rng = np.random.default_rng(width)
    size = max(1, width - 2)
    logits = torch.from_numpy(2 * rng.standard_normal((6, width + 4)).astype(np.float32)).to(dtype)
    logits[:, 5::17] = float("-inf")
    logits[3, 0] = float("nan")
    logits[4, size - 1] = float("inf")
    allowed = rng.random((4, size)) < np.array([[0.5], [1.0], [0.0], [0.02]])
    rows = np.array([0, -1, 2, 0, 3, 1], np.int32)
    return logits[:, :width], kernels.pack_mask(allowed), rows, size


def on_device(logits: Any, masks: Any, rows: Any, size: int) -> tuple[Any, ...]:
    """What the Triton functions are called with: logits, masks, row numbers, contract."""
    moved = (logits.to(DEVICE), torch.from_numpy(masks.view(np.int32)).to(DEVICE), torch.from_numpy(rows).to(DEVICE))
    return *moved, check(*moved, size)


def host(found: tuple[Any, ...]) -> list[np.ndarray]:
    return [one.cpu().numpy() for one in found]


@needs_triton
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_apply_mask(width: int, dtype: torch.dtype) -> None:
    from trellm.kernels.logits import triton_mask

    given = case(width, dtype)
    moved = on_device(given[0].clone(), *given[1:])
    triton_mask.apply_mask(*moved)
    kernels.apply_mask(*given)
    torch.testing.assert_close(moved[0].cpu(), given[0], rtol=0, atol=0, equal_nan=True)


@needs_triton
@pytest.mark.parametrize(
    ("width", "dtype"), [*((width, torch.float32) for width in WIDTHS), *((BLOCK + 3, one) for one in DTYPES[1:])]
)
def test_argmax_and_log_sum_exp(width: int, dtype: torch.dtype) -> None:
    from trellm.kernels.logits import triton_select

    given = case(width, dtype)
    moved = on_device(*given)
    for logprobs in (False, True):
        expected = kernels.masked_argmax(*given, logprobs=logprobs)
        found = host(triton_select.masked_argmax(*moved, logprobs))
        np.testing.assert_array_equal(found[0], expected.tokens)
        np.testing.assert_array_equal(found[1], expected.status)
        assert len(found) == (4 if logprobs else 2)
    for one, other in zip(found[2:], expected[2:], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    masked, raw, status = host(triton_select.logsumexp(*moved, True))
    sums = kernels.logsumexp(*given)
    np.testing.assert_array_equal(status, sums.status)
    fine = status != kernels.NAN
    np.testing.assert_allclose(masked[fine], sums.masked[fine], atol=1e-5)
    np.testing.assert_allclose(raw[fine], sums.raw[fine], atol=1e-5)
    tokens = np.array([0, 0, -1, 0, 0, 0], np.int32)
    wanted = kernels.token_logprobs(given[0], tokens, *given[1:])
    for one, other in zip(
        host(triton_select.token_logprobs(moved[0], tokens, *moved[1:]))[2:], wanted[2:], strict=True
    ):
        np.testing.assert_allclose(one[fine], other[fine], atol=1e-5)


@needs_triton
@pytest.mark.parametrize(
    ("width", "filters"),
    [*((BLOCK + 3, filters) for filters in FILTERS), (BLOCK // 2 + 1, FILTERS[0]), (BLOCK // 2 + 1, FILTERS[-1])],
)
def test_sampling(width: int, filters: dict[str, Any]) -> None:
    from trellm.kernels.logits import triton_select
    from trellm.kernels.logits.select import _sampling

    given = case(width)
    moved = on_device(*given)
    numbers: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} | filters
    for uniform in (0.37,) if filters else (0.0, 0.37):
        uniforms, settings = _sampling(moved[3], uniform, *numbers.values())
        tokens, status, chosen, raw = host(triton_select.masked_sample(*moved, uniforms, settings, True))
        expected = kernels.masked_sample(given[0], uniform, *given[1:], **filters, logprobs=True)
        np.testing.assert_array_equal(status, expected.status)
        np.testing.assert_array_equal(tokens, expected.tokens)
        np.testing.assert_allclose(chosen, expected.logprobs, atol=1e-5)
        np.testing.assert_allclose(raw, expected.raw_logprobs, atol=1e-5)


@needs_triton
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_the_filters_keep(dtype: torch.dtype) -> None:
    """Many equal logits, among them those at which rows are cut, by each filter alone and by all."""
    from trellm.kernels.logits import reference, triton_mask, triton_scan

    rng = np.random.default_rng(1)
    width = 2 * BLOCK + 9
    logits = np.round(4 * rng.standard_normal((6, width))) / 4
    logits[1:3] = 1.5
    logits[5, ::2] = -np.inf
    allowed = rng.random((6, width)) < 0.7
    allowed[1] = True
    settings = np.array([
        [1.0, 9, 1.0, 0.0], [1.0, width, 0.5, 0.0], [0.3, width, 0.9, 0.0],
        [0.7, 30, 0.6, 0.0], [1.0, width, 1.0, 0.3], [1.3, width // 2, 0.95, 0.02],
    ])  # fmt: skip
    moved = torch.from_numpy(logits).to(DEVICE, dtype)
    masks = torch.from_numpy(kernels.pack_mask(allowed).view(np.int32)).to(DEVICE)
    given = triton_mask.rows_of(moved, masks, None, check(moved, masks, None, width))
    numbers = torch.from_numpy(np.ascontiguousarray(settings.T)).to(DEVICE)
    cuts, lasts = host(triton_scan.cut_rows(given, numbers, triton_scan.scan(given, False).peaks, True))
    for row, (temperature, top_k, top_p, min_p) in enumerate(settings):
        kept = (logits[row] > cuts[row]) | ((logits[row] == cuts[row]) & (np.arange(width) <= lasts[row]))
        expected = reference.filtered(logits[row], allowed[row], temperature, int(top_k), top_p, min_p) > 0
        np.testing.assert_array_equal(kept & allowed[row] & (logits[row] > -np.inf), expected)
        assert 0 < expected.sum() < allowed[row].sum()


@needs_triton
@pytest.mark.parametrize("filters", [FILTERS[0], FILTERS[-1]])
def test_rows_of_which_some_are_greedy(filters: dict[str, Any]) -> None:
    """A temperature of 0 on the device, as what is captured in a graph takes it: such rows get their best token."""
    from trellm.kernels.logits import triton_mask, triton_select
    from trellm.kernels.logits.select import _sampling

    given = case(BLOCK + 3)
    moved = on_device(*given)
    numbers: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} | filters
    uniforms, settings = _sampling(moved[3], 0.61, *numbers.values())
    drawn = kernels.masked_sample(given[0], 0.61, *given[1:], **filters)
    best = kernels.masked_argmax(*given)
    greedy = np.arange(6) % 2 == 0
    settings[0, greedy] = 0
    rows = triton_mask.rows_of(*moved)
    both = torch.from_numpy(np.concatenate([settings, uniforms[None]])).to(DEVICE)
    tokens, status = host(triton_select.sample_rows(rows, both, filtered=bool(filters)))
    np.testing.assert_array_equal(status, best.status)
    np.testing.assert_array_equal(tokens, np.where(greedy, best.tokens, drawn.tokens))
    for one, other in zip(host(triton_select.argmax_rows(rows)), best[:2], strict=True):
        np.testing.assert_array_equal(one, other)


@needs_triton
@pytest.mark.parametrize(
    ("width", "k", "normalise"),
    [*((BLOCK + 3, 3, normalise) for normalise in ("raw", "masked", "none")), (BLOCK // 2 + 1, BLOCK + 1, "masked")],
)
def test_best_k_of_beams(width: int, k: int, normalise: str) -> None:
    from trellm.kernels.logits import triton_select

    given = case(width)
    moved = on_device(*given)
    scores = np.array([0, -1, 0, -2, -np.inf, -0.5])
    best = host(triton_select.masked_topk(*moved, k, scores, 3, normalise))
    expected = kernels.masked_topk(given[0], k, *given[1:], scores=scores, group=3, normalise=normalise)
    np.testing.assert_allclose(best[0], expected.scores, atol=1e-5)
    np.testing.assert_array_equal(best[1], expected.rows)
    np.testing.assert_array_equal(best[2], expected.tokens)
    np.testing.assert_array_equal(best[4], expected.status)
    fine = expected.status != kernels.NAN
    np.testing.assert_allclose(best[3][fine], expected.normaliser[fine], atol=1e-5)


@needs_triton
def test_blocks_of_the_size_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from trellm.kernels.logits import triton_select

    thresholds(monkeypatch, block_of_scans=1024)
    given = case(2051)
    tokens, _ = host(triton_select.masked_argmax(*on_device(*given), False))
    np.testing.assert_array_equal(tokens, kernels.masked_argmax(*given).tokens)
    assert (tokens >= 0).sum() > 2
    best = host(triton_select.masked_topk(*on_device(*given), 2, np.zeros(6), 6, "raw"))
    np.testing.assert_array_equal(best[2], kernels.masked_topk(given[0], 2, *given[1:], group=6).tokens)


@needs_triton
def test_a_row_number_outside_the_table_allows_nothing() -> None:
    from trellm.kernels.logits import triton_select

    logits, masks, _, size = case(33)
    moved = on_device(logits, masks, np.array([4, -2, 1000, 1, 1, -1], np.int32), size)
    tokens, status = host(triton_select.masked_argmax(*moved, False))
    assert status[:3].tolist() == [kernels.EMPTY] * 3
    assert tokens[:3].tolist() == [-1] * 3


@needs_triton
@pytest.mark.skipif(DEVICE == "cpu", reason="the public functions choose Triton by the device, so this needs a GPU")
def test_logits_on_a_gpu_are_handled_there() -> None:
    given = case(1027)
    moved = [
        one.to(DEVICE) for one in (given[0], torch.from_numpy(given[1].view(np.int32)), torch.from_numpy(given[2]))
    ]
    choice = kernels.masked_sample(moved[0], 0.3, *moved[1:], given[3], top_p=0.9, logprobs=True)
    assert choice.tokens.device.type == "cuda"
    expected = kernels.masked_sample(given[0], 0.3, *given[1:], top_p=0.9, logprobs=True)
    np.testing.assert_array_equal(choice.tokens.cpu().numpy(), expected.tokens)
    best = kernels.masked_topk(moved[0], 4, *moved[1:], given[3], group=2)
    np.testing.assert_array_equal(
        best.tokens.cpu().numpy(), kernels.masked_topk(given[0], 4, *given[1:], group=2).tokens
    )
    kernels.apply_mask(moved[0], *moved[1:], given[3])
    kernels.apply_mask(*given)
    torch.testing.assert_close(moved[0].cpu(), given[0], rtol=0, atol=0, equal_nan=True)
