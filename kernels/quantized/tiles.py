"""The innermost loop of products with quantized weights: a row of weights times the states of some tokens.

States are in int8 with a scale for 32 of them, weights are unpacked in registers (formats.py). Sums of four products
each are exact, in int32; from there on a token's number is summed in one order, whatever else is read with it and
on which processor: it is the same to the last bit.

    a = 0 [8], b = 0 [2]
    for each group of 32:
        a = a + float(sums) * (scales * scale of the states), rounded once
        b = b + offsets * sums of the states times their scale, rounded once
    the number is ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7)), plus b0 + b1
"""

# llvmlite says nothing of the types of what is inside it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .formats import BYTE, BYTES, FORMATS, GROUP, LONG, PAIR, REAL, REALS, SHORT, WORD, Format, Registers

_SUMS = ir.VectorType(WORD, 8)
_FOUR = 4
_HAS = llvm.get_host_cpu_features()


def sums_of_four(registers: Registers, numbers: Any, states: Any, is_signed: bool) -> Any:
    """int32 [8]: sums of four products each of 32 weights and 32 states.

    numbers: without a sign and up to 127, or signed; states: from -127 to 127
    """
    if _HAS.get("avx2"):
        return _by_avx2(registers, numbers, states, is_signed)
    if _HAS.get("dotprod"):
        return _by_neon(registers, numbers, states, is_signed)
    return by_products(registers, numbers, states, is_signed)


def _by_avx2(registers: Registers, numbers: Any, states: Any, is_signed: bool) -> Any:
    """Bytes are multiplied one without a sign by one with: so signs go over to the states."""
    builder = registers.builder
    if is_signed:
        states = registers.call("llvm.x86.avx2.psign.b", BYTES, states, numbers)
        is_below = builder.icmp_signed("<", numbers, registers.several(numbers, 0))
        numbers = builder.select(is_below, builder.sub(registers.several(numbers, 0), numbers), numbers)
    if _HAS.get("avx512vnni") and _HAS.get("avx512vl"):
        return registers.call(
            "llvm.x86.avx512.vpdpbusd.256",
            _SUMS,
            ir.Constant(_SUMS, [0] * 8),
            *(builder.bitcast(each, _SUMS) for each in (numbers, states)),
        )
    pairs = ir.VectorType(SHORT, 16)
    found = registers.call("llvm.x86.avx2.pmadd.ub.sw", pairs, numbers, states)
    return registers.call("llvm.x86.avx2.pmadd.wd", _SUMS, found, ir.Constant(pairs, [1] * 16))


def _by_neon(registers: Registers, numbers: Any, states: Any, is_signed: bool) -> Any:
    """Numbers without a sign are below 128, and so are signed ones, too."""
    four = ir.VectorType(WORD, 4)
    halves: list[Any] = []
    for first in (0, 16):
        parts = [registers.chosen(each, range(first, first + 16)) for each in (numbers, states)]
        halves.append(registers.call("llvm.aarch64.neon.sdot.v4i32.v16i8", four, ir.Constant(four, [0] * 4), *parts))
    return registers.joined(*halves)


def by_products(registers: Registers, numbers: Any, states: Any, is_signed: bool) -> Any:
    """By what every processor has."""
    builder, wide = registers.builder, ir.VectorType(WORD, GROUP)
    products = builder.mul(builder.sext(numbers, wide), builder.sext(states, wide))
    parts = [registers.chosen(products, range(i, GROUP, 4)) for i in range(4)]
    return builder.add(builder.add(parts[0], parts[1]), builder.add(parts[2], parts[3]))


def product_of(sums: Callable[..., Any] = sums_of_four, kinds: Collection[str] = tuple(FORMATS)) -> Callable[..., None]:
    """product(number, out, stride, weights, row_bytes, blocks, states, scales, totals, tokens, ids, first, last)

    The numbers of rows from `first` on and before `last`, for some tokens, four at a time and then one by one.

    number: of the weights' format in FORMATS, which is one of `kinds`
    out: address of float32 [tokens, stride], of which the columns from `first` on are written
    weights: address of rows of so many bytes, of which so many blocks are used
    states: address of int8 [tokens, groups, 32]; scales: of float32 [tokens, groups]; totals: of float32 [tokens,
        groups, 2], sums of 16 states times their scale
    ids: address of int64, the rows that are meant by the numbers from `first` on; 0 for the rows of these numbers
    """

    @intrinsic
    def product(
        context: Any, number: Any, out: Any, stride: Any, weights: Any, row_bytes: Any, blocks: Any, states: Any,
        scales: Any, totals: Any, tokens: Any, ids: Any, first: Any, last: Any,
    ) -> Any:  # fmt: skip
        def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number, out, stride, weights, row_bytes, blocks, states, scales, totals, tokens, ids, first, last = (
                arguments
            )
            done = builder.append_basic_block("done")
            choice = builder.switch(number, done)
            for place, form in enumerate(FORMATS.values()):
                if form.name not in kinds:
                    continue
                case = builder.append_basic_block(form.name)
                choice.add_case(LONG(place), case)
                builder.position_at_end(case)
                given = _Product(Registers(builder), form, sums, blocks, stride)
                with cgutils.for_range_slice(builder, first, last, LONG(1), LONG) as (at, _):
                    row = builder.add(weights, builder.mul(given.meant(ids, at), row_bytes))
                    column = builder.add(out, builder.mul(at, LONG(4)))
                    given.multiply(row, column, (states, scales, totals), tokens)
                builder.branch(done)
            builder.position_at_end(done)
            return target.get_dummy_value()

        return types.void(*[types.int64] * 13), build

    return product


