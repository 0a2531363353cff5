"""All layers of a decoder on a CPU in one call: in a small model, what lies between calls takes as long as they do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..attention.paged import AttentionRows, attend_blocks
from ..attention.panels import attend_panels
from ..attention.stored import Stored
from ..jit.addresses import array_at
from ..jit.aliases import Float, Int, Ints
from ..jit.arrays import Arrays, Table, Vector
from ..jit.wide import inner_njit, njit
from .layers import begin_layer, end_layer, normalise_rows

Reals = NDArray[np.floating[Any]]


class Stack(Arrays):
    """The weights of layers that are alike, in the order in which the kernels of a layer take them.

    weights: [layers, n] addresses
    shapes: [n, 2] rows and columns of each; a vector has one column
    eps: [layers, 3] of both norms of a layer, and of the norms of heads
    """

    weights: Table[np.int64]
    shapes: Table[np.int64]
    eps: Table[np.float64]


class Texts(Arrays):
    """What attention reads: where keys and values lie, how far back layers look, and what is new of which texts.

    stored: [layers, 2] addresses of keys and of values; shape: [4], of each: blocks, heads, places, size
    reaches: [layers, 2] window and chunk of each layer, as `attend_blocks` has them
    short, long: which texts are read by `attend_blocks`, and by `attend_panels`
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
    stack: Stack,
    texts: Texts,
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
    """Layers as `begin_layer` and `end_layer` have them, attention between, and the last norm.

    residual: [n, hidden], changed to what comes of it
    queries, mixed: [n, heads, size], room
    slots, cos, sin, states, product, across, sums: as `begin_layer` has them
    norm, norm_bias, eps: the last one
    settings, scratch, near: as `attend_blocks` has them
    """
    flat = mixed.reshape(mixed.shape[0], mixed.shape[1] * mixed.shape[2])
    for layer in range(stack.weights.shape[0]):
        keys, values = stored_at(texts, layer, near)
        begin_layer(
            queries, keys, values, residual, slots, cos, sin,
            vector_of(stack, layer, 0, residual), vector_of(stack, layer, 1, residual), stack.eps[layer, 0],
            matrix_of(stack, layer, 2, residual), vector_of(stack, layer, 3, residual),
            vector_of(stack, layer, 4, residual), vector_of(stack, layer, 5, residual), stack.eps[layer, 2],
            states, product, across, sums,
        )  # fmt: skip
        attend_texts(mixed, queries, keys, values, texts, layer, settings, scratch, near)
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
def attend_texts(
    mixed: Reals,
    queries: Reals,
    keys: Stored,
    values: Stored,
    texts: Texts,
    layer: Int,
    settings: Reals,
    scratch: Reals,
    near: Stored,
) -> None:
    """Attention of one layer, of all texts."""
    window, chunk, none = texts.reaches[layer, 0], texts.reaches[layer, 1], settings[:0]
    short, long = texts.short, texts.long
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
def stored_at(texts: Texts, layer: Int, like: Stored) -> tuple[Stored, Stored]:
    """A layer's keys and values [blocks, heads, places, size]."""
    shape = texts.shape[0], texts.shape[1], texts.shape[2], texts.shape[3]
    return array_at(texts.stored[layer, 0], shape, like), array_at(texts.stored[layer, 1], shape, like)


@inner_njit
def matrix_of(stack: Stack, layer: Int, number: Int, like: Reals) -> Reals:
    """One of a layer's weights [rows, columns]."""
    return array_at(stack.weights[layer, number], (stack.shapes[number, 0], stack.shapes[number, 1]), like)


@inner_njit
def vector_of(stack: Stack, layer: Int, number: Int, like: Reals) -> Reals:
    """One of a layer's weights [size], or none."""
    return array_at(stack.weights[layer, number], (stack.shapes[number, 0],), like)
