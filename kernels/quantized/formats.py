"""The formats in which GGUF packs weights: how 32 of them come into registers.

A format packs a row of weights in blocks of 32 or 256. Whatever it is, weight i of 32 is

    scales[i // 4] * numbers[i] + offsets[i // 16]

with numbers of 8 bits, which a processor multiplies and adds four at a time. The layouts are those of ggml
(MIT licence), whose package `gguf` unpacks them in NumPy, which tests compare with.
"""

# llvmlite says nothing of the types of what is inside it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from llvmlite import ir

GROUP = 32
"""Weights that are unpacked at once, and states that share a scale."""
BYTE, SHORT, WORD, LONG = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
REAL = ir.FloatType()
BYTES, REALS, PAIR = ir.VectorType(BYTE, GROUP), ir.VectorType(REAL, 8), ir.VectorType(REAL, 2)
_SIXTEEN = ir.VectorType(BYTE, 16)


class Group(NamedTuple):
    """32 weights in registers, see above.

    numbers: 32 bytes, without a sign and up to 127, or signed
    scales: 8 float32; offsets: 2 float32, None where all are zero
    """

    numbers: Any
    scales: Any
    offsets: Any
    is_signed: bool = False


@dataclass(frozen=True)
class Format:
    """A format of quantized weights.

    weights, size: how many weights a block has, and how many bytes
    unpack: builds, from the address of a block, the group of this number in it
    halves: where in a block there are scales in float16
    """

    name: str
    weights: int
    size: int
    unpack: Callable[[Registers, Any, int], Group]
    halves: tuple[int, ...]

    def row_bytes(self, width: int) -> int:
        """Bytes of a row of so many weights."""
        return width // self.weights * self.size


