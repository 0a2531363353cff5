"""Kernels of a decoder's layer on a CPU: products against NumPy's, layers against torch operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu, layer_norm, linear
from trellm.kernels.decoder import plain
from trellm.kernels.decoder.layers import begin_layer, end_layer, normalise_rows
from trellm.kernels.decoder.plain import HeadNorms, Heads
from trellm.kernels.decoder.products import few_of, lanes_of, product_of, products_of_some, room_of

TOLERANCES = {np.float64: 1e-6, np.float32: 2e-5}  # norms are float32
PLACES = 16


def numbers(seed: int, *shape: int, kind: Any) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(kind)


@pytest.mark.parametrize("kind", TOLERANCES)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (17, 16), (30, 33), (64, 48)])
def test_products(shape: tuple[int, int], biased: bool, kind: Any) -> None:
    weight, bias = numbers(0, *shape, kind=kind), numbers(1, shape[0], kind=kind) if biased else None
    lanes = lanes_of(kind)
    several = (lanes // 2, lanes // 2 + 1, lanes - 1, lanes, lanes + 1, 2 * lanes + 11)
    for tokens in (*range(few_of(kind) + 2), *several):
        states = numbers(tokens, tokens, shape[1], kind=kind)
        expected = states.astype(np.float64) @ weight.T.astype(np.float64) + (0 if bias is None else bias)
        tolerance = 1e-12 if kind == np.float64 else 1e-5
        np.testing.assert_allclose(product_of(states, weight, bias), expected, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("kind", TOLERANCES)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("counts", [[1], [5, 1, 3], [0, 30, 2, 7]])
def test_products_with_some_rows(counts: list[int], biased: bool, kind: Any) -> None:
    weight, bias = numbers(0, 30, 21, kind=kind), numbers(1, 30, kind=kind) if biased else None
    states, pick = numbers(2, len(counts), 21, kind=kind), np.random.default_rng(3)
    several = [pick.permutation(30)[:count] for count in counts]
    expected = np.zeros((len(counts), max(counts)))
    for row, (state, rows) in enumerate(zip(states, several, strict=True)):
        wanted = weight[rows].astype(np.float64) @ state + (0 if bias is None else bias[rows])
        expected[row, : len(rows)] = wanted
    found = products_of_some(states, weight, bias, several)
    assert found.dtype == kind
    np.testing.assert_allclose(found, expected, rtol=1e-12 if kind == np.float64 else 1e-5, atol=1e-5)


def test_numbers_that_are_none_stay_in_their_row() -> None:
    weight = numbers(0, 30, 20, kind=np.float32)
    for tokens in (3, 12, 30):
        states = numbers(1, tokens, 20, kind=np.float32)
        clean = product_of(states, weight, None)
        states[1, 7], states[2, 3] = np.nan, np.inf
        found = product_of(states, weight, None)
        assert np.isnan(found[1]).all() and not np.isfinite(found[2]).any()
        np.testing.assert_array_equal(np.delete(found, (1, 2), 0), np.delete(clean, (1, 2), 0))


@pytest.mark.parametrize("kind", TOLERANCES)
def test_a_row_is_the_same_beside_any_others(kind: Any) -> None:
    weight, bias, states = numbers(0, 50, 44, kind=kind), numbers(2, 50, kind=kind), numbers(1, 70, 44, kind=kind)
    few, lanes = few_of(kind), lanes_of(kind)
    alone = np.concatenate([product_of(state[None], weight, bias) for state in states])
    for tokens in range(2, few + 1):
        np.testing.assert_array_equal(product_of(states[:tokens], weight, bias), alone[:tokens])
    whole = product_of(states, weight, bias)
    for tokens in range(few + 1, lanes):
        np.testing.assert_array_equal(product_of(states[:tokens], weight, bias), whole[:tokens])


class Layer:
    """A random layer, some tokens, and room for their keys and values."""

    def __init__(self, tokens: int, heads: Heads, hidden: int, inner: int, kind: Any, extras: bool) -> None:
        asked = (heads.queries + 2 * heads.keys) * heads.size
        none = np.empty(0, kind)
        self.heads, self.kind, self.extras = heads, kind, extras
        self.norms = [numbers(seed, hidden, kind=kind) for seed in (1, 2)]
        self.head_norms = [numbers(seed, heads.size, kind=kind) if extras else none for seed in (3, 4)]
        shapes = [(asked, hidden), (hidden, heads.queries * heads.size), (2 * inner, hidden), (hidden, inner)]
        self.weights = [numbers(5 + i, *shape, kind=kind) * kind(0.2) for i, shape in enumerate(shapes)]
        self.biases = [numbers(9 + i, count, kind=kind) if extras else none for i, (count, _) in enumerate(shapes)]
        self.residual = numbers(13, tokens, hidden, kind=kind)
        self.mixed = numbers(14, tokens, heads.queries * heads.size, kind=kind)
        turns = np.random.default_rng(15).random((tokens, heads.size // 2)) * 7
        self.angles = np.cos(turns).astype(kind), np.sin(turns).astype(kind)
        slots = np.random.default_rng(16).permutation(PLACES * (tokens // PLACES + 2))[:tokens]
        slots[1::4] = -1
        self.slots = slots.astype(np.int32)
        self.shape = tokens // PLACES + 2, heads.keys, PLACES, heads.size
        lanes, tallest = lanes_of(kind), max(asked, 2 * inner, hidden)
        widest = max(hidden, inner, heads.queries * heads.size)
        self.room = (np.full((lanes, hidden), np.nan, kind), np.full((lanes, tallest), np.nan, kind))
        self.room += room_of(widest, tallest, kind)

    def tensors(self, index: int) -> tuple[Any, Any]:
        bias = self.biases[index]
        return torch.from_numpy(self.weights[index]), torch.from_numpy(bias) if bias.size else None

    def near(self, found: Any, expected: Any) -> None:
        tolerance = TOLERANCES[self.kind]
        np.testing.assert_allclose(found, expected.numpy(), rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("kind", TOLERANCES)
@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize("tokens", [0, 1, 5, 19, 70])
@pytest.mark.parametrize("heads", [Heads(2, 1, 8), Heads(4, 2, 32), Heads(3, 3, 10)])
def test_layers(tokens: int, heads: Heads, extras: bool, kind: Any) -> None:
    layer = Layer(tokens, heads, 40, 52, kind, extras)
    norm, after = (torch.from_numpy(each) for each in layer.norms)
    weights = [torch.from_numpy(each) for each in layer.head_norms]
    norms = HeadNorms(*weights, 1e-5) if extras else None
    residual = torch.from_numpy(layer.residual.copy())
    kept = [np.full(layer.shape, 9, kind) for _ in range(2)]
    stored = torch.from_numpy(kept[0].copy()), torch.from_numpy(kept[1].copy())
    product = linear(plain.norm(residual, None, norm, 1e-6), *layer.tensors(0))
    angles = torch.from_numpy(layer.angles[0]), torch.from_numpy(layer.angles[1])
    expected = plain.place(product, angles, norms, torch.from_numpy(layer.slots), stored, heads)
    queries, none = np.empty((tokens, heads.queries, heads.size), kind), np.empty(0, kind)
    begin_layer(
        queries, *kept, layer.residual, layer.slots, *layer.angles, layer.norms[0], none, 1e-6, layer.weights[0],
        layer.biases[0], *layer.head_norms, 1e-5, *layer.room,
    )  # fmt: skip
    layer.near(queries, expected)
    layer.near(kept[0], stored[0])
    layer.near(kept[1], stored[1])

    inner = plain.norm(residual, linear(torch.from_numpy(layer.mixed), *layer.tensors(1)), after, 1e-6)
    residual += linear(plain.gate(linear(inner, *layer.tensors(2))), *layer.tensors(3))
    end_layer(
        layer.residual, layer.mixed, layer.weights[1], layer.biases[1], layer.norms[1], none, 1e-6,
        layer.weights[2], layer.biases[2], layer.weights[3], layer.biases[3], *layer.room,
    )  # fmt: skip
    layer.near(layer.residual, residual)
    normalise_rows(layer.residual, layer.residual, layer.norms[0], none, 1e-6)
    layer.near(layer.residual, plain.norm(residual, None, norm, 1e-6))


@pytest.mark.parametrize("kind", TOLERANCES)
@pytest.mark.parametrize("tokens", [0, 1, 5, 19, 70])
@pytest.mark.parametrize("heads", [Heads(2, 2, 8), Heads(3, 3, 10)])
def test_layers_with_layer_norms(tokens: int, heads: Heads, kind: Any) -> None:
    """GPT-2's layers, whose heads are not turned and whose MLP has no gates, beside torch's operations."""
    width = heads.queries * heads.size
    layer = Layer(tokens, heads, width, 52, kind, True)
    residual = torch.from_numpy(layer.residual.copy())
    norm, after, *shifts = (torch.from_numpy(each) for each in (*layer.norms, *layer.norms[::-1]))
    product = linear(layer_norm(residual, (width,), norm, shifts[0], 1e-5), *layer.tensors(0)).numpy()
    parts = product.reshape(tokens, 3, heads.queries, heads.size)
    kept = [np.full(layer.shape, 9, kind) for _ in range(2)]
    queries = np.empty((tokens, heads.queries, heads.size), kind)
    none, still = np.empty(0, kind), np.empty((tokens, 0), kind)
    begin_layer(
        queries, *kept, layer.residual, layer.slots, still, still, layer.norms[0], layer.norms[1], 1e-5,
        layer.weights[0], layer.biases[0], none, none, 1e-5, *layer.room,
    )  # fmt: skip
    layer.near(queries, torch.from_numpy(parts[:, 0]))
    for number, stored in enumerate(kept):
        expected = np.full(layer.shape, 9, kind)
        for token, slot in enumerate(layer.slots):
            if slot >= 0:
                expected[slot // PLACES, :, slot % PLACES] = parts[token, number + 1]
        layer.near(stored, torch.from_numpy(expected))

    down, down_bias = numbers(20, width, 104, kind=kind), layer.biases[3]
    residual += linear(torch.from_numpy(layer.mixed), *layer.tensors(1))
    inner = linear(layer_norm(residual, (width,), after, shifts[1], 1e-5), *layer.tensors(2))
    residual += linear(gelu(inner, approximate="tanh"), torch.from_numpy(down), torch.from_numpy(down_bias))
    end_layer(
        layer.residual, layer.mixed, layer.weights[1], layer.biases[1], layer.norms[1], layer.norms[0], 1e-5,
        layer.weights[2], layer.biases[2], down, down_bias, *layer.room[:2], *room_of(104, 104, kind),
    )  # fmt: skip
    layer.near(layer.residual, residual)
    normalise_rows(layer.residual, layer.residual, layer.norms[0], layer.norms[1], 1e-5)
    layer.near(layer.residual, layer_norm(residual, (width,), norm, shifts[0], 1e-5))


def test_gelu_far_from_zero() -> None:
    x = np.array([-1e30, -200, -9, -1, -0.0, 0, 1, 9, 200, 1e30], np.float32)
    count = len(x)
    # Products of nothing, whose biases are x, and then of one number each: what comes out is GELU of x.
    none, nowhere = np.zeros((count, count), np.float32), np.zeros(count, np.float32)
    residual, mixed = np.zeros((1, count), np.float32), np.zeros((1, count), np.float32)
    room = [np.empty((lanes_of(np.float32), count), np.float32) for _ in range(2)]
    with np.errstate(over="ignore"):
        end_layer(
            residual, mixed, none, nowhere, nowhere, nowhere, 1e-5, none, x, np.eye(count, dtype=np.float32), nowhere,
            *room, *room_of(count, count, np.float32),
        )  # fmt: skip
    np.testing.assert_allclose(residual[0], gelu(torch.from_numpy(x), approximate="tanh"), rtol=1e-5, atol=1e-6)


def test_gates_far_from_zero() -> None:
    x = np.array([-1e30, -200, -90, -1, -0.0, 0, 1, 90, 200, 1e30], np.float32)
    count = len(x)
    none, width = np.empty(0, np.float32), 1
    # One state, whose norm is 1, times x and 1: what comes out is SiLU of x, by a diagonal a number at a time.
    gates = np.concatenate([x, np.ones(count, np.float32)])[:, None]
    for place in range(count):
        residual, mixed = np.ones((1, width), np.float32), np.zeros((1, width), np.float32)
        down = np.zeros((width, count), np.float32)
        down[0, place] = 1
        room = np.empty((lanes_of(np.float32), width), np.float32), np.empty((lanes_of(np.float32), 2 * count), "f4")
        out, one = np.zeros((width, width), np.float32), np.ones(width, np.float32)
        end_layer(
            residual, mixed, out, none, one, none, 0.0, gates, none, down, none, *room, *room_of(count, 2 * count, "f4")
        )
        silu = torch.nn.functional.silu(torch.tensor(x[place])).item()
        np.testing.assert_allclose(residual[0, 0], np.float32(1) + np.float32(silu), rtol=1e-5, atol=1e-6)
