"""All layers in one call: what their kernels give one by one, which test_products.py and test_attention.py know."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trellm.kernels.attention.paged import AttentionRows, attend_blocks, write_blocks
from trellm.kernels.attention.panels import attend_panels
from trellm.kernels.attention.stored import room_near
from trellm.kernels.decoder.layers import (
    AttentionInputs,
    LayerStack,
    begin_layer,
    end_layer,
    normalise_rows,
    read_layers,
)
from trellm.kernels.decoder.products import lanes_of, room_of

LAYERS, BLOCKS, PLACES = 3, 7, 16
HIDDEN, INNER, QUERIES, KEYS, SIZE = 24, 20, 4, 2, 8
SHORT = {"firsts": [0, 1], "widths": [1, 3], "starts": [30, 0], "blocks": [3, 5, 0], "tables": [0, 2]}
LONG = {"firsts": [4, 13], "widths": [9, 20], "starts": [0, 18], "blocks": [1, 2, 4, 6], "tables": [0, 1]}
REACHES = [(0, 0), (5, 0), (0, 12)]


def rows_of(columns: dict[str, list[int]], is_there: bool = True) -> AttentionRows:
    return AttentionRows(**{name: np.array(column if is_there else [], np.int32) for name, column in columns.items()})


class Step:
    """Random layers, and tokens of texts of which some are read by each kernel of attention."""

    def __init__(self, kind: Any, shapes: list[tuple[int, ...]], keys: int, short: bool, long: bool) -> None:
        draw, stored = np.random.default_rng(0), kind
        kind = np.float32 if kind in (np.float16, np.int8) else kind  # of all but keys and values
        self.short, self.long = rows_of(SHORT, short), rows_of(LONG, long)
        tokens = 33 if long else 4
        self.residual = draw.standard_normal((tokens, HIDDEN)).astype(kind)
        self.layers = [[(draw.standard_normal(s) * 0.3).astype(kind) for s in shapes] for _ in range(LAYERS)]
        self.eps = draw.random((LAYERS, 3)) * 1e-3
        numbers = draw.standard_normal((LAYERS, 2, BLOCKS, keys, PLACES, SIZE))
        self.stored: Any = numbers.astype(stored)
        if stored is np.float16:
            self.stored = self.stored.view(np.uint16)
        if stored is np.int8:
            self.stored = np.zeros((*numbers.shape[:-1], SIZE + 4), np.int8)
            write_blocks(
                self.stored.reshape(-1, 1, PLACES, SIZE + 4), numbers.astype(kind).reshape(-1, 1, SIZE),
                np.arange(numbers.size // SIZE, dtype=np.int32),
            )  # fmt: skip
        (self.near,) = room_near(self.stored[0])
        self.slots = draw.permutation(BLOCKS * PLACES)[:tokens].astype(np.int32)
        turns = draw.random((tokens, SIZE // 2))
        self.cos, self.sin = np.cos(turns).astype(kind), np.sin(turns).astype(kind)
        self.last = [draw.standard_normal(HIDDEN).astype(kind) for _ in range(2)]
        self.settings, self.scratch = np.array([0.3, 0], kind), np.empty((QUERIES, 64), kind)
        widest = max(max(shape) for shape in shapes)
        lanes = lanes_of(kind)
        self.room = np.empty((lanes, widest), kind), np.empty((lanes, widest), kind), *room_of(widest, widest, kind)
        self.heads = [np.zeros((tokens, QUERIES, SIZE), kind) for _ in range(2)]

    @property
    def stack(self) -> LayerStack:
        shapes = [(*array.shape, 1)[:2] for array in self.layers[0]]
        addresses = [[array.ctypes.data for array in layer] for layer in self.layers]
        return LayerStack(np.array(addresses), np.array(shapes), self.eps)

    @property
    def inputs(self) -> AttentionInputs:
        places = np.array([[each.ctypes.data for each in layer] for layer in self.stored])
        return AttentionInputs(places, np.array(self.stored.shape[2:]), np.array(REACHES), self.short, self.long)

    def attend(self, layer: int) -> Any:
        """Attention of one layer, by its kernels."""
        queries, mixed = self.heads
        limits = (*REACHES[layer], self.settings[:0], self.settings)
        count = len(self.short.firsts)
        attend_blocks(
            mixed, queries, *self.stored[layer], self.short, 0, count * KEYS, *limits, self.scratch, self.near
        )
        long = self.long
        for first, width, start, table in zip(long.firsts, long.widths, long.starts, long.tables, strict=True):
            part = slice(first, first + width)
            attend_panels(mixed[part], queries[part], *self.stored[layer], long.blocks[table:], start, *limits)
        return mixed.reshape(len(mixed), -1)


def same(kind: Any, shapes: list[tuple[int, ...]], keys: int, which: str, read: Any, one_by_one: Any) -> None:
    """Whether both ways give the same numbers, and keep the same keys and values."""
    found, expected = (Step(kind, shapes, keys, which != "long", which != "short") for _ in range(2))
    read(found)
    one_by_one(expected)
    assert np.isfinite(found.residual).all()
    np.testing.assert_array_equal(found.residual, expected.residual)
    np.testing.assert_array_equal(found.stored, expected.stored)


TEXTS = pytest.mark.parametrize("which", ["short", "long", "both"])
KINDS = pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, np.int8])


@TEXTS
@KINDS
@pytest.mark.parametrize("gpt2", [False, True], ids=["rotated and gated", "with layer norms"])
@pytest.mark.parametrize("extras", [False, True])
def test_layers(kind: Any, which: str, extras: bool, gpt2: bool) -> None:
    def bias(count: int) -> tuple[int]:
        return (count * (extras or gpt2),)

    def shift() -> tuple[int]:
        return (HIDDEN * gpt2,)

    asked, norms = (QUERIES + 2 * KEYS) * SIZE, (SIZE * (extras and not gpt2),)
    wide = INNER if gpt2 else 2 * INNER
    before = [(HIDDEN,), shift(), (asked, HIDDEN), bias(asked), norms, norms]
    after = [(HIDDEN, QUERIES * SIZE), bias(HIDDEN), (HIDDEN,), shift(), (wide, HIDDEN), bias(wide)]
    shapes = [*before, *after, (HIDDEN, INNER), bias(HIDDEN)]

    def angles(step: Step) -> tuple[Any, Any]:
        return (step.cos[:, :0], step.sin[:, :0]) if gpt2 else (step.cos, step.sin)

    def last(step: Step) -> tuple[Any, Any]:
        return step.last[0], step.last[1][: HIDDEN * gpt2]

    def read(step: Step) -> None:
        read_layers(
            step.residual, *step.heads, step.slots, *map(np.ascontiguousarray, angles(step)), step.stack, step.inputs,
            *last(step), 1e-5, step.settings, step.scratch, step.near, *step.room,
        )  # fmt: skip

    def one_by_one(step: Step) -> None:
        for number, (own, eps) in enumerate(zip(step.layers, step.eps, strict=True)):
            begin_layer(
                step.heads[0], *step.stored[number], step.residual, step.slots,
                *map(np.ascontiguousarray, angles(step)), *own[:2], eps[0], *own[2:6], eps[2], *step.room,
            )  # fmt: skip
            end_layer(step.residual, step.attend(number), *own[6:10], eps[1], *own[10:], *step.room)
        normalise_rows(step.residual, step.residual, *last(step), 1e-5)

    same(kind, shapes, KEYS, which, read, one_by_one)