class _Product:
    """Builds the products of a row in one format."""

    def __init__(self, registers: Registers, form: Format, sums: Callable[..., Any], blocks: Any, stride: Any) -> None:
        self._registers = registers
        self._form = form
        self._sums = sums
        self._blocks = blocks
        self._stride = stride
        self._groups = registers.builder.mul(blocks, LONG(form.weights // GROUP))

    def meant(self, ids: Any, at: Any) -> Any:
        """The row that a number means."""
        builder = self._registers.builder
        before = builder.block
        with builder.if_then(builder.icmp_unsigned("!=", ids, LONG(0))):
            place = builder.inttoptr(builder.add(ids, builder.mul(at, LONG(8))), LONG.as_pointer())
            listed, inside = builder.load(place), builder.block
        found = builder.phi(LONG)
        found.add_incoming(at, before)
        found.add_incoming(listed, inside)
        return found

    def multiply(self, row: Any, column: Any, given: tuple[Any, Any, Any], tokens: Any) -> None:
        """The numbers of a row for all tokens."""
        builder = self._registers.builder
        in_fours = builder.and_(tokens, LONG(-_FOUR))
        for size, begin, end in ((_FOUR, LONG(0), in_fours), (1, in_fours, tokens)):
            with cgutils.for_range_slice(builder, begin, end, LONG(size), LONG) as (token, _):
                at = builder.mul(token, self._groups)
                states, scales, totals = (
                    builder.inttoptr(builder.add(each, builder.mul(at, LONG(bytes_))), BYTE.as_pointer())
                    for each, bytes_ in zip(given, (GROUP, 4, 8), strict=True)
                )
                place = builder.add(column, builder.mul(builder.mul(token, self._stride), LONG(4)))
                self._sum(row, place, (states, scales, totals), size)

    def _sum(self, row: Any, out: Any, given: tuple[Any, Any, Any], tokens: int) -> None:
        """The numbers of a row for some tokens side by side, over all blocks."""
        registers, form = self._registers, self._form
        builder, (states, scales, totals), groups = registers.builder, given, form.weights // GROUP
        packed = builder.inttoptr(row, BYTE.as_pointer())
        begun = [ir.Constant(REALS, [0.0] * 8)] * tokens + [ir.Constant(PAIR, [0.0] * 2)] * tokens

        def step(number: Any, before: list[Any]) -> list[Any]:
            block = registers.at(packed, builder.mul(number, LONG(form.size)))
            wide, narrow = before[:tokens], before[tokens:]
            for part in range(groups):
                group = form.unpack(registers, block, part)
                at = builder.add(builder.mul(number, LONG(groups)), LONG(part))
                for token in range(tokens):
                    place = builder.add(at, builder.mul(self._groups, LONG(token)))
                    own = registers.load(states, BYTES, builder.mul(place, LONG(GROUP)))
                    scale = registers.load(scales, REAL, builder.mul(place, LONG(4)))
                    found = builder.sitofp(self._sums(registers, group.numbers, own, group.is_signed), REALS)
                    scaled = builder.fmul(group.scales, registers.spread(scale, REALS))
                    wide[token] = registers.call("llvm.fma.v8f32", REALS, found, scaled, wide[token])
                    if group.offsets is not None:
                        both = registers.load(totals, PAIR, builder.mul(place, LONG(8)))
                        narrow[token] = registers.call("llvm.fma.v2f32", PAIR, group.offsets, both, narrow[token])
            return [*wide, *narrow]

        found = _repeat(builder, self._blocks, begun, step)
        for token, (wide, narrow) in enumerate(zip(found[:tokens], found[tokens:], strict=True)):
            for size in (4, 2, 1):
                wide = builder.fadd(*(registers.chosen(wide, range(i, i + size)) for i in (0, size)))
            total = builder.extract_element(wide, WORD(0))
            behind = builder.fadd(*(builder.extract_element(narrow, WORD(i)) for i in range(2)))
            place = builder.add(out, builder.mul(self._stride, LONG(4 * token)))
            builder.store(builder.fadd(total, behind), builder.inttoptr(place, REAL.as_pointer()))


def _repeat(builder: Any, count: Any, begun: list[Any], step: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """What `step` makes of values for 0, 1 ... below a count, which is 1 or more."""
    before, loop, done = builder.block, builder.append_basic_block("step"), builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    at = builder.phi(LONG)
    values = [builder.phi(each.type) for each in begun]
    grown = step(at, list(values))
    following, last = builder.add(at, LONG(1)), builder.block
    builder.cbranch(builder.icmp_signed("<", following, count), loop, done)
    for phi, start, more in zip([at, *values], [LONG(0), *begun], [following, *grown], strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(more, last)
    builder.position_at_end(done)
    return grown
