"""Formats of weights in GGUF files, and their unpacking: 32 weights of each of eight rows, or eight floats.

A quantized format stores a row in blocks of 32 or 256. In all formats weight i of 32 is

    scale * numbers[i] + offset

with 8-bit numbers, which processors multiply and add four at a time; scale and offset belong to all 32, or to either
half. Each lane of a vector belongs to one row, so unpacking works on eight rows at once. Floats are widened to float32,
eight of a row at once. The layouts are those of ggml (MIT licence); tests compare with its package `gguf`, which
unpacks them in NumPy.
"""

# llvmlite has no type stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from llvmlite import ir

from ..jit.vectors import LINE, build_prefetch

GROUP = 32
"""Weights that are unpacked at once, and states that share a scale."""
ROWS = 8
"""Rows that are unpacked at once."""
BYTE, SHORT, WORD, LONG = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
REAL = ir.FloatType()
BYTES, WORDS, REALS = ir.VectorType(BYTE, 4 * ROWS), ir.VectorType(WORD, ROWS), ir.VectorType(REAL, ROWS)
_SIXTEEN = ir.VectorType(BYTE, 16)

Blocks = Sequence[Any]
"""Addresses of one block of each row."""


class WeightGroup(NamedTuple):
    """32 weights of each row, in registers.

    numbers: 8 vectors of bytes; vector j has weights 4 * j to 4 * j + 3 of each row
    scales, offsets: float32 of each row, one vector for all 32 weights or two for their halves; no offsets if all are 0
    top: largest number, at most 127, if none is negative; 0 if numbers are signed
    """

    numbers: Sequence[Any]
    scales: Sequence[Any]
    offsets: Sequence[Any]
    top: int


@dataclass(frozen=True)
class Format:
    """A format of weights.

    weights, size: weights of a block, and its bytes
    halves: offsets in a block of its float16 scales, or of the two bytes of a number that contain its exponent
    exponent: bits of these two bytes that are all set in an infinite number or NaN
    """

    name: str
    weights: int
    size: int
    halves: tuple[int, ...]
    exponent: int

    def row_bytes(self, width: int) -> int:
        """Return the bytes of a row of `width` weights."""
        return width // self.weights * self.size


@dataclass(frozen=True)
class QuantizedFormat(Format):
    """A format of quantized weights.

    unpack: builds a group from the addresses of a block of each row, and the group's number in the block
    """

    unpack: Callable[[Registers, Blocks, int], WeightGroup]


@dataclass(frozen=True)
class FloatFormat(Format):
    """A format of floats; each block is one number.

    kind: integer type of a number's bits; widen: builds the conversion of a vector of these to float32
    """

    kind: Any
    widen: Callable[[Registers, Any], Any]


