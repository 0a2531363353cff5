"""What lies between a layer's products: Triton's kernels and torch's operations against definitions in NumPy.

The kernels run on a GPU if there is one, in Triton's interpreter otherwise, which has to be chosen before Triton is
imported, so these tests are run by themselves with it.
"""

import os
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from trellm.kernels.decoder import operations, plain
from trellm.kernels.decoder.plain import HeadNorms, Heads

from ..thresholds import thresholds

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if CUDA and not INTERPRETED else "cpu"
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
PLACES = 16
EPS = 1e-5
# How far apart two roundings of one number lie, a few times over
FAR = {torch.float32: 1e-5, torch.float64: 2e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}
needs_triton = pytest.mark.skipif(not (CUDA or INTERPRETED), reason="no GPU; TRITON_INTERPRET=1 takes its place")
WAYS = ["plain", pytest.param("triton", marks=needs_triton)]


def way(name: str) -> Any:
    """The functions norm, place and gate of a way to compute them."""
    if name == "plain":
        return plain
    from trellm.kernels.decoder import triton_decoder

    class Kernels:
        norm = staticmethod(triton_decoder.norm)
        place = staticmethod(triton_decoder.place)
        gate = staticmethod(triton_decoder.gate)

    return Kernels


def numbers(seed: int, *shape: int, dtype: torch.dtype) -> torch.Tensor:
    made = np.random.default_rng(seed).standard_normal(shape)
    return torch.from_numpy(made).to(dtype).to(DEVICE)


def exact(tensor: torch.Tensor) -> Any:
    return tensor.cpu().double().numpy()


def rounded(array: Any, dtype: torch.dtype) -> Any:
    return torch.from_numpy(np.asarray(array)).to(dtype).double().numpy()


def near(found: torch.Tensor, expected: Any, dtype: torch.dtype) -> None:
    assert found.dtype == dtype
    np.testing.assert_allclose(exact(found), expected, rtol=FAR[dtype], atol=FAR[dtype])


def unit(states: Any, weight: Any, dtype: torch.dtype) -> Any:
    """A vector over its root mean square, one number after another."""
    size = sum(number * number for number in states) / len(states)
    return [one * rounded(number / (size + EPS) ** 0.5, dtype) for number, one in zip(states, weight, strict=True)]


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(0, 8), (1, 1), (3, 24), (1, 64), (7, 257)])
@pytest.mark.parametrize("adds", [False, True])
def test_norm(name: str, dtype: torch.dtype, rows: int, width: int, adds: bool) -> None:
    residual, added = numbers(1, rows, width, dtype=dtype), numbers(2, rows, width, dtype=dtype)
    weight = numbers(3, width, dtype=dtype)
    sums = rounded(exact(residual) + exact(added), dtype) if adds else exact(residual)
    found = way(name).norm(residual, added if adds else None, weight, EPS)
    assert found.shape == (rows, width)
    if INTERPRETED and dtype == torch.bfloat16:  # the interpreter cuts off where devices round
        near(residual, sums, dtype)
    else:
        np.testing.assert_array_equal(exact(residual), sums)
    expected = [unit(row, exact(weight), dtype) for row in sums]
    near(found, np.array(expected).reshape(rows, width), dtype)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(0, 4), (1, 1), (3, 24), (2, 1030)])
def test_gate(name: str, dtype: torch.dtype, rows: int, width: int) -> None:
    product = numbers(4, rows, 2 * width, dtype=dtype) * 3
    left, right = exact(product)[:, :width], exact(product)[:, width:]
    near(way(name).gate(product), rounded(left / (1 + np.exp(-left)), dtype) * right, dtype)