class Registers:
    """Builds loads and operations on vectors of bytes and of float32."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def call(self, name: str, returned: Any, *arguments: Any) -> Any:
        """A call of a function of LLVM's."""
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(returned, [each.type for each in arguments]), name)
        return self.builder.call(function, arguments)

    def at(self, place: Any, offset: Any) -> Any:
        """The address so many bytes behind another."""
        return self.builder.gep(place, [LONG(offset) if isinstance(offset, int) else offset])

    def load(self, place: Any, kind: Any, offset: Any = 0) -> Any:
        """A value at an address that need not be aligned."""
        found = self.builder.load(self.builder.bitcast(self.at(place, offset), kind.as_pointer()))
        found.align = 1
        return found

    def half(self, place: Any, offset: int) -> Any:
        """A float16 as float32; infinities and NaN are refused before.

        Its bits go to where a float32 has them, whose exponent is then 112 too small, also for numbers without a
        leading one. The processor's own conversion would be loaded into a lane of a register that sums wait for.
        """
        builder = self.builder
        bits = builder.shl(builder.sext(self.load(place, SHORT, offset), WORD), WORD(13))
        return builder.fmul(builder.bitcast(builder.and_(bits, WORD(0x8FFFE000)), REAL), REAL(2.0**112))

    def real(self, number: Any, *, is_signed: bool = False) -> Any:
        """A small integer as float32."""
        return self.builder.sitofp(number, REAL) if is_signed else self.builder.uitofp(number, REAL)

    def spread(self, number: Any, kind: Any) -> Any:
        """A number in all lanes."""
        none = ir.Constant(ir.VectorType(number.type, 1), ir.Undefined)
        return self.chosen(self.builder.insert_element(none, number, WORD(0)), [0] * kind.count)

    def several(self, vector: Any, number: int) -> Any:
        """A constant of a vector's type with a number in all lanes."""
        return ir.Constant(vector.type, [number] * vector.type.count)

    def chosen(self, vector: Any, lanes: Sequence[int], other: Any = None) -> Any:
        """Some lanes of a vector, or of two."""
        second = ir.Constant(vector.type, ir.Undefined) if other is None else other
        return self.builder.shuffle_vector(vector, second, ir.Constant(ir.VectorType(WORD, len(lanes)), list(lanes)))

    def joined(self, one: Any, other: Any) -> Any:
        """The lanes of two vectors behind one another."""
        return self.chosen(one, range(2 * one.type.count), other)

    def bits(self, vector: Any, shift: int, count: int) -> Any:
        """So many bits of each byte, from one of them on."""
        wide = ir.VectorType(SHORT, vector.type.count // 2)  # processors shift no bytes
        moved = self.builder.bitcast(
            self.builder.lshr(self.builder.bitcast(vector, wide), ir.Constant(wide, [shift] * wide.count)), vector.type
        )
        return self.builder.and_(moved if shift else vector, self.several(vector, (1 << count) - 1))

    def above(self, low: Any, high: Any, shift: int) -> Any:
        """Bytes with further bits from `shift` on."""
        wide = ir.VectorType(SHORT, high.type.count // 2)
        moved = self.builder.shl(self.builder.bitcast(high, wide), ir.Constant(wide, [shift] * wide.count))
        return self.builder.or_(low, self.builder.bitcast(moved, low.type))

    def pair(self, one: Any, other: Any) -> Any:
        """Two float32."""
        none = ir.Constant(PAIR, ir.Undefined)
        return self.builder.insert_element(self.builder.insert_element(none, one, WORD(0)), other, WORD(1))

    def times(self, number: Any, factor: float) -> Any:
        """A float32 times a constant."""
        return self.builder.fmul(number, REAL(factor))

    def nibbles(self, place: Any, offset: int) -> Any:
        """32 numbers of 4 bits from 16 bytes: the low ones first."""
        packed = self.load(place, _SIXTEEN, offset)
        return self.joined(self.bits(packed, 0, 4), self.bits(packed, 4, 4))

    def even(self, numbers: Any, scale: Any, offset: Any, *, is_signed: bool = False) -> Group:
        """A group with one scale, and one offset if any."""
        offsets = None if offset is None else self.spread(offset, PAIR)
        return Group(numbers, self.spread(scale, REALS), offsets, is_signed)

    def halved(self, numbers: Any, scales: Sequence[Any], offsets: Sequence[Any]) -> Group:
        """A group whose halves have scales and offsets of their own."""
        return Group(numbers, self.chosen(self.pair(*scales), [0] * 4 + [1] * 4), self.pair(*offsets))


def _q4_0(registers: Registers, block: Any, group: int) -> Group:
    scale = registers.half(block, 0)
    return registers.even(registers.nibbles(block, 2), scale, registers.times(scale, -8.0))


def _q4_1(registers: Registers, block: Any, group: int) -> Group:
    return registers.even(registers.nibbles(block, 4), registers.half(block, 0), registers.half(block, 2))


def _fifth_bits(registers: Registers, block: Any, offset: int) -> Any:
    """The bits of a word of 32, one in each byte."""
    word = registers.builder.bitcast(registers.load(block, WORD, offset), ir.VectorType(BYTE, 4))
    spread = registers.chosen(word, [i // 8 for i in range(GROUP)])
    masks = ir.Constant(BYTES, [1 << i % 8 for i in range(GROUP)])
    found = registers.builder.icmp_unsigned("==", registers.builder.and_(spread, masks), masks)
    return registers.builder.zext(found, BYTES)


def _q5_0(registers: Registers, block: Any, group: int) -> Group:
    numbers = registers.above(registers.nibbles(block, 6), _fifth_bits(registers, block, 2), 4)
    scale = registers.half(block, 0)
    return registers.even(numbers, scale, registers.times(scale, -16.0))


def _q5_1(registers: Registers, block: Any, group: int) -> Group:
    numbers = registers.above(registers.nibbles(block, 8), _fifth_bits(registers, block, 4), 4)
    return registers.even(numbers, registers.half(block, 0), registers.half(block, 2))


def _q8_0(registers: Registers, block: Any, group: int) -> Group:
    return registers.even(registers.load(block, BYTES, 2), registers.half(block, 0), None, is_signed=True)


_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def _iq4_nl(registers: Registers, block: Any, group: int) -> Group:
    """Numbers stand for levels that lie closer about zero: 16 bytes, found by comparing bits."""
    numbers, builder = registers.nibbles(block, 2), registers.builder
    levels = [registers.several(numbers, level & 0xFF) for level in _LEVELS]
    for bit in range(4):
        has = builder.icmp_unsigned(
            "!=", builder.and_(numbers, registers.several(numbers, 1 << bit)), registers.several(numbers, 0)
        )
        levels = [builder.select(has, high, low) for low, high in zip(levels[::2], levels[1::2], strict=True)]
    return registers.even(levels[0], registers.half(block, 0), None, is_signed=True)


def _small_bits(registers: Registers, block: Any, offset: int, shift: int, count: int) -> Any:
    """Some bits of one byte."""
    return registers.builder.and_(
        registers.builder.lshr(registers.load(block, BYTE, offset), BYTE(shift)), BYTE((1 << count) - 1)
    )


def _q2_k(registers: Registers, block: Any, group: int) -> Group:
    packed = registers.load(block, BYTES, 16 + 32 * (group // 4))
    scale, least = registers.half(block, 80), registers.half(block, 82)
    times, real = registers.builder.fmul, registers.real
    scales = [times(scale, real(_small_bits(registers, block, 2 * group + i, 0, 4))) for i in range(2)]
    offsets = [times(least, real(_small_bits(registers, block, 2 * group + i, 4, 4))) for i in range(2)]
    return registers.halved(
        registers.bits(packed, 2 * (group % 4), 2), scales, [registers.times(each, -1.0) for each in offsets]
    )


def _q3_k(registers: Registers, block: Any, group: int) -> Group:
    low = registers.bits(registers.load(block, BYTES, 32 + 32 * (group // 4)), 2 * (group % 4), 2)
    high = registers.bits(registers.load(block, BYTES, 0), group, 1)
    scale, builder = registers.half(block, 108), registers.builder
    scales: list[Any] = []
    for number in (2 * group, 2 * group + 1):
        six = builder.or_(
            _small_bits(registers, block, 96 + number % 8, 4 * (number // 8), 4),
            builder.shl(_small_bits(registers, block, 104 + number % 4, 2 * (number // 4), 2), BYTE(4)),
        )
        scales.append(builder.fmul(scale, registers.real(builder.sub(six, BYTE(32)), is_signed=True)))
    return registers.halved(registers.above(low, high, 2), scales, [registers.times(each, -4.0) for each in scales])


def _six_bits(registers: Registers, block: Any, group: int) -> tuple[Any, Any]:
    """The scale and the least number of a group, 6 bits each, out of 12 bytes from the fifth on."""
    builder = registers.builder
    if group < 4:
        return _small_bits(registers, block, 4 + group, 0, 6), _small_bits(registers, block, 8 + group, 0, 6)
    low, least = (_small_bits(registers, block, 8 + group, shift, 4) for shift in (0, 4))
    high, more = (_small_bits(registers, block, at + group, 6, 2) for at in (0, 4))
    return builder.or_(low, builder.shl(high, BYTE(4))), builder.or_(least, builder.shl(more, BYTE(4)))


def _scaled(registers: Registers, block: Any, group: int, numbers: Any) -> Group:
    """Numbers with the scale and offset of a group of Q4_K and Q5_K."""
    scale, least = _six_bits(registers, block, group)
    times = registers.builder.fmul
    offset = times(registers.half(block, 2), registers.real(least))
    return registers.even(
        numbers, times(registers.half(block, 0), registers.real(scale)), registers.times(offset, -1.0)
    )


def _q4_k(registers: Registers, block: Any, group: int) -> Group:
    packed = registers.load(block, BYTES, 16 + 32 * (group // 2))
    return _scaled(registers, block, group, registers.bits(packed, 4 * (group % 2), 4))


def _q5_k(registers: Registers, block: Any, group: int) -> Group:
    low = registers.bits(registers.load(block, BYTES, 48 + 32 * (group // 2)), 4 * (group % 2), 4)
    high = registers.bits(registers.load(block, BYTES, 16), group, 1)
    return _scaled(registers, block, group, registers.above(low, high, 4))


def _q6_k(registers: Registers, block: Any, group: int) -> Group:
    half, part = divmod(group, 4)
    low = registers.bits(registers.load(block, BYTES, 64 * half + 32 * (part % 2)), 4 * (part // 2), 4)
    high = registers.bits(registers.load(block, BYTES, 128 + 32 * half), 2 * part, 2)
    scale = registers.half(block, 208)
    own = [registers.real(registers.load(block, BYTE, 192 + 2 * group + i), is_signed=True) for i in range(2)]
    scales = [registers.builder.fmul(scale, each) for each in own]
    return registers.halved(registers.above(low, high, 4), scales, [registers.times(each, -32.0) for each in scales])


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format("Q4_0", 32, 18, _q4_0, (0,)),
        Format("Q4_1", 32, 20, _q4_1, (0, 2)),
        Format("Q5_0", 32, 22, _q5_0, (0,)),
        Format("Q5_1", 32, 24, _q5_1, (0, 2)),
        Format("Q8_0", 32, 34, _q8_0, (0,)),
        Format("IQ4_NL", 32, 18, _iq4_nl, (0,)),
        Format("Q2_K", 256, 84, _q2_k, (80, 82)),
        Format("Q3_K", 256, 110, _q3_k, (108,)),
        Format("Q4_K", 256, 144, _q4_k, (0, 2)),
        Format("Q5_K", 256, 176, _q5_k, (0, 2)),
        Format("Q6_K", 256, 210, _q6_k, (208,)),
    )
}
"""By the name that GGUF has for them."""