class Registers:
    """Builder of loads and of operations on vectors with a lane for each row. has: processor features, see HAS"""

    def __init__(self, builder: Any, has: Mapping[str, bool]) -> None:
        self.builder = builder
        self.has = has

    def call(self, name: str, returned: Any, *arguments: Any) -> Any:
        """Build a call of an LLVM function."""
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(returned, [each.type for each in arguments]), name)
        return self.builder.call(function, arguments)

    def place(self, start: Any, kind: Any, offset: Any = 0) -> Any:
        """Return a pointer `offset` bytes behind an address."""
        moved = self.builder.gep(start, [LONG(offset) if isinstance(offset, int) else offset])
        return self.builder.bitcast(moved, kind.as_pointer())

    def load(self, start: Any, kind: Any, offset: Any = 0) -> Any:
        """Build an unaligned load."""
        found = self.builder.load(self.place(start, kind, offset))
        found.align = 1
        return found

    def store(self, value: Any, start: Any, offset: Any = 0) -> None:
        """Build an unaligned store."""
        self.builder.store(value, self.place(start, value.type, offset)).align = 1

    def real_at(self, start: Any, number: Any) -> Any:
        """Return a pointer to float32 `number` behind an address."""
        return self.builder.inttoptr(self.builder.add(start, self.builder.mul(number, LONG(4))), REAL.as_pointer())

    def bring(self, start: Any, offset: Any, count: int) -> None:
        """Build a prefetch of `count` bytes. Hardware prefetchers do not follow eight rows side by side."""
        for first in range(0, count, LINE):
            build_prefetch(self.builder, self.place(start, BYTE, self.builder.add(offset, LONG(first))))

    def each(self, blocks: Blocks, kind: Any, offset: int) -> Any:
        """Load a value of each row."""
        found = ir.Constant(ir.VectorType(kind, ROWS), ir.Undefined)
        for row, block in enumerate(blocks):
            found = self.builder.insert_element(found, self.load(block, kind, offset), WORD(row))
        return found

    def bytes_of(self, blocks: Blocks, offset: int, count: int) -> list[Any]:
        """Load 16 or 32 bytes of each row, as vectors with four bytes of each row."""
        found: list[Any] = []
        for first in range(offset, offset + count, 16):
            rows = [self.builder.bitcast(self.load(block, _SIXTEEN, first), ir.VectorType(WORD, 4)) for block in blocks]
            lines = [self.chosen(low, range(8), high) for low, high in zip(rows[:4], rows[4:], strict=True)]
            # Transpose squares of 4 by 4 in each half of the vectors.
            pairs = [
                self.chosen(lines[i], [at + 4 * j for j in range(2) for at in (k, 8 + k, k + 1, 9 + k)], lines[i + 1])
                for k in (0, 2)
                for i in (0, 2)
            ]
            found += [
                self.chosen(pairs[i], [at + 4 * j for j in range(2) for at in (k, k + 1, 8 + k, 9 + k)], pairs[i + 1])
                for i in (0, 2)
                for k in (0, 2)
            ]
        return [self.builder.bitcast(each, BYTES) for each in found]

    def half(self, bits: Any) -> Any:
        """Convert finite float16, whose bits are in the upper halves of words, to float32.

        Shifted to the place of float32's bits, the exponent is 112 too small, for subnormal numbers as well.
        """
        builder, kind = self.builder, ir.VectorType(REAL, bits.type.count)
        moved = builder.and_(builder.ashr(bits, self.several(bits, 3)), self.several(bits, 0x8FFFE000))
        return builder.fmul(builder.bitcast(moved, kind), ir.Constant(kind, [2.0**112] * kind.count))

    def scale(self, blocks: Blocks, offset: int) -> Any:
        """Load a float16 of each row."""
        bits = self.builder.zext(self.each(blocks, SHORT, offset), WORDS)
        return self.half(self.builder.shl(bits, self.several(bits, 16)))

    def two_scales(self, blocks: Blocks, offset: int) -> tuple[Any, Any]:
        """Load two adjacent float16 of each row."""
        bits = self.each(blocks, WORD, offset)
        return self.half(self.builder.shl(bits, self.several(bits, 16))), self.half(bits)

    def field(self, words: Any, shift: int, count: int) -> Any:
        """Extract `count` bits from bit `shift` on of each row's word."""
        return self.builder.and_(
            self.builder.lshr(words, self.several(words, shift)), self.several(words, (1 << count) - 1)
        )

    def joined(self, low: Any, high: Any, shift: int) -> Any:
        """Combine words with further bits from bit `shift` on."""
        return self.builder.or_(low, self.builder.shl(high, self.several(high, shift)))

    def product(self, reals: Any, words: Any) -> Any:
        """Multiply a float32 of each row by a small integer."""
        return self.builder.fmul(reals, self.builder.sitofp(words, REALS))

    def times(self, reals: Any, factor: float) -> Any:
        """Multiply a float32 of each row by a constant."""
        return self.builder.fmul(reals, ir.Constant(REALS, [factor] * ROWS))

    def spread(self, number: Any, kind: Any) -> Any:
        """Broadcast a number to all lanes."""
        none = ir.Constant(ir.VectorType(number.type, 1), ir.Undefined)
        return self.chosen(self.builder.insert_element(none, number, WORD(0)), [0] * kind.count)

    def several(self, vector: Any, number: int) -> Any:
        """Return a constant vector of a vector's type with a number in all lanes."""
        return ir.Constant(vector.type, [number] * vector.type.count)

    def chosen(self, vector: Any, lanes: Sequence[int], other: Any = None) -> Any:
        """Select lanes of a vector, or of two."""
        second = ir.Constant(vector.type, ir.Undefined) if other is None else other
        return self.builder.shuffle_vector(vector, second, ir.Constant(ir.VectorType(WORD, len(lanes)), list(lanes)))

    def bits(self, vectors: Sequence[Any], shift: int, count: int) -> list[Any]:
        """Extract `count` bits from bit `shift` on of each byte."""
        builder, wide = self.builder, ir.VectorType(SHORT, 2 * ROWS)  # x86 has no shifts of bytes
        moved = [
            builder.bitcast(builder.lshr(builder.bitcast(each, wide), ir.Constant(wide, [shift] * wide.count)), BYTES)
            for each in vectors
        ]
        return [builder.and_(each, self.several(each, (1 << count) - 1)) for each in moved]

    def above(self, low: Sequence[Any], high: Sequence[Any], shift: int) -> list[Any]:
        """Combine bytes with further bits from bit `shift` on."""
        builder, wide = self.builder, ir.VectorType(SHORT, 2 * ROWS)
        moved = [builder.shl(builder.bitcast(each, wide), ir.Constant(wide, [shift] * wide.count)) for each in high]
        return [builder.or_(one, builder.bitcast(more, BYTES)) for one, more in zip(low, moved, strict=True)]

    def nibbles(self, blocks: Blocks, offset: int) -> list[Any]:
        """Unpack 32 numbers of 4 bits from 16 bytes: the low nibbles first."""
        packed = self.bytes_of(blocks, offset, 16)
        return self.bits(packed, 0, 4) + self.bits(packed, 4, 4)


