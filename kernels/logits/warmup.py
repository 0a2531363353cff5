"""Compilation of every CPU kernel, or its loading from the cache, before the first request."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba.core import config

from ..attention import paged, panels
from ..decoder import layers, products, recurrent
from ..quantized import layers as quantized_layers
from ..quantized import products as quantized_products
from . import mask, select


def thunks() -> list[tuple[str, Callable[[], object]]]:
    """Return calls of the kernels on masks, logits and KV caches, each on one short row."""
    # Kernels on quantized weights exist only with the JIT.
    return [*logits_thunks(), *decoder_thunks(), *([] if cast("Any", config).DISABLE_JIT else quantized_thunks())]


def logits_thunks() -> list[tuple[str, Callable[[], object]]]:
    """Return calls of the kernels on masks and logits."""
    logits = np.zeros((1, 8), np.float32)
    halves = np.zeros((1, 8), np.float16)
    masks = np.full((1, 1), 0xFF, np.uint32)
    zero, row, ones = np.zeros(1, np.int32), np.zeros(1, np.int32), np.ones(1, np.int64)
    few = np.zeros((1, mask.LISTED), np.int32)
    return [
        ("apply_mask", lambda: mask.apply_mask(logits, masks)),
        ("apply_mask, 16 bit", lambda: mask.apply_mask(halves, masks)),
        ("allowed_ids", lambda: mask.allowed_ids(masks[0])),
        ("keep_row", lambda: mask.keep_row(masks.view(np.int32), few, 0, masks[0])),
        ("copy_rows", lambda: mask.copy_rows(masks, few, zero, row, zero, 1, 1)),
        ("renew_rows", lambda: mask.renew_rows(masks, few, ones, zero, row, zero, 1, 1, np.zeros(1, np.int64), few)),
        ("popcount", lambda: mask.popcount(masks)),
        ("masked_argmax", lambda: select.masked_argmax(logits, masks)),
        ("masked_topk", lambda: select.masked_topk(logits, 2, masks)),
        ("masked_sample", lambda: select.masked_sample(logits, 0.5, masks, top_p=0.5)),
    ]


def decoder_thunks() -> list[tuple[str, Callable[[], object]]]:
    """Return calls of the kernels of attention and of decoder layers."""
    logits, zero = np.zeros((1, 8), np.float32), np.zeros(1, np.int32)
    token, stored = np.zeros((1, 1, 8), np.float32), np.zeros((1, 1, 1, 8), np.float32)
    none, square = logits[0, :0], np.zeros((8, 8), np.float32)
    room = np.zeros((products.lanes_of(np.float32), 8), np.float32), np.zeros((1, 32), np.float32)
    work = (*room, *products.room_of(8, 32, np.float32))
    many, norm, turns = np.zeros((24, 8), np.float32), np.zeros(8, np.float32), np.zeros((1, 4), np.float32)
    states, heads, single = square[None], square[None, None], np.zeros((1, 1), np.float32)
    rows = paged.AttentionRows(zero, zero, zero, np.ones(1, np.int32), zero)
    # without layers; their kernels are compiled above
    no_stack = layers.LayerStack(np.zeros((0, 14), np.int64), np.zeros((14, 2), np.int64), np.zeros((0, 3)))
    no_inputs = layers.AttentionInputs(no_stack.shapes, np.zeros(4, np.int64), no_stack.shapes, rows, rows)
    return [
        ("write_blocks", lambda: paged.write_blocks(stored, token, zero)),
        ("multiply_rows", lambda: products.product_of(logits, square, None)),
        ("multiply_some", lambda: products.products_of_some(logits, square, None, [np.ones(1, np.int64)])),
        ("normalise_rows", lambda: layers.normalise_rows(logits, logits, norm, none, 1.0)),
        (
            "begin_layer",
            lambda: layers.begin_layer(
                *(token, stored, stored, logits, zero, turns, turns, norm, none, 1.0),
                *(many, none, none, none, 1.0, *work),
            ),
        ),
        (
            "end_layer",
            lambda: layers.end_layer(
                logits, logits, square, none, norm, none, 1.0, many[:16], none, square, none, *work
            ),
        ),
        (
            "read_layers",
            lambda: layers.read_layers(
                *(logits, token, token, zero, turns, turns, no_stack, no_inputs, norm, none, 1.0, norm, logits, none),
                *work,
            ),
        ),
        (
            "attend_blocks",
            lambda: paged.attend_blocks(
                token, token, stored, stored, rows, 0, 1, 0, 0, logits[0, :0], logits[0, :2], logits, none
            ),
        ),
        (
            "attend_panels",
            lambda: panels.attend_panels(token, token, stored, stored, zero, 0, 0, 0, logits[0, :0], logits[0, :2]),
        ),
        ("step_convolution", lambda: recurrent.step_convolution(logits, states, logits, square, none, True)),
        ("step_selective", lambda: recurrent.step_selective(logits, states, logits, logits, square, logits, logits)),
        ("step_heads", lambda: recurrent.step_heads(token, heads, token, single, single, token, token)),
        ("step_delta", lambda: recurrent.step_delta(token, heads, token, token, token, single, single)),
    ]


def quantized_thunks() -> list[tuple[str, Callable[[], object]]]:
    """Return calls of the kernels on quantized weights: a matrix of eight rows, and a decoder without layers."""
    weights = np.frombuffer(bytes(8 * 34), np.uint8).reshape(8, 34)  # read-only, like mapped files
    matrix = quantized_products.QuantizedMatrix("Q8_0", 32, weights)
    states, out, ids = np.zeros((1, 32), np.float32), np.zeros((1, 8), np.float32), np.zeros(8, np.int64)
    rounded = quantized_products.RoundedStates.of(1, 32, states)
    operands = matrix.number, matrix.data, matrix.blocks, *rounded.arrays, states, 1
    none, one, heads, zero = states[0, :0], np.ones(1, np.int32), states[None], np.zeros(1, np.int32)
    no_products, no_rows = np.zeros((0, 5), np.int64), np.zeros(7, np.int64)
    stack = quantized_layers.QuantizedStack(no_products, no_rows, no_products, no_products, np.zeros((0, 3)))
    rows = paged.AttentionRows(zero, zero, zero, one, zero)
    inputs = layers.AttentionInputs(no_products, no_rows, no_products, rows, rows)
    room = quantized_layers.QuantizedBuffers(states, states, *rounded.arrays, np.zeros(1, np.int64))
    last = states[0], none, 1.0
    work = states, heads, heads, zero, states, states, stack, inputs, *last, none, heads, states[:, :0], room
    return [
        ("round_states", lambda: quantized_products.round_states(*rounded.arrays, states, 1)),
        ("multiply_quantized", lambda: quantized_products.multiply_quantized(out, *operands, ids, 0, 8)),
        ("read_quantized_layers", lambda: quantized_layers.read_quantized_layers(*work, 0, 0, 1, 0)),
    ]


def warm(report: Callable[[str, float], None] | None = None) -> float:
    """Compile or load all CPU kernels. Return the seconds it took. `report` receives each kernel's name and seconds."""
    begin = time.perf_counter()
    for name, thunk in thunks():
        start = time.perf_counter()
        thunk()
        if report is not None:
            report(name, time.perf_counter() - start)
    return time.perf_counter() - begin
