"""A decoder layer on a CPU in two kernels, before and after attention; and all layers in one kernel.

They compute the operations of plain.py and the products between, for a few tokens at a time, whose states stay in the
caches. Empty arrays stand for absent parts of a decoder: biases, norms of heads, rotation. A norm with a bias is a
layer norm, one without is an RMS norm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..attention.paged import AttentionRows, attend_blocks, exponential
from ..attention.panels import attend_panels
from ..attention.stored import Stored, keep
from ..jit.addresses import array_at
from ..jit.aliases import Float, Int, Ints
from ..jit.arrays import Arrays, Table, Vector
from ..jit.wide import inner_njit, njit
from .products import FAST, multiply

Reals = NDArray[np.floating[Any]]

_SLOPE, _CUBE = 2 * (2 / np.pi) ** 0.5, 0.044715


@njit(fastmath=FAST, error_model="numpy")
def begin_layer(
    queries: Reals,
    keys: Stored,
    values: Stored,
    residual: Reals,
    slots: Ints,
    cos: Reals,
    sin: Reals,
    norm: Reals,
    norm_bias: Reals,
    eps: Float,
    weight: Reals,
    bias: Reals,
    query_norm: Reals,
    key_norm: Reals,
    head_eps: Float,
    states: Reals,
    product: Reals,
    across: Reals,
    sums: Reals,
) -> None:
    """Compute norm, product of queries, keys and values, norms of heads, and rotation; store keys and values.

    queries: [n, heads, size], output
    keys, values: [blocks, heads, places, row length], written at `slots` [n]; -1 for tokens that are not stored
    residual: [n, hidden]
    cos, sin: [n, size / 2], or [n, 0] without rotation
    norm, norm_bias, eps: weights of the norm, its bias or empty, and the epsilon of mean squares or variances
    weight, bias: [all heads * size, hidden]; [all heads * size], or empty
    query_norm, key_norm, head_eps: RMS norms of heads [size], or empty, and their epsilon
    states, product: scratch for the tokens of one multiplication, with hidden and all heads * size columns
    across, sums: see `multiply`
    """
    lanes = across.shape[1]
    for first in range(0, residual.shape[0], lanes):
        tokens = min(lanes, residual.shape[0] - first)
        for token in range(tokens):
            normalise(states[token], residual[first + token], norm, norm_bias, eps)
        multiply(product, states, tokens, weight, bias, across, sums)
        for token in range(tokens):
            at = first + token
            place_heads(
                queries[at], keys, values, slots[at], product[token], cos[at], sin[at], query_norm, key_norm, head_eps
            )


@njit(fastmath=FAST, error_model="numpy")
def end_layer(
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
    """Compute the output product of attention, norm, and the MLP; add both results to the residual.

    residual: [n, hidden], changed
    mixed: [n, heads * size], output of attention
    out, up, down and their biases, or empty: weights of the products. The MLP is SwiGLU if `up` has more rows (gates,
        then the numbers that they scale) than `down` has columns; else it has GELU between its products
    The rest is as in `begin_layer`; `product` has room for the output of `up`.
    """
    lanes = across.shape[1]
    for first in range(0, residual.shape[0], lanes):
        tokens = min(lanes, residual.shape[0] - first)
        multiply(states, mixed[first:], tokens, out, out_bias, across, sums)
        for token in range(tokens):
            add(residual[first + token], states[token])
            normalise(states[token], residual[first + token], norm, norm_bias, eps)
        multiply(product, states, tokens, up, up_bias, across, sums)
        for token in range(tokens):
            if up.shape[0] > down.shape[1]:
                gate(product[token], down.shape[1])
            else:
                gelu(product[token], down.shape[1])
        multiply(states, product, tokens, down, down_bias, across, sums)
        for token in range(tokens):
            add(residual[first + token], states[token])


@njit(fastmath=FAST, error_model="numpy")
def normalise_rows(out: Reals, rows: Reals, weight: Reals, bias: Reals, eps: Float) -> None:
    """Normalise each row [n, width]: layer norm with a bias, RMS norm without."""
    for row in range(rows.shape[0]):
        normalise(out[row], rows[row], weight, bias, eps)


@inner_njit
def add(row: Reals, more: Reals) -> None:
    """row += more[: row.size], in place."""
    for i in range(row.size):
        row[i] += more[i]


@inner_njit
def normalise(out: Reals, row: Reals, weight: Reals, bias: Reals, eps: Float) -> None:
    """Normalise a row, see `normalise_rows`."""
    if bias.size > 0:
        layer_norm(out, row, weight, bias, eps)
    else:
        rms_norm(out, row, weight, eps)


@inner_njit
def rms_norm(out: Reals, row: Reals, weight: Reals, eps: Float) -> None:
    """RMS norm (Zhang and Sennrich, 2019, arXiv:1910.07467) of a row; `out` may be the row itself, or longer.

    Squares are summed in float32.
    """
    kind = row.dtype.type
    total = np.float32(0)
    for i in range(weight.size):
        x = np.float32(row[i])
        total += x * x
    scale = np.float32(1) / np.sqrt(total / np.float32(weight.size) + np.float32(eps))
    for i in range(weight.size):
        out[i] = weight[i] * kind(np.float32(row[i]) * scale)


@inner_njit
def layer_norm(out: Reals, row: Reals, weight: Reals, bias: Reals, eps: Float) -> None:
    """Layer norm (Ba, Kiros and Hinton, 2016, arXiv:1607.06450) of a row; `out` may be the row itself, or longer."""
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
def place_heads(
    queries: Reals,
    keys: Stored,
    values: Stored,
    slot: Int,
    product: Reals,
    cos: Reals,
    sin: Reals,
    query_norm: Reals,
    key_norm: Reals,
    eps: Float,
) -> None:
    """Split a token's product into queries [heads, size], and keys and values, which go to their slot."""
    heads, size = queries.shape
    stored, room = keys.shape[1], keys.shape[2]
    for head in range(heads):
        part = product[head * size : (head + 1) * size]
        if query_norm.size > 0:
            rms_norm(part, part, query_norm, eps)
        rotate(queries[head], part, cos, sin)
    if slot < 0:
        return
    for head in range(stored):
        part = product[(heads + head) * size : (heads + head + 1) * size]
        if key_norm.size > 0:
            rms_norm(part, part, key_norm, eps)
        rotate(part, part, cos, sin)
        keep(keys[slot // room, head, slot % room], part)
        first = (heads + stored + head) * size
        keep(values[slot // room, head, slot % room], product[first : first + size])


@inner_njit
def rotate(out: Reals, part: Reals, cos: Reals, sin: Reals) -> None:
    """Apply the rotary embedding to a head; copy it if `cos` is empty. `out` may be `part` itself."""
    half = cos.size
    if half == 0:
        for i in range(part.size):
            out[i] = part[i]
    for i in range(half):
        left, right = part[i], part[half + i]
        out[i] = left * cos[i] - right * sin[i]
        out[half + i] = right * cos[i] + left * sin[i]


@inner_njit
def gate(row: Reals, width: Int) -> None:
    """SwiGLU in place: row[:width] becomes SiLU of row[:width], times row[width : 2 * width]."""
    for i in range(width):
        row[i] = row[i] * logistic(row[i], row) * row[width + i]


@inner_njit
def gelu(row: Reals, width: Int) -> None:
    """GELU of row[:width] in place, in its form with tanh (Hendrycks and Gimpel, 2016, arXiv:1606.08415)."""
    kind = row.dtype.type
    for i in range(width):
        x = row[i]
        slope = kind(_SLOPE) * (x + kind(_CUBE) * x * x * x)
        row[i] = x * logistic(slope, row)  # (1 + tanh(y / 2)) / 2 = 1 / (1 + e^-y)


@inner_njit
def logistic(x: Any, like: Reals) -> Any:
    """Return 1 / (1 + e^-x) in the dtype of `like`, without branches and calls, so that LLVM can vectorise it."""
    kind = like.dtype.type
    # `exponential` returns at least e^-80, which is not negligible beside a large factor.
    small = exponential(-abs(x), like) if abs(x) < kind(80) else kind(0)
    return (kind(1) if x >= 0 else small) / (kind(1) + small)


class LayerStack(Arrays):
    """The weights of equally shaped layers, in the order of the arguments of the layer kernels.

    weights: [layers, n] addresses
    shapes: [n, 2] rows and columns of each; a vector has one column
    eps: [layers, 3] of both norms of a layer, and of the norms of heads
    """

    weights: Table[np.int64]
    shapes: Table[np.int64]
    eps: Table[np.float64]


class AttentionInputs(Arrays):
    """Arguments of attention: the KV cache, the reach of each layer, and the rows of the step.

    stored: [layers, 2] addresses of keys and of values; shape: [4], of each: blocks, heads, places, row length
    reaches: [layers, 2] window and chunk of each layer, see `attend_blocks`
    short, long: rows for `attend_blocks`, and for `attend_panels`
    """

    stored: Table[np.int64]
    shape: Vector[np.int64]
    reaches: Table[np.int64]
    short: AttentionRows
    long: AttentionRows


@njit
def read_layers(
    residual: Reals,
    queries: Reals,
    mixed: Reals,
    slots: Ints,
    cos: Reals,
    sin: Reals,
    stack: LayerStack,
    inputs: AttentionInputs,
    norm: Reals,
    norm_bias: Reals,
    eps: Float,
    settings: Reals,
    scratch: Reals,
    near: Stored,
    states: Reals,
    product: Reals,
    across: Reals,
    sums: Reals,
) -> None:
    """Compute all layers, by `begin_layer`, attention and `end_layer`, and the last norm.

    residual: [n, hidden], changed to the result
    queries, mixed: [n, heads, size], scratch
    slots, cos, sin, states, product, across, sums: see `begin_layer`
    norm, norm_bias, eps: the last norm
    settings, scratch, near: see `attend_blocks`
    """
    flat = mixed.reshape(mixed.shape[0], mixed.shape[1] * mixed.shape[2])
    for layer in range(stack.weights.shape[0]):
        keys, values = stored_at(inputs, layer, near)
        begin_layer(
            queries, keys, values, residual, slots, cos, sin,
            vector_of(stack, layer, 0, residual), vector_of(stack, layer, 1, residual), stack.eps[layer, 0],
            matrix_of(stack, layer, 2, residual), vector_of(stack, layer, 3, residual),
            vector_of(stack, layer, 4, residual), vector_of(stack, layer, 5, residual), stack.eps[layer, 2],
            states, product, across, sums,
        )  # fmt: skip
        attend_step(mixed, queries, keys, values, inputs, layer, settings, scratch, near)
        end_layer(
            residual, flat,
            matrix_of(stack, layer, 6, residual), vector_of(stack, layer, 7, residual),
            vector_of(stack, layer, 8, residual), vector_of(stack, layer, 9, residual), stack.eps[layer, 1],
            matrix_of(stack, layer, 10, residual), vector_of(stack, layer, 11, residual),
            matrix_of(stack, layer, 12, residual), vector_of(stack, layer, 13, residual),
            states, product, across, sums,
        )  # fmt: skip
    normalise_rows(residual, residual, norm, norm_bias, eps)


@inner_njit
def attend_step(
    mixed: Reals,
    queries: Reals,
    keys: Stored,
    values: Stored,
    inputs: AttentionInputs,
    layer: Int,
    settings: Reals,
    scratch: Reals,
    near: Stored,
) -> None:
    """Compute attention of one layer for all rows."""
    window, chunk, none = inputs.reaches[layer, 0], inputs.reaches[layer, 1], settings[:0]
    short, long = inputs.short, inputs.long
    attend_blocks(
        mixed,
        queries,
        keys,
        values,
        short,
        0,
        short.firsts.size * keys.shape[1],
        window,
        chunk,
        none,
        settings,
        scratch,
        near,
    )
    for row in range(long.firsts.size):
        first, blocks = long.firsts[row], long.blocks[long.tables[row] :]
        end = first + long.widths[row]
        attend_panels(
            mixed[first:end], queries[first:end], keys, values, blocks, long.starts[row], window, chunk, none, settings
        )


@inner_njit
def stored_at(inputs: AttentionInputs, layer: Int, like: Stored) -> tuple[Stored, Stored]:
    """Return a layer's keys and values [blocks, heads, places, row length]."""
    shape = inputs.shape[0], inputs.shape[1], inputs.shape[2], inputs.shape[3]
    return array_at(inputs.stored[layer, 0], shape, like), array_at(inputs.stored[layer, 1], shape, like)


@inner_njit
def matrix_of(stack: LayerStack, layer: Int, number: Int, like: Reals) -> Reals:
    """Return one weight of a layer [rows, columns]."""
    return array_at(stack.weights[layer, number], (stack.shapes[number, 0], stack.shapes[number, 1]), like)


@inner_njit
def vector_of(stack: LayerStack, layer: Int, number: Int, like: Reals) -> Reals:
    """Return one weight of a layer [size], or an empty array."""
    return array_at(stack.weights[layer, number], (stack.shapes[number, 0],), like)