def _q4_0(registers: Registers, blocks: Blocks, group: int) -> WeightGroup:
    scale = registers.scale(blocks, 0)
    return WeightGroup(registers.nibbles(blocks, 2), [scale], [registers.times(scale, -8.0)], 15)


def _q4_1(registers: Registers, blocks: Blocks, group: int) -> WeightGroup:
    scale, offset = registers.two_scales(blocks, 0)
    return WeightGroup(registers.nibbles(blocks, 4), [scale], [offset], 15)


def _five_bits(registers: Registers, blocks: Blocks, offset: int) -> list[Any]:
    """Unpack 32 numbers of 5 bits: a word has their highest bits, and the 16 bytes after it the others."""
    builder, words = registers.builder, registers.builder.bitcast(registers.each(blocks, WORD, offset), BYTES)
    found: list[Any] = []
    for place, low in enumerate(registers.nibbles(blocks, offset + 4)):
        spread = registers.chosen(words, [4 * row + place // 2 for row in range(ROWS) for _ in range(4)])
        masks = ir.Constant(BYTES, [1 << (4 * place + i) % 8 for i in range(4)] * ROWS)
        is_set = builder.icmp_signed("==", builder.and_(spread, masks), masks)
        found.append(builder.or_(low, builder.and_(builder.sext(is_set, BYTES), registers.several(low, 16))))
    return found


def _q5_0(registers: Registers, blocks: Blocks, group: int) -> WeightGroup:
    scale = registers.scale(blocks, 0)
    return WeightGroup(_five_bits(registers, blocks, 2), [scale], [registers.times(scale, -16.0)], 31)


def _q5_1(registers: Registers, blocks: Blocks, group: int) -> WeightGroup:
    scale, offset = registers.two_scales(blocks, 0)
    return WeightGroup(_five_bits(registers, blocks, 4), [scale], [offset], 31)


def _q8_0(registers: Registers, blocks: Blocks, group: int) -> WeightGroup:
    return WeightGroup(registers.bytes_of(blocks, 2, 32), [registers.scale(blocks, 0)], [], 0)


_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def _level_of(registers: Registers, numbers: Any) -> Any:
    """Map 4-bit numbers to levels by a table look-up; by selecting bit by bit where there is no instruction for it."""
    if registers.has.get("avx2"):
        table = ir.Constant(BYTES, [level & 0xFF for level in _LEVELS] * 2)
        return registers.call("llvm.x86.avx2.pshuf.b", BYTES, table, numbers)
    if registers.has.get("dotprod"):
        table = ir.Constant(_SIXTEEN, [level & 0xFF for level in _LEVELS])
        halves = (registers.chosen(numbers, range(first, first + 16)) for first in (0, 16))
        found = [registers.call("llvm.aarch64.neon.tbl1.v16i8", _SIXTEEN, table, half) for half in halves]
        return registers.chosen(found[0], range(32), found[1])
    builder = registers.builder
    levels = [registers.several(numbers, level & 0xFF) for level in _LEVELS]
    for bit in range(4):
        has = builder.icmp_signed(
            "!=", builder.and_(numbers, registers.several(numbers, 1 << bit)), registers.several(numbers, 0)
        )
        levels = [builder.select(has, high, low) for low, high in zip(levels[::2], levels[1::2], strict=True)]
    return levels[0]


def _iq4_nl(registers: Registers, blocks: Blocks, group: int) -> WeightGroup:
    """Numbers are indices of levels that are denser about zero."""
    levels = [_level_of(registers, each) for each in registers.nibbles(blocks, 2)]
    return WeightGroup(levels, [registers.scale(blocks, 0)], [], 0)


def _q2_k(registers: Registers, blocks: Blocks, group: int) -> WeightGroup:
    packed = registers.bytes_of(blocks, 16 + 32 * (group // 4), 32)
    words, (scale, least) = registers.each(blocks, WORD, group // 2 * 4), registers.two_scales(blocks, 80)
    places = [16 * (group % 2) + 8 * i for i in range(2)]
    scales = [registers.product(scale, registers.field(words, place, 4)) for place in places]
    offsets = [registers.product(least, registers.field(words, place + 4, 4)) for place in places]
    return WeightGroup(
        registers.bits(packed, 2 * (group % 4), 2), scales, [registers.times(each, -1.0) for each in offsets], 3
    )


def _q3_k(registers: Registers, blocks: Blocks, group: int) -> WeightGroup:
    low = registers.bits(registers.bytes_of(blocks, 32 + 32 * (group // 4), 32), 2 * (group % 4), 2)
    high = registers.bits(registers.bytes_of(blocks, 0, 32), group, 1)
    scale, scales = registers.scale(blocks, 108), []
    for number in (2 * group, 2 * group + 1):
        shift = 8 * (number % 4)
        four = registers.field(registers.each(blocks, WORD, 96 + number % 8 // 4 * 4), shift + 4 * (number // 8), 4)
        two = registers.field(registers.each(blocks, WORD, 104), shift + 2 * (number // 4), 2)
        six = registers.joined(four, two, 4)
        scales.append(registers.product(scale, registers.builder.sub(six, registers.several(six, 32))))
    return WeightGroup(registers.above(low, high, 2), scales, [registers.times(each, -4.0) for each in scales], 7)


def _scaled(registers: Registers, blocks: Blocks, group: int, numbers: Sequence[Any], top: int) -> WeightGroup:
    """Return numbers with the scale and offset of a group of Q4_K or Q5_K, 6 bits each from 12 bytes."""
    one, two, three = (registers.each(blocks, WORD, offset) for offset in (4, 8, 12))
    shift = 8 * (group % 4)
    if group < 4:
        scale, least = registers.field(one, shift, 6), registers.field(two, shift, 6)
    else:
        scale = registers.joined(registers.field(three, shift, 4), registers.field(one, shift + 6, 2), 4)
        least = registers.joined(registers.field(three, shift + 4, 4), registers.field(two, shift + 6, 2), 4)
    whole, whole_least = registers.two_scales(blocks, 0)
    offset = registers.times(registers.product(whole_least, least), -1.0)
    return WeightGroup(numbers, [registers.product(whole, scale)], [offset], top)


def _q4_k(registers: Registers, blocks: Blocks, group: int) -> WeightGroup:
    packed = registers.bytes_of(blocks, 16 + 32 * (group // 2), 32)
    return _scaled(registers, blocks, group, registers.bits(packed, 4 * (group % 2), 4), 15)


def _q5_k(registers: Registers, blocks: Blocks, group: int) -> WeightGroup:
    low = registers.bits(registers.bytes_of(blocks, 48 + 32 * (group // 2), 32), 4 * (group % 2), 4)
    high = registers.bits(registers.bytes_of(blocks, 16, 32), group, 1)
    return _scaled(registers, blocks, group, registers.above(low, high, 4), 31)


def _q6_k(registers: Registers, blocks: Blocks, group: int) -> WeightGroup:
    half, part = divmod(group, 4)
    low = registers.bits(registers.bytes_of(blocks, 64 * half + 32 * (part % 2), 32), 4 * (part // 2), 4)
    high = registers.bits(registers.bytes_of(blocks, 128 + 32 * half, 32), 2 * part, 2)
    builder, words = registers.builder, registers.each(blocks, WORD, 192 + group // 2 * 4)
    scale, scales = registers.scale(blocks, 208), []
    for shift in (16 * (group % 2), 16 * (group % 2) + 8):  # signed bytes
        factors = builder.ashr(builder.shl(words, registers.several(words, 24 - shift)), registers.several(words, 24))
        scales.append(registers.product(scale, factors))
    return WeightGroup(registers.above(low, high, 4), scales, [registers.times(each, -32.0) for each in scales], 63)


def _f32(registers: Registers, bits: Any) -> Any:
    return registers.builder.bitcast(bits, ir.VectorType(REAL, bits.type.count))


def _f16(registers: Registers, bits: Any) -> Any:
    builder, count = registers.builder, bits.type.count
    if registers.has.get("f16c"):
        return builder.fpext(builder.bitcast(bits, ir.VectorType(ir.HalfType(), count)), ir.VectorType(REAL, count))
    words = builder.zext(bits, ir.VectorType(WORD, count))
    return registers.half(builder.shl(words, registers.several(words, 16)))


def _bf16(registers: Registers, bits: Any) -> Any:
    words = registers.builder.zext(bits, ir.VectorType(WORD, bits.type.count))
    return _f32(registers, registers.builder.shl(words, registers.several(words, 16)))


_HALF, _SINGLE = 0x7C00, 0x7F80
"""Exponent bits of float16, and of bfloat16 and float32."""
FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        QuantizedFormat("Q4_0", 32, 18, (0,), _HALF, _q4_0),
        QuantizedFormat("Q4_1", 32, 20, (0, 2), _HALF, _q4_1),
        QuantizedFormat("Q5_0", 32, 22, (0,), _HALF, _q5_0),
        QuantizedFormat("Q5_1", 32, 24, (0, 2), _HALF, _q5_1),
        QuantizedFormat("Q8_0", 32, 34, (0,), _HALF, _q8_0),
        QuantizedFormat("IQ4_NL", 32, 18, (0,), _HALF, _iq4_nl),
        QuantizedFormat("Q2_K", 256, 84, (80, 82), _HALF, _q2_k),
        QuantizedFormat("Q3_K", 256, 110, (108,), _HALF, _q3_k),
        QuantizedFormat("Q4_K", 256, 144, (0, 2), _HALF, _q4_k),
        QuantizedFormat("Q5_K", 256, 176, (0, 2), _HALF, _q5_k),
        QuantizedFormat("Q6_K", 256, 210, (208,), _HALF, _q6_k),
        FloatFormat("F32", 1, 4, (2,), _SINGLE, WORD, _f32),
        FloatFormat("F16", 1, 2, (0,), _HALF, SHORT, _f16),
        FloatFormat("BF16", 1, 2, (0,), _SINGLE, SHORT, _bf16),
    )
}
"""Formats by their names in GGUF."""
