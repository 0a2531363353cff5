"""Arrays that belong together, as one argument of a kernel: the address of a list of where they are.

A NamedTuple of arrays is seven words an array to Numba, which Python's objects are unpacked to at every call, and which
every kernel hands on to those that it calls: two hundred for a chart. To compile that takes longer than to compile
what the kernels do. Here they are handed one address, and read from the list what they want.
"""

from __future__ import annotations

import operator
from array import array
from dataclasses import dataclass, fields
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import NativeValue, infer_getattr, lower_getattr_generic, models, register_model, unbox
from numba.np.numpy_support import as_dtype, from_dtype
from numpy.typing import NDArray

_Scalar = TypeVar("_Scalar", bound=np.generic)
Vector: TypeAlias = Annotated[NDArray[_Scalar], 1]
Table: TypeAlias = Annotated[NDArray[_Scalar], 2]


@dataclass_transform(frozen_default=True, eq_default=False)
class Arrays:
    """The base of what kernels take as one argument. Fields are annotated Vector, Table, int, or as other `Arrays`.

    Vectors and tables are contiguous, in C's order. Nothing but their contents changes: `dataclasses.replace`
    makes another. Raises TypeError for a field of another kind.

    address: where the list is; it lives as long as this does
    """

    _numba_type_: ClassVar[Any]
    _list: ClassVar[Any]
    address: ClassVar[int]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False)(cls)
        cls._numba_type_ = ArraysType(cls)

    def __post_init__(self) -> None:
        # What a kernel is handed must be right, and there: so it is made before anybody can hand it on.
        words = self._words()
        vars(self).update(_list=words, address=words.buffer_info()[0])

    def _words(self) -> array[int]:
        """For each field: where the array object is, a number, or the address of another list."""
        words: list[int] = []
        values = vars(self)
        for name, (kind, dtype, _) in fields_of(type(self)).items():
            value = values[name]
            if dtype is None:
                words.append(value.address if isinstance(value, Arrays) else value)
                continue
            is_array = isinstance(value, np.ndarray)
            # Equal types are nearly always the same object, which is found out ten times as fast.
            fits = is_array and (value.dtype is dtype or value.dtype == dtype) and value.ndim == kind.ndim
            if not fits or not value.flags.c_contiguous:
                given = f"{value.dtype} {value.shape}" if is_array else type(value).__name__
                raise TypeError(f"{type(self).__name__}.{name}: {kind} is needed, not {given}")
            words.append(id(value))
        return array("q", words)


# An array object in memory: what all objects begin with, its data, the number of its dimensions, and its shape. C has
# it so, in the macros PyArray_DATA and PyArray_DIMS, which are a part of every extension module.
_DATA = object.__basicsize__
_SHAPE = _DATA + 16


class Field(NamedTuple):
    """Numba's type of a field, an array's dtype, and where in the list it begins."""

    kind: Any
    dtype: np.dtype[Any] | None
    place: int


@cache
def fields_of(which: type[Arrays]) -> dict[str, Field]:
    """The fields of a subclass by name, in order."""
    hints = get_type_hints(which, include_extras=True)
    found: dict[str, Field] = {}
    for place, field in enumerate(fields(which)):  # type: ignore[arg-type]
        kind = _kind(hints[field.name])
        found[field.name] = Field(kind, as_dtype(kind.dtype) if isinstance(kind, types.Array) else None, place)
    return found


def _kind(hint: Any) -> Any:
    if hint is int:
        return types.int64
    if isinstance(hint, type):
        return hint._numba_type_
    values, dimensions = get_args(hint)
    (scalar,) = get_args(get_args(values)[1])
    return types.Array(from_dtype(np.dtype(scalar)), dimensions, "C")


class ArraysType(types.Type):
    """Numba's type of an `Arrays` class."""

    def __init__(self, which: type[Arrays]) -> None:
        super().__init__(which.__name__)
        self.which = which
        self._key = which

    # A plain attribute: Numba compares types by it at every call, and an interrupt there would be lost on the way.
    key = property(operator.attrgetter("_key"))


register_model(ArraysType)(models.OpaqueModel)


@infer_getattr
class _Attributes(AttributeTemplate):
    key = ArraysType

    def generic_resolve(self, kind: ArraysType, name: str) -> Any:
        field = fields_of(kind.which).get(name)
        return field and field.kind


@unbox(ArraysType)
def _take(kind: ArraysType, value: Any, c: Any) -> NativeValue:
    """The address that an object has; an error where it has none, or a number that is no address."""
    found = cgutils.alloca_once_value(c.builder, ir.Constant(c.pyapi.voidptr, None))
    address = c.pyapi.object_getattr_string(value, "address")
    with c.builder.if_then(cgutils.is_not_null(c.builder, address), likely=True):
        c.builder.store(c.pyapi.long_as_voidptr(address), found)
        c.pyapi.decref(address)
    pointer = c.builder.load(found)
    return NativeValue(pointer, is_error=cgutils.is_null(c.builder, pointer))


@lower_getattr_generic(ArraysType)
def _read(context: Any, builder: Any, kind: ArraysType, pointer: Any, name: str) -> Any:
    field = fields_of(kind.which)[name]
    if field.dtype is None:
        return _load(builder, pointer, 8 * field.place, context.get_value_type(field.kind))
    model = context.data_model_manager[field.kind]
    value = ir.Constant(model.get_value_type(), None)

    def put(word: Any, part: str, *axis: int) -> None:
        nonlocal value
        value = builder.insert_value(value, word, [model.get_field_position(part), *axis])

    found = _load(builder, pointer, 8 * field.place, pointer.type)
    put(_load(builder, found, _DATA, context.get_value_type(model.get_member_fe_type("data"))), "data")
    shape = _load(builder, found, _SHAPE, pointer.type)
    itemsize = _WORD(field.dtype.itemsize)
    put(itemsize, "itemsize")
    items = _WORD(1)
    for axis in reversed(range(field.kind.ndim)):
        length = _load(builder, shape, 8 * axis, _WORD)
        put(length, "shape", axis)
        put(builder.mul(itemsize, items), "strides", axis)
        items = builder.mul(items, length)
    put(items, "nitems")
    return value


_WORD = ir.IntType(64)


def _load(builder: Any, pointer: Any, offset: int, kind: Any) -> Any:
    """What is there so many bytes from a pointer. None of it changes while a kernel runs, whatever that writes to."""
    place = builder.bitcast(builder.gep(pointer, [_WORD(offset)]), kind.as_pointer())
    word = builder.load(place)
    word.set_metadata("invariant.load", builder.module.add_metadata([]))
    return word
