"""All layers of a decoder with GGUF weights, in one kernel that several threads run together.

The operations between products are those of kernels/decoder/layers.py. Threads share the rows of products, and the
tokens and (row, key head) pairs between them. One thread computes each number, so results do not depend on threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..attention.paged import attend_blocks
from ..attention.stored import Stored
from ..decoder.layers import AttentionInputs, add, gate, gelu, normalise, place_heads, stored_at
from ..decoder.products import FAST
from ..jit.addresses import array_at
from ..jit.aliases import Float, Int, Ints
from ..jit.arrays import Arrays, Table, Vector
from ..jit.wide import inner_njit, njit
from .barrier import meet
from .formats import ROWS
from .products import address, multiply_at, round_row

Reals = NDArray[np.floating[Any]]

QUERIES, KEYS, VALUES, OUT, GATES, UP, DOWN = range(7)
PRODUCTS = 7
"""Products of a layer. A decoder without gates has no rows of GATES."""
BEFORE, AFTER, QUERY_NORM, KEY_NORM = range(4)


class QuantizedStack(Arrays):
    """The weights of equally shaped layers.

    products: [layers * 7, 5], for each product: address of the weights, number of the format, bytes of a row, blocks of
        a row, address of the order of rows or 0
    rows: [7] of each product, 0 for none
    biases: [layers, 7] addresses, 0 for none
    norms: [layers, 8] addresses of weights and biases of the four norms, 0 for none
    eps: [layers, 3] of both norms of a layer, and of the norms of heads
    """

    products: Table[np.int64]
    rows: Vector[np.int64]
    biases: Table[np.int64]
    norms: Table[np.int64]
    eps: Table[np.float64]


class QuantizedBuffers(Arrays):
    """Scratch arrays for the tokens of one multiplication, and the counter of the barrier.

    states: [tokens, hidden]; product: [tokens, most rows]
    numbers, scales, totals: of rounded states, [tokens * most columns], [tokens * groups], [tokens * groups * 2]
    arrivals: [1] for `meet`
    """

    states: Table[np.float32]
    product: Table[np.float32]
    numbers: Vector[np.int8]
    scales: Vector[np.float32]
    totals: Vector[np.float32]
    arrivals: Vector[np.int64]


@njit(fastmath=FAST, error_model="numpy")
def read_quantized_layers(
    residual: Reals,
    queries: Reals,
    mixed: Reals,
    slots: Ints,
    cos: Reals,
    sin: Reals,
    stack: QuantizedStack,
    inputs: AttentionInputs,
    norm: Reals,
    norm_bias: Reals,
    eps: Float,
    settings: Reals,
    scratch: Reals,
    near: Stored,
    room: QuantizedBuffers,
    begin: Int,
    end: Int,
    threads: Int,
    thread: Int,
) -> None:
    """Compute the share of one thread. All threads call this with the same arrays; `thread` is 0 ... threads - 1.

    residual: float32 [n, hidden], changed to the result; the rest as in `read_layers`
    scratch: [threads, heads, tokens of the longest row]; near: from `room_near`
    begin, end: range of layers; the last norm follows the last layer of the stack
    """
    flat = mixed.reshape(mixed.shape[0], mixed.shape[1] * mixed.shape[2])
    most, tokens, met = room.states.shape[0], residual.shape[0], 0
    for layer in range(begin, end):
        keys, values = stored_at(inputs, layer, near[0])
        for first in range(0, tokens, most):
            count = min(most, tokens - first)
            begin_chunk(
                thread, threads, met, queries, keys, values, residual, slots, cos, sin, stack, layer, first, count, room
            )
            met += 2
        met += 1
        meet(room.arrivals.ctypes.data, met * threads)
        attend_share(
            thread, threads, mixed, queries, keys, values, inputs, layer, settings, scratch[thread], near[thread]
        )
        met += 1
        meet(room.arrivals.ctypes.data, met * threads)
        for first in range(0, tokens, most):
            count = min(most, tokens - first)
            end_chunk(thread, threads, met, residual, flat, stack, layer, first, count, room)
            met += 6
        if tokens > most:  # the next chunk divides tokens differently, and reuses the same room
            met += 1
            meet(room.arrivals.ctypes.data, met * threads)
    if end == stack.eps.shape[0]:
        for first in range(0, tokens, most):  # each token by the thread that last added to it
            count = min(most, tokens - first)
            for token in range(first + count * thread // threads, first + count * (thread + 1) // threads):
                normalise(residual[token], residual[token], norm, norm_bias, eps)
    meet(room.arrivals.ctypes.data, (met + 1) * threads)


@inner_njit
def begin_chunk(
    thread: Int,
    threads: Int,
    met: Int,
    queries: Reals,
    keys: Stored,
    values: Stored,
    residual: Reals,
    slots: Ints,
    cos: Reals,
    sin: Reals,
    stack: QuantizedStack,
    layer: Int,
    first: Int,
    count: Int,
    room: QuantizedBuffers,
) -> None:
    """Compute norm, queries, keys and values, norms of heads and rotation, for `count` tokens. Threads meet twice."""
    low, high = count * thread // threads, count * (thread + 1) // threads
    width = residual.shape[1]
    norm, norm_bias = norm_of(stack, layer, BEFORE, width, residual)
    for token in range(low, high):
        normalise(room.states[token], residual[first + token], norm, norm_bias, stack.eps[layer, 0])
        round_row(room.numbers, room.scales, room.totals, room.states[token], token, width)
    meet(room.arrivals.ctypes.data, (met + 1) * threads)
    column = 0
    for which in range(QUERIES, VALUES + 1):
        multiply_share(
            thread, threads, room.product, column, address(room.states), width, stack, layer, which, room, count
        )
        column += stack.rows[which]
    meet(room.arrivals.ctypes.data, (met + 2) * threads)
    size = queries.shape[2]
    query_norm, _ = norm_of(stack, layer, QUERY_NORM, size, residual)
    key_norm, _ = norm_of(stack, layer, KEY_NORM, size, residual)
    for token in range(low, high):
        at = first + token
        place_heads(
            queries[at], keys, values, slots[at], room.product[token], cos[at], sin[at], query_norm, key_norm,
            stack.eps[layer, 2],
        )  # fmt: skip


@inner_njit
def end_chunk(
    thread: Int,
    threads: Int,
    met: Int,
    residual: Reals,
    mixed: Reals,
    stack: QuantizedStack,
    layer: Int,
    first: Int,
    count: Int,
    room: QuantizedBuffers,
) -> None:
    """Compute the output product of attention, norm, and the MLP, for `count` tokens. Threads meet six times."""
    low, high = count * thread // threads, count * (thread + 1) // threads
    width, arrivals = residual.shape[1], room.arrivals.ctypes.data
    states, product, found = address(room.states), address(room.product), mixed.shape[1]
    for token in range(low, high):
        round_row(room.numbers, room.scales, room.totals, mixed[first + token], token, found)
    meet(arrivals, (met + 1) * threads)
    seen = address(mixed) + 4 * first * found
    multiply_share(thread, threads, room.states, 0, seen, found, stack, layer, OUT, room, count)
    meet(arrivals, (met + 2) * threads)
    norm, norm_bias = norm_of(stack, layer, AFTER, width, residual)
    for token in range(low, high):
        add(residual[first + token], room.states[token])
        normalise(room.states[token], residual[first + token], norm, norm_bias, stack.eps[layer, 1])
        round_row(room.numbers, room.scales, room.totals, room.states[token], token, width)
    meet(arrivals, (met + 3) * threads)
    gates, inner = stack.rows[GATES], stack.rows[UP]
    if gates > 0:
        multiply_share(thread, threads, room.product, 0, states, width, stack, layer, GATES, room, count)
    multiply_share(thread, threads, room.product, gates, states, width, stack, layer, UP, room, count)
    meet(arrivals, (met + 4) * threads)
    for token in range(low, high):
        if gates > 0:
            gate(room.product[token], inner)
        else:
            gelu(room.product[token], inner)
        round_row(room.numbers, room.scales, room.totals, room.product[token], token, inner)
    meet(arrivals, (met + 5) * threads)
    multiply_share(thread, threads, room.states, 0, product, room.product.shape[1], stack, layer, DOWN, room, count)
    meet(arrivals, (met + 6) * threads)
    for token in range(low, high):
        add(residual[first + token], room.states[token])


@inner_njit
def multiply_share(
    thread: Int,
    threads: Int,
    out: Reals,
    column: Int,
    floats: Int,
    pitch: Int,
    stack: QuantizedStack,
    layer: Int,
    which: Int,
    room: QuantizedBuffers,
    tokens: Int,
) -> None:
    """Compute a thread's rows of a product with its bias, into the columns of `out` from `column` on.

    floats: address of float32 [tokens, pitch], whose rows begin with the states that `room` has in int8
    """
    at, rows = layer * PRODUCTS + which, stack.rows[which]
    tiles = (rows + ROWS - 1) // ROWS  # a partial tile takes as long as a full one
    low, high = tiles * thread // threads * ROWS, min(rows, tiles * (thread + 1) // threads * ROWS)
    multiply_at(
        stack.products[at, 1], address(out) + 4 * column, out.shape[1], stack.products[at, 0], stack.products[at, 2],
        stack.products[at, 3], address(room.numbers), address(room.scales), address(room.totals), floats,
        pitch, tokens, stack.products[at, 4], low, high,
    )  # fmt: skip
    if stack.biases[layer, which] != 0:
        bias = array_at(stack.biases[layer, which], (rows,), out)
        for token in range(tokens):
            for row in range(low, high):
                out[token, column + row] += bias[row]


@inner_njit
def norm_of(stack: QuantizedStack, layer: Int, which: Int, width: Int, like: Reals) -> tuple[Reals, Reals]:
    """Return weights and biases of a norm, each empty if there are none."""
    weight, bias = stack.norms[layer, 2 * which], stack.norms[layer, 2 * which + 1]
    return array_at(weight, (width if weight != 0 else 0,), like), array_at(bias, (width if bias != 0 else 0,), like)


@inner_njit
def attend_share(
    thread: Int,
    threads: Int,
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
    """Compute a thread's part of the attention of one layer.

    Each token is computed by itself over its whole sequence, so results do not depend on the other tokens.
    """
    window, chunk, none = inputs.reaches[layer, 0], inputs.reaches[layer, 1], settings[:0]
    rows = inputs.short
    for head in range(thread, rows.firsts.size * keys.shape[1], threads):
        attend_blocks(mixed, queries, keys, values, rows, head, head + 1, window, chunk, none, settings, scratch, near)
