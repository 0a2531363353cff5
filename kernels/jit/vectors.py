"""Vectors in kernels: intrinsics whose sums stay in registers, where LLVM's vectoriser keeps them in memory."""
# Numba and llvmlite have no complete type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic
from numba.np.arrayobj import make_array  # checked by insides.py

from .compiling import inner_njit
from .insides import PORTABLE

_config: Any = config
HAS: Mapping[str, bool] = (
    llvm.get_host_cpu_features() if _config.ENABLE_AVX and _config.CPU_NAME is _config.CPU_FEATURES is None else {}
)
"""Features of this processor that may be used, by LLVM's names; empty if Numba compiles for another processor."""
WIDE = bool(llvm.get_host_cpu_features().get("avx512f"))
"""True if the processor has AVX-512: 32 registers of 64 bytes."""
VECTOR = 64 if WIDE else 32
"""Bytes of a vector."""
INT = ir.IntType(64)
_LANE = ir.IntType(32)

Function = TypeVar("Function", bound=Callable[..., Any])


def in_vectors(plain: Function, build: Callable[..., Any]) -> Function:
    """Return an intrinsic that `build` defines, or `plain` where our intrinsics cannot be used."""
    kernel: Any = inner_njit(plain) if PORTABLE or _config.DISABLE_JIT else intrinsic(build)
    return kernel


class Vectors:
    """Builder of operations on vectors of `lanes` numbers."""

    def __init__(self, target: Any, builder: Any, kind: Any) -> None:
        self.builder = builder
        scalar = target.get_data_type(kind)
        self.bytes: int = target.get_abi_sizeof(scalar)
        self.lanes = VECTOR // self.bytes
        self.kind = ir.VectorType(scalar, self.lanes)
        self._undefined = ir.Constant(self.kind, ir.Undefined)
        self.zero = ir.Constant(self.kind, [0.0] * self.lanes)

    def load(self, place: Any) -> Any:
        """Load the vector that begins at an address."""
        found = self.builder.load(self.builder.bitcast(place, self.kind.as_pointer()))
        found.align = self.bytes
        return found

    def store(self, vector: Any, place: Any) -> None:
        """Store a vector at an address."""
        self.builder.store(vector, self.builder.bitcast(place, self.kind.as_pointer())).align = self.bytes

    def chosen(self, one: Any, other: Any, lanes: list[int]) -> Any:
        """Select lanes of two vectors; those of `other` are numbered from `self.lanes` on."""
        return self.builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(_LANE, self.lanes), lanes))

    def exchanged(self, one: Any, other: Any, size: int) -> tuple[Any, Any]:
        """Exchange off-diagonal squares between two rows that lie `size` apart: a step of a transposition."""
        upper = [i if not i & size else self.lanes + i - size for i in range(self.lanes)]
        lower = [i + size if not i & size else self.lanes + i for i in range(self.lanes)]
        return self.chosen(one, other, upper), self.chosen(one, other, lower)

    def totals(self, vectors: Sequence[Any]) -> Any:
        """Return a vector whose lane i is the sum of the lanes of vectors[i]. Their number must be a power of two."""
        left, size = list(vectors), 1
        while size < self.lanes:
            if len(left) > 1:
                pairs = [self.exchanged(*pair, size) for pair in zip(left[::2], left[1::2], strict=True)]
            else:
                pairs = [(left[0], self.chosen(left[0], left[0], [i ^ size for i in range(self.lanes)]))]
            left = [self.add(*pair) for pair in pairs]
            size *= 2
        return left[0]

    def store_some(self, vector: Any, first: int, count: int, place: Any) -> None:
        """Store `count` lanes of a vector from `first` on at an address; `count` is a power of two."""
        lanes = ir.Constant(ir.VectorType(_LANE, count), list(range(first, first + count)))
        some = self.builder.shuffle_vector(vector, self._undefined, lanes)
        self.builder.store(some, self.builder.bitcast(place, some.type.as_pointer())).align = self.bytes

    def spread(self, number: Any) -> Any:
        """Broadcast a number to all lanes."""
        first = self.builder.insert_element(self._undefined, number, _LANE(0))
        return self.chosen(first, self._undefined, [0] * self.lanes)

    def add_product(self, total: Any, one: Any, other: Any) -> Any:
        """Add a product to a total, fused where the processor can."""
        return self.add(total, self.builder.fmul(one, other, flags=["contract"]))

    def add(self, one: Any, other: Any) -> Any:
        """Add two vectors lane by lane."""
        return self.builder.fadd(one, other, flags=["contract"])


def repeat(
    builder: Any, count: Any, stride: int, initial: Sequence[Any], step: Callable[[Any, Sequence[Any]], Sequence[Any]]
) -> list[Any]:
    """Build a loop over 0, stride, 2 * stride ... below `count`, which maps values by `step`. Return the last values.

    They are `initial` if `count` is 0.
    """
    before = builder.block
    loop, done = builder.append_basic_block("step"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed(">", count, INT(0)), loop, done)
    builder.position_at_end(loop)
    at = builder.phi(INT)
    phis = [builder.phi(each.type) for each in initial]
    grown = step(at, phis)
    following = builder.add(at, INT(stride))
    after = builder.block
    builder.cbranch(builder.icmp_signed("<", following, count), loop, done)
    at.add_incoming(INT(0), before)
    at.add_incoming(following, after)
    builder.position_at_end(done)
    found = [builder.phi(each.type) for each in initial]
    for phi, last, start, more in zip(phis, found, initial, grown, strict=True):
        for each in (phi, last):
            each.add_incoming(start, before)
            each.add_incoming(more, after)
    return found


def place_of(target: Any, builder: Any, kind: Any, value: Any, *index: Any) -> tuple[Any, Any]:
    """Return the address of an element of a contiguous array [n] or [m, n], and the length of the last dimension."""
    array = make_array(kind)(target, builder, value)
    length = cgutils.unpack_tuple(builder, array.shape)[-1]
    at = index[0] if len(index) == 1 else builder.add(builder.mul(index[0], length), index[1])
    return builder.gep(array.data, [at]), length


LINE = 64
"""Bytes of a cache line."""


def build_prefetch(builder: Any, place: Any) -> None:
    """Build a prefetch of the cache line of an address."""
    kinds = ir.FunctionType(ir.VoidType(), [place.type, _LANE, _LANE, _LANE])
    hint = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kinds)
    builder.call(hint, [place, _LANE(0), _LANE(3), _LANE(1)])  # a read, locality 3, data


def _hint(context: Any, table: Any, row: Any, column: Any) -> Any:
    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        array = make_array(kind)(target, builder, arguments[0])
        place = cgutils.get_item_pointer(target, builder, kind, array, list(arguments[1:]), wraparound=False)
        build_prefetch(builder, builder.bitcast(place, ir.IntType(8).as_pointer()))
        return target.get_dummy_value()

    return types.void(table, row, column), build


def _no_hint(table: Any, row: Any, column: Any) -> None:
    """Do nothing, in place of a prefetch."""


# prefetch(table, row, column): prefetch the cache line of an element. A hint without effect on results.
prefetch: Callable[[Any, Any, Any], None] = (
    inner_njit(_no_hint) if PORTABLE or cast("Any", config).DISABLE_JIT else cast("Any", intrinsic(_hint))
)
