"""The inner loop of products with GGUF weights: eight rows of quantized weights times the states of some tokens.

Products with floats are in floats.py. States are int8 with a scale for 32 of them, and formats.py unpacks the weights.
Sums of products within a common scale are exact, in int32. From there each number is summed in one order, independent
of other tokens and of the processor, so results are equal to the last bit:

    a = 0
    for each group of 32, or for each half of it where these have scales of their own:
        a = a + float(sum of products) * (scale * scale of the states), rounded once
        a = a + offset * (sum of the states times their scale), rounded once; for 32, the sum of both halves' totals
"""

# llvmlite has no type stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..jit.vectors import HAS, repeat
from .floats import FloatProduct
from .formats import (
    BYTE,
    BYTES,
    FORMATS,
    GROUP,
    LONG,
    REAL,
    REALS,
    ROWS,
    SHORT,
    WORD,
    WORDS,
    FloatFormat,
    QuantizedFormat,
    Registers,
    WeightGroup,
)

_FOUR = 4
"""Tokens that are multiplied at once, if there are as many."""
_CHUNK = 1024
"""Weights of a row that are unpacked, then multiplied with all tokens; with four tokens' states they fit a cache."""
_SLOT = 12 * 32
"""Bytes of an unpacked group: numbers, then scales, then offsets."""


def sums_of_products(registers: Registers, numbers: Sequence[Any], states: Sequence[Any], top: int) -> Any:
    """Return int32 [8]: each row's sum of the products of some vectors of weights with their states.

    x86 and ARM have instructions for it. Tests compile the code for ARM; it has never been run.

    numbers: vectors of four weights of each row, from 0 to `top`; or signed if `top` is 0
    states: vectors with the same four states for each row, from -127 to 127
    """
    has = registers.has
    if has.get("avx512vnni") and has.get("avx512vl"):
        return _by_vnni(registers, numbers, states, top)
    if has.get("avx2"):
        return _by_avx2(registers, numbers, states, top)
    if has.get("dotprod"):
        return _by_neon(registers, numbers, states, top)
    return _by_products(registers, numbers, states, top)


def _with_signs_moved(registers: Registers, numbers: Sequence[Any], states: Sequence[Any], top: int) -> Any:
    """Return pairs of unsigned numbers and signed states: x86 multiplies unsigned bytes by signed ones."""
    if top > 0:
        return zip(numbers, states, strict=True)
    builder = registers.builder
    none = registers.several(numbers[0], 0)
    sizes = [builder.select(builder.icmp_signed("<", each, none), builder.sub(none, each), each) for each in numbers]
    signed = [registers.call("llvm.x86.avx2.psign.b", BYTES, *pair) for pair in zip(states, numbers, strict=True)]
    return zip(sizes, signed, strict=True)


def _by_vnni(registers: Registers, numbers: Sequence[Any], states: Sequence[Any], top: int) -> Any:
    found = registers.several(ir.Constant(WORDS, [0] * ROWS), 0)
    for pair in _with_signs_moved(registers, numbers, states, top):
        words = (registers.builder.bitcast(each, WORDS) for each in pair)
        found = registers.call("llvm.x86.avx512.vpdpbusd.256", WORDS, found, *words)
    return found


def _by_avx2(registers: Registers, numbers: Sequence[Any], states: Sequence[Any], top: int) -> Any:
    """Sums of two products fit int16; for small weights, so do sums of some of these."""
    builder, pairs = registers.builder, ir.VectorType(SHORT, 2 * ROWS)
    both = _with_signs_moved(registers, numbers, states, top)
    products = [registers.call("llvm.x86.avx2.pmadd.ub.sw", pairs, *each) for each in both]
    count = 0x7FFF // (2 * 127 * top) if top > 0 else 1
    sums = [reduce(builder.add, products[i : i + count]) for i in range(0, len(products), count)]
    ones = ir.Constant(pairs, [1] * pairs.count)
    return reduce(builder.add, (registers.call("llvm.x86.avx2.pmadd.wd", WORDS, each, ones) for each in sums))


