"""Packed masks: packing, applying, listing, and the demands on arguments."""

import numpy as np
import pytest
import torch
from trellm import kernels
from trellm.kernels.logits import reference

SIZES = [1, 31, 32, 33, 64, 1023, 1024, 1025, 2085]
DENSITIES = [0.0, "one", 0.02, 0.5, 1.0]


def some_masks(rng: np.random.Generator, rows: int, size: int, density: float | str) -> np.ndarray:
    """Allowed tokens, bool [rows, size]."""
    if density == "one":
        return np.arange(size) == rng.integers(size, size=(rows, 1))
    return rng.random((rows, size)) < float(density)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("density", DENSITIES)
def test_packing_and_listing(size: int, density: float | str) -> None:
    allowed = some_masks(np.random.default_rng(size), 3, size, density)
    masks = kernels.pack_mask(allowed)
    assert masks.dtype == np.uint32
    assert masks.shape == (3, kernels.words_for(size))
    np.testing.assert_array_equal(reference.allowed_tokens(3, size, masks, size=size), allowed)
    np.testing.assert_array_equal(kernels.unpack_mask(masks, size), allowed)
    np.testing.assert_array_equal(kernels.popcount(masks), allowed.sum(axis=1))
    for mask, tokens in zip(masks, allowed, strict=True):
        ids = kernels.allowed_ids(mask, size)
        assert ids.dtype == np.int32
        np.testing.assert_array_equal(ids, np.flatnonzero(tokens))


def test_bits_past_the_vocabulary_are_no_tokens() -> None:
    mask = np.full(2, 0xFFFFFFFF, np.uint32)
    np.testing.assert_array_equal(kernels.allowed_ids(mask, 35), np.arange(35))
    np.testing.assert_array_equal(kernels.allowed_ids(torch.from_numpy(mask.view(np.int32))), np.arange(64))
    assert kernels.popcount(mask[None]).tolist() == [64]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("padding", [0, 7])
@pytest.mark.parametrize("size", [1, 33, 1024, 1061])
def test_apply_mask_is_the_reference(size: int, padding: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(size + padding)
    masks = kernels.pack_mask(some_masks(rng, 4, size, 0.3))
    masks[1], masks[2] = 0xFFFFFFFF, 0
    rows = np.array([3, -1, 0, 2, 1, 3], np.int32)
    whole = torch.randn((6, size + padding + 5), generator=torch.Generator().manual_seed(1)).to(dtype)
    logits = whole[:, : size + padding]
    logits[0, :] = float("nan")
    before = whole.clone()
    kernels.apply_mask(logits, masks, rows, size)
    allowed = reference.allowed_tokens(6, size + padding, masks, rows, size)
    expected = reference.apply_mask(before[:, : size + padding].float().numpy(), allowed)
    np.testing.assert_array_equal(logits.float().numpy(), expected)
    assert torch.equal(whole[:, size + padding :], before[:, size + padding :])


def test_a_torch_table_masks_numpy_logits() -> None:
    masks = kernels.pack_mask(np.arange(40)[None] % 2 == 0)
    logits = np.zeros((2, 40), np.float32)
    kernels.apply_mask(logits, torch.from_numpy(masks.view(np.int32)), torch.tensor([0, 0]))
    assert (logits[:, ::2] == 0).all()
    assert np.isneginf(logits[:, 1::2]).all()


GOOD = np.zeros((2, 40), np.float32)
MASKS = np.zeros((2, 2), np.uint32)
ROWS = np.zeros(2, np.int32)


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (TypeError, "logits: dtype float64", (GOOD.astype(float),)),
        (TypeError, "logits: a NumPy array or torch tensor", ([[1.0]],)),
        (TypeError, "masks: dtype uint64", (GOOD, MASKS.astype(np.uint64))),
        (TypeError, "rows: dtype float32", (GOOD, MASKS, ROWS.astype(np.float32))),
        (ValueError, r"logits: shape \(40,\)", (GOOD[0],)),
        (ValueError, "logits: the values of a row", (np.asfortranarray(GOOD),)),
        (ValueError, "logits: the values of a row", (torch.zeros(40, 2).T,)),
        (ValueError, "logits: rows must be distinct", (torch.zeros(1, 40).expand(2, 40),)),
        (ValueError, "logits: rows must be distinct and not empty", (GOOD[:, :0],)),
        (ValueError, r"masks: shape \(2,\)", (GOOD, MASKS[0])),
        (ValueError, "masks: the table must be contiguous", (GOOD, np.zeros((2, 4), np.uint32)[:, :2])),
        (ValueError, "masks: 3 words a row do not fit logits of 40 values", (GOOD, np.zeros((2, 3), np.uint32))),
        (ValueError, "masks: 3 masks for 2 rows", (GOOD, np.zeros((3, 2), np.uint32))),
        (ValueError, "rows: 3 row numbers for 2 rows", (GOOD, MASKS, np.zeros(3, np.int32))),
        (ValueError, r"rows: shape \(2, 1\)", (GOOD, MASKS, ROWS[:, None])),
        (ValueError, "rows: row numbers need masks", (GOOD, None, ROWS)),
        (ValueError, "rows: mask row 2 is not in the table of 2 rows", (GOOD, MASKS, ROWS + 2)),
        (ValueError, "rows: mask row -2", (GOOD, MASKS, ROWS - 2)),
        (ValueError, "size: the vocabulary has 41 tokens", (GOOD, MASKS, ROWS, 41)),
        (ValueError, "size: the vocabulary has 0 tokens", (GOOD, None, None, 0)),
        (ValueError, "masks: 32 tokens need rows of 1 words, these have 2", (GOOD, MASKS, ROWS, 32)),
        (ValueError, "masks: on meta", (GOOD, torch.zeros((2, 2), dtype=torch.int32, device="meta"))),
        (ValueError, "rows: on meta", (GOOD, MASKS, torch.zeros(2, dtype=torch.int32, device="meta"))),
    ],
)
@pytest.mark.parametrize("kernel", [kernels.apply_mask, kernels.masked_argmax, kernels.logsumexp])
def test_wrong_arguments_are_refused(kernel, error, message, arguments) -> None:
    before = GOOD.copy()
    with pytest.raises(error, match=message):
        kernel(*arguments)
    np.testing.assert_array_equal(GOOD, before)


def test_a_read_only_array_is_not_masked() -> None:
    logits = np.zeros((1, 4), np.float32)
    logits.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kernels.apply_mask(logits)
    assert kernels.masked_argmax(logits).tokens.tolist() == [0]


@pytest.mark.parametrize(
    ("message", "mask", "size"),
    [
        (r"mask: shape \(2, 2\)", MASKS, None),
        ("mask: 65 tokens need 3 words, this mask has 2", MASKS[0], 65),
        ("must be contiguous", np.zeros(4, np.uint32)[::2], None),
    ],
)
def test_a_wrong_single_mask_is_refused(message, mask, size) -> None:
    with pytest.raises(ValueError, match=message):
        kernels.allowed_ids(mask, size)
