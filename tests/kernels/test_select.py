"""Argmax, log-sum-exp, sampling and the best k, against plain NumPy and against transformers."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper
from trellm import kernels
from trellm.kernels import EMPTY, NAN, OK
from trellm.kernels.logits import reference

WIDTHS = [1, 31, 33, 1023, 1024, 1025, 2080, 3333]
DENSITIES = [0.0, "one", 0.01, 0.5, 1.0]
FILTERS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3},
    {"temperature": 2.5},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 5000},
    {"top_p": 0.05},
    {"top_p": 0.8},
    {"top_p": 0.9999},
    {"min_p": 0.2},
    {"min_p": 1.0},
    {"temperature": 1.7, "top_k": 50, "top_p": 0.9, "min_p": 0.05},
]


def some_logits(rng: np.random.Generator, rows: int, width: int, ties: bool = False) -> np.ndarray:
    """Logits float32 [rows, width] with some -inf; with ties, few different values and zeros of both signs."""
    logits = 3 * rng.standard_normal((rows, width))
    if ties:
        logits = np.round(logits / 2) * 2
    logits[rng.random((rows, width)) < 0.02] = -np.inf
    return logits.astype(np.float32)


def some_masks(rng: np.random.Generator, rows: int, size: int, density: float | str) -> np.ndarray:
    """Packed masks with bits past the vocabulary set, as nobody should rely on their being clear."""
    if density == "one":
        allowed = np.arange(size) == rng.integers(size, size=(rows, 1))
    else:
        allowed = rng.random((rows, size)) < float(density)
    masks = kernels.pack_mask(allowed)
    if size % 32:
        masks[:, -1] |= np.uint32((0xFFFFFFFF << (size % 32)) & 0xFFFFFFFF)
    return masks


def cases(width: int, density: float | str, ties: bool = False) -> tuple[Any, ...]:
    """Five rows, one without a mask: logits, masks, row numbers, size, allowed, all within the vocabulary."""
    rng = np.random.default_rng(width)
    size = max(1, width - 3)
    logits = some_logits(rng, 5, width, ties)
    masks = some_masks(rng, 4, size, density)
    rows = np.array([2, -1, 0, 3, 2], np.int32)
    allowed = reference.allowed_tokens(5, width, masks, rows, size)
    return logits, masks, rows, size, allowed


def as_kind(logits: np.ndarray, kind: str) -> tuple[Any, np.ndarray]:
    """The logits as the kernels are given them, and their values as float32."""
    if kind == "strided":
        whole = torch.full((logits.shape[0], logits.shape[1] + 3), float("nan"))
        whole[:, : logits.shape[1]] = torch.from_numpy(logits)
        return whole[:, : logits.shape[1]], logits
    if kind == "numpy strided":
        whole = np.full((logits.shape[0], logits.shape[1] + 3), np.nan, np.float32)
        whole[:, : logits.shape[1]] = logits
        return whole[:, : logits.shape[1]], logits
    if kind == "numpy float16":
        return logits.astype(np.float16), logits.astype(np.float16).astype(np.float32)
    if kind == "numpy":
        return logits, logits
    given = torch.from_numpy(logits).to(getattr(torch, kind))
    return given, given.float().numpy()


KINDS = ["numpy", "numpy strided", "numpy float16", "float32", "float16", "bfloat16", "strided"]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("ties", [False, True])
def test_argmax_and_logprobs_are_the_reference(width: int, density: float | str, ties: bool) -> None:
    logits, masks, rows, size, allowed = cases(width, density, ties)
    choice = kernels.masked_argmax(logits, masks, rows, size)
    full = kernels.masked_argmax(logits, masks, rows, size, logprobs=True)
    sums = kernels.logsumexp(logits, masks, rows, size)
    assert choice.logprobs is None
    for row in range(5):
        token = reference.argmax(logits[row], allowed[row])
        assert choice.tokens[row] == full.tokens[row] == token
        assert choice.status[row] == full.status[row] == reference.status(logits[row], allowed[row])
        masked = reference.logsumexp(logits[row], allowed[row])
        raw = reference.logsumexp(logits[row, :size], np.ones(size, np.bool_))
        assert sums.masked[row] == pytest.approx(masked, abs=2e-6)
        assert sums.raw[row] == pytest.approx(raw, abs=2e-6)
        if token >= 0:
            assert full.logprobs[row] == pytest.approx(logits[row, token] - masked, abs=2e-6)
            assert full.raw_logprobs[row] == pytest.approx(logits[row, token] - raw, abs=2e-6)
        else:
            assert np.isnan([full.logprobs[row], full.raw_logprobs[row]]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_logits_gives_the_same(kind: str) -> None:
    logits, masks, rows, size, _ = cases(1061, 0.3)
    given, values = as_kind(logits, kind)
    choice = kernels.masked_argmax(given, masks, rows, size, logprobs=True)
    expected = kernels.masked_argmax(values, masks, rows, size, logprobs=True)
    drawn = kernels.masked_sample(given, 0.4, masks, rows, size, top_p=0.9)
    best = kernels.masked_topk(given, 3, masks, rows, size)
    for found, wanted in ((choice.tokens, expected.tokens), (choice.status, expected.status)):
        np.testing.assert_array_equal(found, wanted)
    for found, wanted in ((choice.logprobs, expected.logprobs), (choice.raw_logprobs, expected.raw_logprobs)):
        assert found is not None and wanted is not None
        # Each kind is compiled for itself and may add up in another order.
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(drawn.tokens, kernels.masked_sample(values, 0.4, masks, rows, size, top_p=0.9).tokens)
    np.testing.assert_array_equal(best.tokens, kernels.masked_topk(values, 3, masks, rows, size).tokens)


def test_only_logits_that_count_can_spoil_a_row() -> None:
    logits = np.zeros((6, 70), np.float32)
    logits[0, 3], logits[1, 4], logits[2, 5], logits[3, 68], logits[4, 6] = np.nan, np.nan, np.inf, np.nan, -np.nan
    logits[5] = -np.inf
    masks = kernels.pack_mask(np.tile(np.isin(np.arange(67), [3, 5, 6, 40]), (6, 1)))
    choice = kernels.masked_argmax(logits, masks, size=67)
    assert choice.status.tolist() == [NAN, OK, NAN, OK, NAN, EMPTY]
    assert choice.tokens.tolist() == [-1, 3, -1, 3, -1, -1]
    whole = kernels.masked_argmax(logits, masks, size=67, logprobs=True)
    assert whole.status.tolist() == [NAN, NAN, NAN, OK, NAN, EMPTY]
    assert whole.tokens.tolist() == [-1, -1, -1, 3, -1, -1]
    drawn = kernels.masked_sample(logits, 0.9, masks, size=67)
    assert drawn.status.tolist() == choice.status.tolist()
    assert drawn.tokens.tolist() == [-1, 40, -1, 40, -1, -1]
    assert kernels.masked_sample(logits, 0.9, masks, size=67, logprobs=True).tokens.tolist()[1] == -1
    best = kernels.masked_topk(logits, 2, masks, size=67)
    assert best.status.tolist() == whole.status.tolist()
    assert best.tokens[:, 0].tolist() == [-1, -1, -1, 3, -1, -1]
    assert kernels.masked_topk(logits, 2, masks, size=67, normalise="masked").tokens[1].tolist() == [3, 5]


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize(("width", "density"), [(1, 1.0), (33, 0.5), (1025, 0.01), (2080, 1.0), (3333, 0.5)])
def test_sampling_inverts_the_distribution_of_the_reference(
    filters: dict[str, Any], width: int, density: float
) -> None:
    logits, masks, rows, size, allowed = cases(width, density)
    uniforms = np.linspace(0, 0.99999, 23)
    for row in range(5):
        if reference.status(logits[row], allowed[row]):
            continue
        probabilities = reference.filtered(logits[row], allowed[row], **filters)
        reached = np.cumsum(probabilities)
        number = np.full(len(uniforms), rows[row])
        drawn = kernels.masked_sample(
            np.tile(logits[row], (len(uniforms), 1)), uniforms, masks, number, size, **filters
        )
        for token, uniform in zip(drawn.tokens, uniforms, strict=True):
            assert probabilities[token] > 0
            assert reached[token] - probabilities[token] - 1e-5 <= uniform <= reached[token] + 1e-5


def support(logits: np.ndarray, mask: np.ndarray, **filters: Any) -> set[int]:
    """Every token that sampling can draw, found by drawing on a fine grid of uniform numbers."""
    uniforms = np.linspace(0, 1, 20_000, endpoint=False)
    tiled, rows = np.tile(logits, (len(uniforms), 1)), np.zeros(len(uniforms), np.int32)
    return set(kernels.masked_sample(tiled, uniforms, mask[None], rows, **filters).tokens.tolist())


@pytest.mark.parametrize("filters", FILTERS)
def test_filters_keep_what_transformers_keeps(filters: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    logits = rng.permutation(np.linspace(-0.5, 1.2, 48)).astype(np.float32)
    allowed = rng.random(48) < 0.7
    scores = torch.from_numpy(np.where(allowed, logits, -np.inf).astype(np.float32))[None]
    makers = {
        "temperature": TemperatureLogitsWarper,
        "top_k": TopKLogitsWarper,
        "top_p": TopPLogitsWarper,
        "min_p": MinPLogitsWarper,
    }
    for name, make in makers.items():
        if name in filters:
            scores = make(filters[name])(torch.zeros((1, 1), dtype=torch.int64), scores)
    expected = set(np.flatnonzero(np.isfinite(scores[0].numpy())).tolist())
    assert support(logits, kernels.pack_mask(allowed), **filters) == expected


def test_equals_of_the_kth_logit_stay_and_the_lower_of_equals_fill_a_nucleus() -> None:
    logits = np.array([1, 2, 1, 2, 1, 0], np.float32)
    everything = kernels.pack_mask(np.ones(6, np.bool_))
    assert support(logits, everything, top_k=3) == {0, 1, 2, 3, 4}
    assert support(np.zeros(40, np.float32), kernels.pack_mask(np.ones(40, np.bool_)), top_p=0.5) == set(range(20))


def test_filters_may_differ_between_rows_and_do_not_depend_on_the_batch() -> None:
    logits, masks, rows, size, _ = cases(1025, 0.5)
    uniforms = np.array([0.1, 0.5, 0.7, 0.2, 0.9])
    each = {
        "temperature": np.array([0.5, 1, 2, 1, 1]),
        "top_k": np.array([0, 5, 0, 3, 0]),
        "top_p": np.array([1, 1, 0.7, 0.6, 1]),
        "min_p": np.array([0, 0, 0, 0, 0.1]),
    }
    together = kernels.masked_sample(logits, uniforms, masks, rows, size, **each)
    alone = [
        kernels.masked_sample(
            logits[[row]], uniforms[row], masks, rows[[row]], size, **{n: v[row] for n, v in each.items()}
        ).tokens[0]
        for row in range(5)
    ]
    assert together.tokens.tolist() == alone


@pytest.mark.parametrize("temperature", [1e-30, 1e-6, 1e30])
def test_extreme_temperatures_draw_something_allowed(temperature: float) -> None:
    logits, masks, rows, size, allowed = cases(1025, 0.5)
    drawn = kernels.masked_sample(logits, 0.99, masks, rows, size, temperature=temperature)
    assert all(allowed[row, token] for row, token in enumerate(drawn.tokens))
    if temperature < 1:
        assert drawn.tokens.tolist() == kernels.masked_argmax(logits, masks, rows, size).tokens.tolist()


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("temperature: must be finite and above 0", {"temperature": 0.0}),
        ("temperature: NaN", {"temperature": float("nan")}),
        ("top_k: must be a whole number", {"top_k": -1}),
        ("top_k: must be a whole number", {"top_k": 1.5}),
        (r"top_p: must lie in \(0, 1\]", {"top_p": 0.0}),
        (r"min_p: must lie in \[0, 1\]", {"min_p": 1.5}),
        (r"uniforms: numbers must lie in \[0, 1\)", {"uniforms": 1.0}),
        ("uniforms: a number for each of 2 rows", {"uniforms": [0.5, 0.5, 0.5]}),
    ],
)
def test_wrong_sampling_numbers_are_refused(message: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=message):
        kernels.masked_sample(np.zeros((2, 4), np.float32), **({"uniforms": 0.5} | arguments))


@pytest.mark.parametrize("normalise", ["raw", "masked", "none"])
@pytest.mark.parametrize(("width", "density", "k"), [(3, 1.0, 2), (33, 0.5, 40), (1025, 0.01, 4), (2080, 0.5, 100)])
@pytest.mark.parametrize("ties", [False, True])
def test_the_best_k_are_the_reference(normalise: str, width: int, density: float, k: int, ties: bool) -> None:
    logits, masks, rows, size, allowed = cases(width, density, ties)
    logits, rows, allowed = np.tile(logits, (2, 1))[:9], np.tile(rows, 2)[:9], np.tile(allowed, (2, 1))[:9]
    scores = np.array([0, -1, -np.inf, -0.5, -3, 0, 0, -0.25, -1e9])
    k = min(k, 3 * size)
    best = kernels.masked_topk(logits, k, masks, rows, size, scores=scores, group=3, normalise=normalise)
    expected = reference.best(logits[:, :size], allowed[:, :size], k, scores, 3, normalise)
    for group in range(3):
        wanted = expected[group] + [(-np.inf, -1, -1)] * (k - len(expected[group]))
        np.testing.assert_allclose(best.scores[group], [score for score, _, _ in wanted], atol=4e-6)
        if not ties:
            found = zip(best.rows[group].tolist(), best.tokens[group].tolist(), strict=True)
            assert list(found) == [(row, token) for _, row, token in wanted]
    for row in range(9):
        if normalise != "none" and scores[row] > -np.inf:
            sums = kernels.logsumexp(logits[[row]], masks, rows[[row]], size)
            expected_sum = (sums.raw if normalise == "raw" else sums.masked)[0]
            assert best.normaliser[row] == pytest.approx(expected_sum, abs=1e-6)


def test_the_best_of_equals_is_the_lower_row_then_the_lower_token() -> None:
    best = kernels.masked_topk(np.zeros((4, 3000), np.float32), 5, group=2, normalise="none")
    assert best.rows.tolist() == [[0] * 5, [2] * 5]
    assert best.tokens.tolist() == [[0, 1, 2, 3, 4]] * 2


def test_beams_are_scored_as_log_softmax_and_topk_do() -> None:
    logits = torch.randn((8, 5000), generator=torch.Generator().manual_seed(3))
    scores = torch.randn(8, generator=torch.Generator().manual_seed(4))
    best = kernels.masked_topk(logits, 8, scores=scores, group=4)
    flat = (torch.log_softmax(logits, -1) + scores[:, None]).view(2, -1)
    values, places = torch.topk(flat, 8)
    np.testing.assert_allclose(best.scores, values.numpy(), atol=1e-5)
    np.testing.assert_array_equal(best.tokens, (places % 5000).numpy())
    np.testing.assert_array_equal(best.rows, (places // 5000 + torch.tensor([[0], [4]])).numpy())


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("k: 0; possible are 1 to 8", {"k": 0}),
        ("k: 9; possible are 1 to 8", {"k": 9}),
        ("group: 2 rows cannot be divided into groups of 3", {"k": 1, "group": 3}),
        ("group: 2 rows", {"k": 1, "group": 0}),
        ("normalise: 'both'; possible are 'raw'", {"k": 1, "normalise": "both"}),
        ("scores: a number for each of 2 rows", {"k": 1, "scores": [0.0]}),
        ("scores: NaN", {"k": 1, "scores": float("nan")}),
    ],
)
def test_wrong_beams_are_refused(message: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=message):
        kernels.masked_topk(np.zeros((2, 8), np.float32), **({"group": 1} | arguments))


def test_logprobs_of_given_tokens() -> None:
    logits, masks, rows, size, allowed = cases(1025, 0.5)
    tokens = [int(np.flatnonzero(allowed[row])[0]) for row in range(4)] + [-1]
    choice = kernels.token_logprobs(logits, tokens, masks, rows, size)
    sums = kernels.logsumexp(logits, masks, rows, size)
    expected = logits[np.arange(4), tokens[:4]] - sums.masked[:4]
    np.testing.assert_allclose(choice.logprobs, [*expected, np.nan])
    np.testing.assert_allclose(choice.raw_logprobs[:4], logits[np.arange(4), tokens[:4]] - sums.raw[:4])
    with pytest.raises(ValueError, match="tokens: ids must lie in"):
        kernels.token_logprobs(logits, size, masks, rows, size)


def test_weights_are_powers_of_two_to_the_accuracy_promised() -> None:
    from trellm.kernels.logits.blocks import weigh

    values = -np.linspace(0, 150, 30_001, dtype=np.float32)
    values[-1] = np.nan
    weights = np.empty_like(values)
    total = weigh(values, len(values), np.float32(0), np.float32(1), weights)
    small = ~(values > -125)
    assert (weights[small] == 0).all()
    exact = np.exp2(values[~small].astype(np.float64))
    assert (np.abs(weights[~small] / exact - 1) < 4e-7 - values[~small] * 1e-7).all()
    assert total == pytest.approx(exact.sum(), rel=1e-6)


def test_no_rows_at_all() -> None:
    logits = np.zeros((0, 10), np.float32)
    assert kernels.masked_argmax(logits).tokens.shape == (0,)
    assert kernels.masked_sample(logits, []).tokens.shape == (0,)
    assert kernels.masked_topk(logits, 2).tokens.shape == (0, 2)