def _by_neon(registers: Registers, numbers: Sequence[Any], states: Sequence[Any], top: int) -> Any:
    """Unsigned numbers are below 128, so they are valid signed bytes."""
    four = ir.VectorType(WORD, 4)
    halves: list[Any] = []
    for first in (0, 16):
        found = ir.Constant(four, [0] * 4)
        for pair in zip(numbers, states, strict=True):
            parts = (registers.chosen(each, range(first, first + 16)) for each in pair)
            found = registers.call("llvm.aarch64.neon.sdot.v4i32.v16i8", four, found, *parts)
        halves.append(found)
    return registers.chosen(halves[0], range(8), halves[1])


def _by_products(registers: Registers, numbers: Sequence[Any], states: Sequence[Any], top: int) -> Any:
    """Use instructions that every processor has."""
    builder, wide = registers.builder, ir.VectorType(WORD, 4 * ROWS)
    products = [
        builder.mul(builder.sext(one, wide), builder.sext(other, wide))
        for one, other in zip(numbers, states, strict=True)
    ]
    total = reduce(builder.add, products)
    return reduce(builder.add, [registers.chosen(total, range(i, 4 * ROWS, 4)) for i in range(4)])


def product_of(kinds: Collection[str] = tuple(FORMATS), has: Mapping[str, bool] = HAS) -> Callable[..., None]:
    """Return product(number, out, stride, weights, row_bytes, blocks, states, scales, totals, floats, pitch, tokens,
        ids, first, last).

    It computes the results of rows from `first` to `last` - 1, eight at a time, for all tokens.

    number: index of the weights' format in FORMATS, which is one of `kinds`
    out: address of float32 [tokens, stride]; columns from `first` to `last` - 1 are written
    weights: address of rows of `row_bytes` bytes, with `blocks` blocks each
    states: address of int8 [tokens, groups, 32]; scales: of float32 [tokens, groups]; totals: of float32 [tokens,
        groups, 2], sums of 16 states times their scale
    floats: address of float32 [tokens, pitch], whose rows begin with the states; read if weights are floats
    ids: address of int64, the row of weights for each column; 0 if they are the same
    """

    @intrinsic
    def product(
        context: Any, number: Any, out: Any, stride: Any, weights: Any, row_bytes: Any, blocks: Any, states: Any,
        scales: Any, totals: Any, floats: Any, pitch: Any, tokens: Any, ids: Any, first: Any, last: Any,
    ) -> Any:  # fmt: skip
        def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            build_product(builder, arguments, kinds, has)
            return target.get_dummy_value()

        return types.void(*[types.int64] * 15), build

    return product