def placed(product: Any, angles: Any, norms: Any, slots: Any, heads: Heads, dtype: torch.dtype) -> Any:
    """Queries, and what is written where: {(block, head, place): (key, value)}, by complex numbers."""
    queries, written = np.empty((len(product), heads.queries, heads.size)), {}

    def turned(states: Any, token: int) -> Any:
        half = heads.size // 2
        points = (states[:half] + 1j * states[half:]) * (angles[0][token] + 1j * angles[1][token])
        return np.concatenate([points.real, points.imag])

    for token, (row, slot) in enumerate(zip(product, slots, strict=True)):
        split = row.reshape(-1, heads.size)
        for head in range(heads.queries):
            states = split[head] if norms is None else rounded(unit(split[head], norms[0], dtype), dtype)
            queries[token, head] = turned(states, token)
        for head in range(heads.keys):
            states = split[heads.queries + head]
            states = states if norms is None else rounded(unit(states, norms[1], dtype), dtype)
            if slot >= 0:
                at = slot // PLACES, head, slot % PLACES
                written[at] = turned(states, token), split[heads.queries + heads.keys + head]
    return queries, written


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("tokens", "heads"),
    [(0, Heads(2, 1, 8)), (1, Heads(4, 2, 16)), (5, Heads(3, 3, 10)), (5, Heads(4, 1, 2)), (19, Heads(2, 1, 24))],
)
@pytest.mark.parametrize("normed", [False, True])
def test_place(name: str, dtype: torch.dtype, tokens: int, heads: Heads, normed: bool) -> None:
    rng = np.random.default_rng(tokens)
    product = numbers(5, tokens, (heads.queries + 2 * heads.keys) * heads.size, dtype=dtype)
    turns = torch.from_numpy(rng.random((tokens, heads.size // 2)) * 7).to(DEVICE)
    angles = turns.cos().to(dtype), turns.sin().to(dtype)
    weights = [numbers(seed, heads.size, dtype=dtype) for seed in (6, 7)]
    slots = rng.permutation(3 * PLACES)[:tokens]
    slots[1::4] = -1
    stored = [torch.full((3, heads.keys, PLACES, heads.size), 9.0, dtype=dtype, device=DEVICE) for _ in range(2)]
    queries = way(name).place(
        product,
        angles,
        HeadNorms(*weights, EPS) if normed else None,
        torch.from_numpy(slots).to(torch.int32).to(DEVICE),
        tuple(stored),
        heads,
    )
    norms = [exact(weight) for weight in weights] if normed else None
    expected, written = placed(exact(product), [exact(angle) for angle in angles], norms, slots, heads, dtype)
    near(queries, expected, dtype)
    after = [np.full(part.shape, 9.0) for part in stored]
    for (block, head, at), (key, value) in written.items():
        after[0][block, head, at], after[1][block, head, at] = key, value
    near(stored[0], after[0], dtype)
    np.testing.assert_array_equal(exact(stored[1]), after[1])


@needs_triton
@pytest.mark.parametrize(("dtype", "biased"), [(torch.float32, True), (torch.bfloat16, False), (torch.float16, True)])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("count", "width", "tile"),
    [(1, 1, None), (5, 24, None), (7, 64, (2, 32, 2, 1)), (8, 96, (4, 32, 4, 1)), (9, 37, (4, 16, 2, 1))],
)
def test_product_of_a_few_tokens(
    dtype: torch.dtype, biased: bool, tokens: int, count: int, width: int, tile: Any
) -> None:
    from trellm.kernels.decoder.triton_decoder import Tile, can_multiply, multiply

    states, weight = numbers(8, tokens, width, dtype=dtype), numbers(9, count, width + 3, dtype=dtype)[:, :width]
    bias = numbers(10, count, dtype=dtype) if biased else None
    assert can_multiply(states, weight)
    expected = exact(states) @ exact(weight).T + (exact(bias) if bias is not None else 0)
    near(multiply(states, weight, bias, tile=tile and Tile(*tile)), expected, dtype)


# Of two values of each of six things, a half of all combinations: any five of them meet in all ways.
AROUND = [ways for ways in product(range(2), repeat=6) if sum(ways) % 2 == 0]


@needs_triton
@pytest.mark.parametrize(("wide", "few", "biased", "gate", "onto", "normed"), AROUND)
@pytest.mark.parametrize(("count", "width", "tile"), [(5, 24, None), (9, 64, (2, 32, 2, 1)), (8, 37, (4, 16, 2, 1))])
def test_what_lies_around_a_product_of_a_few_tokens(
    wide: int, few: int, biased: int, gate: int, onto: int, normed: int, count: int, width: int, tile: Any
) -> None:
    from trellm.kernels.decoder.triton_decoder import Tile, multiply

    dtype, tokens = (torch.bfloat16, torch.float32)[wide], (4, 1)[few]
    total = 2 * count if gate else count
    states, weight = numbers(8, tokens, width, dtype=dtype), numbers(9, total, width, dtype=dtype) * 0.2
    bias = numbers(10, total, dtype=dtype) if biased else None
    scales = numbers(11, width, dtype=dtype)
    residual = numbers(12, tokens, count, dtype=dtype) if onto else None
    seen = exact(states)
    if normed:
        seen = seen / np.sqrt((seen * seen).mean(1, keepdims=True) + EPS) * exact(scales)
    expected = seen @ exact(weight).T + (exact(bias) if bias is not None else 0)
    if gate:
        left, right = expected[:, :count], expected[:, count:]
        expected = left / (1 + np.exp(-left)) * right
    expected = expected + (exact(residual) if residual is not None else 0)
    found = multiply(
        *(states, weight, bias),
        norm=(scales, EPS) if normed else None,
        gate=bool(gate),
        residual=residual,
        tile=tile and Tile(*tile),
    )
    assert found.shape == (tokens, count)
    assert (found is residual) == bool(onto)
    near(found, expected, dtype)


@needs_triton
def test_which_products_the_kernel_makes() -> None:
    from trellm.kernels.decoder.triton_decoder import can_multiply

    weight = torch.zeros(4, 8)
    assert can_multiply(torch.zeros(4, 8), weight)
    assert not can_multiply(torch.zeros(5, 8), weight)
    assert not can_multiply(torch.zeros(0, 8), weight)
    assert not can_multiply(torch.zeros(1, 8, dtype=torch.float64), weight.double())
    assert not can_multiply(torch.zeros(1, 8, dtype=torch.bfloat16), weight)
    assert not can_multiply(torch.zeros(1, 4), torch.zeros(8, 4).T.contiguous().T[:4])


@pytest.mark.skipif(DEVICE == "cpu", reason="kernels are chosen by the device, so this needs a GPU")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [0, 1, 4, 5])
def test_products_on_a_gpu(tokens: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kernel for few tokens and without it."""
    weight, scales = numbers(2, 640, 256, dtype=dtype) * 0.1, numbers(3, 256, dtype=dtype)
    bias = numbers(4, 640, dtype=dtype)
    made: list[list[Any]] = []
    for use in (True, False):
        thresholds(monkeypatch, matrix_vector_kernel=use)
        states = numbers(1, tokens, 256, dtype=dtype)
        residual = numbers(5, tokens, 640, dtype=dtype)
        more = operations.multiply_onto(residual, states, weight, bias)
        made.append(
            [
                operations.multiply(states, weight, None),
                operations.multiply_normed(states, None, scales, EPS, weight, bias),
                operations.multiply_gated(states, None, scales, EPS, weight, bias),
                residual if more is None else residual + more,
            ]
        )
    near(made[0][0], exact(numbers(1, tokens, 256, dtype=dtype)) @ exact(weight).T, dtype)
    for one, other in zip(*made, strict=True):
        near(one, exact(other), dtype)
