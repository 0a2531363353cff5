"""Products with weights of GGUF files: against NumPy, which sums in the same order, with weights that gguf unpacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from llvmlite import ir
from numpy.typing import NDArray
from trellm.kernels.decoder.products import FAST
from trellm.kernels.jit.wide import njit
from trellm.kernels.quantized.formats import FORMATS, GROUP, QuantizedFormat
from trellm.kernels.quantized.products import QuantizedMatrix, RoundedStates, round_row, round_states
from trellm.kernels.quantized.tiles import build_product, product_of

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="these kernels are nothing but what is compiled")

Reals = NDArray[np.float32]


class Layout(NamedTuple):
    """zero: the number that stands for 0; top: the largest; own: the bytes of scales that a block has beside float16"""

    zero: int
    top: int
    own: slice = slice(0)


LAYOUTS: Mapping[str, Layout] = {
    "Q4_0": Layout(8, 15), "Q4_1": Layout(0, 15), "Q5_0": Layout(16, 31), "Q5_1": Layout(0, 31), "Q8_0": Layout(0, -1),
    "IQ4_NL": Layout(0, 113), "Q2_K": Layout(0, 3, slice(0, 16)), "Q3_K": Layout(4, 7, slice(96, 108)),
    "Q4_K": Layout(0, 15, slice(4, 16)), "Q5_K": Layout(0, 31, slice(4, 16)), "Q6_K": Layout(32, 63, slice(192, 208)),
}  # fmt: skip
QUANTIZED = [name for name, form in FORMATS.items() if isinstance(form, QuantizedFormat)]
FLOATS = [name for name in FORMATS if name not in QUANTIZED]
PARTS = {"Q2_K": 2, "Q3_K": 2, "Q6_K": 2}
"""Halves of groups that have scales of their own."""


def matrix_of(kind: str, rows: int, blocks: int, seed: int = 0, scale: float = 0.01) -> QuantizedMatrix:
    """Random bytes; scales in float16 are those numbers of a normal distribution."""
    form, random = FORMATS[kind], np.random.default_rng(seed)
    data = random.integers(0, 256, (rows, blocks, form.size), np.uint8)
    for place in form.halves:
        halves = (random.standard_normal((rows, blocks)) * scale).astype(np.float16)
        data[:, :, place : place + 2] = halves[:, :, None].view(np.uint8)
    return QuantizedMatrix(kind, blocks * form.weights, data.reshape(rows, -1))


def floats_of(kind: str, rows: int, width: int, seed: int = 0) -> QuantizedMatrix:
    """Random numbers, some of which are 0, denormal or at the ends of the format."""
    numbers = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)
    numbers[:, ::7] *= np.float32(1e-6)
    numbers[::3, 1::5] = 0
    numbers[0, 0], numbers[-1, -1] = 65_504, -65_504
    data: Any = quants.quantize(numbers, GGMLQuantizationType[kind])
    return QuantizedMatrix(kind, width, data.view(np.uint8))


def product(matrix: QuantizedMatrix, states: Reals, ids: NDArray[np.int64] | None = None) -> Reals:
    """All rows times all states, or those of some ids, in two parts."""
    out = np.empty((len(states), len(matrix.data) if ids is None else len(ids)), np.float32)
    rounded, count = matrix.rounded(states), out.shape[1]
    for first, last in ((0, count // 3), (count // 3, count)):
        matrix.multiply(out, rounded, ids, first, last)
    return out


def states_of(tokens: int, width: int, seed: int = 0) -> Reals:
    return np.random.default_rng(seed + 1).standard_normal((tokens, width)).astype(np.float32)


def unpacked(matrix: QuantizedMatrix, data: NDArray[np.uint8] | None = None) -> Reals:
    return quants.dequantize(matrix.data if data is None else data, GGMLQuantizationType[matrix.kind])


def parts_of(matrix: QuantizedMatrix) -> tuple[Reals, Reals, Reals]:
    """Numbers [rows, width], scales and offsets [rows, width], by what gguf makes of other scales and numbers."""
    form, layout = FORMATS[matrix.kind], LAYOUTS[matrix.kind]
    rows, blocks = len(matrix.data), matrix.blocks

    def with_halves(*halves: float, top: bool = False) -> Reals:
        data = matrix.data.reshape(rows, blocks, form.size).copy()
        if top:
            kept = data[:, :, layout.own].copy()
            data[:] = 0xFF
            data[:, :, layout.own] = kept
        for place, half in zip(form.halves, halves, strict=False):
            data[:, :, place : place + 2] = np.array([half], np.float16).view(np.uint8)
        return unpacked(matrix, data.reshape(rows, -1))

    def halves(number: int) -> Reals:
        place = form.halves[number]
        data = matrix.data.reshape(rows, blocks, form.size)[:, :, place : place + 2]
        return np.repeat(np.ascontiguousarray(data).view(np.float16).astype(np.float32)[:, :, 0], form.weights, axis=1)

    own = with_halves(1, 0, top=True) / np.float32(layout.top - layout.zero)
    numbers = with_halves(1, 0) / np.where(own == 0, 1, own).astype(np.float32) + np.float32(layout.zero)
    scales = halves(0) * own
    if len(form.halves) == 2:
        return numbers, scales, halves(1) * with_halves(0, 1)
    return numbers, scales, scales * np.float32(-layout.zero)


def reference_of_floats(matrix: QuantizedMatrix, states: Reals) -> Reals:
    """The product as floats.py says that it is summed."""
    weights, whole = unpacked(matrix), matrix.width // 8 * 8
    lanes = np.zeros((len(states), len(weights), 8), np.float32)
    for at in range(0, whole, 8):
        lanes = fused(weights[:, at : at + 8], states[:, None, at : at + 8], lanes)
    while lanes.shape[-1] > 1:
        lanes = lanes[..., ::2] + lanes[..., 1::2]
    total = lanes[..., 0]
    for at in range(whole, matrix.width):
        total = fused(weights[:, at], states[:, None, at], total)
    return total


def rounded(states: Reals) -> tuple[Reals, Reals]:
    """Whole numbers [n, groups, 32] as float32, and their scales [n, groups]."""
    groups = states.reshape(len(states), -1, GROUP)
    most = np.abs(groups).max(-1)
    factors = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
    return np.rint(groups * factors[..., None]), most / np.float32(127)


def fused(one: Any, other: Any, more: Reals) -> Reals:
    """one * other + more, rounded once: in float64 rounded to odd, which rounding to float32 does not see."""
    product = np.multiply(one, other, dtype=np.float64)
    total = product + more
    back = total - product
    error = (product - (total - back)) + (more - back)
    even = total.view(np.int64) % 2 == 0
    return np.where((error != 0) & even, np.nextafter(total, np.copysign(np.inf, error)), total).astype(np.float32)


def reference(matrix: QuantizedMatrix, states: Reals) -> Reals:
    """The product as tiles.py says that it is summed."""
    rows, tokens, groups = len(matrix.data), len(states), matrix.width // GROUP
    numbers, scales, offsets = (part.reshape(rows, groups, GROUP) for part in parts_of(matrix))
    whole, own = rounded(states)
    total, parts = np.zeros((tokens, rows), np.float32), PARTS.get(matrix.kind, 1)
    for group in range(groups):
        sums = np.einsum(
            "rpk,tpk->trp", *(each[:, group].reshape(-1, parts, GROUP // parts) for each in (numbers, whole))
        )
        halves = own[:, group, None] * whole[:, group].reshape(tokens, 2, 16).sum(-1)
        behind = halves if parts == 2 else halves.sum(-1, keepdims=True)
        for part in range(parts):
            first = part * GROUP // parts
            total = fused(sums[..., part], scales[:, group, first] * own[:, group, None], total)
            total = fused(offsets[:, group, first], behind[:, part, None], total)
    return total


def test_states_are_rounded_by_callers_that_may_reorder_sums() -> None:
    """Where round_row is compiled for such a caller first: arrays that cannot be written to are a type of their own."""

    @njit(cache=False, fastmath=FAST)
    def fill(numbers: Any, scales: Any, totals: Any, states: Any) -> None:
        for token in range(len(states)):
            round_row(numbers, scales, totals, states[token], token, states.shape[1])

    states = states_of(6, 96)
    states.setflags(write=False)
    room = RoundedStates.of(6, 96, states)
    fill(*room.arrays, states)
    numbers, scales = rounded(states)
    assert np.array_equal(room.numbers.reshape(numbers.shape), numbers)
    assert np.array_equal(room.scales.reshape(scales.shape), scales)


def test_rows_in_another_order_are_those_rows() -> None:
    matrix, states = matrix_of("Q4_1", 21, 3), states_of(5, 96)
    order = np.random.default_rng(0).permutation(21)
    found = QuantizedMatrix(matrix.kind, matrix.width, matrix.data, order)
    assert np.array_equal(product(found, states), product(matrix, states)[:, order])
    ids = np.array([20, 0, 7, 7])
    assert np.array_equal(product(found, states, ids), product(matrix, states)[:, order[ids]])


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("kind", QUANTIZED)
def test_equals_the_reference(kind: str, blocks: int) -> None:
    matrix = matrix_of(kind, 37, blocks, seed=blocks)
    states = states_of(6, matrix.width, seed=blocks)
    found = product(matrix, states)
    np.testing.assert_array_equal(found, reference(matrix, states))
    # Rounding a state changes it by half of a scale, which is its group's largest state over 127.
    weights, steps = unpacked(matrix), np.repeat(rounded(states)[1], GROUP, axis=1)
    bound = np.abs(weights) @ (steps.T / 2) * 1.01 + 1e-6
    assert (np.abs(found - states.astype(np.float64) @ weights.T.astype(np.float64)) <= bound.T).all()


@pytest.mark.parametrize("width", [1, 8, 31, 96, 203])
@pytest.mark.parametrize("kind", FLOATS)
def test_floats_equal_their_reference(kind: str, width: int) -> None:
    """Whatever is read together; and those of 16 bits are products of the same numbers in float32."""
    matrix, states = floats_of(kind, 21, width, seed=width), states_of(11, width, seed=width)
    expected = reference_of_floats(matrix, states)
    for tokens in range(1, 12):
        np.testing.assert_array_equal(product(matrix, states[-tokens:]), expected[-tokens:])
    plain = QuantizedMatrix("F32", width, unpacked(matrix).view(np.uint8))
    np.testing.assert_array_equal(product(plain, states), expected)
    ids = np.array([20, 0, 7, 7])
    np.testing.assert_array_equal(product(matrix, states, ids), expected[:, ids])


@pytest.mark.parametrize("kind", QUANTIZED)
def test_a_token_is_the_same_whatever_is_read_with_it(kind: str) -> None:
    matrix = matrix_of(kind, 29, 1280 // FORMATS[kind].weights)  # unpacked in two parts
    states = states_of(40, matrix.width)
    whole = product(matrix, states)
    np.testing.assert_array_equal(whole, np.concatenate([product(matrix, each[None]) for each in states]))
    for tokens in range(2, 40):
        np.testing.assert_array_equal(product(matrix, states[40 - tokens :]), whole[40 - tokens :])


@pytest.mark.parametrize("kind", QUANTIZED)
def test_listed_rows(kind: str) -> None:
    matrix, random = matrix_of(kind, 50, 2), np.random.default_rng(0)
    for tokens in (1, 7, 33):
        states = states_of(tokens, matrix.width)
        whole = product(matrix, states)
        for count in (1, 7, 8, 21):
            ids = random.integers(0, 50, count)
            np.testing.assert_array_equal(product(matrix, states, ids), whole[:, ids])


@pytest.mark.parametrize("kind", QUANTIZED)
def test_bytes_that_are_all_alike(kind: str) -> None:
    """All numbers at an end of what the format has, -128 in int8 among them, and all zero, with states at theirs."""
    matrix = matrix_of(kind, 5, 2)
    width, blocks = matrix.width, matrix.data.reshape(5, 2, -1)
    for row, byte in enumerate((0x00, 0xFF, 0x80, 0x7F, 0x81)):
        halves = {place: blocks[row, :, place : place + 2].copy() for place in FORMATS[kind].halves}
        blocks[row] = byte
        for place, half in halves.items():
            blocks[row, :, place : place + 2] = half
    states = np.ones((5, width), np.float32)
    states[1], states[2, ::2], states[3, 1::3], states[4] = -1, -1, -1, 0
    found = product(matrix, states)
    np.testing.assert_array_equal(found, reference(matrix, states))
    assert not found[4].any()


@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize("scale", [0.0, 1e-7, 1e4])
def test_scales_at_the_ends_of_float16(kind: str, scale: float) -> None:
    """Denormal ones are below 6e-5; zeros are what blocks of zeros have."""
    matrix = matrix_of(kind, 9, 2, scale=scale)
    states = states_of(5, matrix.width)
    found = product(matrix, states)
    np.testing.assert_array_equal(found, reference(matrix, states))
    assert bool(found.any()) == (scale > 0)


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "Q6_K"])
def test_states_of_any_size(kind: str) -> None:
    matrix = matrix_of(kind, 9, 8)
    states = states_of(9, matrix.width)
    factors = np.float32(10) ** np.arange(-28, 36, 4)
    states[:8] *= factors[::2, None]
    states[8] *= np.resize(factors[:10], matrix.width)  # groups whose largest state is very much larger than others
    found = product(matrix, states)
    np.testing.assert_array_equal(found, reference(matrix, states))
    assert np.isfinite(found).all()


def test_states_that_are_too_small_are_zero() -> None:
    matrix = matrix_of("Q4_1", 9, 2)
    states = states_of(3, matrix.width)
    states[0] = 2.0**-101
    states[1, :GROUP] = -(2.0**-140)
    found = product(matrix, states)
    assert not found[0].any()
    states[1, :GROUP] = 0
    np.testing.assert_array_equal(found, product(matrix, states))


@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_state_that_is_not_finite_makes_its_token_nan(kind: str, value: float) -> None:
    matrix = matrix_of(kind, 19, 2)
    for tokens in (1, 6, 17):
        states = states_of(tokens, matrix.width)
        clean = product(matrix, states)
        states[tokens // 2, matrix.width - 3] = value
        found = product(matrix, states)
        assert np.isnan(found[tokens // 2]).all()
        others = np.arange(tokens) != tokens // 2
        np.testing.assert_array_equal(found[others], clean[others])


def test_what_every_processor_has_gives_the_same() -> None:
    kinds = ("Q4_1", "IQ4_NL", "Q2_K", "F16")
    portable: Any = product_of(kinds, {})

    @njit(cache=False)
    def multiply(
        out: Reals, number: int, weight: Any, blocks: int, whole: Any, scales: Any, totals: Any, states: Any
    ) -> None:
        portable(
            number, out.ctypes.data, out.shape[1], weight.ctypes.data, weight.shape[1], blocks, whole.ctypes.data,
            scales.ctypes.data, totals.ctypes.data, states.ctypes.data, states.shape[1], out.shape[0], 0, 0,
            out.shape[1],
        )  # fmt: skip

    for kind in kinds:
        matrix = floats_of(kind, 19, 77) if kind in FLOATS else matrix_of(kind, 19, 2)
        for tokens in (1, 7):
            states = states_of(tokens, matrix.width)
            room = RoundedStates.of(tokens, matrix.width, states)
            round_states(*room.arrays, states, tokens)
            found = np.empty((tokens, 19), np.float32)
            multiply(found, matrix.number, matrix.data, matrix.blocks, *room.arrays, states)
            np.testing.assert_array_equal(found, product(matrix, states))


@pytest.mark.parametrize(
    ("triple", "processor", "features", "instructions"),
    [
        (
            "x86_64-linux-gnu",
            "haswell",
            {"avx2": True, "f16c": True},
            ("vpmaddubsw", "vpmaddwd", "vpshufb", "vfmadd", "vcvtph2ps"),
        ),
        (
            "x86_64-linux-gnu",
            "icelake-server",
            {"avx2": True, "avx512vnni": True, "avx512vl": True},
            ("vpdpbusd", "vpsignb", "vpshufb", "vfmadd"),
        ),
        ("aarch64-linux-gnu", "neoverse-n1", {"dotprod": True}, ("sdot", "tbl", "fmla")),
        ("aarch64-linux-gnu", "generic", {}, ("mul", "fmla")),
    ],
)
def test_instructions_of_processors(
    triple: str, processor: str, features: dict[str, bool], instructions: tuple[str, ...]
) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module, kinds = ir.Module(), ("Q4_1", "IQ4_NL", "F16")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 15), "product")
    builder = ir.IRBuilder(function.append_basic_block())
    build_product(builder, function.args, kinds, features)
    builder.ret_void()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=processor)
    compiled = llvm.parse_assembly(str(module).replace("unknown-unknown-unknown", triple))
    assembly = machine.emit_assembly(compiled)
    for each in instructions:
        assert each in assembly