def build_product(builder: Any, arguments: Sequence[Any], kinds: Collection[str], has: Mapping[str, bool]) -> None:
    """Build the body of `product_of`, with its arguments as int64. has: features of the target processor"""
    number, out, stride, weights, row_bytes, blocks, states, scales, totals, *behind = arguments
    floats, pitch, tokens, ids, first, last = behind
    done = builder.append_basic_block("done")
    choice = builder.switch(number, done)
    registers = Registers(builder, has)
    with builder.goto_entry_block():
        buffer = builder.alloca(BYTE, LONG(_CHUNK // GROUP * _SLOT))
    for place, form in enumerate(FORMATS.values()):
        if form.name not in kinds:
            continue
        case = builder.append_basic_block(form.name)
        choice.add_case(LONG(place), case)
        builder.position_at_end(case)
        if isinstance(form, FloatFormat):
            product = FloatProduct(registers, form, blocks, stride, (floats, pitch), tokens)
        else:
            assert isinstance(form, QuantizedFormat)
            product = _Product(registers, form, blocks, stride, (states, scales, totals), tokens, buffer)
        with cgutils.for_range_slice(builder, first, last, LONG(ROWS), LONG) as (at, _):
            # Fewer than eight rows are filled up with copies of the last one.
            places = [_least(builder, builder.add(at, LONG(i)), builder.sub(last, LONG(1))) for i in range(ROWS)]
            rows = [builder.mul(_meant(builder, ids, each), row_bytes) for each in places]
            eight = [builder.inttoptr(builder.add(weights, row), BYTE.as_pointer()) for row in rows]
            columns = [builder.add(out, builder.mul(each, LONG(4))) for each in places]
            with builder.if_else(builder.icmp_signed("==", tokens, LONG(1))) as (one, several):
                with one:
                    product.multiply_one(eight, columns)
                with several:
                    product.multiply_several(eight, columns)
        builder.branch(done)
    builder.position_at_end(done)


def _least(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.icmp_signed("<", one, other), one, other)


def _meant(builder: Any, ids: Any, at: Any) -> Any:
    """Return ids[at], or `at` without ids."""
    before = builder.block
    with builder.if_then(builder.icmp_unsigned("!=", ids, LONG(0))):
        place = builder.inttoptr(builder.add(ids, builder.mul(at, LONG(8))), LONG.as_pointer())
        listed, inside = builder.load(place), builder.block
    found = builder.phi(LONG)
    found.add_incoming(at, before)
    found.add_incoming(listed, inside)
    return found


class _Product:
    """Builder of the products of eight rows in one format."""

    def __init__(
        self,
        registers: Registers,
        form: QuantizedFormat,
        blocks: Any,
        stride: Any,
        states: tuple[Any, Any, Any],
        tokens: Any,
        buffer: Any,
    ) -> None:
        self._registers = registers
        self._form = form
        self._blocks = blocks
        self._stride = stride
        self._states = states
        self._tokens = tokens
        self._parts = form.weights // GROUP
        self._groups = registers.builder.mul(blocks, LONG(self._parts))
        self._buffer = buffer

    def multiply_one(self, rows: Sequence[Any], columns: Sequence[Any]) -> None:
        """Build the results of eight rows for one token."""

        def step(number: Any, sums: Sequence[Any]) -> Sequence[Any]:
            for part, group in enumerate(self._unpacked(rows, number)):
                sums = self._add(sums, group, LONG(0), self._group(number, part))
            return sums

        zero = ir.Constant(REALS, [0.0] * ROWS)
        self._store(repeat(self._registers.builder, self._blocks, 1, [zero], step), columns, LONG(0))

    def multiply_several(self, rows: Sequence[Any], columns: Sequence[Any]) -> None:
        """Build the results of eight rows for all tokens, by chunks of the rows; `out` keeps the partial sums."""
        builder, length = self._registers.builder, LONG(_CHUNK // self._form.weights)
        with cgutils.for_range_slice(builder, LONG(0), self._blocks, length, LONG) as (begin, _):
            count = _least(builder, length, builder.sub(self._blocks, begin))
            like = self._unpack_chunk(rows, begin, count)
            in_fours = builder.and_(self._tokens, LONG(-_FOUR))
            for size, low, high in ((_FOUR, LONG(0), in_fours), (1, in_fours, self._tokens)):
                with cgutils.for_range_slice(builder, low, high, LONG(size), LONG) as (token, _):
                    self._multiply_chunk(
                        columns, like, begin, count, [builder.add(token, LONG(i)) for i in range(size)]
                    )

    def _unpacked(self, rows: Sequence[Any], number: Any) -> Iterator[WeightGroup]:
        """Return the groups of block `number` of each row, and prefetch the same part of the next eight rows."""
        builder = self._registers.builder
        at = builder.mul(number, LONG(self._form.size))
        following = builder.add(builder.mul(self._blocks, LONG(ROWS * self._form.size)), builder.mul(at, LONG(ROWS)))
        self._registers.bring(rows[0], following, ROWS * self._form.size)
        blocks = [builder.gep(row, [at]) for row in rows]
        return (self._form.unpack(self._registers, blocks, part) for part in range(self._parts))

    def _group(self, number: Any, part: int) -> Any:
        return self._registers.builder.add(self._registers.builder.mul(number, LONG(self._parts)), LONG(part))

    def _unpack_chunk(self, rows: Sequence[Any], begin: Any, count: Any) -> WeightGroup:
        """Unpack blocks of each row into the buffer. Return a group with the types and the top of all groups."""
        builder, found = self._registers.builder, []

        def step(number: Any, _: Sequence[Any]) -> list[Any]:
            for part, group in enumerate(self._unpacked(rows, builder.add(begin, number))):
                slot = builder.mul(self._group(number, part), LONG(_SLOT))
                for place, vector in enumerate([*group.numbers, *group.scales, *group.offsets]):
                    self._registers.store(vector, self._buffer, builder.add(slot, LONG(32 * place)))
                found.append(group)
            return []

        repeat(builder, count, 1, [], step)
        return found[0]

    def _multiply_chunk(
        self, columns: Sequence[Any], like: WeightGroup, begin: Any, count: Any, tokens: list[Any]
    ) -> None:
        """Add the products of the buffer's groups with the states of some tokens."""
        builder, registers = self._registers.builder, self._registers
        is_first, zero = builder.icmp_signed("==", begin, LONG(0)), ir.Constant(REALS, [0.0] * ROWS)
        first = builder.mul(begin, LONG(self._parts))

        def step(number: Any, sums: Sequence[Any]) -> list[Any]:
            slot = builder.mul(number, LONG(_SLOT))
            loaded = [
                registers.load(self._buffer, each.type, builder.add(slot, LONG(32 * place)))
                for place, each in enumerate([*like.numbers, *like.scales, *like.offsets])
            ]
            parts = len(like.scales)
            group = WeightGroup(loaded[:8], loaded[8 : 8 + parts], loaded[8 + parts :], like.top)
            return self._add(sums, group, tokens[0], builder.add(first, number))

        initial = [builder.select(is_first, zero, self._loaded(columns, token)) for token in tokens]
        for sums, token in zip(repeat(builder, self._group(count, 0), 1, initial, step), tokens, strict=True):
            self._store([sums], columns, token)

    def _add(self, sums: Sequence[Any], group: WeightGroup, token: Any, number: Any) -> list[Any]:
        """Add the products of a group of weights with the states to the sums of tokens from `token` on."""
        registers, builder, found = self._registers, self._registers.builder, []
        parts = len(group.scales)
        size = len(group.numbers) // parts
        for i, total in enumerate(sums):
            at = builder.add(builder.mul(builder.add(token, LONG(i)), self._groups), number)
            states, scales, totals = (
                builder.inttoptr(builder.add(each, builder.mul(at, LONG(step))), BYTE.as_pointer())
                for each, step in zip(self._states, (GROUP, 4, 8), strict=True)
            )
            words = [registers.spread(registers.load(states, WORD, 4 * j), WORDS) for j in range(len(group.numbers))]
            numbers = [builder.bitcast(each, BYTES) for each in words]
            scale = registers.spread(registers.load(scales, REAL), REALS)
            behind = [registers.load(totals, REAL, 4 * j) for j in range(2)]
            if parts == 1:
                behind = [builder.fadd(*behind)]
            for part in range(parts):
                span = slice(part * size, part * size + size)
                integers = sums_of_products(registers, group.numbers[span], numbers[span], group.top)
                scaled = builder.fmul(group.scales[part], scale)
                total = registers.call("llvm.fma.v8f32", REALS, builder.sitofp(integers, REALS), scaled, total)
                if group.offsets:
                    spread = registers.spread(behind[part], REALS)
                    total = registers.call("llvm.fma.v8f32", REALS, group.offsets[part], spread, total)
            found.append(total)
        return found

    def _places(self, columns: Sequence[Any], token: Any) -> list[Any]:
        line = self._registers.builder.mul(token, self._stride)
        return [self._registers.real_at(column, line) for column in columns]

    def _loaded(self, columns: Sequence[Any], token: Any) -> Any:
        found = ir.Constant(REALS, ir.Undefined)
        for row, place in enumerate(self._places(columns, token)):
            found = self._registers.builder.insert_element(found, self._registers.builder.load(place), WORD(row))
        return found

    def _store(self, sums: Sequence[Any], columns: Sequence[Any], token: Any) -> None:
        for row, place in enumerate(self._places(columns, token)):
            self._registers.builder.store(self._registers.builder.extract_element(sums[0], WORD(row)), place)
