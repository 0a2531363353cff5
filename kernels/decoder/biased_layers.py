"""A layer of a decoder of GPT-2's family on a CPU, in two kernels, as layers.py has those of the Llama family."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit.aliases import Float, Int, Ints
from ..jit.wide import inner_njit, njit
from .layers import add, logistic
from .products import FAST, multiply

Reals = NDArray[np.floating[Any]]

_SLOPE, _CUBE = 2 * (2 / np.pi) ** 0.5, 0.044715


@njit(fastmath=FAST, error_model="numpy")
def begin_biased_layer(
    queries: Reals,
    keys: Reals,
    values: Reals,
    residual: Reals,
    slots: Ints,
    norm: Reals,
    norm_bias: Reals,
    eps: Float,
    weight: Reals,
    bias: Reals,
    states: Reals,
    product: Reals,
    across: Reals,
    sums: Reals,
) -> None:
    """Layer norm, product of queries, keys and values; keys and values go to their slots.

    queries: [n, heads, size], written
    keys, values: [blocks, heads, places, size], written where `slots` [n] says, -1 for nowhere
    residual: [n, hidden]
    norm, norm_bias, eps: weights of the norm, its bias, and what is added to variances
    weight, bias: [3 heads * size, hidden], and as many as rows
    states, product, across, sums: room as `begin_layer` has it
    """
    lanes = across.shape[1]
    for first in range(0, residual.shape[0], lanes):
        tokens = min(lanes, residual.shape[0] - first)
        for token in range(tokens):
            standardise(states[token], residual[first + token], norm, norm_bias, eps)
        multiply(product, states, tokens, weight, bias, across, sums)
        for token in range(tokens):
            place_parts(queries[first + token], keys, values, slots[first + token], product[token])


@njit(fastmath=FAST, error_model="numpy")
def end_biased_layer(
    residual: Reals,
    mixed: Reals,
    out: Reals,
    out_bias: Reals,
    norm: Reals,
    norm_bias: Reals,
    eps: Float,
    up: Reals,
    up_bias: Reals,
    down: Reals,
    down_bias: Reals,
    states: Reals,
    product: Reals,
    across: Reals,
    sums: Reals,
) -> None:
    """The product of what attention found, layer norm, an MLP with GELU; both sums go to the residual.

    residual: [n, hidden], changed
    mixed: [n, heads * size]
    out, up, down and their biases: weights of the products
    The rest as `begin_biased_layer` has it; `product` has room for what `up` gives.
    """
    lanes = across.shape[1]
    for first in range(0, residual.shape[0], lanes):
        tokens = min(lanes, residual.shape[0] - first)
        multiply(states, mixed[first:], tokens, out, out_bias, across, sums)
        for token in range(tokens):
            add(residual[first + token], states[token])
            standardise(states[token], residual[first + token], norm, norm_bias, eps)
        multiply(product, states, tokens, up, up_bias, across, sums)
        for token in range(tokens):
            bend(product[token], up.shape[0])
        multiply(states, product, tokens, down, down_bias, across, sums)
        for token in range(tokens):
            add(residual[first + token], states[token])


@njit(fastmath=FAST, error_model="numpy")
def standardise_rows(out: Reals, rows: Reals, weight: Reals, bias: Reals, eps: Float) -> None:
    """Layer norm of each row [n, width]."""
    for row in range(rows.shape[0]):
        standardise(out[row], rows[row], weight, bias, eps)


@inner_njit
def standardise(out: Reals, row: Reals, weight: Reals, bias: Reals, eps: Float) -> None:
    """Layer norm (Ba, Kiros and Hinton, 2016, arXiv:1607.06450) of a row; `out` may be the row, and longer."""
    kind = row.dtype.type
    total = kind(0)
    for i in range(weight.size):
        total += row[i]
    mean = total / kind(weight.size)
    total = kind(0)
    for i in range(weight.size):
        far = row[i] - mean
        total += far * far
    scale = kind(1) / np.sqrt(total / kind(weight.size) + kind(eps))
    for i in range(weight.size):
        out[i] = (row[i] - mean) * scale * weight[i] + bias[i]


@inner_njit
def place_parts(queries: Reals, keys: Reals, values: Reals, slot: Int, product: Reals) -> None:
    """From a token's product to its queries [heads, size], and its keys and values in their slot."""
    heads, size = queries.shape
    room, width = keys.shape[2], heads * size
    for head in range(heads):
        for i in range(size):
            queries[head, i] = product[head * size + i]
    if slot < 0:
        return
    for head in range(heads):
        key, value = keys[slot // room, head, slot % room], values[slot // room, head, slot % room]
        for i in range(size):
            key[i] = product[width + head * size + i]
            value[i] = product[2 * width + head * size + i]


@inner_njit
def bend(row: Reals, width: Int) -> None:
    """GELU of a row's first numbers, in place, in the form with tanh (Hendrycks and Gimpel, 2016, arXiv:1606.08415)."""
    kind = row.dtype.type
    for i in range(width):
        x = row[i]
        slope = kind(_SLOPE) * (x + kind(_CUBE) * x * x * x)
        row[i] = x * logistic(slope, row)  # (1 + tanh(y / 2)) / 2 = 1 / (1 + e^-y)
