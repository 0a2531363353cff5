"""Arrays that kernels take as one argument."""

from dataclasses import replace

import numpy as np
import pytest
from trellm.kernels.jit.addresses import array_at
from trellm.kernels.jit.arrays import Arrays, Table, Vector
from trellm.kernels.jit.insides import PORTABLE
from trellm.kernels.jit.wide import inner_njit, njit


class Inside(Arrays):
    weights: Vector[np.float64]
    factor: int


class Outside(Arrays):
    values: Vector[np.int32]
    table: Table[np.uint64]
    inside: Inside


@inner_njit
def last_of(outside):
    return outside.table[outside.table.shape[0] - 1, outside.table.shape[1] - 1]


@njit(cache=False)
def read_all(outside, out):
    inside = outside.inside
    out[0] = len(outside.values)
    out[1] = last_of(outside)
    out[2] = inside.factor * inside.weights.sum()
    for i in range(len(outside.values)):
        out[3] += outside.values[i]
        outside.table[0, i] = i


def make() -> Outside:
    weights = np.array([0.5, 2.0])
    weights.flags.writeable = False
    return Outside(np.arange(4, dtype=np.int32), np.full((3, 5), 7, np.uint64), Inside(weights, -2))


def test_a_kernel_sees_what_python_sees() -> None:
    arrays, out = make(), np.zeros(4)
    read_all(arrays, out)
    assert out.tolist() == [4, 7, -5, 6]
    assert arrays.table[0].tolist() == [0, 1, 2, 3, 7], "what a kernel writes is there"
    more = replace(arrays, values=np.array([5], np.int32), inside=replace(arrays.inside, factor=3))
    read_all(more, out)
    assert out.tolist() == [1, 7, 7.5, 11]
    read_all(replace(more, values=np.zeros(0, np.int32)), out)
    assert out[0] == 0


@pytest.mark.parametrize(
    "values",
    [np.zeros(4, np.int64), np.zeros((4, 1), np.int32), np.zeros(8, np.int32)[::2], np.zeros(4, np.uint32)],
    ids=["dtype", "dimensions", "not contiguous", "signs"],
)
def test_other_arrays_are_refused(values: np.ndarray) -> None:
    with pytest.raises(TypeError, match=r"Outside\.values: .*int32.* is needed"):
        _ = replace(make(), values=values).address


def test_what_kernels_cannot_read_is_refused_before_they_do() -> None:
    with pytest.raises(TypeError, match=r"Outside.values: .* is needed, not int64"):
        replace(make(), values=np.arange(4))
    with pytest.raises(TypeError, match="is needed, not list"):
        replace(make(), values=[1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is needed"):
        replace(make(), table=np.zeros((4, 6), np.uint64)[:, ::2])


@pytest.mark.skipif(not hasattr(read_all, "overloads") or PORTABLE, reason="nothing is read by address")
@pytest.mark.parametrize("address", [KeyboardInterrupt(), None, "there", 2**70], ids=repr)
def test_an_address_that_cannot_be_had_is_an_error(address: object) -> None:
    class Broken(Outside):
        @property
        def address(self) -> object:  # type: ignore[override]
            if isinstance(address, BaseException):
                raise address
            return address

        def __post_init__(self) -> None:
            return

    arrays = make()
    read_all(arrays, np.zeros(4))
    compiled = next(iter(read_all.overloads.values())).entry_point
    broken = Broken(arrays.values, arrays.table, arrays.inside)
    with pytest.raises((KeyboardInterrupt, TypeError, OverflowError)):
        compiled(broken, np.zeros(4))


@pytest.mark.skipif(not hasattr(read_all, "overloads") or not PORTABLE, reason="what is read is an address")
@pytest.mark.parametrize("values", [KeyboardInterrupt(), AttributeError(), None, "these"], ids=repr)
def test_arrays_that_cannot_be_had_are_an_error(values: object) -> None:
    class Broken(Outside):
        def __getattribute__(self, name: str) -> object:
            if name == "table" and isinstance(values, BaseException):
                raise values
            return values if name == "table" else super().__getattribute__(name)

        def __post_init__(self) -> None:
            return

    arrays = make()
    broken = Broken(arrays.values, arrays.table, arrays.inside)
    with pytest.raises((KeyboardInterrupt, AttributeError, TypeError)):
        read_all(broken, np.zeros(4))


@njit(cache=False)
def double(address, rows, columns, like):
    table = array_at(address, (rows, columns), like)
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            table[row, column] *= 2


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_an_array_by_its_address(kind: type[np.floating]) -> None:
    table = np.arange(12, dtype=kind).reshape(3, 4)
    double(table.ctypes.data, 3, 4, table[:0])
    np.testing.assert_array_equal(table, 2 * np.arange(12).reshape(3, 4))
    double(0, 0, 4, table[:0])
    plain = array_at(table.ctypes.data + 4 * table.itemsize, (2, 4), table)
    np.testing.assert_array_equal(plain, table[1:])
    assert array_at(0, (0, 4), table).shape == (0, 4)
